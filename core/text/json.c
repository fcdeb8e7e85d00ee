/* json.c - the parser: recursive descent, its depth bounded by the rules. Owns nothing.
 * Never trusts a length: the cursor is compared with the end before each byte. */
#include "core/text/json.h"

#include "core/base/mem.h"
#include "core/base/str.h"
#include "core/text/utf8.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_NUMBER_BYTES = 511, PATH_BYTES = 160, KEY_BYTES = 40 };

/* Where the value that is being read stands in its object or array. */
struct place {
    const struct place *outer; /* NULL: in the root */
    const char *key;           /* NULL: in an array, at index */
    size_t index;
};

struct reader {
    const char *start, *p, *end;
    const struct json_rules *rules;
    const struct place *place; /* NULL: the root */
    size_t n_values;
    bool cut; /* end is where the text stops being UTF-8 */
    err *e;
};

static cJSON *parse_value(struct reader *r, uint32_t depth);

static const char *subject_of(const struct reader *r) {
    return r->rules->subject ? r->rules->subject : "";
}

/* ---- errors ---- */

static bool is_plain_key(const char *key) {
    size_t n = 0;
    while ((key[n] >= 'a' && key[n] <= 'z') || (key[n] >= 'A' && key[n] <= 'Z') ||
           (key[n] >= '0' && key[n] <= '9') || key[n] == '_' || key[n] == '-')
        n++;
    return n && !key[n];
}

/* Length of key, cut between characters. */
static int shown_bytes(const char *key) {
    size_t n = strlen(key);
    return (int)utf8_valid_prefix(key, n < KEY_BYTES ? n : KEY_BYTES);
}

static void write_place(str *s, const struct place *p) {
    if (!p) return;
    write_place(s, p->outer);
    if (!p->key)
        str_addf(s, "[%zu]", p->index);
    else if (is_plain_key(p->key))
        str_addf(s, "%s%.*s", p->outer ? "." : "", shown_bytes(p->key), p->key);
    else
        str_addf(s, "[\"%.*s\"]", shown_bytes(p->key), p->key);
}

/* Writes before and the path of the value that is being read ("messages[3].content"), a long one
 * without its end; nothing in the root. */
static const char *write_path(const struct reader *r, const char *before, char path[PATH_BYTES]) {
    str s;
    if (!r->place) return "";
    str_init(&s, 1 << 16);
    str_add(&s, before);
    write_place(&s, r->place);
    bool whole = s.len < PATH_BYTES;
    size_t n = whole ? s.len : utf8_valid_prefix(str_cstr(&s), PATH_BYTES - sizeof "...");
    snprintf(path, PATH_BYTES, "%.*s%s", (int)n, str_cstr(&s), whole ? "" : "...");
    str_fini(&s);
    return path;
}

/* Names the place in err.param, if the caller wants that; a long path is cut. */
static void set_param(const struct reader *r, const struct place *p) {
    str s;
    if (!r->rules->sets_param || !r->e || !p) return;
    str_init(&s, 1 << 16);
    write_place(&s, p);
    size_t n = utf8_valid_prefix(str_cstr(&s),
                                 s.len < sizeof r->e->param ? s.len : sizeof r->e->param - 1);
    snprintf(r->e->param, sizeof r->e->param, "%.*s", (int)n, str_cstr(&s));
    str_fini(&s);
}

/* Both return NULL, so that a failing step is one line. */
static void *refuse_text(struct reader *r, const char *why) {
    char path[PATH_BYTES];
    const char *in = write_path(r, " in ", path);
    if (r->cut && r->p >= r->end)
        err_set(r->e, ERR_FORMAT, "%snot valid UTF-8%s (byte %zu)", subject_of(r), in,
                (size_t)(r->end - r->start));
    else
        err_set(r->e, ERR_FORMAT, "%snot valid JSON: %s at byte %zu%s", subject_of(r), why,
                (size_t)(r->p - r->start), in);
    set_param(r, r->place);
    return NULL;
}

static void *fail_memory(struct reader *r) {
    err_no_memory(r->e);
    return NULL;
}

static void skip_space(struct reader *r) {
    while (r->p < r->end && (*r->p == ' ' || *r->p == '\t' || *r->p == '\n' || *r->p == '\r'))
        r->p++;
}

/* Skips c if it is the next byte. */
static bool skip_byte(struct reader *r, char c) {
    if (r->p >= r->end || *r->p != c) return false;
    r->p++;
    return true;
}

static bool skip_word(struct reader *r, const char *word) {
    size_t n = strlen(word);
    if ((size_t)(r->end - r->p) < n || memcmp(r->p, word, n) != 0) return false;
    r->p += n;
    return true;
}

/* ---- strings ---- */

