/* rt_traffic.c - implements msl_traffic.h: a table of kernels and one of their buffers, to which
 * each dispatch adds at its end. run_mu guards both. rt_check.c counts the bytes. */
#include "rt_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
    int on;
    struct metalsim_kernel *kernels;
    struct metalsim_argument *arguments;
    uint32_t n_kernels, n_arguments;
} table;

int rt_traffic_on(void) {
    return table.on;
}

/* A new zeroed row at the end; NULL: out of memory. Rows are never removed. */
static void *add_row(void *rows, uint32_t *n, size_t bytes) {
    char **at = rows;
    char *grown = realloc(*at, (size_t)(*n + 1) * bytes);
    if (!grown) return NULL;
    *at = grown;
    return memset(grown + (*n)++ * bytes, 0, bytes);
}
static struct metalsim_kernel *kernel_row(const char *name) {
    for (uint32_t i = 0; i < table.n_kernels; i++)
        if (strcmp(table.kernels[i].name, name) == 0) return &table.kernels[i];
    struct metalsim_kernel *k = add_row(&table.kernels, &table.n_kernels, sizeof *k);
    if (k) snprintf(k->name, sizeof k->name, "%s", name);
    return k;
}
static struct metalsim_argument *argument_row(const char *kernel, const struct range *r) {
    for (uint32_t i = 0; i < table.n_arguments; i++) {
        struct metalsim_argument *a = &table.arguments[i];
        if (a->index == (uint32_t)r->index && strcmp(a->kernel, kernel) == 0 &&
            strcmp(a->label, r->label) == 0)
            return a;
    }
    struct metalsim_argument *a = add_row(&table.arguments, &table.n_arguments, sizeof *a);
    if (!a) return NULL;
    snprintf(a->kernel, sizeof a->kernel, "%s", kernel);
    snprintf(a->name, sizeof a->name, "%s", r->name);
    snprintf(a->label, sizeof a->label, "%s", r->label);
    a->index = (uint32_t)r->index;
    a->constant = r->constant;
    return a;
}
static void add_bytes(struct metalsim_bytes *to, const struct metalsim_bytes *b) {
    to->read_once += b->read_once;
    to->read += b->read;
    to->written_once += b->written_once;
    to->written += b->written;
}
void rt_traffic_add(const msl_stats *before) {
    const msl_stats *now = &msl_rt_stats;
    const char *name = rt_grid.d->k->name;
    struct metalsim_kernel *k = kernel_row(name);
    if (!table.on || !k) return;
    k->dispatches++;
    k->threadgroups += rt_grid.total;
    k->threads += now->threads - before->threads;
    k->barriers += now->barriers - before->barriers;
    k->simd_barriers += now->simd_barriers - before->simd_barriers;
    k->simd_ops += now->simd_ops - before->simd_ops;
    k->matrix_products += now->matrix_products - before->matrix_products;
    if (k->tg_dynamic_bytes < rt_grid.tg_dynamic) k->tg_dynamic_bytes = rt_grid.tg_dynamic;
    if (k->tg_static_bytes < rt_grid.tg_static) k->tg_static_bytes = rt_grid.tg_static;
    for (int i = 0; i < rt_grid.nrg; i++) {
        const struct range *r = &rt_grid.rg[i];
        struct metalsim_argument *a = argument_row(name, r);
        if (a) add_bytes(&a->bytes, &r->bytes);
        add_bytes(r->constant ? &k->arguments : &k->memory, &r->bytes);
    }
}

void metalsim_traffic_reset(void) {
    pthread_mutex_lock(&rt_grid.run_mu);
    table.n_kernels = table.n_arguments = 0;
    table.on = 1;
    pthread_mutex_unlock(&rt_grid.run_mu);
}
void metalsim_traffic_stop(void) {
    pthread_mutex_lock(&rt_grid.run_mu);
    table.on = 0;
    pthread_mutex_unlock(&rt_grid.run_mu);
}
int metalsim_traffic_kernel(uint32_t i, struct metalsim_kernel *out) {
    pthread_mutex_lock(&rt_grid.run_mu);
    int there = i < table.n_kernels;
    if (there) *out = table.kernels[i];
    pthread_mutex_unlock(&rt_grid.run_mu);
    return there ? 0 : -1;
}
int metalsim_traffic(const char *kernel, struct metalsim_kernel *out) {
    for (uint32_t i = 0; metalsim_traffic_kernel(i, out) == 0; i++)
        if (strcmp(out->name, kernel) == 0) return 0;
    return -1;
}
int metalsim_traffic_argument(uint32_t i, struct metalsim_argument *out) {
    pthread_mutex_lock(&rt_grid.run_mu);
    int there = i < table.n_arguments;
    if (there) *out = table.arguments[i];
    pthread_mutex_unlock(&rt_grid.run_mu);
    return there ? 0 : -1;
}
void metalsim_traffic_sum(const char *kernel, const char *label, struct metalsim_bytes *out) {
    struct metalsim_argument a;
    memset(out, 0, sizeof *out);
    for (uint32_t i = 0; metalsim_traffic_argument(i, &a) == 0; i++)
        if (!a.constant && (!kernel || strcmp(a.kernel, kernel) == 0) &&
            (!label || strcmp(a.label, label) == 0))
            add_bytes(out, &a.bytes);
}
