/* json_doc.c - writes the tables of request fields as JSON, and as a JSON Schema. Owns nothing; any
 * thread. */
#include "api/http/json.h"

#include <string.h>

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

/* The types in flags as an array. */
static void add_shapes(str *s, int flags, bool or_null) {
    static const struct {
        int flag;
        const char *name;
    } shapes[] = {{JSON_OR_BOOL, "boolean"},
                  {JSON_OR_NUMBER, "number"},
                  {JSON_OR_STRING, "string"},
                  {JSON_OR_ARRAY, "array"},
                  {JSON_OR_OBJECT, "object"}};
    bool first = true;
    str_add_char(s, '[');
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        if (!(flags & shapes[i].flag)) continue;
        str_addf(s, "%s\"%s\"", first ? "" : ",", shapes[i].name);
        first = false;
    }
    str_add(s, or_null ? ",\"null\"]" : "]");
}

static void add_type(str *s, const struct json_field *f) {
    static const char *const names[] = {
        [JSON_BOOL] = "boolean",  [JSON_INT] = "integer", [JSON_NUMBER] = "number",
        [JSON_STRING] = "string", [JSON_ENUM] = "string", [JSON_OBJECT] = "object",
        [JSON_ARRAY] = "array",   [JSON_VALUE] = "any",   [JSON_REFUSED] = "any",
        [JSON_ADVISORY] = "any"};
    str_add(s, ",\"type\":");
    if (f->type != JSON_VALUE || !(f->flags & JSON_SHAPES))
        json_add_cstr(s, names[f->type]);
    else
        add_shapes(s, f->flags, false);
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

/* Does a table before f's own have a row of the same name? */
static bool is_hidden(const struct json_table *table, const struct json_field *f) {
    return json_find_field(table, f->name) != f;
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
    add_bound(s, f, "minimum", f->min, json_has_bounds(f));
    add_bound(s, f, "maximum", f->max, json_has_bounds(f) && !(sized && f->max == 0));
    str_add(s, ",\"values\":");
    if (f->words)
        add_words(s, f->words);
    else
        str_add(s, "null");
    str_addf(s, ",\"class\":\"%s\"",
             f->type == JSON_REFUSED    ? "refused"
             : f->type == JSON_ADVISORY ? "advisory"
                                        : "honoured");
    add_text(s, "reason", f->why);
    add_text(s, "help", f->help);
    str_add(s, ",\"fields\":");
    if (f->table && (f->table->n || f->table->next) && depth < MAX_TABLE_DEPTH)
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
            if (is_hidden(table, &t->fields[i])) continue;
            if (!first) str_add_char(s, ',');
            first = false;
            add_field(s, &t->fields[i], depth);
        }
    str_add_char(s, ']');
}

void json_add_table(str *s, const struct json_table *table) {
    add_table(s, table, 1);
}

/* ---- the table as a JSON Schema ---- */

static void add_members(str *s, const struct json_table *table, int depth);

/* The type; false: any. */
static bool add_schema_type(str *s, const struct json_field *f, bool or_null) {
    static const char *const names[] = {
        [JSON_BOOL] = "boolean",  [JSON_INT] = "integer",   [JSON_NUMBER] = "number",
        [JSON_STRING] = "string", [JSON_OBJECT] = "object", [JSON_ARRAY] = "array"};
    bool is_value = f->type == JSON_VALUE;
    if (is_value ? !(f->flags & JSON_SHAPES) : f->type > JSON_ARRAY || f->type == JSON_ENUM)
        return false;
    str_add(s, ",\"type\":");
    if (is_value)
        add_shapes(s, f->flags, or_null);
    else
        str_addf(s, or_null ? "[\"%s\",\"null\"]" : "\"%s\"", names[f->type]);
    return true;
}

static void add_schema_bounds(str *s, const struct json_field *f) {
    bool text = f->type == JSON_STRING, list = f->type == JSON_ARRAY;
    if (!json_has_bounds(f)) return;
    if (text || list) {
        str_addf(s, text ? ",\"minLength\":%.15g" : ",\"minItems\":%.15g", f->min);
        if (f->max > 0) str_addf(s, text ? ",\"maxLength\":%.15g" : ",\"maxItems\":%.15g", f->max);
    } else if (f->type == JSON_INT || f->type == JSON_NUMBER) {
        add_bound(s, f, "minimum", f->min, true);
        add_bound(s, f, "maximum", f->max, true);
    }
}

static void add_schema_words(str *s, const struct json_field *f, bool or_null) {
    str_add(s, ",\"enum\":");
    add_words(s, f->words);
    if (or_null) {
        s->len--; /* the bracket */
        str_add(s, ",null]");
    }
}

static void add_description(str *s, const struct json_field *f) {
    bool ignored = f->type == JSON_ADVISORY, refused = f->type == JSON_REFUSED;
    const char *text = ignored || refused ? f->why : f->help;
    str_add(s, "\"description\":");
    str line;
    str_init(&line, 1024);
    str_addf(&line, "%s%s", ignored ? "Ignored: " : refused ? "Refused: " : "", text ? text : "");
    json_add_string(s, str_cstr(&line), line.len);
    str_fini(&line);
}

static void add_field_schema(str *s, const struct json_field *f, int depth) {
    bool or_null = (f->flags & JSON_NULLABLE) != 0;
    bool below = f->table && (f->table->n || f->table->next) && depth < MAX_TABLE_DEPTH;
    str_add_char(s, '{');
    add_description(s, f);
    add_schema_type(s, f, or_null);
    if (f->type == JSON_ENUM) add_schema_words(s, f, or_null);
    add_schema_bounds(s, f);
    if (f->initial && f->type < JSON_REFUSED) str_addf(s, ",\"default\":%s", f->initial);
    /* Without a type these keywords apply to the values that they fit. */
    if (below && f->type != JSON_ARRAY) add_members(s, f->table, depth + 1);
    if (below && f->type != JSON_OBJECT) {
        str_add(s, ",\"items\":{\"description\":\"\"");
        add_members(s, f->table, depth + 1);
        str_add_char(s, '}');
    }
    str_add_char(s, '}');
}

/* ,"properties":{...},"required":[...] */
static void add_members(str *s, const struct json_table *table, int depth) {
    bool first = true;
    str_add(s, ",\"properties\":{");
    for (const struct json_table *t = table; t; t = t->next)
        for (size_t i = 0; i < t->n; i++) {
            if (is_hidden(table, &t->fields[i])) continue;
            if (!first) str_add_char(s, ',');
            first = false;
            json_add_cstr(s, t->fields[i].name);
            str_add_char(s, ':');
            add_field_schema(s, &t->fields[i], depth);
        }
    str_add_char(s, '}');
    first = true;
    for (const struct json_table *t = table; t; t = t->next)
        for (size_t i = 0; i < t->n; i++) {
            if (!(t->fields[i].flags & JSON_REQUIRED) || is_hidden(table, &t->fields[i])) continue;
            str_add(s, first ? ",\"required\":[" : ",");
            first = false;
            json_add_cstr(s, t->fields[i].name);
        }
    if (!first) str_add_char(s, ']');
}

void json_add_schema(str *s, const struct json_table *table) {
    str_add(s, "{\"type\":\"object\"");
    add_members(s, table, 1);
    str_add_char(s, '}');
}
