/* fuzz_tokenizer.c - any bytes as a tokenizer.json, or as a tiktoken.model unless they begin as
 * JSON does, NUL, a text: the file is refused, or it is turned into keys of a GGUF file or not, and
 * the text is encoded into ids of the vocabulary and these are decoded. */
#include "core/formats/hf/tokenizer.h"
#include "tests/fuzz/vocab_kit.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

enum { MAX_JSON_BYTES = 1 << 16, MAX_TEXT_BYTES = 1 << 10 };

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    const uint8_t *end = n ? memchr(bytes, 0, n) : NULL;
    size_t n_json = end ? (size_t)(end - bytes) : n, n_text = end ? n - n_json - 1 : 0;
    struct hf_tokenizer *h;
    struct vocab v = {0};
    tokenizer *t = NULL;
    err e = {0};
    if (n_json > MAX_JSON_BYTES || n_text > MAX_TEXT_BYTES) return 0;
    const bool ranks = n_json && !strchr(" \t\r\n{[", bytes[0]);
    if ((ranks ? hf_tokenizer_open_ranks : hf_tokenizer_open_memory)((const char *)bytes, n_json,
                                                                     &h, &e)) {
        check_refusal(&e);
        if (h) abort();
        return 0;
    }
    int rc = vocab_from_hf(h, &v, &e);
    int32_t unk = v.unk;
    if (!rc) try_writing(&v, "");
    if (rc)
        vocab_fini(&v);
    else
        rc = tokenizer_build(&v, &t, &e);
    if (rc) {
        check_refusal(&e);
        if (t) abort();
        return 0;
    }
    try_text(t, end ? (const char *)end + 1 : "", n_text, &unk);
    tokenizer_close(t);
    return 0;
}
