/* tools.c - tools and tool_choice of a chat request: reading, checks, and the copy for templates.
 * Runs on pool threads. */
#include "api/generate/tools.h"
#include "api/generate/tool_form.h"
#include "api/http/ignored.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NUL = JSON_NULLABLE };

struct tool {
    const char *type;
    const cJSON *function; /* or the custom tool */
};
struct function {
    const char *name, *description;
    const cJSON *parameters;
    bool strict;
};

static const struct json_field function_fields[] = {
    {"name", JSON_STRING, JSON_REQUIRED, .offset = offsetof(struct function, name), .min = 1,
     .max = CHAT_MAX_NAME_BYTES, .help = "Letters, digits and _-.:/"},
    {"description", JSON_STRING, NUL, .offset = offsetof(struct function, description)},
    {"parameters", JSON_OBJECT, NUL, .offset = offsetof(struct function, parameters),
     .help = "A JSON Schema of an object; default: no arguments."},
    {"strict", JSON_BOOL, NUL, .offset = offsetof(struct function, strict), .initial = "false",
     .help = "Generates arguments in the schema's order."},
};
static const struct json_table function_table = JSON_TABLE(function_fields, NULL);

struct custom {
    const char *name, *description;
    const cJSON *format;
};
struct custom_format {
    const char *type;
    const cJSON *grammar;
};
struct custom_grammar {
    const char *syntax, *definition;
};

static const struct json_field grammar_fields[] = {
    {"syntax", JSON_ENUM, JSON_REQUIRED, .offset = offsetof(struct custom_grammar, syntax),
     .words = "lark|regex"},
    {"definition", JSON_STRING, JSON_REQUIRED,
     .offset = offsetof(struct custom_grammar, definition), .min = 1},
};
static const struct json_table grammar_table = JSON_TABLE(grammar_fields, NULL);
static const struct json_field format_fields[] = {
    {"type", JSON_ENUM, JSON_REQUIRED, .offset = offsetof(struct custom_format, type),
     .words = "text|grammar"},
    {"grammar", JSON_OBJECT, 0, .offset = offsetof(struct custom_format, grammar),
     .table = &grammar_table},
};
static const struct json_table format_table = JSON_TABLE(format_fields, NULL);
static const struct json_field custom_fields[] = {
    {"name", JSON_STRING, JSON_REQUIRED, .offset = offsetof(struct custom, name), .min = 1,
     .max = CHAT_MAX_NAME_BYTES},
    {"description", JSON_STRING, NUL, .offset = offsetof(struct custom, description)},
    {"format", JSON_OBJECT, NUL, .offset = offsetof(struct custom, format), .table = &format_table},
};
static const struct json_table custom_table = JSON_TABLE(custom_fields, NULL);
static const struct json_field custom_tool_fields[] = {
    {"type", JSON_STRING, JSON_REQUIRED, .offset = offsetof(struct tool, type)},
    {"custom", JSON_OBJECT, JSON_REQUIRED, .offset = offsetof(struct tool, function),
     .table = &custom_table},
};
static const struct json_table custom_tool_table = JSON_TABLE(custom_tool_fields, NULL);

static const struct json_field tool_fields[] = {
    {"type", JSON_STRING, NUL, .offset = offsetof(struct tool, type), .initial = "\"function\"",
     .help = "function or custom; tools of other types, which the server would have to run, are "
             "ignored."},
    {"function", JSON_OBJECT, JSON_REQUIRED, .offset = offsetof(struct tool, function),
     .table = &function_table},
};
static const struct json_table *own_tool(const cJSON *tool);
const struct json_table tool_table = {tool_fields, sizeof tool_fields / sizeof *tool_fields, NULL,
                                      .of = own_tool};

/* Only the client's tools can be called; what else is offered is left out. */
static const struct json_table *own_tool(const cJSON *tool) {
    const char *type = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(tool, "type"));
    if (type && strcmp(type, "custom") == 0) return &custom_tool_table;
    return type && strcmp(type, "function") != 0 ? NULL : &tool_table;
}

static const cJSON *function_of(const cJSON *tool) {
    const cJSON *function = cJSON_GetObjectItemCaseSensitive(tool, "function");
    return function ? function : cJSON_GetObjectItemCaseSensitive(tool, "custom");
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
    size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.:/");
    return n && !name[n] && n <= CHAT_MAX_NAME_BYTES;
}

struct named {
    const char *name;
    int index;
};

static int compare_named(const void *a, const void *b) {
    const struct named *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    return order ? order : (x->index > y->index) - (x->index < y->index);
}

static int fail_too_many(const char *param, err *e) {
    return err_set_param(e, ERR_INVALID, param, "Invalid value for '%s': at most %d tools.", param,
                         CHAT_MAX_TOOLS);
}

