/* reload.c - see reload.h. Owns the configuration that is in force. */
#include "daemon/reload.h"

#include "core/base/log.h"
#include "core/base/mem.h"
#include "daemon/key_names.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct reload {
    struct reload_ops ops;
    pthread_mutex_t mu; /* one reload at a time; guards current */
    struct config current;
};

int reload_open(const struct config *c, const struct reload_ops *ops, reload **out, err *e) {
    reload *r = mem_new(1, sizeof *r);
    *out = NULL;
    if (!r) return err_no_memory(e);
    r->ops = *ops;
    pthread_mutex_init(&r->mu, NULL);
    int rc = config_clone(&r->current, c, e);
    if (rc) {
        reload_close(r);
        return rc;
    }
    *out = r;
    return 0;
}

void reload_close(reload *r) {
    if (!r) return;
    config_fini(&r->current);
    pthread_mutex_destroy(&r->mu);
    free(r);
}

static bool has_name(const char *list, const char *name) {
    size_t n = strlen(name);
    for (const char *at = list; *at; at += strspn(at, ", ")) {
        size_t m = strcspn(at, ",");
        if (m == n && memcmp(at, name, n) == 0) return true;
        at += m;
    }
    return false;
}

void reload_add_name(str *list, const char *name) {
    if (!has_name(str_cstr(list), name)) str_addf(list, "%s%s", list->len ? ", " : "", name);
}

static bool is_tls(const struct config_key *key) {
    return strncmp(key->name, "tls-", 4) == 0;
}

/* Sorts the keys that differ; those that need a restart get the value that is in force. */
static int compare(reload *r, struct config *next, str *applied, str *pending, err *e) {
    size_t n;
    const struct config_key *keys = config_keys(&n);
    /* Sockets that listen do not begin or stop to speak TLS. */
    bool switches = !r->current.tls_certificate[0] != !next->tls_certificate[0];
    for (size_t i = 0; i < n; i++) {
        if (config_same(&r->current, next, &keys[i])) continue;
        bool live = config_is_live(&keys[i], &r->current, next) && !(switches && is_tls(&keys[i]));
        reload_add_name(live ? applied : pending, keys[i].name);
        if (live) continue;
        int rc = config_copy(next, &r->current, &keys[i], e);
        if (rc) return rc;
    }
    return 0;
}

static void log_result(const str *applied, const str *pending, int rc, const err *why) {
    if (rc) {
        log_error("the configuration is not reloaded, nothing changes: %s", why->msg);
        return;
    }
    log_info("the configuration is reloaded: %s%s",
             applied->len ? "applied " : "nothing that a reload applies has changed",
             str_cstr(applied));
    if (pending->len) log_warn("these keys need a restart: %s", str_cstr(pending));
}

int reload_run(reload *r, str *applied, str *pending, err *e) {
    struct config next = {0};
    err why;
    err_clear(&why);
    pthread_mutex_lock(&r->mu);
    int rc = r->ops.read(r->ops.read_arg, &next, &why);
    if (!rc) rc = compare(r, &next, applied, pending, &why);
    if (!rc) {
        rc = r->ops.apply(r->ops.arg, &next, applied, &why);
        if (rc) {
            key_names_put(&why);
            config_locate(&next, &why);
        }
    }
    if (!rc) {
        struct config old = r->current;
        r->current = next;
        next = old;
    }
    log_result(applied, pending, rc, &why);
    pthread_mutex_unlock(&r->mu);
    config_fini(&next);
    if (rc && e) *e = why;
    return rc;
}
