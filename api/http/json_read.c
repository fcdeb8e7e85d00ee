/* json_read.c - reads request objects by their table, drops unknown members, and writes the table
 * itself as JSON. Owns nothing; any thread. */
#include "api/http/json.h"
#include "core/text/utf8.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void json_path(char *dst, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(dst, JSON_PATH_BYTES, fmt, ap);
    va_end(ap);
}

/* ---- reading ---- */

static const struct {
    int flag;
    const char *name, *article;
} shapes[] = {{JSON_OR_BOOL, "boolean", "a boolean"},
              {JSON_OR_NUMBER, "number", "a number"},
              {JSON_OR_STRING, "string", "a string"},
              {JSON_OR_ARRAY, "array", "an array"},
              {JSON_OR_OBJECT, "object", "an object"}};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

static int shape_of(const cJSON *v) {
    if (cJSON_IsBool(v)) return JSON_OR_BOOL;
    if (cJSON_IsNumber(v)) return JSON_OR_NUMBER;
    if (cJSON_IsString(v)) return JSON_OR_STRING;
    if (cJSON_IsArray(v)) return JSON_OR_ARRAY;
    return cJSON_IsObject(v) ? JSON_OR_OBJECT : 0;
}

static int all_shapes(const struct json_field *f) {
    return f->flags &
           (JSON_OR_BOOL | JSON_OR_NUMBER | JSON_OR_STRING | JSON_OR_ARRAY | JSON_OR_OBJECT);
}

static int wrong_type(const struct json_field *f, const cJSON *v, const char *name, err *e) {
    static const char *const wanted[] = {
        [JSON_BOOL] = "a boolean",  [JSON_INT] = "an integer", [JSON_NUMBER] = "a number",
        [JSON_STRING] = "a string", [JSON_ENUM] = "a string",  [JSON_OBJECT] = "an object",
        [JSON_ARRAY] = "an array"};
    char several[96] = "";
    size_t n = 0;
    for (size_t i = 0; f->type == JSON_VALUE && i < N_SHAPES; i++)
        if (f->flags & shapes[i].flag)
            n += (size_t)snprintf(several + n, sizeof several - n, "%s%s", n ? " or " : "",
                                  shapes[i].article);
    return json_wrong_type(name, f->type == JSON_VALUE ? several : wanted[f->type], v, e);
}

static bool has_bounds(const struct json_field *f) {
    return f->min != 0 || f->max != 0;
}

static int out_of_bounds(const struct json_field *f, const char *name, err *e) {
    return err_set_param(e, ERR_INVALID, name,
                         "Invalid value for '%s': must be between %.15g and %.15g.", name, f->min,
                         f->max);
}

static int check_size(const struct json_field *f, size_t n, const char *name, err *e) {
    const char *what = f->type == JSON_ARRAY ? "items" : "characters";
    if (!n && f->min > 0)
        return err_set_param(e, ERR_INVALID, name, "Invalid value for '%s': it is empty.", name);
    if ((double)n < f->min)
        return err_set_param(e, ERR_INVALID, name,
                             "Invalid value for '%s': must have at least %.15g %s.", name, f->min,
                             what);
    if (f->max > 0 && (double)n > f->max)
        return err_set_param(e, ERR_INVALID, name, "Invalid value for '%s': at most %.15g %s.",
                             name, f->max, what);
    return 0;
}

/* "a|b" as 'a', 'b'. */
static int wrong_word(const struct json_field *f, const cJSON *v, const char *name, err *e) {
    char list[256] = "";
    size_t n = 0;
    for (const char *w = f->words; w && n + 8 < sizeof list;) {
        int len = (int)strcspn(w, "|");
        n += (size_t)snprintf(list + n, sizeof list - n, "%s'%.*s'", n ? ", " : "", len, w);
        w = w[len] ? w + len + 1 : NULL;
    }
    return err_set_param(e, ERR_INVALID, name,
                         "Invalid value for '%s': '%.60s'. Supported values are: %s.", name,
                         v->valuestring, list);
}

