/* ranks.c - see ranks.h. Main thread. */
#include "daemon/ranks.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "daemon/signals.h"
#include "daemon/stages.h"

#include <signal.h>
#include <stdio.h>
#include <time.h>

/* mpirun kills the other processes when one fails: rank 0 gets time to say why, and to end by
 * itself. */
enum { LAST_WORDS_S = 3 };

int ranks_check(struct config *c, err *e) {
    const uint32_t n = engine_group_launched();
    const bool stages = stages_wanted(c);
    if (stages && n > 1)
        return err_set_param(e, ERR_UNSUPPORTED, "pipeline-parallel",
                             "mpirun started %u processes, which cannot be stages, too: start "
                             "each stage without mpirun, with tensor-parallel = the number of its "
                             "machine's GPUs, or of groups of threads, that share its layers",
                             n);
    if (stages) return stages_check(c, e);
    if (n < 2) return 0;
    if (c->tensor_parallel != n)
        return err_set_param(e, ERR_INVALID, "tensor-parallel",
                             "mpirun started %u processes, but tensor-parallel is %llu: set it to "
                             "%u, or start one process",
                             n, (unsigned long long)c->tensor_parallel, n);
    if (c->kv_dir[0] || c->kv_memory_bytes)
        return err_set_param(e, ERR_UNSUPPORTED, c->kv_dir[0] ? "kv-dir" : "kv-memory-bytes",
                             "%s: the K/V of ranks that are processes cannot be stored: leave it "
                             "out",
                             c->kv_dir[0] ? "kv-dir" : "kv-memory-bytes");
    c->max_models = 1;
    return 0;
}

/* Rank 0 says when to stop: a supervisor's signal reaches all processes. */
static void ignore_stop_signals(void) {
    const struct sigaction ignore = {.sa_handler = SIG_IGN};
    sigaction(SIGTERM, &ignore, NULL);
    sigaction(SIGINT, &ignore, NULL);
}

static int follow(engine_group *g, err *e) {
    int rc = signals_open(e); /* as rank 0 has it, for the model's files */
    ignore_stop_signals();
    if (!rc) rc = engine_group_follow(g, NULL, e);
    if (rc) {
        log_error("rank %u of %u: %s", engine_group_rank(g), engine_group_size(g),
                  e ? e->msg : "failed");
        nanosleep(&(struct timespec){.tv_sec = LAST_WORDS_S}, NULL);
    }
    engine_group_leave(g);
    return rc;
}

int ranks_join(const struct config *c, engine_group **out, bool *followed, err *e) {
    *out = NULL;
    *followed = false;
    if (stages_wanted(c)) return stages_join(c, out, followed, e);
    if (engine_group_launched() < 2) return 0;
    engine_group *g;
    int rc = engine_group_join(INFERD_VERSION, (uint32_t)c->rank_timeout_s, &g, e);
    if (rc) return rc;
    *followed = engine_group_rank(g) != 0;
    if (*followed) return follow(g, e);
    log_info("rank 0 of %u processes leads", engine_group_size(g));
    *out = g;
    return 0;
}
