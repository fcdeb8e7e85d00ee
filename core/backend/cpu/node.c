/* node.c - places the ranks of a group on a machine with several memory (NUMA) nodes: a rank uses
 * the processors and the memory of one node, so it reads weights from local memory. Linux lists the
 * processors of a node; on other systems, and with one node, the system places the ranks. Owns
 * nothing. Any thread. */
#include "core/backend/cpu/cpu_int.h"

#include <stdio.h>
#include <string.h>
#if defined(__linux__)
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#if defined(__linux__)

enum { MAX_NODES = 64, MAX_CPUS = 64 * CPU_PLACE_WORDS, PREFERRED = 1 /* MPOL_PREFERRED */ };

static bool holds_cpu(const struct cpu_place *p, int cpu) {
    return p->cpus[cpu / 64] >> cpu % 64 & 1;
}

static struct cpu_place current_place(void) {
    struct cpu_place p = {.node = -1};
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set)) return p;
    for (int cpu = 0; cpu < CPU_SETSIZE && cpu < MAX_CPUS; cpu++)
        if (CPU_ISSET(cpu, &set)) p.cpus[cpu / 64] |= UINT64_C(1) << cpu % 64;
    return p;
}

/* The processors of `of` that belong to folder/node*node*; false: none. */
static bool read_node(const char *folder, int node, const struct cpu_place *of,
                      struct cpu_place *out) {
    char path[256];
    int first, last, n = 0;
    snprintf(path, sizeof path, "%s/node%d/cpulist", folder, node);
    *out = (struct cpu_place){.node = node};
    FILE *f = fopen(path, "r");
    while (f && fscanf(f, "%d", &first) == 1) { /* "0-3,8" */
        last = first;
        int c = fgetc(f);
        if (c == '-' && fscanf(f, "%d", &last) == 1) c = fgetc(f);
        for (int cpu = first < 0 ? 0 : first; cpu <= last && cpu < MAX_CPUS; cpu++)
            if (holds_cpu(of, cpu)) out->cpus[cpu / 64] |= UINT64_C(1) << cpu % 64, n++;
        if (c != ',') break;
    }
    if (f) fclose(f);
    return n > 0;
}

struct cpu_place cpu_place_of(const char *folder, uint32_t rank, uint32_t n_ranks) {
    struct cpu_place all = current_place(), nodes[MAX_NODES];
    uint32_t n = 0;
    for (int node = 0; n_ranks > 1 && node < MAX_NODES; node++)
        n += read_node(folder, node, &all, &nodes[n]);
    return n > 1 && n_ranks % n == 0 ? nodes[rank / (n_ranks / n)] : all;
}

struct cpu_place cpu_place_enter(const struct cpu_place *to) {
    struct cpu_place before = current_place();
    cpu_set_t set;
    CPU_ZERO(&set);
    for (int cpu = 0; cpu < CPU_SETSIZE && cpu < MAX_CPUS; cpu++)
        if (holds_cpu(to, cpu)) CPU_SET(cpu, &set);
    sched_setaffinity(0, sizeof set, &set); /* best effort */
    return before;
}

void cpu_place_memory(const struct cpu_place *p, void *at, uint64_t bytes) {
    if (p->node < 0) return;
    unsigned long mask[2] = {0, 0};
    mask[(unsigned)p->node / (8 * sizeof mask[0])] |= 1UL << p->node % (int)(8 * sizeof mask[0]);
    syscall(SYS_mbind, at, bytes, PREFERRED, mask, 8 * sizeof mask, 0); /* best effort */
}

#else

struct cpu_place cpu_place_of(const char *folder, uint32_t rank, uint32_t n_ranks) {
    (void)folder, (void)rank, (void)n_ranks;
    return (struct cpu_place){.node = -1};
}

struct cpu_place cpu_place_enter(const struct cpu_place *to) {
    return *to;
}

void cpu_place_memory(const struct cpu_place *p, void *at, uint64_t bytes) {
    (void)p, (void)at, (void)bytes;
}

#endif
