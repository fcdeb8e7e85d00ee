/* vocab_spm.c - reads a SentencePiece tokenizer.model into a struct vocab. The file is a protobuf
 * ModelProto (sentencepiece_model.proto); the needed fields are read here, bounds-checked. The
 * library only ever parses a model written by spm_proto.c. */
#include "core/tokenizer/tokenizer_int.h"

#include "core/base/mem.h"
#include "core/formats/hf/tokenizer.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    KIND_VARINT = 0,
    KIND_FIXED64 = 1,
    KIND_BYTES = 2,
    KIND_FIXED32 = 5,
    VARINT_MAX_BYTES = 10,
    MODEL_TYPE_UNIGRAM = 1,
    MODEL_TYPE_BPE = 2
};

/* One protobuf field. bytes (len) for KIND_BYTES and the fixed kinds, number for KIND_VARINT. */
struct field {
    uint64_t number; /* the field's number */
    unsigned kind;
    uint64_t value;
    const uint8_t *bytes;
    uint64_t len;
};

/* The rest of a message; start is the file's first byte, for offsets in errors. */
struct message {
    const char *path;
    const uint8_t *start, *pos, *end;
    err *e;
};

static int refuse_broken(const struct message *m, const char *what) {
    return err_set(m->e, ERR_FORMAT, "%s: offset %td: %s", m->path, m->pos - m->start, what);
}

static int take_varint(struct message *m, uint64_t *v) {
    *v = 0;
    for (int i = 0; i < VARINT_MAX_BYTES; i++) {
        if (m->pos == m->end) return refuse_broken(m, "a number is truncated");
        uint8_t byte = *m->pos++;
        *v |= (uint64_t)(byte & 0x7f) << (7 * i);
        if (!(byte & 0x80)) return 0;
    }
    return refuse_broken(m, "a number is too long");
}

/* Reads one field; *there = false: the message ends. */
static int take_field(struct message *m, struct field *f, bool *there) {
    uint64_t tag;
    memset(f, 0, sizeof *f);
    *there = m->pos < m->end;
    if (!*there) return 0;
    int rc = take_varint(m, &tag);
    if (rc) return rc;
    f->number = tag >> 3;
    f->kind = (unsigned)(tag & 7);
    switch (f->kind) {
    case KIND_VARINT:
        return take_varint(m, &f->value);
    case KIND_FIXED64:
        f->len = 8;
        break;
    case KIND_FIXED32:
        f->len = 4;
        break;
    case KIND_BYTES:
        rc = take_varint(m, &f->len);
        if (rc) return rc;
        break;
    default:
        return refuse_broken(m, "neither GGUF nor a SentencePiece model (unknown wire type)");
    }
    if (f->len > (uint64_t)(m->end - m->pos))
        return refuse_broken(m, "a field is longer than the file");
    f->bytes = m->pos;
    m->pos += f->len;
    return 0;
}

static struct message message_in(const struct message *m, const struct field *f) {
    struct message sub = {m->path, m->start, f->bytes, f->bytes + f->len, m->e};
    return sub;
}

static int read_piece(struct message m, struct vocab_token *t) {
    struct field f;
    bool there;
    *t = (struct vocab_token){.text = "", .type = TOKEN_NORMAL};
    for (;;) {
        int rc = take_field(&m, &f, &there);
        if (rc) return rc;
        if (!there) break;
        if (f.number == 1 && f.kind == KIND_BYTES) {
            if (f.len > VOCAB_MAX_TEXT_BYTES)
                return refuse_broken(&m, "a piece has more than 4096 bytes");
            t->text = (const char *)f.bytes;
            t->len = (uint32_t)f.len;
        } else if (f.number == 2 && f.kind == KIND_FIXED32) {
            memcpy(&t->score, f.bytes, sizeof t->score);
            if (isnan(t->score)) return refuse_broken(&m, "a piece's score is NaN");
        } else if (f.number == 3 && f.kind == KIND_VARINT) {
            if (f.value < TOKEN_NORMAL || f.value > TOKEN_BYTE)
                return refuse_broken(&m, "a piece has an unknown type");
            t->type = (enum token_type)f.value;
        }
    }
    if (t->type == TOKEN_BYTE && vocab_byte_value(t->text, t->len) < 0)
        return refuse_broken(&m, "a byte piece's text is not <0xNN>");
    return 0;
}

