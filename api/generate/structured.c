/* structured.c - the requested format of a chat answer: response_format, and extension fields that
 * other servers have too. Runs on pool threads. */
#include "api/generate/structured.h"

#include <string.h>

enum { NUL = JSON_NULLABLE, MAX_CHOICES = 4096 };

struct format {
    const char *type;
    const cJSON *json_schema, *schema;
};
struct json_schema {
    const char *name;
    const cJSON *schema;
    bool strict;
};

static const struct json_field json_schema_fields[] = {
    {"name", JSON_STRING, NUL, .offset = offsetof(struct json_schema, name), .min = 1, .max = 64},
    {"description", JSON_ADVISORY, NUL, .why = "the model does not see it"},
    {"schema", JSON_OBJECT, NUL, .offset = offsetof(struct json_schema, schema),
     .help = "A JSON Schema; default: any JSON object."},
    {"strict", JSON_BOOL, NUL | JSON_OR_STRING, /* LM Studio's documented example has "true" */
     .offset = offsetof(struct json_schema, strict), .initial = "false",
     .help = "Generates members in the schema's order. Answers are valid without it, too."},
};
static const struct json_table json_schema_table = JSON_TABLE(json_schema_fields, NULL);

static const struct json_field format_fields[] = {
    {"type", JSON_ENUM, JSON_REQUIRED, .offset = offsetof(struct format, type),
     .words = "text|json_object|json_schema"},
    {"json_schema", JSON_OBJECT, 0, .offset = offsetof(struct format, json_schema),
     .table = &json_schema_table},
    {"schema", JSON_OBJECT, NUL, .offset = offsetof(struct format, schema),
     .help = "Of other servers: as json_schema.schema, also with the type json_object."},
};
const struct json_table response_format_table = JSON_TABLE(format_fields, NULL);

struct outputs {
    const cJSON *json, *choice;
    const char *regex, *grammar;
    bool json_object;
};

static const struct json_field outputs_fields[] = {
    {"json", JSON_VALUE, NUL | JSON_OR_OBJECT | JSON_OR_STRING | JSON_OR_BOOL,
     .offset = offsetof(struct outputs, json), .help = "A JSON Schema, as JSON or as a string."},
    {"regex", JSON_STRING, NUL, .offset = offsetof(struct outputs, regex), .min = 1,
     .help = "A regular expression that the whole answer must match."},
    {"choice", JSON_ARRAY, NUL, .offset = offsetof(struct outputs, choice), .min = 1,
     .max = MAX_CHOICES, .help = "Texts; the answer is one of them."},
    {"grammar", JSON_STRING, NUL, .offset = offsetof(struct outputs, grammar), .min = 1,
     .help = "A GBNF grammar; the answer matches its rule root."},
    {"json_object", JSON_BOOL, NUL, .offset = offsetof(struct outputs, json_object),
     .initial = "false", .help = "Any JSON object."},
};
const struct json_table structured_outputs_table = JSON_TABLE(outputs_fields, NULL);

static int read_response_format(const cJSON *v, struct chat_request *q, err *e) {
    static const char member[] = "response_format.json_schema", other[] = "response_format.schema";
    struct format f = {0};
    struct json_schema s = {0};
    int rc = json_read(v, &response_format_table, "response_format.", &f, e);
    if (rc) return rc;
    bool text = strcmp(f.type, "text") == 0, schema = strcmp(f.type, "json_schema") == 0;
    const char *alien = !schema && f.json_schema ? member : text && f.schema ? other : NULL;
    if (schema && !f.json_schema && !f.schema)
        return err_set_param(e, ERR_INVALID, member, "Missing required parameter: '%s'.", member);
    if (alien)
        return err_set_param(e, ERR_INVALID, alien, "'%s' does not belong to the type '%s'.", alien,
                             f.type);
    if (f.json_schema && f.schema)
        return err_set_param(e, ERR_INVALID, other, "'%s' and '%s' mean the same: send only one.",
                             other, member);
    if (text) return 0;
    if (f.json_schema)
        rc = json_read(f.json_schema, &json_schema_table, "response_format.json_schema.", &s, e);
    q->format.value = f.schema ? f.schema : s.schema;
    q->format.kind = q->format.value ? CHAT_FORMAT_SCHEMA : CHAT_FORMAT_OBJECT;
    q->format.strict = s.strict;
    q->param_format = f.schema ? other : "response_format.json_schema.schema";
    return rc;
}

