/* tools.c - tools and tool_choice of a chat request: reading, checks, and the copy for templates.
 * Runs on pool threads. */
#include "api/generate/tools.h"

#include <stdio.h>
#include <string.h>

enum { NUL = JSON_NULLABLE };

struct tool {
    const char *type;
    const cJSON *function;
};
struct function {
    const char *name, *description;
    const cJSON *parameters;
    bool strict;
};

static const struct json_field function_fields[] = {
    {"name", JSON_STRING, JSON_REQUIRED, .offset = offsetof(struct function, name), .min = 1,
     .max = CHAT_MAX_NAME_BYTES, .help = "Letters, digits, _ and -."},
    {"description", JSON_STRING, NUL, .offset = offsetof(struct function, description)},
    {"parameters", JSON_OBJECT, NUL, .offset = offsetof(struct function, parameters),
     .help = "A JSON Schema of an object; default: no arguments."},
    {"strict", JSON_BOOL, NUL, .offset = offsetof(struct function, strict), .initial = "false",
     .help = "Generates arguments in the schema's order."},
};
static const struct json_table function_table = JSON_TABLE(function_fields, NULL);

static const struct json_field tool_fields[] = {
    {"type", JSON_ENUM, JSON_REQUIRED, .offset = offsetof(struct tool, type), .words = "function"},
    {"function", JSON_OBJECT, JSON_REQUIRED, .offset = offsetof(struct tool, function),
     .table = &function_table},
    {"custom", JSON_REFUSED, .why = "only tools of type 'function' are supported"},
};
const struct json_table tool_table = JSON_TABLE(tool_fields, NULL);

static const cJSON *function_of(const cJSON *tool) {
    return cJSON_GetObjectItemCaseSensitive(tool, "function");
}

static const char *name_of(const cJSON *tool) {
    const cJSON *name = cJSON_GetObjectItemCaseSensitive(function_of(tool), "name");
    return cJSON_IsString(name) ? name->valuestring : "";
}

static bool has_tool(const cJSON *list, const char *name) {
    for (const cJSON *v = list ? list->child : NULL; v; v = v->next)
        if (strcmp(name_of(v), name) == 0) return true;
    return false;
}

bool chat_tools_allow(const struct chat_tools *t, const char *name) {
    if (t->choice == CHAT_TOOLS_NONE) return false;
    if (t->choice == CHAT_TOOLS_NAMED) return strcmp(t->name, name) == 0;
    return !t->allowed || has_tool(t->allowed, name);
}

size_t chat_tools_names(const struct chat_request *q, const char **names) {
    size_t n = 0;
    for (const cJSON *v = q->tools.list ? q->tools.list->child : NULL; v && n < CHAT_MAX_TOOLS;
         v = v->next)
        if (chat_tools_allow(&q->tools, name_of(v))) names[n++] = name_of(v);
    return n;
}

int chat_tools_shown(const struct chat_tools *t, cJSON **out, err *e) {
    *out = NULL;
    if (!t->list || !t->list->child || t->choice == CHAT_TOOLS_NONE) return 0;
    *out = cJSON_Duplicate(t->list, true);
    if (!*out) return err_no_memory(e);
    for (cJSON *v = (*out)->child; v; v = v->next)
        cJSON_DeleteItemFromObjectCaseSensitive(cJSON_GetObjectItemCaseSensitive(v, "function"),
                                                "strict");
    return 0;
}

/* ---- checking ---- */

static bool is_name(const char *name) {
    size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-");
    return n && !name[n] && n <= CHAT_MAX_NAME_BYTES;
}

int chat_tools_check(const struct chat_request *q, err *e) {
    const struct chat_tools *t = &q->tools;
    int i = 0;
    for (const cJSON *v = t->list ? t->list->child : NULL; v; v = v->next, i++) {
        char path[JSON_PATH_BYTES];
        const char *name = name_of(v);
        json_path(path, "%s[%d]%s.name", q->param_tools, i, q->param_function);
        if (i == CHAT_MAX_TOOLS)
            return err_set_param(e, ERR_INVALID, q->param_tools,
                                 "Invalid value for '%s': at most %d tools.", q->param_tools,
                                 CHAT_MAX_TOOLS);
        if (!is_name(name))
            return err_set_param(
                e, ERR_INVALID, path,
                "Invalid value for '%s': a name must have 1 to %d letters, digits, '_' and '-'.",
                path, CHAT_MAX_NAME_BYTES);
        for (const cJSON *before = t->list->child; before != v; before = before->next)
            if (strcmp(name_of(before), name) == 0)
                return err_set_param(e, ERR_INVALID, path,
                                     "Invalid value for '%s': duplicate function '%s'.", path,
                                     name);
    }
    bool calls = t->choice == CHAT_TOOLS_REQUIRED || t->choice == CHAT_TOOLS_NAMED;
    if (calls && !i)
        return err_set_param(e, ERR_INVALID, "tool_choice",
                             "Invalid value for 'tool_choice': there are no tools to call.");
    if (t->choice == CHAT_TOOLS_NAMED && !has_tool(t->list, t->name))
        return err_set_param(e, ERR_INVALID, "tool_choice",
                             "Invalid value for 'tool_choice': no tool has the name '%.80s'.",
                             t->name);
    return 0;
}

/* ---- tool_choice ---- */

struct choice {
    const char *type;
    const cJSON *function, *allowed_tools;
};
struct choice_function {
    const char *name;
};
struct allowed {
    const char *mode;
    const cJSON *tools;
};

static const struct json_field choice_function_fields[] = {
    {"name", JSON_STRING, JSON_REQUIRED, .offset = offsetof(struct choice_function, name)},
};
static const struct json_table choice_function_table = JSON_TABLE(choice_function_fields, NULL);

