/* bench_traffic.h - the kernels that decode steps of a benchmark ran, and their costs: bytes and
 * ALU cycles counted by the backend from its arguments' shapes (not on CPUs), pages of the KV cache
 * computed; the bounds that these are on each of Apple's chips; what the device tells of itself. */
#ifndef INFERD_DAEMON_COMMANDS_BENCH_TRAFFIC_H
#define INFERD_DAEMON_COMMANDS_BENCH_TRAFFIC_H

#include "core/engine/engine.h"

#include <cjson/cJSON.h>

struct bench_traffic {
    uint32_t n_kernels;
    uint64_t n_steps;           /* measured steps */
    struct engine_kernel *last; /* (ENGINE_MAX_KERNELS) counters after the previous step */
    struct engine_kernel *sum;  /* (ENGINE_MAX_KERNELS) over measured steps */
};

int bench_traffic_init(struct bench_traffic *t, const engine *en, err *e);
void bench_traffic_fini(struct bench_traffic *t); /* a zeroed one is fine */
/* Call after each step of the engine, on its worker. counts: the step is measured. */
void bench_traffic_step(struct bench_traffic *t, const engine *en, bool counts);

/* Traffic of a step that the backend does not count. */
struct bench_step {
    double weight_bytes, kv_bytes; /* read by a step of n_rows sequences */
    uint64_t n_rows;
};
/* Adds to o: decode_kernels {name: dispatches, bytes, cycles and time a step},
 * decode_read_bytes_per_step and decode_written_bytes_per_step (no KV pages; 0: not counted),
 * decode_read_per_weight_byte, and except with cuda bounds [{chip, tokens/s if a decode step took
 * only the time of its traffic, ALU time}]. */
void bench_traffic_json(const struct bench_traffic *t, const engine *en,
                        const struct bench_step *step, cJSON *o);
/* Adds to o: device {fact: value} and pipelines, where the backend has any. */
void bench_traffic_device_json(const engine *en, cJSON *o);
void bench_traffic_print(const cJSON *o); /* prints it as text, from that JSON */

#endif
