/* keywords.c - see keywords.h. Owns nothing. Any thread. */
#include "api/generate/keywords.h"

#include <ctype.h>
#include <string.h>

enum { NAME_MAX_BYTES = 128 /* as core/chat reads */, MAX_ENUM = 256, MAX_DEPTH = 16 };

static bool is_one_of(const char *const *list, size_t n, const char *text) {
    for (size_t i = 0; i < n; i++)
        if (strcmp(list[i], text) == 0) return true;
    return false;
}

static bool is_name(const char *s) {
    size_t n = 0;
    if (isdigit((unsigned char)*s)) return false;
    for (; *s == '_' || isalnum((unsigned char)*s); s++)
        n++;
    return !*s && n && n <= NAME_MAX_BYTES;
}

static const cJSON *member_of(const cJSON *object, const char *name) {
    return cJSON_GetObjectItemCaseSensitive(object, name);
}

static bool fits_properties(const cJSON *properties) {
    if (!cJSON_IsObject(properties)) return false;
    for (const cJSON *p = properties->child; p; p = p->next)
        if (!is_name(p->string)) return false;
    return true;
}

static bool fits_required(const cJSON *required, const cJSON *properties) {
    if (!cJSON_IsArray(required)) return false;
    for (const cJSON *name = required->child; name; name = name->next)
        if (!cJSON_IsString(name) || !member_of(properties, name->valuestring)) return false;
    return true;
}

bool keywords_fit(const cJSON *schema) {
    static const char *const others[] = {
        "$schema",  "$defs",       "definitions", "additionalProperties",
        "title",    "description", "default",     "example",
        "examples", "$comment",
    };
    const cJSON *properties = member_of(schema, "properties");
    for (const cJSON *k = schema->child; k; k = k->next) {
        bool fits = is_one_of(others, sizeof others / sizeof *others, k->string);
        if (strcmp(k->string, "type") == 0) fits = cJSON_IsString(k);
        if (strcmp(k->string, "properties") == 0) fits = fits_properties(k);
        if (strcmp(k->string, "required") == 0) fits = fits_required(k, properties);
        if (!fits) return false;
    }
    return true;
}

/* Any boolean. */
static bool is_plain_boolean(const cJSON *schema) {
    static const char *const known[] = {"type", "title", "description", "default"};
    const cJSON *type = member_of(schema, "type");
    if (!cJSON_IsString(type) || strcmp(type->valuestring, "boolean") != 0) return false;
    for (const cJSON *k = schema->child; k; k = k->next)
        if (!is_one_of(known, sizeof known / sizeof *known, k->string)) return false;
    return true;
}

/* ---- values of a bare object ---- */

struct writing {
    grammar_builder *b;
    const struct keywords_form *form;
    const struct grammar_schema *schema;
    int depth;
};

static grammar_node members_node(struct writing *w, const cJSON *object);

static bool has_type(const cJSON *schema, const char *type) {
    const cJSON *v = member_of(schema, "type");
    return cJSON_IsString(v) && strcmp(v->valuestring, type) == 0;
}

/* Has the schema no keywords but these and descriptions? */
static bool has_only(const cJSON *schema, const char *more) {
    static const char *const known[] = {"type", "title", "description", "default"};
    for (const cJSON *k = schema->child; k; k = k->next)
        if (strcmp(k->string, more) != 0 &&
            !is_one_of(known, sizeof known / sizeof *known, k->string))
            return false;
    return true;
}

static grammar_node quoted_node(struct writing *w, grammar_node text) {
    return grammar_seq(w->b, (grammar_node[]){w->form->quote, text, w->form->quote}, 3);
}

/* One of the strings of an enum; below 0: it has others. */
static grammar_node enum_node(struct writing *w, const cJSON *list) {
    grammar_node nodes[MAX_ENUM];
    size_t n = 0;
    for (const cJSON *v = list->child; v; v = v->next) {
        if (!cJSON_IsString(v) || n == MAX_ENUM) return -1;
        nodes[n++] = quoted_node(w, grammar_text(w->b, v->valuestring, strlen(v->valuestring)));
    }
    return n ? grammar_alt(w->b, nodes, n) : -1;
}

