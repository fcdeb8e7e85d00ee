/* test_conns.c - open connections over socket pairs: evictions at the limit, time limits, and which
 * addresses count as one client. */
#include "api/http/conns.h"

#include "check.h"
#include "core/base/clock.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MANY = 64 };

#define HOUR_NS UINT64_C(3600000000000)

struct pair {
    struct conn c;
    int theirs;
};

static struct conns cs;

static void start(uint32_t max, uint32_t per_address, uint64_t wait_ns) {
    conns_init(&cs, &(struct conns_config){max, per_address, wait_ns, wait_ns, HOUR_NS, NULL, 0});
}

static void open_from(struct pair *p, const struct sockaddr *from) {
    int fds[2] = {-1, -1};
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
    *p = (struct pair){.theirs = fds[1]};
    p->c.fd = fds[0];
    conns_open(&cs, &p->c, from);
}

static void open_one(struct pair *p) {
    open_from(p, NULL);
}

static void close_one(struct pair *p) {
    conns_close(&cs, &p->c);
    close(p->c.fd);
    close(p->theirs);
}

/* The client's view of the connection. */
static bool is_shut(const struct pair *p) {
    char byte;
    return recv(p->theirs, &byte, 1, MSG_DONTWAIT) == 0;
}

static void the_longest_wait_gives_way(void) {
    struct pair p[5];
    start(3, 0, HOUR_NS);
    for (int i = 0; i < 3; i++)
        open_one(&p[i]);
    conns_body(&cs, &p[0].c); /* the first one is busy, then waits after the others */
    open_one(&p[3]);
    CHECK(is_shut(&p[1]) && !is_shut(&p[0]) && !is_shut(&p[2]) && !is_shut(&p[3]));
    conns_answer(&cs, &p[0].c);
    conns_wait(&cs, &p[0].c);
    open_one(&p[4]);
    CHECK(is_shut(&p[2]) && !is_shut(&p[0]) && !is_shut(&p[3]) && !is_shut(&p[4]));
    struct conns_counts n;
    conns_get(&cs, &n);
    CHECK(n.evicted == 2 && n.accepted == 5 && n.open[CONN_WAITING] == 3 && n.reserved == 0);
    for (int i = 0; i < 5; i++)
        close_one(&p[i]);
    conns_fini(&cs);
}

/* A connection whose first head is on its way is not evicted, unless most are like it; one that has
 * been answered is. */
static void a_new_connection_stays(void) {
    struct pair p[6];
    conns_init(&cs, &(struct conns_config){3, 0, HOUR_NS, HOUR_NS, HOUR_NS, NULL, HOUR_NS});
    for (int i = 0; i < 3; i++)
        open_one(&p[i]);
    conns_body(&cs, &p[0].c);
    conns_body(&cs, &p[1].c);
    open_one(&p[3]);
    for (int i = 0; i < 4; i++)
        CHECK(!is_shut(&p[i]) && p[i].c.reserved == (i == 3));
    conns_answer(&cs, &p[1].c);
    conns_wait(&cs, &p[1].c);
    open_one(&p[4]);
    CHECK(is_shut(&p[1]) && !is_shut(&p[2]) && !p[4].c.reserved);
    open_one(&p[5]);
    CHECK(is_shut(&p[2]) && !is_shut(&p[4]) && !p[5].c.reserved);
    for (int i = 0; i < 6; i++)
        close_one(&p[i]);
    conns_fini(&cs);
}

static void beyond_the_limit_there_is_a_reserve(void) {
    struct pair p[2], more[MANY];
    struct conns_counts n;
    start(2, 0, HOUR_NS);
    for (int i = 0; i < 2; i++) {
        open_one(&p[i]);
        conns_answer(&cs, &p[i].c);
    }
    for (int i = 0; i < MANY; i++) {
        open_one(&more[i]);
        CHECK(more[i].c.reserved && !is_shut(&more[i]));
    }
    for (int i = 0; i < MANY; i++)
        CHECK(is_shut(&more[i]) == (i < MANY - CONNS_RESERVE));
    CHECK(!is_shut(&p[0]) && !is_shut(&p[1]));
    conns_get(&cs, &n);
    CHECK(n.reserved == MANY && n.evicted == MANY - CONNS_RESERVE && n.refused_full == 0);
    /* No connection is idle: the next one is refused, and the reserve stays unchanged. */
    for (int i = MANY - CONNS_RESERVE; i < MANY; i++)
        conns_answer(&cs, &more[i].c);
    struct pair refused;
    open_one(&refused);
    conns_get(&cs, &n);
    CHECK(is_shut(&refused) && n.refused_full == 1);
    close_one(&refused);
    /* When there is room again, a new connection is accepted. */
    close_one(&p[0]);
    open_one(&p[0]);
    CHECK(!p[0].c.reserved && !is_shut(&p[0]));
    for (int i = 0; i < MANY; i++)
        close_one(&more[i]);
    for (int i = 0; i < 2; i++)
        close_one(&p[i]);
    CHECK(cs.n_open == 0 && cs.n_counted == 0 && cs.n_reserve == 0);
    conns_fini(&cs);
}

