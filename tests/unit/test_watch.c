/* test_watch.c - the watcher of suspended connections over socket pairs: which connections are
 * resumed, also when a descriptor's number is reused. */
#include "api/http/watch.h"

#include "check.h"

#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

struct client {
    struct watched w; /* first */
    int ours, theirs;
    atomic_int n_suspends, n_resumes;
};

static atomic_int n_destroyed;

static void on_suspend(struct watched *w) {
    atomic_fetch_add(&((struct client *)w)->n_suspends, 1);
}

static void on_resume(struct watched *w) {
    atomic_fetch_add(&((struct client *)w)->n_resumes, 1);
}

static void on_destroy(struct watched *w) {
    free(w);
    atomic_fetch_add(&n_destroyed, 1);
}

static atomic_int n_ticks;

static void on_tick(void *arg) {
    atomic_fetch_add((atomic_int *)arg, 1);
}

static watch *open_watch(uint32_t keepalive_ms) {
    struct watch_config c = {.keepalive_ms = keepalive_ms,
                             .suspend = on_suspend,
                             .resume = on_resume,
                             .destroy = on_destroy,
                             .tick = on_tick,
                             .tick_arg = &n_ticks};
    watch *wt = NULL;
    atomic_store(&n_destroyed, 0);
    CHECK(watch_open(&c, &wt, NULL) == 0);
    return wt;
}

/* A request on a new connection, watched for hang-up. */
static struct client *begin(watch *wt) {
    struct client *c = calloc(1, sizeof *c);
    int fds[2] = {-1, -1};
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
    c->ours = fds[0];
    c->theirs = fds[1];
    watch_begin(wt, &c->w);
    watch_fd(&c->w, c->ours);
    return c;
}

/* As libmicrohttpd does: the request ends first, then its descriptor is closed. */
static void end(struct client *c) {
    int ours = c->ours, theirs = c->theirs;
    watch_end(&c->w);
    close(ours);
    if (theirs >= 0) close(theirs);
}

/* Waits up to five seconds. */
static bool reaches(atomic_int *count, int want) {
    for (int i = 0; i < 5000 && atomic_load(count) < want; i++)
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    return atomic_load(count) == want;
}

static void hang_up_wakes_and_is_remembered(void) {
    watch *wt = open_watch(0);
    struct client *c = begin(wt);
    watch_look(&c->w);
    CHECK(watch_wait(&c->w));
    close(c->theirs);
    c->theirs = -1;
    CHECK(reaches(&c->n_resumes, 1) && atomic_load(&c->w.gone));
    watch_look(&c->w);
    CHECK(!watch_wait(&c->w)); /* no event to wait for */
    end(c);
    watch_close(wt);
    CHECK(atomic_load(&n_destroyed) == 1);
}

/* A closed number is reused at once: events of the old connection must not reach the new one, and
 * the new one is watched. */
static void reused_number_belongs_to_the_new_connection(void) {
    enum { ROUNDS = 300 };
    watch *wt = open_watch(0);
    int n_reused = 0;
    for (int i = 0; i < ROUNDS; i++) {
        struct client *old = begin(wt);
        int number = old->ours;
        watch_look(&old->w);
        CHECK(watch_wait(&old->w));
        close(old->theirs); /* its event may still be on the way */
        old->theirs = -1;
        end(old);
        struct client *c = begin(wt);
        n_reused += c->ours == number;
        watch_look(&c->w);
        CHECK(watch_wait(&c->w));
        if (i % 16 == 0) nanosleep(&(struct timespec){0, 2000000}, NULL);
        CHECK(!atomic_load(&c->w.gone) && atomic_load(&c->n_resumes) == 0);
        close(c->theirs);
        c->theirs = -1;
        CHECK(reaches(&c->n_resumes, 1) && atomic_load(&c->w.gone));
        end(c);
    }
    CHECK(n_reused > ROUNDS / 2);
    watch_close(wt);
    CHECK(atomic_load(&n_destroyed) == 2 * ROUNDS);
}

