/* fuzz_vocab.c - u8 n | n bytes of text | a GGUF file or a SentencePiece model: the file is
 * refused, or the text is encoded into ids of its vocabulary, these are decoded, and the vocabulary
 * can be written as keys of a GGUF file or not. (tokenizer.json: fuzz_tokenizer.c.) */
#include "tests/fuzz/scratch.h"
#include "tests/fuzz/vocab_kit.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

enum { MAX_BYTES = 1 << 16 };

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    size_t n_text = n ? bytes[0] : 0;
    tokenizer *t;
    struct vocab v = {0};
    err e = {0};
    if (n < 1 + n_text || n > MAX_BYTES) return 0;
    const char *path = scratch_file(bytes + 1 + n_text, n - 1 - n_text);
    if (tokenizer_open(path, &t, &e)) {
        check_refusal(&e);
        if (t) abort();
        return 0;
    }
    for (int32_t i = 0; i < tokenizer_n_vocab(t); i++) {
        size_t length;
        const char *text = tokenizer_token_bytes(t, i, true, &length);
        if (length && !text) abort();
    }
    try_text(t, (const char *)bytes + 1, n_text, NULL);
    tokenizer_close(t);
    if (vocab_read(path, &v, &e)) return 0;
    try_writing(&v, path);
    vocab_fini(&v);
    return 0;
}
