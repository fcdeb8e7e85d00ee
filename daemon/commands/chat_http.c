/* chat_http.c - one libcurl transfer per request. Redirects are not followed: the API key goes to
 * the address that the user gave and to no other. The process ignores SIGPIPE. */
#include "daemon/commands/chat_http.h"

#include "core/base/mem.h"
#include "core/base/str.h"

#include <curl/curl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { POLL_MS = 200, CONNECT_TIMEOUT_MS = 10000, URL_MAX_BYTES = 2048, HEADER_MAX_BYTES = 16384 };

struct transfer {
    const struct chat_request *request;
    CURL *curl;
    struct curl_slist *headers;
    curl_mime *form; /* of an upload */
    err *e;
    int rc;    /* error of on_body */
    bool done; /* on_body wants no more */
    char why[CURL_ERROR_SIZE];
};

/* Gives a part of u to the caller (curl_free); NULL if there is none. */
static char *url_part(CURLU *u, CURLUPart part) {
    char *text = NULL;
    return curl_url_get(u, part, &text, 0) == CURLUE_OK ? text : NULL;
}

/* The socket file of "unix:/path"; NULL: url is of another kind. */
static const char *socket_path(const char *url) {
    return strncmp(url, "unix:/", 6) == 0 ? url + 5 : NULL;
}

int chat_http_check_url(const char *url, err *e) {
    if (socket_path(url)) return 0;
    CURLU *u = curl_url();
    if (!u) return err_no_memory(e);
    bool ok = strlen(url) < URL_MAX_BYTES && strcspn(url, " \r\n\t") == strlen(url) &&
              curl_url_set(u, CURLUPART_URL, url, 0) == CURLUE_OK;
    char *scheme = url_part(u, CURLUPART_SCHEME), *user = url_part(u, CURLUPART_USER);
    char *query = url_part(u, CURLUPART_QUERY), *fragment = url_part(u, CURLUPART_FRAGMENT);
    ok = ok && scheme && (!strcmp(scheme, "http") || !strcmp(scheme, "https"));
    if (!ok || user || query || fragment)
        err_set(e, ERR_INVALID,
                "expected --url http://HOST:PORT, https://HOST or unix:/PATH, not \"%.100s\"", url);
    ok = ok && !user && !query && !fragment;
    curl_free(scheme);
    curl_free(user);
    curl_free(query);
    curl_free(fragment);
    curl_url_cleanup(u);
    return ok ? 0 : ERR_INVALID;
}

/* A loopback address is reached without the proxy that the environment names. */
static bool is_loopback(const char *url) {
    CURLU *u = curl_url();
    char *host = u && !curl_url_set(u, CURLUPART_URL, url, 0) ? url_part(u, CURLUPART_HOST) : NULL;
    bool yes = host && (!strcasecmp(host, "localhost") || !strncmp(host, "127.", 4) ||
                        !strcmp(host, "[::1]"));
    curl_free(host);
    curl_url_cleanup(u);
    return yes;
}

static size_t on_body(char *bytes, size_t size, size_t n, void *arg) {
    struct transfer *t = arg;
    long status = 0;
    curl_easy_getinfo(t->curl, CURLINFO_RESPONSE_CODE, &status);
    n *= size;
    if (n) t->rc = t->request->on_body(t->request->arg, (int)status, bytes, n, &t->done, t->e);
    return t->rc || t->done ? CURL_WRITEFUNC_PAUSE : n;
}

static bool add_header(struct transfer *t, const char *line) {
    struct curl_slist *more = curl_slist_append(t->headers, line);
    if (more) t->headers = more;
    return more != NULL;
}

static bool add_key_header(struct transfer *t, const char *api_key) {
    str s;
    str_init(&s, HEADER_MAX_BYTES);
    str_addf(&s, "Authorization: Bearer %s", api_key);
    bool ok = !s.failed && add_header(t, str_cstr(&s));
    str_fini(&s);
    return ok;
}

static bool add_form(struct transfer *t) {
    t->form = curl_mime_init(t->curl);
    curl_mimepart *purpose = t->form ? curl_mime_addpart(t->form) : NULL;
    curl_mimepart *file = purpose ? curl_mime_addpart(t->form) : NULL;
    return file && !curl_mime_name(purpose, "purpose") &&
           !curl_mime_data(purpose, "batch", CURL_ZERO_TERMINATED) &&
           !curl_mime_name(file, "file") && !curl_mime_filedata(file, t->request->upload) &&
           !curl_easy_setopt(t->curl, CURLOPT_MIMEPOST, t->form);
}

