/* lifecycle.c - starts and stops everything in order. Owns the HTTP server while the daemon runs;
 * the models are serving.c's. Main thread; never handles a request. */
#include "daemon/lifecycle.h"

#include "api/api.h"
#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/formats/model_file.h"
#include "daemon/activation.h"
#include "daemon/logsink.h"
#include "daemon/notify.h"
#include "daemon/reload.h"
#include "daemon/run_file.h"
#include "daemon/serving.h"
#include "daemon/signals.h"
#include "daemon/watchdog.h"
#include "registry/audit.h"
#include "registry/batches.h"
#include "registry/keys.h"
#include "registry/ledger.h"

#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* Supervisors signal a process and then its whole group: two signals this close count as one. */
enum { DRAIN_POLL_MS = 50, SAME_STOP_NS = 500 * 1000 * 1000 };

/* Clients' libraries close connections that were idle for 4 (undici) or 5 s (httpx). */
#define REUSE_NS UINT64_C(5500000000)

/* The last traces have so long, within the deadline: a collector may be away. */
#define TRACES_NS UINT64_C(5000000000)

enum { LOOK_MS = 1000 }; /* interval of checks of the models' files and devices */

enum { DAY_S = 86400 };

enum { ANNOUNCED_MAX_BYTES = 8000 };

enum { OWN_FILES = 64 }; /* files other than connections: models, threads, the registry */

struct server {
    const struct config *config;
    serving *serving;
    engine_group *group; /* of processes; NULL: none */
    struct server_keys {
        struct config_api_keys all;
        size_t n_admin; /* the last ones */
    } keys;             /* after open_api guarded by the reload's lock */
    reload *reload;
    atomic_uint_least64_t shutdown_deadline_s, drain_delay_s, hang_s;
    bool hung;                 /* a device is: its threads never end */
    char *registry;            /* file */
    bool handed;               /* the supervisor's sockets are served */
    struct activation sockets; /* of a supervisor, instead of those of the configuration */
    responses *store;          /* NULL: responses are not stored */
    batches *batches;          /* NULL: there are no files and no batches */
    ledger *ledger;            /* NULL: nothing is written */
    bool ledger_fails;         /* and that was logged */
    audit *audit;              /* NULL: administrative acts are not written */
    bool audit_fails;          /* and that was logged */
    keyring *keyring;          /* NULL: keys of the registry are not used */
    api *api;
    struct run_file run_file;
};

/* Each connection is an open file, and a login shell's limit is often 1024. Raises the limit, or
 * returns how many connections fit. */
static uint32_t fit_open_files(uint32_t max_connections) {
    struct rlimit limit;
    uint64_t wanted = (uint64_t)max_connections + API_MORE_FILES + OWN_FILES;
    if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur >= wanted) return max_connections;
    rlim_t before = limit.rlim_cur;
    limit.rlim_cur = limit.rlim_max < wanted ? limit.rlim_max : wanted;
#ifdef __APPLE__
    if (limit.rlim_cur > OPEN_MAX) limit.rlim_cur = OPEN_MAX; /* the kernel's maximum */
#endif
    if (setrlimit(RLIMIT_NOFILE, &limit)) limit.rlim_cur = before;
    if (limit.rlim_cur >= wanted) return max_connections;
    uint64_t others = API_MORE_FILES + OWN_FILES;
    uint32_t fit = limit.rlim_cur > others ? (uint32_t)(limit.rlim_cur - others) : 1;
    log_warn("the system allows %llu open files (ulimit -n), of which %llu are needed for other "
             "purposes: max-connections is lowered to %u from %u",
             (unsigned long long)limit.rlim_cur, (unsigned long long)others, fit, max_connections);
    return fit;
}

/* Without write access to the registry no responses are stored; everything else works. */
static void open_store(struct server *s) {
    const struct config *c = s->config;
    char *file = NULL;
    err e;
    if (!c->responses_ttl_s) return;
    int rc = config_registry_path(c, &file, &e);
    if (!rc)
        rc = responses_open(&(struct responses_config){.file = file,
                                                       .ttl_s = c->responses_ttl_s,
                                                       .max_bytes = c->responses_max_bytes},
                            clock_wall_s(), &s->store, &e);
    if (rc) log_warn("responses are not stored: %s", e.msg);
    free(file);
}

