/* fake_pool.h - the backend calls that core/kv makes, over plain memory, for tests of the pager and
 * the scheduler. With one KV head and head_dim 2 of F32 a slot of the K pool is one uint64_t: tests
 * store there the number of the slot's text. Include in one file of a test only. */
#ifndef INFERD_TESTS_FAKE_POOL_H
#define INFERD_TESTS_FAKE_POOL_H

#include "core/backend/ops.h"
#include "tests/unit/check.h"

#include <stdlib.h>

enum { FAKE_HEADS = 1, FAKE_HEAD_DIM = 2 };

struct backend_buf {
    uint64_t bytes;
    uint64_t *data;
};

static uint64_t fake_copies;
static uint32_t fake_ranks = 1; /* of a group; all ranks are one device */

uint32_t backend_n_ranks(const backend *be) {
    (void)be;
    return fake_ranks;
}

uint32_t backend_n_local(const backend *be) {
    (void)be;
    return fake_ranks;
}

uint32_t backend_n_here(const backend *be) {
    (void)be;
    return fake_ranks;
}

backend *backend_peer(backend *be, uint32_t rank) {
    CHECK(rank < fake_ranks);
    return be;
}

int backend_buf_new(backend *be, uint64_t bytes, backend_buf **out, err *e) {
    backend_buf *buf = malloc(sizeof *buf);
    (void)be, (void)e;
    buf->bytes = bytes;
    buf->data = calloc(1, bytes);
    *out = buf;
    return 0;
}

void backend_buf_free(backend_buf *buf) {
    if (!buf) return;
    free(buf->data);
    free(buf);
}

/* Every second call runs its copies in reverse: their order within a call is arbitrary. */
int backend_kv_copy(backend *be, const struct op_kv_copy *a) {
    const struct backend_kv *pool = &a->kv;
    const int32_t *pairs = a->pairs;
    uint32_t n_pairs = a->n_pairs;
    uint64_t n = pool->block_tokens;
    (void)be;
    CHECK(pool->k->bytes == n * pool->n_blocks * sizeof(uint64_t) &&
          pool->v->bytes == pool->k->bytes);
    for (uint32_t i = 0; i < n_pairs; i++) {
        uint32_t at = fake_copies % 2 ? i : n_pairs - 1 - i;
        CHECK(pairs[2 * at] != pairs[2 * at + 1]);
        memcpy(pool->k->data + n * (uint64_t)pairs[2 * at + 1],
               pool->k->data + n * (uint64_t)pairs[2 * at], n * sizeof(uint64_t));
    }
    fake_copies++;
    return 0;
}

#endif
