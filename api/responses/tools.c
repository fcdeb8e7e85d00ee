/* responses/tools.c - the tools of POST /v1/responses and its tool_choice, in the form that all
 * chat endpoints share, and their echo in the answer. Functions, functions of namespaces, custom
 * tools and those of client_tools.c are run by the client; the others are left out. Pure; pool
 * threads. */
#include "api/generate/tools.h"
#include "api/generate/tool_form.h"
#include "api/http/ignored.h"
#include "api/responses/client_tools.h"
#include "api/responses/responses.h"

#include "core/base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NUL = JSON_NULLABLE };

static const char *text_of(const cJSON *object, const char *name) {
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, name));
    return text ? text : "";
}

static bool is_type(const cJSON *v, const char *type) {
    return strcmp(text_of(v, "type"), type) == 0;
}

/* ---- tables ---- */

struct tool {
    const char *type, *name, *description;
    const cJSON *parameters, *format, *tools;
    bool strict, has_strict;
};
struct format {
    const char *type, *syntax, *definition;
};
#define AT(member) .offset = offsetof(struct tool, member)

static const char all_shown[] = "the model sees all tools";
static const char no_callers[] = "only the client can call tools";

static const struct json_field function_fields[] = {
    {"type", JSON_STRING, NUL, AT(type), .initial = "\"function\"",
     .help = "function, custom, namespace (with functions and custom tools in its tools), "
             "local_shell, shell or apply_patch; tools of other types, which the server would have "
             "to run, are ignored."},
    {"name", JSON_STRING, JSON_REQUIRED, AT(name), .min = 1, .max = CHAT_MAX_NAME_BYTES},
    {"description", JSON_STRING, NUL, AT(description)},
    {"parameters", JSON_OBJECT, NUL, AT(parameters)},
    {"strict", JSON_BOOL, NUL, AT(strict), .has = 1 + offsetof(struct tool, has_strict)},
    {"output_schema", JSON_ADVISORY, NUL, .why = "outputs of tools are not validated"},
    {"defer_loading", JSON_ADVISORY, NUL, .why = all_shown},
    {"allowed_callers", JSON_ADVISORY, NUL, .why = no_callers},
};
static const struct json_field format_fields[] = {
    {"type", JSON_ENUM, JSON_REQUIRED, .offset = offsetof(struct format, type),
     .words = "text|grammar"},
    {"syntax", JSON_ENUM, 0, .offset = offsetof(struct format, syntax), .words = "lark|regex"},
    {"definition", JSON_STRING, 0, .offset = offsetof(struct format, definition), .min = 1},
};
static const struct json_table format_table = JSON_TABLE(format_fields, NULL);
static const struct json_field custom_fields[] = {
    {"type", JSON_STRING, JSON_REQUIRED, AT(type)},
    {"name", JSON_STRING, JSON_REQUIRED, AT(name), .min = 1, .max = CHAT_MAX_NAME_BYTES},
    {"description", JSON_STRING, NUL, AT(description)},
    {"format", JSON_OBJECT, NUL, AT(format), .table = &format_table},
    {"defer_loading", JSON_ADVISORY, NUL, .why = all_shown},
    {"allowed_callers", JSON_ADVISORY, NUL, .why = no_callers},
};
static const struct json_table custom_table = JSON_TABLE(custom_fields, NULL);

/* {"type": "local"} */
static bool is_local(const cJSON *v) {
    return is_type(v, "local") && !v->child->next;
}

static const struct json_field client_fields[] = {
    {"type", JSON_STRING, JSON_REQUIRED, AT(type)},
    {"environment", JSON_ADVISORY, NUL, .accepts = is_local,
     .why = "the client knows where it runs"},
    {"allowed_callers", JSON_ADVISORY, NUL, .why = no_callers},
};
static const struct json_table client_table = JSON_TABLE(client_fields, NULL);
static const struct json_table *own_tool(const cJSON *tool);
static const struct json_table *own_member(const cJSON *tool);
static const struct json_table function_table = JSON_TABLE(function_fields, NULL);
static const struct json_table member_table = {.of = own_member};
static const struct json_field space_fields[] = {
    {"type", JSON_STRING, JSON_REQUIRED, AT(type)},
    {"name", JSON_STRING, JSON_REQUIRED, AT(name), .min = 1, .max = CHAT_MAX_NAME_BYTES},
    {"description", JSON_STRING, NUL, AT(description)},
    {"tools", JSON_ARRAY, JSON_REQUIRED, AT(tools), .max = CHAT_MAX_TOOLS, .table = &member_table},
};
static const struct json_table space_table = JSON_TABLE(space_fields, NULL);
const struct json_table response_tool_table = {
    function_fields, sizeof function_fields / sizeof *function_fields, NULL, own_tool};