/* Connections that are shut down but not closed are bounded, too. */
/* If no connection is idle, the one with the slowest body is evicted; answers never are. */
static void a_slow_body_gives_way(void) {
    struct pair p[5];
    conns_init(&cs, &(struct conns_config){3, 0, HOUR_NS, HOUR_NS, 0, NULL, 0});
    for (int i = 0; i < 3; i++)
        open_one(&p[i]);
    conns_answer(&cs, &p[0].c);
    conns_body(&cs, &p[2].c);
    conns_body(&cs, &p[1].c);
    conns_moved(&cs, &p[2].c, p[2].c.since_ns, 1 << 20); /* older and faster */
    open_one(&p[3]);
    CHECK(is_shut(&p[1]) && !is_shut(&p[0]) && !is_shut(&p[2]) && !p[3].c.reserved);
    conns_answer(&cs, &p[3].c);
    open_one(&p[4]);
    CHECK(is_shut(&p[2]) && !is_shut(&p[0]) && !is_shut(&p[3]) && !p[4].c.reserved);
    for (int i = 0; i < 5; i++)
        close_one(&p[i]);
    conns_fini(&cs);
    /* A body that has just begun is not evicted. */
    start(1, 0, HOUR_NS);
    open_one(&p[0]);
    conns_body(&cs, &p[0].c);
    open_one(&p[1]);
    CHECK(!is_shut(&p[0]) && p[1].c.reserved);
    close_one(&p[0]);
    close_one(&p[1]);
    conns_fini(&cs);
}

static void what_closes_is_bounded(void) {
    enum { MAX = 4, ALL = MAX + CONNS_RESERVE + CONNS_CLOSING };
    static struct pair p[ALL];
    start(MAX, 0, HOUR_NS);
    for (int i = 0; i < ALL; i++) {
        CHECK(conns_admit(&cs, NULL));
        open_one(&p[i]);
    }
    CHECK(!conns_admit(&cs, NULL));
    close_one(&p[0]);
    CHECK(conns_admit(&cs, NULL));
    for (int i = 1; i < ALL; i++)
        close_one(&p[i]);
    conns_fini(&cs);
}

static void ends_come_by_the_clock(void) {
    const uint64_t wait = 20 * UINT64_C(1000000);
    struct pair waits, line, body, pays, answers, reads, kept;
    start(100, 0, wait);
    struct pair *all[] = {&waits, &line, &body, &pays, &answers, &reads, &kept};
    for (int i = 0; i < 7; i++)
        open_one(all[i]);
    conns_line(&cs, &line.c);
    conns_body(&cs, &body.c);
    conns_body(&cs, &pays.c);
    conns_answer(&cs, &answers.c);
    conns_answer(&cs, &reads.c);
    conns_answer(&cs, &kept.c);
    uint64_t now = clock_now_ns();
    conns_moved(&cs, &pays.c, now - 5 * wait, 1 << 30); /* slow, and large */
    conns_moved(&cs, &body.c, now - 5 * wait, 1);
    conns_moved(&cs, &reads.c, now, 1);
    conns_moved(&cs, &kept.c, now, 1);
    conns_paused(&kept.c); /* waits for the engine */
    conns_reap(&cs);
    CHECK(is_shut(&body) && !is_shut(&pays) && !is_shut(&kept));
    nanosleep(&(struct timespec){0, (long)wait + 1000000}, NULL);
    conns_reap(&cs);
    CHECK(is_shut(&waits) && is_shut(&line) && is_shut(&reads));
    CHECK(!is_shut(&pays) && !is_shut(&answers) && !is_shut(&kept));
    struct conns_counts n;
    conns_get(&cs, &n);
    CHECK(n.reaped == 4 && n.open[CONN_ANSWERING] == 2 && n.open[CONN_BODY] == 1);
    for (int i = 0; i < 7; i++)
        close_one(all[i]);
    conns_fini(&cs);
}

