/* link.c - see link.h. Owns the module's handle for the life of the process, and a thread that says
 * that this process lives and listens to the others. */
#include "core/backend/link.h"

#include "core/backend/link_module.h"
#include "core/backend/module.h"
#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/program.h"
#include "core/base/thread.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(__linux__)
#include <sched.h>
#endif

#define LINK_MODULE          "libinferd-mpi.so"
#define LINK_MODULE_VARIABLE "INFERD_MPI_MODULE"

/* Words of a beat. Most beats of a second, and of hang_s. */
enum { WORD_LIVES, WORD_FAILED };
enum { BEATS_PER_S = 4, BEATS_PER_HANG = 8 };

struct backend_link {
    const struct link_module *module;
    void *self; /* the module's */
    bool stages;
    struct link_place place;
    uint32_t n_here, here, share, n_sharing;
    uint64_t hang_ns;
    struct link_heard heard; /* the thread's */
    atomic_bool broken;
    pthread_t thread;
    bool started;

    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool stopping; /* guarded by lock, as all below */
    char why[300]; /* not empty: it has failed */
};

uint32_t backend_link_launched(void) {
    static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *text = getenv(names[i]);
        unsigned long n = text ? strtoul(text, NULL, 10) : 0;
        if (n > 1) return n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
    }
    return 1;
}

/* ---- failures ---- */

void backend_link_break(backend_link *link, const char *why) {
    pthread_mutex_lock(&link->lock);
    if (!link->why[0]) {
        snprintf(link->why, sizeof link->why, "%s", why);
        atomic_store(&link->broken, true);
        pthread_cond_signal(&link->wake); /* the others are told at once */
    }
    pthread_mutex_unlock(&link->lock);
}

int backend_link_failed(backend_link *link, err *e) {
    if (!atomic_load(&link->broken)) return 0;
    pthread_mutex_lock(&link->lock);
    err_set(e, ERR_DEVICE, "%s", link->why);
    pthread_mutex_unlock(&link->lock);
    return ERR_DEVICE;
}

static const char *noun_of(const backend_link *link) {
    return link->stages ? "stage" : "rank";
}

/* What the module returned, which is more than "the group is broken" if it was broken before. */
static int fail_transfer(backend_link *link, const char *why, err *e) {
    char text[200];
    snprintf(text, sizeof text, "the %ss cannot exchange data: %s", noun_of(link), why);
    backend_link_break(link, text);
    return backend_link_failed(link, e);
}

/* ---- beats ---- */

static void judge_others(backend_link *link, uint64_t now) {
    char text[120] = "";
    for (uint32_t r = 0; r < link->place.n && !text[0]; r++) {
        const uint64_t at = link->heard.at_ns[r];
        if (r == link->place.rank) continue;
        if (link->heard.word[r] == WORD_FAILED)
            snprintf(text, sizeof text, "%s %u has failed: see its log", noun_of(link), r);
        else if (now > at && now - at > link->hang_ns)
            snprintf(text, sizeof text,
                     "%s %u hangs: it has not been heard of for %llu s (rank-timeout-s)",
                     noun_of(link), r, (unsigned long long)(link->hang_ns / 1000000000u));
    }
    if (text[0]) backend_link_break(link, text);
}

/* Waits for the next beat, or for a failure that has not been told. false: the link closes. */
static bool wait_for_beat(backend_link *link, bool told) {
    const uint64_t most = 1000000000u / BEATS_PER_S, part = link->hang_ns / BEATS_PER_HANG;
    const uint64_t ns = part < most ? part : most;
    const uint64_t until_ns = clock_now_ns() + ns;
    pthread_mutex_lock(&link->lock);
    if (!link->stopping && (told || !link->why[0]))
        clock_cond_wait(&link->wake, &link->lock, until_ns);
    bool go = !link->stopping;
    pthread_mutex_unlock(&link->lock);
    return go;
}

static void *beat_main(void *arg) {
    backend_link *link = arg;
    bool told = false;
    while (wait_for_beat(link, told)) {
        const bool failed = atomic_load(&link->broken);
        const char *why = link->module->beat(link->self, failed ? WORD_FAILED : WORD_LIVES,
                                             clock_now_ns(), &link->heard);
        told = failed;
        if (why && !failed) fail_transfer(link, why, NULL);
        if (!why && !failed) judge_others(link, clock_now_ns());
    }
    return NULL;
}

/* ---- transfers ---- */

