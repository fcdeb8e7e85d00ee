/* vocab_kit.h - shared by the fuzz targets of vocabularies: encodes and decodes a text, and writes
 * a vocabulary as keys of a GGUF file. abort() is a finding. */
#ifndef INFERD_FUZZ_VOCAB_KIT_H
#define INFERD_FUZZ_VOCAB_KIT_H

#include "core/formats/gguf/gguf.h"
#include "core/tokenizer/tokenizer_int.h"

#include <stdlib.h>

enum { MAX_IDS = 1 << 16 };

/* A failure has a message. */
static void check_refusal(const err *e) {
    if (!e->code || !e->msg[0]) abort();
}

/* Encodes the text into ids of the vocabulary and decodes these. unk: NULL, or the only control
 * token that untrusted text may become. */
static void try_encode(const tokenizer *t, const char *text, size_t n, int flags,
                       const int32_t *unk) {
    int32_t *ids;
    size_t n_ids, n_back;
    char *back;
    err e = {0};
    if (tokenizer_encode(t, text, n, flags, MAX_IDS, &ids, &n_ids, &e)) {
        check_refusal(&e);
        if (ids || n_ids) abort();
        return;
    }
    for (size_t i = 0; i < n_ids; i++) {
        if (ids[i] < 0 || ids[i] >= tokenizer_n_vocab(t)) abort();
        if (unk && !flags && tokenizer_is_control(t, ids[i]) && ids[i] != *unk) abort();
    }
    if (tokenizer_decode(t, ids, n_ids, true, &back, &n_back, &e) == 0) free(back);
    free(ids);
}

/* As plain text, and as a prompt with parsed control tokens. */
static void try_text(const tokenizer *t, const char *text, size_t n, const int32_t *unk) {
    try_encode(t, text, n, 0, unk);
    try_encode(t, text, n, TOKENIZER_ADD_SPECIAL | TOKENIZER_PARSE_SPECIAL, unk);
}

/* path: the vocabulary's file, or "". */
static void try_writing(const struct vocab *v, const char *path) {
    gguf_writer *w = gguf_writer_new();
    err e = {0};
    if (w && vocab_write_gguf(v, path, v->n + 3, w, &e)) check_refusal(&e);
    gguf_writer_free(w);
}

#endif
