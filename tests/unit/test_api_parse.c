/* test_api_parse.c - how the endpoints parse bodies: the field tables against OpenAI's
 * specification, messages, sampling fields, and errors parsed by cJSON. */
#include "api/generate/chat_body.h"
#include "api/generate/frames.h"
#include "api/generate/gen.h"
#include "api/http/request.h"
#include "api/http/route.h"

#include "core/base/mem.h"

#include "check.h"
#include "tests/support/files.h"

#include <dirent.h>
#include <stdlib.h>

/* ---- helpers ---- */

extern const struct route completions_route; /* api/openai/ep_completions.c */

static cJSON *parse(const char *text) {
    cJSON *v = NULL;
    err e = {0};
    CHECK_MSG(json_parse(text, strlen(text), &v, &e) == 0, "%s: %s", text, e.msg);
    return v;
}

/* ---- fields ---- */

static int read_fields(const char *text, const struct json_table *table, struct gen_fields *f,
                       cJSON **tree, err *e) {
    *tree = parse(text);
    gen_fields_default(f);
    err_clear(e);
    return *tree ? json_read(*tree, table, "", f, e) : ERR_FORMAT;
}

/* One more field beside the required ones. */
static void field_case(const struct json_table *table, const char *field, int want,
                       const char *param) {
    str s;
    str_init(&s, 65536);
    str_addf(&s, "{\"model\":\"m\",%s%s%s}",
             table == &chat_table ? "\"messages\":[{}]" : "\"prompt\":\"x\"", *field ? "," : "",
             field);
    struct gen_fields f;
    struct gen_options *o = mem_new(1, sizeof *o);
    cJSON *tree;
    err e;
    int rc = read_fields(str_cstr(&s), table, &f, &tree, &e);
    if (!rc) rc = gen_options_read(&f, 100, NULL, o, &e);
    CHECK_MSG(rc == want && (rc == 0 || strcmp(e.param, param) == 0), "%s: %d param '%s' %s", field,
              rc, e.param, e.msg);
    cJSON_Delete(tree);
    free(o);
    str_fini(&s);
}