static struct batches_config batches_config_of(const struct server *s, const struct config *c) {
    return (struct batches_config){.file = s->registry,
                                   .max_bytes = c->files_max_bytes,
                                   .max_files = (uint32_t)c->files_max,
                                   .max_batches = (uint32_t)c->batches_max};
}

static void open_batches(struct server *s) {
    const struct batches_config config = batches_config_of(s, s->config);
    err e;
    if (!config.max_bytes) return;
    if (batches_open(&config, clock_wall_s(), &s->batches, &e))
        log_warn("files are not stored, and there are no batches: %s", e.msg);
}

static void open_ledger(struct server *s) {
    err e;
    if (!s->config->usage_days) return;
    if (ledger_open(s->registry, s->config->usage_days * DAY_S, clock_wall_s(), &s->ledger, &e))
        log_warn("usage is not written: %s", e.msg);
}

static void open_audit(struct server *s) {
    err e;
    if (audit_open(s->registry, &s->audit, &e))
        log_warn("administrative acts are not written to the audit log: %s", e.msg);
}

static void flush_audit(struct server *s) {
    const char *reason;
    err e;
    if (!s->audit) return;
    for (unsigned i = 0; i < AUDIT_COUNTS && s->api; i++) {
        uint64_t total = api_auth_failures(s->api, i, &reason);
        if (reason) audit_count(s->audit, i, reason, total);
    }
    bool fails = audit_flush(s->audit, clock_wall_s(), &e) != 0;
    if (fails && !s->audit_fails) log_warn("the audit log waits to be written: %s", e.msg);
    s->audit_fails = fails;
}

/* What the registry is told once a second. */
static void flush_accounts(struct server *s) {
    err e;
    flush_audit(s);
    if (!s->ledger) return;
    bool fails = ledger_flush(s->ledger, clock_wall_s(), &e) != 0;
    if (fails && !s->ledger_fails) log_warn("usage waits to be written: %s", e.msg);
    s->ledger_fails = fails;
}

/* A registry that exists and cannot be read may have keys: without them everyone would be let in.
 */
static int open_keyring(struct server *s, err *e) {
    if (!s->config->registry_keys) return 0;
    int rc = keyring_open(s->registry, &s->keyring, e);
    if (!rc || access(s->registry, F_OK) == 0) return rc;
    log_warn("keys of the registry are not used: %s", e->msg);
    return 0;
}

/* Does a request need a key? */
static bool has_keys(const struct server *s) {
    return s->keys.all.n || (s->keyring && keyring_in_use(s->keyring));
}

static enum fair_share fair_share_of(const struct config *c) {
    static const char *const names[] = {[FAIR_OFF] = "off",
                                        [FAIR_KEY] = "key",
                                        [FAIR_ADDRESS] = "address",
                                        [FAIR_HEADER] = "fairness-id"};
    int i = FAIR_HEADER;
    while (i > FAIR_OFF && strcmp(names[i], c->fair_share) != 0)
        i--;
    return (enum fair_share)i;
}

/* Says who may use a server that asks for no key. */
static void warn_open(const struct server *s, const struct config *c) {
    struct http_address at;
    for (size_t i = 0; api_get_address(s->api, i, &at) && has_keys(s) && !api_is_local(s->api); i++)
        if (!at.path[0] && !at.tls) {
            log_warn("API keys and texts travel unencrypted to other machines: set tls-certificate "
                     "and tls-key, unless a proxy or a private network protects them");
            break;
        }
    if (has_keys(s)) return;
    if (!api_is_local(s->api))
        log_warn("other machines can connect and there are no API keys (`inferd keys add`, "
                 "api-key-file): everyone can use this server");
    if (strcmp(c->allowed_origins, "*") == 0)
        log_warn("allowed-origins is * and there are no API keys (`inferd keys add`, "
                 "api-key-file): every web page that a visitor opens can use this server");
}

static int reload_for_api(void *arg, str *applied, str *pending, err *e) {
    return reload_run(arg, applied, pending, e);
}

