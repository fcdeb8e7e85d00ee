/* test_api_responses.c - /v1/responses: items and the messages that they become, tools, the
 * writer's events and objects, and malformed bodies. */
#include "api/generate/body.h"
#include "api/generate/gen.h"
#include "api/http/request.h"
#include "api/responses/responses.h"

#include "core/base/mem.h"

#include "check.h"
#include "tests/support/rng.h"

#include <stdlib.h>
#include <unistd.h>

/* ---- helpers ---- */

static const struct response_source nowhere = {.max_bytes = 1 << 20};

static cJSON *parse(const char *text) {
    cJSON *v = NULL;
    err e = {0};
    CHECK_MSG(json_parse(text, strlen(text), &v, &e) == 0, "%s: %s", text, e.msg);
    return v;
}

static void expect_json(const cJSON *got, const char *want) {
    str text;
    str_init(&text, 1 << 20);
    json_add_value(&text, got);
    CHECK_STR(str_cstr(&text), want);
    str_fini(&text);
}

/* input as canonical items; NULL and the error in e. The caller deletes. */
static cJSON *read_items(const char *input, const struct response_source *from, err *e) {
    cJSON *v = parse(input), *list = cJSON_CreateArray();
    *e = (err){0};
    int rc = response_items_read(v, from, list, e);
    CHECK((rc == 0) == (e->code == 0));
    cJSON_Delete(v);
    if (!rc) return list;
    cJSON_Delete(list);
    return NULL;
}

static void becomes(const char *instructions, const char *input, const char *messages) {
    err e;
    cJSON *list = read_items(input, &nowhere, &e), *out = NULL;
    CHECK_MSG(list != NULL, "%s: %s", input, e.msg);
    if (!list) return;
    const cJSON *const lists[] = {list};
    CHECK_MSG(response_items_messages(instructions, lists, 1, &out, &e) == 0, "%s: %s", input,
              e.msg);
    expect_json(out, messages);
    cJSON_Delete(out);
    cJSON_Delete(list);
}

/* ---- items ---- */

static void items_are_canonicalized(void) {
    err e;
    cJSON *list = read_items(
        "[{\"role\":\"user\",\"content\":\"a\",\"id\":\"m1\"},"
        "{\"type\":\"message\",\"role\":\"assistant\",\"content\":[{\"type\":\"output_text\","
        "\"text\":\"b\"},{\"type\":\"refusal\",\"refusal\":\"no\"}],\"id\":\"m2\",\"status\":"
        "\"incomplete\"},"
        "{\"type\":\"function_call\",\"call_id\":\"c1\",\"name\":\"f\",\"arguments\":\"{}\","
        "\"id\":\"f1\"},"
        "{\"type\":\"function_call_output\",\"call_id\":\"c1\",\"output\":\"1\",\"id\":\"o1\"},"
        "{\"type\":\"reasoning\",\"summary\":[],\"content\":[{\"type\":\"reasoning_text\",\"text\":"
        "\"t\"}],\"id\":\"r1\",\"encrypted_content\":null}]",
        &nowhere, &e);
    expect_json(
        list,
        "[{\"id\":\"m1\",\"type\":\"message\",\"status\":\"completed\",\"role\":\"user\","
        "\"content\":[{\"type\":\"input_text\",\"text\":\"a\"}]},"
        "{\"id\":\"m2\",\"type\":\"message\",\"status\":\"incomplete\",\"role\":\"assistant\","
        "\"content\":[{\"type\":\"output_text\",\"text\":\"b\",\"annotations\":[],\"logprobs\":[]},"
        "{\"type\":\"refusal\",\"refusal\":\"no\"}]},"
        "{\"id\":\"f1\",\"type\":\"function_call\",\"status\":\"completed\",\"call_id\":\"c1\","
        "\"name\":\"f\",\"arguments\":\"{}\"},"
        "{\"id\":\"o1\",\"type\":\"function_call_output\",\"status\":\"completed\",\"call_id\":"
        "\"c1\",\"output\":\"1\"},"
        "{\"id\":\"r1\",\"type\":\"reasoning\",\"status\":\"completed\",\"summary\":[],"
        "\"content\":[{\"type\":\"reasoning_text\",\"text\":\"t\"}]}]");
    cJSON_Delete(list);
    list = read_items("\"hello\"", &nowhere, &e);
    const cJSON *id = cJSON_GetObjectItemCaseSensitive(list->child, "id");
    CHECK(cJSON_IsString(id) && strncmp(id->valuestring, "msg_", 4) == 0 &&
          strlen(id->valuestring) == 28);
    cJSON_Delete(list);
}