int chat_tools_check(const struct chat_request *q, err *e) {
    const struct chat_tools *t = &q->tools;
    struct named names[CHAT_MAX_TOOLS] = {{0}};
    int i = 0;
    for (const cJSON *v = t->list ? t->list->child : NULL; v; v = v->next, i++) {
        char path[JSON_PATH_BYTES];
        const char *name = name_of(v);
        json_path(path, "%s[%d]%s.name", q->param_tools, i, q->param_function);
        if (i == CHAT_MAX_TOOLS) return fail_too_many(q->param_tools, e);
        if (!is_name(name))
            return err_set_param(
                e, ERR_INVALID, path,
                "Invalid value for '%s': a name must have 1 to %d letters, digits and \"_-.:/\".",
                path, CHAT_MAX_NAME_BYTES);
        names[i] = (struct named){name, i};
    }
    qsort(names, (size_t)i, sizeof *names, compare_named);
    for (int k = 1; k < i; k++) {
        char path[JSON_PATH_BYTES];
        if (strcmp(names[k - 1].name, names[k].name) != 0) continue;
        json_path(path, "%s[%d]%s.name", q->param_tools, names[k].index, q->param_function);
        return err_set_param(e, ERR_INVALID, path,
                             "Invalid value for '%s': duplicate function '%s'.", path,
                             names[k].name);
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
    const cJSON *function, *custom, *allowed_tools;
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
static const struct json_field allowed_custom_fields[] = {
    {"type", JSON_ENUM, JSON_REQUIRED, .offset = offsetof(struct tool, type), .words = "custom"},
    {"custom", JSON_OBJECT, JSON_REQUIRED, .offset = offsetof(struct tool, function),
     .table = &choice_function_table},
};
static const struct json_table allowed_custom_table = JSON_TABLE(allowed_custom_fields, NULL);
static const struct json_table *allowed_tool(const cJSON *tool);
static const struct json_table allowed_tool_table = {
    allowed_tool_fields, sizeof allowed_tool_fields / sizeof *allowed_tool_fields, NULL,
    allowed_tool};

static const struct json_table *allowed_tool(const cJSON *tool) {
    const char *type = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(tool, "type"));
    return type && strcmp(type, "custom") == 0 ? &allowed_custom_table : &allowed_tool_table;
}

static const struct json_field allowed_fields[] = {
    {"mode", JSON_ENUM, JSON_REQUIRED, .offset = offsetof(struct allowed, mode),
     .words = "auto|required"},
    {"tools", JSON_ARRAY, JSON_REQUIRED, .offset = offsetof(struct allowed, tools), .min = 1,
     .max = CHAT_MAX_TOOLS, .table = &allowed_tool_table},
};
static const struct json_table allowed_table = JSON_TABLE(allowed_fields, NULL);

static const struct json_field choice_fields[] = {
    {"type", JSON_ENUM, JSON_REQUIRED, .offset = offsetof(struct choice, type),
     .words = "function|custom|allowed_tools|auto|none|required|any"},
    {"function", JSON_OBJECT, 0, .offset = offsetof(struct choice, function),
     .table = &choice_function_table},
    {"custom", JSON_OBJECT, 0, .offset = offsetof(struct choice, custom),
     .table = &choice_function_table},
    {"allowed_tools", JSON_OBJECT, 0, .offset = offsetof(struct choice, allowed_tools),
     .table = &allowed_table},
};
const struct json_table tool_choice_table = JSON_TABLE(choice_fields, NULL);

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
        rc = json_read(one, allowed_tool(one), name, &tool, e);
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

bool chat_tools_choose(const char *word, struct chat_tools *t) {
    static const char *const words[] = {"auto", "none", "required", "any"};
    static const enum chat_tool_choice choices[] = {CHAT_TOOLS_AUTO, CHAT_TOOLS_NONE,
                                                    CHAT_TOOLS_REQUIRED, CHAT_TOOLS_REQUIRED};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(word, words[i]) == 0) {
            t->choice = choices[i];
            return true;
        }
    return false;
}

