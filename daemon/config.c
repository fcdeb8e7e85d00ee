/* config.c - the table of keys, and the parsing of values and files by it. Flags, --help,
 * daemon.conf.example and checks all come from this table. */
#include "daemon/config.h"

#include "core/base/mem.h"
#include "core/text/utf8.h"
#include "daemon/input.h"
#include "daemon/model_host.h"

#include <stdlib.h>
#include <string.h>

enum { FILE_MAX_BYTES = 1 << 20, PROBLEMS_MAX = 100 };

/* A key's field, and what a reload does with it. */
#define AT(field)       offsetof(struct config, field), CONFIG_RESTART
#define LIVE(field)     offsetof(struct config, field), CONFIG_LIVE
#define WHILE_ON(field) offsetof(struct config, field), CONFIG_WHILE_ON

static const struct config_key keys[] = {
    {"model", CONFIG_TEXT, AT(model), "", 0, 0, NULL, "",
     "Models to serve: registered names, aliases or paths of model files and folders, separated\n"
     "by commas. Empty: the only registered model, or the first one whose name begins with\n"
     "\"demo\" or \"inferd-demo\"; if none is registered, the demo model installed with the\n"
     "program."},
    {"chat-template", CONFIG_TEXT, AT(chat_template), "", 0, 0, NULL, "",
     "How messages become a prompt, instead of the models' own templates: a Jinja file, or one of\n"
     "alpaca, chatml, gemma, llama2, llama3, mistral, mistral-tekken, phi3, vicuna, zephyr.\n"
     "Empty: the model's own template; without one, the format that its control tokens indicate."},
    {"registry", CONFIG_TEXT, AT(registry), "", 0, 0, NULL, "",
     "The registry's file. Empty: $STATE_DIRECTORY/registry.db under systemd, otherwise\n"
     "inferd/registry.db in $XDG_DATA_HOME or ~/.local/share."},
    {"host", CONFIG_TEXT, AT(host), "127.0.0.1", 0, 0, NULL, "",
     "Address to listen on. 0.0.0.0 or :: admits other machines: set api-key-file then."},
    {"port", CONFIG_NUMBER, AT(port), "8080", 0, 65535, NULL, "",
     "TCP port. 0: any free port, printed at start. A socket passed by systemd or launchd\n"
     "replaces host and port."},
    {"listen", CONFIG_TEXT, AT(listen), "", 0, 0, NULL, "",
     "Addresses to listen on instead of host and port, up to 8, separated by commas: HOST:PORT,\n"
     "[IPV6]:PORT, unix:/path of a socket file. A socket file that a program listens on is not\n"
     "replaced, one that a dead program left behind is. Its clients count as programs of this\n"
     "machine; trusted-proxies = unix trusts them as proxies."},
    {"listen-mode", CONFIG_CHOICE, AT(listen_mode), "600", 0, 0, "600|660|666", "",
     "Permissions of socket files that listen names: who may write to one may connect. 600: the\n"
     "daemon's user. 660: its group, too. 666: everyone on this machine."},
    {"tls-certificate", CONFIG_TEXT, LIVE(tls_certificate), "", 0, 0, NULL, "",
     "File of the server's certificate in PEM form, followed by those that lead to its root. With\n"
     "it and tls-key every TCP address speaks TLS (1.2 and 1.3), and nothing else. Socket files\n"
     "stay plain. A reload reads the files again; it does not turn TLS on or off. Empty: no TLS."},
    {"tls-key", CONFIG_TEXT, LIVE(tls_key), "", 0, 0, NULL, "",
     "File of the certificate's private key in PEM form, without a passphrase, readable by its\n"
     "owner (or group) only."},
    {"tls-client-ca", CONFIG_TEXT, LIVE(tls_client_ca), "", 0, 0, NULL, "",
     "File of certificates in PEM form: every client needs a certificate for TLS clients that one\n"
     "of them has signed, beside its API key. Empty: clients need no certificate."},
    {"backend", CONFIG_CHOICE, AT(backend), "auto", 0, 0, "auto|cpu|metal|cuda", "",
     "Device that computes. metal: the GPU of a Mac. cuda: an NVIDIA GPU (compute capability 8.0\n"
     "or higher), through the module libinferd-cuda.so, which is loaded from the program's\n"
     "folder, from ../lib/inferd, or from the file that the environment variable\n"
     "INFERD_CUDA_MODULE names. auto: metal or cuda if this build and this machine have it,\n"
     "otherwise cpu."},
    {"device", CONFIG_NUMBER, AT(device), "0", 0, 63, NULL, "",
     "cuda: number of the GPU to use, as listed by nvidia-smi."},
    {"gpu-memory-utilization", CONFIG_PART, AT(gpu_memory_utilization), "0", 100, 1000, NULL, "",
     "cuda: fraction of the GPU's memory that this process may hold, all models together: "
     "weights,\n"
     "KV caches and step buffers. 0 means 0.9. A model that does not fit is refused, with the\n"
     "numbers."},
    {"resident-s", CONFIG_NUMBER, AT(resident_s), "300", 0, 1000000, NULL, "seconds",
     "metal: how long an idle model's memory stays wired. After that, or at once with 0, macOS\n"
     "may unwire it, and the next answer begins up to a second later. Needs macOS 15."},
    {"command-buffer-ms", CONFIG_NUMBER, AT(command_buffer_ms), "100", 0, 1000000, NULL, "ms",
     "metal: a longer step is submitted in parts of about so much time on an M1, so that the\n"
     "desktop is not kept waiting: macOS kills what occupies the GPU for seconds. 0: no parts."},
    {"isa", CONFIG_TEXT, AT(isa), "", 0, 0, NULL, "",
     "cpu: instruction set of the kernels (generic, avx2, ...). Empty: the best that the CPU has.\n"
     "With backend = auto it selects the CPU; other backends refuse it."},
    {"activation-bits", CONFIG_CHOICE, AT(activation_bits), "8", 0, 0, "8|16", "",
     "cpu: bits of activations in products with quantized weights. 8 is fastest; 16 is exact to\n"
     "about 4 digits, at as little as half the speed. Metal always uses 32 bits, CUDA 16."},
    {"threads", CONFIG_NUMBER, AT(threads), "0", 0, 1024, NULL, "threads",
     "cpu: threads that compute. 0: one per physical (performance) core available to the process.\n"
     "Ignored by other backends."},
    {"tensor-parallel", CONFIG_NUMBER, AT(tensor_parallel), "1", 1, 16, NULL, "ranks",
     "Devices of this machine that share each model: heads, FFN columns and KV cache are split\n"
     "among them. The numbers of heads and KV heads must be divisible by it. cuda: that many\n"
     "GPUs, starting at `device`, connected by NCCL. cpu: groups of threads, each on its own\n"
     "NUMA node if the machine has several. Started by mpirun: as many processes, on one\n"
     "machine or several, each with one GPU or its threads (daemon/README.md). Stages: the\n"
     "devices of each stage, all on its own machine; the number is the same at all stages."},
    {"pipeline-parallel", CONFIG_NUMBER, AT(pipeline_parallel), "1", 1, 16, NULL, "stages",
     "Processes, on one machine or several, that share each model by its layers (stages): this\n"
     "one, which serves, and those that `stages` names (daemon/README.md)."},
    {"stages", CONFIG_TEXT, AT(stages), "", 0, 0, NULL, "",
     "HOST:PORT,... of the other stages, in the order of their layers."},
    {"stage-listen", CONFIG_TEXT, AT(stage_listen), "", 0, 0, NULL, "",
     "HOST:PORT at which this process waits for the first stage. It then serves nothing itself:\n"
     "it computes its layers of `model`. Other settings of the engine are the first stage's,\n"
     "except backend, device, isa, threads and gpu-memory-utilization; kv-cache-type,\n"
     "activation-bits and tensor-parallel must be the same at all stages."},
    {"stage-layers", CONFIG_TEXT, AT(stage_layers), "", 0, 0, NULL, "",
     "Layers of each stage, \"20,12\", at the first stage. Empty: as evenly by bytes as it can\n"
     "be. The log states the split."},
    {"stage-secret-file", CONFIG_TEXT, AT(stage_secret_file), "", 0, 0, NULL, "",
     "File with a secret of 32 bytes or more, the same at all stages, that its owner alone can\n"
     "read (mode 600). What stages send is encrypted with it, and others are refused. Without\n"
     "one, only loopback addresses are allowed."},
    {"rank-timeout-s", CONFIG_NUMBER, AT(rank_timeout_s), "10", 1, 3600, NULL, "seconds",
     "With ranks that are processes (mpirun), or stages: one of which nothing was heard for so\n"
     "long hangs. The daemon then ends with an error, so that a supervisor can start it again."},
    {"kv-cache-tokens", CONFIG_NUMBER, AT(kv_cache_tokens), "0", 0, UINT64_C(1) << 30, NULL,
     "tokens",
     "Size of the KV cache, shared by all requests of a model and allocated at start. 0: room\n"
     "for 8 full contexts, at least 65536 tokens, limited to 8 GiB and a quarter of the\n"
     "available memory; on a Mac's GPU to half of what it should hold beside the weights. cuda:\n"
     "all memory that gpu-memory-utilization leaves beside weights and step buffers, up to\n"
     "max-sequences full contexts. The log states the size."},
    {"kv-cache-type", CONFIG_CHOICE, AT(kv_cache_type), "f16", 0, 0, "f16|bf16|q8_0|f32", "",
     "Number format of the KV cache. q8_0 takes about half of f16's memory, is less exact, and\n"
     "requires head dimensions that are multiples of 32."},
    {"block-tokens", CONFIG_CHOICE, AT(block_tokens), "16", 0, 0, "16|32", "tokens",
     "Tokens in one block of the KV cache."},
    {"kv-events", CONFIG_TEXT, AT(kv_events), "", 0, 0, NULL, "",
     "Address on which a ZeroMQ PUB socket tells routers' indexes which blocks the prefix cache\n"
     "has, as vLLM does: tcp://10.0.0.2:5557, tcp://*:5557. The messages have the token ids of\n"
     "prompts, and no encryption: for networks that only the routers are on. Blocks of requests\n"
     "with an API key (unless prefix-sharing = all) or a cache_salt are left out. Needs libzmq 4.\n"
     "Empty: none."},
    {"kv-events-replay", CONFIG_TEXT, AT(kv_events_replay), "", 0, 0, NULL, "",
     "Address of a ROUTER socket that sends earlier messages of kv-events again. Empty: none."},
    {"kv-events-replay-bytes", CONFIG_BYTES, AT(kv_events_replay_bytes), "16M", 0,
     UINT64_C(1) << 34, NULL, "bytes",
     "Memory for messages that can be sent again; 1000 at most. The oldest go first."},
    {"kv-events-name", CONFIG_TEXT, AT(kv_events_name), "", 0, 0, NULL, "",
     "This replica's name in the topic of KV events, kv@NAME@MODEL: in Kubernetes the pod's\n"
     "address and port. Empty: the host name."},
    {"kv-memory-bytes", CONFIG_BYTES, AT(kv_memory_bytes), "0", 0, UINT64_C(1) << 50, NULL, "bytes",
     "Memory for K/V of prompts and answers that the KV cache (on a GPU: its memory) needs room\n"
     "for, and for those of models that were unloaded: later requests with the same beginning "
     "copy\n"
     "them back instead of computing them. Registered models only. What was not used for longest\n"
     "goes first. 0: none."},
    {"kv-dir", CONFIG_TEXT, AT(kv_dir), "", 0, 0, NULL, "",
     "Folder where K/V of prompts and answers are stored when the KV cache needs room, after\n"
     "kv-idle-s, and when the daemon stops or a model is unloaded: later requests with the same\n"
     "beginning read them instead of computing them, also after a restart. Registered models "
     "only.\n"
     "Everything is encrypted with a secret beside the registry (kv.secret), and kept apart by "
     "API\n"
     "key like the prefix cache. One daemon at a time has a folder. Empty: nothing is stored."},
    {"kv-dir-bytes", CONFIG_BYTES, LIVE(kv_dir_bytes), "20G", 1 << 20, UINT64_C(1) << 50, NULL,
     "bytes",
     "Space that kv-dir may take, for all models together. What was not used for longest goes\n"
     "first."},
    {"kv-dir-files", CONFIG_NUMBER, LIVE(kv_dir_files), "20000", 1, 100000, NULL, "files",
     "Files that kv-dir may hold, each of up to 8 MiB, or more if one state of recurrent layers\n"
     "is. About 4 KiB of memory each."},
    {"kv-dir-age-s", CONFIG_NUMBER, LIVE(kv_dir_age_s), "2592000", 0, UINT64_C(315360000), NULL,
     "seconds", "How long a file stays in kv-dir after its last use. 0: as long as there is room."},
    {"kv-dir-daily-bytes", CONFIG_BYTES, LIVE(kv_dir_daily_bytes), "100G", 0, UINT64_C(1) << 50,
     NULL, "bytes",
     "Bytes that are written to kv-dir in one day (UTC) at most, because writing wears SSDs. 0: "
     "no\n"
     "bound."},
    {"kv-idle-s", CONFIG_NUMBER, LIVE(kv_idle_s), "20", 0, 86400, NULL, "seconds",
     "After so long without a request everything that a model has cached is stored, too."},
    {"kv-keep", CONFIG_CHOICE, LIVE(kv_keep), "worth", 0, 0, "worth|all", "",
     "What is stored in kv-dir and kv-memory-bytes. worth: what takes more than twice as long to "
     "compute as to read,\n"
     "both as measured. all: everything."},
    {"window-blocks", CONFIG_NUMBER, AT(window_blocks), "0", 0, UINT64_C(1) << 26, NULL, "blocks",
     "Models with sliding windows (Gemma 2 and 3, gpt-oss, Mistral 7B): blocks of K/V of the\n"
     "windowed layers, allocated at start. A running sequence holds those of its window and of "
     "the\n"
     "tokens of a step; the others keep what later prompts with the same beginning need. 0: twice\n"
     "what max-sequences and max-batch-tokens need, or an eighth of the KV cache's blocks; never\n"
     "more than these. The log states the size."},
    {"state-blocks", CONFIG_NUMBER, AT(state_blocks), "0", 0, 1 << 20, NULL, "blocks",
     "Models with recurrent layers (Qwen3.5, Qwen3-Next, LFM2): blocks of their state, allocated\n"
     "at start beside the KV cache. Each running sequence uses one or two, the others keep states\n"
     "of prefixes for later prompts; with prefix-cache at most half as many sequences run as\n"
     "there are blocks. At least 2. 0: 4 for each of max-sequences, limited to half of the memory\n"
     "that an automatically sized KV cache takes, which then takes less, and to 4 GiB except on a\n"
     "GPU with its own memory. The log states both sizes."},
    {"state-checkpoint-tokens", CONFIG_NUMBER, AT(state_checkpoint_tokens), "2048", 0, 1 << 24,
     NULL, "tokens",
     "Models with recurrent layers: the distance, in tokens of a long prompt, between the states "
     "that\n"
     "are kept for later prompts with the same beginning, beside those at the ends of prompts and\n"
     "messages. A multiple of block-tokens. 0: only those at the ends."},
    {"context-length", CONFIG_NUMBER, AT(context_length), "0", 0, UINT64_C(1) << 24, NULL, "tokens",
     "Maximum length of prompt and answer together. 0: the model's own maximum."},
    {"max-batch-tokens", CONFIG_NUMBER, AT(max_batch_tokens), "512", 1, 65536, NULL, "tokens",
     "Token budget of a step, over all sequences."},
    {"prefill-chunk", CONFIG_NUMBER, AT(prefill_chunk), "0", 0, 65536, NULL, "tokens",
     "Prompt tokens per step while other sequences decode; bounds the gap between their tokens.\n"
     "Capped by max-batch-tokens. 0: as many as keep the step within about twice the time that it\n"
     "takes without them, as measured while serving."},
    {"max-sequences", CONFIG_NUMBER, AT(max_sequences), "64", 1, 4096, NULL, "sequences",
     "Sequences that run at the same time; further ones wait in the queue."},
    {"max-queue", CONFIG_NUMBER, LIVE(max_queue), "256", 1, 65536, NULL, "sequences",
     "Sequences that wait to start; beyond it requests are answered with 429. A sequence bound to\n"
     "a schema or grammar, waiting or running, holds 1.2 MB and shares its automata (typically\n"
     "about 100 KB, at most 32 MiB)."},
    {"stream-events", CONFIG_NUMBER, AT(stream_events), "512", 8, 65536, NULL, "events",
     "Tokens of a request that are buffered for a slow client; when full, its sequences pause."},
    {"prefix-cache", CONFIG_SWITCH, AT(prefix_cache), "on", 0, 0, NULL, "",
     "Reuses the KV cache of common prompt prefixes."},
    {"explain-cache", CONFIG_SWITCH, LIVE(explain_cache), "off", 0, 0, NULL, "",
     "The usage of chats and completions says why no more of the prompt was cached, and where it\n"
     "differs from what is. off: only if the request has the header X-Inferd-Explain-Cache: 1."},
    {"prefix-header-tokens", CONFIG_NUMBER, LIVE(prefix_header_tokens), "256", 0, 65536, NULL,
     "tokens",
     "Answers carry a hash of the prompt's first tokens, at most this many, in x-inferd-prefix, "
     "by\n"
     "which a balancer can send requests with the same beginning to the same replica\n"
     "(api/README.md). 0: no header."},
    {"vllm-metrics", CONFIG_SWITCH, LIVE(vllm_metrics), "on", 0, 0, NULL, "",
     "/metrics has what routers and dashboards for vLLM read under its names (vllm:...), for each\n"
     "model, beside inferd's own names."},
    {"prefix-sharing", CONFIG_CHOICE, LIVE(prefix_sharing), "key", 0, 0, "key|all", "",
     "Whose cached prefixes a request may reuse. key: those of its own API key; response time\n"
     "and cached_tokens would otherwise reveal other clients' prompts. all: those of every key.\n"
     "Without API keys all clients share. A request's cache_salt separates them further."},
    {"grammar-cache-bytes", CONFIG_BYTES, AT(grammar_cache_bytes), "32M", 0, UINT64_C(1) << 34,
     NULL, "bytes",
     "Memory per model for token masks of grammar states that recur. 0: every mask is computed\n"
     "anew."},
    {"grammar-work-s", CONFIG_NUMBER, AT(grammar_work_s), "60", 0, 86400, NULL, "seconds",
     "CPU time that the token masks of one answer may take; beyond it the answer ends with an\n"
     "error. Expensive masks are computed beside the steps, so other answers continue. 0: no\n"
     "limit."},
    {"model-sampling", CONFIG_SWITCH, AT(model_sampling), "on", 0, 0, NULL, "",
     "Where a request is silent, samples as the model recommends: generation_config.json of a\n"
     "folder, general.sampling.* of a GGUF. off: the defaults that the API documents."},
    {"json-integers", CONFIG_CHOICE, LIVE(json_integers), "strict", 0, 0, "strict|draft", "",
     "How answers that follow a JSON schema write its integers. strict: digits alone (30). draft:\n"
     "also with a fraction of zeros (30.0), which JSON Schema counts as an integer."},
    {"http-threads", CONFIG_NUMBER, AT(http_threads), "2", 1, 64, NULL, "threads",
     "Threads that serve connections. A waiting stream occupies none."},
    {"prepare-threads", CONFIG_NUMBER, AT(prepare_threads), "2", 1, 64, NULL, "threads",
     "Threads that prepare requests: JSON, templates, tokens, grammars, stored responses."},
    {"prepare-slow-threads", CONFIG_NUMBER, AT(prepare_slow_threads), "2", 1, 64, NULL, "threads",
     "Low-priority threads for requests that take more than about 20 ms to prepare. If there are\n"
     "several, one client occupies all but one at most. Clients (API keys, or addresses) take\n"
     "turns."},
    {"prepare-queue", CONFIG_NUMBER, AT(prepare_queue), "1024", 1, 65536, NULL, "requests",
     "Requests being prepared or waiting for it; beyond it they are answered with 503, first\n"
     "those of the client with the most of them."},
    {"prepare-budget-s", CONFIG_NUMBER, LIVE(prepare_budget_s), "5", 1, 3600, NULL, "seconds",
     "Work that preparing a request may take: template and grammar; 400 beyond it. Counted in\n"
     "steps, so it does not depend on load; a second is about one second of a core."},
    {"max-connections", CONFIG_NUMBER, AT(max_connections), "4096", 1, 65536, NULL, "connections",
     "Open connections. At the limit a new one replaces the one that has been idle longest; if\n"
     "all are busy, 32 more may ask for /livez, /readyz, /health and /metrics and get 503 for\n"
     "anything else. Lowered at start to fit the limit of open files."},
    {"max-connections-per-address", CONFIG_NUMBER, LIVE(max_connections_per_address), "0", 0, 65536,
     NULL, "connections",
     "Open connections per client address (IPv6: its first 64 bits); further ones are closed at\n"
     "once. 0: no limit of their own. Behind a reverse proxy set trusted-proxies too: the limit\n"
     "is then for running requests of each client (429 beyond it); otherwise all have one\n"
     "address."},
    {"max-body-bytes", CONFIG_BYTES, LIVE(max_body_bytes), "8M", 1024, UINT64_C(1) << 30, NULL,
     "bytes",
     "Largest request body; 413 beyond it. All bodies being received may hold 16 times as much\n"
     "(the first 64K of each not counted); 503 beyond that."},
    {"max-header-bytes", CONFIG_BYTES, AT(max_header_bytes), "32K", 1024, 1 << 20, NULL, "bytes",
     "Largest request header; 431 beyond it."},
    {"idle-timeout-s", CONFIG_NUMBER, LIVE(idle_timeout_s), "60", 1, 86400, NULL, "seconds",
     "Closes a connection without a request. A request may take twice as long to arrive, a large\n"
     "body longer (10 KB/s)."},
    {"keepalive-ms", CONFIG_NUMBER, LIVE(keepalive_ms), "15000", 10, 600000, NULL, "milliseconds",
     "Interval of keep-alive comments in a stream that has nothing to send."},
    {"max-answer-bytes", CONFIG_BYTES, LIVE(max_answer_bytes), "256M", 1 << 20, UINT64_C(1) << 40,
     NULL, "bytes",
     "Memory of all answers that are generated, unread or kept for resumption, the first 64K of\n"
     "each not counted. At the limit, complete answers that were not read for 2 seconds are cut\n"
     "off, longest wait first, and streams are not kept for Last-Event-ID; then 503."},
    {"resume-timeout-s", CONFIG_NUMBER, LIVE(resume_timeout_s), "60", 0, 86400, NULL, "seconds",
     "How long a disconnected stream can be resumed with Last-Event-ID; it does not compute in\n"
     "the meantime. 0: never."},
    {"resume-streams", CONFIG_NUMBER, LIVE(resume_streams), "64", 1, 65536, NULL, "streams",
     "Disconnected streams that are kept at once; the oldest is dropped first."},
    {"resume-buffer-bytes", CONFIG_BYTES, LIVE(resume_buffer_bytes), "256K", 4096, 16 << 20, NULL,
     "bytes", "Output of each stream that is kept to be sent again."},
    {"allowed-hosts", CONFIG_TEXT, LIVE(allowed_hosts), "", 0, 0, NULL, "",
     "Host names that the daemon answers to (the Host header), separated by commas; .example.com\n"
     "matches every name below example.com, * any name. Addresses, localhost and\n"
     "host.docker.internal are always accepted. Empty: on a loopback address without api-key-file\n"
     "only those, so that web sites cannot reach the daemon by DNS rebinding; otherwise any name."},
    {"allowed-origins", CONFIG_TEXT, LIVE(allowed_origins), "", 0, 0, NULL, "",
     "Other sites whose pages may use the daemon from a browser (CORS), separated by commas:\n"
     "exact origins (https://chat.example.com, app://obsidian.md), http://localhost:* for any\n"
     "port, https://*.example.com for every name below it, chrome-extension://* for any host,\n"
     "null for pages without an origin, * for every page. Cookies are never allowed; keys travel\n"
     "in headers. Empty: only the daemon's own page."},
    {"trusted-proxies", CONFIG_TEXT, LIVE(trusted_proxies), "", 0, 0, NULL, "",
     "Addresses or ranges (127.0.0.1, 10.0.0.0/8, ::1) of reverse proxies, separated by commas.\n"
     "Their X-Forwarded-For, -Host and -Proto give the client's address in the log and in\n"
     "limits, and the host that Origin is compared with; from others these headers are ignored.\n"
     "The proxy must set all three itself: what it passes on from clients is believed.\n"
     "allowed-hosts applies to the forwarded host and to the Host header."},
    {"api-key-file", CONFIG_TEXT, LIVE(api_key_file), "", 0, 0, NULL, "",
     "File of accepted API keys, one per line, readable by its owner (or group) only. Empty: no\n"
     "key is required."},
    {"admin-key-file", CONFIG_TEXT, LIVE(admin_key_file), "", 0, 0, NULL, "",
     "File of administrators' keys, like api-key-file. They are API keys that may also change the\n"
     "registry of models (/api/delete, /api/copy, /api/create). Once keys of either kind are set,\n"
     "every request needs one. Without any, programs on this machine may do it, if host is a\n"
     "loopback address."},
    {"registry-keys", CONFIG_SWITCH, AT(registry_keys), "on", 0, 0, NULL, "",
     "Accepts the keys that `inferd keys add` puts into the registry, beside those of "
     "api-key-file.\n"
     "Once the registry has a key, valid or not, every request needs one. off: they are ignored."},
    {"key-failures-per-minute", CONFIG_NUMBER, LIVE(key_failures_per_minute), "60", 0, 1000000,
     NULL, "failures",
     "Wrong API keys that a client address (IPv6: its first 64 bits) may send in a minute. Beyond\n"
     "it its requests get 429, except those with a valid key of the registry, which cannot be\n"
     "guessed. 0: no limit. Behind a reverse proxy set trusted-proxies."},
    {"fair-share", CONFIG_CHOICE, LIVE(fair_share), "key", 0, 0, "key|address|fairness-id|off", "",
     "Who shares a model evenly when more is asked of it than it can do: of requests with the "
     "same\n"
     "priority, those go first whose client got the fewest tokens, and a client that runs more\n"
     "than its part of the sequences gives some back. key: clients are API keys (their --weight\n"
     "counts). address: client addresses, of each key. fairness-id: the values of the header\n"
     "x-gateway-inference-fairness-id, of each key. off: requests go in the order of arrival."},
    {"max-priority", CONFIG_NUMBER, LIVE(max_priority), "0", 0, 1000, NULL, "",
     "Highest priority that a request may ask for; 400 beyond it. Requests have priority 0 unless\n"
     "they ask for another; negative ones are always allowed."},
    {"objectives", CONFIG_TEXT, LIVE(objectives), "", 0, 0, NULL, "",
     "Priorities of what a gateway names in the header x-gateway-inference-objective, as\n"
     "NAME=PRIORITY, separated by commas; * in a name stands for any characters. They apply to\n"
     "requests without a priority of their own; max-priority does not bound them. Only for a "
     "server\n"
     "that clients reach through the gateway alone: others could send the header themselves."},
    {"max-rerank-documents", CONFIG_NUMBER, LIVE(max_rerank_documents), "1000", 1, 100000, NULL,
     "documents",
     "Documents of a request to /v1/rerank, pairs of one to /v1/score; 400 beyond it."},
    {"request-timeout-s", CONFIG_NUMBER, LIVE(request_timeout_s), "3600", 0, UINT64_C(31536000),
     NULL, "seconds",
     "Time from a request's headers to the end of its answer, including all waiting. Beyond it\n"
     "the answer is 504, or its stream ends with an error. The header X-Request-Timeout-Ms can\n"
     "shorten it. 0: no limit."},
    {"model-aliases", CONFIG_TEXT, LIVE(model_aliases), "", 0, 0, NULL, "",
     "Other names for the served models, as PATTERN=MODEL, separated by commas; * in a pattern\n"
     "stands for any characters: claude-*=mine answers clients that ask for a vendor's models.\n"
     "Exact names and registered aliases go first, then the first pattern that matches."},
    {"unknown-fields", CONFIG_CHOICE, LIVE(unknown_fields), "ignore", 0, 0, "ignore|refuse", "",
     "Request fields that this server does not know, or that change no answer (hints, labels,\n"
     "placement): ignore accepts them, lists them in the response header\n"
     "x-inferd-ignored-fields and counts them at /metrics; refuse answers 400. What clients echo\n"
     "from earlier answers inside of messages is accepted in both cases."},
    {"responses-ttl-s", CONFIG_NUMBER, WHILE_ON(responses_ttl_s), "2592000", 0, UINT64_C(315360000),
     NULL, "seconds",
     "How long responses of /v1/responses are stored in the registry's file, and a conversation\n"
     "after its last response. 0: nothing is stored."},
    {"usage-days", CONFIG_NUMBER, WHILE_ON(usage_days), "400", 0, 36500, NULL, "days",
     "How long the registry keeps what each key used of each model in each hour (`inferd usage`,\n"
     "GET /v1/inferd/usage). 0: nothing is written."},
    {"responses-max-bytes", CONFIG_BYTES, LIVE(responses_max_bytes), "256M", 64 << 10,
     UINT64_C(1) << 40, NULL, "bytes",
     "Space that all stored responses may take in the registry's file. Beyond it the API key that\n"
     "holds most loses those that expire first. One response may take an eighth of it."},
    {"files-max-bytes", CONFIG_BYTES, WHILE_ON(files_max_bytes), "2G", 0, UINT64_C(1) << 44, NULL,
     "bytes",
     "Space that the files of /v1/files and the answers of batches may take in the folder\n"
     "REGISTRY.files and the registry's file; half of it for one API key. 0: there are no files\n"
     "and no batches."},
    {"file-max-bytes", CONFIG_BYTES, LIVE(file_max_bytes), "200M", 1024, UINT64_C(1) << 40, NULL,
     "bytes", "Largest file that may be uploaded; 413 beyond it."},
    {"files-max", CONFIG_NUMBER, LIVE(files_max), "1000", 2, 1000000, NULL, "files",
     "Files that may be uploaded; half of them by one API key. Those that batches write are not\n"
     "counted among them, but expire like them."},
    {"batches-max", CONFIG_NUMBER, LIVE(batches_max), "1000", 2, 1000000, NULL, "batches",
     "Batches that the registry keeps; half of them of one API key. Beyond it those that ended\n"
     "are forgotten, the oldest first; 429 if none has ended."},
    {"batch-lines", CONFIG_NUMBER, LIVE(batch_lines), "8", 1, API_MAX_BATCH_LINES, NULL, "requests",
     "Requests of batches that run at once. They compute only in steps that no other request\n"
     "needs."},
    {"batch-max-lines", CONFIG_NUMBER, LIVE(batch_max_lines), "50000", 1, 10000000, NULL,
     "requests", "Requests of one batch."},
    {"max-models", CONFIG_NUMBER, LIVE(max_models), "8", 1, API_MAX_MODELS, NULL, "models",
     "Models that may be loaded at once. Administrators load and unload registered models while "
     "the\n"
     "daemon runs; a model that does not fit into memory is refused, and the others stay. On a "
     "GPU\n"
     "whose memory the first model may fill, lower kv-cache-tokens."},
    {"load-on-demand", CONFIG_SWITCH, LIVE(load_on_demand), "off", 0, 0, NULL, "",
     "A request that names a registered model which is not loaded waits until it is, whoever "
     "asks.\n"
     "Without memory-budget and keep-alive nothing is unloaded for it: beyond max-models, or "
     "without\n"
     "memory for it, it is refused. If no model is listed and the registry has several, none is\n"
     "loaded at start."},
    {"memory-budget", CONFIG_BYTES, LIVE(memory_budget), "0", 0, UINT64_C(1) << 50, NULL, "bytes",
     "Memory that all models together may hold: weights, buffers of a step, KV caches and states, "
     "on\n"
     "all devices. To load one, idle ones are unloaded, the longest idle first, after\n"
     "storing their K/V (kv-dir, kv-memory-bytes); those that the key model names stay. A KV cache "
     "is\n"
     "sized to fit. 0: no bound but the machine's, or a GPU's gpu-memory-utilization."},
    {"keep-alive", CONFIG_TEXT, LIVE(keep_alive), "", 0, 0, NULL, "",
     "How long an idle model stays loaded: seconds, or 5m, 1h30m; 0: no longer than "
     "its\n"
     "last request; negative: for ever, but it leaves when another needs its memory. Models that "
     "the\n"
     "key model names stay. Ollama's keep_alive overrides it if load-on-demand is on. Empty: for "
     "ever,\n"
     "also if others need the memory, unless memory-budget is set."},
    {"load-wait-s", CONFIG_NUMBER, LIVE(load_wait_s), "60", 0, 3600, NULL, "seconds",
     "How long a load waits for models that are in use to become free when there is no room for "
     "it.\n"
     "Then its requests get 503 with Retry-After. Running answers are never cut off for it."},
    {"max-load-queue", CONFIG_NUMBER, LIVE(max_load_queue), "64", 1, HOST_MAX_WATCHERS, NULL,
     "requests", "Requests that may wait for one model to be loaded; beyond it they get 503."},
    {"max-model-tasks", CONFIG_NUMBER, LIVE(max_model_tasks), "8", 1, HOST_MAX_WAITING, NULL,
     "tasks",
     "Loads, unloads and pulls that wait for earlier ones; beyond it they are answered with 503."},
    {"unload-deadline-s", CONFIG_NUMBER, LIVE(unload_deadline_s), "30", 0, 3600, NULL, "seconds",
     "How long running answers of a model may continue when it is unloaded; then they end with an\n"
     "error."},
    {"shutdown-deadline-s", CONFIG_NUMBER, LIVE(shutdown_deadline_s), "30", 0, 3600, NULL,
     "seconds", "How long running answers may continue after SIGTERM."},
    {"drain-delay-s", CONFIG_NUMBER, LIVE(drain_delay_s), "0", 0, 3600, NULL, "seconds",
     "After SIGTERM /readyz is 503 and requests are still answered for so long, before new ones "
     "are\n"
     "refused: longer than a router in front needs to notice (interval times failures of its\n"
     "health check). shutdown-deadline-s counts from then on. Not used with a supervisor's "
     "sockets,\n"
     "whose connections wait for the next process."},
    {"hang-s", CONFIG_NUMBER, LIVE(hang_s), "600", 0, 86400, NULL, "seconds",
     "A device that has been in the same step for so long hangs: /livez turns 503, and the daemon\n"
     "ends, after what runs on other devices, so that a supervisor can start it again. systemd's\n"
     "WatchdogSec is told of completed steps only, too. 0: never."},
    {"otlp-endpoint", CONFIG_TEXT, LIVE(otlp_endpoint), "", 0, 0, NULL, "",
     "Base address of an OpenTelemetry collector that gets traces of requests by OTLP/HTTP, like\n"
     "http://127.0.0.1:4318 (/v1/traces is added). Spans have no text of prompts and answers. A\n"
     "request's traceparent is continued, its answer has traceresponse. Empty: no traces."},
    {"otlp-ratio", CONFIG_PART, LIVE(otlp_ratio), "1", 1, 1000, NULL, "",
     "Part of the requests that are traced. It does not count for requests whose traceparent says\n"
     "whether they are. 0: those alone."},
    {"otlp-queue", CONFIG_NUMBER, LIVE(otlp_queue), "2048", 1, 1000000, NULL, "requests",
     "Requests whose spans wait to be sent, 2 KB each. Beyond it new ones are dropped and counted\n"
     "in inferd_trace_spans_dropped_total: no request waits for the collector."},
    {"models-dir", CONFIG_TEXT, LIVE(models_dir), "", 0, 0, NULL, "",
     "Folder where pulled models are stored. Empty: $STATE_DIRECTORY/models under systemd,\n"
     "otherwise inferd/models in $XDG_DATA_HOME or ~/.local/share."},
    {"hf-endpoint", CONFIG_TEXT, LIVE(hf_endpoint), "", 0, 0, NULL, "",
     "Address of the Hugging Face Hub or of a mirror. Empty: $HF_ENDPOINT, otherwise\n"
     "https://huggingface.co."},
    {"hf-token-file", CONFIG_TEXT, LIVE(hf_token_file), "", 0, 0, NULL, "",
     "File of the Hub's access token, readable by its owner (or group) only. Empty: $HF_TOKEN, if\n"
     "set. The token is sent to the Hub's own address only, never over plain http."},
    {"hf-stall-s", CONFIG_NUMBER, LIVE(hf_stall_s), "30", 1, 3600, NULL, "seconds",
     "A download that receives nothing for this long is aborted and retried."},
    {"hf-retries", CONFIG_NUMBER, LIVE(hf_retries), "5", 0, 100, NULL, "tries",
     "Retries of a download before it fails; each continues from where the last one stopped."},
    {"log-level", CONFIG_CHOICE, LIVE(log_level), "info", 0, 0, "debug|info|warn|error", "",
     "Least severe level that is logged (to stderr)."},
    {"log-format", CONFIG_CHOICE, LIVE(log_format), "text", 0, 0, "text|json", "",
     "text: lines for people. json: each line of the log and of the access log is a JSON object."},
    {"access-log", CONFIG_TEXT, LIVE(access_log), "", 0, 0, NULL, "",
     "File that gets one line for each request, when its answer has ended: times, tokens, bytes,\n"
     "key, model, client; no texts and no secrets. stderr: beside the log. A reload opens the\n"
     "file again. With it, the log has no lines of requests above the level debug. Empty: none."},
    {"access-log-queue", CONFIG_NUMBER, AT(access_log_queue), "4096", 16, 1 << 20, NULL, "lines",
     "Lines of the access log that may wait for a slow disk, about 400 bytes each; further ones\n"
     "are dropped, and counted at /metrics."},
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
        return err_set_param(e, ERR_INVALID, key->name, "%s: \"%.64s\" is not one of %s", key->name,
                             value, key->choices);
    char *copy = mem_strdup(value);
    if (!copy) return err_no_memory(e);
    free(*field);
    *field = copy;
    return 0;
}