static void fields_have_types_and_bounds(void) {
    static const struct {
        const char *field;
        int want;
        const char *param;
    } rows[] = {
        {"\"temperature\":0", 0, ""},
        {"\"temperature\":2", 0, ""},
        {"\"temperature\":null", 0, ""},
        {"\"temperature\":2.01", ERR_INVALID, "temperature"},
        {"\"temperature\":-0.1", ERR_INVALID, "temperature"},
        {"\"temperature\":\"1\"", ERR_INVALID, "temperature"},
        {"\"temperature\":true", ERR_INVALID, "temperature"},
        {"\"top_p\":1e-9", 0, ""},
        {"\"top_p\":0", ERR_INVALID, "top_p"},
        {"\"top_p\":1.5", ERR_INVALID, "top_p"},
        {"\"top_k\":-1", 0, ""},
        {"\"top_k\":1.5", ERR_INVALID, "top_k"},
        {"\"min_p\":1.1", ERR_INVALID, "min_p"},
        {"\"seed\":9223372036854775807", 0, ""},
        {"\"seed\":9223372036854775808", ERR_INVALID, "seed"},
        {"\"n\":0", ERR_INVALID, "n"},
        {"\"n\":129", ERR_INVALID, "n"},
        {"\"n\":2", 0, ""},
        {"\"stop\":null", 0, ""},
        {"\"stop\":\"a\"", 0, ""},
        {"\"stop\":\"\"", 0, ""},
        {"\"stop\":[\"a\",1]", ERR_INVALID, "stop[1]"},
        {"\"stop\":{}", ERR_INVALID, "stop"},
        {"\"stop\":[\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"8\",\"9\",\"10\",\"11\",\"12\","
         "\"13\","
         "\"14\",\"15\",\"16\"]",
         0, ""},
        {"\"stop\":[\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"8\",\"9\",\"10\",\"11\",\"12\","
         "\"13\","
         "\"14\",\"15\",\"16\",\"17\"]",
         ERR_INVALID, "stop"},
        {"\"logit_bias\":{\"5\":100,\"99\":-100}", 0, ""},
        {"\"logit_bias\":{\"100\":1}", ERR_INVALID, "logit_bias"},
        {"\"logit_bias\":{\"-1\":1}", ERR_INVALID, "logit_bias"},
        {"\"logit_bias\":{\"x\":1}", ERR_INVALID, "logit_bias"},
        {"\"logit_bias\":{\"\":1}", ERR_INVALID, "logit_bias"},
        {"\"logit_bias\":{\"99999999999999999999\":1}", ERR_INVALID, "logit_bias"},
        {"\"logit_bias\":{\"1\":101}", ERR_INVALID, "logit_bias"},
        {"\"logit_bias\":{\"1\":null}", ERR_INVALID, "logit_bias"},
        {"\"logit_bias\":[]", ERR_INVALID, "logit_bias"},
        {"\"stream\":1", ERR_INVALID, "stream"},
        {"\"stream_options\":{\"include_usage\":true}", 0, ""},
        {"\"stream\":true,\"stream_options\":{\"include_usage\":true}", 0, ""},
        {"\"stream\":true,\"stream_options\":{\"include_usage\":1}", ERR_INVALID,
         "stream_options.include_usage"},
        {"\"stream\":true,\"stream_options\":{\"x\":1}", ERR_INVALID, "stream_options.x"},
        {"\"stream\":true,\"stream_options\":7", ERR_INVALID, "stream_options"},
        {"\"user\":\"me\"", 0, ""},
        {"\"user\":1", 0, ""},
        {"\"ignore_eos\":true", 0, ""},
        {"\"repetition_penalty\":0", ERR_INVALID, "repetition_penalty"},
        {"\"presence_penalty\":-2.5", ERR_INVALID, "presence_penalty"},
        {"\"max_tokens\":-1", 0, ""},
        {"\"max_tokens\":-2", ERR_INVALID, "max_tokens"},
        {"\"max_tokens\":1.5", ERR_INVALID, "max_tokens"},
        {"\"nonsense\":1", ERR_INVALID, "nonsense"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        field_case(&chat_table, rows[i].field, rows[i].want, rows[i].param);
        field_case(completions_route.table, rows[i].field, rows[i].want, rows[i].param);
    }
}

static void chat_fields_are_honoured_or_refused(void) {
    static const struct {
        const char *field;
        int want;
        const char *param;
    } rows[] = {
        {"\"max_tokens\":0", 0, ""},
        {"\"max_tokens\":5,\"max_completion_tokens\":5", 0, ""},
        {"\"max_tokens\":5,\"max_completion_tokens\":6", ERR_INVALID, "max_tokens"},
        {"\"logprobs\":true,\"top_logprobs\":20", 0, ""},
        {"\"logprobs\":true,\"top_logprobs\":21", ERR_INVALID, "top_logprobs"},
        {"\"top_logprobs\":2", ERR_INVALID, "top_logprobs"},
        {"\"logprobs\":2", ERR_INVALID, "logprobs"},
        {"\"response_format\":{\"type\":\"text\"}", 0, ""},
        {"\"response_format\":{\"type\":\"json_object\"}", 0, ""},
        {"\"response_format\":3", ERR_INVALID, "response_format"},
        {"\"modalities\":[\"text\"]", 0, ""},
        {"\"modalities\":[\"text\",\"audio\"]", ERR_UNSUPPORTED, "modalities"},
        {"\"modalities\":[]", 0, ""},
        {"\"store\":false", 0, ""},
        {"\"store\":true", 0, ""},
        {"\"service_tier\":\"auto\"", 0, ""},
        {"\"service_tier\":\"flex\"", 0, ""},
        {"\"tools\":[]", 0, ""},
        {"\"tools\":{}", ERR_INVALID, "tools"},
        {"\"tool_choice\":\"none\"", 0, ""},
        {"\"tool_choice\":\"auto\"", 0, ""},
        {"\"tool_choice\":1", ERR_INVALID, "tool_choice"},
        {"\"parallel_tool_calls\":true", 0, ""},
        {"\"parallel_tool_calls\":1", ERR_INVALID, "parallel_tool_calls"},
        {"\"functions\":[]", 0, ""},
        {"\"functions\":[{}]", ERR_UNSUPPORTED, "functions"},
        {"\"function_call\":\"none\"", 0, ""},
        {"\"function_call\":{\"name\":\"f\"}", ERR_UNSUPPORTED, "function_call"},
        {"\"guided_choice\":[]", ERR_INVALID, "guided_choice"},
        {"\"metadata\":{}", 0, ""},
        {"\"metadata\":{\"a\":\"b\"}", 0, ""},
        {"\"prompt\":\"x\"", ERR_INVALID, "prompt"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        field_case(&chat_table, rows[i].field, rows[i].want, rows[i].param);
}

static void completions_fields_are_honoured_or_refused(void) {
    static const struct {
        const char *field;
        int want;
        const char *param;
    } rows[] = {
        {"\"max_tokens\":0", 0, ""},
        {"\"logprobs\":0", 0, ""},
        {"\"logprobs\":true", ERR_INVALID, "logprobs"},
        {"\"logprobs\":5", 0, ""},
        {"\"logprobs\":6", ERR_INVALID, "logprobs"},
        {"\"echo\":true", 0, ""},
        {"\"best_of\":1", 0, ""},
        {"\"best_of\":20", 0, ""},
        {"\"best_of\":21", ERR_INVALID, "best_of"},
        {"\"suffix\":null", 0, ""},
        {"\"suffix\":\"x\"", 0, ""},
        {"\"suffix\":[]", ERR_INVALID, "suffix"},
        {"\"messages\":[{}]", ERR_UNSUPPORTED, "messages"},
        {"\"tools\":[{}]", ERR_UNSUPPORTED, "tools"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        field_case(completions_route.table, rows[i].field, rows[i].want, rows[i].param);
}

static void missing_fields_are_named(void) {
    struct gen_fields f;
    cJSON *tree;
    err e;
    CHECK(read_fields("{\"model\":\"m\"}", &chat_table, &f, &tree, &e) == ERR_INVALID);
    CHECK_STR(e.param, "messages");
    cJSON_Delete(tree);
    CHECK(read_fields("{\"model\":\"m\"}", completions_route.table, &f, &tree, &e) == ERR_INVALID);
    CHECK_STR(e.param, "prompt");
    cJSON_Delete(tree);
    /* A server of one model needs no name of it. */
    CHECK(read_fields("{\"messages\":[{}]}", &chat_table, &f, &tree, &e) == 0);
    CHECK(!f.model);
    cJSON_Delete(tree);
    CHECK(read_fields("{\"model\":null,\"prompt\":\"\"}", completions_route.table, &f, &tree, &e) ==
          0);
    CHECK(!f.model);
    cJSON_Delete(tree);
}

static void options_carry_the_values(void) {
    struct gen_fields f;
    struct gen_options *o = mem_new(1, sizeof *o);
    cJSON *tree;
    err e;
    CHECK(read_fields(
              "{\"model\":\"m\",\"messages\":[{}],\"temperature\":0.5,\"top_p\":0.75,\"top_k\":7,"
              "\"min_p\":0.25,\"seed\":9007199254740993,\"n\":3,\"stop\":[\"x\",\"yz\"],"
              "\"presence_penalty\":1,\"frequency_penalty\":-1,"
              "\"repetition_penalty\":1.5,\"logit_bias\":{\"42\":-7.5},\"logprobs\":true,"
              "\"top_logprobs\":4,\"max_completion_tokens\":9,\"priority\":-3,"
              "\"ignore_eos\":true,\"stream\":true,"
              "\"stream_options\":{\"include_usage\":true}}",
              &chat_table, &f, &tree, &e) == 0);
    CHECK(gen_options_read(&f, 100, NULL, o, &e) == 0);
    const struct engine_params *p = &o->params;
    CHECK(p->sampling.temperature == 0.5f && p->sampling.top_k == 7 && p->sampling.min_p == 0.25f);
    CHECK(p->sampling.top_p == 0.75f);
    CHECK(p->has_seed && p->seed == INT64_C(9007199254740993));
    CHECK(p->sampling.presence_penalty == 1 && p->sampling.frequency_penalty == -1 &&
          p->sampling.repetition_penalty == 1.5f);
    CHECK(p->n_bias == 1 && p->bias[0].token == 42 && p->bias[0].bias == -7.5f);
    CHECK(p->n_logprobs == 4 && p->max_tokens == 9 && p->priority == -3 && p->ignore_eos);
    CHECK(o->n_choices == 3 && o->n_stops == 2 && o->stream && o->include_usage);
    CHECK_STR(o->stops[1], "yz");
    cJSON_Delete(tree);
    CHECK(read_fields("{\"model\":\"m\",\"messages\":[{}]}", &chat_table, &f, &tree, &e) == 0);
    CHECK(gen_options_read(&f, 100, NULL, o, &e) == 0);
    CHECK(p->sampling.temperature == 1 && p->sampling.top_p == 1 && !p->has_seed &&
          p->n_logprobs == -1 && p->max_tokens == 0 && o->n_choices == 1 && !o->no_tokens);
    cJSON_Delete(tree);
    CHECK(read_fields(
              "{\"model\":\"m\",\"prompt\":\"\",\"echo\":true,\"logprobs\":0,\"max_tokens\":0}",
              completions_route.table, &f, &tree, &e) == 0);
    CHECK(gen_options_read(&f, 100, NULL, o, &e) == 0);
    CHECK(o->no_tokens && p->max_tokens == 1 && p->prompt_logprobs && p->n_logprobs == 0);
    cJSON_Delete(tree);
    free(o);
}

/* All properties of a schema, including those of $ref and allOf. */
static int check_properties(const cJSON *schemas, const cJSON *schema,
                            const struct json_table *table) {
    int n = 0;
    const cJSON *v, *ref = cJSON_GetObjectItemCaseSensitive(schema, "$ref");
    if (cJSON_IsString(ref))
        return check_properties(
            schemas, cJSON_GetObjectItemCaseSensitive(schemas, strrchr(ref->valuestring, '/') + 1),
            table);
    cJSON_ArrayForEach(v, cJSON_GetObjectItemCaseSensitive(schema, "allOf")) n +=
        check_properties(schemas, v, table);
    cJSON_ArrayForEach(v, cJSON_GetObjectItemCaseSensitive(schema, "properties")) {
        struct gen_fields f;
        err e = {0};
        cJSON *body = cJSON_CreateObject();
        cJSON_AddItemToObject(body, v->string, cJSON_CreateObject());
        gen_fields_default(&f);
        json_read(body, table, "", &f, &e);
        CHECK_MSG(!strstr(e.msg, "Unrecognized"), "%s is not in the table", v->string);
        cJSON_Delete(body);
        n++;
    }
    return n;
}

static void tables_contain_all_of_openai(void) {
    size_t n;
    char *bytes = file_read("../shared/data/openai/openapi-inference-subset.json", &n);
    cJSON *spec = NULL;
    err e = {0};
    CHECK_MSG(json_parse(bytes, n, &spec, &e) == 0, "%s", e.msg);
    const cJSON *schemas = cJSON_GetObjectItemCaseSensitive(
        cJSON_GetObjectItemCaseSensitive(spec, "components"), "schemas");
    CHECK(check_properties(schemas,
                           cJSON_GetObjectItemCaseSensitive(schemas, "CreateChatCompletionRequest"),
                           &chat_table) >= 30);
    CHECK(check_properties(schemas,
                           cJSON_GetObjectItemCaseSensitive(schemas, "CreateCompletionRequest"),
                           completions_route.table) >= 18);
    cJSON_Delete(spec);
    free(bytes);
}

/* ---- messages ---- */

static void messages_become_template_input(void) {
    cJSON *in = parse(
        "[{\"role\":\"developer\",\"content\":\"be kind\"},"
        "{\"role\":\"user\",\"name\":\"Ann\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},"
        "{\"type\":\"text\",\"text\":\"b\"}]},"
        "{\"role\":\"assistant\",\"content\":null,\"refusal\":null,\"tool_calls\":[{\"id\":\"c1\","
        "\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"x\\\":1}\"}}]},"
        "{\"role\":\"tool\",\"tool_call_id\":\"c1\",\"content\":\"2\"},"
        "{\"role\":\"assistant\",\"content\":\"three\",\"annotations\":[]}]");
    struct chat_request q;
    err e = {0};
    chat_request_init(&q, NULL);
    CHECK_MSG(chat_messages_read(in, &q, &e) == 0, "%s", e.msg);
    char *text = cJSON_PrintUnformatted(q.messages);
    CHECK_STR(text ? text : "",
              "[{\"role\":\"developer\",\"content\":\"be kind\"},"
              "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},"
              "{\"type\":\"text\",\"text\":\"b\"}],\"name\":\"Ann\"},"
              "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"function\":{\"name\":"
              "\"f\",\"arguments\":\"{\\\"x\\\":1}\"},\"id\":\"c1\",\"type\":\"function\"}]},"
              "{\"role\":\"tool\",\"content\":\"2\",\"tool_call_id\":\"c1\"},"
              "{\"role\":\"assistant\",\"content\":\"three\"}]");
    cJSON_free(text);
    chat_request_fini(&q);
    cJSON_Delete(in);
}

/* An assistant's thinking becomes reasoning, its parts of other servers are left out; a user's are
 * refused. */
static void echoed_parts_are_tolerated(void) {
    static const struct {
        const char *text, *want;
    } rows[] = {
        {"[{\"type\":\"thinking\",\"thinking\":\"hm\",\"signature\":\"s\"},{\"type\":\"text\","
         "\"text\":\"a\"}]",
         "{\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"text\":\"a\"}],"
         "\"reasoning_content\":\"hm\"}"},
        {"[{\"type\":\"reasoning\",\"text\":\"x\"},{\"type\":\"thinking\",\"thinking\":[{\"type\":"
         "\"text\",\"text\":\"y\"}]},{\"type\":\"text\",\"text\":\"a\"}]",
         "{\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"text\":\"a\"}],"
         "\"reasoning_content\":\"x\\ny\"}"},
        {"[{\"type\":\"redacted_thinking\",\"data\":\"zz\"}]",
         "{\"role\":\"assistant\",\"content\":\"\"}"},
        {"[{\"type\":\"of_tomorrow\",\"x\":1},{\"type\":\"text\",\"text\":\"a\"}]",
         "{\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"text\":\"a\"}]}"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int said = 0; said < 2; said++) {
            str body;
            struct chat_request q;
            err e = {0};
            str_init(&body, 4096);
            str_addf(&body, "[{\"role\":\"%s\",\"content\":%s}]", said ? "assistant" : "user",
                     rows[i].text);
            cJSON *in = parse(str_cstr(&body));
            chat_request_init(&q, NULL);
            int rc = chat_messages_read(in, &q, &e);
            CHECK_MSG(rc == (said ? 0 : ERR_UNSUPPORTED), "%s: %s", str_cstr(&body), e.msg);
            char *text = said && !rc ? cJSON_PrintUnformatted(q.messages->child) : NULL;
            if (said) CHECK_STR(text ? text : "", rows[i].want);
            cJSON_free(text);
            chat_request_fini(&q);
            cJSON_Delete(in);
            str_fini(&body);
        }
}

static void messages_are_refused_by_name(void) {
    static const struct {
        const char *text;
        int want;
        const char *param;
    } rows[] = {
        {"{}", ERR_INVALID, "messages"},
        {"\"hi\"", ERR_INVALID, "messages"},
        {"[]", ERR_INVALID, "messages"},
        {"[1]", ERR_INVALID, "messages[0]"},
        {"[{\"content\":\"x\"}]", ERR_INVALID, "messages[0].role"},
        {"[{\"role\":\"wizard\",\"content\":\"x\"}]", ERR_INVALID, "messages[0].role"},
        {"[{\"role\":1,\"content\":\"x\"}]", ERR_INVALID, "messages[0].role"},
        {"[{\"role\":\"user\"}]", ERR_INVALID, "messages[0].content"},
        {"[{\"role\":\"user\",\"content\":null}]", ERR_INVALID, "messages[0].content"},
        {"[{\"role\":\"user\",\"content\":7}]", ERR_INVALID, "messages[0].content"},
        {"[{\"role\":\"user\",\"content\":[]}]", ERR_INVALID, "messages[0].content"},
        {"[{\"role\":\"user\",\"content\":[1]}]", ERR_INVALID, "messages[0].content[0]"},
        {"[{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"user\",\"content\":[{\"type\":"
         "\"text\","
         "\"text\":\"a\"},{\"type\":\"image_url\",\"image_url\":{\"url\":\"x\"}}]}]",
         ERR_UNSUPPORTED, "messages[1].content[1].type"},
        {"[{\"role\":\"user\",\"content\":[{\"type\":\"text\"}]}]", ERR_INVALID,
         "messages[0].content[0].text"},
        {"[{\"role\":\"user\",\"content\":[{\"text\":\"a\"}]}]", ERR_INVALID,
         "messages[0].content[0].type"},
        {"[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\",\"z\":1}]}]",
         ERR_INVALID, "messages[0].content[0].z"},
        {"[{\"role\":\"user\",\"content\":\"x\",\"colour\":1}]", ERR_INVALID, "messages[0].colour"},
        {"[{\"role\":\"user\",\"content\":\"x\",\"function_call\":{\"name\":\"f\"}}]",
         ERR_UNSUPPORTED, "messages[0].function_call"},
        {"[{\"role\":\"assistant\",\"content\":\"x\",\"refusal\":\"no\"}]", ERR_UNSUPPORTED,
         "messages[0].refusal"},
        {"[{\"role\":\"tool\",\"content\":\"x\"}]", ERR_INVALID, "messages[0].tool_call_id"},
        {"[{\"role\":\"function\",\"content\":\"x\"}]", ERR_INVALID, "messages[0].name"},
        {"[{\"role\":\"user\",\"content\":\"x\",\"tool_calls\":[]}]", ERR_INVALID,
         "messages[0].tool_calls"},
        {"[{\"role\":\"assistant\",\"tool_calls\":{}}]", ERR_INVALID, "messages[0].tool_calls"},
        {"[{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"1\",\"type\":\"mcp\"}]}]",
         ERR_UNSUPPORTED, "messages[0].tool_calls[0].type"},
        {"[{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"1\",\"type\":\"custom\"}]}]",
         ERR_INVALID, "messages[0].tool_calls[0].custom"},
        {"[{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"1\",\"type\":\"function\","
         "\"function\":{\"name\":\"f\",\"arguments\":[]}}]}]",
         ERR_INVALID, "messages[0].tool_calls[0].function.arguments"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        cJSON *in = parse(rows[i].text);
        struct chat_request q;
        err e = {0};
        chat_request_init(&q, NULL);
        int rc = chat_messages_read(in, &q, &e);
        CHECK_MSG(rc == rows[i].want && !q.messages && strcmp(e.param, rows[i].param) == 0,
                  "%s: %d param '%s' %s", rows[i].text, rc, e.param, e.msg);
        chat_request_fini(&q);
        cJSON_Delete(in);
    }
}

/* ---- errors and frames ---- */

static void errors_have_openais_shape(void) {
    static const struct {
        int code;
        unsigned status;
        const char *name;
    } rows[] = {{ERR_INVALID, 400, NULL},
                {ERR_TOO_LONG, 400, "context_length_exceeded"},
                {ERR_NOT_FOUND, 404, "model_not_found"},
                {ERR_FULL, 429, "rate_limit_exceeded"},
                {ERR_STOPPING, 503, "shutting_down"},
                {ERR_DEVICE, 500, "internal_error"},
                {ERR_NOMEM, 500, "internal_error"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        err e = {0};
        err_set_param(&e, rows[i].code, i ? "" : "n", "it is \"wrong\"\n");
        struct api_error error = error_of(&e);
        str s;
        str_init(&s, 4096);
        error_write(&s, &error);
        CHECK(error.status == rows[i].status);
        cJSON *v = cJSON_Parse(str_cstr(&s)), *o = cJSON_GetObjectItem(v, "error");
        CHECK(cJSON_GetArraySize(v) == 1 && cJSON_GetArraySize(o) == 4);
        /* A 500 hides the reason. */
        const char *message = cJSON_GetStringValue(cJSON_GetObjectItem(o, "message"));
        CHECK((strcmp(message, "it is \"wrong\"\n") == 0) == (error.status != 500));
        CHECK(cJSON_IsString(cJSON_GetObjectItem(o, "type")));
        const cJSON *code = cJSON_GetObjectItem(o, "code");
        const cJSON *param = cJSON_GetObjectItem(o, "param");
        CHECK(rows[i].name ? strcmp(cJSON_GetStringValue(code), rows[i].name) == 0
                           : cJSON_IsNull(code));
        CHECK(i ? cJSON_IsNull(param) : strcmp(param->valuestring, "n") == 0);
        cJSON_Delete(v);
        str_fini(&s);
    }
}

/* The client gets the request's id, the log the reason. */
static void a_500_names_the_request_and_nothing_else(void) {
    struct request *r = mem_new(1, sizeof *r);
    err e = {0};
    snprintf(r->id, sizeof r->id, "req_12");
    err_set_param(&e, ERR_DEVICE, "weights", "cannot read /models/secret.gguf in load_tensor()");
    struct api_error error = error_for(r, &e);
    CHECK(error.status == 500 && !error.param && strstr(error.message, "req_12"));
    CHECK(!strstr(error.message, "secret") && !strstr(error.message, "load_tensor"));
    err_set_param(&e, ERR_INVALID, "n", "'n' is wrong");
    error = error_for(r, &e);
    CHECK(error.status == 400 && strcmp(error.message, "'n' is wrong") == 0);
    CHECK_STR(error.param, "n");
    free(r);
}

static void frames_are_server_sent_events(void) {
    struct gen g = {.id = "cmpl-1"};
    str s;
    str_init(&s, 4096);
    gen_frame_open(&g, NULL, &s);
    json_add_cstr(&s, "two\nlines");
    gen_frame_close(&s);
    gen_frame_comment(&g, &s);
    gen_frame_open(&g, "ping", &s);
    str_add(&s, "{}");
    gen_frame_close(&s);
    gen_frame_done(&s);
    CHECK_STR(str_cstr(&s), "id: cmpl-1:1\ndata: \"two\\nlines\"\n\n: keep-alive\n\n"
                            "id: cmpl-1:2\nevent: ping\ndata: {}\n\ndata: [DONE]\n\n");
    str_fini(&s);
}

int main(void) {
    DIR *shared = opendir("../shared/data/openai");
    if (shared) {
        RUN(tables_contain_all_of_openai);
        closedir(shared);
    } else {
        SKIP("tables_contain_all_of_openai", "no ../shared/data/openai");
    }
    RUN(fields_have_types_and_bounds);
    RUN(chat_fields_are_honoured_or_refused);
    RUN(completions_fields_are_honoured_or_refused);
    RUN(missing_fields_are_named);
    RUN(options_carry_the_values);
    RUN(messages_become_template_input);
    RUN(messages_are_refused_by_name);
    RUN(echoed_parts_are_tolerated);
    RUN(errors_have_openais_shape);
    RUN(a_500_names_the_request_and_nothing_else);
    RUN(frames_are_server_sent_events);
    return check_done();
}
