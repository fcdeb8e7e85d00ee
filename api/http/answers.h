/* answers.h - the memory of answers: those being made, waiting to be read, or kept to be sent
 * again. One limit for all of them.
 *
 * At the limit, clients that have not read a byte of a whole answer for a while are cut off, the
 * one that paused longest first, and their memory goes to answers that are read. If no client
 * stalls, a new answer is refused (503). Streams are never cut; they stop being kept for
 * Last-Event-ID. The first ANSWERS_FREE_BYTES of each answer are not counted, so that small ones
 * always find room.
 *
 * THREAD SAFETY: any thread; a hold by one thread at a time. */
#ifndef INFERD_API_HTTP_ANSWERS_H
#define INFERD_API_HTTP_ANSWERS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { ANSWERS_FREE_BYTES = 64 << 10 };

/* What one request or stream holds; zeroed at first. */
struct answer_hold {
    uint64_t bytes;                  /* counted */
    struct answer_hold *prev, *next; /* answers being sent; guarded by answers.mu, as fd and cut */
    int fd;
    bool sent, cut;
    atomic_uint_least64_t read_ns; /* when the client last read */
};

struct answers {
    pthread_mutex_t mu;               /* guards all below */
    struct answer_hold *first, *last; /* answers being sent */
    uint64_t bytes, max_bytes;
    uint64_t n_cut;
};

void answers_init(struct answers *as, uint64_t max_bytes);
void answers_set_max(struct answers *as, uint64_t max_bytes); /* for what is added later */
void answers_fini(struct answers *as);                        /* nothing is held any more */

/* Sets the size of h to bytes. false: the limit does not allow more; nothing changed. A smaller
 * value always succeeds; 0 ends the hold. */
bool answers_hold(struct answers *as, struct answer_hold *h, uint64_t bytes);
/* h is being sent to this socket, which may be shut down, until answers_hold(.., 0). */
void answers_send(struct answers *as, struct answer_hold *h, int fd);
/* The client of h has read bytes. */
void answers_read(struct answer_hold *h);

struct answers_stats {
    uint64_t bytes, n_cut;
};
void answers_stats(struct answers *as, struct answers_stats *out);

#endif
