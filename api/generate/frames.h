/* frames.h - server-sent events, for the writers of endpoints. */
#ifndef INFERD_API_GENERATE_FRAMES_H
#define INFERD_API_GENERATE_FRAMES_H

#include "api/http/error.h"
#include "core/base/str.h"

#include <stddef.h>

struct gen;

/* Opens an event with the next id; name NULL: without an event name. */
void gen_frame_open(struct gen *g, const char *name, str *out);
void gen_frame_close(str *out);
/* ,"obfuscation":"..." if the client asked for it: random characters that hide the length of a text
 * of n bytes. */
void gen_add_padding(const struct gen *g, size_t n, str *out);
/* The end of an OpenAI stream that failed; data: [DONE]; a comment as keep-alive. */
void gen_frame_error(struct gen *g, const struct api_error *error, str *out);
void gen_frame_done(str *out);
void gen_frame_comment(struct gen *g, str *out);

#endif