static int read_int(const struct json_field *f, const cJSON *v, const char *name, int64_t *to,
                    err *e) {
    int64_t i;
    if (!json_int64(v, &i)) {
        /* An integer beyond 64 bits has the right type, but is out of bounds. */
        bool whole = cJSON_IsNumber(v) && v->valuedouble == floor(v->valuedouble);
        return whole && has_bounds(f) ? out_of_bounds(f, name, e) : wrong_type(f, v, name, e);
    }
    if (has_bounds(f) && ((double)i < f->min || (double)i > f->max))
        return out_of_bounds(f, name, e);
    *to = i;
    return 0;
}

static int read_number(const struct json_field *f, const cJSON *v, const char *name, double *to,
                       err *e) {
    if (!cJSON_IsNumber(v)) return wrong_type(f, v, name, e);
    if (has_bounds(f) && (v->valuedouble < f->min || v->valuedouble > f->max))
        return out_of_bounds(f, name, e);
    *to = v->valuedouble;
    return 0;
}

static int read_text(const struct json_field *f, const cJSON *v, const char *name, const char **to,
                     err *e) {
    if (!cJSON_IsString(v)) return wrong_type(f, v, name, e);
    if (f->type == JSON_ENUM && !words_hold(f->words, v->valuestring))
        return wrong_word(f, v, name, e);
    *to = v->valuestring;
    return f->type == JSON_ENUM
               ? 0
               : check_size(f, utf8_count(v->valuestring, strlen(v->valuestring)), name, e);
}

static int read_tree(const struct json_field *f, const cJSON *v, const char *name, const cJSON **to,
                     err *e) {
    int wanted = f->type == JSON_OBJECT  ? JSON_OR_OBJECT
                 : f->type == JSON_ARRAY ? JSON_OR_ARRAY
                                         : all_shapes(f);
    if (wanted && !(wanted & shape_of(v))) return wrong_type(f, v, name, e);
    *to = v;
    return f->type == JSON_ARRAY ? check_size(f, (size_t)cJSON_GetArraySize(v), name, e) : 0;
}

static int refuse_field(const struct json_field *f, const cJSON *v, const char *name, err *e) {
    if (f->accepts && f->accepts(v)) return 0;
    if (f->words && cJSON_IsString(v) && words_hold(f->words, v->valuestring)) return 0;
    return err_set_param(e, ERR_UNSUPPORTED, name, "Unsupported value for '%s': %s.", name, f->why);
}

bool json_holds_nul(const cJSON *v) {
    if (cJSON_IsString(v)) return text_holds_nul(v->valuestring);
    for (const cJSON *c = cJSON_IsNumber(v) ? NULL : v->child; c; c = c->next)
        if (json_holds_nul(c)) return true;
    return false;
}

static int read_field(const struct json_field *f, const cJSON *v, const char *name, void *out,
                      err *e) {
    void *to = (char *)out + f->offset;
    int rc = 0;
    if (cJSON_IsNull(v) && (f->flags & JSON_NULLABLE)) return 0;
    if (!(f->flags & JSON_WITH_NUL) && json_holds_nul(v))
        return err_set_param(e, ERR_INVALID, name,
                             "Invalid value for '%s': it must not contain the character U+0000 "
                             "(\\u0000); only text for the model may.",
                             name);
    switch (f->type) {
    case JSON_BOOL:
        if (!cJSON_IsBool(v)) return wrong_type(f, v, name, e);
        *(bool *)to = cJSON_IsTrue(v);
        break;
    case JSON_INT:
        rc = read_int(f, v, name, to, e);
        break;
    case JSON_NUMBER:
        rc = read_number(f, v, name, to, e);
        break;
    case JSON_STRING:
    case JSON_ENUM:
        rc = read_text(f, v, name, to, e);
        break;
    case JSON_OBJECT:
    case JSON_ARRAY:
    case JSON_VALUE:
        rc = read_tree(f, v, name, to, e);
        break;
    case JSON_REFUSED:
        rc = refuse_field(f, v, name, e);
        break;
    }
    if (!rc && f->has) *(bool *)((char *)out + f->has - 1) = true;
    return rc;
}