/* max_connections is missing. What it points to is c's, keys' and s's. */
static struct api_config api_config_of(const struct server *s, const struct config *c,
                                       const struct server_keys *keys) {
    return (struct api_config){
        .http = {.host = c->host,
                 .port = (uint16_t)c->port,
                 .listen = c->listen,
                 .unix_mode = (unsigned)strtoul(c->listen_mode, NULL, 8),
                 .listen_fds = s->sockets.fds,
                 .n_listen_fds = s->sockets.n,
                 .n_threads = (uint32_t)c->http_threads,
                 .prepare_threads = (uint32_t)c->prepare_threads,
                 .prepare_slow_threads = (uint32_t)c->prepare_slow_threads,
                 .prepare_queue = (uint32_t)c->prepare_queue,
                 .prepare_budget_s = (uint32_t)c->prepare_budget_s,
                 .max_per_address = (uint32_t)c->max_connections_per_address,
                 .max_body_bytes = c->max_body_bytes,
                 .max_header_bytes = (uint32_t)c->max_header_bytes,
                 .idle_timeout_s = (uint32_t)c->idle_timeout_s,
                 .keepalive_ms = (uint32_t)c->keepalive_ms,
                 .max_answer_bytes = c->max_answer_bytes,
                 .allowed_hosts = c->allowed_hosts,
                 .allowed_origins = c->allowed_origins,
                 .trusted_proxies = c->trusted_proxies,
                 .tls_certificate = c->tls_certificate,
                 .tls_key = c->tls_key,
                 .tls_client_ca = c->tls_client_ca,
                 .api_keys = (const char *const *)keys->all.keys,
                 .n_api_keys = keys->all.n,
                 .n_admin_keys = keys->n_admin,
                 .access_log = c->access_log,
                 .access_json = strcmp(c->log_format, "json") == 0,
                 .access_queue = (uint32_t)c->access_log_queue,
                 .key_failures_per_minute = (uint32_t)c->key_failures_per_minute,
                 .request_timeout_s = (uint32_t)c->request_timeout_s,
                 .otlp_endpoint = c->otlp_endpoint,
                 .otlp_ratio = c->otlp_ratio,
                 .otlp_queue = (uint32_t)c->otlp_queue},
        .resume_timeout_s = (uint32_t)c->resume_timeout_s,
        .resume_streams = (uint32_t)c->resume_streams,
        .resume_buffer_bytes = (uint32_t)c->resume_buffer_bytes,
        .share_prefixes = strcmp(c->prefix_sharing, "all") == 0,
        .explain_cache = c->explain_cache,
        .prefix_header_tokens = (uint32_t)c->prefix_header_tokens,
        .vllm_metrics = c->vllm_metrics,
        .fair_share = fair_share_of(c),
        .max_rerank_documents = (uint32_t)c->max_rerank_documents,
        .max_priority = (int)c->max_priority,
        .draft_integers = strcmp(c->json_integers, "draft") == 0,
        .refuse_ignored = strcmp(c->unknown_fields, "refuse") == 0,
        .store = s->store,
        .batches = s->batches,
        .max_file_bytes = c->file_max_bytes,
        .batch_lines = (uint32_t)c->batch_lines,
        .batch_max_lines = (uint32_t)c->batch_max_lines,
        .registry = s->registry,
        .keyring = s->keyring,
        .ledger = s->ledger,
        .audit = s->audit,
        .admin = serving_admin(s->serving),
        .model_aliases = c->model_aliases,
        .objectives = c->objectives,
        .reload = reload_for_api,
        .reload_arg = s->reload,
        .version = INFERD_VERSION,
        .kv_store = serving_kv_store(s->serving),
    };
}

/* As a URL, or as unix:/path. reachable: an address that means all of them is this machine's. */
static void add_url(const struct http_address *at, bool reachable, str *out) {
    const char *host = at->host;
    if (reachable && strcmp(host, "0.0.0.0") == 0) host = "127.0.0.1";
    if (reachable && strcmp(host, "::") == 0) host = "::1";
    bool v6 = strchr(host, ':') != NULL;
    if (at->path[0])
        str_addf(out, "unix:%s", at->path);
    else
        str_addf(out, "http%s://%s%s%s:%u", at->tls ? "s" : "", v6 ? "[" : "", host, v6 ? "]" : "",
                 at->port);
}

static void add_urls(const struct server *s, str *out) {
    struct http_address at;
    for (size_t i = 0; api_get_address(s->api, i, &at); i++) {
        if (i) str_add(out, ", ");
        add_url(&at, false, out);
    }
}

