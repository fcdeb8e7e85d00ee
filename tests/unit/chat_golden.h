/* chat_golden.h - the golden renderings of chat templates: tests/data/chat, and
 * ../shared/data/chat-templates if it is available. Included once per test program. */
#ifndef INFERD_TESTS_CHAT_GOLDEN_H
#define INFERD_TESTS_CHAT_GOLDEN_H

#include "core/base/mem.h"
#include "core/base/str.h"
#include "core/chat/chat.h"
#include "tests/support/files.h"
#include "tests/unit/check.h"

#include <dirent.h>
#include <stdlib.h>

#define SHARED "../shared/data/chat-templates"
#define LOCAL  "tests/data/chat"

enum { MAX_BYTES = 1 << 20, NOW = 1795262400 }; /* 2026-11-21 12:00:00 UTC */

/* Whole file, NUL-terminated; NULL if it cannot be read. */
static inline char *read_in(const char *dir, const char *sub, const char *name, const char *ext) {
    char path[600];
    snprintf(path, sizeof path, "%s/%s/%s%s", dir, sub, name, ext);
    return file_read(path, NULL);
}

static inline const char *text_of(const cJSON *object, const char *name) {
    const cJSON *j = cJSON_GetObjectItemCaseSensitive(object, name);
    return cJSON_IsString(j) ? j->valuestring : "";
}

static inline const cJSON *not_null(const cJSON *object, const char *name) {
    const cJSON *j = cJSON_GetObjectItemCaseSensitive(object, name);
    return cJSON_IsNull(j) ? NULL : j;
}

/* Spans must cover the text in order, without gaps, and alternate. */
static inline bool spans_cover(const struct chat_output *o) {
    size_t at = 0;
    for (size_t i = 0; i < o->n_spans; i++) {
        if (o->spans[i].start != at || o->spans[i].end <= at) return false;
        if (i && o->spans[i].trusted == o->spans[i - 1].trusted) return false;
        at = o->spans[i].end;
    }
    return at == o->n && strlen(o->text) <= o->n;
}

static inline struct chat_input golden_input(const cJSON *one) {
    return (struct chat_input){.messages = not_null(one, "messages"),
                               .tools = not_null(one, "tools"),
                               .documents = not_null(one, "documents"),
                               .extra = not_null(one, "extra"),
                               .bos = text_of(one, "bos_token"),
                               .eos = text_of(one, "eos_token"),
                               .add_generation_prompt = cJSON_IsTrue(
                                   cJSON_GetObjectItemCaseSensitive(one, "add_generation_prompt")),
                               .continue_final_message = cJSON_IsTrue(
                                   cJSON_GetObjectItemCaseSensitive(one, "continue_final_message")),
                               .now = NOW};
}

/* The expected result of a case: a text or an error. Both NULL: no such golden. */
struct golden {
    char *text, *error;
};

static inline struct golden golden_read(const char *dir, const char *name, const char *case_name,
                                        const char *ext) {
    char sub[300];
    snprintf(sub, sizeof sub, "golden/%s", name);
    char *text = read_in(dir, sub, case_name, ext);
    bool error = strcmp(ext, ".error") == 0;
    if (text && error) text[strcspn(text, "\n")] = '\0';
    return (struct golden){error ? NULL : text, error ? text : NULL};
}

static inline void golden_free(struct golden *g) {
    free(g->text);
    free(g->error);
}

/* Is this Python's failure: the same class, and the same message if it is the template's own? */
static inline bool golden_failure(const char *error, const struct jinja_failure *got) {
    size_t n = strcspn(error, ":");
    const char *fault = jinja_fault_name(got->fault);
    bool same = strlen(fault) == n && memcmp(fault, error, n) == 0;
    return got->fault == JINJA_FAULT_TEMPLATE
               ? same && strcmp(got->text, error + n + 2) == 0 && got->line > 0
               : same;
}

/* Receives a template of the folder with all of its cases. */
typedef void (*golden_fn)(const char *dir, const char *name, chat_template *t, const cJSON *cases,
                          void *arg);

/* Calls fn for each template of the folder; returns their number. */
static inline int golden_walk(const char *dir, golden_fn fn, void *arg) {
    int n_templates = 0;
    char path[300];
    char *text = read_in(dir, ".", "cases", ".json");
    cJSON *all = NULL;
    err e = {0};
    CHECK_MSG(text && chat_json_parse(text, strlen(text), &all, &e) == 0, "%s: %s", dir, e.msg);
    snprintf(path, sizeof path, "%s/golden", dir);
    DIR *d = opendir(path);
    CHECK(d != NULL);
    for (struct dirent *entry; d && all && (entry = readdir(d));) {
        if (entry->d_name[0] == '.') continue;
        char *source = read_in(dir, "templates", entry->d_name, ".jinja");
        chat_template *t = NULL;
        CHECK_MSG(source && chat_template_new(source, "", "", &t, &e) == 0, "%s: %s", entry->d_name,
                  e.msg);
        if (t) fn(dir, entry->d_name, t, cJSON_GetObjectItem(all, "cases"), arg);
        n_templates++;
        chat_template_free(t);
        free(source);
    }
    if (d) closedir(d);
    cJSON_Delete(all);
    free(text);
    return n_templates;
}

#endif
