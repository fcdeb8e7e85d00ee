/* tcp.c - a link of stages: a connection between each two of them. Owns the connections.
 *
 * Stage 0 connects to the last stage first and to stage 1 last, and tells each its number and all
 * addresses; each then connects to those after it. So when a stage is asked by another one, it has
 * heard of stage 0. Who connects without the secret, with other facts, or in the middle of another
 * group is refused, logged, and changes nothing; who connects and is silent delays no other stage.
 * A stage whose group has lost another one before all have met waits for stage 0 again.
 * Opening: main thread. */
#include "core/backend/tcp/tcp_int.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { LOOK_MS = 250, RETRY_MS = 200, MIN_SECRET_BYTES = 32, MAX_SECRET_BYTES = 4096 };
enum { MOST_SILENT = 16 };
#define SECOND_NS UINT64_C(1000000000)
#define MEET_NS   (60 * SECOND_NS) /* others must be reached by then */
#define HELLO_NS  (5 * SECOND_NS)  /* one stage's first messages */
#define ANSWER_NS (20 * SECOND_NS) /* the same, with those of others that came before */
#define LEAVE_NS  (3 * SECOND_NS)

struct tcp {
    struct wire *wires[LINK_MAX_RANKS]; /* NULL: this stage */
    uint32_t rank, n;
};

/* While it opens. */
struct opening {
    struct tcp *t;
    const struct backend_link_stages *how;
    struct hello own;  /* to: changes */
    bool met;          /* stage 0 was heard; rank, n and group are known */
    uint64_t until_ns; /* of a group: all must have met by then */
    bool secret;
    uint8_t key[TCP_KEY_BYTES];
    /* Connections on which nothing has come yet, the oldest first. */
    struct silent {
        int fd;
        uint64_t until_ns;
    } silent[MOST_SILENT];
    uint32_t n_silent;
};

/* ---- the secret ---- */

static int refuse_secret(const char *path, const char *why, err *e) {
    return err_set_param(e, ERR_INVALID, "stage_secret_file", "%s: %s", path, why);
}

static int read_secret_fd(int fd, const char *path, uint8_t key[TCP_KEY_BYTES], err *e) {
    char text[MAX_SECRET_BYTES + 1];
    struct stat st;
    if (fstat(fd, &st)) return refuse_secret(path, strerror(errno), e);
    if (!S_ISREG(st.st_mode)) return refuse_secret(path, "it is not a file", e);
    if (st.st_mode & 077)
        return refuse_secret(path, "others can read or write it: chmod 600 it", e);
    ssize_t n = read(fd, text, sizeof text);
    while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == '\r'))
        n--;
    int rc = 0;
    if (n < MIN_SECRET_BYTES || n > MAX_SECRET_BYTES)
        rc = refuse_secret(path, "a secret has 32 to 4096 bytes: `openssl rand -hex 32` makes one",
                           e);
    else if (gnutls_hash_fast(GNUTLS_DIG_SHA256, text, (size_t)n, key))
        rc = refuse_secret(path, "it cannot be hashed", e);
    gnutls_memset(text, 0, sizeof text);
    return rc;
}

static int read_secret(struct opening *o, err *e) {
    const char *path = o->how->secret_file;
    if (!path[0]) return 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return refuse_secret(path, strerror(errno), e);
    int rc = read_secret_fd(fd, path, o->key, e);
    close(fd);
    o->secret = !rc;
    return rc;
}

/* ---- hellos ---- */

static int say_hello(struct wire *w, const struct hello *h, uint64_t deadline_ns, err *e) {
    uint8_t bytes[HELLO_HEAD_BYTES + HELLO_MAX_BYTES];
    return wire_write(w, bytes, hello_write(h, bytes), deadline_ns, e);
}

static int hear_hello(struct wire *w, struct hello *out, uint64_t deadline_ns, err *e) {
    uint8_t bytes[HELLO_MAX_BYTES];
    uint32_t n = 0;
    int rc = wire_read(w, bytes, HELLO_HEAD_BYTES, deadline_ns, e);
    if (!rc) rc = hello_read_head(bytes, &n, e);
    if (!rc) rc = wire_read(w, bytes, n, deadline_ns, e);
    return rc ? rc : hello_read(bytes, n, out, e);
}

/* ---- the side that connects ---- */

