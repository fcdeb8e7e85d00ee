/* conns.c - the lists of open connections by state, and the counts by address. Owns no connection
 * and closes none. Runs on HTTP threads; conns_reap on the watcher thread. Each operation changes a
 * few pointers; reaping walks all connections once a second. shutdown() does not block, so it is
 * called under the mutex, which keeps the descriptor from being closed and reused meanwhile; nor
 * does the look for a client's end. */
#include "api/http/conns.h"

#include "core/base/clock.h"
#include "core/base/list.h"

#include <string.h>
#include <sys/random.h>

enum { SLOWEST_NS_PER_BYTE = 100000 }; /* 10 KB/s */

void conns_init(struct conns *cs, const struct conns_config *config) {
    *cs = (struct conns){
        .config = *config, .wait_ns = config->wait_ns, .reserve_ns = config->reserve_ns};
    pthread_mutex_init(&cs->mu, NULL);
    if (getentropy(&cs->seed, sizeof cs->seed)) cs->seed = clock_now_ns();
}

void conns_fini(struct conns *cs) {
    pthread_mutex_destroy(&cs->mu);
}

void conns_set(struct conns *cs, const struct conns_config *config) {
    pthread_mutex_lock(&cs->mu);
    cs->config = *config;
    atomic_store(&cs->wait_ns, config->wait_ns);
    atomic_store(&cs->reserve_ns, config->reserve_ns);
    pthread_mutex_unlock(&cs->mu);
}

/* ---- addresses ---- */

static struct conn **bucket_of(struct conns *cs, const struct client_network *a) {
    return &cs->buckets[address_network_hash(a, cs->seed) % CONNS_BUCKETS];
}

/* Has this address reached its limit of open connections? The walk stops at the limit. With cs->mu
 * held. */
static bool address_full(struct conns *cs, const struct client_network *a) {
    uint32_t n = 0, limit = cs->config.max_per_address;
    if (!limit || !a->bytes[0]) return false;
    for (const struct conn *c = *bucket_of(cs, a); c && n < limit; c = c->next_peer)
        n += !c->shut && memcmp(&c->address, a, sizeof *a) == 0;
    return n >= limit;
}

/* With cs->mu held. */
static void link_peer(struct conns *cs, struct conn *c, const struct client_network *a) {
    struct conn **bucket = bucket_of(cs, a);
    c->address = *a;
    c->next_peer = *bucket;
    c->peer_link = bucket;
    if (c->next_peer) c->next_peer->peer_link = &c->next_peer;
    *bucket = c;
}

static void unlink_peer(struct conn *c) {
    *c->peer_link = c->next_peer;
    if (c->next_peer) c->next_peer->peer_link = c->peer_link;
}

/* ---- lists, with cs->mu held ---- */

static void unlink_conn(struct conns *cs, struct conn *c) {
    struct conn_list *l = &cs->lists[c->state];
    LINKED_REMOVE(l, c);
}

static void append_conn(struct conns *cs, struct conn *c, enum conn_state state) {
    struct conn_list *l = &cs->lists[state];
    c->state = state;
    c->since_ns = clock_now_ns();
    LINKED_APPEND(l, c);
}

static uint64_t limit_of(const struct conns *cs, const struct conn *c) {
    return atomic_load(c->reserved ? &cs->reserve_ns : &cs->wait_ns);
}

/* Stops counting c; its HTTP thread closes it. */
static void shut_conn(struct conns *cs, struct conn *c) {
    if (c->shut) return;
    c->shut = true;
    (*(c->reserved ? &cs->n_reserve : &cs->n_counted))--;
    shutdown(c->fd, SHUT_RDWR);
}

/* Connections whose first head may still be on its way are passed over, unless more than half of
 * all wait like that: then they are a burst, and the oldest of it gives way. */
static struct conn *longest_wait(const struct conns *cs, bool reserved) {
    struct conn *oldest = NULL;
    const uint64_t now = clock_now_ns();
    uint32_t n = 0;
    for (struct conn *c = cs->lists[CONN_WAITING].first; c; c = c->next) {
        if (c->shut || c->reserved != reserved) continue;
        if (reserved || c->asked || now - c->since_ns >= cs->config.fresh_ns) return c;
        if (!oldest) oldest = c;
        if (++n > cs->config.max / 2) return oldest;
    }
    return NULL;
}

