/* config.c - the table of keys, and the reading of values and files by it. Everything that says
 * what a key is (flags, --help, daemon.conf.example, checks) comes from the table. */
#include "daemon/config.h"

#include "core/base/mem.h"
#include "core/text/utf8.h"
#include "daemon/input.h"

#include <stdlib.h>
#include <string.h>

enum { FILE_MAX_BYTES = 1 << 20, PROBLEMS_MAX = 100 };

#define AT(field) offsetof(struct config, field)

static const struct config_key keys[] = {
    {"model", CONFIG_TEXT, AT(model), "", 0, 0, NULL, "",
     "Models to serve: registered names or aliases or paths of GGUF files, commas between.\n"
     "Empty: the only registered model, or the registered one whose name begins with \"demo\" or\n"
     "\"inferd-demo\"."},
    {"chat-template", CONFIG_TEXT, AT(chat_template), "", 0, 0, NULL, "",
     "How messages become a prompt, instead of the models' own templates: a Jinja file, or one of\n"
     "alpaca, chatml, gemma, llama2, llama3, mistral, mistral-tekken, phi3, vicuna, zephyr. "
     "Empty:\n"
     "the model's own, or where it has none the format that its control tokens tell."},
    {"registry", CONFIG_TEXT, AT(registry), "", 0, 0, NULL, "",
     "The registry's file. Empty: $STATE_DIRECTORY/registry.db under systemd, otherwise\n"
     "inferd/registry.db in $XDG_DATA_HOME or ~/.local/share."},
    {"host", CONFIG_TEXT, AT(host), "127.0.0.1", 0, 0, NULL, "",
     "Address to listen on. 0.0.0.0 or :: lets other machines in: set api-key-file then."},
    {"port", CONFIG_NUMBER, AT(port), "8080", 0, 65535, NULL, "",
     "TCP port. 0: any free one, printed at start. A socket that systemd or launchd hands over is\n"
     "used instead of host and port."},
    {"backend", CONFIG_CHOICE, AT(backend), "auto", 0, 0, "auto|cpu|metal|cuda", "",
     "Device that computes. metal: the GPU of a Mac. cuda: an NVIDIA GPU (compute capability 8.0 "
     "or\n"
     "higher), by the module libinferd-cuda.so. auto: metal or cuda where this build and this "
     "machine\n"
     "have it, otherwise cpu."},
    {"device", CONFIG_NUMBER, AT(device), "0", 0, 63, NULL, "",
     "Which NVIDIA GPU, where there are several: its number as nvidia-smi has it."},
    {"gpu-memory-utilization", CONFIG_PART, AT(gpu_memory_utilization), "0", 100, 1000, NULL, "",
     "Part of an NVIDIA GPU's memory that each model of this process may hold at most: weights, "
     "KV\n"
     "cache and what steps need. 0: 0.9. A model that does not fit is refused at start, with the\n"
     "numbers."},
    {"isa", CONFIG_TEXT, AT(isa), "", 0, 0, NULL, "",
     "Instruction set of the CPU's kernels (generic, avx2, ...). Empty: the best one here. With\n"
     "backend = auto it chooses the CPU; another backend refuses it."},
    {"activation-bits", CONFIG_CHOICE, AT(activation_bits), "8", 0, 0, "8|16", "",
     "On the CPU, bits of activations in products with quantized weights: 8 is fastest, 16 is "
     "exact\n"
     "to about 4 digits at up to half the speed. Metal keeps 32-bit numbers, CUDA 16-bit ones."},
    {"threads", CONFIG_NUMBER, AT(threads), "0", 0, 1024, NULL, "threads",
     "Threads of the CPU that compute. 0: one for each physical (performance) core that the "
     "process\n"
     "may use. Of no use to another backend."},
    {"tensor-parallel", CONFIG_NUMBER, AT(tensor_parallel), "1", 1, 16, NULL, "ranks",
     "Devices of this machine that a model is spread over, each with a part of its heads, hidden\n"
     "columns and KV cache; heads and KV heads must be divisible by it. With backend = cuda so "
     "many\n"
     "GPUs from device on, through NCCL; with cpu groups of threads, on nodes of memory of their\n"
     "own where the machine has several."},
    {"kv-cache-tokens", CONFIG_NUMBER, AT(kv_cache_tokens), "0", 0, UINT64_C(1) << 30, NULL,
     "tokens",
     "Size of the KV cache, shared by all requests of a model; its memory is taken at start.\n"
     "0: room for 8 full contexts, at least 65536 tokens, within 8 GiB and a quarter of the\n"
     "available memory, or half of what the GPU of a Mac should hold beside the weights. On an\n"
     "NVIDIA GPU: what gpu-memory-utilization leaves beside weights and step buffers, up to\n"
     "max-sequences full contexts. The log says the size."},
    {"kv-cache-type", CONFIG_CHOICE, AT(kv_cache_type), "f16", 0, 0, "f16|bf16|q8_0|f32", "",
     "Number format of the KV cache. q8_0 takes about half of f16's memory and is less exact; the\n"
     "model's heads must have a multiple of 32 dimensions then."},
    {"block-tokens", CONFIG_CHOICE, AT(block_tokens), "16", 0, 0, "16|32", "tokens",
     "Tokens in one block of the KV cache."},
    {"context-length", CONFIG_NUMBER, AT(context_length), "0", 0, UINT64_C(1) << 24, NULL, "tokens",
     "Most tokens of prompt and answer together. 0: what the model was made for."},
    {"max-batch-tokens", CONFIG_NUMBER, AT(max_batch_tokens), "512", 1, 65536, NULL, "tokens",
     "Most tokens of all sequences that one step computes."},
    {"prefill-chunk", CONFIG_NUMBER, AT(prefill_chunk), "0", 0, 65536, NULL, "tokens",
     "Most prompt tokens a step while others are getting answers: bounds the gap between their\n"
     "tokens. Never more than max-batch-tokens. 0: as many as keep a step near twice the time "
     "that\n"
     "it takes without them, as measured while serving."},
    {"max-sequences", CONFIG_NUMBER, AT(max_sequences), "64", 1, 4096, NULL, "sequences",
     "Most sequences that run at once; more wait in the queue."},
    {"max-queue", CONFIG_NUMBER, AT(max_queue), "256", 1, 65536, NULL, "sequences",
     "Most sequences that wait to be started; beyond it requests are answered with 429. Those "
     "that\n"
     "are bound to a schema or a grammar hold 1.2 MB each, started ones too, and share its "
     "automata:\n"
     "mostly some 100 KB, at most 32 MiB."},
    {"stream-events", CONFIG_NUMBER, AT(stream_events), "512", 8, 65536, NULL, "events",
     "Tokens of a request that are kept for a client that reads slowly; its sequences then wait."},
    {"prefix-cache", CONFIG_SWITCH, AT(prefix_cache), "on", 0, 0, NULL, "",
     "Computes the common beginning of prompts once."},
    {"prefix-sharing", CONFIG_CHOICE, AT(prefix_sharing), "key", 0, 0, "key|all", "",
     "Whose prompts a request may find computed already. With key those of its own API key alone:\n"
     "how fast an answer comes, and cached_tokens, would tell others what was asked. all: of "
     "every\n"
     "key. Without API keys everybody shares. A request's cache_salt parts them further."},
    {"grammar-cache-bytes", CONFIG_BYTES, AT(grammar_cache_bytes), "32M", 0, UINT64_C(1) << 34,
     NULL, "bytes",
     "Memory of each model for what schemas and grammars allow next, kept for states that come\n"
     "again. 0: worked out anew each time."},
    {"grammar-work-s", CONFIG_NUMBER, AT(grammar_work_s), "60", 0, 86400, NULL, "seconds",
     "Processor time that finding out what a schema or grammar allows next may take for one "
     "answer;\n"
     "then it ends with an error. What takes long is found beside the steps, so that other answers "
     "go\n"
     "on. 0: no bound."},
    {"http-threads", CONFIG_NUMBER, AT(http_threads), "2", 1, 64, NULL, "threads",
     "Threads that serve connections; a waiting stream costs none."},
    {"prepare-threads", CONFIG_NUMBER, AT(prepare_threads), "2", 1, 64, NULL, "threads",
     "Threads that read common requests: JSON, templates, tokens, grammars, kept responses."},
    {"prepare-slow-threads", CONFIG_NUMBER, AT(prepare_slow_threads), "2", 1, 64, NULL, "threads",
     "Threads of low priority for requests that take more than some 20 ms of that. Of several,\n"
     "one client has all but one at most. Clients (API keys, or addresses) take turns."},
    {"prepare-queue", CONFIG_NUMBER, AT(prepare_queue), "1024", 1, 65536, NULL, "requests",
     "Requests that are being read or wait for it; beyond it they are answered with 503, those of\n"
     "the client with the most of them first."},
    {"prepare-budget-s", CONFIG_NUMBER, AT(prepare_budget_s), "5", 1, 3600, NULL, "seconds",
     "Work that a request may take before the model begins: template and grammar. Counted in "
     "steps,\n"
     "so that it does not depend on load; a second is about one of a core. 400 beyond it."},
    {"max-connections", CONFIG_NUMBER, AT(max_connections), "4096", 1, 65536, NULL, "connections",
     "Open connections. At that many, a new one takes the place of the one that has been idle for\n"
     "longest; where all are busy, 32 more may ask for /livez, /readyz, /health and /metrics, and\n"
     "get 503 for anything else. Lowered at start to what the limit of open files allows."},
    {"max-connections-per-address", CONFIG_NUMBER, AT(max_connections_per_address), "0", 0, 65536,
     NULL, "connections",
     "Open connections of one client address (of IPv6 its first 64 bits); more are closed at\n"
     "once. 0: as many as max-connections. Leave it so behind a reverse proxy: all of its clients\n"
     "have its address."},
    {"max-body-bytes", CONFIG_BYTES, AT(max_body_bytes), "8M", 1024, UINT64_C(1) << 30, NULL,
     "bytes",
     "Largest request body; 413 beyond it. All that arrive at once hold at most 16 times as\n"
     "much (64K of each not counted); 503 beyond that."},
    {"max-header-bytes", CONFIG_BYTES, AT(max_header_bytes), "32K", 1024, 1 << 20, NULL, "bytes",
     "Largest request header; 431 beyond it."},
    {"idle-timeout-s", CONFIG_NUMBER, AT(idle_timeout_s), "60", 1, 86400, NULL, "seconds",
     "Closes a connection on which nothing is asked. A request may take twice as long to\n"
     "arrive, a large body longer (10 KB/s)."},
    {"keepalive-ms", CONFIG_NUMBER, AT(keepalive_ms), "15000", 10, 600000, NULL, "milliseconds",
     "Interval of keep-alive comments in a stream that has nothing to send."},
    {"max-answer-bytes", CONFIG_BYTES, AT(max_answer_bytes), "256M", 1 << 20, UINT64_C(1) << 40,
     NULL, "bytes",
     "Most bytes of all answers that are being made, wait to be read or can be sent again, 64K of\n"
     "each not counted. At the bound whole answers of which nothing was read for 2 seconds are "
     "cut\n"
     "off, the longest wait first, and streams are not kept for Last-Event-ID; then 503."},
    {"resume-timeout-s", CONFIG_NUMBER, AT(resume_timeout_s), "60", 0, 86400, NULL, "seconds",
     "How long a stream whose connection ended can be resumed with Last-Event-ID; it computes\n"
     "nothing meanwhile. 0: never."},
    {"resume-streams", CONFIG_NUMBER, AT(resume_streams), "64", 1, 65536, NULL, "streams",
     "Streams that are kept for that at once; the oldest leaves first."},
    {"resume-buffer-bytes", CONFIG_BYTES, AT(resume_buffer_bytes), "256K", 4096, 16 << 20, NULL,
     "bytes", "How much of what was sent last can be sent again, for each of them."},
    {"allowed-hosts", CONFIG_TEXT, AT(allowed_hosts), "", 0, 0, NULL, "",
     "Names under which the daemon answers (the Host header), commas between; .example.com is\n"
     "every name below example.com, * any name. Addresses, localhost and host.docker.internal\n"
     "always are. Empty: on a loopback address without api-key-file these alone, so that other\n"
     "sites' pages cannot reach the daemon by a name of their own; otherwise any name."},
    {"api-key-file", CONFIG_TEXT, AT(api_key_file), "", 0, 0, NULL, "",
     "File with accepted API keys, one a line, that only its owner (or group) may read.\n"
     "Empty: no key is asked for."},
    {"max-priority", CONFIG_NUMBER, AT(max_priority), "0", 0, 1000, NULL, "",
     "Highest priority that a request may ask for; 400 beyond it. Any may go below 0, which is "
     "what\n"
     "requests have that do not ask."},
    {"request-timeout-s", CONFIG_NUMBER, AT(request_timeout_s), "3600", 0, UINT64_C(31536000), NULL,
     "seconds",
     "Time from a request's headers to the end of its answer, with all that it waits for; then it "
     "is\n"
     "answered with 504, or its stream ends with an error. The header X-Request-Timeout-Ms asks "
     "for\n"
     "less. 0: no bound."},
    {"unknown-fields", CONFIG_CHOICE, AT(unknown_fields), "refuse", 0, 0, "refuse|ignore", "",
     "What happens to fields of a request that this server does not know: refuse answers 400,\n"
     "ignore drops them and names them in the answer's header x-inferd-ignored-fields."},
    {"responses-ttl-s", CONFIG_NUMBER, AT(responses_ttl_s), "2592000", 0, UINT64_C(315360000), NULL,
     "seconds",
     "How long a response of /v1/responses is kept in the registry's file; a conversation as long\n"
     "after its last one. 0: none is kept."},
    {"responses-max-bytes", CONFIG_BYTES, AT(responses_max_bytes), "256M", 64 << 10,
     UINT64_C(1) << 40, NULL, "bytes",
     "Most bytes that all kept responses take in the registry's file. Beyond it the API key that\n"
     "holds most loses those that would expire first. One response may have an eighth of it."},
    {"shutdown-deadline-s", CONFIG_NUMBER, AT(shutdown_deadline_s), "30", 0, 3600, NULL, "seconds",
     "How long SIGTERM lets running answers finish."},
    {"models-dir", CONFIG_TEXT, AT(models_dir), "", 0, 0, NULL, "",
     "Folder that `inferd pull` puts models in. Empty: $STATE_DIRECTORY/models under systemd,\n"
     "otherwise inferd/models in $XDG_DATA_HOME or ~/.local/share."},
    {"hf-endpoint", CONFIG_TEXT, AT(hf_endpoint), "", 0, 0, NULL, "",
     "Address of the Hugging Face Hub or a mirror. Empty: $HF_ENDPOINT, otherwise\n"
     "https://huggingface.co."},
    {"hf-token-file", CONFIG_TEXT, AT(hf_token_file), "", 0, 0, NULL, "",
     "File with the Hub's access token, that only its owner (or group) may read. Empty: "
     "$HF_TOKEN,\n"
     "if set. It is sent to the Hub's own address alone, and never over plain http."},
    {"hf-stall-s", CONFIG_NUMBER, AT(hf_stall_s), "30", 1, 3600, NULL, "seconds",
     "A download that brings nothing for so long is given up and tried again."},
    {"hf-retries", CONFIG_NUMBER, AT(hf_retries), "5", 0, 100, NULL, "tries",
     "How often a download is tried again, from where it stopped, before it fails."},
    {"log-level", CONFIG_CHOICE, AT(log_level), "info", 0, 0, "debug|info|warn|error", "",
     "Least important messages that are logged (to stderr)."},
};

