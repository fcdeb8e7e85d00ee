/* wire.c - a connection to another stage: messages, over TLS 1.3 with a pre-shared key or plain.
 * Owns the socket, GnuTLS's session, the thread that reads, and the slots that it reads into.
 *
 * A message is a head of 8 bytes (its bytes u32, a kind u8, a word u8, two zeros), then its bytes.
 * GnuTLS lets one thread send while another receives. Memory of slots grows to the largest message,
 * at most to what wire_allow says; there is as much as messages waited at once. */
#include "core/backend/tcp/tcp_int.h"

#include "core/base/clock.h"
#include "core/base/mem.h"
#include "core/base/thread.h"

#include <errno.h>
#include <gnutls/gnutls.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* A stage has at most one message of each step in flight, and few others. */
enum { N_SLOTS = LINK_MAX_RANKS + 4, SMALL_BYTES = 8192, HEAD_BYTES = 8 };
enum { LOOK_MS = 100 };               /* how often who waits looks whether to give up */
#define SHORT_NS UINT64_C(1000000000) /* for a short message that has begun */
enum kind { KIND_BEAT = 1, KIND_DATA, KIND_LEAVE };

static const char priorities[] = "SECURE128:-VERS-ALL:+VERS-TLS1.3:-KX-ALL:+ECDHE-PSK";
static const char user[] = "inferd";

struct slot {
    char *bytes;
    uint32_t n, room;
};

struct wire {
    int fd;
    gnutls_session_t tls; /* NULL: plain */
    gnutls_psk_client_credentials_t client;
    gnutls_psk_server_credentials_t server;
    uint8_t key[TCP_KEY_BYTES];
    uint32_t peer;
    pthread_t reader;
    bool started;
    atomic_bool stopping;
    atomic_uint most;
    atomic_uint_least64_t heard_ns;
    atomic_uchar word;

    pthread_mutex_t write_lock; /* the connection, to write; held while it is full */

    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct slot slots[N_SLOTS]; /* n messages from first on; guarded by lock, as all below */
    uint32_t first, n;
    bool left;     /* the other side has said so */
    char why[200]; /* not empty: nothing more comes */
};

/* ---- bytes ---- */

static const char closed[] = "it closed the connection", broke[] = "the connection broke";

static const char *why_of(int error) {
    return error == ECONNRESET || error == EPIPE ? broke : strerror(error);
}

/* Up to n bytes. 0: not now. -1: never; *why says it. */
static int64_t read_some(struct wire *w, void *to, size_t n, const char **why) {
    if (!w->tls) {
        const ssize_t got = recv(w->fd, to, n, 0);
        *why = got == 0 ? closed : got < 0 ? why_of(errno) : NULL;
        if (got > 0) return got;
        return got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) ? 0 : -1;
    }
    const ssize_t got = gnutls_record_recv(w->tls, to, n);
    if (got > 0) return got;
    if (got == GNUTLS_E_AGAIN || got == GNUTLS_E_INTERRUPTED) return 0;
    *why = got == 0 || got == GNUTLS_E_PREMATURE_TERMINATION ? closed
           : got == GNUTLS_E_PULL_ERROR                      ? broke
                                                             : gnutls_strerror((int)got);
    return -1;
}

static int64_t write_some(struct wire *w, const void *from, size_t n, const char **why) {
    if (!w->tls) {
        const ssize_t sent = send(w->fd, from, n, MSG_NOSIGNAL);
        if (sent >= 0) return sent;
        *why = why_of(errno);
        return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? 0 : -1;
    }
    const ssize_t sent = gnutls_record_send(w->tls, from, n);
    if (sent >= 0) return sent;
    *why = sent == GNUTLS_E_PUSH_ERROR ? broke : gnutls_strerror((int)sent);
    return sent == GNUTLS_E_AGAIN || sent == GNUTLS_E_INTERRUPTED ? 0 : -1;
}

static bool is_ready(const struct wire *w, short events, int ms) {
    struct pollfd p = {.fd = w->fd, .events = events};
    return poll(&p, 1, ms) > 0;
}

/* Should the caller, who waits, give up? */
struct patience {
    uint64_t deadline_ns;      /* 0: none */
    const atomic_bool *broken; /* NULL: none */
};
static const char *end_of(const struct patience *p) {
    if (p->broken && atomic_load(p->broken)) return "the group is broken";
    return p->deadline_ns && clock_now_ns() >= p->deadline_ns ? "it does not answer" : NULL;
}

