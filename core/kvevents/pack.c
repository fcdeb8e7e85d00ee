/* pack.c - see pack.h. Owns nothing. */
#include "core/kvevents/pack.h"

#include <string.h>

/* The n low bytes of value, the highest first. */
static void add_be(str *out, uint64_t value, int n) {
    char bytes[8];
    for (int i = 0; i < n; i++)
        bytes[i] = (char)(value >> (8 * (n - 1 - i)));
    str_add_n(out, bytes, (size_t)n);
}

static void add_byte(str *out, unsigned byte) {
    add_be(out, byte, 1);
}

static void add_uint(str *out, uint64_t value) {
    if (value < 0x80) {
        add_byte(out, (unsigned)value);
        return;
    }
    int shift = value > UINT32_MAX ? 3 : value > UINT16_MAX ? 2 : value > UINT8_MAX ? 1 : 0;
    add_byte(out, 0xcc + (unsigned)shift);
    add_be(out, value, 1 << shift);
}

static void add_nil(str *out) {
    add_byte(out, 0xc0);
}

static void add_array(str *out, size_t n) {
    if (n < 16)
        add_byte(out, 0x90 | (unsigned)n);
    else if (n <= UINT16_MAX)
        add_byte(out, 0xdc), add_be(out, n, 2);
    else
        add_byte(out, 0xdd), add_be(out, n, 4);
}

/* Of less than 32 bytes. */
static void add_text(str *out, const char *text) {
    add_byte(out, 0xa0 | (unsigned)strlen(text));
    str_add(out, text);
}

static void add_double(str *out, double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    add_byte(out, 0xcb);
    add_be(out, bits, 8);
}

static void add_hashes(str *out, const struct pack_event *events, size_t n) {
    add_array(out, n);
    for (size_t i = 0; i < n; i++)
        add_uint(out, events[i].hash);
}

static void add_stored(str *out, const struct pack_event *events, size_t n, uint32_t block_tokens) {
    add_array(out, 8);
    add_text(out, "BlockStored");
    add_hashes(out, events, n);
    if (events[0].has_parent)
        add_uint(out, events[0].parent);
    else
        add_nil(out);
    add_array(out, n * block_tokens);
    for (size_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < block_tokens; k++)
            add_uint(out, (uint32_t)events[i].tokens[k]);
    add_uint(out, block_tokens);
    add_nil(out); /* lora_id */
    add_text(out, "GPU");
    add_nil(out); /* lora_name */
}

/* How many of the events, at least one, become one. */
static size_t run_of(const struct pack_event *events, size_t n) {
    size_t i = 1;
    while (i < n && events[i].kind == events[0].kind && events[0].kind != PACK_CLEARED &&
           (events[0].kind == PACK_REMOVED ||
            (events[i].has_parent && events[i].parent == events[i - 1].hash)))
        i++;
    return i;
}

void pack_batch(const struct pack_event *events, size_t n, uint32_t block_tokens, double time_s,
                str *out) {
    size_t n_runs = 0, run;
    for (size_t i = 0; i < n; i += run_of(events + i, n - i))
        n_runs++;
    add_array(out, 3);
    add_double(out, time_s);
    add_array(out, n_runs);
    for (size_t i = 0; i < n; i += run) {
        run = run_of(events + i, n - i);
        switch (events[i].kind) {
        case PACK_STORED:
            add_stored(out, events + i, run, block_tokens);
            break;
        case PACK_REMOVED:
            add_array(out, 3);
            add_text(out, "BlockRemoved");
            add_hashes(out, events + i, run);
            add_text(out, "GPU");
            break;
        case PACK_CLEARED:
            add_array(out, 1);
            add_text(out, "AllBlocksCleared");
            break;
        }
    }
    add_uint(out, 0); /* data_parallel_rank */
}
