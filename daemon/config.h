/* config.h - the daemon's settings: one table of keys; each is a flag and a line of daemon.conf.
 *
 * Precedence: default < file < flag. In a file `_` and `-` in keys are equivalent, `#` starts a
 * comment at the beginning of a line or after white space, and byte sizes accept K, M and G (1024).
 */
#ifndef INFERD_CONFIG_H
#define INFERD_CONFIG_H

#include "core/base/err.h"
#include "core/base/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum config_kind {
    CONFIG_TEXT,   /* char *, may be empty */
    CONFIG_CHOICE, /* char *, one of choices */
    CONFIG_NUMBER, /* uint64_t within min..max */
    CONFIG_BYTES,  /* as CONFIG_NUMBER with K/M/G */
    CONFIG_PART,   /* double: 0 (not set) or a decimal fraction; min and max in thousandths */
    CONFIG_SWITCH  /* bool, on or off */
};

/* What a reload does with a key that has changed. */
enum config_reload {
    CONFIG_RESTART,  /* nothing: daemon/README.md says why */
    CONFIG_LIVE,     /* applies it */
    CONFIG_WHILE_ON, /* a number: applies it, but 0, which turns something off, needs a restart */
};

struct config_key {
    const char *name;
    enum config_kind kind;
    size_t offset; /* of the field in struct config */
    enum config_reload reload;
    const char *initial; /* default, as written in a file */
    uint64_t min, max;
    const char *choices; /* "f16|f32" */
    const char *unit;    /* "seconds", or "" */
    const char *help;    /* text; lines separated by '\n' */
};

/* Strings are owned by the struct, never NULL between init and fini. */
struct config {
    char *model, *chat_template, *registry, *host, *listen, *listen_mode, *tls_certificate,
        *tls_key, *tls_client_ca, *backend, *isa, *activation_bits, *kv_cache_type, *block_tokens,
        *api_key_file, *log_level, *models_dir, *hf_endpoint, *hf_token_file, *unknown_fields,
        *json_integers, *prefix_sharing, *allowed_hosts, *allowed_origins, *trusted_proxies,
        *model_aliases, *admin_key_file, *kv_dir, *kv_keep, *fair_share, *keep_alive, *log_format,
        *access_log, *otlp_endpoint, *objectives, *kv_events, *kv_events_replay, *kv_events_name,
        *stages, *stage_listen, *stage_layers, *stage_secret_file;
    uint64_t port, threads, tensor_parallel, pipeline_parallel, rank_timeout_s, kv_cache_tokens,
        context_length, max_batch_tokens, prefill_chunk, max_sequences, max_queue, stream_events,
        grammar_cache_bytes, http_threads, prepare_threads, prepare_slow_threads, prepare_queue,
        prepare_budget_s, max_answer_bytes, max_connections, max_connections_per_address,
        key_failures_per_minute, max_body_bytes, max_header_bytes, idle_timeout_s, keepalive_ms,
        resume_timeout_s, resume_streams, resume_buffer_bytes, responses_ttl_s, usage_days,
        responses_max_bytes, shutdown_deadline_s, file_max_bytes, files_max_bytes, files_max,
        batches_max, batch_lines, batch_max_lines, hang_s, hf_stall_s, hf_retries, device,
        max_priority, max_rerank_documents, grammar_work_s, request_timeout_s, max_models,
        max_model_tasks, unload_deadline_s, resident_s, command_buffer_ms, window_blocks,
        state_blocks, state_checkpoint_tokens, kv_dir_bytes, kv_dir_files, kv_dir_age_s,
        kv_dir_daily_bytes, kv_idle_s, kv_memory_bytes, memory_budget, load_wait_s, max_load_queue,
        otlp_queue, access_log_queue, drain_delay_s, prefix_header_tokens, kv_events_replay_bytes;
    double gpu_memory_utilization, otlp_ratio;
    bool prefix_cache, model_sampling, load_on_demand, registry_keys, explain_cache, vllm_metrics;
    char *file;      /* the last one that was loaded; NULL: none */
    unsigned *lines; /* (keys) of that file, where it sets each; 0: a flag does, or nothing */
};

/* Sets every key to its default. After ERR_NOMEM c holds nothing. */
int config_init(struct config *c, err *e);
void config_fini(struct config *c);

const struct config_key *config_keys(size_t *n);
const struct config_key *config_find(const char *name); /* NULL: no such key */

/* Sets one key from the text of a flag or line. ERR_INVALID (param: the key) leaves c unchanged. */
int config_set(struct config *c, const char *name, const char *value, err *e);

/* Does a reload apply the key, which differs in a and b? */
bool config_is_live(const struct config_key *key, const struct config *a, const struct config *b);
/* Do a and b agree on a key? / Copies a key's value. ERR_NOMEM leaves to unchanged. */
bool config_same(const struct config *a, const struct config *b, const struct config_key *key);
int config_copy(struct config *to, const struct config *from, const struct config_key *key, err *e);
/* Makes to, which is empty, a copy of all keys. On failure it holds nothing. */
int config_clone(struct config *to, const struct config *from, err *e);
/* Puts "FILE:LINE: " before an error whose param is a key that the file sets. */
void config_locate(const struct config *c, err *e);

/* Applies a file. Each problem adds a line "FILE:LINE: text\n" to problems; valid lines are
 * applied. ERR_IO (cannot read), ERR_INVALID (e holds the first problem). */
int config_load(struct config *c, const char *path, str *problems, err *e);

/* Adds the commented file with every key at its default / a key's bounds in words ("1 to 64
 * threads; default 2"). */
void config_add_example(str *out);
void config_add_bounds(str *out, const struct config_key *key);

/* Path of the registry: the key, else below systemd's STATE_DIRECTORY, XDG_DATA_HOME or
 * ~/.local/share. The caller frees *path. */
int config_registry_path(const struct config *c, char **path, err *e);

/* Folder where `inferd pull` stores models, found in the same way. The caller frees *path. */
int config_models_path(const struct config *c, char **path, err *e);

/* A folder of what programs keep for themselves, created if missing: name ("": the folder itself)
 * below systemd's STATE_DIRECTORY, or below inferd in XDG_STATE_HOME or ~/.local/state. The caller
 * frees *path. ERR_IO. */
int config_state_folder(const char *name, char **path, err *e);

/* The Hub's address: the key, else $HF_ENDPOINT, else https://huggingface.co. Borrowed. */
const char *config_hf_endpoint(const struct config *c);
/* The Hub's token: hf-token-file's first line, else $HF_TOKEN, else "". The caller frees *token. */
int config_read_hf_token(const struct config *c, char **token, err *e);

/* The API keys in the file at path, one per line; "": none. A file that users other than its owner
 * and group can read is refused. */
struct config_api_keys {
    char **keys; /* (n) */
    size_t n;
};
int config_read_api_keys(const char *path, struct config_api_keys *out, err *e);
/* Appends those of the file that the configuration key names. On failure out is empty. */
int config_add_api_keys(const char *key, const char *path, struct config_api_keys *out, err *e);
void config_api_keys_fini(struct config_api_keys *k);

#endif