/* A supervisor's sockets take precedence over the configuration: clients may be connected already.
 */
static int open_api(struct server *s, err *e) {
    int rc = activation_open(&s->sockets, e);
    if (rc) return rc;
    struct api_config config = api_config_of(s, s->config, &s->keys);
    config.http.max_connections = fit_open_files((uint32_t)s->config->max_connections);
    rc = api_open(&config, &s->api, e);
    s->handed = s->sockets.n > 0;
    activation_close(&s->sockets); /* the HTTP server has its own descriptors */
    if (rc) return rc;
    if (s->handed) {
        str urls;
        str_init(&urls, ANNOUNCED_MAX_BYTES);
        add_urls(s, &urls);
        log_info("%s provides %s: listen, host and port of the configuration are ignored",
                 s->sockets.by, str_cstr(&urls));
        str_fini(&urls);
    }
    warn_open(s, s->config);
    return 0;
}

/* Says that the daemon serves: to `inferd ps`, on stdout and to a supervisor. Who waits for the
 * line on stdout finds the daemon listed. */
static void announce_ready(struct server *s, bool own) {
    struct http_address first;
    str names, url;
    err e;
    str_init(&names, ANNOUNCED_MAX_BYTES);
    str_init(&url, ANNOUNCED_MAX_BYTES);
    serving_names(s->serving, &names);
    if (api_get_address(s->api, 0, &first)) add_url(&first, true, &url);
    if (run_file_open(&s->run_file, str_cstr(&url), str_cstr(&names), own, &e))
        log_info("`inferd ps` does not list this daemon: %s", e.msg);
    str_clear(&url);
    add_urls(s, &url);
    printf("inferd: serving %s on %s\n", str_cstr(&names), str_cstr(&url));
    fflush(stdout);
    notify_send("READY=1");
    str_fini(&names);
    str_fini(&url);
}

/* Has what started this daemon closed the pipe on its standard input? Drops what is in it. */
static bool stdin_ended(void) {
    char dropped[256];
    struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};
    if (poll(&p, 1, 0) <= 0) return false;
    return read(STDIN_FILENO, dropped, sizeof dropped) <= 0;
}

/* The supervisor's sockets outlive this process: who connects from now on is served by the next
 * one. Open connections have their requests answered, and end with the answer; idle ones are left
 * alone for as long as clients reuse them. true: a second signal arrived. */
static bool leave_sockets(struct server *s, uint64_t begin_ns, uint64_t end_ns) {
    bool hurried = false;
    log_info("stopping: new connections wait for the next process, %u requests are running",
             api_n_active(s->api));
    api_leave(s->api);
    while (!api_is_quiet(s->api, REUSE_NS) && !hurried && clock_now_ns() < end_ns) {
        flush_accounts(s);
        hurried = signals_wait(DRAIN_POLL_MS) && clock_now_ns() - begin_ns > SAME_STOP_NS;
    }
    return hurried;
}

/* Routers see that /readyz is 503 and go elsewhere; until they do, requests are answered. true: a
 * second signal arrived. */
static bool retire(struct server *s, uint64_t begin_ns) {
    const uint64_t delay_s = atomic_load(&s->drain_delay_s);
    const uint64_t end_ns = begin_ns + delay_s * UINT64_C(1000000000);
    bool hurried = false;
    if (!delay_s) return false;
    log_info("stopping in %llu s: not ready any more, requests are still answered",
             (unsigned long long)delay_s);
    api_retire(s->api);
    while (!hurried && clock_now_ns() < end_ns) {
        flush_accounts(s);
        hurried = signals_wait(DRAIN_POLL_MS) && clock_now_ns() - begin_ns > SAME_STOP_NS;
    }
    return hurried;
}

/* Waits until no request runs and what is cached is stored, the deadline is over, or a second
 * signal arrives. */