/* Every byte moves the deadline of a body, so the earliest deadline belongs to the slowest
 * sender. */
static struct conn *slowest_body(const struct conns *cs, bool reserved) {
    struct conn *slowest = NULL;
    uint64_t now = clock_now_ns();
    for (struct conn *c = cs->lists[CONN_BODY].first; c; c = c->next)
        if (!c->shut && c->reserved == reserved && now - c->since_ns >= cs->config.body_ns &&
            (!slowest || atomic_load(&c->due_ns) < atomic_load(&slowest->due_ns)))
            slowest = c;
    return slowest;
}

/* Shuts down the connection that has waited longest, else the slowest body. false: there is
 * neither. */
static bool evict_conn(struct conns *cs, bool reserved) {
    struct conn *c = longest_wait(cs, reserved);
    if (!c) c = slowest_body(cs, reserved);
    if (!c) return false;
    shut_conn(cs, c);
    cs->counts.evicted++;
    return true;
}

/* ---- a connection's begin and end ---- */

bool conns_admit(struct conns *cs, const struct sockaddr *from) {
    struct address peer = address_of(from);
    struct client_network a = address_network(&peer);
    pthread_mutex_lock(&cs->mu);
    bool proxy = cs->config.proxies && networks_hold(cs->config.proxies, &peer);
    bool per_address = !proxy && address_full(cs, &a);
    bool full = cs->n_open >= (uint64_t)cs->config.max + CONNS_RESERVE + CONNS_CLOSING;
    if (per_address)
        cs->counts.refused_address++;
    else if (full)
        cs->counts.refused_full++;
    pthread_mutex_unlock(&cs->mu);
    return !per_address && !full;
}

/* With cs->mu held; c is not counted yet. */
static void make_room(struct conns *cs, struct conn *c) {
    if (cs->n_counted < cs->config.max || evict_conn(cs, false)) {
        cs->n_counted++;
        return;
    }
    c->reserved = true;
    bool room = cs->n_reserve < CONNS_RESERVE || evict_conn(cs, true);
    cs->n_reserve++;
    if (room) {
        cs->counts.reserved++;
    } else {
        shut_conn(cs, c);
        cs->counts.refused_full++;
    }
}

void conns_open(struct conns *cs, struct conn *c, const struct sockaddr *from) {
    c->peer = address_of(from);
    struct client_network a = address_network(&c->peer);
    c->thread = pthread_self();
    pthread_mutex_lock(&cs->mu);
    cs->n_open++;
    cs->counts.accepted++;
    make_room(cs, c);
    append_conn(cs, c, CONN_WAITING);
    atomic_store(&c->due_ns, clock_now_ns() + limit_of(cs, c));
    link_peer(cs, c, &a);
    pthread_mutex_unlock(&cs->mu);
}

void conns_close(struct conns *cs, struct conn *c) {
    pthread_mutex_lock(&cs->mu);
    unlink_conn(cs, c);
    unlink_peer(c);
    if (!c->shut) (*(c->reserved ? &cs->n_reserve : &cs->n_counted))--;
    cs->n_open--;
    pthread_mutex_unlock(&cs->mu);
}

/* ---- what it does ---- */

static void enter_state(struct conns *cs, struct conn *c, enum conn_state state, uint64_t due_ns) {
    pthread_mutex_lock(&cs->mu);
    unlink_conn(cs, c);
    append_conn(cs, c, state);
    c->line = c->chunked = c->ended = false;
    atomic_store(&c->due_ns, due_ns);
    pthread_mutex_unlock(&cs->mu);
}

/* Counts c for address a. With cs->mu held. */
static void move_conn(struct conns *cs, struct conn *c, const struct client_network *a) {
    unlink_peer(c);
    link_peer(cs, c, a);
}

bool conns_forward(struct conns *cs, struct conn *c, const struct address *client) {
    struct client_network a = address_network(client);
    pthread_mutex_lock(&cs->mu);
    bool full = memcmp(&a, &c->address, sizeof a) != 0 && address_full(cs, &a);
    if (full)
        cs->counts.refused_address++;
    else
        move_conn(cs, c, &a);
    pthread_mutex_unlock(&cs->mu);
    return !full;
}

