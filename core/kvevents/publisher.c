/* publisher.c - see kvevents.h. Owns the ring between the cache's thread and its own, the sockets,
 * which only its own thread uses after kvevents_open, and the batches that are kept for replay. */
#include "core/kvevents/kvevents.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/thread.h"
#include "core/kvevents/pack.h"
#include "core/kvevents/zmq.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    BATCH_EVENTS = 512,
    BATCH_BYTES = 1 << 20,  /* 512 events of 32 tokens take 100 KiB */
    REPLAY_BATCHES = 1000,  /* and what a subscriber may be behind */
    REPLAY_POLL_MS = 20,    /* how long a request for replay waits at most */
    IDLE_MS = 1000,         /* the clock of the wait may be set: looks again soon */
    REQUEST_MAX_BYTES = 64, /* of a request for replay; larger ones end its connection */
    IDENTITY_BYTES = 256,
    MODEL_BYTES = 128,
    TOPIC_BYTES = 512
};

/* A batch as it was sent. */
struct kept {
    uint64_t seq;
    char *bytes; /* (n) owned */
    size_t n;
};

struct kvevents {
    struct zmq zmq;
    void *context, *pub, *router; /* router NULL: no replay */
    char *name;
    uint64_t replay_bytes;
    pthread_t thread;
    bool started;

    pthread_mutex_t mu;
    pthread_cond_t wake; /* the ring is not empty any more, or closing */
    /* Guarded by mu: */
    struct pack_event *ring; /* (KVEVENTS_QUEUED) */
    size_t first, n;
    bool overflow, closing, attached;
    char model[MODEL_BYTES];
    uint32_t block_tokens;
    uint64_t n_dropped; /* since the overflow began */

    /* The thread's: */
    struct pack_event *batch; /* (BATCH_EVENTS + 1) */
    str packed;
    uint64_t seq;
    struct kept kept[REPLAY_BATCHES]; /* a ring, oldest at kept_first */
    size_t kept_first, n_kept;
    uint64_t kept_bytes;
};

/* ---- the cache's thread ---- */

/* A place at the end of the ring; NULL: there is none. With mu held. */
static struct pack_event *push_event(kvevents *k) {
    if (k->n == KVEVENTS_QUEUED) k->overflow = true;
    if (k->overflow) {
        k->n_dropped++;
        return NULL;
    }
    if (!k->n) pthread_cond_signal(&k->wake);
    return &k->ring[(k->first + k->n++) % KVEVENTS_QUEUED];
}

static void on_block(void *arg, const struct kv_event *event) {
    kvevents *k = arg;
    pthread_mutex_lock(&k->mu);
    struct pack_event *e = push_event(k);
    if (e) {
        e->kind = event->stored ? PACK_STORED : PACK_REMOVED;
        e->has_parent = event->has_parent;
        e->hash = event->hash;
        e->parent = event->parent;
        if (event->stored) memcpy(e->tokens, event->tokens, k->block_tokens * sizeof *e->tokens);
    }
    pthread_mutex_unlock(&k->mu);
}

bool kvevents_attach(kvevents *k, const char *model, uint32_t block_tokens,
                     struct kv_listener *out) {
    *out = (struct kv_listener){0};
    if (!k || block_tokens > KV_EVENT_MAX_TOKENS) return false;
    pthread_mutex_lock(&k->mu);
    /* What an earlier model left must be sent under its name. */
    while (!k->attached && (k->n || k->overflow) && !k->closing)
        pthread_cond_wait(&k->wake, &k->mu);
    bool takes = !k->attached;
    if (takes) {
        k->attached = true;
        k->block_tokens = block_tokens;
        snprintf(k->model, sizeof k->model, "%s", model);
        *out = (struct kv_listener){on_block, k};
    }
    pthread_mutex_unlock(&k->mu);
    return takes;
}

void kvevents_detach(kvevents *k, const char *model) {
    if (!k) return;
    pthread_mutex_lock(&k->mu);
    if (k->attached && strncmp(k->model, model, sizeof k->model - 1) == 0) {
        k->attached = false;
        struct pack_event *e = push_event(k); /* if it does not fit the overflow says the same */
        if (e) e->kind = PACK_CLEARED;
    }
    pthread_mutex_unlock(&k->mu);
}

/* ---- the thread ---- */

