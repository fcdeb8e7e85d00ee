/* client_tools.h - local_shell, shell and apply_patch: see client_tools.c. Private to
 * api/responses. */
#ifndef INFERD_API_RESPONSES_CLIENT_TOOLS_H
#define INFERD_API_RESPONSES_CLIENT_TOOLS_H

#include "core/base/err.h"
#include "core/base/str.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>

struct client_tool {
    const char *type;                        /* of the tool; the name of its function, too */
    const char *call, *output;               /* types of its items */
    const char *call_prefix, *output_prefix; /* of their ids */
    const char *action;                      /* the member of a call that says what to do */
    const char *description, *schema;
    struct client_tool_member {
        const char *name, *otherwise; /* what a call has if the arguments do not say; NULL: null */
    } members[7];                     /* of the action; ends with a NULL name */
    const char *after;                /* members of a call after its action; NULL: none */
};

/* The tool with that type, or with items of that type; NULL: none. */
enum client_tool_name { CLIENT_TOOL_TYPE, CLIENT_TOOL_CALL, CLIENT_TOOL_OUTPUT };
const struct client_tool *client_tool_of(enum client_tool_name by, const char *name);
/* The same of a member of a request's tools; NULL also for a shell in a container, which a server
 * would have to run. */
const struct client_tool *client_tool_offered(const cJSON *tool);

/* {"name", "description", "parameters"} of its function, which the caller deletes. */
int client_tool_function(const struct client_tool *t, cJSON **out, err *e);
/* Appends ,"action":{...} of a call, from the function's arguments[0..n). false: these are not
 * whole, and nothing is appended. */
bool client_tool_add_action(const struct client_tool *t, const char *arguments, size_t n, str *out);
/* Appends the arguments, JSON, of a call that is echoed. */
void client_tool_add_arguments(const struct client_tool *t, const cJSON *item, str *out);
/* Appends what the model reads of an output item. */
void client_tool_add_result(const cJSON *item, str *out);

#endif