/* Opens a connection, again and again until the other side listens. */
static int dial(const struct opening *o, uint32_t to, uint64_t deadline_ns, int *fd, err *e) {
    for (bool told = false;; told = true) {
        int rc = tcp_dial(o->own.addresses[to], !o->secret, deadline_ns, fd, e);
        if (rc == ERR_IO && !told)
            log_info("stage %u: waits for stage %u, %s", o->own.from, to, o->own.addresses[to]);
        if (rc != ERR_IO || clock_now_ns() + RETRY_MS * UINT64_C(1000000) >= deadline_ns ||
            (o->how->stops && o->how->stops()))
            return rc;
        nanosleep(&(struct timespec){.tv_nsec = RETRY_MS * 1000000}, NULL);
    }
}

static int ask(struct opening *o, uint32_t to, struct wire *w, err *e) {
    const uint64_t deadline = clock_now_ns() + ANSWER_NS;
    struct hello answer;
    o->own.to = to;
    int rc = say_hello(w, &o->own, deadline, e);
    if (!rc) rc = hear_hello(w, &answer, deadline, e);
    if (rc) return rc;
    if (answer.refusal[0]) return err_set(e, ERR_UNSUPPORTED, "it refuses: %s", answer.refusal);
    if (answer.from != to || answer.to != o->own.from || answer.n != o->own.n)
        return err_set(e, ERR_FORMAT, "it answers as another stage");
    return hello_compare(&o->own, &answer, e);
}

static int connect_to(struct opening *o, uint32_t to, uint64_t deadline_ns, err *e) {
    struct wire *w = NULL;
    int fd, rc = dial(o, to, deadline_ns, &fd, e);
    if (!rc) rc = wire_open(fd, o->secret ? o->key : NULL, true, clock_now_ns() + ANSWER_NS, &w, e);
    if (!rc) rc = ask(o, to, w, e);
    if (rc) {
        wire_close(w);
        err_prefix(e, "stage %u (%s): ", to, o->own.addresses[to]);
        return rc;
    }
    o->t->wires[to] = w;
    return 0;
}

/* ---- the side that is met ---- */

/* Why this stage cannot take the connection; 0: it does. */
static int judge(const struct opening *o, const struct hello *h, err *e) {
    const struct hello *own = &o->own;
    if (!o->met && h->from) return err_set(e, ERR_UNSUPPORTED, "this stage waits for stage 0");
    if (o->met && (memcmp(h->group, own->group, sizeof h->group) != 0 || h->n != own->n))
        return err_set(e, ERR_UNSUPPORTED, "this stage belongs to another group");
    if (o->met && (h->to != own->from || h->from >= own->from || o->t->wires[h->from]))
        return err_set(e, ERR_UNSUPPORTED, "stage %u does not expect stage %u", own->from, h->from);
    struct hello mine = *own;
    mine.from = h->to;
    return hello_compare(&mine, h, e);
}

/* What stage 0 says of the group. */
static void join_group(struct opening *o, const struct hello *h) {
    o->own.from = h->to;
    o->own.n = h->n;
    memcpy(o->own.group, h->group, sizeof h->group);
    memcpy(o->own.addresses, h->addresses, sizeof h->addresses);
    o->met = true;
    o->until_ns = clock_now_ns() + MEET_NS;
}

/* Has a stage that had connected gone? */
static bool has_lost(const struct opening *o) {
    for (uint32_t r = 0; r < LINK_MAX_RANKS; r++)
        if (o->t->wires[r] && wire_is_closed(o->t->wires[r])) return true;
    return false;
}

/* A group that has lost a stage will not begin: the next one may. */
static void leave_lost_group(struct opening *o) {
    if (!has_lost(o)) return;
    log_warn("stage: another stage has gone before all had met: waits for stage 0 again");
    for (uint32_t r = 0; r < LINK_MAX_RANKS; r++) {
        wire_close(o->t->wires[r]);
        o->t->wires[r] = NULL;
    }
    o->met = false;
}

static int answer(struct opening *o, struct wire *w, err *e) {
    const uint64_t deadline = clock_now_ns() + HELLO_NS;
    struct hello h, reply;
    int rc = hear_hello(w, &h, deadline, e);
    if (rc) return rc;
    leave_lost_group(o);
    rc = judge(o, &h, e);
    if (!rc && !o->met) join_group(o, &h);
    reply = o->own;
    reply.from = h.to;
    reply.to = h.from;
    reply.n = h.n;
    if (rc) snprintf(reply.refusal, sizeof reply.refusal, "%.300s", e ? e->msg : "refused");
    const int said = say_hello(w, &reply, deadline, rc ? NULL : e);
    if (rc || said) return rc ? rc : said;
    o->t->wires[h.from] = w;
    return 0;
}

