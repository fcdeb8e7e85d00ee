/* chat.h - messages -> prompt text, by the model's own Jinja template.
 *
 * Semantics: Jinja2 as Hugging Face transformers runs it (ImmutableSandboxedEnvironment,
 * trim_blocks, lstrip_blocks, loop controls, `generation` blocks pass through, tojson with
 * separators ", " and ": " and no ASCII escaping, raise_exception, strftime_now). Sandboxed:
 * bounded steps, output bytes and recursion; no file or environment access.
 *
 * THREAD SAFETY: a compiled template is immutable; chat_render from any thread. Compiling and
 * rendering need less than 256 KiB of stack. */
#ifndef INFERD_CHAT_H
#define INFERD_CHAT_H

#include "core/base/work.h"
#include "core/tokenizer/tokenizer.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct chat_template chat_template;

/* Compiles source (NUL-terminated). bos/eos: the texts of those tokens, "" if none.
 * ERR_FORMAT with the line of a syntax error. */
int chat_template_new(const char *source, const char *bos, const char *eos, chat_template **out,
                      err *e);
void chat_template_free(chat_template *t);

/* Finds out, by rendering a few small conversations, which shapes of messages the template takes:
 * what chat_prompt() has to change. Bounded; once, before threads share t. Without it chat_prompt()
 * changes nothing. ERR_NOMEM. */
int chat_template_probe(chat_template *t, err *e);

/* variant (owned by t from now on) is used instead of t where tools are given: a model's "tool_use"
 * template. Before threads share t. */
void chat_template_set_tool_variant(chat_template *t, chat_template *variant);

/* Does the template look at a variable of this name? */
bool chat_template_uses(const chat_template *t, const char *name);

/* Formats for files that carry no template ("chatml", "llama3", ...). Source of the one with this
 * name, NULL: none; the i-th name, NULL behind the last. */
const char *chat_builtin_source(const char *name);
const char *chat_builtin_name(int i);
/* Name of the format that the vocabulary's control tokens tell, or NULL. */
const char *chat_builtin_for(const tokenizer *tok);

struct chat_input {
    const cJSON *messages;  /* array of {role, content, ...}, borrowed */
    const cJSON *tools;     /* array or NULL (undefined/none) */
    const cJSON *documents; /* array or NULL */
    const cJSON *extra;     /* object: further top-level variables, or NULL */
    const char *bos, *eos;  /* instead of the template's own texts of those tokens; NULL: those */
    bool add_generation_prompt;
    bool continue_final_message; /* cut right after the last message's content, to go on from it */
    bool null_is_undefined;   /* tools, documents NULL: undefined; else none, as in transformers */
    bool allow_mutation;      /* list.append and the like work; else refused, as in transformers */
    bool developer_as_system; /* chat_prompt: also where the template just copies the role's name */
    int64_t now;              /* seconds since 1970 for strftime_now (UTC) */
    struct work *work;        /* borrowed: what the render may cost, a unit for each step; NULL: the
                                 bound on steps alone */
};

/* cJSON drops whether a number was written 1 or 1.0, which templates show. Notes the source text of
 * every number below root in its valuestring (freed by cJSON_Delete, ignored by cJSON's printer).
 * text: the JSON document that root was parsed from. ERR_FORMAT if they do not fit, ERR_NOMEM. */
int chat_json_keep_numbers(cJSON *root, const char *text, err *e);

/* Parses text[0..n), with a NUL at n, as one JSON value and keeps its numbers. ERR_FORMAT with the
 * byte, ERR_UNSUPPORTED (U+0000 in a string), ERR_NOMEM. The caller frees with cJSON_Delete. */
int chat_json_parse(const char *text, size_t n, cJSON **out, err *e);

/* A span of the rendered text. trusted: written by the template itself (its literal text, bos,
 * eos); not trusted: came out of the messages or other input. Control tokens may be parsed in
 * trusted spans only. */
struct chat_span {
    size_t start, end; /* bytes in text */
    bool trusted;
};

/* What stopped a render: the class that the error has in Jinja2, or one of our bounds. */
enum chat_fault {
    CHAT_FAULT_NONE,
    CHAT_FAULT_TEMPLATE, /* the template's own raise_exception */
    CHAT_FAULT_TYPE,
    CHAT_FAULT_UNDEFINED,
    CHAT_FAULT_SECURITY, /* hidden by the immutable sandbox */
    CHAT_FAULT_RUNTIME,
    CHAT_FAULT_VALUE,
    CHAT_FAULT_KEY,
    CHAT_FAULT_INDEX,
    CHAT_FAULT_ZERO,
    CHAT_FAULT_OVERFLOW,
    CHAT_FAULT_LIMIT /* steps, memory, nesting, length */
};
const char *chat_fault_name(enum chat_fault fault); /* "TemplateError", "TypeError", ... */

struct chat_failure {
    enum chat_fault fault;
    int line;        /* of the template; 0: none */
    char text[4096]; /* without the line; a template's own message, cut there */
};

struct chat_output {
    struct chat_failure failure; /* of a render that failed */
    char *text;                  /* NUL-terminated, owned by the caller (chat_output_fini) */
    size_t n;
    struct chat_span *spans; /* cover text in order without gaps */
    size_t n_spans;
};

/* Renders. ERR_INVALID with the template's own message (raise_exception) or the evaluation error;
 * on failure *out has no text but tells the failure. Output is bounded by max_bytes (ERR_TOO_LONG).
 * ERR_WORK, ERR_DEADLINE, ERR_CANCELLED: in->work refused.
 */
int chat_render(const chat_template *t, const struct chat_input *in, size_t max_bytes,
                struct chat_output *out, err *e);
void chat_output_fini(struct chat_output *out);

/* Renders what clients of the OpenAI API send. First in->messages are brought into a shape that the
 * probed template takes, and only where it does not take the one that they have:
 *   - content null or absent beside tool calls: null or "", where the template fails on it, loses
 *     the call or prints "None"; the other way round "" becomes null where that loses the call;
 *   - arguments of a call: a JSON text becomes the object, or an object its JSON text;
 *   - an array of text parts: the texts, newlines between; or a text: an array of one part;
 *   - role developer: system, where the template refuses or drops it;
 *   - a tool's result without a name: the name of the call that it answers;
 *   - a call's id: nine letters and digits made of it, the same for its result.
 * Then it renders as transformers does. Only where that fails, tools and documents that are NULL
 * are left undefined, and mutation is allowed to a template that failed for the lack of it; when
 * that fails too, the first failure is reported. Results as chat_render's; ERR_UNSUPPORTED: a part
 * that is no text for a template that takes no parts. null_is_undefined and allow_mutation are not
 * read. */
int chat_prompt(const chat_template *t, const struct chat_input *in, size_t max_bytes,
                struct chat_output *out, err *e);

#endif
