/* spm_proto.c - writes the ModelProto that libsentencepiece loads, in protobuf's wire format.
 *
 * Field numbers: sentencepiece_model.proto; wire format: protobuf encoding guide. A field is a
 * varint (number << 3 | kind); kind 0 is a varint, 2 a length and bytes, 5 four bytes. */
#include "core/tokenizer/tokenizer_int.h"

#include <stdio.h>
#include <string.h>

enum { KIND_VARINT = 0, KIND_BYTES = 2, KIND_FIXED32 = 5 };

enum {
    MODEL_PIECES = 1,
    MODEL_TRAINER_SPEC = 2,
    MODEL_NORMALIZER_SPEC = 3,
    PIECE_TEXT = 1,
    PIECE_SCORE = 2,
    PIECE_TYPE = 3,
    TRAINER_MODEL_TYPE = 3,
    TRAINER_VOCAB_SIZE = 4,
    TRAINER_BYTE_FALLBACK = 35,
    NORMALIZER_NAME = 1,
    NORMALIZER_ADD_DUMMY_PREFIX = 3,
    NORMALIZER_REMOVE_EXTRA_WHITESPACES = 4,
    NORMALIZER_ESCAPE_WHITESPACES = 5,
    MODEL_TYPE_BPE = 2
};

static void add_varint(str *out, uint64_t v) {
    while (v >= 0x80) {
        str_add_char(out, (char)(v | 0x80));
        v >>= 7;
    }
    str_add_char(out, (char)v);
}

static void add_number(str *out, unsigned field, uint64_t v) {
    add_varint(out, field << 3 | KIND_VARINT);
    add_varint(out, v);
}

static void add_bytes(str *out, unsigned field, const char *bytes, size_t n) {
    add_varint(out, field << 3 | KIND_BYTES);
    add_varint(out, n);
    str_add_n(out, bytes, n);
}

static void add_float(str *out, unsigned field, float v) {
    char bytes[sizeof v];
    memcpy(bytes, &v, sizeof v);
    add_varint(out, field << 3 | KIND_FIXED32);
    str_add_n(out, bytes, sizeof bytes);
}

/* Control, unknown and hidden pieces get names with a space, which no text matches: the library
 * replaces spaces by U+2581 before it looks up a piece. */
void spm_proto_add_piece(str *out, const struct spm_piece *piece, uint32_t id) {
    char name[24], body_bytes[VOCAB_MAX_TEXT_BYTES + 64];
    str body = {
        .data = body_bytes, .capacity = sizeof body_bytes, .max_bytes = sizeof body_bytes - 1};
    const char *text = piece->text;
    size_t n = piece->len;
    enum token_type type = piece->type;
    if (piece->hidden) type = TOKEN_CONTROL;
    /* User-defined tokens are matched before; remaining occurrences may be merged. */
    if (type == TOKEN_USER_DEFINED) type = TOKEN_NORMAL;
    if (type == TOKEN_CONTROL || type == TOKEN_UNKNOWN) {
        n = (size_t)snprintf(name, sizeof name, " %u", id);
        text = name;
    } else if (type == TOKEN_BYTE) {
        n = (size_t)snprintf(name, sizeof name, "<0x%02X>", vocab_byte_value(text, n));
        text = name;
    }
    add_bytes(&body, PIECE_TEXT, text, n);
    add_float(&body, PIECE_SCORE, piece->score);
    add_number(&body, PIECE_TYPE, type);
    add_bytes(out, MODEL_PIECES, body.data, body.len);
}

void spm_proto_add_specs(str *out, uint32_t n_pieces, bool byte_fallback) {
    char body_bytes[128];
    str body = {
        .data = body_bytes, .capacity = sizeof body_bytes, .max_bytes = sizeof body_bytes - 1};
    add_number(&body, TRAINER_MODEL_TYPE, MODEL_TYPE_BPE);
    add_number(&body, TRAINER_VOCAB_SIZE, n_pieces);
    add_number(&body, TRAINER_BYTE_FALLBACK, byte_fallback);
    add_bytes(out, MODEL_TRAINER_SPEC, body.data, body.len);
    str_clear(&body);
    add_bytes(&body, NORMALIZER_NAME, "identity", strlen("identity"));
    add_number(&body, NORMALIZER_ADD_DUMMY_PREFIX, 0);
    add_number(&body, NORMALIZER_REMOVE_EXTRA_WHITESPACES, 0);
    add_number(&body, NORMALIZER_ESCAPE_WHITESPACES, 1);
    add_bytes(out, MODEL_NORMALIZER_SPEC, body.data, body.len);
}
