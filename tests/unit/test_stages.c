/* test_stages.c - pipelines below the engine: the first message of a connection, damaged in every
 * way; links of several threads over loopback, plain and encrypted, with large messages both ways
 * at once; wrong secrets, messages that are too large, a stage that fails; the split of a model
 * against all splits. Engines of stages: test_pipeline.c; processes: tests/http/stages.test.mjs. */
#include "core/backend/tcp/tcp_int.h"
#include "core/base/clock.h"
#include "core/model/model.h"
#include "tests/support/free_port.h"
#include "tests/unit/check.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { HANG_S = 5 };

/* ---- the wall clock ---- */

#ifdef __linux__
#include <sys/syscall.h>

static atomic_bool ahead;

/* The C library's, except that the wall clock may seem to be an hour ahead: who computes a deadline
 * by it waits as long as if it were set back after that. */
int clock_gettime(clockid_t id, struct timespec *t) {
    const int rc = (int)syscall(SYS_clock_gettime, id, t);
    if (!rc && id == CLOCK_REALTIME && atomic_load(&ahead)) t->tv_sec += 3600;
    return rc;
}
#endif

/* ---- hellos ---- */

static struct hello example(void) {
    struct hello h = {.from = 1, .to = 2, .n = 3, .n_facts = 2, .refusal = "because"};
    memcpy(h.group, "0123456789abcdef", sizeof h.group);
    snprintf(h.facts[0].name, sizeof h.facts[0].name, "colour");
    snprintf(h.facts[0].value, sizeof h.facts[0].value, "blue");
    snprintf(h.facts[1].name, sizeof h.facts[1].name, "size");
    snprintf(h.facts[1].value, sizeof h.facts[1].value, "12");
    snprintf(h.addresses[1], sizeof h.addresses[1], "127.0.0.1:9");
    snprintf(h.addresses[2], sizeof h.addresses[2], "[::1]:10");
    return h;
}

/* A copy of exactly n bytes, so that a sanitizer sees a read beyond them. */
static int read_copy(const uint8_t *bytes, size_t n, struct hello *out) {
    err e = {0};
    uint8_t *copy = malloc(n ? n : 1);
    memcpy(copy, bytes, n);
    int rc = hello_read(copy, (uint32_t)n, out, &e);
    CHECK(!rc == !e.msg[0]);
    free(copy);
    return rc;
}

static void test_hello(void) {
    const struct hello h = example();
    static struct hello out;
    uint8_t bytes[HELLO_HEAD_BYTES + HELLO_MAX_BYTES], *body = bytes + HELLO_HEAD_BYTES;
    uint32_t n = 0;
    err e = {0};
    const size_t all = hello_write(&h, bytes);
    CHECK(hello_read_head(bytes, &n, &e) == 0 && n + HELLO_HEAD_BYTES == all);
    CHECK(read_copy(body, n, &out) == 0);
    CHECK(memcmp(&out, &h, sizeof h) == 0);
    for (uint32_t cut = 0; cut < n; cut++)
        CHECK(read_copy(body, cut, &out) == ERR_FORMAT);
    body[n] = 0;
    CHECK(read_copy(body, n + 1, &out) == ERR_FORMAT);
    for (uint32_t i = 0; i < n; i++) { /* each byte has every value: nothing outside is read */
        const uint8_t was = body[i];
        for (int v = 0; v < 256; v++) {
            body[i] = (uint8_t)v;
            if (read_copy(body, n, &out)) continue;
            CHECK(out.n >= 2 && out.n <= LINK_MAX_RANKS && out.from < out.n && out.to < out.n);
        }
        body[i] = was;
    }
    for (int i = 0; i < 8; i++) {
        bytes[i] ^= 1;
        CHECK(hello_read_head(bytes, &n, &e) == ERR_FORMAT);
        bytes[i] ^= 1;
    }
    bytes[10] = 1; /* 65536 bytes more */
    CHECK(hello_read_head(bytes, &n, &e) == ERR_FORMAT);
}

