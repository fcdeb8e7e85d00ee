/* gguf_text.h - keys and texts of ggufs for tests that compare them. */
#ifndef INFERD_TEST_GGUF_TEXT_H
#define INFERD_TEST_GGUF_TEXT_H

#include "core/formats/gguf/gguf_int.h"

#include <stdio.h>

static inline const char *text_of(gguf_str s, char out[200]) {
    snprintf(out, 200, "%.*s", (int)(s.len < 199 ? s.len : 199), s.data);
    return out;
}

static inline const struct gguf_kv *find_kv(const gguf *g, gguf_str key) {
    for (uint64_t i = 0; i < gguf_n_keys(g); i++)
        if (!gguf_str_compare(gguf_key_at(g, i)->key, key)) return gguf_key_at(g, i);
    return NULL;
}

/* Every key of the architecture that the converter writes exists with the same bytes. */
#endif
