/* chat_json.c - JSON for templates: what cJSON would lose is kept (how numbers are written) or
 * refused (NUL in a string). Pure. */
#include "core/chat/chat.h"

#include <stdbool.h>
#include <string.h>

enum { MAX_DEPTH = 2000 };

/* Start of the next number token at or after p, NULL at the end; strings are skipped. */
static const char *next_number(const char *p) {
    for (; *p; p++) {
        if (*p == '"') {
            for (p++; *p && *p != '"'; p++)
                if (*p == '\\' && p[1]) p++;
            if (!*p) return NULL;
        } else if (*p == '-' || (*p >= '0' && *p <= '9')) {
            return p;
        }
    }
    return NULL;
}

/* Document order is the order of the tree, so the n-th number token is the n-th number node. */
static int keep(cJSON *j, const char **at, int depth, err *e) {
    if (depth > MAX_DEPTH) return err_set(e, ERR_FORMAT, "JSON is nested too deep");
    if (!cJSON_IsNumber(j)) {
        for (cJSON *m = j->child; m; m = m->next) {
            int rc = keep(m, at, depth + 1, e);
            if (rc) return rc;
        }
        return 0;
    }
    const char *p = *at ? next_number(*at) : NULL;
    if (!p) return err_set(e, ERR_FORMAT, "the JSON text has fewer numbers than the tree");
    size_t n = strspn(p, "+-0123456789.eE");
    char *copy = cJSON_malloc(n + 1);
    if (!copy) return err_no_memory(e);
    memcpy(copy, p, n);
    copy[n] = '\0';
    cJSON_free(j->valuestring);
    j->valuestring = copy;
    *at = p + n;
    return 0;
}

int chat_json_keep_numbers(cJSON *root, const char *text, err *e) {
    return keep(root, &text, 0, e);
}

/* cJSON gives strings without their length. */
static bool has_nul(const char *text) {
    for (const char *p = text; (p = strchr(p, '\\')); p += 2) {
        if (strncmp(p, "\\u0000", 6) == 0) return true;
        if (!p[1]) break;
    }
    return false;
}

int chat_json_parse(const char *text, size_t n, cJSON **out, err *e) {
    const char *end = NULL;
    *out = NULL;
    if (strlen(text) != n) return err_set(e, ERR_FORMAT, "a NUL byte at byte %zu", strlen(text));
    if (has_nul(text))
        return err_set(e, ERR_UNSUPPORTED, "NUL characters are not supported in texts");
    cJSON *root = cJSON_ParseWithLengthOpts(text, n, &end, false);
    size_t at = end ? (size_t)(end - text) : 0;
    int rc = root && at + strspn(text + at, " \t\r\n") == n
                 ? chat_json_keep_numbers(root, text, e)
                 : err_set(e, ERR_FORMAT, "no JSON at byte %zu", at);
    if (rc)
        cJSON_Delete(root);
    else
        *out = root;
    return rc;
}
