/* hub_http.c - GET requests to the Hub: one try, its redirects, and the wait before the next. It
 * follows redirects itself, because at each hop it checks whether the address is allowed and
 * whether it may receive the token. Error texts never contain signed addresses or tokens. */
#include "core/base/clock.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "registry/hub_int.h"

#include <arpa/inet.h>
#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

enum {
    REDIRECTS_MAX = 5,
    CONNECT_TIMEOUT_S = 20,
    BUFFER_BYTES = 512 * 1024,
    URL_MAX_BYTES = 16384,
    RETRY_AFTER_MAX_S = 120,
    PAUSE_FIRST_MS = 500,
    PAUSE_MAX_MS = 30000,
    TICK_MS = 200,
    HOST_MAX = 256
};

/* The origin of a URL, which decides on trust. */
struct origin {
    char scheme[8], host[HOST_MAX], port[8];
    bool secure, loopback;
};

struct hub_http {
    const struct hub_options *options;
    CURL *curl;
    char *endpoint; /* without a '/' at its end */
    struct origin home;
};

/* State of one try. */
struct try {
    const struct hub_request *rq;
    struct hub_reply *reply;
    err *e;
    int rc; /* error of body or tick, which ended the transfer */
};

/* ---- addresses ---- */

/* The host as curl's URL parser gives it, IPv6 in brackets. */
static bool is_loopback(const char *host) {
    struct in_addr v4;
    if (strcasecmp(host, "localhost") == 0 || strcmp(host, "[::1]") == 0) return true;
    return inet_pton(AF_INET, host, &v4) == 1 && ntohl(v4.s_addr) >> 24 == 127;
}

static bool copy_url_part(CURLU *u, CURLUPart part, unsigned flags, char *out, size_t n) {
    char *text = NULL;
    bool ok = curl_url_get(u, part, &text, flags) == CURLUE_OK && strlen(text) < n;
    if (ok) strcpy(out, text);
    curl_free(text);
    return ok;
}

/* false: not an http or https URL, or one with a user name. */
static bool read_origin(const char *url, struct origin *out) {
    CURLU *u = curl_url();
    char *user = NULL;
    memset(out, 0, sizeof *out);
    bool ok = u && curl_url_set(u, CURLUPART_URL, url, 0) == CURLUE_OK &&
              copy_url_part(u, CURLUPART_SCHEME, 0, out->scheme, sizeof out->scheme) &&
              copy_url_part(u, CURLUPART_HOST, 0, out->host, sizeof out->host) &&
              copy_url_part(u, CURLUPART_PORT, CURLU_DEFAULT_PORT, out->port, sizeof out->port) &&
              curl_url_get(u, CURLUPART_USER, &user, 0) == CURLUE_NO_USER;
    curl_free(user);
    curl_url_cleanup(u);
    out->secure = strcmp(out->scheme, "https") == 0;
    out->loopback = is_loopback(out->host);
    return ok && (out->secure || strcmp(out->scheme, "http") == 0);
}

static bool same_origin(const struct origin *a, const struct origin *b) {
    return strcmp(a->scheme, b->scheme) == 0 && strcasecmp(a->host, b->host) == 0 &&
           strcmp(a->port, b->port) == 0;
}

int hub_http_open(const struct hub_options *o, hub_http **out, err *e) {
    int rc = 0;
    *out = NULL;
    if (curl_global_init(CURL_GLOBAL_DEFAULT))
        return err_set(e, ERR_IO, "libcurl cannot be initialized");
    hub_http *h = mem_new(1, sizeof *h);
    if (!h) {
        curl_global_cleanup();
        return err_no_memory(e);
    }
    h->options = o;
    size_t n = strlen(o->endpoint);
    while (n && o->endpoint[n - 1] == '/')
        n--;
    h->endpoint = mem_strndup(o->endpoint, n);
    h->curl = curl_easy_init();
    if (!h->endpoint || !h->curl)
        rc = err_no_memory(e);
    else if (!read_origin(h->endpoint, &h->home) || strpbrk(h->endpoint, "?#"))
        rc = err_set_param(e, ERR_INVALID, "endpoint",
                           "\"%.100s\" is not an address like https://huggingface.co", o->endpoint);
    if (rc) {
        hub_http_close(h);
        return rc;
    }
    if (o->token && o->token[0] && !h->home.secure && !h->home.loopback)
        o->say(o->arg, "the token is not sent, because the endpoint is not https");
    *out = h;
    return 0;
}

