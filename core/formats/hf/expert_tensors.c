/* hf/expert_tensors.c - maps the tensors of experts: one file tensor per expert, gate and up in
 * one, and gpt-oss's layouts, MXFP4 among them. */
#include "core/formats/hf/tensors_int.h"

#include <inttypes.h>
#include <stdio.h>

enum { SOURCE_BLOCK_BYTES = 16 };

static const char *const part_names[N_PARTS] = {"ffn_down_exps", "ffn_gate_exps", "ffn_up_exps"};

static uint64_t *expert_slot(struct hf_mapper *m, uint32_t layer, enum part part) {
    return &m->experts[(uint64_t)layer * N_PARTS + part];
}

/* Finds the entry of a layer's part, or adds it. Only sources of the same layout share an entry,
 * and only for STACKED and OSS_DOWN_BLOCKS (which stands for MXFP4). */
static int find_part(struct hf_mapper *m, const struct safetensor *s, uint32_t layer,
                     enum part part, enum layout layout, uint64_t *i) {
    char name[NAME_BYTES];
    uint64_t *slot = expert_slot(m, layer, part);
    bool shares = layout == STACKED || layout == OSS_DOWN_BLOCKS;
    if (*slot) {
        *i = *slot - 1;
        if (shares && m->entries[*i].layout == layout) return 0;
        return hf_bad_shape(m, s, "one layout for all tensors of the experts");
    }
    snprintf(name, sizeof name, "blk.%" PRIu32 ".%s.weight", layer, part_names[part]);
    int rc = hf_add_entry(m, name, i);
    if (rc) return rc;
    *slot = *i + 1;
    m->entries[*i].layout = layout;
    return 0;
}

int hf_map_expert(struct hf_mapper *m, const struct safetensor *s, const struct name_row *row,
                  uint32_t layer, uint64_t expert) {
    uint64_t i;
    uint32_t n = m->config->n_experts;
    if (expert >= n) return hf_bad_shape(m, s, "an expert number below that of config.json");
    if (s->n_dims != 2) return hf_bad_shape(m, s, "a matrix");
    int rc = find_part(m, s, layer, row->part, STACKED, &i);
    if (rc) return rc;
    struct hf_entry *entry = &m->entries[i];
    if (!entry->have) {
        rc = hf_set_sources(m, entry, s, n);
        if (rc) return rc;
        entry->recipe.sources[0] = NULL;
        entry->rank = row->rank;
        entry->recipe.n_sources = n;
        entry->recipe.n_mats = n;
        entry->recipe.n_rows = entry->recipe.src_rows = s->dims[0];
        entry->recipe.n_cols = entry->recipe.src_cols = s->dims[1];
        hf_set_dims(entry, 3);
    }
    if (s->dims[0] != entry->recipe.n_rows || s->dims[1] != entry->recipe.n_cols)
        return hf_bad_shape(m, s, "the shape of the other experts");
    if (entry->recipe.sources[expert]) return hf_bad_shape(m, s, "a single tensor of this name");
    entry->recipe.sources[expert] = s;
    entry->have++;
    /* The last expert's tensor completes all three. */
    for (int p = 0; p < N_PARTS; p++) {
        uint64_t other = *expert_slot(m, layer, (enum part)p);
        struct hf_entry *part = other ? &m->entries[other - 1] : NULL;
        if (part) part->order = (m->order + part->rank) | (uint64_t)LATE << 62;
    }
    return 0;
}

int hf_map_gate_up(struct hf_mapper *m, const struct safetensor *s, uint32_t layer, bool transposed,
                   bool in_turns) {
    uint64_t axis = transposed ? 2 : 1;
    if (s->n_dims != 3 || s->dims[axis] % 2)
        return hf_bad_shape(m, s, "gate and up of all experts");
    uint64_t half = s->dims[axis] / 2;
    for (int up = 0; up < 2; up++) {
        uint64_t i;
        int rc = find_part(m, s, layer, up ? PART_UP : PART_GATE, GATE_UP, &i);
        if (!rc) rc = hf_set_sources(m, &m->entries[i], s, 1);
        if (rc) return rc;
        struct hf_recipe *k = &m->entries[i].recipe;
        k->n_mats = s->dims[0];
        k->src_rows = s->dims[1];
        k->src_cols = s->dims[2];
        k->n_rows = half;
        k->n_cols = transposed ? s->dims[1] : s->dims[2];
        k->step = in_turns ? 2 : 1;
        k->first = !up ? 0 : in_turns ? 1 : half;
        k->transposed = transposed;
        hf_set_dims(&m->entries[i], 3);
        m->order++;
    }
    return 0;
}

