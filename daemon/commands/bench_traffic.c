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
            sum->costs.most_hidden += now.costs.most_hidden - last->costs.most_hidden;
            sum->costs.cycles += now.costs.cycles - last->costs.cycles;
            sum->costs.ns += now.costs.ns - last->costs.ns;
        }
        *last = now;
    }
    t->n_steps += counts;
}

static double number_at(const cJSON *o, const char *name) {
    return cJSON_GetNumberValue(cJSON_GetObjectItemCaseSensitive(o, name));
}

/* Seconds that a kernel's bytes and cycles take on a chip. */
static double bytes_s(const cJSON *kernel, double gb_per_s) {
    return (number_at(kernel, "read_bytes") + number_at(kernel, "most_hidden_bytes") +
            number_at(kernel, "written_bytes")) /
           (gb_per_s * 1e9);
}

static double alu_s(const cJSON *kernel, double lane_cycles_per_s) {
    return number_at(kernel, "lane_cycles") / lane_cycles_per_s;
}

/* A step's ALU time on a chip, and the kernel whose ALU time comes closest to its bytes' time. */
static void add_alu(const struct chip *chip, const cJSON *kernels, cJSON *one) {
    const double rate = (double)chip->n_cores * CHIPS_CORE_LANES * chip->ghz * 1e9;
    double bytes = 0, alu = 0, n = 0, most = 0;
    const cJSON *k, *worst = NULL;
    cJSON_ArrayForEach(k, kernels) {
        const double share = alu_s(k, rate) / bytes_s(k, chip->gb_per_s);
        bytes += bytes_s(k, chip->gb_per_s);
        alu += alu_s(k, rate);
        n += number_at(k, "dispatches");
        if (share > most) most = share, worst = k;
    }
    cJSON_AddNumberToObject(one, "lane_cycles_per_s", rate);
    cJSON_AddNumberToObject(one, "bytes_ms", bytes * 1e3);
    cJSON_AddNumberToObject(one, "alu_ms", alu * 1e3);
    cJSON_AddNumberToObject(one, "dispatch_ms", n * CHIPS_DISPATCH_US * 1e-3);
    cJSON_AddNumberToObject(one, "most_alu_share", most);
    if (worst) cJSON_AddStringToObject(one, "most_alu_share_of", worst->string);
}

static void add_bounds(const struct bench_step *step, double bytes, cJSON *o) {
    const cJSON *kernels = cJSON_GetObjectItemCaseSensitive(o, "decode_kernels");
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
        if (kernels && kernels->child) add_alu(chip, kernels, one);
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
        cJSON_AddNumberToObject(one, "most_hidden_bytes", (double)k->costs.most_hidden / steps);
        cJSON_AddNumberToObject(one, "lane_cycles", (double)k->costs.cycles / steps);
        cJSON_AddNumberToObject(one, "device_us", (double)k->costs.ns * 1e-3 / steps);
        read += (double)k->read_bytes / steps;
        written += (double)k->written_bytes / steps;
    }
    cJSON_AddNumberToObject(o, "decode_read_bytes_per_step", read);
    cJSON_AddNumberToObject(o, "decode_written_bytes_per_step", written);
    cJSON_AddNumberToObject(o, "decode_read_per_weight_byte", read / step->weight_bytes);
    if (strcmp(engine_backend_name(en), "cuda") != 0) /* the table has Apple's chips only */
        add_bounds(step, (read > 0 ? read + written : step->weight_bytes) + step->kv_bytes, o);
}

void bench_traffic_device_json(const engine *en, cJSON *o) {
    struct backend_fact fact;
    struct backend_pipeline p;
    if (!engine_fact_get(en, 0, &fact)) return;
    cJSON *device = cJSON_AddObjectToObject(o, "device");
    for (uint32_t i = 0; engine_fact_get(en, i, &fact); i++)
        cJSON_AddNumberToObject(device, fact.name, fact.value);
    cJSON *pipelines = cJSON_AddArrayToObject(o, "pipelines");
    for (uint32_t i = 0; engine_pipeline_get(en, i, &p); i++) {
        cJSON *one = cJSON_CreateObject(), *constants;
        cJSON_AddStringToObject(one, "kernel", p.kernel);
        constants = cJSON_AddObjectToObject(one, "constants");
        for (uint32_t c = 0; c < p.n_consts; c++) {
            char index[16];
            snprintf(index, sizeof index, "%u", p.index[c]);
            cJSON_AddNumberToObject(constants, index, p.value[c]);
        }
        cJSON_AddNumberToObject(one, "max_threads", p.max_threads);
        cJSON_AddNumberToObject(one, "simd_width", p.simd_width);
        cJSON_AddNumberToObject(one, "static_threadgroup_bytes", p.shared_bytes);
        cJSON_AddNumberToObject(one, "compile_ms", p.compile_ms);
        cJSON_AddItemToArray(pipelines, one);
    }
}

static void print_kernel(const cJSON *k) {
    printf("  %8.1f x %-24s %10.1f KB read %10.1f KB written", number_at(k, "dispatches"),
           k->string, (number_at(k, "read_bytes") + number_at(k, "most_hidden_bytes")) * 1e-3,
           number_at(k, "written_bytes") * 1e-3);
    if (number_at(k, "lane_cycles") > 0)
        printf(" %10.1f million lane cycles", number_at(k, "lane_cycles") * 1e-6);
    if (number_at(k, "device_us") > 0) printf(" %10.1f us", number_at(k, "device_us"));
    printf("\n");
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

static void print_alu(const cJSON *bound) {
    const char *chip = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(bound, "chip"));
    const char *worst =
        cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(bound, "most_alu_share_of"));
    if (!worst) return;
    printf("  %-14s %8.3f ms for its bytes %8.3f ms on ALUs %8.3f ms of dispatches; %s: %.0f %% of "
           "its bytes' time\n",
           chip, number_at(bound, "bytes_ms"), number_at(bound, "alu_ms"),
           number_at(bound, "dispatch_ms"), worst, 100 * number_at(bound, "most_alu_share"));
}

/* Of each kernel: on this machine's chip, or the slowest. */
static void print_kernel_bounds(const cJSON *o, const cJSON *bounds) {
    const cJSON *kernels = cJSON_GetObjectItemCaseSensitive(o, "decode_kernels");
    const cJSON *at = bounds->child;
    for (const cJSON *b = at; b; b = b->next)
        if (cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(b, "this_machine"))) at = b;
    if (!at || !(number_at(at, "lane_cycles_per_s") > 0)) return;
    printf("bounds of a step's kernels on %s:\n",
           cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(at, "chip")));
    for (const cJSON *k = kernels ? kernels->child : NULL; k; k = k->next)
        printf("  %-24s %10.1f us for its bytes %10.1f us on ALUs %10.1f us of dispatches\n",
               k->string, bytes_s(k, number_at(at, "gb_per_s")) * 1e6,
               alu_s(k, number_at(at, "lane_cycles_per_s")) * 1e6,
               number_at(k, "dispatches") * CHIPS_DISPATCH_US);
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
    print_kernel_bounds(o, bounds);
    print_each(bounds, print_alu);
}
