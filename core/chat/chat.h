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

#include "core/base/err.h"

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

struct chat_input {
    const cJSON *messages;  /* array of {role, content, ...}, borrowed */
    const cJSON *tools;     /* array or NULL (undefined/none) */
    const cJSON *documents; /* array or NULL */
    const cJSON *extra;     /* object: further top-level variables, or NULL */
    bool add_generation_prompt;
    bool continue_final_message; /* cut right after the last message's content, to go on from it */
    bool
        null_is_undefined; /* tools, documents NULL: undefined; else none, as transformers has it */
    bool allow_mutation;   /* list.append and the like work; else refused, as in transformers */
    int64_t now;           /* seconds since 1970 for strftime_now (UTC) */
};

/* cJSON drops whether a number was written 1 or 1.0, which templates show. Notes the source text of
 * every number below root in its valuestring (freed by cJSON_Delete, ignored by cJSON's printer).
 * text: the JSON document that root was parsed from. ERR_FORMAT if they do not fit, ERR_NOMEM. */
int chat_json_keep_numbers(cJSON *root, const char *text, err *e);

/* A span of the rendered text. trusted: written by the template itself (its literal text, bos,
 * eos); not trusted: came out of the messages or other input. Control tokens may be parsed in
 * trusted spans only. */
struct chat_span {
    size_t start, end; /* bytes in text */
    bool trusted;
};

struct chat_output {
    char *text; /* NUL-terminated, owned by the caller (chat_output_fini) */
    size_t n;
    struct chat_span *spans; /* cover text in order without gaps */
    size_t n_spans;
};

/* Renders. ERR_INVALID with the template's own message (raise_exception) or the evaluation error;
 * on failure *out is empty. Output is bounded by max_bytes (ERR_TOO_LONG). */
int chat_render(const chat_template *t, const struct chat_input *in, size_t max_bytes,
                struct chat_output *out, err *e);
void chat_output_fini(struct chat_output *out);

#endif