static int refuse_unsupported(const struct message *m, const char *what) {
    return err_set(m->e, ERR_UNSUPPORTED, "%s: %s", m->path, what);
}

/* Values outside the range of ids, such as -1, mean none. */
static int32_t id_of(uint64_t value) {
    return value < VOCAB_MAX_TOKENS ? (int32_t)value : -1;
}

static int read_trainer_spec(struct message m, struct vocab *v, uint64_t *model_type) {
    struct field f;
    bool there;
    for (;;) {
        int rc = take_field(&m, &f, &there);
        if (rc || !there) return rc;
        if (f.kind != KIND_VARINT) continue;
        if (f.number == 3) *model_type = f.value;
        if (f.number == 24 && f.value)
            return refuse_unsupported(&m, "white space as suffix is not supported");
        if (f.number == 41) v->bos = id_of(f.value);
        if (f.number == 42) v->eos = id_of(f.value);
    }
}

/* Tokens must decode to the same bytes: a tokenizer that rewrites text is refused. */
static int read_normalizer_spec(struct message m, struct vocab *v) {
    struct field f;
    bool there, removes_spaces = true;
    for (;;) {
        int rc = take_field(&m, &f, &there);
        if (rc) return rc;
        if (!there) break;
        if (f.number == 2 && f.kind == KIND_BYTES && f.len)
            return refuse_unsupported(&m,
                                      "a normalization rule other than identity is not supported");
        if (f.kind != KIND_VARINT) continue;
        if (f.number == 3) v->space_prefix = f.value != 0;
        if (f.number == 4) removes_spaces = f.value != 0;
        if (f.number == 5 && !f.value)
            return refuse_unsupported(&m, "spaces that are not escaped are not supported");
    }
    return removes_spaces ? refuse_unsupported(&m, "removing extra white space is not supported")
                          : 0;
}

static int read_denormalizer_spec(struct message m) {
    struct field f;
    bool there;
    for (;;) {
        int rc = take_field(&m, &f, &there);
        if (rc || !there) return rc;
        if (f.number == 2 && f.kind == KIND_BYTES && f.len)
            return refuse_unsupported(&m, "a denormalization rule is not supported");
    }
}

static int count_pieces(struct message m, struct vocab *v) {
    struct field f;
    bool there;
    uint64_t n = 0;
    for (;;) {
        int rc = take_field(&m, &f, &there);
        if (rc) return rc;
        if (!there) break;
        n += f.number == 1 && f.kind == KIND_BYTES;
    }
    if (n == 0 || n > VOCAB_MAX_TOKENS)
        return refuse_broken(&m, "neither GGUF nor a SentencePiece model (no pieces, or too many)");
    v->n = (uint32_t)n;
    v->tokens = mem_new(n, sizeof *v->tokens);
    return v->tokens ? 0 : err_no_memory(m.e);
}

/* A default of the proto applies only if that id is a control token. */
static int32_t control_or_none(const struct vocab *v, int32_t id) {
    return id >= 0 && (uint32_t)id < v->n && v->tokens[id].type == TOKEN_CONTROL ? id : -1;
}

static int read_model(struct message m, struct vocab *v) {
    struct field f;
    bool there, normalizer = false;
    uint64_t model_type = MODEL_TYPE_UNIGRAM;
    uint32_t id = 0;
    v->space_prefix = v->spm_user_rules = true;
    v->bos = 1;
    v->eos = 2;
    v->eot = v->eom = v->unk = v->pad = -1;
    v->fim = NO_FIM;
    int rc = count_pieces(m, v);
    while (!rc) {
        rc = take_field(&m, &f, &there);
        if (rc || !there) break;
        if (f.kind != KIND_BYTES) continue;
        struct message sub = message_in(&m, &f);
        if (f.number == 1) rc = read_piece(sub, &v->tokens[id++]);
        if (f.number == 2) rc = read_trainer_spec(sub, v, &model_type);
        if (f.number == 3) rc = read_normalizer_spec(sub, v);
        if (f.number == 5) rc = read_denormalizer_spec(sub);
        normalizer |= f.number == 3;
    }
    if (rc) return rc;
    if (model_type != MODEL_TYPE_BPE)
        return refuse_unsupported(&m,
                                  "the SentencePiece model's type is not supported (expected BPE)");
    if (!normalizer) return refuse_unsupported(&m, "removing extra white space is not supported");
    for (uint32_t i = v->n; i-- > 0;)
        if (v->tokens[i].type == TOKEN_UNKNOWN) v->unk = (int32_t)i;
    v->bos = control_or_none(v, v->bos);
    v->eos = control_or_none(v, v->eos);
    if (v->bos >= 0) v->before[v->n_before++] = v->bos;
    return 0;
}

