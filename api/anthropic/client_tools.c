/* client_tools.c - the tools that Anthropic defines and the client runs: a request names their type
 * only, because its models know their input. Other models get them as functions with the
 * documented input. Sources: Anthropic's pages on the bash, text editor, memory and computer use
 * tools. Pure; pool threads. */
#include "api/anthropic/messages.h"
#include "core/text/json.h"

#include <stdio.h>
#include <string.h>

/* clang-format would break the texts at every word. */
// clang-format off
#define TEXT(description)    "{\"type\":\"string\",\"description\":\"" description "\"}"
#define COUNT(description)   "{\"type\":\"integer\",\"description\":\"" description "\"}"
#define PAIR(n, description)                                                                       \
    "{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"minItems\":" n ",\"maxItems\":" n      \
    ",\"description\":\"" description "\"}"
#define OBJECT(members, required)                                                                  \
    "{\"type\":\"object\",\"properties\":{" members "},\"required\":[" required                    \
    "],\"additionalProperties\":false}"
#define COMMANDS(words)                                                                            \
    "\"command\":{\"type\":\"string\",\"enum\":[" words "],\"description\":\"What to do.\"},"

#define FILE_MEMBERS                                                                               \
    "\"path\":" TEXT("The absolute path of the file or folder.") ",\"file_text\":" TEXT(           \
        "create: the file's content.") ",\"old_str\":" TEXT("str_replace: the text to replace, "   \
                                                            "which must occur exactly "            \
                                                            "once.") ","                           \
    "\"insert_line\":" COUNT("insert: the line after which the text is inserted; 0: at the "       \
                             "beginning.") ",\"view_range\":"                                      \
    PAIR("2", "view: the first and the last line, from 1; -1: the end of the file.")
#define EDITOR(words, new_text)                                                                    \
    OBJECT(COMMANDS(words) FILE_MEMBERS new_text, "\"command\",\"path\"")
#define NEW_STR                                                                                    \
    ",\"new_str\":" TEXT("str_replace: the text instead of it; insert: the text to insert.")
#define INSERT_TEXT                                                                                \
    ",\"new_str\":" TEXT("str_replace: the text instead of it.") ",\"insert_text\":" TEXT(         \
        "insert: the text to insert.")

#define FIRST_ACTIONS                                                                              \
    "\"key\",\"type\",\"mouse_move\",\"left_click\",\"left_click_drag\",\"right_click\","           \
    "\"middle_click\",\"double_click\",\"screenshot\",\"cursor_position\""
#define MORE_ACTIONS                                                                               \
    ",\"left_mouse_down\",\"left_mouse_up\",\"scroll\",\"hold_key\",\"wait\",\"triple_click\""
#define FIRST_MEMBERS(words)                                                                       \
    "\"action\":{\"type\":\"string\",\"enum\":[" words "],\"description\":\"What to do.\"},"       \
    "\"coordinate\":" PAIR("2", "x and y in pixels, from the left and from the top.") ","          \
    "\"text\":" TEXT("type: the text; key and hold_key: the key, as xdotool names it.")
#define MORE_MEMBERS                                                                               \
    ",\"start_coordinate\":" PAIR("2", "left_click_drag: where it begins.") ","                    \
    "\"scroll_direction\":{\"type\":\"string\",\"enum\":[\"up\",\"down\",\"left\",\"right\"]},"    \
    "\"scroll_amount\":" COUNT("scroll: the number of clicks of the wheel.") ",\"duration\":"      \
    "{\"type\":\"number\",\"description\":\"hold_key and wait: seconds.\"}"
#define REGION ",\"region\":" PAIR("4", "zoom: x and y of two corners.")

static const char shell[] = "Runs a command in a shell that keeps its state between calls.";
static const char editor[] = "Views, creates and edits text files.";
static const char screen[] = "Uses the mouse and the keyboard of a screen, and takes screenshots.";