/* Four hex digits at p, or -1. */
static int read_hex4(const struct reader *r, const char *p) {
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

static char *write_nul(struct reader *r, char *w) {
    if (r->rules->nul == JSON_NUL_REFUSED) {
        char path[PATH_BYTES];
        err_set(r->e, ERR_UNSUPPORTED, "U+0000 in a string is not supported (byte %zu%s)",
                (size_t)(r->p - r->start), write_path(r, " in ", path));
        return NULL;
    }
    bool kept = r->rules->nul == JSON_NUL_KEPT;
    memcpy(w, TEXT_NUL, 2);
    if (!kept) w[0] = '\0';
    return w + (kept ? 2 : 1);
}

/* One escape, r->p after its backslash; returns the new write position or NULL. */
static char *parse_escape(struct reader *r, char *w) {
    if (r->p >= r->end) return refuse_text(r, "unfinished string");
    char c = *r->p++;
    const char *from = "\"\\/bfnrt", *to = "\"\\/\b\f\n\r\t";
    const char *hit = c ? strchr(from, c) : NULL;
    if (hit) {
        *w++ = to[hit - from];
        return w;
    }
    if (c != 'u') return refuse_text(r, "unknown escape");
    int u = read_hex4(r, r->p);
    if (u < 0) return refuse_text(r, "bad \\u escape");
    uint32_t code = (uint32_t)u;
    r->p += 4;
    if (u >= 0xd800 && u <= 0xdfff) {
        bool pair = u <= 0xdbff && r->end - r->p >= 6 && r->p[0] == '\\' && r->p[1] == 'u';
        int low = pair ? read_hex4(r, r->p + 2) : -1;
        if (low < 0xdc00 || low > 0xdfff) return refuse_text(r, "lone surrogate");
        code = 0x10000 + ((code - 0xd800) << 10) + ((uint32_t)low - 0xdc00);
        r->p += 6;
    }
    return code ? w + utf8_encode(code, w) : write_nul(r, w);
}

static char *fill_string(struct reader *r, char *w) {
    while (r->p < r->end && *r->p != '"') {
        unsigned char c = (unsigned char)*r->p;
        if (c < 0x20 && (!c || !r->rules->control_characters))
            return refuse_text(r, "control character in a string");
        r->p++;
        if (c != '\\')
            *w++ = (char)c;
        else if (!(w = parse_escape(r, w)))
            return NULL;
    }
    if (!skip_byte(r, '"')) return refuse_text(r, "unfinished string");
    *w = '\0';
    return w;
}

/* r->p is after the opening quote. Owned by the caller (cJSON_free). An escape is never shorter
 * than what it stands for, so that the raw length bounds the buffer. */
static char *parse_string(struct reader *r) {
    const char *q = r->p;
    while (q < r->end && *q != '"')
        q += *q == '\\' && r->end - q > 1 ? 2 : 1;
    char *text = cJSON_malloc((size_t)(q - r->p) + 1);
    if (!text) return fail_memory(r);
    if (fill_string(r, text)) return text;
    cJSON_free(text);
    return NULL;
}

static cJSON *parse_string_value(struct reader *r) {
    char *text = parse_string(r);
    if (!text) return NULL;
    cJSON *item = cJSON_CreateNull();
    if (!item) {
        cJSON_free(text);
        return fail_memory(r);
    }
    item->type = cJSON_String;
    item->valuestring = text;
    return item;
}

/* ---- numbers ---- */

static size_t skip_digits(struct reader *r) {
    const char *from = r->p;
    while (r->p < r->end && *r->p >= '0' && *r->p <= '9')
        r->p++;
    return (size_t)(r->p - from);
}

/* RFC 8259's grammar of numbers. */
static bool skip_number(struct reader *r, bool *integer) {
    *integer = true;
    skip_byte(r, '-');
    if (!skip_byte(r, '0') && !skip_digits(r)) return false;
    if (skip_byte(r, '.')) {
        *integer = false;
        if (!skip_digits(r)) return false;
    }
    if (skip_byte(r, 'e') || skip_byte(r, 'E')) {
        *integer = false;
        if (!skip_byte(r, '+')) skip_byte(r, '-');
        if (!skip_digits(r)) return false;
    }
    return true;
}

static cJSON *parse_number(struct reader *r) {
    const char *from = r->p;
    bool integer;
    if (!skip_number(r, &integer)) return refuse_text(r, "bad number");
    char literal[MAX_NUMBER_BYTES + 1];
    size_t n = (size_t)(r->p - from);
    if (n > MAX_NUMBER_BYTES) return refuse_text(r, "too long a number");
    memcpy(literal, from, n);
    literal[n] = '\0';
    double v = strtod(literal, NULL);
    if (!isfinite(v)) return refuse_text(r, "number out of range");
    cJSON *item = cJSON_CreateNumber(v);
    if (!item) return fail_memory(r);
    if (!integer || fabs(v) >= 9007199254740992.0 || r->rules->all_literals) {
        item->valuestring = cJSON_malloc(n + 1); /* cJSON frees it and prints the double */
        if (!item->valuestring) {
            cJSON_Delete(item);
            return fail_memory(r);
        }
        memcpy(item->valuestring, literal, n + 1);
    }
    return item;
}

/* ---- objects and arrays ---- */

static int compare_keys(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Sorts instead of comparing pairs: a body of a million keys must not cost a square. */
static bool check_keys(struct reader *r, const cJSON *object, const char *begin) {
    size_t n = 0, i = 0;
    for (const cJSON *c = object->child; c; c = c->next)
        n++;
    if (n < 2 || r->rules->duplicate_keys) return true;
    const char **keys = mem_new(n, sizeof *keys);
    if (!keys) return fail_memory(r);
    for (const cJSON *c = object->child; c; c = c->next)
        keys[i++] = c->string;
    qsort(keys, n, sizeof *keys, compare_keys);
    for (i = 1; i < n && strcmp(keys[i - 1], keys[i]); i++) {
    }
    if (i < n) {
        char path[PATH_BYTES];
        err_set(r->e, ERR_FORMAT, "%snot valid: duplicate key \"%.*s\" in the object at byte %zu%s",
                subject_of(r), shown_bytes(keys[i]), keys[i], (size_t)(begin - r->start),
                write_path(r, ", ", path));
        set_param(r, &(struct place){.outer = r->place, .key = keys[i]});
    }
    free(keys);
    return i >= n;
}

/* A member's name and the colon after it. */
static char *parse_key(struct reader *r) {
    if (!skip_byte(r, '"')) return refuse_text(r, "expected a key");
    char *key = parse_string(r);
    if (!key) return NULL;
    skip_space(r);
    const char *why = text_holds_nul(key) ? "\\u0000 in a key" : "expected ':'";
    if (!text_holds_nul(key) && skip_byte(r, ':')) return key;
    cJSON_free(key);
    return refuse_text(r, why);
}

static bool parse_item(struct reader *r, cJSON *list, bool object, size_t index, uint32_t depth) {
    skip_space(r);
    char *key = object ? parse_key(r) : NULL;
    if (object && !key) return false;
    const struct place place = {r->place, key, index};
    r->place = &place;
    cJSON *item = parse_value(r, depth + 1);
    r->place = place.outer;
    if (!item) {
        cJSON_free(key);
        return false;
    }
    item->string = key;
    cJSON_AddItemToArray(list, item);
    return true;
}

/* r->p is after the bracket. */
static cJSON *parse_list(struct reader *r, uint32_t depth, bool object) {
    const char close = object ? '}' : ']', *begin = r->p - 1;
    cJSON *list = object ? cJSON_CreateObject() : cJSON_CreateArray();
    if (!list) return fail_memory(r);
    skip_space(r);
    if (skip_byte(r, close)) return list;
    for (size_t i = 0; parse_item(r, list, object, i, depth); i++) {
        skip_space(r);
        if (skip_byte(r, ',')) continue;
        if (skip_byte(r, close)) {
            if (object && !check_keys(r, list, begin)) break;
            return list;
        }
        refuse_text(r, object ? "expected ',' or '}'" : "expected ',' or ']'");
        break;
    }
    cJSON_Delete(list);
    return NULL;
}

static cJSON *parse_word(struct reader *r) {
    cJSON *item = NULL;
    if (skip_word(r, "true"))
        item = cJSON_CreateTrue();
    else if (skip_word(r, "false"))
        item = cJSON_CreateFalse();
    else if (skip_word(r, "null"))
        item = cJSON_CreateNull();
    else
        return refuse_text(r, "unexpected character");
    return item ? item : fail_memory(r);
}

static cJSON *parse_value(struct reader *r, uint32_t depth) {
    char why[64];
    if (++r->n_values > r->rules->max_values && r->rules->max_values) {
        snprintf(why, sizeof why, "more than %zu values", r->rules->max_values);
        return refuse_text(r, why);
    }
    skip_space(r);
    if (r->p >= r->end) return refuse_text(r, "unexpected end");
    switch (*r->p) {
    case '{':
    case '[': {
        bool object = *r->p++ == '{';
        if (depth < r->rules->max_depth) return parse_list(r, depth, object);
        snprintf(why, sizeof why, "nesting deeper than %u levels", r->rules->max_depth);
        return refuse_text(r, why);
    }
    case '"':
        r->p++;
        return parse_string_value(r);
    default:
        return *r->p == '-' || (*r->p >= '0' && *r->p <= '9') ? parse_number(r) : parse_word(r);
    }
}

int json_decode(const char *text, size_t n, const struct json_rules *rules, cJSON **out, err *e) {
    err local = {0};
    struct reader r = {
        .start = text, .p = text, .end = text + n, .rules = rules, .e = e ? e : &local};
    *out = NULL;
    r.end = text + utf8_valid_prefix(text, n);
    r.cut = r.end < text + n;
    if (rules->byte_order_mark) skip_word(&r, "\xef\xbb\xbf");
    cJSON *v = parse_value(&r, 0);
    if (!v) return r.e->code;
    skip_space(&r);
    if (r.p < r.end || r.cut) {
        refuse_text(&r, "more text after the value");
        cJSON_Delete(v);
        return ERR_FORMAT;
    }
    *out = v;
    return 0;
}

cJSON *json_constant(const char *text) {
    static const struct json_rules rules = {.max_depth = 64};
    cJSON *v = NULL;
    json_decode(text, strlen(text), &rules, &v, NULL);
    return v;
}
