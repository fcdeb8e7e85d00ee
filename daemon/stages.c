/* stages.c - see stages.h. Main thread. */
#include "daemon/stages.h"

#include "core/base/log.h"
#include "daemon/loader.h"
#include "daemon/notify.h"
#include "daemon/signals.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Other stages are told that this one has failed before it ends. */
enum { LAST_WORDS_MS = 500 };

bool stages_wanted(const struct config *c) {
    return c->pipeline_parallel > 1 || c->stages[0] || c->stage_listen[0];
}

static uint32_t count_items(const char *list) {
    uint32_t n = *list != '\0';
    for (; *list; list++)
        n += *list == ',';
    return n;
}

static int check_layers(const struct config *c, err *e) {
    const char *at = c->stage_layers;
    bool fits = !*at || count_items(at) == c->pipeline_parallel;
    while (fits && *at) {
        char *end = NULL;
        const unsigned long n = strtoul(at, &end, 10);
        fits = *at >= '0' && *at <= '9' && n > 0 && n <= 1024 && (!*end || (*end == ',' && end[1]));
        at = *end ? end + 1 : end;
    }
    if (fits) return 0;
    return err_set_param(e, ERR_INVALID, "stage-layers",
                         "stage-layers = %.80s: %llu numbers of layers are needed, \"20,12\"",
                         c->stage_layers, (unsigned long long)c->pipeline_parallel);
}

static int check_first(const struct config *c, err *e) {
    const uint32_t n = count_items(c->stages);
    if (n + 1 == c->pipeline_parallel) return check_layers(c, e);
    return err_set_param(e, ERR_INVALID, "pipeline-parallel",
                         "pipeline-parallel is %llu, and stages names %u other processes: set it "
                         "to %u, or name %llu",
                         (unsigned long long)c->pipeline_parallel, n, n + 1,
                         (unsigned long long)c->pipeline_parallel - 1);
}

int stages_check(struct config *c, err *e) {
    const char *kept = c->kv_dir[0] ? "kv-dir" : c->kv_memory_bytes ? "kv-memory-bytes" : NULL;
    if (kept)
        return err_set_param(e, ERR_UNSUPPORTED, kept,
                             "%s: the K/V of several stages cannot be stored: leave it out", kept);
    if (strchr(c->model, ','))
        return err_set_param(e, ERR_UNSUPPORTED, "model", "stages serve one model at a time");
    if (c->stage_listen[0] && c->stages[0])
        return err_set_param(e, ERR_INVALID, "stage-listen",
                             "stages is for the first stage, stage-listen for the others");
    c->max_models = 1;
    return c->stage_listen[0] ? 0 : check_first(c, e);
}

static bool stop_signal_came(void) {
    return signals_wait(0);
}

static int join(const struct config *c, const char *path, engine_group **out, err *e) {
    const struct engine_stages how = {.others = c->stages,
                                      .listen = c->stage_listen,
                                      .secret_file = c->stage_secret_file,
                                      .model_path = path,
                                      .kv_type = c->kv_cache_type,
                                      .activation_bits = c->activation_bits,
                                      .n_ranks = (uint32_t)c->tensor_parallel,
                                      .stops = c->stage_listen[0] ? stop_signal_came : NULL};
    return engine_group_join_stages(&how, INFERD_VERSION, (uint32_t)c->rank_timeout_s, out, e);
}

/* A signal ends a stage at once: the others see that its connection is closed. */
static void obey_stop_signals(void) {
    signal(SIGTERM, SIG_DFL);
    signal(SIGINT, SIG_DFL);
}

static int follow(const struct config *c, const char *path, err *e) {
    struct engine_config own;
    engine_group *g = NULL;
    int rc = signals_open(e);
    if (!rc) notify_send("READY=1"); /* stage 0 may come much later */
    if (!rc) rc = join(c, path, &g, e);
    if (rc == ERR_CANCELLED) return 0; /* stopped before the first stage came */
    if (rc) return rc;
    obey_stop_signals();
    loader_engine_config(c, path, &own);
    log_info("stage %u of %u follows", engine_group_rank(g), engine_group_size(g));
    rc = engine_group_follow(g, &own, e);
    if (rc) {
        log_error("stage %u of %u: %s", engine_group_rank(g), engine_group_size(g),
                  e ? e->msg : "failed");
        nanosleep(&(struct timespec){.tv_nsec = LAST_WORDS_MS * 1000000}, NULL);
    }
    engine_group_leave(g);
    return rc;
}

int stages_join(const struct config *c, engine_group **out, bool *followed, err *e) {
    struct loader_model found = {0};
    *out = NULL;
    *followed = false;
    int rc = loader_find(c, c->model, &found, e);
    if (rc) return rc;
    *followed = c->stage_listen[0] != '\0';
    rc = *followed ? follow(c, found.path, e) : join(c, found.path, out, e);
    if (!rc && *out) log_info("stage 0 of %u leads", engine_group_size(*out));
    loader_model_fini(&found);
    return rc;
}