/* It would disagree with itself. */
static void test_repeated_fact(void) {
    struct hello h = example(), got;
    uint8_t bytes[HELLO_HEAD_BYTES + HELLO_MAX_BYTES];
    size_t n = hello_write(&h, bytes) - HELLO_HEAD_BYTES;
    CHECK(read_copy(bytes + HELLO_HEAD_BYTES, n, &got) == 0);
    snprintf(h.facts[1].name, sizeof h.facts[1].name, "%s", h.facts[0].name);
    n = hello_write(&h, bytes) - HELLO_HEAD_BYTES;
    CHECK(read_copy(bytes + HELLO_HEAD_BYTES, n, &got) == ERR_FORMAT);
}

static void test_facts(void) {
    const struct hello a = example();
    struct hello b = a;
    err e = {0};
    CHECK(hello_compare(&a, &b, &e) == 0);
    b.from = 2;
    snprintf(b.facts[1].value, sizeof b.facts[1].value, "13");
    CHECK(hello_compare(&a, &b, &e) == ERR_UNSUPPORTED);
    CHECK_STR(e.msg, "size is 12 at stage 1, 13 at stage 2: it must be the same at all stages");
    b.n_facts = 1;
    CHECK(hello_compare(&a, &b, &e) == ERR_UNSUPPORTED && strstr(e.msg, "unknown at stage 2"));
    CHECK(hello_compare(&b, &a, &e) == ERR_UNSUPPORTED && strstr(e.msg, "unknown at stage 2"));
}

/* ---- links ---- */

enum { MAX_STAGES = 4, LARGE = 5 << 20 };

struct stage {
    struct backend_link_stages how;
    backend_link *link;
    pthread_t id;
    err e;
    int rc;
};

static char folder[] = "/tmp/inferd-stages-XXXXXX";

