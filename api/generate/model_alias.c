/* model_alias.c - see model_alias.h. */
#include "api/generate/model_alias.h"

#include "core/base/mem.h"

#include <stdbool.h>
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