/* A value that part allows. */
static grammar_node value_node(struct writing *w, const cJSON *part) {
    struct grammar_schema json = *w->schema;
    grammar_node node = -1;
    json.part = part;
    if (++w->depth > MAX_DEPTH || !cJSON_IsObject(part)) {
        node = -1;
    } else if (has_type(part, "string") && has_only(part, "type")) {
        node = quoted_node(w, w->form->text);
    } else if (has_type(part, "string") && has_only(part, "enum")) {
        node = enum_node(w, member_of(part, "enum"));
    } else if (has_type(part, "array") && has_only(part, "items") && member_of(part, "items")) {
        grammar_node item = value_node(w, member_of(part, "items"));
        grammar_node next =
            grammar_seq(w->b, (grammar_node[]){grammar_text(w->b, ",", 1), item}, 2);
        grammar_node items = grammar_seq(
            w->b, (grammar_node[]){item, grammar_repeat(w->b, next, 0, GRAMMAR_UNLIMITED)}, 2);
        node = grammar_seq(w->b,
                           (grammar_node[]){grammar_text(w->b, "[", 1),
                                            grammar_repeat(w->b, items, 0, 1),
                                            grammar_text(w->b, "]", 1)},
                           3);
    } else if (has_type(part, "object") && member_of(part, "properties") && keywords_fit(part)) {
        node = members_node(w, part);
    }
    w->depth--;
    return node >= 0 ? node : grammar_json(w->b, &json);
}

/* name=value, name:value */
static grammar_node argument_node(struct writing *w, const cJSON *property) {
    static const char *const booleans[] = {"True", "False", "true", "false"};
    struct grammar_schema json = *w->schema;
    json.part = property;
    grammar_node value = w->form->bare                ? value_node(w, property)
                         : is_plain_boolean(property) ? grammar_choice(w->b, booleans, 4)
                                                      : grammar_json(w->b, &json);
    grammar_node nodes[] = {grammar_text(w->b, property->string, strlen(property->string)),
                            grammar_text(w->b, w->form->bare ? ":" : "=", 1), value};
    return grammar_seq(w->b, nodes, 3);
}

static bool is_required(const cJSON *schema, const char *name) {
    const cJSON *required = member_of(schema, "required");
    for (const cJSON *r = required ? required->child : NULL; r; r = r->next)
        if (strcmp(r->valuestring, name) == 0) return true;
    return false;
}

/* From the last property to the first: what may follow once an argument is written (more), and
 * before (first). */
static grammar_node members_node(struct writing *w, const cJSON *object) {
    grammar_builder *b = w->b;
    const bool bare = w->form->bare;
    const cJSON *properties = member_of(object, "properties");
    const cJSON *head = properties ? properties->child : NULL;
    const grammar_node comma = bare ? grammar_text(b, ",", 1) : grammar_text(b, ", ", 2);
    grammar_node more = grammar_text(b, "", 0), first = more;
    /* cJSON: the head's prev is the last one. */
    for (const cJSON *p = head ? head->prev : NULL; p; p = p == head ? NULL : p->prev) {
        const bool required = is_required(object, p->string);
        if (cJSON_IsFalse(p) && !required) continue; /* no value is valid */
        grammar_node argument = argument_node(w, p);
        grammar_node begun = grammar_seq(b, (grammar_node[]){argument, more}, 2);
        grammar_node next = grammar_seq(b, (grammar_node[]){comma, begun}, 2);
        first = required ? begun : grammar_alt(b, (grammar_node[]){begun, first}, 2);
        more = required ? next : grammar_alt(b, (grammar_node[]){next, more}, 2);
    }
    if (!bare) return first;
    return grammar_seq(b, (grammar_node[]){grammar_text(b, "{", 1), first, grammar_text(b, "}", 1)},
                       3);
}

grammar_node keywords_node(grammar_builder *b, const struct keywords_form *form,
                           const struct grammar_schema *schema) {
    struct writing w = {.b = b, .form = form, .schema = schema};
    return members_node(&w, schema->schema);
}
