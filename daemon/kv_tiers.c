/* kv_tiers.c - see kv_tiers.h. Owns nothing. */
#include "daemon/kv_tiers.h"

#include "core/base/log.h"
#include "core/base/program.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PATH_BYTES = 4096 };

/* The program's version and a hash of its file: another build may compute other bits. */
static int write_version(char *to, size_t n, err *e) {
    char program[PATH_BYTES];
    struct hash128 hash = {0, 0};
    program_path(program, sizeof program);
    if (program_hash_file(program, &hash))
        return err_set(e, ERR_IO, "cannot read the program's own file, \"%s\"", program);
    snprintf(to, n, INFERD_VERSION " %016llx%016llx", (unsigned long long)hash.hi,
             (unsigned long long)hash.lo);
    return 0;
}

/* Without the folder only what is kept in memory. */
static int open_memory(const struct config *c, kvstore **out, err *e) {
    const struct kvstore_config config = {.version = INFERD_VERSION,
                                          .max_memory_bytes = c->kv_memory_bytes};
    return c->kv_memory_bytes ? kvstore_open(&config, out, e) : 0;
}

int kv_tiers_secret(const char *registry, char *out, size_t n, err *e) {
    const char *slash = strrchr(registry, '/');
    const int folder = slash ? (int)(slash - registry) + 1 : 0;
    if (snprintf(out, n, "%.*skv.secret", folder, registry) < (int)n) return 0;
    return err_set_param(e, ERR_INVALID, "registry", "the path is too long");
}

struct kvstore_config kv_tiers_bounds(const struct config *c) {
    return (struct kvstore_config){.max_bytes = c->kv_dir_bytes,
                                   .max_files = c->kv_dir_files,
                                   .max_age_s = c->kv_dir_age_s,
                                   .max_daily_bytes = c->kv_dir_daily_bytes};
}

int kv_tiers_open(const struct config *c, const char *registry, kvstore **out, err *e) {
    char secret[PATH_BYTES], version[128];
    *out = NULL;
    if (!c->kv_dir[0]) return open_memory(c, out, e);
    int rc = kv_tiers_secret(registry, secret, sizeof secret, e);
    if (rc) return rc;
    struct kvstore_config config = kv_tiers_bounds(c);
    config.folder = c->kv_dir;
    config.secret = secret;
    config.version = version;
    config.max_memory_bytes = c->kv_memory_bytes;
    err why;
    rc = write_version(version, sizeof version, &why);
    if (!rc) rc = kvstore_open(&config, out, &why);
    if (rc == ERR_IO) {
        log_warn("nothing is stored in kv-dir: %s", why.msg);
        return open_memory(c, out, e);
    }
    if (rc && e) *e = why;
    return rc;
}

int kv_tiers_publish(const struct config *c, kvevents **out, err *e) {
    char host[256] = "inferd";
    *out = NULL;
    if (!c->kv_events[0]) return 0;
    if (gethostname(host, sizeof host - 1)) snprintf(host, sizeof host, "inferd");
    const struct kvevents_config config = {.endpoint = c->kv_events,
                                           .replay = c->kv_events_replay,
                                           .name = c->kv_events_name[0] ? c->kv_events_name : host,
                                           .replay_bytes = c->kv_events_replay_bytes};
    if (strchr(config.name, '@'))
        return err_set_param(e, ERR_INVALID, "kv-events-name", "kv-events-name: it may not have @");
    int rc = kvevents_open(&config, out, e);
    return rc ? err_prefix(e, "kv-events: ") : 0;
}
