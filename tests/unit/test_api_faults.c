/* test_api_faults.c - a server that runs out of memory: the n-th allocation of its threads fails,
 * for every n up to the number of a request's allocations. Each time the client gets a clean error
 * or a closed connection, nothing leaks (AddressSanitizer), every KV block is free again, and the
 * next request is answered as before. Arguments: "quick": every seventh n. */
#include "api_server.h"
#include "registry/registry.h"
#include "registry/responses.h"

#define TOOLS                                                                                      \
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"add\",\"parameters\":{\"type\":"   \
    "\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"enum\":[\"x\",\"yy\"]}},"    \
    "\"required\":[\"a\"]}}}]"
#define SCHEMA                                                                                     \
    "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"p\",\"schema\":{"   \
    "\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"pattern\":\"^[a-z]+$\"}," \
    "\"n\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":40}},\"additionalProperties\":false}}}"

static uint64_t stride = 1;

/* Every status that a request which ran out of memory may have; 0: closed without an answer. */
static bool is_clean(const struct answer *a) {
    if (a->status == 0) return true;
    if (a->status == 200) return true; /* the caller checks the body */
    if (a->status != 500 && a->status != 503) return false;
    cJSON *v = cJSON_Parse(str_cstr(&a->body));
    bool said = cJSON_IsString(at(v, "error.message")) || cJSON_IsString(at(v, "error"));
    cJSON_Delete(v);
    return a->complete && said;
}

/* A streamed answer ends with its end mark, an error event or a closed connection; a whole one is
 * JSON. */
static bool body_is_whole(const struct answer *a, bool stream) {
    const char *body = str_cstr(&a->body);
    if (!a->complete) return true; /* truncated: the client detects it */
    if (!*body) return true;       /* /api/copy says nothing */
    if (stream)
        return strstr(body, "data: [DONE]") || strstr(body, "\"error\":{") ||
               strstr(body, "response.completed") || strstr(body, "response.incomplete");
    cJSON *v = cJSON_Parse(body);
    bool object = cJSON_IsObject(v);
    cJSON_Delete(v);
    return object;
}

/* Lets every allocation of one request fail in turn. */
static void check_request(const char *path, const char *body, bool stream) {
    uint64_t n_failed = 0, n_ok = 0, n = 1;
    for (bool reached = true; reached && n < 20000; n += stride) {
        struct answer a;
        mem_fail_elsewhere_at(n);
        client_post(path, body, &a);
        reached = mem_fail_elsewhere_at(0) == 0;
        CHECK_MSG(is_clean(&a), "%s, allocation %llu: %d %s", path, (unsigned long long)n, a.status,
                  str_cstr(&a.body));
        if (a.status == 200) {
            n_ok++;
            CHECK_MSG(body_is_whole(&a, stream), "%s, allocation %llu: %s", path,
                      (unsigned long long)n, str_cstr(&a.body));
        } else {
            n_failed++;
        }
        answer_fini(&a);
    }
    CHECK(engine_quiet());
    CHECK_MSG(n_failed && n > 8, "%llu failed of %llu", (unsigned long long)n_failed,
              (unsigned long long)n);
    struct answer a;
    client_post(path, body, &a);
    CHECK_MSG(a.status == 200 && a.complete && body_is_whole(&a, stream), "%d %s", a.status,
              str_cstr(&a.body));
    answer_fini(&a);
    printf("  %s: %llu allocations, %llu requests failed, %llu did not\n", path,
           (unsigned long long)n - 1, (unsigned long long)n_failed, (unsigned long long)n_ok);
}

static void a_chat_survives(void) {
    check_request("/v1/chat/completions", "{" HELLO ",\"max_tokens\":6,\"seed\":1}", false);
}

static void a_stream_with_tools_survives(void) {
    check_request("/v1/chat/completions",
                  "{" HELLO ",\"max_tokens\":24,\"seed\":1,\"stream\":true,"
                  "\"tool_choice\":\"required\"," TOOLS "}",
                  true);
}

static void a_stream_with_a_schema_survives(void) {
    check_request("/v1/chat/completions",
                  "{" HELLO
                  ",\"max_tokens\":24,\"seed\":1,\"stream\":true,\"logprobs\":true," SCHEMA "}",
                  true);
}

static void a_stored_response_survives(void) {
    check_request("/v1/responses",
                  "{\"model\":\"tiny\",\"input\":\"hello there\",\"max_output_tokens\":6}", false);
}

static void a_streamed_response_survives(void) {
    check_request(
        "/v1/responses",
        "{\"model\":\"tiny\",\"input\":\"hello\",\"max_output_tokens\":20,\"stream\":true}", true);
}

static void other_protocols_survive(void) {
    check_request("/v1/messages", "{" HELLO ",\"max_tokens\":6}", false);
    check_request("/api/chat", "{" HELLO ",\"stream\":false,\"options\":{\"num_predict\":6}}",
                  false);
    check_request("/v1/completions", "{\"model\":\"tiny\",\"prompt\":\"hello\",\"max_tokens\":4}",
                  false);
    check_request("/v1/embeddings", "{\"model\":\"tiny\",\"input\":[\"hello\",\"there\"]}", false);
    check_request("/v1/rerank",
                  "{\"model\":\"tiny\",\"query\":\"a long query\",\"documents\":[\"hello\","
                  "{\"text\":\"there\\u0000\"}],\"max_tokens_per_doc\":3}",
                  false);
    check_request("/v1/score",
                  "{\"model\":\"tiny\",\"text_1\":\"a\",\"text_2\":[\"hello\",\"there\"]}", false);
}