#define USER(text)   "{\"role\":\"user\",\"content\":\"" text "\"}"
#define ANSWER(text) "{\"role\":\"assistant\",\"content\":\"" text "\"}"
#define CALL(id)                                                                                   \
    "{\"type\":\"function_call\",\"call_id\":\"" id "\",\"name\":\"f\",\"arguments\":\"{}\"}"
#define OUTPUT(id) "{\"type\":\"function_call_output\",\"call_id\":\"" id "\",\"output\":\"1\"}"
#define THOUGHT(text)                                                                              \
    "{\"type\":\"reasoning\",\"summary\":[],\"content\":[{\"type\":\"reasoning_text\",\"text\":"   \
    "\"" text "\"}]}"
#define CALLS(id)                                                                                  \
    "{\"id\":\"" id "\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}"
#define TOOL(id) "{\"role\":\"tool\",\"tool_call_id\":\"" id "\",\"content\":\"1\"}"

static void items_become_messages(void) {
    becomes(NULL, "\"hi\"", "[" USER("hi") "]");
    becomes("be kind", "\"hi\"", "[{\"role\":\"system\",\"content\":\"be kind\"}," USER("hi") "]");
    becomes(NULL, "[" USER("a") "," ANSWER("b") "," USER("c") "]",
            "[" USER("a") "," ANSWER("b") "," USER("c") "]");
    /* Reasoning, text and calls of one turn are one message. */
    becomes(NULL,
            "[" USER("a") "," THOUGHT("t") "," ANSWER("b") "," CALL("1") "," CALL("2") "," OUTPUT(
                "2") "," OUTPUT("1") "," THOUGHT("u") "," ANSWER("d") "]",
            "[" USER("a") ",{\"role\":\"assistant\",\"reasoning_content\":\"t\",\"content\":\"b\","
                          "\"tool_calls\":[" CALLS("1") "," CALLS("2") "]}," TOOL("2") "," TOOL(
                              "1") ",{\"role\":\"assistant\",\"reasoning_content\":\"u\","
                                   "\"content\":\"d\"}]");
    /* Calls alone have no content; two consecutive answers are not merged. */
    becomes(NULL, "[" CALL("1") "," OUTPUT("1") "," ANSWER("x") "," ANSWER("y") "]",
            "[{\"role\":\"assistant\",\"tool_calls\":[" CALLS("1") "],\"content\":null}," TOOL(
                "1") "," ANSWER("x") "," ANSWER("y") "]");
    /* A text after a call begins another message; consecutive reasoning items are merged. */
    becomes(NULL, "[" CALL("1") "," ANSWER("x") "," OUTPUT("1") "]",
            "[{\"role\":\"assistant\",\"tool_calls\":[" CALLS("1") "],\"content\":null}," ANSWER(
                "x") "," TOOL("1") "]");
    becomes(NULL, "[" THOUGHT("t") "," THOUGHT("u") "]",
            "[{\"role\":\"assistant\",\"reasoning_content\":\"t\\nu\",\"content\":\"\"}]");
    /* A summary replaces reasoning without text. */
    becomes(NULL,
            "[{\"type\":\"reasoning\",\"summary\":[{\"type\":\"summary_text\",\"text\":\"s\"}]}]",
            "[{\"role\":\"assistant\",\"reasoning_content\":\"s\",\"content\":\"\"}]");
    becomes(NULL,
            "[{\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":\"a\"},"
            "{\"type\":\"input_text\",\"text\":\"b\"}]}]",
            "[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":"
            "\"text\",\"text\":\"b\"}]}]");
    becomes(NULL,
            "[" CALL("1") ",{\"type\":\"function_call_output\",\"call_id\":\"1\",\"output\":"
                          "[{\"type\":\"input_text\",\"text\":\"a\"}]}]",
            "[{\"role\":\"assistant\",\"tool_calls\":[" CALLS(
                "1") "],\"content\":null},{\"role\":\"tool\",\"tool_call_id\":\"1\",\"content\":"
                     "\"a\"}]");
}