static const struct json_field allowed_tool_fields[] = {
    {"type", JSON_ENUM, JSON_REQUIRED, .offset = offsetof(struct tool, type), .words = "function"},
    {"function", JSON_OBJECT, JSON_REQUIRED, .offset = offsetof(struct tool, function),
     .table = &choice_function_table},
};
static const struct json_table allowed_tool_table = JSON_TABLE(allowed_tool_fields, NULL);

static const struct json_field allowed_fields[] = {
    {"mode", JSON_ENUM, JSON_REQUIRED, .offset = offsetof(struct allowed, mode),
     .words = "auto|required"},
    {"tools", JSON_ARRAY, JSON_REQUIRED, .offset = offsetof(struct allowed, tools), .min = 1,
     .max = CHAT_MAX_TOOLS, .table = &allowed_tool_table},
};
static const struct json_table allowed_table = JSON_TABLE(allowed_fields, NULL);

static const struct json_field choice_fields[] = {
    {"type", JSON_ENUM, JSON_REQUIRED, .offset = offsetof(struct choice, type),
     .words = "function|allowed_tools"},
    {"function", JSON_OBJECT, 0, .offset = offsetof(struct choice, function),
     .table = &choice_function_table},
    {"allowed_tools", JSON_OBJECT, 0, .offset = offsetof(struct choice, allowed_tools),
     .table = &allowed_table},
    {"custom", JSON_REFUSED, .why = "only tools of type 'function' are supported"},
};
static const struct json_table choice_table = JSON_TABLE(choice_fields, NULL);

static int read_allowed(const cJSON *v, struct chat_tools *t, err *e) {
    static const char path[] = "tool_choice.allowed_tools";
    struct allowed a = {0};
    int rc = json_read(v, &allowed_table, "tool_choice.allowed_tools.", &a, e), i = 0;
    for (const cJSON *one = rc ? NULL : a.tools->child; one && !rc; one = one->next) {
        char name[JSON_PATH_BYTES];
        struct tool tool = {0};
        struct choice_function f = {0};
        json_path(name, "%s.tools[%d].", path, i++);
        if (!cJSON_IsObject(one))
            return err_set_param(e, ERR_INVALID, name, "Invalid type for '%s': expected an object.",
                                 name);
        rc = json_read(one, &allowed_tool_table, name, &tool, e);
        if (!rc) rc = json_read(tool.function, &choice_function_table, name, &f, e);
        if (!rc && !has_tool(t->list, f.name))
            rc = err_set_param(e, ERR_INVALID, path,
                               "Invalid value for '%s': no tool has the name '%.80s'.", path,
                               f.name);
    }
    if (rc) return rc;
    t->choice = strcmp(a.mode, "required") == 0 ? CHAT_TOOLS_REQUIRED : CHAT_TOOLS_AUTO;
    t->allowed = a.tools;
    return 0;
}

static int read_choice(const cJSON *v, struct chat_tools *t, err *e) {
    static const char *const words[] = {"auto", "none", "required"};
    static const enum chat_tool_choice choices[] = {CHAT_TOOLS_AUTO, CHAT_TOOLS_NONE,
                                                    CHAT_TOOLS_REQUIRED};
    struct choice c = {0};
    struct choice_function f = {0};
    if (cJSON_IsString(v)) {
        for (size_t i = 0; i < 3; i++)
            if (strcmp(v->valuestring, words[i]) == 0) {
                t->choice = choices[i];
                return 0;
            }
        return err_set_param(e, ERR_INVALID, "tool_choice",
                             "Invalid value: '%.40s'. Supported values of 'tool_choice' are: "
                             "'none', 'auto', 'required', a function and allowed tools.",
                             v->valuestring);
    }
    int rc = json_read(v, &choice_table, "tool_choice.", &c, e);
    if (rc) return rc;
    bool named = strcmp(c.type, "function") == 0;
    const cJSON *own = named ? c.function : c.allowed_tools;
    const char *missing = named ? "tool_choice.function" : "tool_choice.allowed_tools";
    const char *alien = named ? "tool_choice.allowed_tools" : "tool_choice.function";
    if (!own)
        return err_set_param(e, ERR_INVALID, missing, "Missing required parameter: '%s'.", missing);
    if (named ? c.allowed_tools : c.function)
        return err_set_param(e, ERR_INVALID, alien, "'%s' does not belong to the type '%s'.", alien,
                             c.type);
    if (!named) return read_allowed(own, t, e);
    rc = json_read(own, &choice_function_table, "tool_choice.function.", &f, e);
    t->choice = CHAT_TOOLS_NAMED;
    t->name = f.name;
    return rc;
}

int chat_tools_read(const struct gen_fields *f, struct chat_request *q, err *e) {
    int i = 0;
    for (const cJSON *v = f->tools ? f->tools->child : NULL; v; v = v->next, i++) {
        char path[JSON_PATH_BYTES];
        struct tool tool = {0};
        struct function function = {0};
        json_path(path, "tools[%d].", i);
        int rc = json_read(v, &tool_table, path, &tool, e);
        json_path(path, "tools[%d].function.", i);
        if (!rc) rc = json_read(tool.function, &function_table, path, &function, e);
        if (rc) return rc;
    }
    if (i) {
        q->tools.list = cJSON_Duplicate(f->tools, true);
        if (!q->tools.list) return err_no_memory(e);
    }
    q->tools.parallel = f->parallel_tool_calls;
    int rc = f->tool_choice ? read_choice(f->tool_choice, &q->tools, e) : 0;
    return rc ? rc : chat_tools_check(q, e);
}
