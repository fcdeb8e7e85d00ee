/* config.h - what the daemon gives to api_open and api_set_models. */
#ifndef INFERD_API_GENERATE_CONFIG_H
#define INFERD_API_GENERATE_CONFIG_H

#include "api/http/http_config.h"
#include "core/base/err.h"
#include "core/base/str.h"
#include "core/chat/chat.h"
#include "core/engine/engine.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct model_admin; /* model_admin.h */
struct responses;   /* registry/responses.h */

/* Whose requests share an engine evenly. */
enum fair_share { FAIR_OFF, FAIR_KEY, FAIR_ADDRESS, FAIR_HEADER };

enum {
    API_MAX_MODELS = 32,
    API_MODEL_ID_BYTES = 97, /* as REGISTRY_NAME_BYTES */
    API_MAX_BATCH_LINES = 1024
};

/* A served model. Borrowed: everything outlives api_remove_model, or else api_close. */
struct api_model {
    const char *id;             /* name in the registry */
    const char *const *aliases; /* (n_aliases) other names that requests may use */
    size_t n_aliases;
    engine *engine;
    const chat_template *chat; /* NULL: chat requests are refused with the reason */
    int64_t created_s;
    const char *sha256; /* as in the registry; "": not registered */
    uint64_t serial;    /* differs from that of every earlier model; set by the table (models.h) */
};

struct api_config {
    struct http_config http;
    uint32_t
        resume_timeout_s;    /* how long a stream whose connection ended can be resumed; 0: never */
    uint32_t resume_streams; /* most streams kept for that at once */
    uint32_t resume_buffer_bytes;  /* of the last frames of each */
    bool share_prefixes;           /* all API keys share cached prompts */
    uint32_t prefix_header_tokens; /* that x-inferd-prefix depends on; 0: no header */
    bool explain_cache;            /* answers say why no more of the prompt was cached */
    bool vllm_metrics;             /* /metrics has what engines count under vLLM's names, too */
    enum fair_share fair_share;
    uint32_t max_rerank_documents; /* of one request */
    int max_priority;              /* largest priority that a request may have */
    bool draft_integers;           /* see struct grammar_schema */
    bool refuse_ignored;     /* unknown and advisory request fields are refused; otherwise they
                                are named in a header of the answer */
    struct responses *store; /* of /v1/responses; borrowed until api_close; NULL: no store */
    const char
        *registry; /* file of the catalogue of models; borrowed until api_close; NULL: none */
    struct ledger *ledger;    /* registry/ledger.h; borrowed until api_close; NULL: none */
    struct batches *batches;  /* registry/batches.h: files and batches; borrowed until api_close;
                                 NULL: none */
    uint64_t max_file_bytes;  /* of an uploaded file */
    uint32_t batch_lines;     /* requests of batches at once, up to API_MAX_BATCH_LINES */
    uint32_t batch_max_lines; /* of one batch */
    struct audit *audit;      /* registry/audit.h; borrowed until api_close; NULL: none */
    struct keyring *keyring;  /* keys of the registry (registry/keys.h); borrowed until api_close;
                                 NULL: none */
    const struct model_admin *admin; /* loads and unloads models; borrowed until api_close; NULL:
                                        the served models do not change */
    const char *model_aliases;       /* model_alias.h; NULL: none. Not kept */
    const char *objectives;          /* limits_read_objectives; NULL: none. Not kept */
    /* Reads the configuration again (daemon/reload.h); NULL: there is none. Pool threads. Adds
     * names of keys, "a, b": applied ones, and those that need a restart. */
    int (*reload)(void *reload_arg, str *applied, str *pending, err *e);
    void *reload_arg;
    const char *version; /* "0.1.0" */
    kvstore *kv_store;   /* that of the engines; borrowed until api_close; NULL: none */
};

#endif