/* NULL, or why not. */
static const char *write_all(struct wire *w, const void *bytes, size_t n,
                             const struct patience *p) {
    const char *from = bytes, *why = NULL;
    while (n) {
        const int64_t sent = write_some(w, from, n, &why);
        if (sent < 0) return why;
        from += sent;
        n -= (size_t)sent;
        if (sent) continue;
        if ((why = end_of(p))) return why;
        is_ready(w, POLLOUT, LOOK_MS);
    }
    return NULL;
}

static const char *read_all(struct wire *w, void *to, size_t n, const struct patience *p) {
    const char *why = NULL;
    for (char *at = to; n;) {
        const int64_t got = read_some(w, at, n, &why);
        if (got < 0) return why;
        at += got;
        n -= (size_t)got;
        if (got) {
            atomic_store(&w->heard_ns, clock_now_ns());
            continue;
        }
        if ((why = end_of(p))) return why;
        is_ready(w, POLLIN, LOOK_MS);
    }
    return NULL;
}

int wire_write(struct wire *w, const void *bytes, size_t n, uint64_t deadline_ns, err *e) {
    const char *why = write_all(w, bytes, n, &(struct patience){.deadline_ns = deadline_ns});
    return why ? err_set(e, ERR_IO, "%s", why) : 0;
}

int wire_read(struct wire *w, void *bytes, size_t n, uint64_t deadline_ns, err *e) {
    const char *why = read_all(w, bytes, n, &(struct patience){.deadline_ns = deadline_ns});
    return why ? err_set(e, ERR_IO, "%s", why) : 0;
}