/* Owns the vocabulary's texts. */
struct spm_source {
    uint8_t *bytes;
    struct hf_tokenizer *beside; /* NULL: not read yet */
};

static void free_source(void *arg) {
    struct spm_source *s = arg;
    hf_tokenizer_close(s->beside);
    free(s->bytes);
    free(s);
}

/* Extends the vocabulary to the ids of the added tokens, which may leave gaps. */
static int make_room(struct vocab *v, const struct hf_tokenizer *h, err *e) {
    uint32_t n = v->n;
    for (uint32_t i = 0; i < h->n_added; i++)
        if ((uint32_t)h->added[i].token.id >= n) n = (uint32_t)h->added[i].token.id + 1;
    struct vocab_token *tokens = mem_resize(v->tokens, n, sizeof *tokens);
    if (!tokens) return err_no_memory(e);
    v->tokens = tokens;
    for (; v->n < n; v->n++)
        tokens[v->n] = (struct vocab_token){.text = "", .type = TOKEN_UNUSED};
    return 0;
}

/* Reads transformers' files beside the model: added tokens and settings. */
static int read_beside(const char *path, struct spm_source *s, struct vocab *v, err *e) {
    int rc = hf_tokenizer_open_beside(path, &s->beside, e);
    if (!rc) rc = make_room(v, s->beside, e);
    if (!rc) rc = vocab_take_added(s->beside, v, e);
    if (!rc) rc = vocab_take_settings(s->beside, v, e);
    if (rc) return rc;
    if (s->beside->space_prefix >= 0) v->space_prefix = s->beside->space_prefix;
    if (v->n_before && v->bos >= 0) v->before[0] = v->bos;
    return 0;
}

/* Reads all of fd (bytes) into buffer. */
static int read_all(int fd, uint8_t *buffer, size_t bytes, const char *path, err *e) {
    for (size_t at = 0; at < bytes;) {
        ssize_t n = read(fd, buffer + at, bytes - at);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return err_set(e, ERR_IO, "%s: cannot read: %s", path, strerror(errno));
        if (n == 0) return err_set(e, ERR_IO, "%s: the file was truncated while it was read", path);
        at += (size_t)n;
    }
    return 0;
}

int vocab_read_spm(const char *path, struct vocab *v, err *e) {
    struct stat st;
    uint8_t *bytes = NULL;
    struct spm_source *source = mem_new(1, sizeof *source);
    int rc = 0;
    if (!source) return err_set(e, ERR_NOMEM, "%s: no memory to read it", path);
    v->source = source;
    v->free_source = free_source;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return err_set(e, ERR_IO, "%s: cannot open: %s", path, strerror(errno));
    if (fstat(fd, &st))
        rc = err_set(e, ERR_IO, "%s: cannot stat: %s", path, strerror(errno));
    else if (!S_ISREG(st.st_mode))
        rc = err_set(e, ERR_IO, "%s: not a regular file", path);
    else if (st.st_size > VOCAB_MAX_FILE_BYTES)
        rc = err_set(e, ERR_FORMAT, "%s: too large for a tokenizer", path);
    if (!rc) {
        bytes = source->bytes = mem_new((uint64_t)st.st_size, 1);
        rc = bytes ? read_all(fd, bytes, (size_t)st.st_size, path, e)
                   : err_set(e, ERR_NOMEM, "%s: no memory to read it", path);
    }
    close(fd);
    if (rc) return rc;
    struct message m = {path, bytes, bytes, bytes + st.st_size, e};
    rc = read_model(m, v);
    return rc ? rc : read_beside(path, source, v, e);
}
