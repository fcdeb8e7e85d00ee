/* rt_report.c - error texts: the report of a dispatch, names of addresses, and page faults of
 * shader code. Runs on the worker's thread; never ends the process. */
#define _GNU_SOURCE
#include "rt_int.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

__thread void *rt_pc;

/* "file.metal:12: " of the access being checked, or "". */
static void source_line(char *b, size_t n) {
    const msl_dispatch *d = rt_grid.d;
    uintptr_t a = (uintptr_t)rt_pc, lo = (uintptr_t)d->dlbase_lo;
    char cmd[4300];
    b[0] = 0;
    if (!rt_pc || !d->path || a < lo || a >= (uintptr_t)d->dlbase_hi) return;
    snprintf(cmd, sizeof cmd, "addr2line -s -e '%s' 0x%lx 2>/dev/null", d->path,
             (unsigned long)(a - lo - 1));
    FILE *f = popen(cmd, "r");
    if (!f) return;
    if (fgets(b, (int)n - 2, f) && b[0] != '?') {
        char *end = strpbrk(b, "\n (");
        if (end) *end = 0;
        strcat(b, ": ");
    } else
        b[0] = 0;
    pclose(f);
}

_Noreturn void rt_fail(const char *fmt, ...) {
    struct worker *w = rt_worker;
    const msl_threadpos *pos = &rt_fiber->pos;
    char b[640], m[1024];
    w->failing = 1;
    source_line(b, 128);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(b + strlen(b), sizeof b - strlen(b), fmt, ap);
    va_end(ap);
    snprintf(m, sizeof m, "kernel %s, threadgroup (%u,%u,%u), thread (%u,%u,%u): %s",
             rt_grid.d->k->name, w->launch.tgpig[0], w->launch.tgpig[1], w->launch.tgpig[2],
             pos->tpitg[0], pos->tpitg[1], pos->tpitg[2], b);
    pthread_mutex_lock(&rt_grid.mu);
    if (!rt_grid.nerr++ && rt_grid.err) snprintf(rt_grid.err, rt_grid.errlen, "%s", m);
    pthread_mutex_unlock(&rt_grid.mu);
    rt_pc = NULL;
    siglongjmp(w->jb, 1);
}

void rt_describe(uintptr_t a, char *b, size_t n) {
    struct worker *w = rt_worker;
    size_t best = 1 << 20;
    const struct range *near = NULL;
    int after = 0;
    for (int i = 0; i < rt_grid.nrg; i++) {
        const struct range *r = &rt_grid.rg[i];
        if (a >= r->hi && a - r->hi < best) {
            best = a - r->hi;
            near = r;
            after = 1;
        }
        if (a < r->lo && r->lo - a < best) {
            best = r->lo - a;
            near = r;
            after = 0;
        }
    }
    if (near)
        snprintf(b, n, "%zu bytes %s buffer(%d) '%s' (%zu bytes)", best,
                 after ? "past the end of" : "before", near->index, near->what,
                 (size_t)(near->hi - near->lo));
    else if (w && a - (uintptr_t)w->tgbase - ARENA < 4096)
        snprintf(b, n, "%zu bytes past the end of threadgroup memory",
                 (size_t)(a - (uintptr_t)w->tgbase - ARENA));
    else
        snprintf(b, n, "address %p belongs to no bound buffer", (void *)a);
}

/* Page faults of shader code, the only check of bounds in plain mode. Other faults are raised again
 * with the previous action. */
static struct sigaction old_segv, old_bus;
static void on_fault(int sig, siginfo_t *si, void *context) {
    struct worker *w = rt_worker;
    (void)context;
    if (w && w->in_fiber) {
        uintptr_t a = (uintptr_t)si->si_addr, stacks = (uintptr_t)w->stacks;
        char b[256];
        sigset_t m;
        sigemptyset(&m);
        sigaddset(&m, sig);
        pthread_sigmask(SIG_UNBLOCK, &m, NULL);
        if (a >= stacks - STACK_MARGIN && a < stacks + STACKS_BYTES)
            rt_fail("private memory (stack) overflow, %u KB per thread here", STACK >> 10);
        rt_describe(a, b, sizeof b);
        rt_fail("page fault: %s", b);
    }
    sigaction(sig, sig == SIGBUS ? &old_bus : &old_segv, NULL);
}
void rt_install_fault_handler(void) {
    struct sigaction sa = {.sa_sigaction = on_fault,
                           .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};
    sigaction(SIGSEGV, &sa, &old_segv);
    sigaction(SIGBUS, &sa, &old_bus);
}
