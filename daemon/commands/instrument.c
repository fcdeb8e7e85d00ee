/* instrument.c - the common start of tokenize, render, grammar, logits, perplexity and bench. */
#include "daemon/commands/instrument.h"

#include "core/text/utf8.h"
#include "daemon/logsink.h"
#include "daemon/ranks.h"

#include <string.h>

enum { PIECE_MAX_BYTES = 4096 };

const char *const instrument_text_keys[] = {"model", "registry", "log-level", NULL};
const char *const instrument_compute_keys[] = {"model",
                                               "registry",
                                               "backend",
                                               "isa",
                                               "activation-bits",
                                               "threads",
                                               "tensor-parallel",
                                               "pipeline-parallel",
                                               "stages",
                                               "stage-layers",
                                               "stage-secret-file",
                                               "rank-timeout-s",
                                               "device",
                                               "gpu-memory-utilization",
                                               "kv-cache-type",
                                               "block-tokens",
                                               "max-batch-tokens",
                                               "log-level",
                                               NULL};

int instrument_parse(struct instrument *in, int argc, char **argv, err *e) {
    memset(&in->model, 0, sizeof in->model);
    in->group = NULL;
    if (config_init(&in->config, e) || config_set(&in->config, "log-level", "warn", e)) return 1;
    in->options.config = &in->config;
    int rc = options_parse(&in->options, argc, argv, NULL, e);
    if (rc) return options_exit(rc);
    logsink_open(in->config.log_level, "text");
    if (in->options.keys == instrument_compute_keys) {
        bool followed = false;
        rc = ranks_check(&in->config, e);
        if (!rc) rc = ranks_join(&in->config, &in->group, &followed, e);
        if (rc || followed) return rc ? 1 : 0;
    }
    if (in->no_model && *in->no_model) return -1;
    return loader_find(&in->config, in->config.model, &in->model, e) ? 1 : -1;
}

void instrument_fini(struct instrument *in) {
    engine_group_leave(in->group);
    loader_model_fini(&in->model);
    config_fini(&in->config);
}

void instrument_piece(const tokenizer *tok, int32_t id, str *out) {
    size_t n;
    const char *text = tokenizer_token_text(tok, id, &n);
    str_init(out, PIECE_MAX_BYTES);
    utf8_add_lossy(out, text, n);
}
