/* json.c - the strict parser and the writers. Owns nothing; runs on any thread.
 * Never trusts a length: the cursor is compared with the end before each byte. */
#include "api/http/json.h"

#include "core/base/mem.h"
#include "core/text/utf8.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct reader {
    const char *start, *p, *end;
    size_t n_values;
    err *e;
};

static cJSON *parse_value(struct reader *r, int depth);

static void *fail(struct reader *r, const char *what) {
    err_set(r->e, ERR_FORMAT, "the request body is not valid JSON: %s at byte %zu", what,
            (size_t)(r->p - r->start));
    return NULL;
}

static void skip_space(struct reader *r) {
    while (r->p < r->end && (*r->p == ' ' || *r->p == '\t' || *r->p == '\n' || *r->p == '\r'))
        r->p++;
}

/* Four hex digits at p, or -1. */
static int hex4(const struct reader *r, const char *p) {
    if (r->end - p < 4) return -1;
    int v = 0;
    for (int i = 0; i < 4; i++) {
        char c = p[i];
        int d = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : -1;
        if (d < 0) return -1;
        v = v * 16 + d;
    }
    return v;
}

/* One escape, r->p behind its backslash; returns the new write position or NULL. */
static char *parse_escape(struct reader *r, char *w) {
    if (r->p >= r->end) return fail(r, "unfinished string");
    char c = *r->p++;
    const char *from = "\"\\/bfnrt", *to = "\"\\/\b\f\n\r\t";
    const char *hit = c ? strchr(from, c) : NULL;
    if (hit) {
        *w++ = to[hit - from];
        return w;
    }
    if (c != 'u') return fail(r, "unknown escape");
    int u = hex4(r, r->p);
    if (u < 0) return fail(r, "bad \\u escape");
    unsigned code = (unsigned)u;
    r->p += 4;
    if (u >= 0xdc00 && u <= 0xdfff) return fail(r, "lone surrogate");
    if (u >= 0xd800 && u <= 0xdbff) {
        int low = r->end - r->p >= 6 && r->p[0] == '\\' && r->p[1] == 'u' ? hex4(r, r->p + 2) : -1;
        if (low < 0xdc00 || low > 0xdfff) return fail(r, "lone surrogate");
        code = 0x10000 + (((unsigned)u - 0xd800) << 10) + ((unsigned)low - 0xdc00);
        r->p += 6;
    }
    if (code == 0) {
        memcpy(w, TEXT_NUL, 2);
        return w + 2;
    }
    return w + utf8_encode(code, w);
}

/* r->p is behind the opening quote. Owned by the caller (cJSON_free). An escape is never shorter
 * than what it stands for, so that the raw length bounds the buffer. */
static char *parse_string(struct reader *r) {
    const char *q = r->p;
    while (q < r->end && *q != '"')
        q += *q == '\\' && r->end - q > 1 ? 2 : 1;
    char *text = cJSON_malloc((size_t)(q - r->p) + 1);
    if (!text) return fail(r, "out of memory");
    char *w = text;
    while (r->p < r->end && *r->p != '"') {
        unsigned char c = (unsigned char)*r->p;
        if (c < 0x20) {
            fail(r, "control character in a string");
            cJSON_free(text);
            return NULL;
        }
        r->p++;
        if (c != '\\') {
            *w++ = (char)c;
        } else if (!(w = parse_escape(r, w))) {
            cJSON_free(text);
            return NULL;
        }
    }
    if (r->p >= r->end) {
        cJSON_free(text);
        return fail(r, "unfinished string");
    }
    r->p++;
    *w = '\0';
    return text;
}

static size_t digits(struct reader *r) {
    const char *from = r->p;
    while (r->p < r->end && *r->p >= '0' && *r->p <= '9')
        r->p++;
    return (size_t)(r->p - from);
}

static cJSON *parse_number(struct reader *r) {
    const char *from = r->p;
    bool integer = true;
    if (*r->p == '-') r->p++;
    if (r->p < r->end && *r->p == '0')
        r->p++;
    else if (!digits(r))
        return fail(r, "bad number");
    if (r->p < r->end && *r->p == '.') {
        integer = false;
        r->p++;
        if (!digits(r)) return fail(r, "bad number");
    }
    if (r->p < r->end && (*r->p == 'e' || *r->p == 'E')) {
        integer = false;
        r->p++;
        if (r->p < r->end && (*r->p == '+' || *r->p == '-')) r->p++;
        if (!digits(r)) return fail(r, "bad number");
    }
    char literal[512];
    size_t n = (size_t)(r->p - from);
    if (n >= sizeof literal) return fail(r, "too long a number");
    memcpy(literal, from, n);
    literal[n] = '\0';
    double v = strtod(literal, NULL);
    if (!isfinite(v)) return fail(r, "number out of range");
    cJSON *item = cJSON_CreateNumber(v);
    if (!item) return fail(r, "out of memory");
    if (!integer || fabs(v) >= 9007199254740992.0) {
        /* A double loses digits beyond 2^53, and whether 1.0 was written 1: the literal stays with
         * the node, where templates look for it too (cJSON frees it). */
        item->valuestring = cJSON_malloc(n + 1);
        if (!item->valuestring) {
            cJSON_Delete(item);
            return fail(r, "out of memory");
        }
        memcpy(item->valuestring, literal, n + 1);
    }
    return item;
}