enum { N_KEYS = sizeof keys / sizeof keys[0] };

const struct config_key *config_keys(size_t *n) {
    *n = N_KEYS;
    return keys;
}

static bool same_name(const char *key, const char *name) {
    for (; *key && *name; key++, name++)
        if (*key != (*name == '_' ? '-' : *name)) return false;
    return *key == *name;
}

const struct config_key *config_find(const char *name) {
    for (size_t i = 0; i < N_KEYS; i++)
        if (same_name(keys[i].name, name)) return &keys[i];
    return NULL;
}

static int set_text(struct config *c, const struct config_key *key, const char *value, err *e) {
    char **field = (char **)((char *)c + key->offset);
    if (key->kind == CONFIG_CHOICE && !words_hold(key->choices, value))
        return err_set_param(e, ERR_INVALID, key->name, "%s: \"%.64s\" is none of %s", key->name,
                             value, key->choices);
    char *copy = mem_strdup(value);
    if (!copy) return err_set(e, ERR_NOMEM, "no memory for the configuration");
    free(*field);
    *field = copy;
    return 0;
}

/* Digits, for bytes one of K, M, G after them. */
static bool parse_number(const char *text, bool bytes, uint64_t *number) {
    uint64_t n = 0;
    if (*text < '0' || *text > '9') return false;
    for (; *text >= '0' && *text <= '9'; text++)
        if (!mem_mul(n, 10, &n) || !mem_add(n, (uint64_t)(*text - '0'), &n)) return false;
    if (bytes && *text) {
        static const char suffixes[] = "KMG";
        const char *suffix = strchr(suffixes, *text);
        if (!suffix || text[1]) return false;
        for (const char *s = suffixes; s <= suffix; s++)
            if (!mem_mul(n, 1024, &n)) return false;
        text++;
    }
    *number = n;
    return *text == '\0';
}

