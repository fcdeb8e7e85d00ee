/* json_read.c - reads request objects by their table. Owns nothing; any thread. */
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
    const char *article;
} shapes[] = {{JSON_OR_BOOL, "a boolean"},
              {JSON_OR_NUMBER, "a number"},
              {JSON_OR_STRING, "a string"},
              {JSON_OR_ARRAY, "an array"},
              {JSON_OR_OBJECT, "an object"}};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

static int shape_of(const cJSON *v) {
    if (cJSON_IsBool(v)) return JSON_OR_BOOL;
    if (cJSON_IsNumber(v)) return JSON_OR_NUMBER;
    if (cJSON_IsString(v)) return JSON_OR_STRING;
    if (cJSON_IsArray(v)) return JSON_OR_ARRAY;
    return cJSON_IsObject(v) ? JSON_OR_OBJECT : 0;
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
        return whole && json_has_bounds(f) ? out_of_bounds(f, name, e) : wrong_type(f, v, name, e);
    }
    if (json_has_bounds(f) && ((double)i < f->min || (double)i > f->max))
        return out_of_bounds(f, name, e);
    *to = i;
    return 0;
}

static int read_number(const struct json_field *f, const cJSON *v, const char *name, double *to,
                       err *e) {
    if (!cJSON_IsNumber(v)) return wrong_type(f, v, name, e);
    if (json_has_bounds(f) && (v->valuedouble < f->min || v->valuedouble > f->max))
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
                                         : f->flags & JSON_SHAPES;
    if (wanted && !(wanted & shape_of(v))) return wrong_type(f, v, name, e);
    *to = v;
    return f->type == JSON_ARRAY ? check_size(f, (size_t)cJSON_GetArraySize(v), name, e) : 0;
}

bool json_is_harmless(const struct json_field *f, const cJSON *v) {
    if (cJSON_IsNull(v)) return true;
    if (f->words && cJSON_IsString(v) && words_hold(f->words, v->valuestring)) return true;
    if (f->accepts) return f->accepts(v);
    if (cJSON_IsString(v)) return !*v->valuestring;
    return cJSON_IsFalse(v) || ((cJSON_IsArray(v) || cJSON_IsObject(v)) && !v->child);
}

int json_refuse_field(const struct json_field *f, const char *name, err *e) {
    return err_set_param(e, ERR_UNSUPPORTED, name, "Unsupported value for '%s': %s.", name, f->why);
}

int json_refuse_unknown(const char *name, err *e) {
    return err_set_param(e, ERR_INVALID, name, "Unrecognized request argument supplied: %s", name);
}

bool json_holds_nul(const cJSON *v) {
    if (cJSON_IsString(v)) return text_holds_nul(v->valuestring);
    for (const cJSON *c = cJSON_IsNumber(v) ? NULL : v->child; c; c = c->next)
        if (json_holds_nul(c)) return true;
    return false;
}

static bool is_bool_text(const struct json_field *f, const cJSON *v) {
    return f->flags & JSON_OR_STRING && cJSON_IsString(v) &&
           (strcmp(v->valuestring, "true") == 0 || strcmp(v->valuestring, "false") == 0);
}

static int read_field(const struct json_field *f, const cJSON *v, const char *name, void *out,
                      err *e) {
    void *to = (char *)out + f->offset;
    int rc = 0;
    if (cJSON_IsNull(v) && (f->flags & JSON_NULLABLE)) return 0;
    if (f->type == JSON_ADVISORY) {
        if (f->flags & JSON_KEPT) *(const cJSON **)to = v;
        return 0;
    }
    if (!(f->flags & JSON_WITH_NUL) && json_holds_nul(v))
        return err_set_param(e, ERR_INVALID, name,
                             "Invalid value for '%s': it must not contain the character U+0000 "
                             "(\\u0000); only text for the model may.",
                             name);
    switch (f->type) {
    case JSON_BOOL:
        if (!cJSON_IsBool(v) && !is_bool_text(f, v)) return wrong_type(f, v, name, e);
        *(bool *)to = cJSON_IsTrue(v) || (cJSON_IsString(v) && *v->valuestring == 't');
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
        rc = json_is_harmless(f, v) ? 0 : json_refuse_field(f, name, e);
        break;
    case JSON_ADVISORY:
        break;
    }
    if (!rc && f->has) *(bool *)((char *)out + f->has - 1) = true;
    return rc;
}

const struct json_field *json_find_field(const struct json_table *table, const char *name) {
    for (const struct json_table *t = table; t; t = t->next)
        for (size_t i = 0; i < t->n; i++)
            if (strcmp(t->fields[i].name, name) == 0) return &t->fields[i];
    return NULL;
}

static bool is_stored(const struct json_field *f) {
    return f->type < JSON_REFUSED;
}

/* Rows of the same member are names of one value: a client that sends several must mean the same.
 */
static int check_synonyms(const cJSON *object, const struct json_table *table,
                          const struct json_field *f, const cJSON *v, const char *path, err *e) {
    if (!is_stored(f) || cJSON_IsNull(v)) return 0;
    for (const struct json_table *t = table; t; t = t->next)
        for (size_t i = 0; i < t->n; i++) {
            const struct json_field *other = &t->fields[i];
            if (other == f || other->offset != f->offset || !is_stored(other)) continue;
            const cJSON *also = cJSON_GetObjectItemCaseSensitive(object, other->name);
            if (!also || cJSON_IsNull(also) || cJSON_Compare(v, also, true)) continue;
            char name[JSON_PATH_BYTES];
            json_path(name, "%s%s", path, f->name);
            return err_set_param(e, ERR_INVALID, name,
                                 "'%s' and '%s%s' mean the same: send only one, or equal values.",
                                 name, path, other->name);
        }
    return 0;
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
        const struct json_field *f = json_find_field(table, v->string);
        json_path(name, "%s%s", path, v->string);
        if (!f) return json_refuse_unknown(name, e);
        int rc = read_field(f, v, name, out, e);
        if (rc) return rc;
    }
    for (const cJSON *v = object->child; v; v = v->next) {
        int rc = check_synonyms(object, table, json_find_field(table, v->string), v, path, e);
        if (rc) return rc;
    }
    for (const struct json_table *t = table; t; t = t->next)
        for (size_t i = 0; i < t->n; i++) {
            const struct json_field *f = &t->fields[i];
            if (!(f->flags & JSON_REQUIRED) || cJSON_GetObjectItemCaseSensitive(object, f->name) ||
                json_find_field(table, f->name) != f)
                continue;
            json_path(name, "%s%s", path, f->name);
            return err_set_param(e, ERR_INVALID, name, "Missing required parameter: '%s'.", name);
        }
    return 0;
}
