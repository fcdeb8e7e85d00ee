/* keywords.c - see keywords.h. Owns nothing. Any thread. */
#include "api/generate/keywords.h"

#include <ctype.h>
#include <string.h>

enum { NAME_MAX_BYTES = 128 }; /* as core/chat reads */

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

/* name=value */
static grammar_node argument_node(grammar_builder *b, const struct grammar_schema *schema,
                                  const cJSON *property) {
    static const char *const booleans[] = {"True", "False", "true", "false"};
    struct grammar_schema value = *schema;
    value.part = property;
    grammar_node nodes[] = {
        grammar_text(b, property->string, strlen(property->string)), grammar_text(b, "=", 1),
        is_plain_boolean(property) ? grammar_choice(b, booleans, 4) : grammar_json(b, &value)};
    return grammar_seq(b, nodes, 3);
}

static bool is_required(const cJSON *schema, const char *name) {
    const cJSON *required = member_of(schema, "required");
    for (const cJSON *r = required ? required->child : NULL; r; r = r->next)
        if (strcmp(r->valuestring, name) == 0) return true;
    return false;
}

/* From the last property to the first: what may follow once an argument is written (more), and
 * before (first). */
grammar_node keywords_node(grammar_builder *b, const struct grammar_schema *schema) {
    const cJSON *properties = member_of(schema->schema, "properties");
    const cJSON *head = properties ? properties->child : NULL;
    grammar_node more = grammar_text(b, "", 0), first = more;
    /* cJSON: the head's prev is the last one. */
    for (const cJSON *p = head ? head->prev : NULL; p; p = p == head ? NULL : p->prev) {
        const bool required = is_required(schema->schema, p->string);
        if (cJSON_IsFalse(p) && !required) continue; /* no value is valid */
        grammar_node argument = argument_node(b, schema, p);
        grammar_node begun = grammar_seq(b, (grammar_node[]){argument, more}, 2);
        grammar_node next = grammar_seq(b, (grammar_node[]){grammar_text(b, ", ", 2), begun}, 2);
        first = required ? begun : grammar_alt(b, (grammar_node[]){begun, first}, 2);
        more = required ? next : grammar_alt(b, (grammar_node[]){next, more}, 2);
    }
    return first;
}
