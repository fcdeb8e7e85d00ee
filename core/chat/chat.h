/* chat.h - messages -> prompt text, by the model's own Jinja template.
 *
 * Templates run as Hugging Face transformers runs them, sandboxed (jinja/jinja.h): bounded steps,
 * output bytes and recursion; no file or environment access.
 *
 * THREAD SAFETY: a compiled template is immutable; chat_render from any thread. Compiling and
 * rendering need less than 256 KiB of stack. */
#ifndef INFERD_CHAT_H
#define INFERD_CHAT_H

#include "core/base/work.h"
#include "core/chat/jinja/fault.h"
#include "core/tokenizer/tokenizer.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct chat_template chat_template;

/* Compiles source (NUL-terminated). bos/eos: the texts of those tokens, "" if none.
 * ERR_FORMAT with the line of a syntax error, ERR_NOMEM. */
int chat_template_new(const char *source, const char *bos, const char *eos, chat_template **out,
                      err *e);
void chat_template_free(chat_template *t);
/* As given to chat_template_new; lives as long as t. */
const char *chat_template_source(const chat_template *t);

/* Renders a few small conversations to find out which shapes of messages the template takes, and
 * thus what chat_prompt() has to change. Bounded; call once, before threads share t. Without it
 * chat_prompt() changes nothing. ERR_NOMEM. */
int chat_template_probe(chat_template *t, err *e);

/* Uses variant (owned by t from now on) instead of t for requests with tools: a model's "tool_use"
 * template. Call before threads share t. */
void chat_template_set_tool_variant(chat_template *t, chat_template *variant);

/* Does the template mention a variable of this name? */
bool chat_template_uses(const chat_template *t, const char *name);

/* Does a message's `name` reach the prompt? role: its role; an unknown one counts as "user". Before
 * chat_template_probe: true. */
bool chat_template_shows_name(const chat_template *t, const char *role);

/* Formats for files that carry no template ("chatml", "llama3", ...): the source of the one with
 * this name, NULL: none; the i-th name, NULL after the last. */
const char *chat_builtin_source(const char *name);
const char *chat_builtin_name(int i);
/* Name of the format that the vocabulary's control tokens belong to, or NULL. */
const char *chat_builtin_for(const tokenizer *tok);

struct chat_input {
    const cJSON *messages;  /* array of {role, content, ...}, borrowed */
    const cJSON *tools;     /* array or NULL (undefined/none) */
    const cJSON *documents; /* array or NULL */
    const cJSON *extra;     /* object: further top-level variables, or NULL */
    const char *bos, *eos;  /* override the template's own texts of those tokens; NULL: keep them */
    bool add_generation_prompt;
    bool continue_final_message; /* cut right after the last message's content, to continue it */
    bool null_is_undefined;   /* tools, documents NULL: undefined; else none, as in transformers */
    bool allow_mutation;      /* list.append and the like work; else refused, as in transformers */
    bool developer_as_system; /* chat_prompt: also if the template just copies the role's name */
    int64_t now;              /* seconds since 1970 for strftime_now (UTC) */
    struct work *work;        /* borrowed: budget of the render, one unit per step; NULL: only the
                                 bound on steps */
};

/* Parses text[0..n) as one JSON value. Templates print whether a number was written 1 or 1.0: each
 * number keeps its text in valuestring. ERR_FORMAT with the byte, ERR_UNSUPPORTED (U+0000 in a
 * string), ERR_NOMEM. The caller frees with cJSON_Delete. */
int chat_json_parse(const char *text, size_t n, cJSON **out, err *e);

/* A span of the rendered text. trusted: written by the template itself (its literal text, bos,
 * eos); not trusted: came from the messages or other input. Control tokens may be parsed in trusted
 * spans only. */
struct chat_span {
    size_t start, end; /* bytes in text */
    bool trusted;
};

struct chat_output {
    struct jinja_failure failure; /* of a render that failed */
    char *text;                   /* NUL-terminated, owned by the caller (chat_output_fini) */
    size_t n;
    struct chat_span *spans; /* cover text in order without gaps */
    size_t n_spans;
};

/* Renders. ERR_INVALID with the template's own message (raise_exception) or the evaluation error;
 * on failure *out has no text but describes the failure. Output is bounded by max_bytes
 * (ERR_TOO_LONG). ERR_WORK, ERR_DEADLINE, ERR_CANCELLED: in->work refused. */
int chat_render(const chat_template *t, const struct chat_input *in, size_t max_bytes,
                struct chat_output *out, err *e);
void chat_output_fini(struct chat_output *out);

/* Renders what clients of the OpenAI API send. in->messages are first brought into a shape that the
 * probed template takes, but only if it does not take the one they have:
 *   - content null or absent beside tool calls: becomes null or "", if the template fails on it,
 *     loses the call or prints "None"; conversely "" becomes null if it loses the call;
 *   - arguments of a call: a JSON text becomes the object, or an object its JSON text;
 *   - an array of text parts becomes the texts joined by newlines, or a text an array of one part;
 *   - role developer becomes system, if the template refuses or drops it;
 *   - a system message that the template refuses or drops where it is becomes text of the system
 *     message before it, or of the user's turn after or before it;
 *   - a tool's result without a name gets the name of the call that it answers;
 *   - a call's id becomes nine letters and digits derived from it, likewise in its result.
 * The result is rendered as transformers does. If that fails, it is rendered again with NULL tools
 * and documents left undefined, and with mutation allowed if the sandbox had refused it; if that
 * fails too, the first failure is reported. Results as chat_render's; ERR_UNSUPPORTED: a part that
 * is not text, for a template that takes no parts. null_is_undefined and allow_mutation are not
 * read. */
int chat_prompt(const chat_template *t, const struct chat_input *in, size_t max_bytes,
                struct chat_output *out, err *e);

#endif