static void many_items(void) {
    enum { N = 20000 };
    str text;
    err e;
    str_init(&text, 1 << 26);
    str_add_char(&text, '[');
    for (int i = 0; i < N; i++)
        str_addf(&text,
                 "%s{\"type\":\"function_call\",\"call_id\":\"c%d\",\"name\":\"f\",\"arguments\":"
                 "\"\"},{\"type\":\"function_call_output\",\"call_id\":\"c%d\",\"output\":\"\"}",
                 i ? "," : "", i, i);
    str_add_char(&text, ']');
    cJSON *list = read_items(str_cstr(&text), &nowhere, &e), *out = NULL;
    const cJSON *const lists[] = {list};
    CHECK(list && response_items_messages(NULL, lists, 1, &out, &e) == 0);
    CHECK(cJSON_GetArraySize(out) == 2 * N);
    cJSON_Delete(out);
    cJSON_Delete(list);
    str_fini(&text);
}

/* ---- fields ---- */

static int read_fields(const char *body, struct response_fields *f, struct chat_request *q,
                       cJSON **tree, err *e) {
    *e = (err){0};
    *tree = parse(body);
    response_fields_default(f);
    chat_request_init(q, NULL);
    int rc = gen_body_read(*tree, &responses_table, f, e);
    if (!rc) rc = response_fields_check(f, NULL, e);
    if (!rc) rc = response_tools_read(f, q, e);
    return rc;
}

#define TOOLS                                                                                      \
    "\"tools\":[{\"type\":\"function\",\"name\":\"f\",\"description\":\"d\",\"parameters\":{"      \
    "\"type\":\"object\",\"maximum\":12345678901234567890},\"strict\":true},{\"type\":"            \
    "\"function\",\"name\":\"g\",\"parameters\":null,\"strict\":null}]"
#define SHOWN_F                                                                                    \
    "{\"type\":\"function\",\"function\":{\"name\":\"f\",\"description\":\"d\",\"parameters\":{"   \
    "\"type\":\"object\",\"maximum\":12345678901234567000},\"strict\":true}}"
#define SHOWN_G "{\"type\":\"function\",\"function\":{\"name\":\"g\"}}"

static void tools_and_formats(void) {
    static const struct {
        const char *members, *list;
        enum chat_tool_choice choice;
    } rows[] = {
        {TOOLS, "[" SHOWN_F "," SHOWN_G "]", CHAT_TOOLS_AUTO},
        {TOOLS ",\"tool_choice\":\"none\"", "[" SHOWN_F "," SHOWN_G "]", CHAT_TOOLS_NONE},
        {TOOLS ",\"tool_choice\":\"required\"", "[" SHOWN_F "," SHOWN_G "]", CHAT_TOOLS_REQUIRED},
        {TOOLS ",\"tool_choice\":{\"type\":\"function\",\"name\":\"g\"}",
         "[" SHOWN_F "," SHOWN_G "]", CHAT_TOOLS_NAMED},
        {TOOLS ",\"tool_choice\":{\"type\":\"allowed_tools\",\"mode\":\"required\",\"tools\":["
               "{\"type\":\"function\",\"name\":\"g\"}]}",
         "[" SHOWN_G "]", CHAT_TOOLS_REQUIRED},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct response_fields f;
        struct chat_request q;
        cJSON *tree;
        char body[1024];
        err e;
        snprintf(body, sizeof body, "{\"model\":\"m\",\"input\":\"x\",%s}", rows[i].members);
        int rc = read_fields(body, &f, &q, &tree, &e);
        CHECK_MSG(rc == 0, "%s: %s", body, e.msg);
        if (!rc) {
            cJSON *want = parse(rows[i].list);
            CHECK_MSG(cJSON_Compare(q.tools.list, want, true), "%s", body);
            CHECK(q.tools.choice == rows[i].choice && q.tools.parallel);
            CHECK(rows[i].choice != CHAT_TOOLS_NAMED || strcmp(q.tools.name, "g") == 0);
            cJSON_Delete(want);
        }
        chat_request_fini(&q);
        cJSON_Delete(tree);
    }
    struct response_fields f;
    struct chat_request q;
    cJSON *tree;
    err e;
    CHECK(read_fields("{\"model\":\"m\",\"input\":\"x\",\"parallel_tool_calls\":false,\"text\":{"
                      "\"format\":{\"type\":\"json_schema\",\"name\":\"n\",\"schema\":{\"a\":1},"
                      "\"strict\":true}}}",
                      &f, &q, &tree, &e) == 0);
    CHECK(q.format.kind == CHAT_FORMAT_SCHEMA && q.format.strict && !q.tools.parallel);
    expect_json(q.format.value, "{\"a\":1}");
    str echo;
    str_init(&echo, 1 << 16);
    response_fields_echo(&f, &echo);
    CHECK(strstr(str_cstr(&echo), "\"text\":{\"format\":{\"type\":\"json_schema\",\"name\":\"n\","
                                  "\"schema\":{\"a\":1},\"strict\":true}}"));
    str_fini(&echo);
    chat_request_fini(&q);
    cJSON_Delete(tree);
}