static int compare_keys(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Sorts instead of comparing pairs: a body of a million keys must not cost a square. */
static bool keys_unique(struct reader *r, const cJSON *object) {
    size_t n = 0, i = 0;
    for (const cJSON *c = object->child; c; c = c->next)
        n++;
    if (n < 2) return true;
    const char **keys = mem_new(n, sizeof *keys);
    if (!keys) {
        fail(r, "out of memory");
        return false;
    }
    for (const cJSON *c = object->child; c; c = c->next)
        keys[i++] = c->string;
    qsort(keys, n, sizeof *keys, compare_keys);
    for (i = 1; i < n && strcmp(keys[i - 1], keys[i]); i++) {
    }
    if (i < n)
        err_set(r->e, ERR_FORMAT,
                "the request body is not valid: duplicate key \"%.60s\" in an object", keys[i]);
    free(keys);
    return i >= n;
}

/* r->p is behind the bracket. */
static cJSON *parse_list(struct reader *r, int depth, bool object) {
    const char close = object ? '}' : ']';
    cJSON *list = object ? cJSON_CreateObject() : cJSON_CreateArray();
    if (!list) return fail(r, "out of memory");
    skip_space(r);
    if (r->p < r->end && *r->p == close) {
        r->p++;
        return list;
    }
    for (;;) {
        char *key = NULL;
        skip_space(r);
        if (object) {
            if (r->p >= r->end || *r->p != '"') {
                fail(r, "expected a key");
                break;
            }
            r->p++;
            if (!(key = parse_string(r))) break;
            if (text_holds_nul(key)) {
                cJSON_free(key);
                fail(r, "\\u0000 in a key");
                break;
            }
            skip_space(r);
            if (r->p >= r->end || *r->p != ':') {
                cJSON_free(key);
                fail(r, "expected ':'");
                break;
            }
            r->p++;
        }
        cJSON *item = parse_value(r, depth + 1);
        if (!item) {
            cJSON_free(key);
            break;
        }
        item->string = key;
        cJSON_AddItemToArray(list, item);
        skip_space(r);
        if (r->p < r->end && *r->p == ',') {
            r->p++;
            continue;
        }
        if (r->p < r->end && *r->p == close) {
            r->p++;
            if (object && !keys_unique(r, list)) break;
            return list;
        }
        fail(r, object ? "expected ',' or '}'" : "expected ',' or ']'");
        break;
    }
    cJSON_Delete(list);
    return NULL;
}

static bool literal(struct reader *r, const char *word) {
    size_t n = strlen(word);
    if ((size_t)(r->end - r->p) < n || memcmp(r->p, word, n) != 0) return false;
    r->p += n;
    return true;
}

static cJSON *parse_value(struct reader *r, int depth) {
    if (++r->n_values > JSON_MAX_VALUES) return fail(r, "more than 524288 values");
    skip_space(r);
    if (r->p >= r->end) return fail(r, "unexpected end");
    cJSON *item;
    switch (*r->p) {
    case '{':
    case '[': {
        bool object = *r->p++ == '{';
        if (depth == JSON_MAX_DEPTH) return fail(r, "nesting deeper than 64 levels");
        return parse_list(r, depth, object);
    }
    case '"': {
        r->p++;
        char *text = parse_string(r);
        if (!text) return NULL;
        item = cJSON_CreateNull();
        if (!item) {
            cJSON_free(text);
            return fail(r, "out of memory");
        }
        item->type = cJSON_String;
        item->valuestring = text;
        return item;
    }
    case 't':
        item = literal(r, "true") ? cJSON_CreateTrue() : NULL;
        break;
    case 'f':
        item = literal(r, "false") ? cJSON_CreateFalse() : NULL;
        break;
    case 'n':
        item = literal(r, "null") ? cJSON_CreateNull() : NULL;
        break;
    default:
        if (*r->p == '-' || (*r->p >= '0' && *r->p <= '9')) return parse_number(r);
        item = NULL;
    }
    return item ? item : fail(r, "unexpected character");
}

int json_parse(const char *text, size_t n, cJSON **out, err *e) {
    *out = NULL;
    err local = {0};
    struct reader r = {.start = text, .p = text, .end = text + n, .e = e ? e : &local};
    if (!utf8_valid(text, n)) return err_set(e, ERR_FORMAT, "the request body is not valid UTF-8");
    cJSON *v = parse_value(&r, 0);
    if (!v) return r.e->code;
    skip_space(&r);
    if (r.p < r.end) {
        fail(&r, "more text after the value");
        cJSON_Delete(v);
        return ERR_FORMAT;
    }
    *out = v;
    return 0;
}

bool json_int64(const cJSON *v, int64_t *out) {
    if (!cJSON_IsNumber(v)) return false;
    if (v->valuestring && !strpbrk(v->valuestring, ".eE")) {
        errno = 0;
        long long x = strtoll(v->valuestring, NULL, 10);
        if (errno) return false;
        *out = x;
        return true;
    }
    double d = v->valuedouble;
    if (d != floor(d) || fabs(d) > 9007199254740992.0) return false;
    *out = (int64_t)d;
    return true;
}

const char *json_type_name(const cJSON *v) {
    if (cJSON_IsString(v)) return "a string";
    if (cJSON_IsBool(v)) return "a boolean";
    if (cJSON_IsObject(v)) return "an object";
    if (cJSON_IsArray(v)) return "an array";
    if (cJSON_IsNull(v)) return "null";
    int64_t i;
    return json_int64(v, &i) ? "an integer" : "a number";
}

int json_wrong_type(const char *name, const char *wanted, const cJSON *v, err *e) {
    return err_set_param(e, ERR_INVALID, name, "Invalid type for '%s': expected %s, but got %s.",
                         name, wanted, json_type_name(v));
}

bool json_is_false(const cJSON *v) {
    return cJSON_IsFalse(v);
}

bool json_is_empty_list(const cJSON *v) {
    return cJSON_IsArray(v) && !v->child;
}

void json_add_string(str *s, const char *bytes, size_t n) {
    if (!utf8_valid(bytes, n)) {
        str fixed;
        str_init(&fixed, 3 * n);
        utf8_add_lossy(&fixed, bytes, n);
        if (fixed.failed)
            s->failed = true;
        else
            json_add_string(s, str_cstr(&fixed), fixed.len);
        str_fini(&fixed);
        return;
    }
    str_add_char(s, '"');
    size_t from = 0;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)bytes[i];
        if (c >= 0x20 && c != '"' && c != '\\' && c != 0x7f) continue;
        str_add_n(s, bytes + from, i - from);
        from = i + 1;
        if (c == '"' || c == '\\') {
            char escape[2] = {'\\', (char)c};
            str_add_n(s, escape, 2);
        } else if (c == '\n') {
            str_add_n(s, "\\n", 2);
        } else {
            str_addf(s, "\\u%04x", c);
        }
    }
    str_add_n(s, bytes + from, n - from);
    str_add_char(s, '"');
}

