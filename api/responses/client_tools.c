/* responses/client_tools.c - the tools of the Responses API that OpenAI defines and the client
 * runs: local_shell, shell and apply_patch. A request names only their type; the model gets each as
 * a function whose arguments are the members of the item's action, and what it calls comes back in
 * the tool's own items. Pure; pool threads, and HTTP threads for what is written. */
#include "api/responses/client_tools.h"
#include "api/http/json.h"
#include "api/responses/items_int.h"

#include "core/text/json.h"

#include <string.h>

/* clang-format would break the texts at every word. */
// clang-format off
#define TEXT(description) "{\"type\":\"string\",\"description\":\"" description "\"}"
#define WORDS(description)                                                                         \
    "{\"type\":\"array\",\"items\":{\"type\":\"string\"},\"minItems\":1,\"description\":\""        \
    description "\"}"
#define COUNT(description)                                                                         \
    "{\"type\":\"integer\",\"minimum\":1,\"description\":\"" description "\"}"
#define OBJECT(members, required)                                                                  \
    "{\"type\":\"object\",\"properties\":{" members "},\"required\":[" required                    \
    "],\"additionalProperties\":false}"

static const struct client_tool tools[] = {
    {.type = "local_shell",
     .call = "local_shell_call",
     .output = "local_shell_call_output",
     .call_prefix = "lsh_",
     .output_prefix = "lsho_",
     .action = "action",
     .description = "Runs a command on the user's machine.",
     .schema = OBJECT("\"command\":" WORDS("The program and its arguments.") ","
                      "\"working_directory\":" TEXT("Where it runs.") ","
                      "\"timeout_ms\":" COUNT("Its limit in milliseconds.") ","
                      "\"env\":{\"type\":\"object\",\"additionalProperties\":{\"type\":\"string\"},"
                      "\"description\":\"Environment variables to set.\"},"
                      "\"user\":" TEXT("The user that runs it."), "\"command\""),
     .members = {{"type", "\"exec\""},
                 {"command", "[]"},
                 {"timeout_ms", "null"},
                 {"working_directory", "null"},
                 {"env", "{}"},
                 {"user", "null"}}},
    {.type = "shell",
     .call = "shell_call",
     .output = "shell_call_output",
     .call_prefix = "sh_",
     .output_prefix = "sho_",
     .action = "action",
     .description = "Runs commands in a shell on the user's machine.",
     .schema = OBJECT("\"commands\":" WORDS("The commands, each a line for the shell.") ","
                      "\"timeout_ms\":" COUNT("Their limit in milliseconds.") ","
                      "\"max_output_length\":" COUNT("The largest number of characters of output."),
                      "\"commands\""),
     .members = {{"commands", "[]"}, {"timeout_ms", "null"}, {"max_output_length", "null"}},
     .after = ",\"environment\":{\"type\":\"local\"}"},
    {.type = "apply_patch",
     .call = "apply_patch_call",
     .output = "apply_patch_call_output",
     .call_prefix = "apc_",
     .output_prefix = "apco_",
     .action = "operation",
     .description = "Creates, changes or deletes a file.",
     .schema = OBJECT(
         "\"type\":{\"type\":\"string\",\"enum\":[\"create_file\",\"update_file\",\"delete_file\"]},"
         "\"path\":" TEXT("The file's path.") ","
         "\"diff\":" TEXT("The change as a unified diff without the lines that name files; of a "
                          "new file its lines, each after a +; empty to delete a file."),
         "\"type\",\"path\",\"diff\""),
     .members = {{"type", NULL}, {"path", "\"\""}, {"diff", "\"\""}}},
};
// clang-format on
enum { N_TOOLS = sizeof tools / sizeof *tools };

const struct client_tool *client_tool_of(enum client_tool_name by, const char *name) {
    for (size_t i = 0; i < N_TOOLS; i++) {
        const char *const names[] = {[CLIENT_TOOL_TYPE] = tools[i].type,
                                     [CLIENT_TOOL_CALL] = tools[i].call,
                                     [CLIENT_TOOL_OUTPUT] = tools[i].output};
        if (strcmp(names[by], name) == 0) return &tools[i];
    }
    return NULL;
}