/* NULL: not the client's to run. */
static const struct json_table *own_member(const cJSON *tool) {
    if (is_type(tool, "custom")) return &custom_table;
    return *text_of(tool, "type") && !is_type(tool, "function") ? NULL : &function_table;
}

static const struct json_table *own_tool(const cJSON *tool) {
    if (client_tool_offered(tool)) return &client_table;
    return is_type(tool, "namespace") ? &space_table : own_member(tool);
}

struct choice {
    const char *type, *name, *mode, *space;
    const cJSON *tools;
};
#define CHOICE(member) .offset = offsetof(struct choice, member)

static const struct json_field choice_fields[] = {
    {"type", JSON_ENUM, JSON_REQUIRED, CHOICE(type),
     .words = "function|custom|allowed_tools|local_shell|shell|apply_patch"},
    {"name", JSON_STRING, 0, CHOICE(name), .min = 1},
    {"namespace", JSON_STRING, NUL, CHOICE(space), .min = 1,
     .help =
         "Namespace of the named function or custom tool; default: the first tool of that name."},
    {"mode", JSON_ENUM, 0, CHOICE(mode), .words = "auto|required"},
    {"tools", JSON_ARRAY, 0, CHOICE(tools), .min = 1, .max = CHAT_MAX_TOOLS},
};
const struct json_table response_choice_table = JSON_TABLE(choice_fields, NULL);

/* What a tool of a choice is named by; its other members do not matter. */
static const struct json_field named_fields[] = {
    {"type", JSON_ENUM, NUL, CHOICE(type),
     .words = "function|custom|namespace|local_shell|shell|apply_patch"},
    {"name", JSON_STRING, 0, CHOICE(name), .min = 1},
    {"namespace", JSON_STRING, NUL, CHOICE(space), .min = 1},
};
static const struct json_table named_table = JSON_TABLE(named_fields, NULL);

/* ---- tools ---- */

/* A tool's function, which the caller deletes. */
static int make_function(const struct tool *t, const char *name, cJSON **out, err *e) {
    cJSON *function = *out = cJSON_CreateObject();
    bool ok = cJSON_AddStringToObject(function, "name", name) &&
              (!t->description || cJSON_AddStringToObject(function, "description", t->description));
    if (ok && t->parameters) {
        cJSON *copy = cJSON_Duplicate(t->parameters, true);
        ok = cJSON_AddItemToObject(function, "parameters", copy);
        if (!ok) cJSON_Delete(copy);
    }
    if (ok && t->has_strict) ok = cJSON_AddBoolToObject(function, "strict", t->strict);
    if (ok) return 0;
    cJSON_Delete(function);
    *out = NULL;
    return err_no_memory(e);
}

static int make_custom(const struct tool *t, const char *name, const char *path,
                       struct chat_request *q, cJSON **out, err *e) {
    char at[JSON_PATH_BYTES];
    struct format f = {0};
    json_path(at, "%s.format.", path);
    int rc = t->format ? json_read(t->format, &format_table, at, &f, e) : 0;
    if (rc) return rc;
    bool bound = f.type && strcmp(f.type, "grammar") == 0;
    json_path(at, "%s.format.%s", path, f.syntax ? "definition" : "syntax");
    if (bound && !(f.syntax && f.definition))
        return err_set_param(e, ERR_INVALID, at, "Missing required parameter: '%s'.", at);
    json_path(at, "%s.format", path);
    if (bound && strcmp(f.syntax, "lark") == 0 && (rc = ignored_add(q->ignored, at, e))) return rc;
    const struct custom_tool c = {name, t->description, bound ? f.syntax : NULL, f.definition};
    return tool_form_function(&c, name, out, e);
}

/* A function or custom tool; space: its namespace, or NULL. */
static int read_tool(const cJSON *v, const char *path, const char *space, struct chat_request *q,
                     err *e) {
    char at[JSON_PATH_BYTES];
    struct tool t = {0};
    cJSON *function = NULL;
    bool custom = is_type(v, "custom");
    str name;
    json_path(at, "%s.", path);
    int rc = json_read(v, custom ? &custom_table : &function_table, at, &t, e);
    if (rc) return rc;
    str_init(&name, SIZE_MAX);
    tool_form_add_name(space, t.name, &name);
    const struct tool_form form = {.name = t.name, .space = space, .custom = custom};
    if (name.failed)
        rc = err_no_memory(e);
    else if (custom)
        rc = make_custom(&t, str_cstr(&name), path, q, &function, e);
    else
        rc = make_function(&t, str_cstr(&name), &function, e);
    if (!rc) rc = chat_tools_add(&q->tools, function, e);
    if (!rc && (space || custom)) rc = tool_form_note(&q->tools.forms, str_cstr(&name), &form, e);
    str_fini(&name);
    return rc;
}

