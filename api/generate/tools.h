/* tools.h - the tools of a chat request. Pool threads. */
#ifndef INFERD_API_GENERATE_TOOLS_H
#define INFERD_API_GENERATE_TOOLS_H

#include "api/generate/chat_request.h"
#include "api/generate/fields.h"

enum { CHAT_MAX_TOOLS = 1024 };

extern const struct json_table tool_table, tool_choice_table;
/* Sets t->choice if word is "auto", "none", "required" or "any". */
bool chat_tools_choose(const char *word, struct chat_tools *t);
/* Appends a function, which is taken also on failure (NULL: no memory), as templates see it. */
int chat_tools_add(struct chat_tools *t, cJSON *function, err *e);
/* Fills q->tools from tools, tool_choice and parallel_tool_calls. */
int chat_tools_read(const struct gen_fields *f, struct chat_request *q, err *e);
/* The rules for tools of every protocol: valid names, each once, the chosen one exists. Errors name
 * q->param_tools. */
int chat_tools_check(const struct chat_request *q, err *e);
/* Writes the names of the functions that may be called, borrowed, to names (CHAT_MAX_TOOLS);
 * returns their number. */
size_t chat_tools_names(const struct chat_request *q, const char **names);
/* May the function be called? */
bool chat_tools_allow(const struct chat_tools *t, const char *name);
/* A copy of the list for templates, without members that concern the server only. The caller
 * deletes it. */
int chat_tools_shown(const struct chat_tools *t, cJSON **out, err *e);

#endif