static void notification_is_not_lost(void) {
    watch *wt = open_watch(0);
    struct client *c = begin(wt), *other = begin(wt);
    watch_look(&c->w);
    watch_notify(&c->w); /* between "no event yet" and the suspension */
    watch_look(&other->w);
    CHECK(watch_wait(&other->w));
    watch_notify(&other->w);
    CHECK(reaches(&other->n_resumes, 1)); /* the list is first in, first out: c was served */
    CHECK(!watch_wait(&c->w) && atomic_load(&c->n_suspends) == 0);
    end(c);
    end(other);
    watch_close(wt);
    CHECK(atomic_load(&n_destroyed) == 2);
}

static void release_resumes_everything(void) {
    enum { N = 50 };
    watch *wt = open_watch(0);
    struct client *c[N];
    for (int i = 0; i < N; i++) {
        c[i] = begin(wt);
        watch_look(&c[i]->w);
        CHECK(watch_wait(&c[i]->w));
    }
    watch_release_all(wt);
    for (int i = 0; i < N; i++) { /* at once: the HTTP daemon is stopped next */
        CHECK(atomic_load(&c[i]->n_resumes) == 1 && watch_releasing(&c[i]->w));
        watch_look(&c[i]->w);
        CHECK(!watch_wait(&c[i]->w));
        end(c[i]);
    }
    watch_close(wt);
    CHECK(atomic_load(&n_destroyed) == N);
}

/* While another thread has a request, nothing else resumes its connection; events of that time are
 * handled afterwards. */
static void lent_requests_are_resumed_by_their_return(void) {
    enum { NOTIFIED, LEFT, RELEASED, N_WAYS };
    for (int way = 0; way < N_WAYS; way++) {
        watch *wt = open_watch(1);
        struct client *c = begin(wt), *other = begin(wt);
        watch_look(&c->w);
        watch_lend(&c->w);
        CHECK(watch_lent(&c->w));
        watch_notify(&c->w);
        CHECK(watch_wait(&c->w)); /* although it was notified */
        watch_look(&other->w);
        CHECK(watch_wait(&other->w));
        if (way == LEFT) {
            close(c->theirs);
            c->theirs = -1;
            for (int i = 0; i < 5000 && !atomic_load(&c->w.gone); i++)
                nanosleep(&(struct timespec){0, 1000000}, NULL);
            CHECK(atomic_load(&c->w.gone));
        }
        if (way == RELEASED) watch_release_all(wt);
        watch_notify(&c->w);
        watch_notify(&other->w);
        CHECK(reaches(&other->n_resumes, 1)); /* after a round of the watcher */
        CHECK(atomic_load(&c->n_resumes) == 0);
        watch_return(&c->w);
        CHECK(atomic_load(&c->n_resumes) == 1 && !watch_lent(&c->w));
        watch_release_all(wt);
        end(c);
        end(other);
        watch_close(wt);
    }
}

/* The other thread may be done before the connection is suspended. */
static void an_early_return_is_not_lost(void) {
    watch *wt = open_watch(0);
    struct client *c = begin(wt);
    watch_look(&c->w);
    watch_lend(&c->w);
    watch_return(&c->w);
    CHECK(!watch_wait(&c->w) && atomic_load(&c->n_suspends) == 0);
    end(c);
    watch_close(wt);
}

static void quiet_stream_gets_a_keepalive(void) {
    watch *wt = open_watch(20);
    struct client *stream = begin(wt), *silent = begin(wt);
    atomic_store(&stream->w.quiet_since_ns, 1);
    watch_look(&stream->w);
    watch_look(&silent->w);
    CHECK(watch_wait(&stream->w) && watch_wait(&silent->w));
    watch_notify(&stream->w); /* the clock starts with the first round */
    CHECK(reaches(&stream->n_resumes, 1));
    atomic_store(&stream->w.keepalive_due, false);
    watch_look(&stream->w);
    if (watch_wait(&stream->w)) CHECK(reaches(&stream->n_resumes, 2));
    CHECK(atomic_load(&silent->n_resumes) == 0); /* no stream yet */
    watch_release_all(wt);
    end(stream);
    end(silent);
    watch_close(wt);
}

int main(void) {
    RUN(hang_up_wakes_and_is_remembered);
    RUN(reused_number_belongs_to_the_new_connection);
    RUN(notification_is_not_lost);
    RUN(release_resumes_everything);
    RUN(lent_requests_are_resumed_by_their_return);
    RUN(an_early_return_is_not_lost);
    RUN(quiet_stream_gets_a_keepalive);
    return check_done();
}