/* Posts once; writes the answer's id. */
static void post_for_id(const char *path, const char *body, char id[96]) {
    struct answer a;
    client_post(path, body, &a);
    cJSON *v = cJSON_Parse(str_cstr(&a.body));
    CHECK_MSG(a.status == 200, "%d %s", a.status, str_cstr(&a.body));
    snprintf(id, 96, "%s", text_at(v, "id"));
    cJSON_Delete(v);
    answer_fini(&a);
}

/* Items are added once only: a conversation that grows with every request has no last allocation.
 */
static void conversations_survive(void) {
    static const char items[] =
        "{\"items\":[{\"role\":\"user\",\"content\":\"hello\"},{\"role\":\"assistant\","
        "\"content\":[{\"type\":\"output_text\",\"text\":\"there\"}]}]}";
    char id[96], path[160];
    check_request("/v1/conversations", items, false);
    post_for_id("/v1/conversations", items, id);
    snprintf(path, sizeof path, "/v1/conversations/%s", id);
    check_request(path, "{\"metadata\":{\"a\":\"b\"}}", false);
}

static void stored_chats_survive(void) {
    static const char stored[] = "{" HELLO ",\"max_tokens\":4,\"seed\":1,\"store\":true,"
                                 "\"metadata\":{\"a\":\"b\"}}";
    char id[96], path[160];
    check_request("/v1/chat/completions", stored, false);
    post_for_id("/v1/chat/completions", stored, id);
    snprintf(path, sizeof path, "/v1/chat/completions/%s", id);
    check_request(path, "{\"metadata\":{\"c\":\"d\"}}", false);
}

static void texts_and_vectors_survive(void) {
    check_request("/tokenize", "{\"model\":\"tiny\",\"prompt\":\"hello there\"}", false);
    check_request("/tokenize", "{" HELLO "}", false);
    check_request("/api/embed", "{\"model\":\"tiny\",\"input\":[\"hello\",\"there\"]}", false);
}

/* The tools themselves do not fit into the tiny model's context; what was called does. */
static void client_tools_survive(void) {
    check_request("/v1/responses",
                  "{\"model\":\"tiny\",\"max_output_tokens\":4,\"input\":[{\"role\":\"user\","
                  "\"content\":\"hi\"},{\"type\":\"shell_call\",\"call_id\":\"c\",\"action\":{"
                  "\"commands\":[\"ls\"]}},{\"type\":\"shell_call_output\",\"call_id\":\"c\","
                  "\"output\":[{\"stdout\":\"a\",\"stderr\":\"\",\"outcome\":{\"type\":\"exit\","
                  "\"exit_code\":1}}]}]}",
                  false);
}

/* A name with a preset, as it is made, copied, used and shown. */
static void names_survive(void) {
    check_request("/api/create",
                  "{\"model\":\"mario\",\"from\":\"tiny\",\"system\":\"be kind\",\"stream\":false,"
                  "\"parameters\":{\"num_predict\":4,\"stop\":[\"x\"]},\"messages\":[{\"role\":"
                  "\"user\",\"content\":\"hi\"}]}",
                  false);
    check_request("/api/copy", "{\"source\":\"mario\",\"destination\":\"luigi\"}", false);
    check_request("/api/chat",
                  "{\"model\":\"luigi\",\"stream\":false,\"messages\":[{\"role\":\"user\","
                  "\"content\":\"hello\"}]}",
                  false);
    check_request("/api/show", "{\"model\":\"luigi\"}", false);
}

/* Registers the model and serves it under its registered name. */
static void publish_registered(const char *file, struct registry_model *row) {
    registry *g = NULL;
    err e = {0};
    CHECK_MSG(registry_open(file, &g, &e) == 0, "%s", e.msg);
    const struct registry_add request = {.path = model_path, .name = "tiny"};
    CHECK_MSG(registry_add(g, &request, row, &e) == 0, "%s", e.msg);
    registry_close(g);
    const struct api_model m = {
        .id = "tiny", .engine = en, .chat = chat, .created_s = 1234567890, .sha256 = row->sha256};
    CHECK(api_set_models(server, &m, 1, &e) == 0);
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "quick") == 0) stride = 7;
    if (!set_up()) return 1;
    char folder[] = "/tmp/inferd-test-faults-XXXXXX", file[64], catalogue[64];
    struct registry_model row = {0};
    CHECK(mkdtemp(folder) != NULL);
    snprintf(file, sizeof file, "%s/responses.db", folder);
    responses *store = NULL;
    err e = {0};
    CHECK_MSG(responses_open(&(struct responses_config){file, 1000, 1 << 28}, 0, &store, &e) == 0,
              "%s", e.msg);
    struct api_config config = base_config();
    config.store = store;
    snprintf(catalogue, sizeof catalogue, "%s/registry.db", folder);
    config.registry = catalogue;
    start_server(&config);
    publish_registered(catalogue, &row);
    RUN(a_chat_survives);
    RUN(a_stream_with_tools_survives);
    RUN(a_stream_with_a_schema_survives);
    RUN(a_stored_response_survives);
    RUN(a_streamed_response_survives);
    RUN(other_protocols_survive);
    RUN(conversations_survive);
    RUN(stored_chats_survive);
    RUN(texts_and_vectors_survive);
    RUN(client_tools_survive);
    RUN(names_survive);
    stop_server();
    registry_model_fini(&row);
    responses_close(store);
    char command[96];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    CHECK(system(command) == 0);
    return tear_down();
}
