/* metrics_vllm.h - what engines count under the names that vLLM has at GET /metrics, which routers
 * (llm-d-router, Gateway API Inference Extension) and dashboards read. Any thread. */
#ifndef INFERD_API_NATIVE_METRICS_VLLM_H
#define INFERD_API_NATIVE_METRICS_VLLM_H

#include "api/generate/models.h"
#include "core/base/str.h"
#include "core/engine/engine.h"

/* The samples of a histogram, without its head. labels: `a="x",b="y"`, or "". */
void metrics_add_histogram(str *s, const char *name, const char *labels,
                           const struct engine_histogram *h);

/* One sample per model of each metric, labelled model_name and engine ("0"). Bounds of histograms
 * are the engine's, not vLLM's. */
void metrics_add_vllm(str *s, const struct models_list *list);

#endif
