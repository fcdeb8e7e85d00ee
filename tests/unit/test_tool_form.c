/* test_tool_form.c - names of tools in namespaces, and the input of custom tools extracted from
 * JSON arguments, divided at every position. */
#include "api/generate/tool_form.h"
#include "tests/unit/check.h"

#include <string.h>

static void tools_in_namespaces_have_names(void) {
    static const struct {
        const char *space, *name, *function;
    } rows[] = {{NULL, "find", "find"},
                {"", "find", "find"},
                {"crm", "find", "crm__find"},
                {"mcp__files__", "read", "mcp__files__read"},
                {"_", "x", "___x"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        str out;
        str_init(&out, 64);
        tool_form_add_name(rows[i].space, rows[i].name, &out);
        CHECK_MSG(strcmp(str_cstr(&out), rows[i].function) == 0, "%s", str_cstr(&out));
        str_fini(&out);
    }
    cJSON *forms = NULL;
    err e = {0};
    const struct tool_form form = {.name = "find", .space = "crm", .custom = true};
    CHECK(tool_form_of(forms, "find").name && !tool_form_of(forms, "find").custom);
    CHECK(tool_form_note(&forms, "crm__find", &form, &e) == 0);
    const struct tool_form found = tool_form_of(forms, "crm__find");
    CHECK(strcmp(found.name, "find") == 0 && strcmp(found.space, "crm") == 0 && found.custom);
    CHECK(strcmp(tool_form_of(forms, "find").name, "find") == 0 &&
          !tool_form_of(forms, "find").space);
    cJSON_Delete(forms);
}

static void check_input(const char *json, const char *text, size_t n) {
    size_t len = strlen(json);
    for (size_t cut = 0; cut <= len; cut++) {
        struct tool_input in = {0};
        str out;
        str_init(&out, 256);
        tool_input_take(&in, json, cut, &out);
        tool_input_take(&in, json + cut, len - cut, &out);
        CHECK_MSG(out.len == n && memcmp(str_cstr(&out), text, n) == 0, "%s cut at %d: %s", json,
                  (int)cut, str_cstr(&out));
        str_fini(&out);
    }
}
#define INPUT(json, text) check_input(json, text, sizeof text - 1)

static void inputs_are_taken_out_of_arguments(void) {
    INPUT("{\"input\": \"a b\"}", "a b");
    INPUT("{ \"input\" : \"\"}", "");
    INPUT("{\"input\":\"\\\"\\\\\\/\\n\\r\\t\\b\\f:{}\"}", "\"\\/\n\r\t\b\f:{}");
    INPUT("{\"input\":\"\\u00e9\\u20AC\xc3\xa9\"}", "\xc3\xa9\xe2\x82\xac\xc3\xa9");
    INPUT("{\"input\":\"\\ud83d\\ude00x\"}", "\xf0\x9f\x98\x80x");
    INPUT("{\"input\":\"a\\u0000b\"}", "a\0b");
    /* surrogates without a partner */
    INPUT("{\"input\":\"\\ud83dx\\ude00\"}", "\xef\xbf\xbdx\xef\xbf\xbd");
    INPUT("{\"input\":\"\\ud83d\\ud83d\\ude00\"}", "\xef\xbf\xbd\xf0\x9f\x98\x80");
    INPUT("{\"input\":\"\\ud83d\"}", "\xef\xbf\xbd");
    /* cut off */
    INPUT("{\"input\":\"abc\\", "abc");
    INPUT("{\"inp", "");
}

static void inputs_become_arguments(void) {
    str out;
    str_init(&out, 64);
    tool_form_add_arguments("a\"\n", &out);
    CHECK(strcmp(str_cstr(&out), "{\"input\":\"a\\\"\\n\"}") == 0);
    str_fini(&out);
}

int main(void) {
    RUN(tools_in_namespaces_have_names);
    RUN(inputs_are_taken_out_of_arguments);
    RUN(inputs_become_arguments);
    return check_done();
}