const struct client_tool *client_tool_offered(const cJSON *tool) {
    const struct client_tool *t = client_tool_of(CLIENT_TOOL_TYPE, item_text(tool, "type"));
    const char *where = item_text(item_member(tool, "environment"), "type");
    return t && strncmp(where, "container", strlen("container")) != 0 ? t : NULL;
}

int client_tool_function(const struct client_tool *t, cJSON **out, err *e) {
    cJSON *schema = json_constant(t->schema);
    cJSON *function = *out = cJSON_CreateObject();
    if (cJSON_AddStringToObject(function, "name", t->type) &&
        cJSON_AddStringToObject(function, "description", t->description) &&
        cJSON_AddItemToObject(function, "parameters", schema))
        return 0;
    cJSON_Delete(schema);
    cJSON_Delete(function);
    *out = NULL;
    return err_no_memory(e);
}

bool client_tool_add_action(const struct client_tool *t, const char *arguments, size_t n,
                            str *out) {
    cJSON *v = NULL;
    bool whole = json_parse(arguments, n, &v, NULL) == 0 && cJSON_IsObject(v);
    bool deletes = whole && item_is(v, "delete_file");
    const char *comma = "";
    if (whole) str_addf(out, ",\"%s\":{", t->action);
    for (const struct client_tool_member *m = t->members; whole && m->name; m++) {
        const cJSON *value = item_member(v, m->name);
        if (deletes && strcmp(m->name, "diff") == 0) continue;
        str_addf(out, "%s\"%s\":", comma, m->name);
        comma = ",";
        if (value)
            json_add_value(out, value);
        else
            str_add(out, m->otherwise ? m->otherwise : "null");
    }
    if (whole) str_addf(out, "}%s", t->after ? t->after : "");
    cJSON_Delete(v);
    return whole;
}

/* Members that say nothing are left out, as the model would; but a patch always has its diff. */
void client_tool_add_arguments(const struct client_tool *t, const cJSON *item, str *out) {
    const cJSON *action = item_member(item, t->action);
    const char *comma = "";
    str_add_char(out, '{');
    for (const struct client_tool_member *m = t->members; m->name; m++) {
        const cJSON *v = item_member(action, m->name);
        bool kind = m->otherwise && strcmp(m->otherwise, "\"exec\"") == 0;
        bool empty = !v || cJSON_IsNull(v) || (cJSON_IsObject(v) && !v->child);
        bool diff = strcmp(m->name, "diff") == 0;
        if (kind || (empty && !diff)) continue;
        str_addf(out, "%s\"%s\":", comma, m->name);
        comma = ",";
        if (empty)
            str_add(out, "\"\"");
        else
            json_add_value(out, v);
    }
    str_add_char(out, '}');
}

/* One command's output, and how it ended. */
static void add_command_output(const cJSON *v, str *out) {
    const cJSON *outcome = item_member(v, "outcome"), *code = item_member(outcome, "exit_code");
    const char *streams[] = {item_text(v, "stdout"), item_text(v, "stderr")};
    for (int i = 0; i < 2; i++) {
        size_t n = strlen(streams[i]);
        str_add(out, streams[i]);
        if (n && streams[i][n - 1] != '\n') str_add_char(out, '\n');
    }
    if (item_is(outcome, "timeout")) str_add(out, "(timed out)\n");
    if (cJSON_IsNumber(code) && code->valueint) str_addf(out, "(exit code %d)\n", code->valueint);
}

void client_tool_add_result(const cJSON *item, str *out) {
    const cJSON *output = item_member(item, "output");
    if (item_is(item, "apply_patch_call_output"))
        str_addf(out, "%s%s", item_text(item, "status"), cJSON_IsString(output) ? ": " : "");
    if (cJSON_IsString(output)) str_add(out, output->valuestring);
    for (const cJSON *v = cJSON_IsArray(output) ? output->child : NULL; v; v = v->next)
        add_command_output(v, out);
}