/* ---- the writer ---- */

struct answer {
    struct request request;
    struct api_model model;
    struct gen_prompt prompt;
    struct gen_choice choice;
    struct gen_call calls[2];
    struct gen g;
    str out;
};

static void answer_init(struct answer *a, const char *body, responses *store) {
    struct response_fields f;
    struct chat_request q;
    cJSON *tree, *input = cJSON_CreateArray();
    err e;
    memset(a, 0, sizeof *a);
    CHECK(read_fields(body, &f, &q, &tree, &e) == 0);
    CHECK(response_items_read(f.input, &nowhere, input, &e) == 0);
    a->model.id = "m";
    a->prompt.n = 7;
    a->choice.n_tokens = 5;
    a->choice.n_reasoning = 2;
    a->g = (struct gen){.request = &a->request,
                        .model = &a->model,
                        .prompts = &a->prompt,
                        .n_prompts = 1,
                        .choices = &a->choice,
                        .n_choices = 1,
                        .id = "resp_1",
                        .created_s = 1000,
                        .stream = f.gen.stream};
    a->g.state = response_state_new(
        &(struct response_config){.fields = &f, .store = store, .stores = true, .input = input});
    CHECK(a->g.state != NULL);
    str_init(&a->out, 1 << 24);
    str_init(&a->choice.text, 1 << 20);
    str_init(&a->choice.reasoning, 1 << 20);
    str_init(&a->choice.logprobs[0], 1 << 24);
    for (int i = 0; i < 2; i++) {
        str_init(&a->calls[i].arguments, 1 << 20);
        snprintf(a->calls[i].id, sizeof a->calls[i].id, "call_%d", i);
        a->calls[i].name = i ? "g" : "f";
    }
    a->choice.calls = a->calls;
    chat_request_fini(&q);
    cJSON_Delete(tree);
}

static void answer_fini(struct answer *a) {
    response_writer.free(a->g.state);
    str_fini(&a->out);
    str_fini(&a->choice.text);
    str_fini(&a->choice.reasoning);
    str_fini(&a->choice.logprobs[0]);
    for (int i = 0; i < 2; i++)
        str_fini(&a->calls[i].arguments);
}

static void give(struct answer *a, enum gen_piece_kind kind, uint32_t call, const char *text) {
    const struct gen_piece piece = {.kind = kind, .text = text, .n = strlen(text), .call = call};
    response_writer.piece(&a->g, &a->choice, &piece, &a->out);
}

/* The types of all events, checked for their form, and the last one's data. */
static cJSON *read_events(const struct answer *a, char *types, size_t size) {
    cJSON *last = NULL;
    int n = 0;
    *types = '\0';
    for (const char *p = str_cstr(&a->out); *p;) {
        const char *event = strstr(p, "\nevent: "), *data = strstr(p, "\ndata: "),
                   *end = strstr(p, "\n\n");
        CHECK(strncmp(p, "id: resp_1:", 11) == 0 && event && data && end && event < data);
        if (!event || !data || !end) break;
        cJSON_Delete(last);
        last = cJSON_ParseWithLength(data + 7, (size_t)(end - data - 7));
        const char *type = cJSON_GetStringValue(cJSON_GetObjectItem(last, "type"));
        const cJSON *number = cJSON_GetObjectItem(last, "sequence_number");
        CHECK(type && strncmp(event + 8, type, strlen(type)) == 0 &&
              event[8 + strlen(type)] == '\n');
        CHECK(cJSON_IsNumber(number) && number->valueint == n++);
        size_t at = strlen(types);
        const cJSON *index = cJSON_GetObjectItem(last, "output_index");
        snprintf(types + at, size - at, "%s", type ? type : "?");
        at = strlen(types);
        if (index)
            snprintf(types + at, size - at, " %d\n", index->valueint);
        else
            snprintf(types + at, size - at, "\n");
        p = end + 2;
    }
    return last;
}