static double wall_time_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Waits for events and copies the next ones to k->batch. 0: none have come, or it is closing. */
static size_t take_batch(kvevents *k, char topic[TOPIC_BYTES], uint32_t *block_tokens) {
    const uint64_t until_ns =
        clock_now_ns() + (k->router ? REPLAY_POLL_MS : IDLE_MS) * UINT64_C(1000000);
    pthread_mutex_lock(&k->mu);
    if (!k->n && !k->overflow && !k->closing) clock_cond_wait(&k->wake, &k->mu, until_ns);
    size_t n = k->n < BATCH_EVENTS ? k->n : BATCH_EVENTS;
    for (size_t i = 0; i < n; i++)
        k->batch[i] = k->ring[(k->first + i) % KVEVENTS_QUEUED];
    k->first = (k->first + n) % KVEVENTS_QUEUED;
    k->n -= n;
    uint64_t n_dropped = 0;
    if (!k->n && k->overflow) { /* what was told before is void */
        n_dropped = k->n_dropped;
        k->overflow = false;
        k->n_dropped = 0;
        k->batch[n++].kind = PACK_CLEARED;
    }
    if (n) snprintf(topic, TOPIC_BYTES, "kv@%s@%s", k->name, k->model);
    *block_tokens = k->block_tokens;
    if (!k->n && !k->attached) pthread_cond_broadcast(&k->wake); /* kvevents_attach may wait */
    pthread_mutex_unlock(&k->mu);
    if (n_dropped)
        log_warn("kv events: %llu were dropped, because more came than could be sent; indexes "
                 "forget what this replica has",
                 (unsigned long long)n_dropped);
    return n;
}

static void drop_oldest(kvevents *k) {
    struct kept *old = &k->kept[k->kept_first];
    k->kept_bytes -= old->n;
    free(old->bytes);
    k->kept_first = (k->kept_first + 1) % REPLAY_BATCHES;
    k->n_kept--;
}

/* Takes the batch's bytes. */
static void keep_batch(kvevents *k, char *bytes, size_t n) {
    while (k->n_kept && (k->n_kept == REPLAY_BATCHES || k->kept_bytes + n > k->replay_bytes))
        drop_oldest(k);
    if (!k->router || n > k->replay_bytes) {
        free(bytes);
        return;
    }
    k->kept[(k->kept_first + k->n_kept++) % REPLAY_BATCHES] = (struct kept){k->seq, bytes, n};
    k->kept_bytes += n;
}

static void write_seq(char to[8], uint64_t seq) {
    for (int i = 0; i < 8; i++)
        to[i] = (char)(seq >> (8 * (7 - i)));
}

static void publish_batch(kvevents *k, size_t n, const char *topic, uint32_t block_tokens) {
    char seq[8];
    str_init(&k->packed, BATCH_BYTES);
    pack_batch(k->batch, n, block_tokens, wall_time_s(), &k->packed);
    size_t n_bytes = k->packed.len;
    char *bytes = str_take(&k->packed);
    write_seq(seq, k->seq);
    /* Without memory the number is missing in the sequence: subscribers see that they lost one. */
    if (bytes) {
        k->zmq.send(k->pub, topic, strlen(topic), ZMQ_SNDMORE);
        k->zmq.send(k->pub, seq, sizeof seq, ZMQ_SNDMORE);
        k->zmq.send(k->pub, bytes, n_bytes, 0);
        keep_batch(k, bytes, n_bytes);
    }
    k->seq++;
}

static void send_replay(kvevents *k, const char *identity, size_t n_identity, uint64_t from) {
    char seq[8];
    const struct kept end = {UINT64_MAX, "", 0};
    for (size_t i = 0; i <= k->n_kept; i++) {
        const struct kept *b =
            i < k->n_kept ? &k->kept[(k->kept_first + i) % REPLAY_BATCHES] : &end;
        if (b->seq < from) continue;
        write_seq(seq, b->seq);
        k->zmq.send(k->router, identity, n_identity, ZMQ_SNDMORE | ZMQ_DONTWAIT);
        k->zmq.send(k->router, "", 0, ZMQ_SNDMORE | ZMQ_DONTWAIT);
        k->zmq.send(k->router, seq, sizeof seq, ZMQ_SNDMORE | ZMQ_DONTWAIT);
        k->zmq.send(k->router, b->bytes, b->n, ZMQ_DONTWAIT);
    }
}

/* Answers at most one request: its frames are the client's identity, an empty one, and a number. */
static void serve_replay(kvevents *k) {
    char identity[IDENTITY_BYTES], empty[1];
    unsigned char number[8];
    struct {
        void *bytes;
        size_t most;
        int n;
    } frames[] = {{identity, sizeof identity, 0}, {empty, sizeof empty, 0}, {number, 8, 0}};
    size_t n_frames = 0;
    int more = 1;
    while (more) {
        char rest[1];
        bool known = n_frames < sizeof frames / sizeof *frames;
        int n = known ? k->zmq.recv(k->router, frames[n_frames].bytes, frames[n_frames].most,
                                    ZMQ_DONTWAIT)
                      : k->zmq.recv(k->router, rest, sizeof rest, ZMQ_DONTWAIT);
        if (n < 0) return; /* nothing has come */
        if (known) frames[n_frames].n = n;
        n_frames++;
        size_t size = sizeof more;
        if (k->zmq.getsockopt(k->router, ZMQ_RCVMORE, &more, &size)) return;
    }
    if (n_frames != 3 || frames[0].n > IDENTITY_BYTES || frames[1].n || frames[2].n != 8) return;
    uint64_t from = 0;
    for (int i = 0; i < 8; i++)
        from = from << 8 | number[i];
    send_replay(k, identity, (size_t)frames[0].n, from);
}

