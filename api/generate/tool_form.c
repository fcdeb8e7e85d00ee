/* tool_form.c - see tool_form.h. Owns nothing. */
#include "api/generate/tool_form.h"

#include "api/http/json.h"
#include "core/text/utf8.h"

#include <string.h>

/* ---- names ---- */

void tool_form_add_name(const char *space, const char *name, str *out) {
    if (space && *space) {
        size_t n = strlen(space);
        str_add(out, space);
        /* Clients' own prefixes ("mcp__files__") end so already. */
        if (n < 2 || strcmp(space + n - 2, "__") != 0) str_add(out, "__");
    }
    str_add(out, name);
}

int tool_form_note(cJSON **forms, const char *function, const struct tool_form *form, err *e) {
    if (!*forms) *forms = cJSON_CreateObject();
    cJSON *to = cJSON_AddObjectToObject(*forms, function);
    bool ok = cJSON_AddStringToObject(to, "name", form->name) &&
              (!form->space || cJSON_AddStringToObject(to, "namespace", form->space)) &&
              (!form->kind || cJSON_AddStringToObject(to, "kind", form->kind)) &&
              cJSON_AddBoolToObject(to, "custom", form->custom);
    return ok ? 0 : err_no_memory(e);
}

struct tool_form tool_form_of(const cJSON *forms, const char *function) {
    const cJSON *form = cJSON_GetObjectItemCaseSensitive(forms, function);
    if (!form) return (struct tool_form){.name = function};
    return (struct tool_form){
        .name = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(form, "name")),
        .space = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(form, "namespace")),
        .custom = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(form, "custom")),
        .kind = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(form, "kind"))};
}

/* ---- custom tools ---- */

/* The whole input must match. */
static bool add_pattern(cJSON *input, const char *regex) {
    str pattern;
    str_init(&pattern, SIZE_MAX);
    str_addf(&pattern, "^(?:%s)$", regex);
    bool ok = !pattern.failed && cJSON_AddStringToObject(input, "pattern", str_cstr(&pattern));
    str_fini(&pattern);
    return ok;
}

static bool add_parameters(cJSON *function, const char *regex) {
    cJSON *parameters = cJSON_AddObjectToObject(function, "parameters");
    bool ok = cJSON_AddStringToObject(parameters, "type", "object") != NULL;
    cJSON *properties = cJSON_AddObjectToObject(parameters, "properties");
    cJSON *input = cJSON_AddObjectToObject(properties, "input");
    ok = ok && cJSON_AddStringToObject(input, "type", "string");
    if (regex) ok = ok && add_pattern(input, regex);
    cJSON *required = cJSON_AddArrayToObject(parameters, "required");
    cJSON *name = cJSON_CreateString("input");
    if (!cJSON_AddItemToArray(required, name)) {
        cJSON_Delete(name);
        return false;
    }
    return ok && cJSON_AddFalseToObject(parameters, "additionalProperties");
}

static bool add_description(cJSON *function, const struct custom_tool *t, bool regex) {
    bool grammar = t->syntax && !regex;
    str text;
    if (!t->description && !grammar) return true;
    str_init(&text, SIZE_MAX);
    if (t->description) str_add(&text, t->description);
    if (grammar)
        str_addf(&text, "%sThe input follows this %s grammar:\n%s", text.len ? "\n\n" : "",
                 t->syntax, t->definition);
    bool ok = !text.failed && cJSON_AddStringToObject(function, "description", str_cstr(&text));
    str_fini(&text);
    return ok;
}

int tool_form_function(const struct custom_tool *t, const char *function, cJSON **out, err *e) {
    bool regex = t->syntax && strcmp(t->syntax, "regex") == 0;
    *out = cJSON_CreateObject();
    if (cJSON_AddStringToObject(*out, "name", function) && add_description(*out, t, regex) &&
        add_parameters(*out, regex ? t->definition : NULL))
        return 0;
    cJSON_Delete(*out);
    *out = NULL;
    return err_no_memory(e);
}

void tool_form_add_arguments(const char *input, str *out) {
    str_add(out, "{\"input\":");
    json_add_cstr(out, input);
    str_add_char(out, '}');
}

/* ---- the input of a call ---- */

/* A surrogate without its partner becomes U+FFFD, as in json_add_string. */
static void drop_high(struct tool_input *in, str *out) {
    if (in->high) utf8_add(out, UTF8_REPLACEMENT);
    in->high = 0;
}

static void take_unit(struct tool_input *in, uint32_t unit, str *out) {
    bool low = unit >= 0xdc00 && unit <= 0xdfff;
    if (in->high && low) {
        utf8_add(out, 0x10000 + ((in->high - 0xd800) << 10) + (unit - 0xdc00));
        in->high = 0;
        return;
    }
    drop_high(in, out);
    if (unit >= 0xd800 && unit <= 0xdbff)
        in->high = unit;
    else
        utf8_add(out, low ? UTF8_REPLACEMENT : unit);
}

static void take_escape(struct tool_input *in, char c, str *out) {
    static const char from[] = "nrtbf", to[] = "\n\r\t\b\f";
    const char *at = strchr(from, c);
    in->state = c == 'u' ? INPUT_HEX : INPUT_TEXT;
    in->hex = in->n_hex = 0;
    if (c == 'u') return;
    drop_high(in, out);
    str_add_char(out, c && at ? to[at - from] : c);
}

static void take_hex(struct tool_input *in, char c, str *out) {
    uint32_t digit = c >= 'a'   ? (uint32_t)(c - 'a') + 10
                     : c >= 'A' ? (uint32_t)(c - 'A') + 10
                                : (uint32_t)(c - '0');
    in->hex = in->hex << 4 | (digit & 15);
    if (++in->n_hex < 4) return;
    take_unit(in, in->hex, out);
    in->state = INPUT_TEXT;
}

/* A character of the string itself, or one that begins an escape or ends it. */
static void take_text(struct tool_input *in, char c, str *out) {
    if (c == '\\') {
        in->state = INPUT_ESCAPE;
        return;
    }
    drop_high(in, out);
    if (c == '"')
        in->state = INPUT_END;
    else
        str_add_char(out, c);
}

void tool_input_take(struct tool_input *in, const char *json, size_t n, str *out) {
    for (size_t i = 0; i < n; i++) {
        char c = json[i];
        switch (in->state) {
        case INPUT_BEFORE:
            if (c == ':') in->state = INPUT_VALUE; /* after the only key */
            break;
        case INPUT_VALUE:
            if (c == '"') in->state = INPUT_TEXT;
            break;
        case INPUT_TEXT:
            take_text(in, c, out);
            break;
        case INPUT_ESCAPE:
            take_escape(in, c, out);
            break;
        case INPUT_HEX:
            take_hex(in, c, out);
            break;
        case INPUT_END:
            return;
        }
    }
}