static void take_connection(struct opening *o, int fd) {
    char name[TCP_ADDRESS_BYTES];
    struct wire *w = NULL;
    err e;
    tcp_peer_name(fd, name);
    int rc = wire_open(fd, o->secret ? o->key : NULL, false, clock_now_ns() + HELLO_NS, &w, &e);
    if (!rc) rc = answer(o, w, &e);
    if (!rc) return;
    log_warn("stage: a connection from %s was refused: %s", name, e.msg);
    wire_close(w);
}

/* ---- connections on which nothing has come yet ---- */

/* Takes one out of the list; returns its socket. */
static int end_silence(struct opening *o, uint32_t i) {
    const int fd = o->silent[i].fd;
    memmove(&o->silent[i], &o->silent[i + 1], (--o->n_silent - i) * sizeof *o->silent);
    return fd;
}

static void drop_silent(struct opening *o, uint32_t i) {
    char name[TCP_ADDRESS_BYTES];
    const int fd = end_silence(o, i);
    tcp_peer_name(fd, name);
    log_warn("stage: a connection from %s was refused: it said nothing", name);
    close(fd);
}

static void accept_connection(struct opening *o, int listener) {
    const int fd = accept(listener, NULL, NULL);
    if (fd < 0) return;
    if (tcp_prepare(fd, NULL)) {
        close(fd);
        return;
    }
    if (o->n_silent == MOST_SILENT) drop_silent(o, 0);
    o->silent[o->n_silent++] = (struct silent){fd, clock_now_ns() + HELLO_NS};
}

/* Waits for a while; takes what comes. */
static void take_connections(struct opening *o, int listener) {
    struct pollfd p[MOST_SILENT + 1];
    const uint32_t n = o->n_silent;
    for (uint32_t i = 0; i < n; i++)
        p[i] = (struct pollfd){.fd = o->silent[i].fd, .events = POLLIN};
    p[n] = (struct pollfd){.fd = listener, .events = POLLIN};
    if (poll(p, n + 1, LOOK_MS) < 0) return;
    const uint64_t now = clock_now_ns();
    for (uint32_t i = n; i-- > 0;)
        if (p[i].revents)
            take_connection(o, end_silence(o, i));
        else if (now >= o->silent[i].until_ns)
            drop_silent(o, i);
    if (p[n].revents) accept_connection(o, listener);
}

/* Have all stages before this one connected? */
static bool is_met(const struct opening *o) {
    for (uint32_t r = 0; o->met && r < o->own.from; r++)
        if (!o->t->wires[r]) return false;
    return o->met;
}

/* Waits for stage 0 for ever, then for the others. */
static int await_others(struct opening *o, int listener, err *e) {
    while (!is_met(o)) {
        if (o->how->stops && o->how->stops())
            return err_set(e, ERR_CANCELLED, "it stopped before the other stages came");
        leave_lost_group(o);
        if (o->met && clock_now_ns() >= o->until_ns)
            return err_set(e, ERR_DEVICE, "not all stages before stage %u have connected in time",
                           o->own.from);
        take_connections(o, listener);
    }
    return 0;
}

/* ---- open and close ---- */

static void close_wires(void *self, bool sound) {
    struct tcp *t = self;
    if (!t) return;
    const uint64_t until = clock_now_ns() + LEAVE_NS;
    for (uint32_t r = 0; r < LINK_MAX_RANKS; r++)
        if (t->wires[r] && sound) wire_leave(t->wires[r]);
    for (uint32_t r = 0; r < LINK_MAX_RANKS && sound; r++)
        while (t->wires[r] && !wire_has_left(t->wires[r]) && clock_now_ns() < until)
            nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    for (uint32_t r = 0; r < LINK_MAX_RANKS; r++)
        wire_close(t->wires[r]);
    free(t);
}