static const struct json_field *find_field(const struct json_table *table, const char *name) {
    for (const struct json_table *t = table; t; t = t->next)
        for (size_t i = 0; i < t->n; i++)
            if (strcmp(t->fields[i].name, name) == 0) return &t->fields[i];
    return NULL;
}

/* path is the prefix of members: it ends with a dot, or is empty. */
static int not_object(const cJSON *v, const char *path, err *e) {
    char name[JSON_PATH_BYTES];
    if (!*path) return err_set(e, ERR_INVALID, "The request body must be a JSON object.");
    json_path(name, "%.*s", (int)strlen(path) - 1, path);
    return json_wrong_type(name, "an object", v, e);
}

int json_read(const cJSON *object, const struct json_table *table, const char *path, void *out,
              err *e) {
    char name[JSON_PATH_BYTES];
    if (!cJSON_IsObject(object)) return not_object(object, path, e);
    for (const cJSON *v = object->child; v; v = v->next) {
        const struct json_field *f = find_field(table, v->string);
        json_path(name, "%s%s", path, v->string);
        if (!f)
            return err_set_param(e, ERR_INVALID, name, "Unrecognized request argument supplied: %s",
                                 name);
        int rc = read_field(f, v, name, out, e);
        if (rc) return rc;
    }
    for (const struct json_table *t = table; t; t = t->next)
        for (size_t i = 0; i < t->n; i++) {
            const struct json_field *f = &t->fields[i];
            if (!(f->flags & JSON_REQUIRED) || cJSON_GetObjectItemCaseSensitive(object, f->name))
                continue;
            json_path(name, "%s%s", path, f->name);
            return err_set_param(e, ERR_INVALID, name, "Missing required parameter: '%s'.", name);
        }
    return 0;
}

/* ---- dropping ---- */

static void add_ignored(str *s, const char *path, const char *name) {
    if (s->len) str_add(s, ", ");
    str_add(s, path);
    if (!*name) str_add_char(s, '?');
    for (; *name; name++) {
        unsigned char c = (unsigned char)*name;
        bool plain = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
                     strchr("_-.[]", c);
        if (!utf8_continues((char)c)) str_add_char(s, plain ? (char)c : '?');
    }
}

static void drop_members(cJSON *v, const struct json_table *table, const char *path, str *ignored);

/* The objects that v holds: itself, or an array's items. */
static void drop_in_objects(cJSON *v, const struct json_table *table, const char *path,
                            str *ignored) {
    char below[JSON_PATH_BYTES];
    int i = 0;
    if (cJSON_IsObject(v)) {
        json_path(below, "%s.", path);
        drop_members(v, table, below, ignored);
    } else if (cJSON_IsArray(v)) {
        for (cJSON *item = v->child; item; item = item->next, i++) {
            json_path(below, "%s[%d].", path, i);
            if (cJSON_IsObject(item)) drop_members(item, table, below, ignored);
        }
    }
}

static void drop_members(cJSON *v, const struct json_table *table, const char *path, str *ignored) {
    for (cJSON *m = v->child, *next; m; m = next) {
        next = m->next;
        const struct json_field *f = find_field(table, m->string);
        if (f && f->table) {
            char below[JSON_PATH_BYTES];
            json_path(below, "%s%s", path, f->name);
            drop_in_objects(m, f->table, below, ignored);
        } else if (!f) {
            add_ignored(ignored, path, m->string);
            cJSON_Delete(cJSON_DetachItemViaPointer(v, m));
        }
    }
}

void json_drop_unknown(cJSON *object, const struct json_table *table, str *ignored) {
    drop_members(object, table, "", ignored);
}

