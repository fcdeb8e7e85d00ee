/* rt_watchdog.c - stops a threadgroup that does not end: the handler of a timer on the worker
 * thread's CPU time abandons it, so that a loop without a barrier is caught too. Armed while a
 * worker runs threadgroups; each finished threadgroup counts as progress. */
#define _GNU_SOURCE
#include "rt_int.h"

#include <signal.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

enum { TICKS = 4, DEFAULT_MS = 20000 };

static uint32_t limit_ms(void) {
    return rt_grid.o.watchdog_ms ? rt_grid.o.watchdog_ms : DEFAULT_MS;
}
static void on_tick(int sig, siginfo_t *si, void *context) {
    struct worker *w = rt_worker;
    (void)sig;
    (void)si;
    if (!w || !w->in_fiber || w->failing) return;
    if (w->st.threads != w->seen_threads) {
        w->seen_threads = w->st.threads;
        w->ticks = 0;
    }
    if (++w->ticks <= TICKS) return;
    /* The interrupted instruction identifies the line. */
    rt_pc = (char *)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] + 1;
    rt_fail("watchdog: the threadgroup does not end: it ran for %u ms", limit_ms());
}
void rt_watchdog_install(void) {
    struct sigaction sa = {.sa_sigaction = on_tick,
                           .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER | SA_RESTART};
    sigaction(SIGVTALRM, &sa, NULL);
}
void rt_watchdog_start(struct worker *w) {
    struct sigevent ev = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGVTALRM};
    uint64_t ns = (uint64_t)limit_ms() * 1000000 / TICKS;
    struct timespec tick = {.tv_sec = (time_t)(ns / 1000000000),
                            .tv_nsec = (long)(ns % 1000000000)};
    ev._sigev_un._tid = gettid();
    w->ticks = 0;
    w->seen_threads = UINT64_MAX;
    w->has_timer = timer_create(CLOCK_THREAD_CPUTIME_ID, &ev, &w->timer) == 0;
    if (w->has_timer)
        timer_settime(w->timer, 0, &(struct itimerspec){.it_interval = tick, .it_value = tick},
                      NULL);
}
void rt_watchdog_stop(struct worker *w) {
    if (w->has_timer) timer_delete(w->timer);
    w->has_timer = 0;
}
