/* chat_int.h - private to core/chat: the template with what its probes found, and renders with a
 * bound on steps of their own. */
#ifndef INFERD_CHAT_INT_H
#define INFERD_CHAT_INT_H

#include "core/base/err.h"
#include "core/base/mem.h"
#include "core/chat/chat.h"
#include "core/chat/jinja/jinja.h"
#include "core/chat/syntax.h"

/* Roles for which a template takes or refuses content that is an array of parts. */
enum chat_role { ROLE_SYSTEM, ROLE_USER, ROLE_ASSISTANT, ROLE_TOOL, ROLE_COUNT };

/* The changes that messages need before the template takes them (probe.c). All zero: none. */
struct chat_traits {
    bool arguments_to_object, arguments_to_text;
    bool null_to_empty; /* content beside tool calls */
    bool empty_to_null;
    bool absent_to_null, absent_to_empty;
    bool join_parts[ROLE_COUNT], wrap_text[ROLE_COUNT];
    bool refuses_developer, copies_developer;
    bool refuses_system;      /* it takes no system message at all, */
    bool refuses_late_system; /* or only as the first message */
    bool tool_needs_name;
    bool hides_name[ROLE_COUNT]; /* a message's name does not reach the prompt */
    bool ids_of_nine;            /* a call's id has nine letters and digits */
};

struct chat_template {
    jinja_template *jinja;
    char *source; /* as given to chat_template_new */
    char *bos, *eos;
    struct chat_traits traits;
    struct chat_syntax syntax;
    struct chat_template *tool_variant; /* NULL: none */
};

/* As chat_render, with at most max_steps steps. */
int chat_render_within(const chat_template *t, const struct chat_input *in, size_t max_bytes,
                       uint64_t max_steps, struct chat_output *out, err *e);
/* As chat_render_within, then with the leniency that chat_prompt describes. */
int chat_render_lenient(const chat_template *t, const struct chat_input *in, size_t max_bytes,
                        uint64_t max_steps, struct chat_output *out, err *e);
/* As chat_prompt, with at most max_steps steps. */
int chat_prompt_within(const chat_template *t, const struct chat_input *in, size_t max_bytes,
                       uint64_t max_steps, struct chat_output *out, err *e);

static inline cJSON *chat_member(const cJSON *object, const char *name) {
    return cJSON_GetObjectItemCaseSensitive(object, name); /* NULL: not there */
}

/* White space, and characters of a function's name, in ASCII. */
static inline bool chat_is_space(char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}
static inline bool chat_is_name_char(char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_' ||
           c == '-';
}

#endif