/* Digits; for bytes optionally followed by K, M or G. */
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

/* "0", "1" or "0.85": digits with at most one point. */
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
        return err_set_param(e, ERR_INVALID, key->name, "%s: \"%.64s\" is not on or off", key->name,
                             value);
    *(bool *)((char *)c + key->offset) = on;
    return 0;
}

static int set_key(struct config *c, const struct config_key *key, const char *value, err *e) {
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
    int rc = set_key(c, key, value, e);
    if (!rc && c->lines) c->lines[key - keys] = 0;
    return rc;
}

static bool is_text(const struct config_key *key) {
    return key->kind == CONFIG_TEXT || key->kind == CONFIG_CHOICE;
}

static size_t value_bytes(const struct config_key *key) {
    return key->kind == CONFIG_SWITCH ? sizeof(bool)
           : key->kind == CONFIG_PART ? sizeof(double)
                                      : sizeof(uint64_t);
}

bool config_same(const struct config *a, const struct config *b, const struct config_key *key) {
    const char *x = (const char *)a + key->offset, *y = (const char *)b + key->offset;
    if (is_text(key)) return strcmp(*(char *const *)x, *(char *const *)y) == 0;
    return memcmp(x, y, value_bytes(key)) == 0;
}

int config_copy(struct config *to, const struct config *from, const struct config_key *key,
                err *e) {
    const char *value = (const char *)from + key->offset;
    if (is_text(key)) return set_text(to, key, *(char *const *)value, e);
    memcpy((char *)to + key->offset, value, value_bytes(key));
    return 0;
}

