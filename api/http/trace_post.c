/* trace_post.c - one POST of spans to a collector, by OTLP/HTTP: which answers mean another try
 * (429, 502, 503, 504, and none at all), how long to wait for it, and what was not accepted. It
 * follows no redirects. Runs on the thread of tracer.c. */
#include "api/http/json.h"
#include "api/http/trace_int.h"

#include "core/base/mem.h"

#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    CONNECT_TIMEOUT_S = 5,
    TIMEOUT_S = 10,          /* of a whole transfer, as exporters of OpenTelemetry have it */
    ANSWER_BYTES = 64 << 10, /* more of an answer is not read */
    RETRY_AFTER_MAX_S = 3600
};

struct trace_post {
    CURL *curl;
    struct curl_slist *headers;
    str answer;
    bool (*stop)(void *arg); /* of the transfer that is running */
    void *stop_arg;
};

/* A base address, as OTEL_EXPORTER_OTLP_ENDPOINT has it. */
static bool is_base(const char *endpoint) {
    static const CURLUPart parts[] = {CURLUPART_QUERY, CURLUPART_FRAGMENT, CURLUPART_USER};
    CURLU *u = curl_url();
    char *text = NULL;
    bool ok = u && curl_url_set(u, CURLUPART_URL, endpoint, 0) == CURLUE_OK &&
              curl_url_get(u, CURLUPART_SCHEME, &text, 0) == CURLUE_OK &&
              (strcmp(text, "http") == 0 || strcmp(text, "https") == 0);
    curl_free(text);
    for (size_t i = 0; ok && i < sizeof parts / sizeof *parts; i++) {
        char *part = NULL;
        ok = curl_url_get(u, parts[i], &part, 0) != CURLUE_OK;
        curl_free(part);
    }
    curl_url_cleanup(u);
    return ok;
}

int trace_post_url(const char *endpoint, char **url, err *e) {
    size_t n = strlen(endpoint);
    str s;
    *url = NULL;
    if (!is_base(endpoint))
        return err_set_param(e, ERR_INVALID, "otlp_endpoint",
                             "\"%.100s\" is not the base address of an OpenTelemetry collector, "
                             "like http://127.0.0.1:4318",
                             endpoint);
    while (n && endpoint[n - 1] == '/')
        n--;
    str_init(&s, n + 16);
    str_add_n(&s, endpoint, n);
    str_add(&s, "/v1/traces");
    *url = str_take(&s);
    return *url ? 0 : err_no_memory(e);
}

static size_t on_answer(char *bytes, size_t size, size_t n, void *arg) {
    struct trace_post *p = arg;
    size_t room = ANSWER_BYTES - p->answer.len;
    (void)size;
    str_add_n(&p->answer, bytes, n < room ? n : room);
    return n;
}

static int on_progress(void *arg, curl_off_t dl_total, curl_off_t dl, curl_off_t ul_total,
                       curl_off_t ul) {
    struct trace_post *p = arg;
    (void)dl_total, (void)dl, (void)ul_total, (void)ul;
    return p->stop(p->stop_arg);
}

int trace_post_open(struct trace_post **out, err *e) {
    *out = NULL;
    if (curl_global_init(CURL_GLOBAL_DEFAULT))
        return err_set(e, ERR_IO, "libcurl cannot be initialized");
    struct trace_post *p = mem_new(1, sizeof *p);
    if (!p) {
        curl_global_cleanup();
        return err_no_memory(e);
    }
    str_init(&p->answer, ANSWER_BYTES);
    p->curl = curl_easy_init();
    p->headers = curl_slist_append(NULL, "Content-Type: application/json");
    if (!p->curl || !p->headers) {
        trace_post_close(p);
        return err_no_memory(e);
    }
    curl_easy_setopt(p->curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(p->curl, CURLOPT_HTTPHEADER, p->headers);
    curl_easy_setopt(p->curl, CURLOPT_USERAGENT, "inferd");
    curl_easy_setopt(p->curl, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_TIMEOUT_S);
    curl_easy_setopt(p->curl, CURLOPT_TIMEOUT, (long)TIMEOUT_S);
    curl_easy_setopt(p->curl, CURLOPT_WRITEFUNCTION, on_answer);
    curl_easy_setopt(p->curl, CURLOPT_WRITEDATA, p);
    curl_easy_setopt(p->curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(p->curl, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_easy_setopt(p->curl, CURLOPT_XFERINFODATA, p);
    *out = p;
    return 0;
}

void trace_post_close(struct trace_post *p) {
    if (!p) return;
    curl_slist_free_all(p->headers);
    curl_easy_cleanup(p->curl);
    str_fini(&p->answer);
    free(p);
    curl_global_cleanup();
}

/* {"partialSuccess":{"rejectedSpans":"1","errorMessage":"..."}}; the number may be a string or not.
 * An answer that is no JSON accepts everything. */
static void read_answer(const struct trace_post *p, struct post_reply *reply) {
    cJSON *root = NULL;
    if (!p->answer.len || json_parse(str_cstr(&p->answer), p->answer.len, &root, NULL)) return;
    const cJSON *partial = cJSON_GetObjectItemCaseSensitive(root, "partialSuccess");
    const cJSON *n = cJSON_GetObjectItemCaseSensitive(partial, "rejectedSpans");
    const cJSON *message = cJSON_GetObjectItemCaseSensitive(partial, "errorMessage");
    int64_t value = 0;
    if (cJSON_IsString(n))
        value = strtoll(n->valuestring, NULL, 10);
    else if (n)
        json_int64(n, &value);
    if (value > 0) reply->n_rejected = (uint64_t)value;
    if (value > 0 || (cJSON_IsString(message) && *message->valuestring))
        snprintf(reply->why, sizeof reply->why, "the collector says: %.100s",
                 cJSON_IsString(message) ? message->valuestring : "some spans are rejected");
    cJSON_Delete(root);
}

static bool may_retry(long status) {
    return status == 429 || status == 502 || status == 503 || status == 504;
}

enum post_result trace_post_send(struct trace_post *p, const char *url, const str *body,
                                 bool (*stop)(void *arg), void *arg, struct post_reply *reply) {
    long status = 0;
    curl_off_t retry_s = 0;
    memset(reply, 0, sizeof *reply);
    str_clear(&p->answer);
    p->stop = stop;
    p->stop_arg = arg;
    curl_easy_setopt(p->curl, CURLOPT_URL, url);
    curl_easy_setopt(p->curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)body->len);
    curl_easy_setopt(p->curl, CURLOPT_POSTFIELDS, str_cstr(body));
    CURLcode rc = curl_easy_perform(p->curl);
    if (rc == CURLE_ABORTED_BY_CALLBACK) return POST_STOPPED;
    if (rc) {
        snprintf(reply->why, sizeof reply->why, "%.150s", curl_easy_strerror(rc));
        return POST_FAILED;
    }
    curl_easy_getinfo(p->curl, CURLINFO_RESPONSE_CODE, &status);
    if (status >= 200 && status < 300) {
        read_answer(p, reply);
        return POST_ACCEPTED;
    }
    snprintf(reply->why, sizeof reply->why, "the collector answers %ld", status);
    if (!may_retry(status)) return POST_REFUSED;
    curl_easy_getinfo(p->curl, CURLINFO_RETRY_AFTER, &retry_s);
    if (retry_s > RETRY_AFTER_MAX_S) retry_s = RETRY_AFTER_MAX_S;
    reply->retry_ns = retry_s > 0 ? (uint64_t)retry_s * UINT64_C(1000000000) : 0;
    return POST_FAILED;
}