/* The client runs it, too, but answers with pictures. */
static int check_screen(const cJSON *v, const char *path, err *e) {
    char at[JSON_PATH_BYTES];
    if (!is_type(v, "computer") && !is_type(v, "computer_use_preview")) return 0;
    json_path(at, "%s.type", path);
    return err_set_param(e, ERR_UNSUPPORTED, at,
                         "Unsupported value for '%s': the model reads text only and cannot see a "
                         "screen. Leave the tool out.",
                         at);
}

static int read_client_tool(const cJSON *v, const char *path, struct chat_request *q, err *e) {
    const struct client_tool *t = client_tool_offered(v);
    const struct tool_form form = {.name = t->type, .kind = t->type};
    char at[JSON_PATH_BYTES];
    struct tool tool = {0};
    cJSON *function = NULL;
    json_path(at, "%s.", path);
    int rc = json_read(v, &client_table, at, &tool, e);
    if (!rc) rc = client_tool_function(t, &function, e);
    if (!rc) rc = chat_tools_add(&q->tools, function, e);
    return rc ? rc : tool_form_note(&q->tools.forms, t->type, &form, e);
}

static int read_space(const cJSON *v, const char *path, struct chat_request *q, err *e) {
    char at[JSON_PATH_BYTES];
    struct tool t = {0};
    int i = 0;
    json_path(at, "%s.", path);
    int rc = json_read(v, &space_table, at, &t, e);
    for (const cJSON *one = rc ? NULL : t.tools->child; one && !rc; one = one->next) {
        json_path(at, "%s.tools[%d]", path, i++);
        if (cJSON_IsObject(one) && !own_member(one)) continue;
        rc = read_tool(one, at, t.name, q, e);
    }
    return rc;
}

/* ---- tool_choice ---- */

static const char *name_of(const cJSON *tool) {
    return text_of(cJSON_GetObjectItemCaseSensitive(tool, "function"), "name");
}

/* Does a choice name the tool of that form? */
static bool names_tool(const struct choice *c, const struct tool_form *form) {
    const char *space = form->space ? form->space : "";
    if (c->type && client_tool_of(CLIENT_TOOL_TYPE, c->type))
        return form->kind && strcmp(form->kind, c->type) == 0;
    if (form->kind) return false;
    if (c->type && strcmp(c->type, "namespace") == 0) return strcmp(space, c->name) == 0;
    bool custom = c->type && strcmp(c->type, "custom") == 0;
    return custom == form->custom && strcmp(form->name, c->name) == 0 &&
           (!c->space || strcmp(c->space, space) == 0);
}

static const cJSON *find_tool(const struct choice *c, const struct chat_tools *t) {
    for (const cJSON *v = t->list ? t->list->child : NULL; v; v = v->next) {
        const struct tool_form form = tool_form_of(t->forms, name_of(v));
        if (names_tool(c, &form)) return v;
    }
    return NULL;
}

struct allowed {
    struct choice choice;
    bool found; /* it names a tool */
};

/* Deletes the tools that none of the choices (n) names, so that the template does not show them
 * either. */
static void keep_named(struct allowed *all, size_t n, struct chat_tools *tools) {
    for (cJSON *v = tools->list ? tools->list->child : NULL, *next; v; v = next) {
        const struct tool_form form = tool_form_of(tools->forms, name_of(v));
        bool named = false;
        next = v->next;
        for (size_t i = 0; i < n; i++)
            if (names_tool(&all[i].choice, &form)) named = all[i].found = true;
        if (!named) cJSON_Delete(cJSON_DetachItemViaPointer(tools->list, v));
    }
}

static int keep_allowed(const struct choice *c, struct chat_tools *tools, err *e) {
    char path[JSON_PATH_BYTES];
    size_t n = (size_t)cJSON_GetArraySize(c->tools), i = 0;
    struct allowed *all = mem_new(n, sizeof *all);
    int rc = all ? 0 : err_no_memory(e);
    for (const cJSON *v = c->tools->child; v && !rc; v = v->next, i++) {
        json_path(path, "tool_choice.tools[%zu].", i);
        rc = json_read(v, &named_table, path, &all[i].choice, e);
        const char *type = all[i].choice.type;
        bool named = all[i].choice.name || (type && client_tool_of(CLIENT_TOOL_TYPE, type));
        json_path(path, "tool_choice.tools[%zu].name", i);
        if (!rc && !named)
            rc = err_set_param(e, ERR_INVALID, path, "Missing required parameter: '%s'.", path);
    }
    if (!rc) keep_named(all, n, tools);
    for (i = 0; i < n && !rc; i++) {
        if (all[i].found) continue;
        json_path(path, "tool_choice.tools[%zu].name", i);
        rc = err_set_param(e, ERR_INVALID, path, "Tool choice '%.64s' not found in 'tools'.",
                           all[i].choice.name ? all[i].choice.name : all[i].choice.type);
    }
    free(all);
    tools->choice = strcmp(c->mode, "required") == 0 ? CHAT_TOOLS_REQUIRED : CHAT_TOOLS_AUTO;
    return rc;
}