static const char *write_secret(const char *name, const char *text, char path[64]) {
    snprintf(path, 64, "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    CHECK(f && fputs(text, f) >= 0);
    if (f) fclose(f);
    chmod(path, 0600);
    return path;
}

static void *open_stage(void *arg) {
    struct stage *s = arg;
    s->rc = backend_link_open_stages(&s->how, "1", HANG_S, &s->link, &s->e);
    return NULL;
}

/* Opens n stages, each on a thread of its own. */
static void open_stages(struct stage *s, uint32_t n, const char *secret) {
    static char addresses[MAX_STAGES][24], others[MAX_STAGES * 28];
    size_t at = 0;
    for (uint32_t i = 0; i < n; i++) {
        snprintf(addresses[i], sizeof addresses[i], "127.0.0.1:%d", free_port());
        if (i)
            at += (size_t)snprintf(others + at, sizeof others - at, "%s%s", i > 1 ? ", " : "",
                                   addresses[i]);
        s[i] = (struct stage){.how = {.listen = i ? addresses[i] : "",
                                      .others = i ? "" : others,
                                      .secret_file = secret,
                                      .n_facts = 1,
                                      .facts = {{"colour", "blue"}}}};
    }
    for (uint32_t i = n; i-- > 0;)
        CHECK(pthread_create(&s[i].id, NULL, open_stage, &s[i]) == 0);
    for (uint32_t i = 0; i < n; i++) {
        pthread_join(s[i].id, NULL);
        CHECK_MSG(s[i].rc == 0, "%s", s[i].e.msg);
    }
}

static void *close_stage(void *arg) {
    struct stage *s = arg;
    backend_link_close(s->link);
    return NULL;
}

static void close_stages(struct stage *s, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        CHECK(pthread_create(&s[i].id, NULL, close_stage, &s[i]) == 0);
    for (uint32_t i = 0; i < n; i++)
        pthread_join(s[i].id, NULL);
}

static uint8_t byte_of(uint32_t from, uint32_t to, uint32_t i) {
    return (uint8_t)(i * 31 + from * 7 + to * 13 + (i >> 12));
}

/* Sends every other stage a large message at once, and gets theirs. */
static void *exchange_all(void *arg) {
    struct stage *s = arg;
    const uint32_t own = backend_link_rank(s->link), n = backend_link_n(s->link);
    struct backend_piece pieces[MAX_STAGES];
    uint32_t n_pieces = 0;
    for (uint32_t r = 0; r < n; r++) {
        if (r == own) continue;
        uint8_t *out = malloc(LARGE);
        for (uint32_t i = 0; i < LARGE; i++)
            out[i] = byte_of(own, r, i);
        pieces[n_pieces++] = (struct backend_piece){out, malloc(LARGE), r, LARGE, LARGE - r};
        pieces[n_pieces - 1].out_bytes = LARGE - own;
    }
    s->rc = backend_link_exchange(s->link, pieces, n_pieces, &s->e);
    for (uint32_t p = 0; p < n_pieces; p++) {
        const uint8_t *in = pieces[p].in;
        for (uint32_t i = 0; i < pieces[p].in_bytes && !s->rc; i++)
            if (in[i] != byte_of(pieces[p].rank, own, i)) s->rc = ERR_FORMAT;
        free(pieces[p].in);
        free((void *)(uintptr_t)pieces[p].out);
    }
    return NULL;
}

static void run_all(struct stage *s, uint32_t n, void *(*run)(void *)) {
    for (uint32_t i = 0; i < n; i++)
        CHECK(pthread_create(&s[i].id, NULL, run, &s[i]) == 0);
    for (uint32_t i = 0; i < n; i++)
        pthread_join(s[i].id, NULL);
}

static void test_links(void) {
    struct stage s[MAX_STAGES];
    char path[64];
    const char *secrets[] = {"",
                             write_secret("secret", "0123456789abcdef0123456789abcdef\n", path)};
    for (int i = 0; i < 2; i++)
        for (uint32_t n = 2; n <= MAX_STAGES; n += 2) {
            open_stages(s, n, secrets[i]);
            for (uint32_t r = 0; r < n; r++) {
                CHECK(backend_link_rank(s[r].link) == r && backend_link_n(s[r].link) == n);
                backend_link_allow(s[r].link, LARGE);
            }
            for (int round = 0; round < 2; round++) {
                run_all(s, n, exchange_all);
                for (uint32_t r = 0; r < n; r++)
                    CHECK_MSG(s[r].rc == 0, "%u stages: %s", n, s[r].e.msg);
            }
            close_stages(s, n);
        }
}

/* Waits until the link has failed. */
static void expect_failure(backend_link *link, const char *why) {
    err e = {0};
    const struct timespec nap = {.tv_nsec = 10000000};
    for (int i = 0; i < 1000 && !backend_link_failed(link, &e); i++)
        nanosleep(&nap, NULL);
    CHECK_MSG(strstr(e.msg, why) != NULL, "%s", e.msg);
}

static void test_too_large(void) {
    struct stage s[2];
    static char message[LINK_TCP_FIRST_BYTES + 1];
    uint32_t n;
    err e = {0};
    open_stages(s, 2, "");
    CHECK(backend_link_send(s[0].link, message, LINK_TCP_FIRST_BYTES, &e) == 0);
    CHECK(backend_link_receive(s[1].link, 0, message, sizeof message, &n, &e) == 0);
    CHECK(n == LINK_TCP_FIRST_BYTES);
    backend_link_send(s[0].link, message, sizeof message, &e);
    CHECK(backend_link_receive(s[1].link, 0, message, sizeof message, &n, &e) == ERR_DEVICE);
    CHECK_MSG(strstr(e.msg, "stage 0: it sent a message that is too large"), "%s", e.msg);
    expect_failure(s[0].link, "stage 1 has failed");
    close_stages(s, 2);
}

static void test_failures(void) {
    struct stage s[3];
    open_stages(s, 3, "");
    backend_link_break(s[1].link, "the roof is on fire");
    expect_failure(s[0].link, "stage 1 has failed: see its log");
    expect_failure(s[2].link, "has failed: see its log");
    close_stages(s, 3);
    open_stages(s, 3, "");
    backend_link_break(s[2].link, "not told"); /* closed at once: its connections just end */
    backend_link_close(s[2].link);
    expect_failure(s[0].link, "stage ");
    expect_failure(s[1].link, "stage ");
    close_stages(s, 2);
}

#ifdef __linux__
/* A link of one process, which counts its beats. */
static atomic_int n_beats;

static const char *count_beat(void *self, uint8_t word, uint64_t now_ns, struct link_heard *heard) {
    (void)self, (void)word, (void)now_ns, (void)heard;
    atomic_fetch_add(&n_beats, 1);
    return NULL;
}

static const char *exchange_nothing(void *self, const struct backend_piece *pieces, uint32_t n,
                                    uint32_t *got, const atomic_bool *broken) {
    (void)self, (void)pieces, (void)got, (void)broken;
    return n ? "there is nobody" : NULL;
}

static void close_nothing(void *self, bool sound) {
    (void)self, (void)sound;
}

static int open_alone(const struct backend_link_stages *how, struct link_place *out, void **self,
                      err *e) {
    (void)how, (void)self, (void)e;
    *out = (struct link_place){.rank = 0, .n = 1};
    return 0;
}

static void *receive_one(void *arg) {
    struct stage *s = arg;
    char byte;
    uint32_t n;
    s->rc = backend_link_receive(s->link, 1, &byte, 1, &n, &s->e);
    atomic_fetch_add(&n_beats, 1);
    return NULL;
}

/* Waits until n were counted, far longer than that takes. */
static bool wait_for_beats(int n) {
    const struct timespec nap = {.tv_nsec = 5000000};
    for (int i = 0; i < 2000 && atomic_load(&n_beats) < n; i++)
        nanosleep(&nap, NULL);
    return atomic_load(&n_beats) >= n;
}

/* Beats go on, and who waits learns that its link is broken. */
static void test_clock_set_back(void) {
    static const struct link_module alone = {.abi = LINK_MODULE_ABI,
                                             .close = close_nothing,
                                             .exchange = exchange_nothing,
                                             .beat = count_beat};
    struct stage s[2];
    backend_link *link = NULL;
    err e = {0};
    atomic_store(&ahead, true);
    atomic_store(&n_beats, 0);
    CHECK(link_open_stages(&alone, open_alone, NULL, "1", 1, &link, &e) == 0);
    CHECK(wait_for_beats(3));
    backend_link_close(link);
    open_stages(s, 2, "");
    atomic_store(&n_beats, 0);
    CHECK(pthread_create(&s[0].id, NULL, receive_one, &s[0]) == 0);
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL); /* likely it waits by now */
    backend_link_break(s[0].link, "the roof is on fire");
    const bool told = wait_for_beats(1);
    atomic_store(&ahead, false);
    CHECK(told);
    if (!told) return; /* it waits for an hour */
    pthread_join(s[0].id, NULL);
    CHECK_MSG(s[0].rc == ERR_DEVICE && strstr(s[0].e.msg, "roof"), "%s", s[0].e.msg);
    close_stages(s, 2);
}
#endif

