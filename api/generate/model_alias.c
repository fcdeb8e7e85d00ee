/* model_alias.c - see model_alias.h. */
#include "api/generate/model_alias.h"

#include "core/base/mem.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Cuts blanks off both ends of text, in place. */
static char *trim_text(char *text) {
    text += strspn(text, " \t");
    size_t n = strlen(text);
    while (n && strchr(" \t", text[n - 1]))
        text[--n] = '\0';
    return text;
}

static int read_pair(char *entry, const char *param, struct model_aliases *out, err *e) {
    char *model = strchr(entry, '=');
    if (model) *model++ = '\0';
    const char *pattern = trim_text(entry);
    model = model ? trim_text(model) : model;
    if (!model || !*model || !*pattern || strpbrk(model, "=*"))
        return err_set_param(e, ERR_INVALID, param,
                             "\"%.60s\": expected PATTERN=VALUE, for example claude-*=mine",
                             pattern);
    if (strlen(model) >= MODEL_ALIAS_BYTES)
        return err_set_param(e, ERR_INVALID, param, "\"%.60s\": the value is longer than %d bytes",
                             pattern, MODEL_ALIAS_BYTES - 1);
    if (out->n == MODEL_ALIASES_MAX)
        return err_set_param(e, ERR_INVALID, param, "at most %d pairs", MODEL_ALIASES_MAX);
    out->pairs[out->n].pattern = pattern;
    out->pairs[out->n++].model = model;
    return 0;
}

int model_aliases_parse(const char *text, const char *param, struct model_aliases *out, err *e) {
    *out = (struct model_aliases){0};
    if (!text || !*text) return 0;
    out->text = mem_strdup(text);
    int rc = out->text ? 0 : err_no_memory(e);
    for (char *entry = out->text, *next; !rc && entry; entry = next) {
        next = strchr(entry, ',');
        if (next) *next++ = '\0';
        if (*trim_text(entry)) rc = read_pair(entry, param, out, e);
    }
    if (rc) model_aliases_fini(out);
    return rc;
}

void model_aliases_fini(struct model_aliases *l) {
    free(l->text);
    *l = (struct model_aliases){0};
}

/* After a mismatch the last star takes one character more; earlier ones need not. */
static bool pattern_matches(const char *pattern, const char *name) {
    const char *star = NULL, *from = name;
    while (*name) {
        if (*pattern == '*') {
            star = pattern++;
            from = name;
        } else if (*pattern == *name) {
            pattern++;
            name++;
        } else if (star) {
            pattern = star + 1;
            name = ++from;
        } else {
            return false;
        }
    }
    return !pattern[strspn(pattern, "*")];
}

const char *model_aliases_find(const struct model_aliases *l, const char *name) {
    for (size_t i = 0; i < l->n; i++)
        if (pattern_matches(l->pairs[i].pattern, name)) return l->pairs[i].model;
    return NULL;
}

/* ---- the list in force ---- */

struct alias_book {
    pthread_mutex_t mu;
    struct model_aliases now;
};

alias_book *alias_book_new(void) {
    alias_book *b = mem_new(1, sizeof *b);
    if (b) pthread_mutex_init(&b->mu, NULL);
    return b;
}

void alias_book_free(alias_book *b) {
    if (!b) return;
    model_aliases_fini(&b->now);
    pthread_mutex_destroy(&b->mu);
    free(b);
}

void alias_book_set(alias_book *b, struct model_aliases *l) {
    pthread_mutex_lock(&b->mu);
    struct model_aliases old = b->now;
    b->now = *l;
    pthread_mutex_unlock(&b->mu);
    model_aliases_fini(&old);
    *l = (struct model_aliases){0};
}

bool alias_book_find(alias_book *b, const char *name, char value[MODEL_ALIAS_BYTES]) {
    pthread_mutex_lock(&b->mu);
    const char *found = model_aliases_find(&b->now, name);
    if (found) snprintf(value, MODEL_ALIAS_BYTES, "%s", found);
    pthread_mutex_unlock(&b->mu);
    return found != NULL;
}

bool alias_book_target(alias_book *b, size_t i, char value[MODEL_ALIAS_BYTES]) {
    pthread_mutex_lock(&b->mu);
    bool found = i < b->now.n;
    if (found) snprintf(value, MODEL_ALIAS_BYTES, "%s", b->now.pairs[i].model);
    pthread_mutex_unlock(&b->mu);
    return found;
}

bool alias_book_has(alias_book *b, const char *pattern, const char *model) {
    bool has = false;
    pthread_mutex_lock(&b->mu);
    for (size_t i = 0; i < b->now.n && !has; i++)
        has = strcmp(b->now.pairs[i].pattern, pattern) == 0 &&
              strcmp(b->now.pairs[i].model, model) == 0;
    pthread_mutex_unlock(&b->mu);
    return has;
}
