/* tool_form.h - tools that a client knows in another form than models do. Models know functions
 * with JSON arguments. A function of a namespace ("find" of "crm") is the function crm__find; a
 * custom tool, whose input is free text, is a function with one string argument, "input". A tool
 * that a protocol defines and its client runs (`kind`) is a function with the input that the
 * protocol documents.
 *
 * THREAD SAFETY: pure functions, any thread. */
#ifndef INFERD_API_GENERATE_TOOL_FORM_H
#define INFERD_API_GENERATE_TOOL_FORM_H

#include "core/base/err.h"
#include "core/base/str.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdint.h>

struct tool_form {
    const char *name;
    const char *space; /* its namespace; NULL: none */
    bool custom;
    const char *kind; /* of a tool that the protocol defines; NULL: it is none */
};

/* Appends the function's name; space NULL or "": name itself. */
void tool_form_add_name(const char *space, const char *name, str *out);
/* Notes the form of a function in *forms, an object that is created for the first one; the caller
 * deletes it. */
int tool_form_note(cJSON **forms, const char *function, const struct tool_form *form, err *e);
/* The form of a function, borrowed from forms and function; one that was not noted is a plain
 * function. forms may be NULL. */
struct tool_form tool_form_of(const cJSON *forms, const char *function);

/* A custom tool's description. syntax NULL: any text. */
struct custom_tool {
    const char *name, *description, *syntax, *definition;
};
/* {"name", "description", "parameters"} of its function, which the caller deletes. A regular
 * expression becomes the input's pattern; a grammar in another syntax is only described. */
int tool_form_function(const struct custom_tool *t, const char *function, cJSON **out, err *e);
/* Appends the function's arguments, JSON, for an input. */
void tool_form_add_arguments(const char *input, str *out);

/* Takes the input out of such arguments as they are generated. Zeroed at the beginning. */
struct tool_input {
    enum { INPUT_BEFORE, INPUT_VALUE, INPUT_TEXT, INPUT_ESCAPE, INPUT_HEX, INPUT_END } state;
    uint32_t hex, n_hex;
    uint32_t high; /* a high surrogate that waits for the low one; 0: none */
};
/* Appends the characters of the input that json[0..n), the next piece of the arguments, completes.
 */
void tool_input_take(struct tool_input *in, const char *json, size_t n, str *out);

#endif
