/* api_server.h - a server with a tiny model on a free port, for the tests of the HTTP layer, and
 * readers of its answers. Included once per test program. */
#ifndef INFERD_TESTS_API_SERVER_H
#define INFERD_TESTS_API_SERVER_H

#include "api/api.h"
#include "core/base/clock.h"
#include "core/base/mem.h"
#include "core/base/qblock.h"
#include "core/text/utf8.h"
#include "tests/support/engine_kit.h"
#include "tests/support/gguf_make.h"

#include "api_client.h"

#include <cjson/cJSON.h>
#include <signal.h>
#include <time.h>

static char model_path[256];
static engine *en;
static chat_template *chat;
static api *server;

static struct api_config base_config(void) {
    return (struct api_config){.max_rerank_documents = 100,
                               .http = {.host = "127.0.0.1",
                                        .n_threads = 2,
                                        .prepare_threads = 2,
                                        .prepare_slow_threads = 2,
                                        .prepare_queue = 400,
                                        .prepare_budget_s = 5,
                                        .max_connections = 400,
                                        .max_body_bytes = 100000,
                                        .max_header_bytes = 8192,
                                        .idle_timeout_s = 60,
                                        .keepalive_ms = 10000,
                                        .max_answer_bytes = 256 << 20},
                               .version = "0.0.1"};
}

static void start_engine(void) {
    struct engine_config c = kit_config(model_path);
    err e = {0};
    c.n_threads = 1;
    c.max_batch_tokens = 256, c.prefill_chunk = 64;
    c.max_sequences = 32, c.max_queue = 200;
    c.stream_events = 32;
    en = kit_open(&c);
    const tokenizer *tok = engine_tokenizer(en);
    size_t n, m;
    const char *bos = tokenizer_token_text(tok, tokenizer_bos(tok), &n);
    const char *eos = tokenizer_token_text(tok, tokenizer_eos(tok), &m);
    char *bos_text = mem_strndup(bos, n), *eos_text = mem_strndup(eos, m);
    CHECK_MSG(chat_template_new(tokenizer_chat_template(tok), bos_text, eos_text, &chat, &e) == 0,
              "%s", e.msg);
    CHECK_MSG(chat_template_probe(chat, &e) == 0, "%s", e.msg);
    free(bos_text);
    free(eos_text);
}

static inline void publish(void) {
    static const char *const aliases[] = {"org/other"};
    const struct api_model m = {"tiny", aliases, 1, en, chat, 1234567890, NULL, 0};
    err e = {0};
    CHECK(api_set_models(server, &m, 1, &e) == 0);
}

static void start_server(const struct api_config *config) {
    err e = {0};
    CHECK_MSG(api_open(config, &server, &e) == 0, "%s", e.msg);
    client_port = api_port(server);
    CHECK(client_port != 0);
}

static void stop_server(void) {
    api_close(server);
    server = NULL;
}

/* Waits until no sequence runs and every block is free. */
static inline bool engine_quiet(void) {
    for (uint64_t end = clock_now_ns() + 30000000000u; clock_now_ns() < end;) {
        struct engine_stats s;
        engine_stats_get(en, &s);
        if (!s.running && !s.waiting && s.kv_blocks_free == s.kv_blocks && !api_n_active(server))
            return engine_check(en, NULL) == 0;
        nanosleep(&(struct timespec){0, 2000000}, NULL);
    }
    return false;
}

static const cJSON *at(const cJSON *v, const char *path) {
    char part[64];
    while (v && *path) {
        size_t n = strcspn(path, ".");
        snprintf(part, sizeof part, "%.*s", (int)n, path);
        v = cJSON_IsArray(v) ? cJSON_GetArrayItem(v, atoi(part))
                             : cJSON_GetObjectItemCaseSensitive(v, part);
        path += n + (path[n] == '.');
    }
    return v;
}

static const char *text_at(const cJSON *v, const char *path) {
    const char *text = cJSON_GetStringValue(at(v, path));
    return text ? text : "(missing)";
}

static int int_at(const cJSON *v, const char *path) {
    const cJSON *n = at(v, path);
    return cJSON_IsNumber(n) ? n->valueint : -1;
}

static inline void expect_error(const struct answer *a, int status, const char *code) {
    cJSON *v = cJSON_Parse(str_cstr(&a->body));
    CHECK_MSG(a->status == status && a->complete, "%d %s", a->status, str_cstr(&a->body));
    CHECK_STR(text_at(v, "error.code"), code);
    CHECK(cJSON_IsString(at(v, "error.message")) && cJSON_IsString(at(v, "error.type")));
    CHECK(*answer_header(a, "x-request-id"));
    cJSON_Delete(v);
}

#define HELLO "\"model\":\"tiny\",\"messages\":[{\"role\":\"user\",\"content\":\"hello there\"}]"

/* Concatenates the deltas of a streamed chat; checks the order of events. */
struct streamed {
    str text;
    char finish[32];
    int n_chunks, completion_tokens;
    bool done;
};

static void take_event(struct streamed *s, const char *json, size_t n) {
    if (n == 6 && memcmp(json, "[DONE]", 6) == 0) {
        s->done = true;
        return;
    }
    cJSON *v = cJSON_ParseWithLength(json, n);
    CHECK_MSG(v != NULL, "%.*s", (int)n, json);
    CHECK(!s->done);
    CHECK_STR(text_at(v, "object"), "chat.completion.chunk");
    if (s->n_chunks++ == 0) CHECK_STR(text_at(v, "choices.0.delta.role"), "assistant");
    const char *text = cJSON_GetStringValue(at(v, "choices.0.delta.content"));
    const char *finish = cJSON_GetStringValue(at(v, "choices.0.finish_reason"));
    CHECK(!text || utf8_valid(text, strlen(text)));
    CHECK(!text || !*s->finish);
    if (text) str_add(&s->text, text);
    if (finish) snprintf(s->finish, sizeof s->finish, "%s", finish);
    if (cJSON_IsObject(at(v, "usage"))) {
        CHECK(*s->finish && cJSON_GetArraySize(at(v, "choices")) == 0);
        s->completion_tokens = int_at(v, "usage.completion_tokens");
    }
    cJSON_Delete(v);
}

static inline void read_events(const struct answer *a, struct streamed *s) {
    const char *p = str_cstr(&a->body);
    memset(s, 0, sizeof *s);
    str_init(&s->text, 1 << 24);
    for (const char *end; (end = strstr(p, "\n\n")); p = end + 2) {
        if (strncmp(p, "id: ", 4) == 0) p = strchr(p, '\n') + 1;
        if (strncmp(p, "data: ", 6) == 0)
            take_event(s, p + 6, (size_t)(end - p) - 6);
        else
            CHECK(*p == ':');
    }
    CHECK(*p == '\0');
}

/* Makes the model and opens the engine. */
static bool set_up(void) {
    err e = {0};
    signal(SIGPIPE, SIG_IGN);
    snprintf(model_path, sizeof model_path, "/tmp/inferd-test-api-%d.gguf", (int)getpid());
    if (gguf_make_tiny_llama(model_path, &(struct tiny_llama){.seed = 11, .reranks = true}, &e)) {
        fprintf(stderr, "%s\n", e.msg);
        return false;
    }
    start_engine();
    return en && chat;
}

static int tear_down(void) {
    engine_close(en);
    chat_template_free(chat);
    unlink(model_path);
    return check_done();
}

#endif