/* Random ids become their prefix. */
static void expect_output(const cJSON *response, const char *want) {
    cJSON *output = cJSON_Duplicate(cJSON_GetObjectItem(response, "output"), true);
    for (cJSON *v = output ? output->child : NULL; v; v = v->next) {
        cJSON *id = cJSON_GetObjectItem(v, "id");
        CHECK(id && strchr(id->valuestring, '_'));
        if (id && strchr(id->valuestring, '_')) *strchr(id->valuestring, '_') = '\0';
    }
    expect_json(output, want);
    cJSON_Delete(output);
}

#define OUT_THOUGHT                                                                                \
    "{\"id\":\"rs\",\"type\":\"reasoning\",\"status\":\"completed\",\"summary\":[],\"content\":["  \
    "{\"type\":\"reasoning_text\",\"text\":\"hmm\"}]}"
#define OUT_TEXT(status)                                                                           \
    "{\"id\":\"msg\",\"type\":\"message\",\"status\":\"" status                                    \
    "\",\"role\":\"assistant\",\"content\":[{\"type\":\"output_text\",\"text\":\"one two\","       \
    "\"annotations\":[],\"logprobs\":[]}]}"
#define OUT_CALL(call, name, arguments)                                                            \
    "{\"id\":\"fc\",\"type\":\"function_call\",\"status\":\"completed\",\"call_id\":\"" call       \
    "\",\"name\":\"" name "\",\"arguments\":\"" arguments "\"}"
#define OUT_ALL                                                                                    \
    "[" OUT_THOUGHT "," OUT_TEXT("completed") "," OUT_CALL(                                        \
        "call_0", "f", "{\\\"a\\\":1}") "," OUT_CALL("call_1", "g", "{}") "]"

/* n custom tools "t0", "t1", ... in namespaces of at most 1024, and n_allowed choices of the last
 * one. */
static int read_many_tools(int n, int n_allowed, struct chat_request *q, err *e) {
    struct response_fields f;
    cJSON *tree;
    str body;
    str_init(&body, 16 << 20);
    str_add(&body, "{\"model\":\"m\",\"input\":\"x\",\"tools\":[");
    for (int i = 0; i < n; i++) {
        if (i % 1024 == 0)
            str_addf(&body, "%s{\"type\":\"namespace\",\"name\":\"s%d\",\"tools\":[",
                     i ? "]}," : "", i / 1024);
        str_addf(&body, "%s{\"type\":\"custom\",\"name\":\"t%d\"}", i % 1024 ? "," : "", i);
    }
    str_add(&body, "]}],\"tool_choice\":{\"type\":\"allowed_tools\",\"mode\":\"auto\",\"tools\":[");
    for (int i = 0; i < n_allowed; i++)
        str_addf(&body, "%s{\"type\":\"custom\",\"name\":\"t%d\"}", i ? "," : "", n - 1);
    str_add(&body, "]}}");
    CHECK(!body.failed);
    int rc = read_fields(str_cstr(&body), &f, q, &tree, e);
    str_fini(&body);
    cJSON_Delete(tree);
    return rc;
}

/* Namespaces do not lift the limit, and no choice costs the square of the number of tools. */
static void tools_are_bounded(void) {
    struct chat_request q;
    err e;
    CHECK_MSG(read_many_tools(1024, 1024, &q, &e) == 0, "%s", e.msg);
    CHECK(cJSON_GetArraySize(q.tools.list) == 1);
    chat_request_fini(&q);
    CHECK(read_many_tools(2000, 1024, &q, &e) == ERR_INVALID && strcmp(e.param, "tools") == 0);
    CHECK(cJSON_GetArraySize(q.tools.list) == 1024);
    chat_request_fini(&q);
}

