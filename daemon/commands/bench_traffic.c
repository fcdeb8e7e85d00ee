/* bench_traffic.c - sums the backend's counters over measured steps, and derives the bound of a
 * chip with a given bandwidth. Owns its copies of the counters. */
#include "daemon/commands/bench_traffic.h"

#include "core/base/mem.h"
#include "daemon/commands/chips.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int bench_traffic_init(struct bench_traffic *t, const engine *en, err *e) {
    *t = (struct bench_traffic){.n_kernels = engine_n_kernels(en)};
    t->last = mem_new(ENGINE_MAX_KERNELS, sizeof *t->last);
    t->sum = mem_new(ENGINE_MAX_KERNELS, sizeof *t->sum);
    if (t->last && t->sum) return 0;
    bench_traffic_fini(t);
    return err_no_memory(e);
}

void bench_traffic_fini(struct bench_traffic *t) {
    free(t->last);
    free(t->sum);
    memset(t, 0, sizeof *t);
}

void bench_traffic_step(struct bench_traffic *t, const engine *en, bool counts) {
    t->n_kernels = engine_n_kernels(en);
    for (uint32_t i = 0; i < t->n_kernels; i++) {
        struct engine_kernel now, *last = &t->last[i], *sum = &t->sum[i];
        engine_kernel_get(en, i, &now);
        if (counts) {
            sum->dispatches += now.dispatches - last->dispatches;
            sum->read_bytes += now.read_bytes - last->read_bytes;
            sum->written_bytes += now.written_bytes - last->written_bytes;
        }
        *last = now;
    }
    t->n_steps += counts;
}

static void add_bounds(const struct bench_step *step, double bytes, cJSON *o) {
    cJSON *bounds = cJSON_AddArrayToObject(o, "bounds");
    const struct chip *chip;
    for (uint32_t i = 0; bytes > 0 && (chip = chips_at(i)) != NULL; i++) {
        cJSON *one = cJSON_CreateObject();
        cJSON_AddStringToObject(one, "chip", chip->name);
        cJSON_AddNumberToObject(one, "gpu_cores_from", chip->gpu_cores);
        cJSON_AddNumberToObject(one, "gb_per_s", chip->gb_per_s);
        cJSON_AddNumberToObject(one, "decode_tokens_per_s",
                                chip->gb_per_s * 1e9 / bytes * (double)step->n_rows);
        cJSON_AddBoolToObject(one, "this_machine", chips_is_here(chip));
        cJSON_AddItemToArray(bounds, one);
    }
}

void bench_traffic_json(const struct bench_traffic *t, const engine *en,
                        const struct bench_step *step, cJSON *o) {
    double steps = t->n_steps ? (double)t->n_steps : 1, read = 0, written = 0;
    cJSON *kernels = cJSON_AddObjectToObject(o, "decode_kernels");
    for (uint32_t i = 0; i < t->n_kernels; i++) {
        const struct engine_kernel *k = &t->sum[i];
        struct engine_kernel total;
        if (!k->dispatches) continue;
        cJSON *one = cJSON_AddObjectToObject(kernels, engine_kernel_get(en, i, &total));
        cJSON_AddNumberToObject(one, "dispatches", (double)k->dispatches / steps);
        cJSON_AddNumberToObject(one, "read_bytes", (double)k->read_bytes / steps);
        cJSON_AddNumberToObject(one, "written_bytes", (double)k->written_bytes / steps);
        read += (double)k->read_bytes / steps;
        written += (double)k->written_bytes / steps;
    }
    cJSON_AddNumberToObject(o, "decode_read_bytes_per_step", read);
    cJSON_AddNumberToObject(o, "decode_written_bytes_per_step", written);
    cJSON_AddNumberToObject(o, "decode_read_per_weight_byte", read / step->weight_bytes);
    if (strcmp(engine_backend_name(en), "cuda") != 0) /* the table has Apple's chips only */
        add_bounds(step, (read > 0 ? read + written : step->weight_bytes) + step->kv_bytes, o);
}

static double number_at(const cJSON *o, const char *name) {
    return cJSON_GetNumberValue(cJSON_GetObjectItemCaseSensitive(o, name));
}

static void print_kernel(const cJSON *k) {
    printf("  %8.1f x %-32s %10.1f KB read %10.1f KB written\n", number_at(k, "dispatches"),
           k->string, number_at(k, "read_bytes") * 1e-3, number_at(k, "written_bytes") * 1e-3);
}

static void print_bound(const cJSON *bound) {
    const char *chip = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(bound, "chip"));
    bool here = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(bound, "this_machine"));
    char cores[32] = "";
    if (number_at(bound, "gpu_cores_from") > 0)
        snprintf(cores, sizeof cores, ", %.0f GPU cores", number_at(bound, "gpu_cores_from"));
    printf("  %-14s %6.1f GB/s %10.1f tokens/s%s%s\n", chip, number_at(bound, "gb_per_s"),
           number_at(bound, "decode_tokens_per_s"), cores, here ? "   <- this machine's" : "");
}

static void print_each(const cJSON *list, void (*print)(const cJSON *one)) {
    for (const cJSON *one = list ? list->child : NULL; one; one = one->next)
        print(one);
}

void bench_traffic_print(const cJSON *o) {
    printf("a decode step reads %.3f MB (%.3f of each byte of the weights) and %.3f MB of KV "
           "pages, writes %.3f MB:\n",
           number_at(o, "decode_read_bytes_per_step") * 1e-6,
           number_at(o, "decode_read_per_weight_byte"),
           number_at(o, "kv_bytes_per_decode_step") * 1e-6,
           number_at(o, "decode_written_bytes_per_step") * 1e-6);
    print_each(cJSON_GetObjectItemCaseSensitive(o, "decode_kernels"), print_kernel);
    const cJSON *bounds = cJSON_GetObjectItemCaseSensitive(o, "bounds");
    if (!bounds) return;
    printf("upper bounds by the chips' memory bandwidth:\n");
    print_each(bounds, print_bound);
}
