/* fuzz_vocab.c - u8 n | n bytes of text | a GGUF file or a SentencePiece model: the file is
 * refused, or the text is encoded into ids of its vocabulary, these are decoded, and the vocabulary
 * can be written as keys of a GGUF file or not. (tokenizer.json: fuzz_tokenizer.c.) */
#include "core/formats/gguf/gguf.h"
#include "core/tokenizer/tokenizer_int.h"
#include "tests/fuzz/scratch.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

enum { MAX_BYTES = 1 << 16, MAX_IDS = 1 << 16 };

static void try_text(const tokenizer *t, const char *text, size_t n, int flags) {
    int32_t *ids;
    size_t n_ids, n_back;
    char *back;
    err e = {0};
    if (tokenizer_encode(t, text, n, flags, MAX_IDS, &ids, &n_ids, &e)) {
        if (ids || n_ids || !e.code || !e.msg[0]) abort();
        return;
    }
    for (size_t i = 0; i < n_ids; i++)
        if (ids[i] < 0 || ids[i] >= tokenizer_n_vocab(t)) abort();
    if (tokenizer_decode(t, ids, n_ids, true, &back, &n_back, &e) == 0) free(back);
    free(ids);
}

static void try_writing(const char *path) {
    struct vocab v = {0};
    err e = {0};
    if (vocab_read(path, &v, &e)) return;
    gguf_writer *w = gguf_writer_new();
    if (w && vocab_write_gguf(&v, path, v.n + 3, w, &e) && (!e.code || !e.msg[0])) abort();
    gguf_writer_free(w);
    vocab_fini(&v);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    size_t n_text = n ? bytes[0] : 0;
    tokenizer *t;
    err e = {0};
    if (n < 1 + n_text || n > MAX_BYTES) return 0;
    const char *path = scratch_file(bytes + 1 + n_text, n - 1 - n_text);
    if (tokenizer_open(path, &t, &e)) {
        if (t || !e.code || !e.msg[0]) abort();
        return 0;
    }
    for (int32_t i = 0; i < tokenizer_n_vocab(t); i++) {
        size_t length;
        const char *text = tokenizer_token_bytes(t, i, true, &length);
        if (length && !text) abort();
    }
    try_text(t, (const char *)bytes + 1, n_text, 0);
    try_text(t, (const char *)bytes + 1, n_text, TOKENIZER_ADD_SPECIAL | TOKENIZER_PARSE_SPECIAL);
    tokenizer_close(t);
    try_writing(path);
    return 0;
}