static void drain_requests(struct server *s) {
    uint64_t begin_ns = clock_now_ns();
    uint32_t n_active;
    notify_send("STOPPING=1");
    bool hurried = !s->handed && retire(s, begin_ns);
    uint64_t end_ns = clock_now_ns() + atomic_load(&s->shutdown_deadline_s) * UINT64_C(1000000000);
    if (s->handed) hurried = leave_sockets(s, begin_ns, end_ns);
    log_info("stopping: new requests are refused, %u are running", api_n_active(s->api));
    api_drain(s->api);
    serving_drain(s->serving);
    while ((n_active = api_n_active(s->api)) > 0 && !hurried && clock_now_ns() < end_ns) {
        flush_accounts(s);
        hurried = signals_wait(DRAIN_POLL_MS) && clock_now_ns() - begin_ns > SAME_STOP_NS;
    }
    if (n_active)
        log_warn("%u requests are cut off by the shutdown deadline or a second signal", n_active);
    while (s->config->kv_dir[0] && !s->hung && !hurried && clock_now_ns() < end_ns &&
           !serving_save(s->serving, clock_now_ns() + DRAIN_POLL_MS * UINT64_C(1000000)))
        hurried = signals_wait(0) && clock_now_ns() - begin_ns > SAME_STOP_NS;
    uint64_t traces_ns = clock_now_ns() + TRACES_NS;
    if (!hurried) api_flush_traces(s->api, traces_ns < end_ns ? traces_ns : end_ns);
}

/* Closes everything in reverse order: streams end, connections close, memory is freed. */
static void close_all(struct server *s) {
    serving_stop(s->serving);
    flush_audit(s);
    api_close(s->api);
    audit_close(s->audit, clock_wall_s());
    keyring_close(s->keyring);
    ledger_close(s->ledger, clock_wall_s());
    responses_close(s->store);
    batches_close(s->batches);
    serving_close(s->serving);
    reload_close(s->reload);
    config_api_keys_fini(&s->keys.all);
    free(s->registry);
}

static int read_keys(const struct config *c, struct server_keys *out, err *e) {
    int rc = config_read_api_keys(c->api_key_file, &out->all, e);
    size_t n = out->all.n;
    if (!rc) rc = config_add_api_keys("admin-key-file", c->admin_key_file, &out->all, e);
    out->n_admin = rc ? 0 : out->all.n - n;
    return rc;
}

/* ---- reload ---- */

/* Are n keys from x on those from y on? */
static bool same_keys(char *const *x, char *const *y, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (strcmp(x[i], y[i]) != 0) return false;
    return true;
}

static void note_keys(const struct server_keys *was, const struct server_keys *is, str *changed) {
    size_t n = was->all.n - was->n_admin, m = is->all.n - is->n_admin;
    if (n != m || !same_keys(was->all.keys, is->all.keys, n))
        reload_add_name(changed, "api-key-file");
    if (was->n_admin != is->n_admin || !same_keys(was->all.keys + n, is->all.keys + m, is->n_admin))
        reload_add_name(changed, "admin-key-file");
}

/* Those that are open: 0 turns them off, which needs a restart. */
static void apply_to_stores(struct server *s, const struct config *c) {
    const struct batches_config config = batches_config_of(s, c);
    if (s->store) responses_set_bounds(s->store, c->responses_ttl_s, c->responses_max_bytes);
    if (s->batches) batches_set_bounds(s->batches, &config);
    if (s->ledger) ledger_set_keep(s->ledger, c->usage_days * DAY_S);
}

static int apply_config(void *arg, const struct config *c, str *changed, err *e) {
    struct server *s = arg;
    struct server_keys keys = {0};
    struct serving_change *models;
    int rc = serving_prepare(c, &models, e);
    if (rc) return rc;
    rc = read_keys(c, &keys, e);
    const struct api_config config = api_config_of(s, c, &keys);
    if (!rc) rc = api_apply(s->api, &config, e);
    if (!rc) {
        serving_apply(s->serving, models);
        apply_to_stores(s, c);
        note_keys(&s->keys, &keys, changed);
        struct server_keys old = s->keys;
        s->keys = keys;
        keys = old;
        logsink_set(c->log_level, c->log_format);
        atomic_store(&s->shutdown_deadline_s, c->shutdown_deadline_s);
        atomic_store(&s->drain_delay_s, c->drain_delay_s);
        atomic_store(&s->hang_s, c->hang_s);
        warn_open(s, c);
    }
    serving_change_free(models);
    config_api_keys_fini(&keys.all);
    return rc;
}

