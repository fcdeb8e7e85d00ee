/* cpus.c - the default number of threads, from the system's description of its processors; without
 * one all processors count as plain cores. Any thread. */
#include "core/backend/cpu/pool.h"

#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>
#if defined(__linux__)
#include <sched.h>
#elif defined(__APPLE__)
#include <sys/sysctl.h>
#endif

#if defined(__linux__)

/* Is cpu in the list of this file ("0-3,8")? false without the file. */
static bool in_list(const char *path, int cpu, bool *found) {
    FILE *f = fopen(path, "r");
    bool in = false;
    int first, last;
    *found = f != NULL;
    while (f && fscanf(f, "%d", &first) == 1) {
        last = first;
        int c = fgetc(f);
        if (c == '-' && fscanf(f, "%d", &last) == 1) c = fgetc(f);
        in = in || (first <= cpu && cpu <= last);
        if (c != ',') break;
    }
    if (f) fclose(f);
    return in;
}

/* Lowest processor of the set that shares cpu's core; it represents the core. */
static int first_sibling(const cpu_set_t *set, int cpu) {
    char path[96];
    bool found;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
    for (int i = 0; i < cpu; i++)
        if (CPU_ISSET(i, set) && in_list(path, i, &found)) return i;
    return cpu;
}

static int usable_cores(void) {
    cpu_set_t set;
    int n = 0;
    if (sched_getaffinity(0, sizeof set, &set)) return 0;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        bool hybrid;
        if (!CPU_ISSET(cpu, &set) || first_sibling(&set, cpu) != cpu) continue;
        bool fast = in_list("/sys/devices/cpu_core/cpus", cpu, &hybrid);
        n += fast || !hybrid;
    }
    return n ? n : CPU_COUNT(&set); /* bound to slow cores only */
}

/* Processors that the control group may use at once, rounded up; 0: no limit. A process in a
 * container sees its group's files at the root. */
static int read_quota(void) {
    double limit = 0, period = 0;
    FILE *f = fopen("/sys/fs/cgroup/cpu.max", "r");
    bool ok = f && fscanf(f, "%lf %lf", &limit, &period) == 2; /* fails for "max" */
    if (f) fclose(f);
    if (!ok || limit <= 0 || period <= 0 || limit / period > 1e6) return 0;
    int n = (int)(limit / period);
    return n < limit / period ? n + 1 : n;
}

#elif defined(__APPLE__)

static int usable_cores(void) {
    int n = 0;
    size_t size = sizeof n;
    if (sysctlbyname("hw.perflevel0.physicalcpu", &n, &size, NULL, 0) == 0 && n > 0) return n;
    size = sizeof n;
    return sysctlbyname("hw.physicalcpu", &n, &size, NULL, 0) == 0 ? n : 0;
}

static int read_quota(void) {
    return 0;
}

#else

static int usable_cores(void) {
    return 0;
}

static int read_quota(void) {
    return 0;
}

#endif

int pool_default_threads(void) {
    int n = usable_cores(), most = read_quota();
    if (n <= 0) n = (int)sysconf(_SC_NPROCESSORS_ONLN);
    if (most && n > most) n = most;
    return n > 0 ? n : 1;
}
