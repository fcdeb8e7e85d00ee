/* hello.c - reads and writes what two stages tell each other first; see tcp_int.h, which draws it.
 * Pure. */
#include "core/backend/tcp/tcp_int.h"

#include <string.h>

static const char magic[8] = "INFSTG1";

/* ---- writing ---- */

struct writer {
    uint8_t *at;
};

static void put_u16(struct writer *w, uint32_t v) {
    *w->at++ = (uint8_t)v;
    *w->at++ = (uint8_t)(v >> 8);
}

static void put_u32(struct writer *w, uint32_t v) {
    put_u16(w, v & 0xffff);
    put_u16(w, v >> 16);
}

static void put_bytes(struct writer *w, const void *bytes, size_t n) {
    memcpy(w->at, bytes, n);
    w->at += n;
}

static void put_text(struct writer *w, const char *text, size_t most) {
    const size_t n = strnlen(text, most - 1);
    put_u16(w, (uint32_t)n);
    put_bytes(w, text, n);
}

size_t hello_write(const struct hello *h, uint8_t out[HELLO_HEAD_BYTES + HELLO_MAX_BYTES]) {
    struct writer w = {out + HELLO_HEAD_BYTES};
    _Static_assert(16 + TCP_GROUP_BYTES + BACKEND_MAX_FACTS * (4 + sizeof h->facts[0]) +
                           LINK_MAX_RANKS * (2 + TCP_ADDRESS_BYTES) + 2 + sizeof h->refusal <=
                       HELLO_MAX_BYTES,
                   "every hello fits");
    put_u32(&w, h->from);
    put_u32(&w, h->to);
    put_u32(&w, h->n);
    put_u32(&w, h->n_facts);
    put_bytes(&w, h->group, sizeof h->group);
    for (uint32_t i = 0; i < h->n_facts; i++) {
        put_text(&w, h->facts[i].name, sizeof h->facts[i].name);
        put_text(&w, h->facts[i].value, sizeof h->facts[i].value);
    }
    for (uint32_t i = 0; i < h->n; i++)
        put_text(&w, h->addresses[i], sizeof h->addresses[i]);
    put_text(&w, h->refusal, sizeof h->refusal);
    const size_t n = (size_t)(w.at - out);
    w.at = out;
    put_bytes(&w, magic, sizeof magic);
    put_u32(&w, (uint32_t)(n - HELLO_HEAD_BYTES));
    return n;
}

/* ---- reading ---- */

struct cursor {
    const uint8_t *at;
    uint64_t left;
    bool failed;
};

static const uint8_t *take(struct cursor *c, uint64_t n) {
    const uint8_t *at = c->at;
    if (c->failed || n > c->left) {
        c->failed = true;
        return NULL;
    }
    c->at += n;
    c->left -= n;
    return at;
}

static uint32_t take_u16(struct cursor *c) {
    const uint8_t *b = take(c, 2);
    return b ? (uint32_t)(b[0] | b[1] << 8) : 0;
}

static uint32_t take_u32(struct cursor *c) {
    const uint32_t low = take_u16(c);
    return low | take_u16(c) << 16;
}

/* A text of at most `most` - 1 characters. */
static void take_text(struct cursor *c, char *out, size_t most) {
    const uint32_t n = take_u16(c);
    const uint8_t *b = take(c, n);
    out[0] = '\0';
    if (!b || n >= most) {
        c->failed = true;
        return;
    }
    for (uint32_t i = 0; i < n; i++)
        c->failed |= b[i] < ' ' || b[i] > '~';
    memcpy(out, b, n);
    out[n] = '\0';
}

int hello_read_head(const uint8_t head[HELLO_HEAD_BYTES], uint32_t *n, err *e) {
    struct cursor c = {head + sizeof magic, HELLO_HEAD_BYTES - sizeof magic, false};
    if (memcmp(head, magic, sizeof magic) != 0)
        return err_set(e, ERR_FORMAT, "it is no stage of this version of inferd");
    *n = take_u32(&c);
    if (*n <= HELLO_MAX_BYTES) return 0;
    return err_set(e, ERR_FORMAT, "its first message has %u bytes, at most %d are read", *n,
                   HELLO_MAX_BYTES);
}

static const char *value_of(const struct hello *h, const char *name) {
    for (uint32_t i = 0; i < h->n_facts; i++)
        if (strcmp(h->facts[i].name, name) == 0) return h->facts[i].value;
    return NULL;
}

/* Is a fact said twice? */
static bool repeats(const struct hello *h) {
    for (uint32_t i = 0; i < h->n_facts; i++)
        if (value_of(h, h->facts[i].name) != h->facts[i].value) return true;
    return false;
}

int hello_read(const uint8_t *body, uint32_t n, struct hello *out, err *e) {
    struct cursor c = {body, n, false};
    memset(out, 0, sizeof *out);
    out->from = take_u32(&c);
    out->to = take_u32(&c);
    out->n = take_u32(&c);
    out->n_facts = take_u32(&c);
    if (out->n < 2 || out->n > LINK_MAX_RANKS || out->from >= out->n || out->to >= out->n ||
        out->from == out->to || out->n_facts > BACKEND_MAX_FACTS)
        return err_set(e, ERR_FORMAT, "its first message has numbers that no stage sends");
    const uint8_t *group = take(&c, TCP_GROUP_BYTES);
    if (group) memcpy(out->group, group, TCP_GROUP_BYTES);
    for (uint32_t i = 0; i < out->n_facts; i++) {
        take_text(&c, out->facts[i].name, sizeof out->facts[i].name);
        take_text(&c, out->facts[i].value, sizeof out->facts[i].value);
    }
    for (uint32_t i = 0; i < out->n; i++)
        take_text(&c, out->addresses[i], sizeof out->addresses[i]);
    take_text(&c, out->refusal, sizeof out->refusal);
    if (!c.failed && !c.left && !repeats(out)) return 0;
    return err_set(e, ERR_FORMAT, "its first message is damaged");
}

/* The first fact of a that b has not, or has otherwise. */
static const char *find_difference(const struct hello *a, const struct hello *b) {
    for (uint32_t i = 0; i < a->n_facts; i++) {
        const char *value = value_of(b, a->facts[i].name);
        if (!value || strcmp(value, a->facts[i].value) != 0) return a->facts[i].name;
    }
    return NULL;
}

int hello_compare(const struct hello *own, const struct hello *other, err *e) {
    const char *name = find_difference(own, other);
    if (!name) name = find_difference(other, own);
    if (!name) return 0;
    const char *mine = value_of(own, name), *its = value_of(other, name);
    return err_set(e, ERR_UNSUPPORTED,
                   "%s is %s at stage %u, %s at stage %u: it must be the same at all stages", name,
                   mine ? mine : "unknown", own->from, its ? its : "unknown", other->from);
}