/* The other process of a link of two, which says what this one says, or only ones. */
static bool says_ones;

static const char *exchange_with_other(void *self, const struct backend_piece *pieces, uint32_t n,
                                       uint32_t *got, const atomic_bool *broken) {
    (void)self, (void)broken;
    for (uint32_t i = 0; i < n; got[i] = pieces[i].in_bytes, i++)
        if (says_ones)
            memset(pieces[i].in, 0xff, pieces[i].in_bytes);
        else
            memcpy(pieces[i].in, pieces[i].out, pieces[i].in_bytes);
    return NULL;
}

static const char *beat_always(void *self, uint8_t word, uint64_t now_ns,
                               struct link_heard *heard) {
    (void)self, (void)word;
    heard->at_ns[1] = now_ns;
    return NULL;
}

static void leave_other(void *self, bool sound) {
    (void)self, (void)sound;
}

static int open_two(const struct backend_link_stages *how, struct link_place *out, void **self,
                    err *e) {
    static int two;
    (void)how, (void)e;
    *out = (struct link_place){.rank = 0, .n = 2};
    *self = &two;
    return 0;
}

/* Another process's error may be no text. */
static void test_damaged_agreement(void) {
    static const struct link_module module = {.abi = LINK_MODULE_ABI,
                                              .close = leave_other,
                                              .exchange = exchange_with_other,
                                              .beat = beat_always};
    backend_link *link = NULL;
    err e = {0};
    says_ones = false;
    CHECK(link_open_stages(&module, open_two, NULL, "1", HANG_S, &link, &e) == 0);
    CHECK(backend_link_agree(link, 0, &e) == 0);
    says_ones = true;
    CHECK(backend_link_agree(link, 0, &e) != 0);
    CHECK(strncmp(e.msg, "stage 1: ", 9) == 0);
    CHECK(memchr(e.msg, 0, sizeof e.msg) && memchr(e.param, 0, sizeof e.param));
    backend_link_close(link);
}

