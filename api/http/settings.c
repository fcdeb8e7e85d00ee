/* settings.c - see settings.h. */
#include "api/http/settings.h"

#include "core/base/mem.h"

#include <stdlib.h>
#include <string.h>

void key_slots_fini(struct key_slots *k) {
    for (uint32_t i = 0; i < k->n; i++)
        free(k->texts[i]);
    free(k->texts);
    *k = (struct key_slots){0};
}

static int slot_of(struct key_slots *k, const char *text, uint32_t *slot, err *e) {
    for (uint32_t i = 0; i < k->n; i++)
        if (strcmp(k->texts[i], text) == 0) {
            *slot = i;
            return 0;
        }
    if (k->n == KEY_SLOTS_MAX)
        return err_set_param(e, ERR_INVALID, "api_keys",
                             "more than %d different API keys since the start: restart",
                             KEY_SLOTS_MAX);
    char **more = mem_resize(k->texts, k->n + 1, sizeof *more);
    if (!more) return err_no_memory(e);
    k->texts = more;
    if (!(more[k->n] = mem_strdup(text))) return err_no_memory(e);
    *slot = k->n++;
    return 0;
}

static void free_settings(struct settings *s) {
    struct http_config *c = &s->config;
    free((char *)c->allowed_hosts);
    for (size_t i = 0; c->api_keys && i < c->n_api_keys; i++)
        free((char *)c->api_keys[i]);
    free((void *)c->api_keys);
    free(s->slots);
    origins_fini(&s->origins);
    networks_fini(&s->proxies);
    tls_free(s->tls);
    free(s);
}

static int copy_config(struct settings *s, const struct http_config *from, err *e) {
    struct http_config *to = &s->config;
    *to = *from;
    to->allowed_origins = to->trusted_proxies = NULL; /* origins, proxies */
    to->host = to->listen = to->otlp_endpoint = to->access_log = NULL;
    to->tls_certificate = to->tls_key = to->tls_client_ca = NULL; /* tls */
    to->listen_fds = NULL;
    to->allowed_hosts = mem_strdup(from->allowed_hosts ? from->allowed_hosts : "");
    char **keys = mem_new(from->n_api_keys, sizeof *keys);
    to->api_keys = (const char *const *)keys;
    s->slots = mem_new(from->n_api_keys, sizeof *s->slots);
    bool ok = to->allowed_hosts && keys && s->slots;
    for (size_t i = 0; keys && i < from->n_api_keys; i++)
        ok &= (keys[i] = mem_strdup(from->api_keys[i])) != NULL;
    return ok ? 0 : err_no_memory(e);
}

static bool is_set(const char *text) {
    return text && *text;
}

static int load_tls(struct settings *s, const struct http_config *c, err *e) {
    bool any = is_set(c->tls_certificate) || is_set(c->tls_key) || is_set(c->tls_client_ca);
    if (!any) return 0;
    if (!is_set(c->tls_certificate))
        return err_set_param(e, ERR_INVALID, "tls_certificate",
                             "tls_key and tls_client_ca need tls_certificate");
    if (!is_set(c->tls_key))
        return err_set_param(e, ERR_INVALID, "tls_key", "tls_certificate needs tls_key");
    return tls_load(&(struct tls_files){c->tls_certificate, c->tls_key, c->tls_client_ca}, &s->tls,
                    e);
}

int settings_new(const struct http_config *c, struct key_slots *k, struct settings **out, err *e) {
    *out = NULL;
    for (size_t i = 0; i < c->n_api_keys; i++)
        if (!*c->api_keys[i])
            return err_set_param(e, ERR_INVALID, "api_keys", "an API key must not be empty");
    struct settings *s = mem_new(1, sizeof *s);
    if (!s) return err_no_memory(e);
    atomic_init(&s->refs, 1);
    int rc = copy_config(s, c, e);
    if (!rc) rc = origins_parse(c->allowed_origins, &s->origins, e);
    if (!rc) rc = networks_parse(c->trusted_proxies, &s->proxies, e);
    if (!rc) rc = load_tls(s, c, e);
    for (size_t i = 0; i < c->n_api_keys && !rc; i++)
        rc = slot_of(k, c->api_keys[i], &s->slots[i], e);
    if (rc) {
        free_settings(s);
        return rc;
    }
    *out = s;
    return 0;
}

const struct settings *settings_hold(struct settings *s) {
    atomic_fetch_add(&s->refs, 1);
    return s;
}

void settings_drop(const struct settings *held) {
    struct settings *s = (struct settings *)held;
    if (s && atomic_fetch_sub(&s->refs, 1) == 1) free_settings(s);
}
