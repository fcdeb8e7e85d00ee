/* sse.c - server-sent events (WHATWG HTML, "Server-sent events"): lines "id:", "event:" and
 * "data:", closed by an empty line; a line that begins with a colon is a comment, which clients
 * ignore. JSON contains no raw newline, so one data line is enough. HTTP threads. */
#include "api/generate/frames.h"
#include "api/generate/gen.h"
#include "api/http/id.h"

#include <inttypes.h>

void gen_frame_open(struct gen *g, const char *event, str *out) {
    str_addf(out, "id: %s:%" PRIu64 "\n", g->id, ++g->n_frames);
    if (event) str_addf(out, "event: %s\n", event);
    str_add(out, "data: ");
}

void gen_frame_close(str *out) {
    str_add(out, "\n\n");
}

void gen_frame_error(struct gen *g, const struct api_error *error, str *out) {
    gen_frame_open(g, NULL, out);
    error_write(out, error);
    gen_frame_close(out);
}

void gen_frame_done(str *out) {
    str_add(out, "data: [DONE]\n\n");
}

void gen_frame_comment(struct gen *g, str *out) {
    (void)g;
    str_add(out, ": keep-alive\n\n");
}

void gen_add_padding(const struct gen *g, size_t n, str *out) {
    enum { STEP = 24 };
    char digits[48];
    if (!g->obfuscate) return;
    id_new(digits, "");
    str_addf(out, ",\"obfuscation\":\"%.*s\"", (int)(STEP - n % STEP), digits);
}