int hf_map_oss_down(struct hf_mapper *m, const struct safetensor *s, uint32_t layer) {
    uint64_t i;
    if (s->n_dims != 3) return hf_bad_shape(m, s, "a tensor of all experts");
    int rc = find_part(m, s, layer, PART_DOWN, OSS_DOWN, &i);
    if (!rc) rc = hf_set_sources(m, &m->entries[i], s, 1);
    if (rc) return rc;
    struct hf_recipe *k = &m->entries[i].recipe;
    k->n_mats = s->dims[0];
    k->src_rows = k->n_cols = s->dims[1];
    k->src_cols = k->n_rows = s->dims[2];
    k->transposed = true;
    hf_set_dims(&m->entries[i], 3);
    return 0;
}

int hf_map_oss_bias(struct hf_mapper *m, const struct safetensor *s, uint32_t layer) {
    char name[NAME_BYTES];
    if (s->n_dims != 2 || s->dims[1] % 2) return hf_bad_shape(m, s, "gate and up of all experts");
    for (int up = 0; up < 2; up++) {
        uint64_t i;
        snprintf(name, sizeof name, "blk.%" PRIu32 ".%s.bias", layer,
                 part_names[up ? PART_UP : PART_GATE]);
        int rc = hf_add_entry(m, name, &i);
        if (!rc) rc = hf_set_sources(m, &m->entries[i], s, 1);
        if (rc) return rc;
        struct hf_entry *entry = &m->entries[i];
        /* Elements are rows of one column until the tensor's own shape is set. */
        entry->recipe = (struct hf_recipe){.sources = entry->recipe.sources,
                                           .n_sources = 1,
                                           .n_mats = s->dims[0],
                                           .n_rows = s->dims[1] / 2,
                                           .n_cols = 1,
                                           .src_rows = s->dims[1],
                                           .src_cols = 1,
                                           .first = (uint64_t)up,
                                           .step = 2};
        hf_set_dims(entry, 2);
        entry->tensor.dims[0] = s->dims[1] / 2;
        entry->tensor.dims[1] = s->dims[0];
        entry->tensor.dims[2] = 1;
        m->order++;
    }
    return 0;
}

int hf_map_mxfp4(struct hf_mapper *m, const struct safetensor *s, uint32_t layer, enum part part,
                 bool in_turns, bool is_scales) {
    uint64_t i, turns = in_turns ? 2 : 1;
    bool fits = s->type == ST_U8 && s->n_dims == (is_scales ? 3 : 4) && s->dims[1] % turns == 0 &&
                (is_scales || s->dims[3] == SOURCE_BLOCK_BYTES) && s->dims[2] <= INT32_MAX;
    if (!fits) return hf_bad_shape(m, s, "MXFP4 blocks or scales");
    int rc = find_part(m, s, layer, part, OSS_DOWN_BLOCKS, &i);
    if (rc) return rc;
    struct hf_entry *entry = &m->entries[i];
    struct hf_recipe *k = &entry->recipe;
    uint64_t n_rows = s->dims[1] / turns, n_cols = s->dims[2] * Q_ELEMS;
    bool second = k->n_sources || k->scales;
    if (second && (k->n_mats != s->dims[0] || k->n_rows != n_rows || k->n_cols != n_cols))
        return hf_bad_shape(m, s, "the shape of its blocks or scales");
    if (is_scales ? k->scales != NULL : k->n_sources > 0)
        return hf_bad_shape(m, s, "a single tensor of this name");
    if (is_scales) {
        k->scales = s;
        entry->order = m->order; /* the converter makes these first */
    } else if ((rc = hf_set_sources(m, entry, s, 1))) {
        return rc;
    }
    k->n_mats = s->dims[0];
    k->n_rows = n_rows;
    k->src_rows = s->dims[1];
    k->n_cols = n_cols;
    k->src_cols = s->dims[2];
    k->step = turns;
    k->first = in_turns && part == PART_UP;
    entry->tensor.type = QTYPE_MXFP4;
    hf_set_dims(entry, 3);
    m->order++;
    return 0;
}

int hf_map_mxfp4_gate_up(struct hf_mapper *m, const struct safetensor *s, uint32_t layer,
                         bool is_scales) {
    int rc = hf_map_mxfp4(m, s, layer, PART_GATE, true, is_scales);
    return rc ? rc : hf_map_mxfp4(m, s, layer, PART_UP, true, is_scales);
}
