/* bench_traffic.h - which kernels the decode steps of a benchmark ran, and what these moved between
 * device and memory: counted by the backend from the shapes that it was given (CPUs do not count
 * bytes), the pages of the KV cache by arithmetic. */
#ifndef INFERD_DAEMON_COMMANDS_BENCH_TRAFFIC_H
#define INFERD_DAEMON_COMMANDS_BENCH_TRAFFIC_H

#include "core/engine/engine.h"

#include <cjson/cJSON.h>

struct bench_traffic {
    uint32_t n_kernels;
    uint64_t n_steps;           /* that count */
    struct engine_kernel *last; /* (ENGINE_MAX_KERNELS) behind the step before */
    struct engine_kernel *sum;  /* (ENGINE_MAX_KERNELS) over those that count */
};

int bench_traffic_init(struct bench_traffic *t, const engine *en, err *e);
void bench_traffic_fini(struct bench_traffic *t); /* a zeroed one is fine */
/* Behind each step of the engine, on its worker. counts: it is one of those that are measured. */
void bench_traffic_step(struct bench_traffic *t, const engine *en, bool counts);

/* What a step is made of beside what the backend counts. */
struct bench_step {
    double weight_bytes, kv_bytes; /* that a step of n_rows sequences reads */
    uint64_t n_rows;
};
/* To o: decode_kernels {name: dispatches and bytes a step}, decode_read_bytes_per_step and
 * decode_written_bytes_per_step (no KV pages; 0: not counted), decode_read_per_weight_byte, and
 * but with cuda bounds [{chip, tokens a second if a decode step did nothing but move its bytes}].
 */
void bench_traffic_json(const struct bench_traffic *t, const engine *en,
                        const struct bench_step *step, cJSON *o);
void bench_traffic_print(const cJSON *o); /* the same as text, from that JSON */

#endif
