/* fuzz_tokenizer.c - any bytes as a tokenizer.json, NUL, a text: the file is refused, or it is
 * turned into keys of a GGUF file or not, and the text is encoded into ids of the vocabulary and
 * these are decoded. */
#include "core/formats/gguf/gguf.h"
#include "core/formats/hf/tokenizer.h"
#include "core/tokenizer/tokenizer_int.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

enum { MAX_JSON_BYTES = 1 << 16, MAX_TEXT_BYTES = 1 << 10, MAX_IDS = 1 << 16 };

static void try_text(const tokenizer *t, int32_t unk, const char *text, size_t n, int flags) {
    int32_t *ids;
    size_t n_ids, n_back;
    char *back;
    err e = {0};
    if (tokenizer_encode(t, text, n, flags, MAX_IDS, &ids, &n_ids, &e)) {
        if (ids || n_ids || !e.code || !e.msg[0]) abort();
        return;
    }
    for (size_t i = 0; i < n_ids; i++) {
        if (ids[i] < 0 || ids[i] >= tokenizer_n_vocab(t)) abort();
        /* Untrusted text never becomes a control token; it may be unknown. */
        if (!flags && tokenizer_is_control(t, ids[i]) && ids[i] != unk) abort();
    }
    if (tokenizer_decode(t, ids, n_ids, true, &back, &n_back, &e) == 0) free(back);
    free(ids);
}

static void try_writing(const struct vocab *v) {
    gguf_writer *w = gguf_writer_new();
    err e = {0};
    if (w && vocab_write_gguf(v, "", v->n + 3, w, &e) && (!e.code || !e.msg[0])) abort();
    gguf_writer_free(w);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    const uint8_t *end = n ? memchr(bytes, 0, n) : NULL;
    size_t n_json = end ? (size_t)(end - bytes) : n, n_text = end ? n - n_json - 1 : 0;
    struct hf_tokenizer *h;
    struct vocab v = {0};
    tokenizer *t = NULL;
    err e = {0};
    if (n_json > MAX_JSON_BYTES || n_text > MAX_TEXT_BYTES) return 0;
    if (hf_tokenizer_open_memory((const char *)bytes, n_json, &h, &e)) {
        if (h || !e.code || !e.msg[0]) abort();
        return 0;
    }
    int rc = vocab_from_hf(h, &v, &e);
    int32_t unk = v.unk;
    if (!rc) try_writing(&v);
    if (rc)
        vocab_fini(&v);
    else
        rc = tokenizer_build(&v, &t, &e);
    if (rc) {
        if (t || !e.code || !e.msg[0]) abort();
        return 0;
    }
    const char *text = end ? (const char *)end + 1 : "";
    try_text(t, unk, text, n_text, 0);
    try_text(t, unk, text, n_text, TOKENIZER_ADD_SPECIAL | TOKENIZER_PARSE_SPECIAL);
    tokenizer_close(t);
    return 0;
}
