/* line.h - one line of a batch's input: {"custom_id", "method", "url", "body"}. Pure; any thread.
 */
#ifndef INFERD_API_BATCH_LINE_H
#define INFERD_API_BATCH_LINE_H

#include <stdbool.h>
#include <stddef.h>

enum { BATCH_CUSTOM_ID_BYTES = 513 };

struct batch_line {
    char custom_id[BATCH_CUSTOM_ID_BYTES];
    char model[128];  /* of the body; "": none */
    const char *body; /* (n_body) in the text: the body of the request, unchanged */
    size_t n_body;
};

/* What is wrong with a line, as in the list of errors of OpenAI's object. Static texts. */
struct batch_fault {
    const char *code, *message;
    const char *param; /* NULL: none */
};

/* Has OpenAI's object that endpoint? */
bool batch_endpoint_is_known(const char *endpoint);
#define BATCH_ENDPOINTS "/v1/chat/completions|/v1/completions|/v1/embeddings|/v1/responses"

/* Reads text[0..n), a line of a batch for that endpoint. false: fault says why. */
bool batch_line_read(const char *text, size_t n, const char *endpoint, struct batch_line *out,
                     struct batch_fault *fault);
/* Is it only white space? */
bool batch_line_is_blank(const char *text, size_t n);

#endif