/* Of one family the newest first; a version that is not known has the newest's input. */
static const struct client_tool {
    const char *family, *since, *description, *schema;
} tools[] = {
    {"bash_", "", shell,
     OBJECT("\"command\":" TEXT("The command to run; required unless the shell is restarted.")
            ",\"restart\":{\"type\":\"boolean\",\"description\":\"true: restarts the shell.\"}", "")},
    {"text_editor_", "20250728", editor,
     EDITOR("\"view\",\"create\",\"str_replace\",\"insert\"", INSERT_TEXT)},
    {"text_editor_", "20250429", editor,
     EDITOR("\"view\",\"create\",\"str_replace\",\"insert\"", NEW_STR)},
    {"text_editor_", "", editor,
     EDITOR("\"view\",\"create\",\"str_replace\",\"insert\",\"undo_edit\"", NEW_STR)},
    {"memory_", "", "Reads and writes the files in /memories, which outlast the conversation.",
     OBJECT(COMMANDS("\"view\",\"create\",\"str_replace\",\"insert\",\"delete\",\"rename\"")
                FILE_MEMBERS INSERT_TEXT
            ",\"old_path\":" TEXT("rename: the path as it is.") ",\"new_path\":" TEXT(
                "rename: the path as it will be."),
            "\"command\"")},
    {"computer_", "20251124", screen,
     OBJECT(FIRST_MEMBERS(FIRST_ACTIONS MORE_ACTIONS ",\"zoom\"") MORE_MEMBERS REGION,
            "\"action\"")},
    {"computer_", "20250124", screen,
     OBJECT(FIRST_MEMBERS(FIRST_ACTIONS MORE_ACTIONS) MORE_MEMBERS, "\"action\"")},
    {"computer_", "", screen, OBJECT(FIRST_MEMBERS(FIRST_ACTIONS), "\"action\"")},
};
// clang-format on

static const struct client_tool *find_tool(const char *type) {
    for (size_t i = 0; type && i < sizeof tools / sizeof *tools; i++) {
        size_t n = strlen(tools[i].family);
        if (strncmp(type, tools[i].family, n) == 0 && strcmp(type + n, tools[i].since) >= 0)
            return &tools[i];
    }
    return NULL;
}

bool messages_client_runs(const char *type) {
    return find_tool(type) != NULL;
}

/* A tool offers zooming only if the request enables it. */
static void drop_zoom(cJSON *schema) {
    cJSON *members = cJSON_GetObjectItemCaseSensitive(schema, "properties");
    cJSON *action = cJSON_GetObjectItemCaseSensitive(members, "action");
    cJSON *words = cJSON_GetObjectItemCaseSensitive(action, "enum");
    if (!cJSON_HasObjectItem(members, "region")) return;
    cJSON_DeleteItemFromObjectCaseSensitive(members, "region");
    cJSON_DeleteItemFromArray(words, cJSON_GetArraySize(words) - 1);
}

int messages_client_function(const struct messages_client_tool *t, cJSON **out, err *e) {
    const struct client_tool *of = find_tool(t->type);
    char size[80] = "";
    str text;
    cJSON *schema = json_constant(of->schema);
    cJSON *function = *out = cJSON_CreateObject();
    if (t->width > 0 && t->height > 0)
        snprintf(size, sizeof size, " The screen has %lld x %lld pixels.", (long long)t->width,
                 (long long)t->height);
    if (schema && !t->zooms) drop_zoom(schema);
    str_init(&text, 1024);
    str_addf(&text, "%s%s", of->description, size);
    bool ok = !text.failed && cJSON_AddStringToObject(function, "name", t->name) &&
              cJSON_AddStringToObject(function, "description", str_cstr(&text));
    str_fini(&text);
    if (ok && cJSON_AddItemToObject(function, "parameters", schema)) return 0;
    cJSON_Delete(schema);
    cJSON_Delete(function);
    *out = NULL;
    return err_no_memory(e);
}
