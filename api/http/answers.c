/* answers.c - see answers.h. */
#include "api/http/answers.h"

#include "core/base/clock.h"
#include "core/base/list.h"

#include <stddef.h>
#include <string.h>
#include <sys/socket.h>

/* The granularity of the count: few calls take the lock. */
enum { STEP_BYTES = 16 << 10 };
/* How long a client may pause while others need memory. */
#define PATIENCE_NS UINT64_C(2000000000)

void answers_init(struct answers *as, uint64_t max_bytes) {
    memset(as, 0, sizeof *as);
    pthread_mutex_init(&as->mu, NULL);
    as->max_bytes = max_bytes;
}

void answers_set_max(struct answers *as, uint64_t max_bytes) {
    pthread_mutex_lock(&as->mu);
    as->max_bytes = max_bytes;
    pthread_mutex_unlock(&as->mu);
}

void answers_fini(struct answers *as) {
    pthread_mutex_destroy(&as->mu);
}

/* What follows has the lock. */

static void unlink_hold(struct answers *as, struct answer_hold *h) {
    if (!h->sent) return;
    LINKED_REMOVE(as, h);
    h->sent = false;
}

/* Cuts off the client that has paused longest. Its bytes are not counted any more; an HTTP thread
 * will free them. false: no client has paused too long. */
static bool cut_slowest(struct answers *as) {
    uint64_t now = clock_now_ns(), longest = PATIENCE_NS;
    struct answer_hold *slowest = NULL;
    for (struct answer_hold *h = as->first; h; h = h->next) {
        uint64_t read_ns = atomic_load(&h->read_ns);
        if (now < read_ns || now - read_ns < longest) continue;
        longest = now - read_ns;
        slowest = h;
    }
    if (!slowest) return false;
    shutdown(slowest->fd, SHUT_RDWR);
    unlink_hold(as, slowest);
    slowest->cut = true;
    as->bytes -= slowest->bytes;
    as->n_cut++;
    return true;
}

static bool resize_hold(struct answers *as, struct answer_hold *h, uint64_t bytes) {
    if (h->cut) { /* its bytes are not in the sum any more */
        h->bytes = bytes;
        return true;
    }
    while (bytes > h->bytes && as->bytes + (bytes - h->bytes) > as->max_bytes)
        if (!cut_slowest(as)) return false;
    as->bytes = as->bytes + bytes - h->bytes;
    h->bytes = bytes;
    if (!bytes) unlink_hold(as, h);
    return true;
}

bool answers_hold(struct answers *as, struct answer_hold *h, uint64_t bytes) {
    uint64_t counted = bytes > ANSWERS_FREE_BYTES ? bytes - ANSWERS_FREE_BYTES : 0;
    counted = (counted + STEP_BYTES - 1) / STEP_BYTES * STEP_BYTES;
    if (counted == h->bytes && counted) return true;
    if (!counted && !h->bytes && !h->sent) return true;
    pthread_mutex_lock(&as->mu);
    bool ok = resize_hold(as, h, counted);
    pthread_mutex_unlock(&as->mu);
    return ok;
}

void answers_send(struct answers *as, struct answer_hold *h, int fd) {
    if (!h->bytes) return;
    pthread_mutex_lock(&as->mu);
    atomic_store(&h->read_ns, clock_now_ns());
    h->fd = fd;
    h->sent = true;
    LINKED_INSERT(as, NULL, h);
    pthread_mutex_unlock(&as->mu);
}

void answers_read(struct answer_hold *h) {
    atomic_store(&h->read_ns, clock_now_ns());
}

void answers_stats(struct answers *as, struct answers_stats *out) {
    pthread_mutex_lock(&as->mu);
    *out = (struct answers_stats){as->bytes, as->n_cut};
    pthread_mutex_unlock(&as->mu);
}
