/* metrics_http.c - the HTTP server's own metrics. Owns nothing; any thread. */
#include "api/http/http.h"
#include "api/http/metrics.h"

#include <inttypes.h>

static void add_requests(str *s, struct http *h) {
    const char *name = "inferd_http_requests_total";
    metrics_head(s, name, "counter",
                 "HTTP requests answered, by route, method (HEAD counts as GET) and status code.");
    for (size_t row = 0; row <= h->setup.n_routes; row++)
        for (size_t col = 0; col < HTTP_N_CODES; col++) {
            uint64_t n = atomic_load(&h->n_requests[row][col]);
            if (n) {
                str_add(s, name);
                metrics_add_route(s, h, row);
                str_add(s, ",code=\"");
                if (http_codes[col])
                    str_addf(s, "%u", http_codes[col]);
                else
                    str_add(s, "other");
                str_addf(s, "\"} %" PRIu64 "\n", n);
            }
            if (!http_codes[col]) break;
        }
}

static void add_ignored(str *s, struct http *h) {
    const char *name = "inferd_ignored_fields_total";
    struct ignored_counts *c = &h->ignored;
    metrics_head(s, name, "counter",
                 "Request fields accepted and ignored, by route and field; \"unknown\" stands for "
                 "all that no table has.");
    pthread_mutex_lock(&c->mu);
    for (size_t i = 0; i < IGNORED_COUNTS; i++) {
        const struct ignored_count *slot = &c->slots[i];
        if (!slot->n) continue;
        str_add(s, name);
        metrics_add_route(s, h, slot->row);
        str_add(s, ",field=\"");
        metrics_label(s, slot->field);
        str_addf(s, "\"} %" PRIu64 "\n", slot->n);
    }
    pthread_mutex_unlock(&c->mu);
}

static void add_connections(str *s, struct http *h) {
    struct conns_counts c;
    conns_get(&h->conns, &c);
    const struct {
        const char *label;
        uint64_t value;
    } open[] = {{"waiting", c.open[CONN_WAITING] - c.receiving},
                {"receiving", c.open[CONN_BODY] + c.receiving},
                {"answering", c.open[CONN_ANSWERING]}},
      refused[] = {{"max_connections", c.refused_full}, {"address", c.refused_address}};
    const struct {
        const char *name, *help;
        uint64_t value;
    } rows[] = {
        {"inferd_http_connections_accepted_total", "Connections accepted.", c.accepted},
        {"inferd_http_connections_reaped_total", "Connections closed because a time limit passed.",
         c.reaped},
        {"inferd_http_connections_evicted_total", "Idle connections closed to make room.",
         c.evicted},
        {"inferd_http_connections_reserved_total",
         "Connections beyond the limit, which can only request health.", c.reserved},
    };
    const char *name = "inferd_http_connections";
    metrics_head(s, name, "gauge", "Open connections, by state.");
    for (size_t i = 0; i < sizeof open / sizeof *open; i++)
        str_addf(s, "%s{state=\"%s\"} %" PRIu64 "\n", name, open[i].label, open[i].value);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        metrics_head(s, rows[i].name, "counter", rows[i].help);
        str_addf(s, "%s %" PRIu64 "\n", rows[i].name, rows[i].value);
    }
    name = "inferd_http_connections_refused_total";
    metrics_head(s, name, "counter", "Connections refused, by limit.");
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        str_addf(s, "%s{reason=\"%s\"} %" PRIu64 "\n", name, refused[i].label, refused[i].value);
}

static void add_traces(str *s, struct http *h) {
    static const char *const reasons[TRACE_N_DROPS] = {[TRACE_QUEUE_FULL] = "queue_full",
                                                       [TRACE_REFUSED] = "refused",
                                                       [TRACE_UNSENT] = "unsent",
                                                       [TRACE_NO_MEMORY] = "no_memory"};
    struct tracer_stats t;
    tracer_stats_get(h->tracer, &t);
    metrics_head(s, "inferd_trace_spans_sent_total", "counter",
                 "Spans that the trace collector accepted.");
    str_addf(s, "inferd_trace_spans_sent_total %" PRIu64 "\n", t.sent);
    const char *name = "inferd_trace_spans_dropped_total";
    metrics_head(s, name, "counter", "Spans that were not sent or not accepted, by reason.");
    for (int i = 0; i < TRACE_N_DROPS; i++)
        str_addf(s, "%s{reason=\"%s\"} %" PRIu64 "\n", name, reasons[i], t.dropped[i]);
    metrics_head(s, "inferd_trace_retries_total", "counter",
                 "Further tries to send spans, after failures.");
    str_addf(s, "inferd_trace_retries_total %" PRIu64 "\n", t.retries);
    metrics_head(s, "inferd_trace_queue", "gauge", "Requests whose spans wait to be sent.");
    str_addf(s, "inferd_trace_queue %u\n", t.queued);
}

static void add_access(str *s, struct http *h) {
    const char *name = "inferd_access_log_lines_total";
    metrics_head(s, name, "counter", "Lines written to the access log.");
    str_addf(s, "%s %" PRIu64 "\n", name, (uint64_t)atomic_load(&h->access.n_written));
    name = "inferd_access_log_dropped_total";
    metrics_head(s, name, "counter",
                 "Lines missing in the access log: its queue was full, or the file could not be "
                 "written.");
    str_addf(s, "%s{reason=\"queue_full\"} %" PRIu64 "\n", name,
             (uint64_t)atomic_load(&h->access.n_queue_full));
    str_addf(s, "%s{reason=\"not_written\"} %" PRIu64 "\n", name,
             (uint64_t)atomic_load(&h->access.n_not_written));
}

void metrics_add_http(str *s, struct http *h) {
    add_requests(s, h);
    add_ignored(s, h);
    metrics_add_costs(s, h);
    add_connections(s, h);
    add_traces(s, h);
    add_access(s, h);
}
