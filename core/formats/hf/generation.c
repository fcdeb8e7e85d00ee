/* hf/generation.c - converts the recommended sampling of generation_config.json to the keys that
 * llama.cpp's converter writes (general.sampling.*). Owns nothing. */
#include "core/formats/hf/json.h"
#include "core/formats/hf/model_int.h"

#include "core/base/log.h"
#include "core/base/sampling.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int set_key(gguf_writer *keys, const char *key, double v, err *e) {
    bool count = strcmp(key, "general.sampling.top_k") == 0;
    return count ? gguf_writer_set_u32(keys, key, v < 0 ? 0 : (uint32_t)v, e)
                 : gguf_writer_set_f32(keys, key, (float)v, e);
}

int hf_generation_write(const void *document, const char *path, gguf_writer *keys, err *e) {
    static const char *const rows[][2] = {
        {"temperature", "general.sampling.temp"},
        {"top_p", "general.sampling.top_p"},
        {"top_k", "general.sampling.top_k"},
        {"min_p", "general.sampling.min_p"},
        {"repetition_penalty", "general.sampling.penalty_repeat"},
    };
    const cJSON *config = document;
    bool greedy = cJSON_IsFalse(hf_member(config, "do_sample"));
    if (greedy && gguf_writer_set_f32(keys, rows[0][1], 0, e)) return e ? e->code : ERR_NOMEM;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *name = rows[i][0];
        const cJSON *v = hf_member(config, name);
        struct sampling_recommended scratch = {0};
        err why = {0};
        bool penalty = strcmp(name, "repetition_penalty") == 0;
        if (!v || cJSON_IsNull(v) || (greedy && !penalty)) continue;
        int rc = cJSON_IsNumber(v) ? sampling_recommend(&scratch, name, v->valuedouble, &why)
                                   : err_set(&why, ERR_INVALID, "it is not a number");
        if (rc)
            log_warn("%s: %s is not used: %s", path, name, why.msg);
        else if ((rc = set_key(keys, rows[i][1], v->valuedouble, e)))
            return rc;
    }
    return 0;
}