/* A client that closes or half-closes in the middle of a request leaves at the second look; one
 * whose bytes are still unread, who waits, or who is answered is left alone. */
static void who_leaves_in_a_request_is_noticed(void) {
    enum { N = 6 };
    struct pair p[N];
    struct pair *line = &p[0], *body = &p[1], *unread = &p[2], *idle = &p[3], *answered = &p[4],
                *stays = &p[5];
    start(10, 0, HOUR_NS);
    for (int i = 0; i < N; i++)
        open_one(&p[i]);
    conns_line(&cs, &line->c);
    conns_body(&cs, &body->c);
    conns_body(&cs, &unread->c);
    conns_answer(&cs, &answered->c);
    conns_body(&cs, &stays->c);
    CHECK(send(unread->theirs, "x", 1, 0) == 1);
    for (int i = 0; i < N - 1; i++)
        CHECK(shutdown(p[i].theirs, SHUT_WR) == 0);
    conns_reap(&cs);
    for (int i = 0; i < N; i++)
        CHECK(!is_shut(&p[i]));
    conns_reap(&cs);
    CHECK(is_shut(line) && is_shut(body));
    CHECK(!is_shut(unread) && !is_shut(idle) && !is_shut(answered) && !is_shut(stays));
    struct conns_counts n;
    conns_get(&cs, &n);
    CHECK(n.reaped == 0 && n.open[CONN_BODY] == 2 && n.open[CONN_WAITING] == 1);
    /* What was seen while a request arrived says nothing about the next one. */
    conns_body(&cs, &idle->c);
    conns_reap(&cs);
    conns_wait(&cs, &idle->c);
    conns_line(&cs, &idle->c);
    conns_reap(&cs);
    CHECK(!is_shut(idle));
    for (int i = 0; i < N; i++)
        close_one(&p[i]);
    conns_fini(&cs);
}

/* Sending single lines does not restart the time of a wait. */
static void a_line_does_not_begin_a_wait_anew(void) {
    struct pair p;
    start(10, 0, HOUR_NS);
    open_one(&p);
    uint64_t due = atomic_load(&p.c.due_ns);
    conns_line(&cs, &p.c);
    CHECK(atomic_load(&p.c.due_ns) == due && p.c.state == CONN_WAITING);
    struct conns_counts n;
    conns_get(&cs, &n);
    CHECK(n.receiving == 1);
    close_one(&p);
    conns_fini(&cs);
}

static struct sockaddr_storage address(const char *text) {
    struct sockaddr_storage s = {0};
    struct sockaddr_in *in = (struct sockaddr_in *)&s;
    struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&s;
    if (inet_pton(AF_INET, text, &in->sin_addr) == 1)
        s.ss_family = AF_INET;
    else if (inet_pton(AF_INET6, text, &in6->sin6_addr) == 1)
        s.ss_family = AF_INET6;
    else
        s.ss_family = AF_UNIX;
    return s;
}