void hub_http_close(hub_http *h) {
    if (!h) return;
    curl_easy_cleanup(h->curl);
    curl_global_cleanup();
    free(h->endpoint);
    free(h);
}

/* ---- callbacks of curl ---- */

static void copy_text(char *out, size_t n, const char *value, size_t len) {
    if (len >= 2 && value[0] == '"' && value[len - 1] == '"') value++, len -= 2;
    for (size_t i = 0; i < len; i++)
        if (value[i] <= ' ' || value[i] > '~') len = 0;
    snprintf(out, n, "%.*s", (int)(len < n ? len : 0), value);
}

static void read_content_range(struct hub_reply *r, const char *value) {
    unsigned long long from, to, total = 0;
    int n = sscanf(value, "bytes %llu-%llu/%llu", &from, &to, &total);
    if (n < 2 || to < from) return;
    r->has_range = true;
    r->range_from = from;
    r->range_total = n == 3 ? total : 0;
}

/* Seconds or an HTTP date. */
static uint32_t read_retry_after(const char *value) {
    long long s;
    if (value[0] >= '0' && value[0] <= '9') {
        s = strtoll(value, NULL, 10);
    } else {
        time_t at = curl_getdate(value, NULL);
        s = at < 0 ? 0 : (long long)at - clock_wall_s();
    }
    return s < 0 ? 0 : s > UINT32_MAX ? UINT32_MAX : (uint32_t)s;
}

static size_t on_header(char *line, size_t size, size_t n, void *arg) {
    struct try *t = arg;
    struct hub_reply *r = t->reply;
    char text[1024];
    n *= size;
    if (n > 5 && strncmp(line, "HTTP/", 5) == 0) { /* the next response, possibly an interim one */
        const char *space = memchr(line, ' ', n);
        r->status = space ? strtol(space, NULL, 10) : 0;
        r->has_range = false;
        r->retry_after_s = 0;
        return n;
    }
    snprintf(text, sizeof text, "%.*s", (int)n, line);
    char *colon = strchr(text, ':');
    if (!colon) return n;
    *colon = '\0';
    const char *value = colon + 1 + strspn(colon + 1, " \t");
    size_t len = strcspn(value, "\r\n");
    while (len && value[len - 1] == ' ')
        len--;
    if (strcasecmp(text, "content-range") == 0) read_content_range(r, value);
    if (strcasecmp(text, "retry-after") == 0) r->retry_after_s = read_retry_after(value);
    if (strcasecmp(text, "x-linked-etag") == 0)
        copy_text(r->linked_etag, sizeof r->linked_etag, value, len);
    if (strcasecmp(text, "x-error-code") == 0)
        copy_text(r->error_code, sizeof r->error_code, value, len);
    return n;
}

static size_t on_body(char *bytes, size_t size, size_t n, void *arg) {
    struct try *t = arg;
    n *= size;
    if (t->reply->status != 200 && t->reply->status != 206) return n; /* an error page */
    t->rc = t->rq->body(t->rq->arg, t->reply, bytes, n, t->e);
    return t->rc ? 0 : n; /* a shorter count ends the transfer */
}

static int on_progress(void *arg, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d) {
    struct try *t = arg;
    (void)a, (void)b, (void)c, (void)d;
    if (t->rc || !t->rq->tick(t->rq->arg)) return 0;
    t->rc = err_set(t->e, ERR_STOPPING, "stopped");
    return 1;
}

/* ---- a request ---- */

/* Restricts a hop to its URL's protocol; requests to this machine bypass proxies. */
static void set_protocol(CURL *c, const struct origin *to) {
#if LIBCURL_VERSION_NUM >= 0x075500
    curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, to->scheme);
#else
    curl_easy_setopt(c, CURLOPT_PROTOCOLS, to->secure ? CURLPROTO_HTTPS : CURLPROTO_HTTP);