int config_clone(struct config *to, const struct config *from, err *e) {
    int rc = config_init(to, e);
    for (size_t i = 0; i < N_KEYS && !rc; i++)
        rc = config_copy(to, from, &keys[i], e);
    if (rc) config_fini(to);
    return rc;
}

bool config_is_live(const struct config_key *key, const struct config *a, const struct config *b) {
    if (key->reload != CONFIG_WHILE_ON) return key->reload == CONFIG_LIVE;
    const uint64_t *x = (const uint64_t *)((const char *)a + key->offset),
                   *y = (const uint64_t *)((const char *)b + key->offset);
    return !*x == !*y;
}

void config_locate(const struct config *c, err *e) {
    const struct config_key *key = e->param[0] ? config_find(e->param) : NULL;
    if (key && c->lines && c->lines[key - keys])
        err_prefix(e, "%s:%u: ", c->file, c->lines[key - keys]);
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
        if (is_text(&keys[i])) free(*(char **)((char *)c + keys[i].offset));
    free(c->file);
    free(c->lines);
    memset(c, 0, sizeof *c);
}

/* Cuts white space at both ends, in place. */
static char *trim_text(char *text) {
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

/* Applies one line, NUL-terminated, changed in place. first_line (N_KEYS): line that set each
 * key, 0 for none. */
static int load_line(struct config *c, char *line, unsigned number, unsigned *first_line, err *e) {
    cut_comment(line);
    char *name = trim_text(line);
    if (!*name) return 0;
    char *equals = strchr(name, '=');
    if (!equals) return err_set(e, ERR_INVALID, "expected KEY = VALUE, found \"%.64s\"", name);
    *equals = '\0';
    name = trim_text(name);
    char *value = trim_text(equals + 1);
    if (!*name) return err_set(e, ERR_INVALID, "expected KEY = VALUE, found no key before =");
    const struct config_key *key = config_find(name);
    if (key && first_line[key - keys])
        return err_set(e, ERR_INVALID, "%s is set twice, first in line %u", key->name,
                       first_line[key - keys]);
    if (key) first_line[key - keys] = number;
    int rc = config_set(c, name, value, e);
    if (!rc && key) c->lines[key - keys] = number;
    return rc;
}

/* The lines of a file that was loaded before are not kept. */
static int begin_file(struct config *c, const char *path, err *e) {
    free(c->file);
    free(c->lines);
    c->file = mem_strdup(path);
    c->lines = mem_new(N_KEYS, sizeof *c->lines);
    return c->file && c->lines ? 0 : err_no_memory(e);
}

int config_load(struct config *c, const char *path, str *problems, err *e) {
    unsigned first_line[N_KEYS] = {0}, number = 0, n_problems = 0;
    char *text;
    size_t n;
    int rc = begin_file(c, path, e);
    if (!rc) rc = textfile_read(path, FILE_MAX_BYTES, &text, &n, e);
    if (rc) return rc;
    const size_t bom = strncmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0; /* of some editors */
    for (char *line = text + bom, *end = text + n, *next; line < end; line = next) {
        char *newline = memchr(line, '\n', (size_t)(end - line));
        next = newline ? newline + 1 : end;
        if (newline) *newline = '\0';
        size_t len = (size_t)((newline ? newline : end) - line);
        number++;
        err problem;
        int bad = strlen(line) != len || !utf8_valid(line, len)
                      ? err_set(&problem, ERR_INVALID, "the line is not valid UTF-8 text")
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
    if (key->reload == CONFIG_LIVE) str_add(out, "; applied by a reload");
    if (key->reload == CONFIG_WHILE_ON) str_add(out, "; applied by a reload, except from or to 0");
}

void config_add_example(str *out) {
    str_add(out, "# daemon.conf - every key at its default. Written by `inferd config example`;\n"
                 "# `inferd config check FILE` checks a file. Each key is also a flag of `inferd "
                 "serve`\n"
                 "# (--port 8081); a flag takes precedence over the file.\n");
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