static int read_choice(const cJSON *v, struct chat_tools *t, err *e) {
    struct choice c = {0};
    struct choice_function f = {0};
    if (cJSON_IsString(v)) {
        if (chat_tools_choose(v->valuestring, t)) return 0;
        return err_set_param(e, ERR_INVALID, "tool_choice",
                             "Invalid value: '%.40s'. Supported values of 'tool_choice' are: "
                             "'none', 'auto', 'required', a function and allowed tools.",
                             v->valuestring);
    }
    int rc = json_read(v, &tool_choice_table, "tool_choice.", &c, e);
    if (rc || chat_tools_choose(c.type, t)) return rc;
    const struct {
        const char *path;
        const cJSON *value;
    } members[] = {{"tool_choice.function", c.function},
                   {"tool_choice.custom", c.custom},
                   {"tool_choice.allowed_tools", c.allowed_tools}};
    const cJSON *own = NULL;
    for (size_t i = 0; i < 3; i++) {
        const char *path = members[i].path;
        bool is_own = strcmp(path + strlen("tool_choice."), c.type) == 0;
        if (is_own && !members[i].value)
            return err_set_param(e, ERR_INVALID, path, "Missing required parameter: '%s'.", path);
        if (!is_own && members[i].value)
            return err_set_param(e, ERR_INVALID, path, "'%s' does not belong to the type '%s'.",
                                 path, c.type);
        if (is_own) own = members[i].value;
    }
    if (own == c.allowed_tools) return read_allowed(own, t, e);
    rc = json_read(own, &choice_function_table,
                   c.custom ? "tool_choice.custom." : "tool_choice.function.", &f, e);
    t->choice = CHAT_TOOLS_NAMED;
    t->name = f.name;
    return rc;
}

int chat_tools_add(struct chat_tools *t, cJSON *function, err *e) {
    if (!t->list) t->list = cJSON_CreateArray();
    if (cJSON_GetArraySize(t->list) >= CHAT_MAX_TOOLS) {
        cJSON_Delete(function);
        return fail_too_many("tools", e);
    }
    cJSON *to = cJSON_CreateObject();
    bool ok = cJSON_AddStringToObject(to, "type", "function") &&
              cJSON_AddItemToObject(to, "function", function);
    if (!ok) cJSON_Delete(function);
    ok = ok && cJSON_AddItemToArray(t->list, to);
    if (!ok) cJSON_Delete(to);
    return ok ? 0 : err_no_memory(e);
}

static int read_custom(const cJSON *v, const char *path, struct chat_request *q, err *e) {
    char name[JSON_PATH_BYTES];
    struct tool tool = {0};
    struct custom custom = {0};
    struct custom_format format = {0};
    struct custom_grammar g = {0};
    cJSON *function = NULL;
    json_path(name, "%s.", path);
    int rc = json_read(v, &custom_tool_table, name, &tool, e);
    json_path(name, "%s.custom.", path);
    if (!rc) rc = json_read(tool.function, &custom_table, name, &custom, e);
    json_path(name, "%s.custom.format.", path);
    if (!rc && custom.format) rc = json_read(custom.format, &format_table, name, &format, e);
    json_path(name, "%s.custom.format.grammar", path);
    if (!rc && format.type && (strcmp(format.type, "grammar") == 0) != (format.grammar != NULL))
        rc = err_set_param(e, ERR_INVALID, name, "'%s' belongs to the type 'grammar'.", name);
    json_path(name, "%s.custom.format.grammar.", path);
    if (!rc && format.grammar) rc = json_read(format.grammar, &grammar_table, name, &g, e);
    json_path(name, "%s.custom.format", path);
    const struct custom_tool t = {custom.name, custom.description, g.syntax, g.definition};
    const struct tool_form form = {.name = custom.name, .custom = true};
    if (!rc && g.syntax && strcmp(g.syntax, "lark") == 0) rc = ignored_add(q->ignored, name, e);
    if (!rc) rc = tool_form_function(&t, custom.name, &function, e);
    if (!rc) rc = chat_tools_add(&q->tools, function, e);
    return rc ? rc : tool_form_note(&q->tools.forms, custom.name, &form, e);
}

static int read_function(const cJSON *v, const char *path, struct chat_request *q, err *e) {
    char name[JSON_PATH_BYTES];
    struct tool tool = {0};
    struct function function = {0};
    json_path(name, "%s.", path);
    int rc = json_read(v, &tool_table, name, &tool, e);
    json_path(name, "%s.function.", path);
    if (!rc) rc = json_read(tool.function, &function_table, name, &function, e);
    return rc ? rc : chat_tools_add(&q->tools, cJSON_Duplicate(tool.function, true), e);
}

int chat_tools_read(const struct gen_fields *f, struct chat_request *q, err *e) {
    int i = 0;
    for (const cJSON *v = f->tools ? f->tools->child : NULL; v; v = v->next, i++) {
        char path[JSON_PATH_BYTES];
        if (cJSON_IsObject(v) && !own_tool(v)) continue;
        json_path(path, "tools[%d]", i);
        bool custom = cJSON_IsObject(v) && own_tool(v) == &custom_tool_table;
        int rc = custom ? read_custom(v, path, q, e) : read_function(v, path, q, e);
        if (rc) return rc;
    }
    q->tools.parallel = f->parallel_tool_calls;
    int rc = f->tool_choice ? read_choice(f->tool_choice, &q->tools, e) : 0;
    return rc ? rc : chat_tools_check(q, e);
}