static int set_number(struct config *c, const struct config_key *key, const char *value, err *e) {
    bool bytes = key->kind == CONFIG_BYTES;
    uint64_t n;
    if (!parse_number(value, bytes, &n))
        return err_set_param(e, ERR_INVALID, key->name, "%s: \"%.64s\" is not a %s", key->name,
                             value, bytes ? "size (a number, or one with K, M or G)" : "number");
    if (n < key->min || n > key->max)
        return err_set_param(e, ERR_INVALID, key->name, "%s: %llu is out of bounds (%llu to %llu)",
                             key->name, (unsigned long long)n, (unsigned long long)key->min,
                             (unsigned long long)key->max);
    *(uint64_t *)((char *)c + key->offset) = n;
    return 0;
}

/* "0", "1" or "0.85": digits with one point among them. */
static int set_part(struct config *c, const struct config_key *key, const char *value, err *e) {
    double part = 0, unit = 1;
    const char *s = value;
    for (; *s >= '0' && *s <= '9'; s++)
        part = 10 * part + (*s - '0');
    bool number = s > value;
    if (*s == '.')
        for (s++; *s >= '0' && *s <= '9'; s++)
            part += (unit /= 10) * (*s - '0');
    if (!number || *s)
        return err_set_param(e, ERR_INVALID, key->name, "%s: \"%.64s\" is not a decimal fraction",
                             key->name, value);
    double min = (double)key->min / 1000, max = (double)key->max / 1000;
    if (part != 0 && !(part >= min && part <= max))
        return err_set_param(e, ERR_INVALID, key->name, "%s: %g is out of bounds (%g to %g, or 0)",
                             key->name, part, min, max);
    memcpy((char *)c + key->offset, &part, sizeof part);
    return 0;
}