static int open_reload(struct server *s, const struct lifecycle_options *o, err *e) {
    struct reload_ops ops = {.arg = s, .read_arg = o->arg, .read = o->read, .apply = apply_config};
    return reload_open(s->config, &ops, &s->reload, e);
}

/* On SIGHUP. systemd may wait for it (Type=notify-reload). */
static void reload_by_signal(struct server *s) {
    str applied, pending;
    err e;
    char state[64];
    snprintf(state, sizeof state, "RELOADING=1\nMONOTONIC_USEC=%llu",
             (unsigned long long)(clock_now_ns() / 1000));
    notify_send(state);
    str_init(&applied, ANNOUNCED_MAX_BYTES);
    str_init(&pending, ANNOUNCED_MAX_BYTES);
    int rc = reload_run(s->reload, &applied, &pending, &e); /* the log has its result */
    if (s->audit) {
        struct audit_row row = {.time_s = clock_wall_s(), .who = "signal", .act = "config.reload"};
        audit_set_result(&row, rc);
        audit_add(s->audit, &row);
    }
    str_fini(&applied);
    str_fini(&pending);
    notify_send("READY=1");
}

static bool stop_signal_came(void) {
    return signals_count() > 0;
}

/* Serves until a stop signal; ERR_DEVICE. */
static int serve_requests(struct server *s, bool until_stdin_ends, err *e) {
    struct watchdog watchdog;
    watchdog_open(&watchdog);
    while (!signals_wait(LOOK_MS) && !(until_stdin_ends && stdin_ended())) {
        if (signals_reload()) reload_by_signal(s);
        model_files_look();
        api_look(s->api); /* a model whose last stream it frees may leave */
        serving_look(s->serving);
        flush_accounts(s);
        uint64_t stuck_s = watchdog_look(&watchdog, s->serving) / 1000000000u;
        uint64_t hang_s = atomic_load(&s->hang_s);
        s->hung = hang_s && stuck_s >= hang_s;
        if (s->hung) {
            api_set_hung(s->api);
            log_error("a device hangs: it has been in the same step for %llu s (hang-s): stopping, "
                      "so that a supervisor can start the daemon again",
                      (unsigned long long)stuck_s);
            return err_set(e, ERR_DEVICE, "a device hangs");
        }
        if (s->group && engine_group_failed(s->group, e)) {
            api_set_hung(s->api);
            log_error("%s: stopping, so that a supervisor can start all processes again",
                      e ? e->msg : "the group failed");
            return ERR_DEVICE;
        }
        if (serving_device_failed(s->serving))
            return err_set(e, ERR_DEVICE,
                           "the device failed for good (see the log): stopping, "
                           "so that a supervisor can start the daemon again");
    }
    return 0;
}

/* Nothing can be closed that the device's threads use, and they do not end. What is durable is
 * written. */
static void end_hung(struct server *s) {
    flush_accounts(s);
    fflush(stdout);
    _exit(1);
}

int lifecycle_serve(const struct config *c, const struct lifecycle_options *o, err *e) {
    struct server s = {.config = c, .group = o->group, .run_file = {.fd = -1}};
    atomic_init(&s.shutdown_deadline_s, c->shutdown_deadline_s);
    atomic_init(&s.drain_delay_s, c->drain_delay_s);
    atomic_init(&s.hang_s, c->hang_s);
    int rc = signals_open(e);
    if (!rc) rc = read_keys(c, &s.keys, e);
    if (!rc) rc = open_reload(&s, o, e);
    if (!rc) rc = config_registry_path(c, &s.registry, e);
    if (!rc) rc = serving_open(c, o->group, &s.serving, e);
    if (!rc) open_store(&s);
    if (!rc) open_batches(&s);
    if (!rc) rc = open_keyring(&s, e);
    if (!rc) open_ledger(&s);
    if (!rc) open_audit(&s);
    if (!rc) rc = open_api(&s, e);
    if (!rc) rc = serving_start(s.serving, s.api, stop_signal_came, e);
    if (!rc && !signals_count()) {
        announce_ready(&s, o->until_stdin_ends);
        rc = serve_requests(&s, o->until_stdin_ends, e);
        drain_requests(&s);
        if (s.hung) end_hung(&s);
    }
    close_all(&s);
    run_file_close(&s.run_file);
    if (!rc) log_info("stopped");
    return rc;
}