#endif
    if (to->loopback) curl_easy_setopt(c, CURLOPT_PROXY, "");
}

static int err_curl(struct try *t, CURLcode code, const char *host, uint32_t stall_s) {
    if (t->rc) return t->rc;
    bool certain = code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_URL_MALFORMAT ||
                   code == CURLE_SSL_CACERT_BADFILE || code == CURLE_UNSUPPORTED_PROTOCOL ||
                   code == CURLE_OUT_OF_MEMORY;
    t->reply->transient = !certain;
    if (code == CURLE_OPERATION_TIMEDOUT)
        return err_set(t->e, ERR_IO, "%s: nothing was received for %u seconds", host,
                       (unsigned)stall_s);
    if (code == CURLE_PARTIAL_FILE || code == CURLE_GOT_NOTHING || code == CURLE_RECV_ERROR)
        return err_set(t->e, ERR_IO, "%s: the connection was lost", host);
    return err_set(t->e, ERR_IO, "%s: %s", host, curl_easy_strerror(code));
}

static int send_request(hub_http *h, struct try *t, const char *url, const struct origin *to) {
    CURL *c = h->curl;
    const struct hub_options *o = h->options;
    char range[32], *bearer = NULL;
    struct curl_slist *headers = NULL;
    curl_easy_reset(c);
    curl_easy_setopt(c, CURLOPT_URL, url);
    set_protocol(c, to);
    curl_easy_setopt(c, CURLOPT_USERAGENT, "inferd/" INFERD_VERSION);
    curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(c, CURLOPT_BUFFERSIZE, (long)BUFFER_BYTES);
    curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_TIMEOUT_S);
    curl_easy_setopt(c, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(c, CURLOPT_LOW_SPEED_TIME, (long)o->stall_s);
    curl_easy_setopt(c, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(c, CURLOPT_HEADERDATA, t);
    curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(c, CURLOPT_WRITEDATA, t);
    curl_easy_setopt(c, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_easy_setopt(c, CURLOPT_XFERINFODATA, t);
    curl_easy_setopt(c, CURLOPT_NOPROGRESS, 0L);
    if (t->rq->from) {
        snprintf(range, sizeof range, "%llu-", (unsigned long long)t->rq->from);
        curl_easy_setopt(c, CURLOPT_RANGE, range);
    }
    if (o->token && o->token[0] && same_origin(to, &h->home) && (to->secure || to->loopback)) {
        str s;
        str_init(&s, URL_MAX_BYTES);
        str_addf(&s, "Authorization: Bearer %s", o->token);
        bearer = str_take(&s);
        str_fini(&s);
        headers = bearer ? curl_slist_append(NULL, bearer) : NULL;
        if (!headers) {
            free(bearer);
            return err_no_memory(t->e);
        }
        curl_easy_setopt(c, CURLOPT_HTTPHEADER, headers);
    }
    CURLcode code = curl_easy_perform(c);
    curl_slist_free_all(headers);
    free(bearer);
    return code == CURLE_OK && !t->rc ? 0 : err_curl(t, code, to->host, o->stall_s);
}

static bool is_redirect(long status) {
    return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

/* Explains an error status. */
static int err_status(const hub_http *h, struct try *t, const char *host) {
    struct hub_reply *r = t->reply;
    bool token = h->options->token && h->options->token[0];
    r->transient = r->status == 408 || r->status == 429 || r->status >= 500;
    if (r->transient)
        return err_set(t->e, ERR_IO, "%s answers %ld%s", host, r->status,
                       r->status == 429 ? " (too many requests)" : "");
    if (r->status == 401 || r->status == 403) {
        if (strcmp(r->error_code, "GatedRepo") == 0)
            return err_set(t->e, ERR_IO,
                           "access is granted on request only (HTTP %ld): accept the terms on the "
                           "model's page and set HF_TOKEN to that account's token",
                           r->status);
        return err_set(t->e, ERR_IO,
                       token
                           ? "%s answers %ld: there is no such model, or the token gives no access"
                           : "%s answers %ld: there is no such model, or it is private: then set "
                             "HF_TOKEN to an access token",
                       host, r->status);
    }
    if (r->status == 404) {
        const char *what = strcmp(r->error_code, "RevisionNotFound") == 0 ? "revision"
                           : strcmp(r->error_code, "EntryNotFound") == 0  ? "file"
                                                                          : "model";
        return err_set(t->e, ERR_NOT_FOUND, "%s has no such %s (HTTP 404)", host, what);
    }
    return err_set(t->e, ERR_IO, "%s answers %ld", host, r->status);
}

/* Refuses a hop that is less secure than the endpoint. */
static int check_hop(const hub_http *h, const char *url, struct origin *to, err *e) {
    if (!read_origin(url, to))
        return err_set(e, ERR_IO, "a redirect leads to an address other than http or https");
    if (!to->secure && h->home.secure)
        return err_set(e, ERR_IO, "a redirect leads from https to plain http (%s): refused",
                       to->host);
    return 0;
}

int hub_http_get(hub_http *h, const struct hub_request *rq, struct hub_reply *reply, err *e) {
    struct try t = {.rq = rq, .reply = reply, .e = e};
    struct origin to;
    str url;
    memset(reply, 0, sizeof *reply);
    str_init(&url, URL_MAX_BYTES);
    str_addf(&url, "%s%s", h->endpoint, rq->path);
    int rc = !url.failed ? 0
             : strlen(h->endpoint) + strlen(rq->path) < URL_MAX_BYTES
                 ? err_no_memory(e)
                 : err_set(e, ERR_INVALID, "the address has more than %d bytes", URL_MAX_BYTES);
    for (int hop = 0; !rc; hop++) {
        char *next = NULL;
        rc = check_hop(h, str_cstr(&url), &to, e);
        if (!rc) rc = send_request(h, &t, str_cstr(&url), &to);
        if (rc || !is_redirect(reply->status)) break;
        curl_easy_getinfo(h->curl, CURLINFO_REDIRECT_URL, &next);
        if (!next || strlen(next) >= URL_MAX_BYTES)
            rc = err_set(e, ERR_IO, "%s redirects without an address", to.host);
        else if (hop == REDIRECTS_MAX)
            rc = err_set(e, ERR_IO, "%s: more than %d redirects", to.host, REDIRECTS_MAX);
        if (rc) break;
        str_clear(&url);
        str_add(&url, next); /* curl frees its copy at the next request */
        if (url.failed) rc = err_no_memory(e);
    }
    if (!rc && reply->status != 200 && reply->status != 206) rc = err_status(h, &t, to.host);
    str_fini(&url);
    return rc;
}

int hub_http_pause(hub_http *h, const struct hub_request *rq, const struct hub_reply *reply,
                   struct hub_retry *retry, err *e) {
    const struct hub_options *o = h->options;
    if (!reply->transient || retry->n_failed >= o->n_retries) return e->code;
    if (reply->retry_after_s > RETRY_AFTER_MAX_S) {
        char text[64];
        snprintf(text, sizeof text, " and asks for a wait of %lu seconds",
                 (unsigned long)reply->retry_after_s);
        size_t n = strlen(e->msg);
        snprintf(e->msg + n, sizeof e->msg - n, "%s", text);
        return e->code;
    }
    uint64_t ms = PAUSE_FIRST_MS;
    for (uint32_t i = 0; i < retry->n_failed && ms < PAUSE_MAX_MS; i++)
        ms *= 2;
    if (ms > PAUSE_MAX_MS) ms = PAUSE_MAX_MS;
    if (ms < reply->retry_after_s * UINT64_C(1000)) ms = reply->retry_after_s * UINT64_C(1000);
    retry->n_failed++;
    char line[sizeof e->msg + 64];
    snprintf(line, sizeof line, "%s; trying again in %.1f s", e->msg, (double)ms / 1000);
    o->say(o->arg, line);
    const struct timespec tick = {.tv_nsec = TICK_MS * 1000000L};
    for (uint64_t end = clock_now_ns() + ms * 1000000; clock_now_ns() < end;) {
        if (rq->tick(rq->arg)) return err_set(e, ERR_STOPPING, "stopped");
        nanosleep(&tick, NULL);
    }
    return 0;
}