static void a_stream_lists_its_items(void) {
    struct answer a;
    char types[4096];
    answer_init(&a, "{\"model\":\"m\",\"input\":\"x\",\"stream\":true}", NULL);
    response_writer.begin(&a.g, &a.out);
    give(&a, GEN_REASONING, 0, "h");
    give(&a, GEN_REASONING, 0, "mm");
    give(&a, GEN_TEXT, 0, "one");
    give(&a, GEN_TEXT, 0, "");
    give(&a, GEN_TEXT, 0, " two");
    give(&a, GEN_CALL, 0, "");
    give(&a, GEN_ARGUMENTS, 0, "{\"a\"");
    give(&a, GEN_ARGUMENTS, 0, ":1}");
    give(&a, GEN_CALL, 1, "");
    give(&a, GEN_ARGUMENTS, 1, "{}");
    a.choice.finish = GEN_FINISH_TOOL_CALLS;
    response_writer.close(&a.g, &a.choice, &a.out);
    response_writer.end(&a.g, &a.out);
    cJSON *last = read_events(&a, types, sizeof types);
    CHECK_STR(types, "response.created\n"
                     "response.in_progress\n"
                     "response.output_item.added 0\n"
                     "response.content_part.added 0\n"
                     "response.reasoning_text.delta 0\n"
                     "response.reasoning_text.delta 0\n"
                     "response.reasoning_text.done 0\n"
                     "response.content_part.done 0\n"
                     "response.output_item.done 0\n"
                     "response.output_item.added 1\n"
                     "response.content_part.added 1\n"
                     "response.output_text.delta 1\n"
                     "response.output_text.delta 1\n"
                     "response.output_text.done 1\n"
                     "response.content_part.done 1\n"
                     "response.output_item.done 1\n"
                     "response.output_item.added 2\n"
                     "response.function_call_arguments.delta 2\n"
                     "response.function_call_arguments.delta 2\n"
                     "response.function_call_arguments.done 2\n"
                     "response.output_item.done 2\n"
                     "response.output_item.added 3\n"
                     "response.function_call_arguments.delta 3\n"
                     "response.function_call_arguments.done 3\n"
                     "response.output_item.done 3\n"
                     "response.completed\n");
    const cJSON *response = cJSON_GetObjectItem(last, "response");
    expect_output(response, OUT_ALL);
    CHECK_STR(cJSON_GetStringValue(cJSON_GetObjectItem(response, "status")), "completed");
    expect_json(cJSON_GetObjectItem(response, "usage"),
                "{\"input_tokens\":7,\"input_tokens_details\":{\"cached_tokens\":0,"
                "\"cache_write_tokens\":7},\"output_tokens\":5,\"output_tokens_details\":{"
                "\"reasoning_tokens\":2},\"total_tokens\":12}");
    cJSON_Delete(last);
    answer_fini(&a);
}

static void a_whole_answer_has_the_same_items(void) {
    struct answer a;
    answer_init(&a, "{\"model\":\"m\",\"input\":\"x\"}", NULL);
    str_add(&a.choice.reasoning, "hmm");
    str_add(&a.choice.text, "one two");
    str_add(&a.calls[0].arguments, "{\"a\":1}");
    str_add(&a.calls[1].arguments, "{}");
    a.choice.n_calls = 2;
    a.choice.finish = GEN_FINISH_TOOL_CALLS;
    response_writer.whole(&a.g, &a.out);
    cJSON *response = parse(str_cstr(&a.out));
    expect_output(response, OUT_ALL);
    cJSON_Delete(response);
    answer_fini(&a);

    answer_init(&a, "{\"model\":\"m\",\"input\":\"x\"}", NULL);
    str_add(&a.choice.text, "one two");
    a.choice.finish = GEN_FINISH_LENGTH;
    response_writer.whole(&a.g, &a.out);
    response = parse(str_cstr(&a.out));
    expect_output(response, "[" OUT_TEXT("incomplete") "]");
    CHECK_STR(cJSON_GetStringValue(cJSON_GetObjectItem(response, "status")), "incomplete");
    cJSON_Delete(response);
    answer_fini(&a);

    answer_init(&a, "{\"model\":\"m\",\"input\":\"x\"}", NULL);
    response_writer.whole(&a.g, &a.out);
    response = parse(str_cstr(&a.out));
    expect_output(response,
                  "[{\"id\":\"msg\",\"type\":\"message\",\"status\":\"completed\",\"role\":"
                  "\"assistant\",\"content\":[{\"type\":\"output_text\",\"text\":\"\","
                  "\"annotations\":[],\"logprobs\":[]}]}]");
    cJSON_Delete(response);
    answer_fini(&a);
}