/* ---- the table as JSON ---- */

enum { MAX_TABLE_DEPTH = 6 }; /* tables may contain themselves */

static void add_words(str *s, const char *words) {
    str_add_char(s, '[');
    for (const char *w = words; w;) {
        size_t len = strcspn(w, "|");
        if (w != words) str_add_char(s, ',');
        json_add_string(s, w, len);
        w = w[len] ? w + len + 1 : NULL;
    }
    str_add_char(s, ']');
}

static void add_type(str *s, const struct json_field *f) {
    static const char *const names[] = {
        [JSON_BOOL] = "boolean",  [JSON_INT] = "integer", [JSON_NUMBER] = "number",
        [JSON_STRING] = "string", [JSON_ENUM] = "string", [JSON_OBJECT] = "object",
        [JSON_ARRAY] = "array",   [JSON_VALUE] = "any",   [JSON_REFUSED] = "any"};
    str_add(s, ",\"type\":");
    if (f->type != JSON_VALUE || !all_shapes(f)) {
        json_add_cstr(s, names[f->type]);
        return;
    }
    bool first = true;
    for (size_t i = 0; i < N_SHAPES; i++) {
        if (!(f->flags & shapes[i].flag)) continue;
        str_add_char(s, first ? '[' : ',');
        json_add_cstr(s, shapes[i].name);
        first = false;
    }
    str_add_char(s, ']');
}

/* Bounds of 64-bit integers are not exact as doubles. */
static void add_bound(str *s, const struct json_field *f, const char *name, double v, bool any) {
    str_addf(s, ",\"%s\":", name);
    if (!any)
        str_add(s, "null");
    else if (f->type == JSON_INT && v >= 9223372036854775808.0)
        str_add(s, "9223372036854775807");
    else if (f->type == JSON_INT)
        str_addf(s, "%lld", (long long)v);
    else
        str_addf(s, "%.15g", v);
}

static void add_text(str *s, const char *name, const char *text) {
    str_addf(s, ",\"%s\":", name);
    if (text)
        json_add_cstr(s, text);
    else
        str_add(s, "null");
}

static void add_table(str *s, const struct json_table *table, int depth);

static void add_field(str *s, const struct json_field *f, int depth) {
    bool sized = f->type == JSON_STRING || f->type == JSON_ARRAY;
    str_add(s, "{\"name\":");
    json_add_cstr(s, f->name);
    add_type(s, f);
    str_addf(s, ",\"required\":%s,\"nullable\":%s,\"default\":%s",
             f->flags & JSON_REQUIRED ? "true" : "false",
             f->flags & JSON_NULLABLE ? "true" : "false", f->initial ? f->initial : "null");
    add_bound(s, f, "minimum", f->min, has_bounds(f));
    add_bound(s, f, "maximum", f->max, has_bounds(f) && !(sized && f->max == 0));
    str_add(s, ",\"values\":");
    if (f->words)
        add_words(s, f->words);
    else
        str_add(s, "null");
    str_addf(s, ",\"supported\":%s", f->type == JSON_REFUSED ? "false" : "true");
    add_text(s, "reason", f->why);
    add_text(s, "help", f->help);
    str_add(s, ",\"fields\":");
    if (f->table && depth < MAX_TABLE_DEPTH)
        add_table(s, f->table, depth + 1);
    else
        str_add(s, "null");
    str_add_char(s, '}');
}

static void add_table(str *s, const struct json_table *table, int depth) {
    bool first = true;
    str_add_char(s, '[');
    for (const struct json_table *t = table; t; t = t->next)
        for (size_t i = 0; i < t->n; i++) {
            if (!first) str_add_char(s, ',');
            first = false;
            add_field(s, &t->fields[i], depth);
        }
    str_add_char(s, ']');
}

void json_add_table(str *s, const struct json_table *table) {
    add_table(s, table, 1);
}
