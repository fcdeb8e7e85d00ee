/* hf/recipe.c - computes tensors that a folder stores in another order or type than GGUF. Pure; any
 * thread: no state between calls. */
#include "core/formats/hf/model_int.h"

#include <math.h>
#include <string.h>

enum {
    CHUNK_UNITS = HF_PACKED_VALUES,
    MXFP4_SOURCE_BYTES = 16,
    PANEL_ROWS = 128,
    PANEL_COLS = 512
};

int hf_source_type(const struct safetensor *s) {
    switch (s->type) {
    case ST_F32:
        return QTYPE_F32;
    case ST_F16:
        return QTYPE_F16;
    case ST_BF16:
        return QTYPE_BF16;
    case ST_PACKED:
        return s->packed->type;
    default:
        return -1;
    }
}

/* Bytes of the smallest computed unit: an element, or a block. */
static uint64_t unit_bytes(int type) {
    return qtype_find(type)->block_bytes;
}

/* Are elements other numbers than those of the source? */
static bool is_computed(const struct hf_recipe *k) {
    return k->add != 0 || k->negative_exp || k->scale != 0 || k->row_scales;
}

int hf_recipe_type(const struct hf_recipe *k) {
    static const int order[] = {QTYPE_Q4_0, QTYPE_Q5_0, QTYPE_Q8_0, QTYPE_F16, QTYPE_BF16};
    enum { N = sizeof order / sizeof order[0], FLOATS = 3 };
    if (k->sources[0]->type != ST_PACKED) return hf_source_type(k->sources[0]);
    const bool by_rows =
        !k->transposed && !(k->head && k->by_cols) && !is_computed(k) && k->src_cols == k->n_cols;
    int most = by_rows ? 0 : FLOATS;
    for (uint32_t i = 0; i < k->n_sources; i++) {
        const struct hf_packed *p = k->sources[i]->packed;
        for (int t = most; t < N; t++)
            if (p->type == order[t]) most = t;
        if (!by_rows && p->scales->type != ST_F16) most = N - 1;
    }
    return order[most];
}

/* True if a source stores the rows in GGUF's layout. */
static bool is_copy(const struct hf_recipe *k, int type) {
    return k->n_sources && !k->scales && !k->sources[0]->packed && !k->transposed &&
           !(k->head && k->by_cols) && !is_computed(k) && hf_source_type(k->sources[0]) == type;
}

const void *hf_recipe_place(const struct hf_recipe *k, int type) {
    if (k->made) return k->made;
    bool whole = is_copy(k, type) && k->n_sources == 1 && !k->permuted_heads && !k->head &&
                 k->first == 0 && k->step == 1 && k->src_rows == k->n_rows;
    if (!whole || (uintptr_t)k->sources[0]->data % unit_bytes(type)) return NULL;
    return k->sources[0]->data;
}

/* Where row or column i comes from, if heads change places. */
static uint64_t regroup(const struct hf_recipe *k, uint64_t i) {
    if (!k->head || i < k->regroup_at) return i;
    uint64_t place = (i - k->regroup_at) / k->head, within = (i - k->regroup_at) % k->head;
    uint64_t from = place % k->n_groups * k->n_share + place / k->n_groups;
    return k->regroup_at + from * k->head + within;
}

/* Row r of Q or K, ordered for pairs (2i, 2i + 1), comes from a head's halves: pair i is row i of
 * each half. */
static uint64_t source_row(const struct hf_recipe *k, uint64_t r) {
    if (k->permuted_heads) {
        uint64_t head_dim = k->n_rows / k->permuted_heads, j = r % head_dim;
        r = r - j + j % 2 * (head_dim / 2) + j / 2;
    }
    if (!k->by_cols) r = regroup(k, r);
    return k->first + k->step * r;
}

static const uint8_t *source_matrix(const struct hf_recipe *k, uint64_t mat, uint64_t bytes_each) {
    if (k->n_sources > 1) return k->sources[mat]->data;
    return k->sources[0]->data + mat * k->src_rows * k->src_cols * bytes_each;
}

