/* prefix.c - see prefix.h. Owns nothing. */
#include "api/generate/prefix.h"

#include "api/generate/api_state.h"
#include "api/http/request.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { BLOCK = 16 }; /* whatever block-tokens is: replicas may differ in it */

/* FNV-1a over the ids as little-endian words: cheap, and the same on every machine. What it names
 * is no secret to whoever sent the prompt, and no other client gets the answer. */
static uint64_t hash_bytes(uint64_t h, const void *bytes, size_t n) {
    for (const unsigned char *b = bytes, *end = b + n; b < end; b++)
        h = (h ^ *b) * UINT64_C(0x100000001b3);
    return h;
}

void prefix_add_header(struct request *r, const struct api_model *m, const struct gen_prompt *p) {
    size_t most = r->api->live.prefix_header_tokens;
    size_t n = p->n < most ? p->n / BLOCK * BLOCK : most;
    char text[17];
    if (!n) return;
    uint64_t h = hash_bytes(UINT64_C(0xcbf29ce484222325), m->id, strlen(m->id) + 1);
    for (size_t i = 0; i < n; i++) {
        uint32_t id = (uint32_t)p->ids[i];
        const unsigned char bytes[4] = {(unsigned char)id, (unsigned char)(id >> 8),
                                        (unsigned char)(id >> 16), (unsigned char)(id >> 24)};
        h = hash_bytes(h, bytes, sizeof bytes);
    }
    snprintf(text, sizeof text, "%016" PRIx64, h);
    reply_header(r, "x-inferd-prefix", text);
}