void json_add_cstr(str *s, const char *text) {
    if (!text_holds_nul(text)) {
        json_add_string(s, text, strlen(text));
        return;
    }
    char *restored = mem_strdup(text);
    if (restored)
        json_add_string(s, restored, text_restore_nuls(restored, text));
    else
        s->failed = true;
    free(restored);
}

void json_add_number(str *s, double v) {
    if (!isfinite(v)) v = v > 0 ? 9999 : -9999;
    str_addf(s, "%.9g", v);
}

void json_add_value(str *s, const cJSON *v) {
    if (cJSON_IsString(v)) {
        json_add_cstr(s, v->valuestring);
    } else if (cJSON_IsNumber(v)) {
        int64_t whole;
        if (v->valuestring)
            str_add(s, v->valuestring);
        else if (json_int64(v, &whole))
            str_addf(s, "%lld", (long long)whole);
        else
            str_addf(s, "%.17g", v->valuedouble);
    } else if (cJSON_IsObject(v) || cJSON_IsArray(v)) {
        bool object = cJSON_IsObject(v);
        str_add_char(s, object ? '{' : '[');
        for (const cJSON *c = v->child; c; c = c->next) {
            if (c != v->child) str_add_char(s, ',');
            if (object) {
                json_add_cstr(s, c->string);
                str_add_char(s, ':');
            }
            json_add_value(s, c);
        }
        str_add_char(s, object ? '}' : ']');
    } else {
        str_add(s, cJSON_IsTrue(v) ? "true" : cJSON_IsFalse(v) ? "false" : "null");
    }
}