static void addresses_are_counted(void) {
    static const struct {
        const char *open, *next;
        bool same;
    } rows[] = {
        {"10.0.0.1", "10.0.0.1", true},
        {"10.0.0.1", "10.0.0.2", false},
        {"10.0.0.1", "::ffff:10.0.0.1", true},
        {"::ffff:10.0.0.1", "::ffff:10.0.0.2", false},
        {"2001:db8:1:2::1", "2001:db8:1:2:ffff:ffff:ffff:ffff", true},
        {"2001:db8:1:2::1", "2001:db8:1:3::1", false},
        {"::1", "10.0.0.1", false},
        {"unix", "unix", false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct sockaddr_storage a = address(rows[i].open), b = address(rows[i].next);
        struct pair p[2];
        start(10, 2, HOUR_NS);
        CHECK(conns_admit(&cs, (struct sockaddr *)&b));
        open_from(&p[0], (struct sockaddr *)&a);
        CHECK(conns_admit(&cs, (struct sockaddr *)&b));
        open_from(&p[1], (struct sockaddr *)&a);
        CHECK_MSG(conns_admit(&cs, (struct sockaddr *)&b) != rows[i].same, "%s, %s", rows[i].open,
                  rows[i].next);
        close_one(&p[0]);
        CHECK(conns_admit(&cs, (struct sockaddr *)&b));
        close_one(&p[1]);
        conns_fini(&cs);
    }
}

/* A proxy's connections have no limit; the running requests of each of its clients have one. */
static void clients_behind_a_proxy_are_counted(void) {
    struct sockaddr_storage proxy = address("10.0.0.1"), other = address("10.0.0.2");
    struct address a, b;
    struct networks trusted;
    struct pair p[4];
    struct conns_counts n;
    CHECK(networks_parse("10.0.0.1", &trusted, NULL) == 0);
    CHECK(address_parse("2001:db8:1:2::1", 15, &a) && address_parse("2001:db8:1:2::2", 15, &b));
    conns_init(&cs, &(struct conns_config){10, 2, HOUR_NS, HOUR_NS, HOUR_NS, &trusted, 0});
    for (int i = 0; i < 4; i++) {
        CHECK(conns_admit(&cs, (struct sockaddr *)&proxy));
        open_from(&p[i], (struct sockaddr *)&proxy);
        conns_body(&cs, &p[i].c);
    }
    CHECK(conns_forward(&cs, &p[0].c, &a) && conns_forward(&cs, &p[1].c, &b));
    CHECK(conns_forward(&cs, &p[1].c, &b));  /* the same request does not count twice */
    CHECK(!conns_forward(&cs, &p[2].c, &b)); /* the same /64 */
    conns_get(&cs, &n);
    CHECK(n.refused_address == 1 && n.open[CONN_BODY] == 4);
    CHECK(address_parse("2001:db8:1:3::1", 15, &b) && conns_forward(&cs, &p[3].c, &b));
    conns_wait(&cs, &p[0].c); /* its request has ended */
    CHECK(conns_forward(&cs, &p[2].c, &a));
    close_one(&p[1]);
    conns_body(&cs, &p[0].c);
    CHECK(conns_forward(&cs, &p[0].c, &a));
    for (int i = 0; i < 4; i++)
        if (i != 1) close_one(&p[i]);
    /* Other clients keep their connection limit. */
    for (int i = 0; i < 2; i++) {
        CHECK(conns_admit(&cs, (struct sockaddr *)&other));
        open_from(&p[i], (struct sockaddr *)&other);
    }
    CHECK(!conns_admit(&cs, (struct sockaddr *)&other));
    for (int i = 0; i < 2; i++)
        close_one(&p[i]);
    CHECK(cs.n_open == 0);
    conns_fini(&cs);
    networks_fini(&trusted);
}

static bool count(struct conn *c, void *n) {
    (void)c;
    ++*(int *)n;
    return false;
}

static void *find_elsewhere(void *n) {
    conns_find(&cs, count, n);
    return NULL;
}

static void found_are_those_of_the_thread(void) {
    struct pair p[3];
    int here = 0, elsewhere = 0;
    start(10, 0, HOUR_NS);
    for (int i = 0; i < 3; i++)
        open_one(&p[i]);
    conns_body(&cs, &p[1].c);
    conns_answer(&cs, &p[2].c);
    conns_find(&cs, count, &here);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, find_elsewhere, &elsewhere) == 0);
    pthread_join(thread, NULL);
    CHECK(here == 2 && elsewhere == 0);
    for (int i = 0; i < 3; i++)
        close_one(&p[i]);
    conns_fini(&cs);
}

int main(void) {
    RUN(the_longest_wait_gives_way);
    RUN(a_new_connection_stays);
    RUN(beyond_the_limit_there_is_a_reserve);
    RUN(a_slow_body_gives_way);
    RUN(what_closes_is_bounded);
    RUN(ends_come_by_the_clock);
    RUN(who_leaves_in_a_request_is_noticed);
    RUN(a_line_does_not_begin_a_wait_anew);
    RUN(addresses_are_counted);
    RUN(clients_behind_a_proxy_are_counted);
    RUN(found_are_those_of_the_thread);
    return check_done();
}