/* Sets a schema that was given as JSON or as its text. */
static int set_schema(const cJSON *v, const char *param, struct chat_request *q, err *e) {
    q->format = (struct chat_format){.kind = CHAT_FORMAT_SCHEMA, .value = v};
    if (!cJSON_IsString(v)) return 0;
    int rc = json_parse(v->valuestring, strlen(v->valuestring), &q->format.parsed, e);
    if (!rc && !cJSON_IsObject(q->format.parsed) && !cJSON_IsBool(q->format.parsed))
        rc = err_set(e, ERR_INVALID, "a schema must be an object or a boolean");
    if (!rc && json_holds_nul(q->format.parsed))
        rc = err_set(e, ERR_INVALID, "a schema must not contain the character U+0000 (\\u0000)");
    if (rc == ERR_NOMEM) return rc;
    q->format.value = q->format.parsed;
    if (rc) {
        err why = *e;
        return err_set_param(e, ERR_INVALID, param, "Invalid value for '%s': %.300s", param,
                             why.msg);
    }
    return 0;
}

static int check_choices(const cJSON *list, const char *param, err *e) {
    int i = 0;
    for (const cJSON *v = list->child; v; v = v->next, i++) {
        char path[JSON_PATH_BYTES];
        json_path(path, "%s[%d]", param, i);
        if (i == MAX_CHOICES)
            return err_set_param(e, ERR_INVALID, param, "Invalid value for '%s': at most %d texts.",
                                 param, MAX_CHOICES);
        if (!cJSON_IsString(v) || !*v->valuestring)
            return err_set_param(e, ERR_INVALID, path,
                                 "Invalid value for '%s': expected a non-empty string.", path);
    }
    return 0;
}

static int fail_second_format(const char *param, err *e) {
    return err_set_param(
        e, ERR_INVALID, param,
        "'%s': the answer can be constrained in only one way: send one such field.", param);
}

/* The names of the members of struct outputs, by source. */
enum { N_OUTPUTS = 5 };
static const char *const guided_names[N_OUTPUTS] = {"guided_json", "guided_regex", "guided_choice",
                                                    "guided_grammar", ""};
static const char *const llama_names[N_OUTPUTS] = {"json_schema", "", "", "grammar", ""};
static const char *const outputs_names[N_OUTPUTS] = {
    "structured_outputs.json", "structured_outputs.regex", "structured_outputs.choice",
    "structured_outputs.grammar", "structured_outputs.json_object"};

/* Sets q's format from one source. */
static int take_outputs(const struct outputs *o, const char *const *params, struct chat_request *q,
                        err *e) {
    const bool given[] = {o->json != NULL, o->regex != NULL, o->choice != NULL, o->grammar != NULL,
                          o->json_object};
    int rc = 0;
    for (size_t i = 0; i < N_OUTPUTS && !rc; i++) {
        if (!given[i]) continue;
        if (q->format.kind != CHAT_FORMAT_TEXT) return fail_second_format(params[i], e);
        q->param_format = params[i];
        if (i == 0) rc = set_schema(o->json, params[i], q, e);
        if (i == 1) q->format = (struct chat_format){.kind = CHAT_FORMAT_REGEX, .text = o->regex};
        if (i == 2) {
            q->format = (struct chat_format){.kind = CHAT_FORMAT_CHOICE, .value = o->choice};
            rc = check_choices(o->choice, params[i], e);
        }
        if (i == 3) q->format = (struct chat_format){.kind = CHAT_FORMAT_GBNF, .text = o->grammar};
        if (i == 4) q->format.kind = CHAT_FORMAT_OBJECT;
    }
    return rc;
}

int chat_format_read(const struct gen_fields *f, struct chat_request *q, err *e) {
    struct outputs o = {0};
    const struct outputs guided = {.json = f->guided_json,
                                   .choice = f->guided_choice,
                                   .regex = f->guided_regex,
                                   .grammar = f->guided_grammar};
    const char *gbnf = f->grammar && *f->grammar ? f->grammar : NULL; /* "" is none */
    const struct outputs llama = {.json = f->json_schema, .grammar = gbnf};
    int rc = f->response_format ? read_response_format(f->response_format, q, e) : 0;
    if (!rc && f->structured_outputs) {
        rc = json_read(f->structured_outputs, &structured_outputs_table, "structured_outputs.", &o,
                       e);
        if (!rc) rc = take_outputs(&o, outputs_names, q, e);
    }
    if (!rc) rc = take_outputs(&guided, guided_names, q, e);
    return rc ? rc : take_outputs(&llama, llama_names, q, e);
}
