/* siphash.c - SipHash-2-4-128, see siphash.h. Owns nothing. */
#include "core/base/siphash.h"

struct state {
    uint64_t v[4];
};

static uint64_t rotate_left(uint64_t x, int n) {
    return x << n | x >> (64 - n);
}

static void mix_state(struct state *s, int rounds) {
    uint64_t *v = s->v;
    for (int i = 0; i < rounds; i++) {
        v[0] += v[1];
        v[1] = rotate_left(v[1], 13) ^ v[0];
        v[0] = rotate_left(v[0], 32);
        v[2] += v[3];
        v[3] = rotate_left(v[3], 16) ^ v[2];
        v[0] += v[3];
        v[3] = rotate_left(v[3], 21) ^ v[0];
        v[2] += v[1];
        v[1] = rotate_left(v[1], 17) ^ v[2];
        v[2] = rotate_left(v[2], 32);
    }
}

static void add_word(struct state *s, uint64_t word) {
    s->v[3] ^= word;
    mix_state(s, 2);
    s->v[0] ^= word;
}

static uint64_t fold_state(const struct state *s) {
    return s->v[0] ^ s->v[1] ^ s->v[2] ^ s->v[3];
}

struct hash128 siphash128(struct hash128 key, const void *bytes, size_t n) {
    const unsigned char *at = bytes;
    uint64_t word = 0;
    struct state s = {{0x736f6d6570736575u ^ key.lo, 0x646f72616e646f6du ^ key.hi ^ 0xee,
                       0x6c7967656e657261u ^ key.lo, 0x7465646279746573u ^ key.hi}};
    for (size_t i = 0; i < n; i++) {
        word |= (uint64_t)at[i] << (8 * (i % 8));
        if (i % 8 != 7) continue;
        add_word(&s, word);
        word = 0;
    }
    add_word(&s, word | (uint64_t)n << 56);
    struct hash128 out;
    s.v[2] ^= 0xee;
    mix_state(&s, 4);
    out.lo = fold_state(&s);
    s.v[1] ^= 0xdd;
    mix_state(&s, 4);
    out.hi = fold_state(&s);
    return out;
}
