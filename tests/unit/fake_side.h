/* fake_side.h - the side stream of fake_device.h. Copies happen as late as is allowed: when an op
 * waits for their batch, or some calls after one has asked whether it is done. Part of
 * fake_device.h. */
#ifndef INFERD_TESTS_FAKE_SIDE_H
#define INFERD_TESTS_FAKE_SIDE_H

enum { FAKE_STAGING = 1 << 16 };
static atomic_int fake_side_joins; /* steps that had to wait for copies */

struct fake_side_copy {
    struct fake_side_copy *next;
    uint64_t batch;
    void *to;
    const void *from; /* of a copy in: bytes behind this struct */
    uint64_t n;
    bool in;
};

static void fake_side_run(backend *be, uint64_t upto) {
    struct fake_side *s = &be->side;
    for (struct fake_side_copy *c; (c = s->first) && c->batch <= upto;) {
        memcpy(c->to, c->from, c->n);
        if (c->in) s->n_staged -= c->n;
        if (!(s->first = c->next)) s->last = &s->first;
        free(c);
    }
    if (s->n_done < upto) s->n_done = upto;
}

static void fake_side_close(backend *be) {
    fake_require(!be->side.first);
    fake_side_run(be, UINT64_MAX);
}

int backend_host_new(backend *be, uint64_t bytes, void **out, err *e) {
    (void)be, (void)e;
    *out = calloc(1, bytes);
    return 0;
}

void backend_host_free(backend *be, void *p) {
    (void)be;
    free(p);
}

int backend_side_open(backend *be, uint64_t most_bytes, err *e) {
    (void)most_bytes, (void)e;
    fake_require(!be->side.last);
    be->side.last = &be->side.first;
    return 0;
}

/* The ops before it, of which those in the queue have not run. */
int backend_side_begin(backend *be, err *e) {
    struct fake_side *s = &be->side;
    (void)e;
    fake_require(s->n_begun == s->n_ended && s->n_begun - s->n_done < BACKEND_SIDE_BATCHES);
    s->behind[s->n_begun++ % BACKEND_SIDE_BATCHES] = be->n_run + be->n_queue;
    return 0;
}

static struct fake_side_copy *fake_side_add(backend *be, uint64_t bytes, bool in) {
    struct fake_side *s = &be->side;
    struct fake_side_copy *c = malloc(sizeof *c + (in ? bytes : 0));
    fake_require(s->n_begun == s->n_ended + 1);
    *c = (struct fake_side_copy){.batch = s->n_begun, .n = bytes, .in = in};
    *s->last = c;
    s->last = &c->next;
    return c;
}

int backend_side_out(backend *be, const backend_buf *src, uint64_t offset, void *to, uint64_t bytes,
                     err *e) {
    (void)e;
    fake_require(offset + bytes <= src->bytes);
    struct fake_side_copy *c = fake_side_add(be, bytes, false);
    c->from = src->data + offset;
    c->to = to;
    memset(to, 0xee, bytes); /* too early for its owner */
    return 0;
}

int backend_side_in(backend *be, backend_buf *dst, uint64_t offset, const void *from,
                    uint64_t bytes, err *e) {
    struct fake_side *s = &be->side;
    fake_require(offset + bytes <= dst->bytes);
    if (s->first && (s->n_staged + bytes > FAKE_STAGING || ++s->n_calls % 7 == 0))
        return err_set(e, ERR_FULL, "copies are under way");
    struct fake_side_copy *c = fake_side_add(be, bytes, true);
    c->to = dst->data + offset;
    c->from = memcpy(c + 1, from, bytes);
    s->n_staged += bytes;
    return 0;
}

int backend_side_end(backend *be, err *e) {
    (void)e;
    fake_require(be->side.n_begun == be->side.n_ended + 1);
    be->side.n_ended++;
    return 0;
}

int backend_side_done(backend *be, uint64_t *n, err *e) {
    struct fake_side *s = &be->side;
    (void)e;
    if (s->n_done < s->n_ended && s->behind[s->n_done % BACKEND_SIDE_BATCHES] <= be->n_run &&
        ++s->n_calls % 3 == 0)
        fake_side_run(be, s->n_done + 1);
    *n = s->n_done;
    return 0;
}

int backend_side_join(backend *be, err *e) {
    (void)e;
    fake_queue(be)->join = be->side.n_ended;
    atomic_fetch_add(&fake_side_joins, 1);
    return 0;
}

int backend_side_wait(backend *be, err *e) {
    (void)e;
    fake_side_run(be, be->side.n_ended);
    return 0;
}

#endif