static bool stop_now(void) {
    return true;
}

static void test_refusals(void) {
    char own[64], other[64], open[64], small[64];
    struct stage s = {.how = {.others = "", .listen = "", .secret_file = ""}};
    write_secret("own", "0123456789abcdef0123456789abcdeX", own);
    write_secret("other", "0123456789abcdef0123456789abcdeY\r\n", other);
    write_secret("open", "0123456789abcdef0123456789abcdeY", open);
    write_secret("small", "0123456789abcdef0123456789abcde\n\n", small);
    chmod(open, 0640);
    static const struct {
        const char *listen, *others, *secret, *why;
        int rc;
    } cases[] = {
        {"0.0.0.0:0", "", "", "not a loopback address", ERR_INVALID},
        {"192.0.2.1:9", "", "", "not a loopback address", ERR_INVALID},
        {"", "192.0.2.1:9", "", "not a loopback address", ERR_INVALID},
        {"127.0.0.1", "", "", "is not HOST:PORT", ERR_INVALID},
        {"::1:9", "", "", "is not HOST:PORT", ERR_INVALID},
        {"", "", "", "2 to 16 stages", ERR_INVALID},
        {"", "127.0.0.1:9", "OPEN", "others can read", ERR_INVALID},
        {"", "127.0.0.1:9", "SMALL", "32 to 4096 bytes", ERR_INVALID},
        {"", "127.0.0.1:9", "/nonexistent", "No such file", ERR_INVALID},
        {"", "127.0.0.1:9", "/", "not a file", ERR_INVALID},
        {"127.0.0.1:0", "", "", "it stopped", ERR_CANCELLED},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        s.how.listen = cases[i].listen;
        s.how.others = cases[i].others;
        s.how.secret_file = strcmp(cases[i].secret, "OPEN") == 0    ? open
                            : strcmp(cases[i].secret, "SMALL") == 0 ? small
                                                                    : cases[i].secret;
        s.how.stops = stop_now;
        open_stage(&s);
        CHECK_MSG(s.rc == cases[i].rc && strstr(s.e.msg, cases[i].why), "%zu: %d %s", i, s.rc,
                  s.e.msg);
    }
}

/* Who has another secret is refused; the stage then takes who has the right one. */
static void test_wrong_secret(void) {
    char own[64], other[64], address[64];
    write_secret("own", "0123456789abcdef0123456789abcdeX", own);
    write_secret("other", "0123456789abcdef0123456789abcdeY", other);
    snprintf(address, sizeof address, "127.0.0.1:%d", free_port());
    struct stage s[2] = {{.how = {.others = address, .listen = "", .secret_file = other}},
                         {.how = {.others = "", .listen = address, .secret_file = own}}};
    CHECK(pthread_create(&s[1].id, NULL, open_stage, &s[1]) == 0);
    open_stage(&s[0]);
    CHECK_MSG(s[0].rc && strstr(s[0].e.msg, "the same stage-secret-file"), "%s", s[0].e.msg);
    s[0].how.secret_file = own;
    s[0].how.n_facts = 1; /* which the other one lacks */
    snprintf(s[0].how.facts[0].name, sizeof s[0].how.facts[0].name, "colour");
    open_stage(&s[0]);
    CHECK_MSG(s[0].rc == ERR_UNSUPPORTED && strstr(s[0].e.msg, "colour is unknown at stage 1"),
              "%s", s[0].e.msg);
    s[0].how.n_facts = 0;
    open_stage(&s[0]);
    pthread_join(s[1].id, NULL);
    CHECK_MSG(s[0].rc == 0 && s[1].rc == 0, "%s %s", s[0].e.msg, s[1].e.msg);
    close_stages(s, 2);
}

/* Connects, and says nothing. */
static int connect_silently(const char *address) {
    const struct timespec nap = {.tv_nsec = 5000000};
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    a.sin_port = htons((uint16_t)atoi(strchr(address, ':') + 1));
    for (int i = 0; i < 2000; i++, nanosleep(&nap, NULL)) {
        const int fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(fd, (struct sockaddr *)&a, sizeof a) == 0) return fd;
        close(fd); /* it does not listen yet */
    }
    CHECK_MSG(false, "nobody listens on %s", address);
    return -1;
}