static void a_failure_is_reported(void) {
    struct answer a;
    char types[4096];
    answer_init(&a, "{\"model\":\"m\",\"input\":\"x\",\"stream\":true}", NULL);
    response_writer.begin(&a.g, &a.out);
    give(&a, GEN_TEXT, 0, "one two");
    const struct api_error error = {500, "server_error", "internal_error", NULL, "it broke"};
    response_writer.fail(&a.g, &error, &a.out);
    cJSON *last = read_events(&a, types, sizeof types);
    CHECK(strstr(types, "response.output_item.done 0\nerror\nresponse.failed\n"));
    const cJSON *response = cJSON_GetObjectItem(last, "response");
    expect_json(cJSON_GetObjectItem(response, "error"),
                "{\"code\":\"server_error\",\"message\":\"it broke\"}");
    expect_output(response, "[" OUT_TEXT("incomplete") "]");
    cJSON_Delete(last);
    answer_fini(&a);
}

/* ---- with a store ---- */

static void stored_responses_continue(void) {
    struct answer a;
    responses *store = NULL;
    char file[64];
    err e = {0};
    snprintf(file, sizeof file, "/tmp/inferd-test-api-responses-%d.db", (int)getpid());
    CHECK(responses_open(&(struct responses_config){file, 1000, 1 << 28}, 0, &store, &e) == 0);
    answer_init(&a,
                "{\"model\":\"m\",\"input\":[{\"role\":\"user\",\"content\":\"x\",\"id\":"
                "\"msg_x\"}]}",
                store);
    str_add(&a.choice.reasoning, "hmm");
    str_add(&a.choice.text, "one two");
    /* More values than a parsed text may have. */
    str_addf(&a.choice.logprobs[0], "{\"token\":\"one two\",\"logprob\":-1,\"bytes\":[0");
    for (int i = 0; i < JSON_MAX_VALUES; i++)
        str_add(&a.choice.logprobs[0], ",1");
    str_add(&a.choice.logprobs[0], "],\"top_logprobs\":[]}");
    response_writer.whole(&a.g, &a.out);
    CHECK(strstr(str_cstr(&a.out), "\"store\":true"));
    /* The writer uses wall-clock time. */
    struct responses_entry entry;
    CHECK(responses_get(store, "resp_1", NULL, 0, &entry, &e) == 0);
    CHECK_STR(entry.body, str_cstr(&a.out));
    responses_entry_fini(&entry);
    const struct response_source from = {.store = store, .max_bytes = 1 << 20};
    cJSON *list = cJSON_CreateArray(), *messages = NULL;
    CHECK_MSG(response_items_chain("resp_1", &from, list, &e) == 0, "%s", e.msg);
    const cJSON *const lists[] = {list};
    CHECK(response_items_messages(NULL, lists, 1, &messages, &e) == 0);
    expect_json(messages, "[" USER("x") ",{\"role\":\"assistant\",\"reasoning_content\":\"hmm\","
                                        "\"content\":\"one two\"}]");
    cJSON_Delete(messages);
    cJSON_Delete(list);
    list = read_items("[{\"type\":\"item_reference\",\"id\":\"msg_x\"}]", &from, &e);
    CHECK(list != NULL);
    cJSON_Delete(list);
    CHECK(!read_items("[{\"type\":\"item_reference\",\"id\":\"msg_y\"}]", &from, &e));
    CHECK_STR(e.param, "input[0].id");
    const struct response_source little = {.store = store, .max_bytes = 10};
    CHECK(!read_items("[{\"type\":\"item_reference\",\"id\":\"msg_x\"}]", &little, &e));
    CHECK(e.code == ERR_TOO_LONG && strcmp(e.param, "input") == 0);
    /* Repeated references to an item are limited: few bytes must not become many. */
    str many;
    str_init(&many, 1 << 20);
    str_add(&many, "[{\"id\":\"msg_x\"}");
    for (int i = 0; i < 900; i++)
        str_add(&many, ",{\"id\":\"msg_x\"}");
    str_add_char(&many, ']');
    const struct response_source some = {.store = store, .max_bytes = 1000};
    CHECK(!read_items(str_cstr(&many), &some, &e) && e.code == ERR_TOO_LONG);
    str_fini(&many);
    list = cJSON_CreateArray();
    CHECK(response_items_chain("resp_1", &little, list, &e) == ERR_TOO_LONG);
    CHECK(response_items_chain("resp_2", &from, list, &e) == ERR_NOT_FOUND);
    cJSON_Delete(list);
    answer_fini(&a);
    responses_close(store);
    static const char *const ends[] = {"", "-wal", "-shm"};
    for (size_t i = 0; i < 3; i++) {
        char name[96];
        snprintf(name, sizeof name, "%s%s", file, ends[i]);
        unlink(name);
    }
}

