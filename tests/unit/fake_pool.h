/* fake_pool.h - the backend calls that core/kv makes, over plain memory, for tests of the pager and
 * the scheduler. With one KV head and head_dim 2 of F32 a slot of the K pool is one uint64_t: tests
 * store there the number of the slot's text. Include in one file of a test only. */
#ifndef INFERD_TESTS_FAKE_POOL_H
#define INFERD_TESTS_FAKE_POOL_H

#include "core/backend/ops.h"
#include "tests/unit/check.h"

#include <stdlib.h>
#include <string.h>

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

/* Copies of the side stream run when fake_side_run is called, or when an op waits for them. */
static struct fake_side {
    struct fake_side_copy {
        void *to;
        const void *from;
        uint64_t bytes;
    } copies[4096];
    uint32_t n_copies, n_joins;
    uint64_t n_ended, n_done;
    uint64_t staging[1 << 14]; /* of copies in, until they run */
    uint64_t n_staged;         /* bytes */
} fake_side;

static inline void fake_side_run(void) {
    for (uint32_t i = 0; i < fake_side.n_copies; i++)
        memcpy(fake_side.copies[i].to, fake_side.copies[i].from, fake_side.copies[i].bytes);
    fake_side.n_copies = 0;
    fake_side.n_staged = 0;
    fake_side.n_done = fake_side.n_ended;
}

int backend_side_open(backend *be, uint64_t most_bytes, err *e) {
    (void)be, (void)most_bytes, (void)e;
    fake_side = (struct fake_side){0};
    return 0;
}

int backend_side_begin(backend *be, err *e) {
    (void)be, (void)e;
    CHECK(fake_side.n_ended - fake_side.n_done < BACKEND_SIDE_BATCHES);
    return 0;
}

static void fake_side_add(void *to, const void *from, uint64_t bytes) {
    CHECK(fake_side.n_copies < sizeof fake_side.copies / sizeof fake_side.copies[0]);
    fake_side.copies[fake_side.n_copies++] = (struct fake_side_copy){to, from, bytes};
}

int backend_side_out(backend *be, const backend_buf *src, uint64_t offset, void *to, uint64_t bytes,
                     err *e) {
    (void)be, (void)e;
    CHECK(offset + bytes <= src->bytes);
    fake_side_add(to, (const char *)src->data + offset, bytes);
    return 0;
}

int backend_side_in(backend *be, backend_buf *dst, uint64_t offset, const void *from,
                    uint64_t bytes, err *e) {
    (void)be;
    CHECK(offset + bytes <= dst->bytes && bytes <= sizeof fake_side.staging);
    if (fake_side.n_staged + bytes > sizeof fake_side.staging)
        return err_set(e, ERR_FULL, "copies are under way");
    char *place = (char *)fake_side.staging + fake_side.n_staged;
    memcpy(place, from, bytes);
    fake_side.n_staged += bytes;
    fake_side_add((char *)dst->data + offset, place, bytes);
    return 0;
}

int backend_side_end(backend *be, err *e) {
    (void)be, (void)e;
    fake_side.n_ended++;
    return 0;
}

int backend_side_done(backend *be, uint64_t *n, err *e) {
    (void)be, (void)e;
    *n = fake_side.n_done;
    return 0;
}

int backend_side_join(backend *be, err *e) {
    (void)be, (void)e;
    fake_side.n_joins++;
    fake_side_run();
    return 0;
}

int backend_side_wait(backend *be, err *e) {
    (void)be, (void)e;
    fake_side_run();
    return 0;
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
