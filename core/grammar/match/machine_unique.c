/* machine_unique.c - uniqueItems: the hashes of the values so far, and whether an unused value is
 * left. Values with equal 64-bit hashes count as equal.
 *
 * The hash of a number is a polynomial in RADIX modulo 2^61 - 1: the digits are the coefficients,
 * their decimal positions the exponents. Leading and trailing zeros do not change it, nor does the
 * notation. */
#include "core/grammar/match/machine.h"

#define PRIME ((UINT64_C(1) << 61) - 1)
#define RADIX UINT64_C(0x0b3f1c5a97d24e61)

enum {
    MAX_EXPONENT = 1 << 28, /* larger ones count as this */
    MAX_SEARCH = 1 << 16    /* steps of one search for an unused value */
};

bool used_has(struct machine *m, uint32_t used, uint64_t hash) {
    uint32_t n = 0;
    while (used && m->frames[used].bits != hash) {
        used = m->frames[used].parent;
        n++;
    }
    machine_spend(m, n / 8);
    return used != 0;
}

uint32_t used_add(struct machine *m, uint32_t used, uint64_t hash) {
    struct frame cell = {
        .parent = used, .kind = FRAME_CELL, .x = used_n(m, used) + 1, .bits = hash};
    return machine_intern(m, &cell);
}

uint64_t hash_byte(uint64_t hash, uint8_t byte) {
    hash = (hash ^ (byte + 1u)) * 0xff51afd7ed558ccdu;
    return hash ^ hash >> 29;
}

static uint64_t multiply_mod(uint64_t a, uint64_t b) {
    return (uint64_t)((unsigned __int128)a * b % PRIME);
}

/* RADIX to the power of n, which may be negative. */
static uint64_t radix_power(int64_t n) {
    uint64_t exponent = n < 0 ? PRIME - 1 - (uint64_t)-n : (uint64_t)n, result = 1;
    for (uint64_t base = RADIX; exponent; exponent >>= 1, base = multiply_mod(base, base))
        if (exponent & 1) result = multiply_mod(result, base);
    return result;
}

static enum number_part part_of(const struct frame *f) {
    return (enum number_part)((f->flags & FLAG_PART) >> 6);
}

static void set_part(struct frame *f, enum number_part part) {
    f->flags = (uint16_t)((f->flags & ~FLAG_PART) | (unsigned)part << 6);
    f->y = 0;
}

static void watch_first(struct frame *f, uint8_t byte) {
    bool digit = byte >= '0' && byte <= '9';
    set_part(f, digit || byte == '-' ? PART_WHOLE : PART_WORD);
    if (byte == '-') f->flags |= FLAG_NEGATIVE;
    if (digit)
        f->bits = (uint64_t)(byte - '0');
    else if (byte != '-')
        f->bits = hash_byte(0, byte);
}

void watch_byte(struct frame *f, uint8_t byte) {
    enum number_part part = part_of(f);
    uint64_t digit = (uint64_t)(byte - '0');
    if (part == PART_START) {
        watch_first(f, byte);
    } else if (part == PART_WORD) {
        f->bits = hash_byte(f->bits, byte);
    } else if (byte == '.') {
        set_part(f, PART_FRACTION);
    } else if (byte == 'e' || byte == 'E') {
        set_part(f, PART_EXPONENT);
    } else if (byte == '-') {
        f->flags |= FLAG_NEGATIVE_EXPONENT;
    } else if (byte == '+') {
        return;
    } else if (part == PART_WHOLE) {
        f->bits = (multiply_mod(f->bits, RADIX) + digit) % PRIME;
    } else if (part == PART_FRACTION) {
        f->y++;
        f->bits = (f->bits + multiply_mod(digit, radix_power(-(int64_t)f->y))) % PRIME;
    } else {
        f->y = f->y < MAX_EXPONENT / 10 ? f->y * 10 + (uint32_t)digit : MAX_EXPONENT;
    }
}

uint64_t watch_hash(const struct frame *f) {
    if (f->kind == FRAME_STRING) return hash_byte(f->bits, 's');
    if (part_of(f) == PART_WORD) return hash_byte(f->bits, 'w');
    uint64_t v = f->bits;
    if (part_of(f) == PART_EXPONENT)
        v = multiply_mod(v, radix_power(f->flags & FLAG_NEGATIVE_EXPONENT ? -(int64_t)f->y : f->y));
    if (f->flags & FLAG_NEGATIVE) v = (PRIME - v) % PRIME;
    return hash_byte(v, 'n');
}

/* Does every continuation leave the value unchanged? */
static bool is_decided(const struct frame *f, uint8_t flags) {
    return (part_of(f) == PART_FRACTION && (flags & STATE_ZEROS)) ||
           (part_of(f) == PART_EXPONENT && f->bits == 0);
}

/* Tries non-zero digits first: each gives another value, whereas zeros may repeat without end. */
static bool find_unused(struct machine *m, const struct frame *f, uint32_t used, uint32_t *left) {
    static const char first[] = "123456789.0-";
    const struct dfa *d = &m->g->dfas.at[f->index];
    uint8_t flags = m->g->state_flags[f->index][f->x];
    enum number_part part = part_of(f);
    if (*left == 0 || --*left == 0) return true;
    machine_spend(m, 8);
    if (m->exhausted) return false;
    if (is_decided(f, flags)) return !used_has(m, used, watch_hash(f));
    bool fraction = part == PART_WHOLE || part == PART_FRACTION || part == PART_START;
    if (flags & (fraction ? STATE_INFINITE_FRAC : STATE_INFINITE)) return true;
    if (d->accept[f->x] && !used_has(m, used, watch_hash(f))) return true;
    for (uint32_t i = 0; i < sizeof first - 1 + 256; i++) {
        uint8_t byte = (uint8_t)(i < sizeof first - 1 ? (uint8_t)first[i] : i - (sizeof first - 1));
        struct frame g = *f;
        g.x = dfa_step(d, f->x, byte);
        if (!g.x) continue;
        watch_byte(&g, byte);
        if (find_unused(m, &g, used, left)) return true;
    }
    return false;
}

bool watch_is_alive(struct machine *m, const struct frame *f) {
    uint32_t used = m->frames[f->parent].used, left = MAX_SEARCH;
    return !used || find_unused(m, f, used, &left);
}