static int prepare_transfer(struct transfer *t) {
    const struct chat_request *r = t->request;
    const char *authorities = getenv("SSL_CERT_FILE");
    CURL *c = t->curl;
    str url;
    size_t n = strlen(r->url);
    while (n && r->url[n - 1] == '/')
        n--;
    str_init(&url, URL_MAX_BYTES + 64);
    if (socket_path(r->url))
        str_add(&url, "http://localhost");
    else
        str_add_n(&url, r->url, n);
    str_add(&url, r->path);
    /* No "Expect: 100-continue": the daemon reads a body at once. */
    bool ok = !url.failed && add_header(t, "Expect:") &&
              (!r->body || add_header(t, "Content-Type: application/json")) &&
              (!r->api_key || add_key_header(t, r->api_key)) &&
              curl_easy_setopt(c, CURLOPT_URL, str_cstr(&url)) == CURLE_OK;
    str_fini(&url);
    if (!ok) return err_no_memory(t->e);
    if (r->upload && !add_form(t)) return err_set(t->e, ERR_IO, "cannot read %.200s", r->upload);
    curl_easy_setopt(c, CURLOPT_HTTPHEADER, t->headers);
    if (r->body) {
        curl_easy_setopt(c, CURLOPT_POST, 1L);
        curl_easy_setopt(c, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)strlen(r->body));
        curl_easy_setopt(c, CURLOPT_POSTFIELDS, r->body);
    }
#if LIBCURL_VERSION_NUM >= 0x075500
    curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https");
#else
    curl_easy_setopt(c, CURLOPT_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
    if (socket_path(r->url)) curl_easy_setopt(c, CURLOPT_UNIX_SOCKET_PATH, socket_path(r->url));
    if (socket_path(r->url) || is_loopback(r->url)) curl_easy_setopt(c, CURLOPT_PROXY, "");
    if (authorities && authorities[0]) curl_easy_setopt(c, CURLOPT_CAINFO, authorities);
    curl_easy_setopt(c, CURLOPT_USERAGENT, "inferd/" INFERD_VERSION);
    curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(c, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_TIMEOUT_MS);
    curl_easy_setopt(c, CURLOPT_ERRORBUFFER, t->why);
    curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(c, CURLOPT_WRITEDATA, t);
    return 0;
}

static int err_transfer(const struct transfer *t, CURLcode code) {
    const char *url = t->request->url, *why = t->why[0] ? t->why : curl_easy_strerror(code);
    switch (code) {
    case CURLE_OUT_OF_MEMORY:
        return err_no_memory(t->e);
    case CURLE_COULDNT_CONNECT:
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_OPERATION_TIMEDOUT:
        return err_set(t->e, ERR_IO, "cannot reach %.100s (is `inferd serve` running?): %s", url,
                       why);
    case CURLE_PEER_FAILED_VERIFICATION:
        return err_set(t->e, ERR_IO,
                       "%.100s: %s (SSL_CERT_FILE names a file of certificates to trust)", url,
                       why);
    case CURLE_PARTIAL_FILE:
    case CURLE_RECV_ERROR:
    case CURLE_GOT_NOTHING:
        return err_set(t->e, ERR_IO, "the connection to %.100s was lost: %s", url, why);
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_WEIRD_SERVER_REPLY:
    case CURLE_BAD_CONTENT_ENCODING:
        return err_set(t->e, ERR_FORMAT, "%.100s does not answer in HTTP: %s", url, why);
    default:
        return err_set(t->e, ERR_IO, "%.100s: %s", url, why);
    }
}

/* Drives the transfer until it ends, on_body ends it, or the user stops it. */
static int run_transfer(struct transfer *t, CURLM *multi) {
    int n_running = 1, n_left;
    CURLMcode bad = CURLM_OK;
    while (!bad && n_running) {
        bad = curl_multi_perform(multi, &n_running);
        if (t->rc || t->done) return t->rc;
        if (!bad && n_running) bad = curl_multi_poll(multi, NULL, 0, POLL_MS, NULL);
        if (t->request->stopped()) return err_set(t->e, ERR_STOPPING, "stopped");
    }
    if (bad) return err_set(t->e, ERR_IO, "libcurl: %s", curl_multi_strerror(bad));
    const CURLMsg *ended = curl_multi_info_read(multi, &n_left);
    CURLcode code = ended ? ended->data.result : CURLE_OK;
    return code == CURLE_OK ? 0 : err_transfer(t, code);
}

int chat_http_send(const struct chat_request *request, int *status, err *e) {
    struct transfer t = {.request = request, .e = e, .curl = curl_easy_init()};
    CURLM *multi = curl_multi_init();
    long code = 0;
    int rc = t.curl && multi ? prepare_transfer(&t) : err_no_memory(e);
    if (!rc && curl_multi_add_handle(multi, t.curl)) rc = err_no_memory(e);
    if (!rc) {
        rc = run_transfer(&t, multi);
        curl_easy_getinfo(t.curl, CURLINFO_RESPONSE_CODE, &code);
        curl_multi_remove_handle(multi, t.curl);
    }
    *status = (int)code;
    curl_easy_cleanup(t.curl); /* closes the connection: the daemon notices and ends the sequence */
    curl_multi_cleanup(multi);
    curl_mime_free(t.form);
    curl_slist_free_all(t.headers);
    return rc;
}