static void *run_publisher(void *arg) {
    kvevents *k = arg;
    for (bool closing = false; !closing;) {
        char topic[TOPIC_BYTES];
        uint32_t block_tokens;
        size_t n = take_batch(k, topic, &block_tokens);
        if (n) publish_batch(k, n, topic, block_tokens);
        if (k->router) serve_replay(k);
        pthread_mutex_lock(&k->mu);
        closing = k->closing && !n;
        pthread_mutex_unlock(&k->mu);
    }
    return NULL;
}

/* ---- opening ---- */

/* Options first: they hold for connections that come after them. */
static int open_socket(kvevents *k, int type, const char *endpoint, const char *param, void **out,
                       err *e) {
    const int none = 0, one = 1, few = 16, hwm = REPLAY_BATCHES + 1;
    const int64_t most = REQUEST_MAX_BYTES;
    void *s = k->zmq.socket(k->context, type);
    if (!s) return err_set(e, ERR_IO, "libzmq: %s", k->zmq.strerror(k->zmq.error()));
    *out = s;
    if (k->zmq.setsockopt(s, ZMQ_LINGER, &none, sizeof none) ||
        k->zmq.setsockopt(s, ZMQ_IPV6, &one, sizeof one) ||
        k->zmq.setsockopt(s, ZMQ_SNDHWM, &hwm, sizeof hwm) ||
        k->zmq.setsockopt(s, ZMQ_RCVHWM, &few, sizeof few) ||
        (type == ZMQ_ROUTER && k->zmq.setsockopt(s, ZMQ_MAXMSGSIZE, &most, sizeof most)))
        return err_set(e, ERR_IO, "libzmq: %s", k->zmq.strerror(k->zmq.error()));
    if (k->zmq.bind(s, endpoint))
        return err_set_param(e, ERR_IO, param, "cannot listen on \"%.128s\": %s", endpoint,
                             k->zmq.strerror(k->zmq.error()));
    return 0;
}

static int open_all(kvevents *k, const struct kvevents_config *config, err *e) {
    k->name = mem_strdup(config->name);
    k->ring = mem_new(KVEVENTS_QUEUED, sizeof *k->ring);
    k->batch = mem_new(BATCH_EVENTS + 1, sizeof *k->batch);
    if (!k->name || !k->ring || !k->batch) return err_no_memory(e);
    k->replay_bytes = config->replay_bytes;
    int rc = zmq_load(&k->zmq, e);
    if (rc) return rc;
    k->context = k->zmq.ctx_new();
    if (!k->context) return err_no_memory(e);
    rc = open_socket(k, ZMQ_PUB, config->endpoint, "endpoint", &k->pub, e);
    if (!rc && config->replay[0])
        rc = open_socket(k, ZMQ_ROUTER, config->replay, "replay", &k->router, e);
    if (rc) return rc;
    rc = thread_start(&k->thread, run_publisher, k, "publishes KV events", e);
    k->started = !rc;
    return rc;
}

int kvevents_open(const struct kvevents_config *config, kvevents **out, err *e) {
    *out = NULL;
    kvevents *k = mem_new(1, sizeof *k);
    if (!k) return err_no_memory(e);
    pthread_mutex_init(&k->mu, NULL);
    clock_cond_init(&k->wake);
    int rc = open_all(k, config, e);
    if (rc) {
        kvevents_close(k);
        return rc;
    }
    log_info("kv events: published at %s%s%s", config->endpoint,
             config->replay[0] ? ", replayed at " : "", config->replay);
    *out = k;
    return 0;
}

void kvevents_close(kvevents *k) {
    if (!k) return;
    pthread_mutex_lock(&k->mu);
    k->closing = true;
    pthread_cond_broadcast(&k->wake);
    pthread_mutex_unlock(&k->mu);
    if (k->started) pthread_join(k->thread, NULL);
    if (k->pub) k->zmq.close(k->pub);
    if (k->router) k->zmq.close(k->router);
    if (k->context) k->zmq.ctx_term(k->context);
    while (k->n_kept)
        drop_oldest(k);
    free(k->name);
    free(k->ring);
    free(k->batch);
    pthread_mutex_destroy(&k->mu);
    pthread_cond_destroy(&k->wake);
    free(k);
}
