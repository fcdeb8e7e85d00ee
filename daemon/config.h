/* config.h - the daemon's settings: one table of keys, each a flag and a line of daemon.conf.
 *
 * Precedence: default < file < flag. In a file `_` and `-` in keys are the same, `#` starts a
 * comment at the line's start or after white space, and byte sizes take K, M and G (1024). */
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
    CONFIG_PART,   /* double, 0 (not set) or a decimal fraction within min..max thousandths */
    CONFIG_SWITCH  /* bool, on or off */
};

struct config_key {
    const char *name;
    enum config_kind kind;
    size_t offset;       /* of the field in struct config */
    const char *initial; /* default, as it would be written in a file */
    uint64_t min, max;
    const char *choices; /* "f16|f32" */
    const char *unit;    /* "seconds", or "" */
    const char *help;    /* lines of text, '\n' between */
};

/* Strings are owned by the struct, never NULL between init and fini. */
struct config {
    char *model, *chat_template, *registry, *host, *backend, *isa, *activation_bits, *kv_cache_type,
        *block_tokens, *api_key_file, *log_level, *models_dir, *hf_endpoint, *hf_token_file,
        *unknown_fields, *prefix_sharing, *allowed_hosts;
    uint64_t port, threads, tensor_parallel, kv_cache_tokens, context_length, max_batch_tokens,
        prefill_chunk, max_sequences, max_queue, stream_events, grammar_cache_bytes, http_threads,
        prepare_threads, prepare_slow_threads, prepare_queue, prepare_budget_s, max_answer_bytes,
        max_connections, max_connections_per_address, max_body_bytes, max_header_bytes,
        idle_timeout_s, keepalive_ms, resume_timeout_s, resume_streams, resume_buffer_bytes,
        responses_ttl_s, responses_max_bytes, shutdown_deadline_s, hf_stall_s, hf_retries, device,
        max_priority, grammar_work_s, request_timeout_s;
    double gpu_memory_utilization;
    bool prefix_cache;
};

/* Defaults. ERR_NOMEM leaves nothing behind. */
int config_init(struct config *c, err *e);
void config_fini(struct config *c);

const struct config_key *config_keys(size_t *n);
const struct config_key *config_find(const char *name); /* NULL: no such key */

/* One value, from a flag or a line. ERR_INVALID (param: the key) leaves c as it was. */
int config_set(struct config *c, const char *name, const char *value, err *e);

/* Applies a file. Every problem becomes a line "FILE:LINE: text\n" in problems; lines without
 * problem are applied. ERR_IO (cannot read), ERR_INVALID (e holds the first problem). */
int config_load(struct config *c, const char *path, str *problems, err *e);

/* The commented file with every key at its default, and a key's bounds in words ("1 to 64, threads;
 * default 2"). */
void config_add_example(str *out);
void config_add_bounds(str *out, const struct config_key *key);

/* Where the registry is: the key, else systemd's STATE_DIRECTORY, else XDG_DATA_HOME, else
 * ~/.local/share. *path is the caller's. */
int config_registry_path(const struct config *c, char **path, err *e);

/* Where `inferd pull` puts models: the key, else below STATE_DIRECTORY, XDG_DATA_HOME or
 * ~/.local/share as the registry. *path is the caller's. */
int config_models_path(const struct config *c, char **path, err *e);

/* The Hub's address: the key, else $HF_ENDPOINT, else https://huggingface.co. Borrowed. */
const char *config_hf_endpoint(const struct config *c);
/* The Hub's token: hf-token-file's first line, else $HF_TOKEN, else "". *token is the caller's. */
int config_read_hf_token(const struct config *c, char **token, err *e);

/* The keys in api-key-file, one a line; none when the key is empty. Refused when others than the
 * owner (or its group) may read the file. */
struct config_api_keys {
    char **keys; /* (n) */
    size_t n;
};
int config_read_api_keys(const char *path, struct config_api_keys *out, err *e);
void config_api_keys_fini(struct config_api_keys *k);

#endif