static float load_float(const uint8_t *p, int type) {
    uint16_t half;
    float f;
    if (type == QTYPE_F32) {
        memcpy(&f, p, sizeof f);
        return f;
    }
    memcpy(&half, p, sizeof half);
    return type == QTYPE_F16 ? f16_to_f32(half) : bf16_to_f32(half);
}

static void store_float(float f, int type, uint8_t *p) {
    if (type == QTYPE_F32) {
        memcpy(p, &f, sizeof f);
        return;
    }
    const uint16_t half = type == QTYPE_F16 ? f32_to_f16(f) : f32_to_bf16(f);
    memcpy(p, &half, sizeof half);
}

/* What is computed from an element of the source in tensor row `row`. */
static float compute(const struct hf_recipe *k, uint64_t row, float f) {
    f += k->add;
    if (k->negative_exp) f = -expf(f);
    if (k->scale != 0) f *= k->scale;
    if (k->row_scales) f *= k->row_scales[row % k->n_rows];
    return f;
}

/* Computes n elements of a row, from element begin on. */
static void make_elements(const struct hf_recipe *k, int type, uint64_t row, uint64_t begin,
                          uint64_t n, uint8_t *out) {
    int from = hf_source_type(k->sources[0]);
    uint64_t each = unit_bytes(from), r = source_row(k, row % k->n_rows);
    const uint8_t *base = source_matrix(k, row / k->n_rows, each);
    uint64_t stride = k->transposed ? k->src_cols * each : each;
    base += (k->transposed ? r : r * k->src_cols) * each;
    for (uint64_t i = 0; i < n; i++) {
        const uint8_t *p = base + (k->by_cols ? regroup(k, begin + i) : begin + i) * stride;
        if (type == from && !is_computed(k)) {
            memcpy(out + i * each, p, each);
            continue;
        }
        store_float(compute(k, row, load_float(p, from)), type, out + i * unit_bytes(type));
    }
}

/* Computes n (up to CHUNK_UNITS) units of a row of quantized weights. */
static void make_packed(const struct hf_recipe *k, int type, uint64_t row, uint64_t begin,
                        uint64_t n, uint8_t *out) {
    const uint64_t mat = row / k->n_rows, unit = unit_bytes(type);
    const struct hf_packed *p = k->sources[k->n_sources > 1 ? mat : 0]->packed;
    const uint64_t first = k->n_sources > 1 ? 0 : mat * k->src_rows;
    const uint64_t r = source_row(k, row % k->n_rows);
    const bool is_block = qtype_find(type)->block_elems > 1;
    const bool in_row = !k->transposed && !k->by_cols;
    float values[HF_PACKED_VALUES];
    if (!is_block && in_row) hf_packed_values(p, first + r, begin, n, values);
    if (!is_block && in_row && !is_computed(k)) {
        float made[HF_PACKED_VALUES]; /* aligned, as out need not be */
        qtype_encode(type, values, made, n);
        memcpy(out, made, n * unit);
        return;
    }
    for (uint64_t i = 0; i < n; i++) {
        const uint64_t c = k->by_cols ? regroup(k, begin + i) : begin + i;
        if (is_block) {
            hf_packed_block(p, type, first + r, (begin + i) * Q_ELEMS, out + i * unit);
            continue;
        }
        if (!in_row)
            hf_packed_values(p, first + (k->transposed ? c : r), k->transposed ? r : c, 1,
                             &values[i]);
        store_float(compute(k, row, values[i]), type, out + i * unit);
    }
}