/* Who connects and says nothing does not keep a stage from the others. */
static void test_silent(void) {
    enum { N_SILENT = 5 };
    int fds[N_SILENT];
    char address[64];
    snprintf(address, sizeof address, "127.0.0.1:%d", free_port());
    struct stage s[2] = {{.how = {.others = address, .listen = "", .secret_file = ""}},
                         {.how = {.others = "", .listen = address, .secret_file = ""}}};
    CHECK(pthread_create(&s[1].id, NULL, open_stage, &s[1]) == 0);
    for (int i = 0; i < N_SILENT; i++)
        fds[i] = connect_silently(address);
    open_stage(&s[0]);
    pthread_join(s[1].id, NULL);
    CHECK_MSG(s[0].rc == 0 && s[1].rc == 0, "%s %s", s[0].e.msg, s[1].e.msg);
    for (int i = 0; i < N_SILENT; i++)
        close(fds[i]);
    close_stages(s, 2);
}

/* Stage 0 of three stages, which ends before they have met. */
static void begin_and_end(const char *address) {
    struct hello h = {.from = 0, .to = 2, .n = 3, .group = "another"};
    uint8_t bytes[HELLO_HEAD_BYTES + HELLO_MAX_BYTES];
    const uint64_t deadline = clock_now_ns() + UINT64_C(10000000000);
    struct wire *w = NULL;
    err e = {0};
    uint32_t n = 0;
    const int fd = connect_silently(address);
    CHECK(tcp_prepare(fd, &e) == 0 && wire_open(fd, NULL, true, deadline, &w, &e) == 0);
    CHECK(wire_write(w, bytes, hello_write(&h, bytes), deadline, &e) == 0);
    CHECK(wire_read(w, bytes, HELLO_HEAD_BYTES, deadline, &e) == 0);
    CHECK(hello_read_head(bytes, &n, &e) == 0 && wire_read(w, bytes, n, deadline, &e) == 0);
    CHECK_MSG(hello_read(bytes, n, &h, &e) == 0 && !h.refusal[0], "%s %s", e.msg, h.refusal);
    wire_close(w);
}

/* The stage then waits for the next group. */
static void test_begun_again(void) {
    char address[64];
    snprintf(address, sizeof address, "127.0.0.1:%d", free_port());
    struct stage s[2] = {{.how = {.others = address, .listen = "", .secret_file = ""}},
                         {.how = {.others = "", .listen = address, .secret_file = ""}}};
    CHECK(pthread_create(&s[1].id, NULL, open_stage, &s[1]) == 0);
    begin_and_end(address);
    open_stage(&s[0]);
    CHECK_MSG(s[0].rc == 0, "%s", s[0].e.msg);
    if (s[0].rc) return; /* the other one waits for a minute */
    pthread_join(s[1].id, NULL);
    CHECK_MSG(s[1].rc == 0, "%s", s[1].e.msg);
    CHECK(backend_link_n(s[1].link) == 2 && backend_link_rank(s[1].link) == 1);
    close_stages(s, 2);
}

/* ---- splits ---- */

static const char model_path[] = "registry/demo/inferd-demo-q8_0.gguf";

/* The least of the largest stages over all splits of layers first.. into n stages. */
static uint64_t least_of_all(const struct model_hparams *hp, struct model_stage *stages, uint32_t n,
                             uint32_t at, uint32_t first) {
    uint64_t bytes[MODEL_MAX_STAGES], largest = 0, least = UINT64_MAX;
    if (at + 1 == n) {
        stages[at] = (struct model_stage){first, hp->n_layers - first};
        CHECK(model_stages_measure(model_path, hp, stages, n, bytes, NULL) == 0);
        for (uint32_t i = 0; i < n; i++)
            if (bytes[i] > largest) largest = bytes[i];
        return largest;
    }
    for (uint32_t own = 1; first + own + (n - at - 1) <= hp->n_layers; own++) {
        stages[at] = (struct model_stage){first, own};
        const uint64_t one = least_of_all(hp, stages, n, at + 1, first + own);
        if (one < least) least = one;
    }
    return least;
}