bool wire_is_closed(const struct wire *w) {
    char byte;
    const ssize_t n = recv(w->fd, &byte, 1, MSG_PEEK);
    return n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

/* ---- TLS ---- */

static int give_key(gnutls_session_t session, const char *name, gnutls_datum_t *key) {
    const struct wire *w = gnutls_session_get_ptr(session);
    if (strcmp(name, user) != 0) return -1;
    key->data = gnutls_malloc(TCP_KEY_BYTES);
    if (!key->data) return -1;
    memcpy(key->data, w->key, TCP_KEY_BYTES);
    key->size = TCP_KEY_BYTES;
    return 0;
}

static int set_credentials(struct wire *w, bool dialed) {
    const gnutls_datum_t key = {w->key, TCP_KEY_BYTES};
    int why;
    if (dialed) {
        why = gnutls_psk_allocate_client_credentials(&w->client);
        if (!why)
            why = gnutls_psk_set_client_credentials(w->client, user, &key, GNUTLS_PSK_KEY_RAW);
        return why ? why : gnutls_credentials_set(w->tls, GNUTLS_CRD_PSK, w->client);
    }
    why = gnutls_psk_allocate_server_credentials(&w->server);
    if (!why) gnutls_psk_set_server_credentials_function(w->server, give_key);
    return why ? why : gnutls_credentials_set(w->tls, GNUTLS_CRD_PSK, w->server);
}

static int shake_hands(struct wire *w, bool dialed, uint64_t deadline_ns, err *e) {
    const unsigned flags = (dialed ? GNUTLS_CLIENT : GNUTLS_SERVER) | GNUTLS_NONBLOCK |
                           GNUTLS_NO_TICKETS | GNUTLS_NO_SIGNAL;
    int why = gnutls_init(&w->tls, flags);
    if (why) return err_set(e, ERR_NOMEM, "TLS: %s", gnutls_strerror(why));
    gnutls_session_set_ptr(w->tls, w);
    gnutls_transport_set_int(w->tls, w->fd);
    why = gnutls_priority_set_direct(w->tls, priorities, NULL);
    if (!why) why = set_credentials(w, dialed);
    const struct patience patience = {.deadline_ns = deadline_ns};
    const char *end = NULL;
    while (!why && (why = gnutls_handshake(w->tls)) < 0 && !gnutls_error_is_fatal(why) &&
           !(end = end_of(&patience))) {
        is_ready(w, gnutls_record_get_direction(w->tls) ? POLLOUT : POLLIN, LOOK_MS);
        why = 0;
    }
    if (!why) return 0;
    return err_set(e, ERR_INVALID,
                   "the TLS handshake failed (%s): do both stages have the same "
                   "stage-secret-file?",
                   end ? end : gnutls_strerror(why));
}

int wire_open(int fd, const uint8_t *key, bool dialed, uint64_t deadline_ns, struct wire **out,
              err *e) {
    struct wire *w = mem_new(1, sizeof *w);
    *out = NULL;
    if (!w) {
        close(fd);
        return err_no_memory(e);
    }
    w->fd = fd;
    pthread_mutex_init(&w->write_lock, NULL);
    pthread_mutex_init(&w->lock, NULL);
    clock_cond_init(&w->changed);
    atomic_init(&w->most, LINK_TCP_FIRST_BYTES);
    if (key) memcpy(w->key, key, sizeof w->key);
    int rc = key ? shake_hands(w, dialed, deadline_ns, e) : 0;
    if (rc) {
        wire_close(w);
        return rc;
    }
    *out = w;
    return 0;
}

void wire_close(struct wire *w) {
    if (!w) return;
    atomic_store(&w->stopping, true);
    shutdown(w->fd, SHUT_RDWR);
    pthread_mutex_lock(&w->lock);
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    if (w->started) pthread_join(w->reader, NULL);
    if (w->tls) gnutls_deinit(w->tls);
    if (w->client) gnutls_psk_free_client_credentials(w->client);
    if (w->server) gnutls_psk_free_server_credentials(w->server);
    gnutls_memset(w->key, 0, sizeof w->key);
    close(w->fd);
    for (int i = 0; i < N_SLOTS; i++)
        free(w->slots[i].bytes);
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    pthread_mutex_destroy(&w->write_lock);
    free(w);
}

/* ---- messages: reading ---- */

/* Under w->lock: for a change, or until it is time to look around. */
static void wait_for_change(struct wire *w) {
    clock_cond_wait(&w->changed, &w->lock, clock_now_ns() + LOOK_MS * UINT64_C(1000000));
}

/* The slot for the next message: waits for one. NULL: the wire is closed. */
static struct slot *free_slot(struct wire *w) {
    struct slot *s = NULL;
    pthread_mutex_lock(&w->lock);
    while (w->n == N_SLOTS && !atomic_load(&w->stopping))
        wait_for_change(w);
    if (!atomic_load(&w->stopping)) s = &w->slots[(w->first + w->n) % N_SLOTS];
    pthread_mutex_unlock(&w->lock);
    return s;
}

/* Gives s, which is free, the memory of another free slot that has n bytes. */
static void borrow_memory(struct wire *w, struct slot *s, uint32_t n) {
    pthread_mutex_lock(&w->lock);
    for (uint32_t i = w->n; i < N_SLOTS && n > s->room; i++) {
        struct slot *other = &w->slots[(w->first + i) % N_SLOTS], own = *s;
        if (other->room < n) continue;
        *s = *other;
        *other = own;
    }
    pthread_mutex_unlock(&w->lock);
}

static const char *read_message(struct wire *w, uint32_t n, const struct patience *p) {
    struct slot *s;
    if (n > atomic_load(&w->most)) return "it sent a message that is too large";
    if (!(s = free_slot(w))) return "the connection is closed";
    if (n > s->room) borrow_memory(w, s, n);
    if (n > s->room) {
        free(s->bytes);
        s->room = 0;
        s->bytes = malloc(n);
        if (!s->bytes) return "out of memory for its message";
        s->room = n;
    }
    const char *why = read_all(w, s->bytes, n, p);
    if (why) return why;
    s->n = n;
    pthread_mutex_lock(&w->lock);
    w->n++;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

static void note_left(struct wire *w) {
    pthread_mutex_lock(&w->lock);
    w->left = true;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

static const char *read_next(struct wire *w, const struct patience *p) {
    uint8_t head[HEAD_BYTES];
    const char *why = read_all(w, head, sizeof head, p);
    if (why) return why;
    const uint32_t n =
        head[0] | (uint32_t)head[1] << 8 | (uint32_t)head[2] << 16 | (uint32_t)head[3] << 24;
    if (head[6] || head[7] || (head[4] != KIND_DATA && n)) return "it sent what is no message";
    switch (head[4]) {
    case KIND_BEAT:
        atomic_store(&w->word, head[5]);
        return NULL;
    case KIND_LEAVE:
        note_left(w);
        return NULL;
    case KIND_DATA:
        return read_message(w, n, p);
    default:
        return "it sent what is no message";
    }
}

static void *read_main(void *arg) {
    struct wire *w = arg;
    const struct patience p = {.broken = &w->stopping};
    const char *why = NULL;
    while (!why)
        why = read_next(w, &p);
    pthread_mutex_lock(&w->lock);
    snprintf(w->why, sizeof w->why, "stage %u: %s", w->peer, why);
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

int wire_start(struct wire *w, uint32_t peer, err *e) {
    w->peer = peer;
    atomic_store(&w->heard_ns, clock_now_ns());
    int rc = thread_start(&w->reader, read_main, w, "reads from another stage", e);
    w->started = !rc;
    return rc;
}

void wire_allow(struct wire *w, uint32_t most) {
    atomic_store(&w->most, most > LINK_TCP_FIRST_BYTES ? most : LINK_TCP_FIRST_BYTES);
}

const char *wire_receive(struct wire *w, void *bytes, uint32_t most, uint32_t *got,
                         const atomic_bool *broken) {
    const char *why = NULL;
    pthread_mutex_lock(&w->lock);
    while (!w->n && !w->why[0] && !atomic_load(broken))
        wait_for_change(w);
    const struct slot *s = &w->slots[w->first];
    if (!w->n)
        why = w->why[0] ? w->why : "the group is broken";
    else if (s->n > most)
        why = "a message is larger than expected";
    pthread_mutex_unlock(&w->lock);
    if (why) return why;
    memcpy(bytes, s->bytes, s->n); /* the reader leaves it alone */
    *got = s->n;
    pthread_mutex_lock(&w->lock);
    w->first = (w->first + 1) % N_SLOTS;
    w->n--;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

const char *wire_heard(struct wire *w, uint64_t *at_ns, uint8_t *word) {
    pthread_mutex_lock(&w->lock);
    const char *why = w->why[0] && !w->left ? w->why : NULL;
    *at_ns = w->left ? clock_now_ns() : atomic_load(&w->heard_ns);
    pthread_mutex_unlock(&w->lock);
    *word = atomic_load(&w->word);
    return why;
}

bool wire_has_left(struct wire *w) {
    pthread_mutex_lock(&w->lock);
    const bool left = w->left || w->why[0];
    pthread_mutex_unlock(&w->lock);
    return left;
}

/* ---- messages: writing ---- */

static void fill_head(uint8_t head[HEAD_BYTES], uint32_t n, enum kind kind, uint8_t word) {
    const uint8_t all[HEAD_BYTES] = {(uint8_t)n,         (uint8_t)(n >> 8), (uint8_t)(n >> 16),
                                     (uint8_t)(n >> 24), (uint8_t)kind,     word};
    memcpy(head, all, sizeof all);
}

const char *wire_send(struct wire *w, const void *bytes, uint32_t n, const atomic_bool *broken) {
    uint8_t small[SMALL_BYTES];
    const struct patience p = {.broken = broken};
    const bool fits = n <= SMALL_BYTES - HEAD_BYTES;
    fill_head(small, n, KIND_DATA, 0);
    if (fits) memcpy(small + HEAD_BYTES, bytes, n);
    pthread_mutex_lock(&w->write_lock);
    const char *why = write_all(w, small, HEAD_BYTES + (fits ? n : 0), &p);
    if (!why && !fits) why = write_all(w, bytes, n, &p);
    pthread_mutex_unlock(&w->write_lock);
    return why;
}

/* A short message, which is not sent if the connection is busy or full: then data is on its way. */
static void send_short(struct wire *w, enum kind kind, uint8_t word, uint64_t patience_ns) {
    uint8_t head[HEAD_BYTES];
    const uint64_t deadline = clock_now_ns() + patience_ns + SHORT_NS;
    fill_head(head, 0, kind, word);
    if (pthread_mutex_trylock(&w->write_lock)) return;
    if (is_ready(w, POLLOUT, (int)(patience_ns / 1000000)))
        write_all(w, head, sizeof head, &(struct patience){.deadline_ns = deadline});
    pthread_mutex_unlock(&w->write_lock);
}

void wire_beat(struct wire *w, uint8_t word) {
    send_short(w, KIND_BEAT, word, 0);
}

void wire_leave(struct wire *w) {
    send_short(w, KIND_LEAVE, 0, UINT64_C(1000000000));
}