static int set_switch(struct config *c, const struct config_key *key, const char *value, err *e) {
    bool on = strcmp(value, "on") == 0;
    if (!on && strcmp(value, "off") != 0)
        return err_set_param(e, ERR_INVALID, key->name, "%s: \"%.64s\" is neither on nor off",
                             key->name, value);
    *(bool *)((char *)c + key->offset) = on;
    return 0;
}

int config_set(struct config *c, const char *name, const char *value, err *e) {
    const struct config_key *key = config_find(name);
    if (!key) {
        struct suggest s;
        suggest_init(&s, name);
        for (size_t i = 0; i < N_KEYS; i++)
            suggest_offer(&s, keys[i].name);
        return err_set(e, ERR_INVALID, "unknown key \"%.48s\"%s%s%s", name,
                       s.best ? " (did you mean \"" : "", s.best ? s.best : "",
                       s.best ? "\"?)" : "");
    }
    switch (key->kind) {
    case CONFIG_NUMBER:
    case CONFIG_BYTES:
        return set_number(c, key, value, e);
    case CONFIG_PART:
        return set_part(c, key, value, e);
    case CONFIG_SWITCH:
        return set_switch(c, key, value, e);
    case CONFIG_TEXT:
    case CONFIG_CHOICE:
        break;
    }
    return set_text(c, key, value, e);
}