int backend_link_exchange(backend_link *link, const struct backend_piece *pieces, uint32_t n,
                          err *e) {
    uint32_t got[BACKEND_MAX_PIECES];
    if (atomic_load(&link->broken)) return backend_link_failed(link, e);
    const char *why = link->module->exchange(link->self, pieces, n, got, &link->broken);
    if (why) return fail_transfer(link, why, e);
    for (uint32_t i = 0; i < n; i++)
        if (got[i] != pieces[i].in_bytes)
            return err_set(e, ERR_INVALID, "%s %u sent %u bytes, expected %u", noun_of(link),
                           pieces[i].rank, got[i], pieces[i].in_bytes);
    return 0;
}

int backend_link_send(backend_link *link, const void *message, uint32_t bytes, err *e) {
    struct backend_piece pieces[LINK_MAX_RANKS];
    uint32_t n = 0;
    for (uint32_t r = 1; r < link->place.n; r++)
        pieces[n++] = (struct backend_piece){.out = message, .rank = r, .out_bytes = bytes};
    return backend_link_exchange(link, pieces, n, e);
}

int backend_link_receive(backend_link *link, uint32_t from, void *message, uint32_t most,
                         uint32_t *bytes, err *e) {
    const struct backend_piece piece = {.rank = from, .in = message, .in_bytes = most};
    if (atomic_load(&link->broken)) return backend_link_failed(link, e);
    const char *why = link->module->exchange(link->self, &piece, 1, bytes, &link->broken);
    return why ? fail_transfer(link, why, e) : 0;
}

int backend_link_gather(backend_link *link, const void *own, uint32_t bytes, void *all, err *e) {
    struct backend_piece pieces[LINK_MAX_RANKS];
    uint32_t n = 0;
    for (uint32_t r = 0; r < link->place.n; r++) {
        char *to = (char *)all + (uint64_t)r * bytes;
        if (r == link->place.rank)
            memcpy(to, own, bytes);
        else
            pieces[n++] = (struct backend_piece){own, to, r, bytes, bytes};
    }
    return backend_link_exchange(link, pieces, n, e);
}

/* What ranks have agreed on before names its rank already. */
static void name_rank(const backend_link *link, uint32_t rank, err *e) {
    const char *noun = noun_of(link);
    const size_t n = strlen(noun);
    if (rank == link->place.rank || (strncmp(e->msg, noun, n) == 0 && e->msg[n] == ' ')) return;
    err_prefix(e, "%s %u: ", noun, rank);
}

int backend_link_agree(backend_link *link, int rc, err *e) {
    err own = {.code = 0}, all[LINK_MAX_RANKS];
    if (rc && e) own = *e;
    own.code = rc;
    int sent = backend_link_gather(link, &own, sizeof own, all, e);
    for (uint32_t r = 0; !sent && r < link->place.n; r++) {
        if (!all[r].code) continue;
        sent = all[r].code;
        all[r].msg[sizeof all[r].msg - 1] = all[r].param[sizeof all[r].param - 1] = '\0';
        if (!e) continue;
        *e = all[r];
        name_rank(link, r, e);
    }
    return sent;
}

/* ---- open and close ---- */

static int load_module(const struct link_module **out, err *e) {
    char path[4096], why[400];
    const struct backend_module_file file = {LINK_MODULE, LINK_MODULE_VARIABLE,
                                             "build it where MPI's headers are "
                                             "(libopenmpi-dev)"};
    if (!backend_module_find(&file, path, sizeof path, why, sizeof why))
        return err_set(e, ERR_UNSUPPORTED, "ranks as processes: %s", why);
    /* Global, because MPI loads parts of itself that use its symbols. */
    void *handle = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    const char *error = handle ? NULL : dlerror();
    *out = handle ? dlsym(handle, "inferd_link_module") : NULL;
    if (*out && (*out)->abi == LINK_MODULE_ABI) return 0;
    if (handle) dlclose(handle);
    return err_set(e, ERR_UNSUPPORTED, "ranks as processes: cannot load %s: %s", path,
                   error ? error : "it belongs to another build of inferd; build both together");
}

/* What processes tell each other when they meet. */
struct hello {
    char version[64];
    uint64_t cpus[16]; /* that the process may use; zeros: unknown */
    uint32_t host;
};

static void find_cpus(uint64_t cpus[16]) {
    memset(cpus, 0, 16 * sizeof *cpus);
#if defined(__linux__)
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set)) return;
    for (int cpu = 0; cpu < CPU_SETSIZE && cpu < 16 * 64; cpu++)
        if (CPU_ISSET(cpu, &set)) cpus[cpu / 64] |= UINT64_C(1) << cpu % 64;
