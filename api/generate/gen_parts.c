/* gen_parts.c - parts of answers that writers share. Owns nothing; HTTP threads. */
#include "api/generate/gen.h"
#include "api/generate/miss.h"

#include "api/generate/api_state.h"
#include "api/http/json.h"

#include <inttypes.h>
#include <stdlib.h>

void gen_prompts_free(struct gen_prompt *prompts, size_t n) {
    for (size_t i = 0; prompts && i < n; i++) {
        free(prompts[i].ids);
        miss_map_free(prompts[i].miss_map);
    }
    free(prompts);
}

struct gen_usage gen_usage_of(const struct gen *g) {
    struct gen_usage u = {0};
    for (size_t i = 0; i < g->n_prompts; i++) {
        u.prompt += g->prompts[i].n;
        u.cached += g->prompts[i].n_cached;
    }
    for (uint32_t i = 0; i < g->n_choices; i++) {
        u.completion += g->choices[i].n_tokens;
        u.reasoning += g->choices[i].n_reasoning;
    }
    return u;
}

void gen_add_usage(const struct gen *g, str *out) {
    struct gen_usage u = gen_usage_of(g);
    str_addf(out,
             "\"usage\":{\"prompt_tokens\":%" PRIu64 ",\"completion_tokens\":%" PRIu64
             ",\"total_tokens\":%" PRIu64 ",\"prompt_tokens_details\":{\"cached_tokens\":%" PRIu64,
             u.prompt, u.completion, u.prompt + u.completion, u.cached);
    miss_add(g, out);
    str_addf(out, "},\"completion_tokens_details\":{\"reasoning_tokens\":%" PRIu64 "}}",
             u.reasoning);
}

static void write_head(struct gen *g, const char *object) {
    str_addf(&g->head, "{\"id\":\"%s\",\"object\":\"%s\",\"created\":%" PRId64 ",\"model\":", g->id,
             object, g->created_s);
    json_add_cstr(&g->head, g->model->id);
    str_add(&g->head, ",\"system_fingerprint\":\"inferd-");
    str_add(&g->head, g->api->config.version);
    str_addf(&g->head, "-%s\",", engine_backend_name(g->model->engine));
}

void gen_add_head(struct gen *g, const char *object, str *out) {
    if (!g->head.len) write_head(g, object);
    str_add_n(out, str_cstr(&g->head), g->head.len);
    out->failed |= g->head.failed;
}

const char *gen_finish_name(enum gen_finish finish) {
    static const char *const names[] = {"stop", "length", "tool_calls"};
    return names[finish];
}

bool gen_call_is_whole(const struct gen_call *call) {
    cJSON *v = NULL;
    json_parse(str_cstr(&call->arguments), call->arguments.len, &v, NULL);
    bool whole = cJSON_IsObject(v);
    cJSON_Delete(v);
    return whole;
}