int config_init(struct config *c, err *e) {
    memset(c, 0, sizeof *c);
    for (size_t i = 0; i < N_KEYS; i++) {
        int rc = config_set(c, keys[i].name, keys[i].initial, e);
        if (rc) {
            config_fini(c);
            return rc;
        }
    }
    return 0;
}

void config_fini(struct config *c) {
    for (size_t i = 0; i < N_KEYS; i++)
        if (keys[i].kind == CONFIG_TEXT || keys[i].kind == CONFIG_CHOICE)
            free(*(char **)((char *)c + keys[i].offset));
    memset(c, 0, sizeof *c);
}

/* Cuts white space at both ends, in place. */
static char *trim(char *text) {
    text += strspn(text, " \t\r");
    size_t n = strlen(text);
    while (n && strchr(" \t\r", text[n - 1]))
        text[--n] = '\0';
    return text;
}

static void cut_comment(char *line) {
    for (char *c = line; *c; c++)
        if (*c == '#' && (c == line || c[-1] == ' ' || c[-1] == '\t')) {
            *c = '\0';
            return;
        }
}

/* One line, NUL-terminated, changed in place. first_line (N_KEYS) is where each key was set. */
static int load_line(struct config *c, char *line, unsigned number, unsigned *first_line, err *e) {
    cut_comment(line);
    char *name = trim(line);
    if (!*name) return 0;
    char *equals = strchr(name, '=');
    if (!equals) return err_set(e, ERR_INVALID, "expected KEY = VALUE, found \"%.64s\"", name);
    *equals = '\0';
    name = trim(name);
    char *value = trim(equals + 1);
    if (!*name) return err_set(e, ERR_INVALID, "no key before =");
    const struct config_key *key = config_find(name);
    if (key && first_line[key - keys])
        return err_set(e, ERR_INVALID, "%s is set twice, first in line %u", key->name,
                       first_line[key - keys]);
    if (key) first_line[key - keys] = number;
    return config_set(c, name, value, e);
}