/* ---- malformed requests ---- */

/* Exchanges members and values within a valid body: the result is refused by name, or parsed. */
static void bodies_with_exchanged_parts(void) {
    static const char *const parts[] = {
        "\"x\"",
        "5",
        "null",
        "true",
        "[]",
        "{}",
        "[null]",
        USER("a"),
        CALL("1"),
        OUTPUT("1"),
        THOUGHT("t"),
        "{\"type\":\"item_reference\",\"id\":\"a\"}",
        "{\"type\":\"message\"}",
        "{\"type\":\"input_text\",\"text\":\"a\"}",
        "{\"type\":\"reasoning\",\"summary\":[{}]}",
        "{\"type\":\"function\",\"name\":\"f\"}",
        "\"auto\"",
        "\"required\"",
        "{\"type\":\"allowed_tools\",\"mode\":\"auto\",\"tools\":[{\"type\":\"function\",\"name\":"
        "\"f\"}]}",
        "{\"format\":{\"type\":\"json_schema\",\"name\":\"a\",\"schema\":{}}}",
        "{\"effort\":\"low\"}"};
    static const char *const names[] = {
        "input",    "tools",   "tool_choice",  "text",           "reasoning",
        "metadata", "include", "instructions", "stream_options", "previous_response_id",
        "store"};
    enum { N_PARTS = sizeof parts / sizeof *parts, N_NAMES = sizeof names / sizeof *names };
    struct rng random = {88172645463325252u};
    int n_read = 0;
    for (int round = 0; round < 20000; round++) {
        str body;
        str_init(&body, 1 << 16);
        str_add(&body, "{\"model\":\"m\"");
        if (rng_below(&random, 2)) str_add(&body, ",\"input\":\"x\"");
        uint32_t from = rng_below(&random, N_NAMES), n = rng_below(&random, 4);
        for (uint32_t i = 0; i < n; i++) {
            const char *name = names[(from + i) % N_NAMES];
            if (strcmp(name, "input") == 0 && strstr(str_cstr(&body), "\"input\"")) continue;
            str_addf(&body, ",\"%s\":", name);
            uint32_t n_items = rng_below(&random, 4);
            if (n_items) str_add_char(&body, '[');
            for (uint32_t k = 0; k < n_items + !n_items; k++)
                str_addf(&body, "%s%s", k ? "," : "", parts[rng_below(&random, N_PARTS)]);
            if (n_items) str_add_char(&body, ']');
        }
        str_add_char(&body, '}');
        struct response_fields f;
        struct chat_request q;
        cJSON *tree, *list = cJSON_CreateArray(), *messages = NULL;
        err e;
        int rc = read_fields(str_cstr(&body), &f, &q, &tree, &e);
        if (!rc) rc = response_items_read(f.input, &nowhere, list, &e);
        const cJSON *const lists[] = {list};
        if (!rc) rc = response_items_messages(f.instructions, lists, 1, &messages, &e);
        CHECK_MSG((rc == 0) == (messages != NULL) && (rc == 0 || (*e.msg && *e.param)), "%s: %d %s",
                  str_cstr(&body), rc, e.msg);
        n_read += rc == 0;
        chat_request_fini(&q);
        cJSON_Delete(messages);
        cJSON_Delete(list);
        cJSON_Delete(tree);
        str_fini(&body);
    }
    CHECK_MSG(n_read > 200 && n_read < 19000, "%d", n_read);
}

int main(void) {
    RUN(items_are_canonicalized);
    RUN(items_become_messages);
    RUN(many_items);
    RUN(tools_and_formats);
    RUN(tools_are_bounded);
    RUN(a_stream_lists_its_items);
    RUN(a_whole_answer_has_the_same_items);
    RUN(a_failure_is_reported);
    RUN(stored_responses_continue);
    RUN(bodies_with_exchanged_parts);
    return check_done();
}
