// sim_guard.m - METALSIM_GUARD: between commit and completion, the host's mapping of a buffer is
// inaccessible if the GPU may write it (level 1) and read-only if the GPU may read it (level 2). A
// premature host access ends the process with status 86.
#import "tests/metal/standin/framework/sim.h"

#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

enum { N_GUARDED = 4096, EXIT_EARLY_ACCESS = 86 };

static struct {
    pthread_mutex_t mutex;
    // The signal handler reads slots without the mutex: a slot in use does not move.
    struct guarded {
        uint8_t *host;
        size_t n_bytes;
        int n_writers, n_readers; /* commands of the GPU */
    } slots[N_GUARDED];
    struct sigaction before;
} guard = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static void on_fault(int number, siginfo_t *info, void *context) {
    uint8_t *address = info->si_addr;
    for (int i = 0; i < N_GUARDED; i++) {
        const struct guarded *g = &guard.slots[i];
        if (!(g->n_writers | g->n_readers) || address < g->host || address >= g->host + g->n_bytes)
            continue;
        char text[256];
        int n = snprintf(text, sizeof text,
                         "metalsim: the host %s byte %zu of a buffer that a command buffer in "
                         "flight %s (wait for completion first)\n",
                         g->n_writers ? "touched" : "wrote", (size_t)(address - g->host),
                         g->n_writers ? "writes" : "reads");
        if (write(2, text, (size_t)n) < 0) _exit(EXIT_EARLY_ACCESS);
        _exit(EXIT_EARLY_ACCESS);
    }
    if (guard.before.sa_flags & SA_SIGINFO)
        guard.before.sa_sigaction(number, info, context);
    else
        signal(number, SIG_DFL);
}

void sim_guard_init(void) {
    struct sigaction action = {.sa_sigaction = on_fault,
                               .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};
    sigaction(SIGSEGV, &action, &guard.before);
}

static void protect(const struct guarded *g) {
    int access = g->n_writers ? PROT_NONE : g->n_readers ? PROT_READ : PROT_READ | PROT_WRITE;
    mprotect(g->host, g->n_bytes, access);
}

// The slot of a buffer's memory; if there is none, a free one (make) or NULL.
static struct guarded *find(const SimBuffer *buffer, bool make) {
    struct guarded *unused = NULL;
    for (int i = 0; i < N_GUARDED; i++) {
        struct guarded *g = &guard.slots[i];
        bool used = g->n_writers | g->n_readers;
        if (used && g->host == buffer->host) return g;
        if (!used && !unused) unused = g;
    }
    if (!make || !unused) return NULL;
    unused->host = buffer->host;
    unused->n_bytes = buffer->n_mapped;
    return unused;
}

// Memory that the framework did not allocate (no-copy) has only one mapping and is not guarded.
static bool is_guarded(const SimBuffer *buffer, bool gpu_writes) {
    return buffer->host != buffer->gpu && (gpu_writes || sim_guard_level() > 1);
}

void sim_guard_lock(SimBuffer *buffer, bool gpu_writes) {
    if (!is_guarded(buffer, gpu_writes)) return;
    pthread_mutex_lock(&guard.mutex);
    struct guarded *g = find(buffer, true);
    if (g) {
        if (gpu_writes)
            g->n_writers++;
        else
            g->n_readers++;
        protect(g);
    }
    pthread_mutex_unlock(&guard.mutex);
}

void sim_guard_unlock(SimBuffer *buffer, bool gpu_writes) {
    if (!is_guarded(buffer, gpu_writes)) return;
    pthread_mutex_lock(&guard.mutex);
    struct guarded *g = find(buffer, false);
    if (g) {
        if (gpu_writes)
            g->n_writers--;
        else
            g->n_readers--;
        protect(g);
    }
    pthread_mutex_unlock(&guard.mutex);
}