static void test_splits(void) {
    static struct model_hparams hp;
    err e = {0};
    CHECK(model_read_hparams(model_path, &hp, &e) == 0);
    for (uint32_t n = 2; n <= hp.n_layers; n++) {
        struct model_stage stages[MODEL_MAX_STAGES], scratch[MODEL_MAX_STAGES];
        uint64_t bytes[MODEL_MAX_STAGES], largest = 0;
        CHECK_MSG(model_stages_split(model_path, &hp, n, stages, bytes, &e) == 0, "%s", e.msg);
        CHECK(model_stages_check(&hp, stages, n, &e) == 0);
        for (uint32_t i = 0; i < n; i++)
            if (bytes[i] > largest) largest = bytes[i];
        CHECK(largest == least_of_all(&hp, scratch, n, 0, 0));
    }
    struct model_stage more[MODEL_MAX_STAGES];
    uint64_t bytes[MODEL_MAX_STAGES];
    CHECK(model_stages_split(model_path, &hp, hp.n_layers + 1, more, bytes, &e) == ERR_UNSUPPORTED);
    more[0] = (struct model_stage){0, 1};
    more[1] = (struct model_stage){2, hp.n_layers - 2};
    CHECK(model_stages_check(&hp, more, 2, &e) == ERR_INVALID); /* a gap */
    more[1] = (struct model_stage){1, hp.n_layers};
    CHECK(model_stages_check(&hp, more, 2, &e) == ERR_INVALID);
    more[1] = (struct model_stage){1, hp.n_layers - 2};
    CHECK(model_stages_check(&hp, more, 2, &e) == ERR_INVALID);
}

/* Layers of other kinds are in each stage. */
static void test_kinds(void) {
    static struct model_hparams hp = {.arch = "mixed", .n_layers = 6};
    err e = {0};
    hp.layers[1] = hp.layers[4] = MODEL_LAYER_RECURRENT;
    const struct model_stage good[] = {{0, 2}, {2, 4}}, bad[] = {{0, 1}, {1, 5}};
    CHECK(model_stages_check(&hp, good, 2, &e) == 0);
    CHECK(model_stages_check(&hp, bad, 2, &e) == ERR_UNSUPPORTED);
    CHECK_MSG(strstr(e.msg, "stage 0, layers 0 to 0, would have no layer with recurrent state"),
              "%s", e.msg);
    model_stage_apply(&good[1], 77, &hp);
    CHECK(hp.n_layers == 4 && hp.n_kv_layers == 3 && hp.recurrent.n_layers == 1 &&
          hp.layers[2] == MODEL_LAYER_RECURRENT && hp.weight_bytes == 77);
    hp.layers[3] = MODEL_LAYER_SHARED_KV;
    CHECK(model_stages_check(&hp, good, 2, &e) == ERR_UNSUPPORTED &&
          strstr(e.msg, "share K and V"));
}

static void test_identity(void) {
    char a[33], b[33];
    err e = {0};
    CHECK(model_identity(model_path, a, &e) == 0 && strlen(a) == 32);
    CHECK(model_identity(model_path, b, &e) == 0);
    CHECK_STR(a, b);
    CHECK(model_identity("tests/golden/arch/llama/hf", b, &e) == 0 && strcmp(a, b) != 0);
    CHECK(model_identity("/nonexistent", b, &e) != 0);
}

int main(void) {
    CHECK(mkdtemp(folder) != NULL);
    RUN(test_hello);
    RUN(test_repeated_fact);
    RUN(test_facts);
    RUN(test_links);
    RUN(test_too_large);
    RUN(test_failures);
#ifdef __linux__
    RUN(test_clock_set_back);
#endif
    RUN(test_damaged_agreement);
    RUN(test_refusals);
    RUN(test_wrong_secret);
    RUN(test_silent);
    RUN(test_begun_again);
    RUN(test_splits);
    RUN(test_kinds);
    RUN(test_identity);
    char command[96];
    snprintf(command, sizeof command, "rm -r %s", folder);
    CHECK(system(command) == 0);
    return check_done();
}