/* Stage 0: numbers the addresses. */
static int number_stages(struct opening *o, err *e) {
    struct hello *own = &o->own;
    own->n = 1;
    while (own->n < LINK_MAX_RANKS &&
           tcp_address_at(o->how->others, own->n - 1, own->addresses[own->n]))
        own->n++;
    char more[TCP_ADDRESS_BYTES];
    if (own->n < 2 || tcp_address_at(o->how->others, own->n - 1, more))
        return err_set_param(e, ERR_INVALID, "stages", "a model has 2 to %d stages",
                             LINK_MAX_RANKS);
    if (gnutls_rnd(GNUTLS_RND_NONCE, own->group, sizeof own->group))
        return err_set(e, ERR_IO, "cannot read random bytes from the system");
    return 0;
}

static int meet(struct opening *o, err *e) {
    const uint64_t deadline = clock_now_ns() + MEET_NS;
    const bool leads = !o->how->listen[0];
    int listener = -1, rc = leads ? number_stages(o, e) : 0;
    if (!rc && !leads) rc = tcp_listen(o->how->listen, !o->secret, &listener, e);
    if (rc == ERR_INVALID && !leads && e) snprintf(e->param, sizeof e->param, "stage_listen");
    if (!rc && !leads) {
        log_info("stage: waits for stage 0 on %s%s", o->how->listen,
                 o->secret ? "" : ", without a secret");
        rc = await_others(o, listener, e);
    }
    while (o->n_silent)
        close(end_silence(o, 0));
    if (listener >= 0) close(listener);
    for (uint32_t r = o->own.n; !rc && r-- > o->own.from + 1;)
        rc = connect_to(o, r, leads ? deadline : clock_now_ns() + MEET_NS, e);
    for (uint32_t r = 0; !rc && r < o->own.n; r++)
        if (o->t->wires[r]) rc = wire_start(o->t->wires[r], r, e);
    return rc;
}

static int open_stages(const struct backend_link_stages *how, struct link_place *out, void **self,
                       err *e) {
    struct opening *o = mem_new(1, sizeof *o);
    struct tcp *t = mem_new(1, sizeof *t);
    *self = NULL;
    int rc = o && t ? 0 : err_no_memory(e);
    if (rc) goto end;
    o->t = t;
    o->how = how;
    o->own.n_facts = how->n_facts;
    memcpy(o->own.facts, how->facts, sizeof o->own.facts);
    rc = read_secret(o, e);
    if (!rc) rc = meet(o, e);
    if (!rc) {
        t->rank = o->own.from;
        t->n = o->own.n;
        *out = (struct link_place){t->rank, t->n, t->rank};
        *self = t;
        t = NULL;
    }
end:
    if (o) gnutls_memset(o->key, 0, sizeof o->key);
    close_wires(t, false);
    free(o);
    return rc;
}

static void allow(void *self, uint32_t bytes) {
    struct tcp *t = self;
    for (uint32_t r = 0; r < t->n; r++)
        if (t->wires[r]) wire_allow(t->wires[r], bytes);
}

/* ---- transfers ---- */

static const char *exchange(void *self, const struct backend_piece *pieces, uint32_t n,
                            uint32_t *got, const atomic_bool *broken) {
    struct tcp *t = self;
    const char *why = NULL;
    for (uint32_t i = 0; i < n && !why; i++)
        if (pieces[i].out_bytes)
            why = wire_send(t->wires[pieces[i].rank], pieces[i].out, pieces[i].out_bytes, broken);
    for (uint32_t i = 0; i < n && !why; i++) {
        got[i] = 0;
        if (pieces[i].in_bytes)
            why = wire_receive(t->wires[pieces[i].rank], pieces[i].in, pieces[i].in_bytes, &got[i],
                               broken);
    }
    return why;
}

static const char *beat(void *self, uint8_t word, uint64_t now_ns, struct link_heard *heard) {
    struct tcp *t = self;
    const char *first = NULL;
    (void)now_ns;
    for (uint32_t r = 0; r < t->n; r++) {
        if (!t->wires[r]) continue;
        wire_beat(t->wires[r], word);
        const char *why = wire_heard(t->wires[r], &heard->at_ns[r], &heard->word[r]);
        if (!first) first = why;
    }
    return first;
}

static const struct link_module module = {.abi = LINK_MODULE_ABI,
                                          .close = close_wires,
                                          .exchange = exchange,
                                          .beat = beat,
                                          .allow = allow};

int backend_link_open_stages(const struct backend_link_stages *how, const char *version,
                             uint32_t hang_s, backend_link **out, err *e) {
    return link_open_stages(&module, open_stages, how, version, hang_s, out, e);
}