int config_load(struct config *c, const char *path, str *problems, err *e) {
    unsigned first_line[N_KEYS] = {0}, number = 0, n_problems = 0;
    char *text;
    size_t n;
    int rc = textfile_read(path, FILE_MAX_BYTES, &text, &n, e);
    if (rc) return rc;
    for (char *line = text, *end = text + n, *next; line < end; line = next) {
        char *newline = memchr(line, '\n', (size_t)(end - line));
        next = newline ? newline + 1 : end;
        if (newline) *newline = '\0';
        size_t len = (size_t)((newline ? newline : end) - line);
        number++;
        err problem;
        int bad = strlen(line) != len || !utf8_valid(line, len)
                      ? err_set(&problem, ERR_INVALID, "not a line of UTF-8 text")
                      : load_line(c, line, number, first_line, &problem);
        if (!bad) continue;
        if (++n_problems > PROBLEMS_MAX) break;
        str_addf(problems, "%s:%u: %s\n", path, number, problem.msg);
        if (n_problems == 1) rc = err_set(e, bad, "%s:%u: %s", path, number, problem.msg);
    }
    free(text);
    return rc;
}

void config_add_bounds(str *out, const struct config_key *key) {
    switch (key->kind) {
    case CONFIG_CHOICE:
        str_addf(out, "one of %s", key->choices);
        break;
    case CONFIG_SWITCH:
        str_add(out, "on or off");
        break;
    case CONFIG_TEXT:
        str_add(out, "text");
        break;
    case CONFIG_PART:
        str_addf(out, "0, or %g to %g", (double)key->min / 1000, (double)key->max / 1000);
        break;
    case CONFIG_NUMBER:
    case CONFIG_BYTES:
        str_addf(out, "%llu to %llu", (unsigned long long)key->min, (unsigned long long)key->max);
        break;
    }
    if (key->unit[0]) str_addf(out, " %s", key->unit);
    if (key->kind == CONFIG_BYTES) str_add(out, " (K, M, G)");
    str_addf(out, "; default %s", key->initial[0] ? key->initial : "empty");
}

void config_add_example(str *out) {
    str_add(out, "# daemon.conf - every key at its default. Written by `inferd config example`;\n"
                 "# `inferd config check FILE` checks a file. Each key is also a flag of `inferd "
                 "serve`\n"
                 "# (--port 8081), and a flag wins over the file.\n");
    for (size_t i = 0; i < N_KEYS; i++) {
        str_add(out, "\n# ");
        for (const char *h = keys[i].help; *h; h++) {
            str_add_char(out, *h);
            if (*h == '\n') str_add(out, "# ");
        }
        str_add(out, "\n# (");
        config_add_bounds(out, &keys[i]);
        str_addf(out, ")\n#%s =%s%s\n", keys[i].name, keys[i].initial[0] ? " " : "",
                 keys[i].initial);
    }
}