/* A source's byte holds values 2i (low nibble) and 2i + 1, GGUF's values i and i + 16. */
static void make_blocks(const struct hf_recipe *k, uint64_t row, uint64_t begin, uint64_t n,
                        uint8_t *out) {
    uint64_t blocks = k->n_cols / Q_ELEMS;
    uint64_t source = row / k->n_rows * k->src_rows + source_row(k, row % k->n_rows);
    const uint8_t *scales = k->scales->data + source * blocks + begin;
    const uint8_t *p = k->sources[0]->data + (source * blocks + begin) * MXFP4_SOURCE_BYTES;
    for (uint64_t b = 0; b < n; b++, p += MXFP4_SOURCE_BYTES) {
        struct mxfp4_block block = {.e = scales[b]};
        for (unsigned i = 0; i < Q_ELEMS; i++) {
            unsigned nibble = p[i / 2] >> (i % 2 ? 4 : 0) & 15;
            block.q[i % 16] |= (uint8_t)(nibble << (i < 16 ? 0 : 4));
        }
        memcpy(out + b * sizeof block, &block, sizeof block);
    }
}

/* Computes n (up to CHUNK_UNITS) units of a row. */
static void make_units(const struct hf_recipe *k, int type, uint64_t row, uint64_t begin,
                       uint64_t n, uint8_t *out) {
    if (k->scales)
        make_blocks(k, row, begin, n, out);
    else if (k->sources[0]->packed)
        make_packed(k, type, row, begin, n, out);
    else
        make_elements(k, type, row, begin, n, out);
}

/* Reads up to n bytes of one row from its byte `within` on; returns their number. */
static uint64_t read_made(const struct hf_recipe *k, int type, uint64_t row, uint64_t within,
                          uint64_t n, uint8_t *dst) {
    uint8_t chunk[CHUNK_UNITS * sizeof(struct q8_0_block)];
    uint64_t unit = unit_bytes(type), begin = within / unit, skip = within % unit;
    uint64_t n_units = (skip + n + unit - 1) / unit;
    if (n_units > CHUNK_UNITS) n_units = CHUNK_UNITS;
    make_units(k, type, row, begin, n_units, chunk);
    uint64_t got = n_units * unit - skip;
    if (got > n) got = n;
    memcpy(dst, chunk + skip, got);
    return got;
}

/* Reads whole rows of quantized weights, a chunk of columns of all rows at a time: files of AWQ and
 * GPTQ have outputs side by side. Returns the number of bytes, up to n. */
static uint64_t read_panel(const struct hf_recipe *k, int type, uint64_t row, uint64_t row_bytes,
                           uint64_t n, uint8_t *out) {
    const uint64_t unit = unit_bytes(type), n_units = row_bytes / unit;
    const uint64_t n_rows = n / row_bytes < PANEL_ROWS ? n / row_bytes : PANEL_ROWS;
    const uint64_t of_cols = PANEL_COLS / qtype_find(type)->block_elems;
    const uint64_t most = of_cols < CHUNK_UNITS ? of_cols : CHUNK_UNITS;
    for (uint64_t begin = 0; begin < n_units; begin += most) {
        const uint64_t some = n_units - begin < most ? n_units - begin : most;
        for (uint64_t r = 0; r < n_rows; r++)
            make_units(k, type, row + r, begin, some, out + r * row_bytes + begin * unit);
    }
    return n_rows * row_bytes;
}

void hf_recipe_read(const struct hf_recipe *k, int type, uint64_t offset, uint64_t n, void *dst) {
    uint8_t *out = dst;
    uint64_t unit = unit_bytes(type), row_bytes = k->n_cols / qtype_find(type)->block_elems * unit;
    const bool packed = k->n_sources && k->sources[0]->packed;
    while (n) {
        uint64_t row = offset / row_bytes, within = offset % row_bytes, part = row_bytes - within;
        if (part > n) part = n;
        if (k->made) {
            memcpy(out, (const uint8_t *)k->made + offset, part);
        } else if (is_copy(k, type)) {
            uint64_t r = source_row(k, row % k->n_rows);
            const uint8_t *base = source_matrix(k, row / k->n_rows, unit);
            memcpy(out, base + r * k->src_cols * unit + within, part);
        } else if (packed && within == 0 && n > row_bytes) {
            part = read_panel(k, type, row, row_bytes, n, out);
        } else {
            part = read_made(k, type, row, within, part, out);
        }
        out += part;
        offset += part;
        n -= part;
    }
}