static int read_choice_object(const cJSON *v, struct chat_tools *tools, err *e) {
    struct choice c = {0};
    int rc = json_read(v, &response_choice_table, "tool_choice.", &c, e);
    if (rc) return rc;
    bool named = strcmp(c.type, "allowed_tools") != 0;
    if (client_tool_of(CLIENT_TOOL_TYPE, c.type) && !c.name) c.name = c.type;
    const char *missing = named     ? (c.name ? NULL : "name")
                          : !c.mode ? "mode"
                          : c.tools ? NULL
                                    : "tools";
    const char *extra = named     ? (c.mode    ? "mode"
                                     : c.tools ? "tools"
                                               : NULL)
                        : c.name  ? "name"
                        : c.space ? "namespace"
                                  : NULL;
    char path[JSON_PATH_BYTES];
    json_path(path, "tool_choice.%s", missing ? missing : extra ? extra : "name");
    if (missing)
        return err_set_param(e, ERR_INVALID, path, "Missing required parameter: '%s'.", path);
    if (extra)
        return err_set_param(e, ERR_INVALID, path, "'%s' does not belong to type '%s'.", path,
                             c.type);
    if (!named) return keep_allowed(&c, tools, e);
    const cJSON *tool = find_tool(&c, tools);
    if (!tool && tools->list)
        return err_set_param(e, ERR_INVALID, "tool_choice",
                             "Invalid value for 'tool_choice': no tool of type '%s' has the name "
                             "'%.80s'.",
                             c.type, c.name);
    tools->choice = CHAT_TOOLS_NAMED;
    tools->name = tool ? name_of(tool) : c.name; /* without tools chat_tools_check refuses it */
    return 0;
}

static int read_choice(const cJSON *v, struct chat_tools *tools, err *e) {
    if (!v) return 0;
    if (cJSON_IsObject(v)) return read_choice_object(v, tools, e);
    if (chat_tools_choose(v->valuestring, tools)) return 0;
    return err_set_param(e, ERR_INVALID, "tool_choice",
                         "Invalid value for 'tool_choice': '%.40s'. Supported values are: 'none', "
                         "'auto', 'required', a function, a custom tool and 'allowed_tools'.",
                         v->valuestring);
}

int response_tools_read(const struct response_fields *f, struct chat_request *q, err *e) {
    struct chat_tools *tools = &q->tools;
    int rc = 0, i = 0;
    tools->parallel = f->parallel_tool_calls;
    for (const cJSON *v = f->tools ? f->tools->child : NULL; v && !rc; v = v->next) {
        char path[JSON_PATH_BYTES];
        json_path(path, "tools[%d]", i++);
        rc = check_screen(v, path, e);
        if (rc || (cJSON_IsObject(v) && !own_tool(v))) continue;
        if (client_tool_offered(v))
            rc = read_client_tool(v, path, q, e);
        else if (is_type(v, "namespace"))
            rc = read_space(v, path, q, e);
        else
            rc = read_tool(v, path, NULL, q, e);
    }
    if (!rc) rc = read_choice(f->tool_choice, tools, e);
    if (!rc) rc = chat_tools_check(q, e);
    return rc ? rc : response_format_read(f, q, e);
}

/* ---- the echo ---- */

static void add_member(const cJSON *v, const char *name, str *out) {
    const cJSON *member = cJSON_GetObjectItemCaseSensitive(v, name);
    str_addf(out, ",\"%s\":", name);
    if (member)
        json_add_value(out, member);
    else
        str_add(out, "null");
}

void response_tools_echo(const cJSON *tools, str *out) {
    static const char *const members[] = {"name", "description", "parameters", "strict"};
    bool first = true;
    str_add(out, ",\"tools\":[");
    for (const cJSON *v = tools ? tools->child : NULL; v; v = v->next) {
        if (!own_tool(v)) continue;
        if (!first) str_add_char(out, ',');
        first = false;
        if (own_tool(v) != &function_table) {
            json_add_value(out, v);
            continue;
        }
        str_add(out, "{\"type\":\"function\"");
        for (size_t i = 0; i < sizeof members / sizeof *members; i++)
            add_member(v, members[i], out);
        str_add_char(out, '}');
    }
    str_add_char(out, ']');
}