#endif
}

static int meet_others(backend_link *link, const char *version, err *e) {
    struct hello own = {.host = link->place.host}, all[LINK_MAX_RANKS];
    snprintf(own.version, sizeof own.version, "%s", version);
    find_cpus(own.cpus);
    int rc = backend_link_gather(link, &own, sizeof own, all, e);
    for (uint32_t r = 0; !rc && r < link->place.n; r++) {
        const bool here = all[r].host == own.host;
        const bool shares = here && memcmp(all[r].cpus, own.cpus, sizeof own.cpus) == 0;
        if (strncmp(all[r].version, own.version, sizeof own.version) != 0)
            rc = err_set(
                e, ERR_UNSUPPORTED, "%s %u runs inferd %.20s, %s %u %.20s: they must be the same",
                noun_of(link), r, all[r].version, noun_of(link), link->place.rank, own.version);
        link->n_here += here;
        link->here += here && r < link->place.rank;
        link->share += shares && r < link->place.rank;
        link->n_sharing += shares;
    }
    return rc;
}

static int new_link(uint32_t hang_s, backend_link **out, err *e) {
    backend_link *link = mem_new(1, sizeof *link);
    if (!link) return err_no_memory(e);
    pthread_mutex_init(&link->lock, NULL);
    clock_cond_init(&link->wake);
    link->hang_ns = hang_s * UINT64_C(1000000000);
    *out = link;
    return 0;
}

/* rc: whether the module has met the others. Takes the link. */
static int start_link(backend_link *link, const char *version, int rc, backend_link **out, err *e) {
    if (!rc) rc = meet_others(link, version, e);
    const uint64_t now = clock_now_ns();
    for (uint32_t r = 0; r < LINK_MAX_RANKS; r++)
        link->heard.at_ns[r] = now;
    if (!rc) rc = thread_start(&link->thread, beat_main, link, "listens to the others", e);
    if (rc) {
        backend_link_break(link, "it was not opened");
        backend_link_close(link);
        return rc;
    }
    link->started = true;
    *out = link;
    return 0;
}

int backend_link_open(const char *version, uint32_t hang_s, backend_link **out, err *e) {
    backend_link *link = NULL;
    *out = NULL;
    int rc = new_link(hang_s, &link, e);
    if (rc) return rc;
    rc = load_module(&link->module, e);
    const char *why = rc ? NULL : link->module->open(&link->place, &link->self);
    if (why) rc = err_set(e, ERR_DEVICE, "the ranks cannot meet: %s", why);
    return start_link(link, version, rc, out, e);
}

int link_open_stages(const struct link_module *module, link_stages_open *open,
                     const struct backend_link_stages *how, const char *version, uint32_t hang_s,
                     backend_link **out, err *e) {
    backend_link *link = NULL;
    *out = NULL;
    int rc = new_link(hang_s, &link, e);
    if (rc) return rc;
    link->stages = true;
    link->module = module;
    rc = open(how, &link->place, &link->self, e);
    return start_link(link, version, rc, out, e);
}

void backend_link_allow(backend_link *link, uint32_t bytes) {
    if (link->module->allow) link->module->allow(link->self, bytes);
}

void backend_link_close(backend_link *link) {
    if (!link) return;
    pthread_mutex_lock(&link->lock);
    link->stopping = true;
    pthread_cond_signal(&link->wake);
    pthread_mutex_unlock(&link->lock);
    if (link->started) pthread_join(link->thread, NULL);
    if (link->module && (link->self || !link->stages))
        link->module->close(link->self, !atomic_load(&link->broken));
    pthread_cond_destroy(&link->wake);
    pthread_mutex_destroy(&link->lock);
    free(link);
}

uint32_t backend_link_rank(const backend_link *link) {
    return link->place.rank;
}

uint32_t backend_link_n(const backend_link *link) {
    return link->place.n;
}

uint32_t backend_link_n_here(const backend_link *link) {
    return link->n_here;
}

uint32_t backend_link_here(const backend_link *link) {
    return link->here;
}

uint32_t backend_link_share(const backend_link *link, uint32_t *n) {
    *n = link->n_sharing;
    return link->share;
}

const struct backend_link_calls backend_link_calls = {.n_here = backend_link_n_here,
                                                      .gather = backend_link_gather,
                                                      .agree = backend_link_agree,
                                                      .failed = backend_link_failed,
                                                      .fail = backend_link_break};