void conns_wait(struct conns *cs, struct conn *c) {
    struct client_network a = address_network(&c->peer);
    enter_state(cs, c, CONN_WAITING, clock_now_ns() + limit_of(cs, c));
    pthread_mutex_lock(&cs->mu);
    c->asked = true;
    if (memcmp(&a, &c->address, sizeof a) != 0) move_conn(cs, c, &a);
    pthread_mutex_unlock(&cs->mu);
}

void conns_line(struct conns *cs, struct conn *c) {
    pthread_mutex_lock(&cs->mu);
    c->line = true;
    pthread_mutex_unlock(&cs->mu);
}

void conns_body(struct conns *cs, struct conn *c) {
    enter_state(cs, c, CONN_BODY, clock_now_ns() + limit_of(cs, c));
}

void conns_answer(struct conns *cs, struct conn *c) {
    enter_state(cs, c, CONN_ANSWERING, 0);
}

void conns_moved(struct conns *cs, struct conn *c, uint64_t from_ns, uint64_t bytes) {
    atomic_store(&c->due_ns, from_ns + limit_of(cs, c) + bytes * SLOWEST_NS_PER_BYTE);
}

void conns_paused(struct conn *c) {
    atomic_store(&c->due_ns, 0);
}

/* ---- all of them ---- */

/* Did the client leave in the middle of a request? If its end arrives together with the last bytes,
 * the library reads these, waits for a next event, and there is none. The second look makes sure
 * that it had the time to handle what came before the end. */
static bool has_left(struct conn *c) {
    char byte;
    if (c->state == CONN_ANSWERING || (c->state == CONN_WAITING && !c->line)) return false;
    const bool seen = c->ended;
    c->ended = recv(c->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
    return seen && c->ended;
}

void conns_reap(struct conns *cs) {
    uint64_t now = clock_now_ns();
    pthread_mutex_lock(&cs->mu);
    for (int s = 0; s < CONN_N_STATES; s++)
        for (struct conn *c = cs->lists[s].first; c; c = c->next) {
            uint64_t due = atomic_load(&c->due_ns);
            if (c->shut) continue;
            if (due && now >= due)
                cs->counts.reaped++;
            else if (!has_left(c))
                continue;
            shut_conn(cs, c);
        }
    pthread_mutex_unlock(&cs->mu);
}

void conns_evict(struct conns *cs) {
    pthread_mutex_lock(&cs->mu);
    evict_conn(cs, false);
    pthread_mutex_unlock(&cs->mu);
}

bool conns_quiet(struct conns *cs, uint64_t now_ns, uint64_t for_ns) {
    bool quiet = true;
    pthread_mutex_lock(&cs->mu);
    for (int s = 0; s < CONN_N_STATES && quiet; s++)
        for (const struct conn *c = cs->lists[s].first; c && quiet; c = c->next)
            quiet = c->shut || (s == CONN_WAITING && !c->line && now_ns - c->since_ns >= for_ns);
    pthread_mutex_unlock(&cs->mu);
    return quiet;
}

void conns_get(struct conns *cs, struct conns_counts *out) {
    pthread_mutex_lock(&cs->mu);
    *out = cs->counts;
    out->max_per_address = cs->config.max_per_address;
    for (int s = 0; s < CONN_N_STATES; s++)
        for (const struct conn *c = cs->lists[s].first; c; c = c->next) {
            out->open[s] += !c->shut;
            out->receiving += !c->shut && c->line;
        }
    pthread_mutex_unlock(&cs->mu);
}

void conns_find(struct conns *cs, bool (*look)(struct conn *c, void *arg), void *arg) {
    pthread_t self = pthread_self();
    bool found = false;
    pthread_mutex_lock(&cs->mu);
    for (int s = CONN_WAITING; s <= CONN_BODY; s++)
        for (struct conn *c = cs->lists[s].first; c && !found; c = c->next)
            found = pthread_equal(c->thread, self) && look(c, arg);
    pthread_mutex_unlock(&cs->mu);
}
