/* test_api_parse.c - what the HTTP layer makes of bytes: the strict JSON reader against
 * JSONTestSuite, the field tables against OpenAI's own description, messages, sampling fields, and
 * the JSON and error writers read back by another parser (cJSON's). */
#include "api/chat_request.h"

#include "core/base/mem.h"

#include "check.h"
#include "tests/support/files.h"

#include <dirent.h>
#include <stdlib.h>

/* ---- helpers ---- */

static cJSON *parse(const char *text) {
    cJSON *v = NULL;
    err e = {0};
    CHECK_MSG(json_parse(text, strlen(text), &v, &e) == 0, "%s: %s", text, e.msg);
    return v;
}

/* Refused, and the message holds `why`. */
static void refuses(const char *text, size_t n, const char *why) {
    cJSON *v = NULL;
    err e = {0};
    int rc = json_parse(text, n, &v, &e);
    CHECK_MSG(rc == ERR_FORMAT && e.code == rc && !v && strstr(e.msg, why), "%.40s: %d \"%s\"",
              text, rc, e.msg);
    cJSON_Delete(v);
}

/* ---- JSON ---- */

/* y_ files that the strict reader refuses, and why. */
static const char *deliberate(const char *name) {
    if (strncmp(name, "y_object_duplicated_key", 23) == 0) return "duplicate key";
    if (strcmp(name, "y_object_escaped_null_in_key.json") == 0 ||
        strcmp(name, "y_string_null_escape.json") == 0)
        return "u0000";
    return NULL;
}

/* Every y_ and n_ file in the folder; returns how many. */
static int run_suite(const char *folder) {
    DIR *dir = opendir(folder);
    int n_files = 0;
    if (!dir) return 0;
    for (struct dirent *d; (d = readdir(dir));) {
        char path[512];
        size_t n;
        if (strncmp(d->d_name, "y_", 2) != 0 && strncmp(d->d_name, "n_", 2) != 0) continue;
        snprintf(path, sizeof path, "%s/%s", folder, d->d_name);
        char *bytes = file_read(path, &n);
        cJSON *v = NULL;
        err e = {0};
        int rc = bytes ? json_parse(bytes, n, &v, &e) : ERR_IO;
        const char *why = deliberate(d->d_name);
        if (why)
            CHECK_MSG(rc == ERR_FORMAT && strstr(e.msg, why), "%s: %s", d->d_name, e.msg);
        else if (*d->d_name == 'y')
            CHECK_MSG(rc == 0 && v, "%s: %s", d->d_name, e.msg);
        else
            CHECK_MSG(rc == ERR_FORMAT && !v && *e.msg, "%s was accepted", d->d_name);
        cJSON_Delete(v);
        free(bytes);
        n_files++;
    }
    closedir(dir);
    return n_files;
}

static void json_suite_part(void) {
    CHECK(run_suite("tests/data/json") >= 38);
}

static void json_suite_whole(void) {
    CHECK(run_suite("../shared/data/json-test-suite/test_parsing") >= 140);
}

static void json_refuses_what_cjson_lets_pass(void) {
    static const char *const rows[][2] = {
        {"{\"a\":1} x", "more text"},
        {"{\"a\":1,\"a\":2}", "duplicate key \"a\""},
        {"{\"a\":{\"b\":1,\"c\":2,\"b\":3}}", "duplicate key \"b\""},
        {"\"\\ud800\"", "lone surrogate"},
        {"\"\\udc00\"", "lone surrogate"},
        {"\"\\ud800\\u0041\"", "lone surrogate"},
        {"\"\\u0000\"", "u0000"},
        {"\"\\u12g4\"", "bad \\u escape"},
        {"\"a\nb\"", "control character"},
        {"\"abc", "unfinished string"},
        {"\"abc\\", "unfinished string"},
        {"NaN", "unexpected character"},
        {"[Infinity]", "unexpected character"},
        {"1e400", "out of range"},
        {"01", "more text"},
        {"[1,]", "unexpected character"},
        {"{\"a\" 1}", "expected ':'"},
        {"{a:1}", "expected a key"},
        {"tru", "unexpected character"},
        {"", "unexpected end"},
        {" \n", "unexpected end"},
        {"\xef\xbb\xbf{}", "unexpected character"},
        {"\"\xc3\"", "not valid UTF-8"},
        {"\"\xed\xa0\x80\"", "not valid UTF-8"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        refuses(rows[i][0], strlen(rows[i][0]), rows[i][1]);
    refuses("\"a\0b\"", 5, "control character");
}

static void json_limits_hold(void) {
    char deep[400];
    for (int depth = JSON_MAX_DEPTH - 1; depth <= JSON_MAX_DEPTH + 2; depth++) {
        memset(deep, '[', (size_t)depth);
        memset(deep + depth, ']', (size_t)depth);
        cJSON *v = NULL;
        int rc = json_parse(deep, 2 * (size_t)depth, &v, NULL);
        CHECK_MSG((rc == 0) == (depth <= JSON_MAX_DEPTH), "depth %d: %d", depth, rc);
        cJSON_Delete(v);
    }
    size_t n = 2 * (size_t)JSON_MAX_VALUES + 2;
    char *many = mem_new(n, 1);
    for (size_t i = 1; i < n; i += 2) {
        many[i] = '1';
        many[i + 1 < n ? i + 1 : i] = ',';
    }
    many[0] = '[';
    many[n - 1] = ']';
    refuses(many, n, "524288 values");
    free(many);
    char digits[600];
    memset(digits, '1', sizeof digits);
    refuses(digits, sizeof digits, "too long a number");
}

static void json_many_keys_cost_no_square(void) {
    str s;
    str_init(&s, 1 << 24);
    str_add_char(&s, '{');
    for (int i = 0; i < 200000; i++)
        str_addf(&s, "%s\"k%d\":0", i ? "," : "", i);
    str_add(&s, ",\"k77777\":1}");
    refuses(str_cstr(&s), s.len, "duplicate key \"k77777\"");
    str_fini(&s);
}

static void json_strings_are_decoded(void) {
    cJSON *v = parse("[\"\\ud83d\\ude00\", \"\\u20ac\\u00e4\", \"a\\/\\\\\\\"\\b\\f\\n\\r\\t\", "
                     "\"\xf0\x9f\x98\x80\"]");
    CHECK_STR(cJSON_GetArrayItem(v, 0)->valuestring, "\xf0\x9f\x98\x80");
    CHECK_STR(cJSON_GetArrayItem(v, 1)->valuestring, "\xe2\x82\xac\xc3\xa4");
    CHECK_STR(cJSON_GetArrayItem(v, 2)->valuestring, "a/\\\"\b\f\n\r\t");
    CHECK_STR(cJSON_GetArrayItem(v, 3)->valuestring, "\xf0\x9f\x98\x80");
    cJSON_Delete(v);
}

static void json_integers_are_exact(void) {
    static const struct {
        const char *text;
        bool ok;
        int64_t value;
    } rows[] = {
        {"0", true, 0},
        {"-0", true, 0},
        {"5.0", true, 5},
        {"1e3", true, 1000},
        {"1.5", false, 0},
        {"9007199254740993", true, INT64_C(9007199254740993)},
        {"-9007199254740993", true, -INT64_C(9007199254740993)},
        {"9223372036854775807", true, INT64_MAX},
        {"-9223372036854775808", true, INT64_MIN},
        {"9223372036854775808", false, 0},
        {"-9223372036854775809", false, 0},
        {"1e300", false, 0},
        {"\"1\"", false, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        cJSON *v = parse(rows[i].text);
        int64_t got = 77;
        bool ok = json_int64(v, &got);
        CHECK_MSG(ok == rows[i].ok && (!ok || got == rows[i].value), "%s gives %d %lld",
                  rows[i].text, ok, (long long)got);
        cJSON_Delete(v);
    }
}

/* Random bytes, cuts and flips of a real body: never a crash, never a tree on failure. */
static void json_random_bytes_are_harmless(void) {
    static const char seed[] =
        "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"h\\u00e9\\ud83d\\ude00\"}]"
        ","
        "\"seed\":-9007199254740993,\"stop\":[\"a\",\"b\"],\"x\":[1.5e-3,true,null,{}]}";
    uint64_t rng = 12345;
    char buf[sizeof seed];
    for (int round = 0; round < 20000; round++) {
        memcpy(buf, seed, sizeof seed);
        size_t n = sizeof seed - 1;
        for (int k = 0; k < 3; k++) {
            rng = rng * UINT64_C(6364136223846793005) + 1442695040888963407u;
            buf[(rng >> 33) % n] = (char)(rng >> 20);
        }
        if (rng >> 63) n = (rng >> 40) % n;
        cJSON *v = NULL;
        err e = {0};
        int rc = json_parse(buf, n, &v, &e);
        CHECK((rc == 0) == (v != NULL) && (rc == 0 || *e.msg));
        cJSON_Delete(v);
    }
}

static void writers_are_read_back(void) {
    static const char *const texts[] = {"",
                                        "plain",
                                        "\"quoted\" \\ back/slash",
                                        "line\nfeed\r\ttab\x01\x1f\x7f",
                                        "\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\xe2\x80\xa8",
                                        "data: [DONE]\n\n"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        str s;
        str_init(&s, 4096);
        json_add_cstr(&s, texts[i]);
        cJSON *v = cJSON_ParseWithLength(str_cstr(&s), s.len);
        CHECK(v && cJSON_IsString(v));
        if (v) CHECK_STR(v->valuestring, texts[i]);
        for (size_t k = 0; k < s.len; k++)
            CHECK((unsigned char)s.data[k] >= 0x20); /* one SSE line */
        cJSON_Delete(v);
        str_fini(&s);
    }
    str s;
    str_init(&s, 4096);
    json_add_string(&s, "a\xff\xe2\x82", 4);
    CHECK_STR(str_cstr(&s), "\"a\xef\xbf\xbd\xef\xbf\xbd\"");
    str_clear(&s);
    json_add_number(&s, -1.0 / 0.0);
    CHECK_STR(str_cstr(&s), "-9999");
    str_fini(&s);
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
             table == &chat_table ? "\"messages\":[]" : "\"prompt\":\"x\"", *field ? "," : "",
             field);
    struct gen_fields f;
    struct gen_options *o = mem_new(1, sizeof *o);
    cJSON *tree;
    err e;
    int rc = read_fields(str_cstr(&s), table, &f, &tree, &e);
    if (!rc) rc = gen_options_read(&f, 100, o, &e);
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
        {"\"stop\":\"\"", ERR_INVALID, "stop"},
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
        {"\"stream_options\":{\"include_usage\":true}", ERR_INVALID, "stream_options"},
        {"\"stream\":true,\"stream_options\":{\"include_usage\":true}", 0, ""},
        {"\"stream\":true,\"stream_options\":{\"include_usage\":1}", ERR_INVALID,
         "stream_options.include_usage"},
        {"\"stream\":true,\"stream_options\":{\"x\":1}", ERR_INVALID, "stream_options.x"},
        {"\"stream\":true,\"stream_options\":7", ERR_INVALID, "stream_options"},
        {"\"user\":\"me\"", 0, ""},
        {"\"user\":1", ERR_INVALID, "user"},
        {"\"ignore_eos\":true", 0, ""},
        {"\"repetition_penalty\":0", ERR_INVALID, "repetition_penalty"},
        {"\"presence_penalty\":-2.5", ERR_INVALID, "presence_penalty"},
        {"\"max_tokens\":-1", ERR_INVALID, "max_tokens"},
        {"\"max_tokens\":1.5", ERR_INVALID, "max_tokens"},
        {"\"nonsense\":1", ERR_INVALID, "nonsense"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        field_case(&chat_table, rows[i].field, rows[i].want, rows[i].param);
        field_case(&completions_table, rows[i].field, rows[i].want, rows[i].param);
    }
}

static void chat_fields_are_honoured_or_refused(void) {
    static const struct {
        const char *field;
        int want;
        const char *param;
    } rows[] = {
        {"\"max_tokens\":0", ERR_INVALID, "max_tokens"},
        {"\"max_tokens\":5,\"max_completion_tokens\":5", 0, ""},
        {"\"max_tokens\":5,\"max_completion_tokens\":6", ERR_INVALID, "max_tokens"},
        {"\"logprobs\":true,\"top_logprobs\":20", 0, ""},
        {"\"logprobs\":true,\"top_logprobs\":21", ERR_INVALID, "top_logprobs"},
        {"\"top_logprobs\":2", ERR_INVALID, "top_logprobs"},
        {"\"logprobs\":2", ERR_INVALID, "logprobs"},
        {"\"response_format\":{\"type\":\"text\"}", 0, ""},
        {"\"response_format\":{\"type\":\"json_object\"}", ERR_UNSUPPORTED, "response_format"},
        {"\"response_format\":3", ERR_UNSUPPORTED, "response_format"},
        {"\"modalities\":[\"text\"]", 0, ""},
        {"\"modalities\":[\"text\",\"audio\"]", ERR_UNSUPPORTED, "modalities"},
        {"\"modalities\":[]", ERR_UNSUPPORTED, "modalities"},
        {"\"store\":false", 0, ""},
        {"\"store\":true", ERR_UNSUPPORTED, "store"},
        {"\"service_tier\":\"auto\"", 0, ""},
        {"\"service_tier\":\"flex\"", ERR_UNSUPPORTED, "service_tier"},
        {"\"tools\":[]", 0, ""},
        {"\"tools\":[{}]", ERR_UNSUPPORTED, "tools"},
        {"\"tool_choice\":\"none\"", 0, ""},
        {"\"tool_choice\":\"auto\"", ERR_UNSUPPORTED, "tool_choice"},
        {"\"parallel_tool_calls\":true", ERR_UNSUPPORTED, "parallel_tool_calls"},
        {"\"metadata\":{}", 0, ""},
        {"\"metadata\":{\"a\":\"b\"}", ERR_UNSUPPORTED, "metadata"},
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
        {"\"logprobs\":21", ERR_INVALID, "logprobs"},
        {"\"echo\":true", 0, ""},
        {"\"best_of\":1", 0, ""},
        {"\"best_of\":2", ERR_UNSUPPORTED, "best_of"},
        {"\"suffix\":null", 0, ""},
        {"\"suffix\":\"x\"", ERR_UNSUPPORTED, "suffix"},
        {"\"messages\":[]", ERR_INVALID, "messages"},
        {"\"tools\":[]", ERR_INVALID, "tools"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        field_case(&completions_table, rows[i].field, rows[i].want, rows[i].param);
}

static void required_fields_are_missed_by_name(void) {
    struct gen_fields f;
    cJSON *tree;
    err e;
    CHECK(read_fields("{\"messages\":[]}", &chat_table, &f, &tree, &e) == ERR_INVALID);
    CHECK_STR(e.param, "model");
    cJSON_Delete(tree);
    CHECK(read_fields("{\"model\":\"m\"}", &chat_table, &f, &tree, &e) == ERR_INVALID);
    CHECK_STR(e.param, "messages");
    cJSON_Delete(tree);
    CHECK(read_fields("{\"model\":null,\"prompt\":\"\"}", &completions_table, &f, &tree, &e) ==
          ERR_INVALID);
    CHECK_STR(e.param, "model");
    cJSON_Delete(tree);
}

static void options_carry_the_values(void) {
    struct gen_fields f;
    struct gen_options *o = mem_new(1, sizeof *o);
    cJSON *tree;
    err e;
    CHECK(read_fields(
              "{\"model\":\"m\",\"messages\":[],\"temperature\":0.5,\"top_p\":0.75,\"top_k\":7,"
              "\"min_p\":0.25,\"seed\":9007199254740993,\"n\":3,\"stop\":[\"x\",\"yz\"],"
              "\"presence_penalty\":1,\"frequency_penalty\":-1,"
              "\"repetition_penalty\":1.5,\"logit_bias\":{\"42\":-7.5},\"logprobs\":true,"
              "\"top_logprobs\":4,\"max_completion_tokens\":9,\"priority\":-3,"
              "\"ignore_eos\":true,\"stream\":true,"
              "\"stream_options\":{\"include_usage\":true}}",
              &chat_table, &f, &tree, &e) == 0);
    CHECK(gen_options_read(&f, 100, o, &e) == 0);
    const struct engine_params *p = &o->params;
    CHECK(p->temperature == 0.5f && p->top_k == 7 && p->min_p == 0.25f);
    CHECK(p->top_p == 0.75f);
    CHECK(p->has_seed && p->seed == INT64_C(9007199254740993));
    CHECK(p->presence_penalty == 1 && p->frequency_penalty == -1 && p->repetition_penalty == 1.5f);
    CHECK(p->n_bias == 1 && p->bias[0].token == 42 && p->bias[0].bias == -7.5f);
    CHECK(p->n_logprobs == 4 && p->max_tokens == 9 && p->priority == -3 && p->ignore_eos);
    CHECK(o->n_choices == 3 && o->n_stops == 2 && o->stream && o->include_usage);
    CHECK_STR(o->stops[1], "yz");
    cJSON_Delete(tree);
    CHECK(read_fields("{\"model\":\"m\",\"messages\":[]}", &chat_table, &f, &tree, &e) == 0);
    CHECK(gen_options_read(&f, 100, o, &e) == 0);
    CHECK(p->temperature == 1 && p->top_p == 1 && !p->has_seed && p->n_logprobs == -1 &&
          p->max_tokens == 0 && o->n_choices == 1 && !o->no_tokens);
    cJSON_Delete(tree);
    CHECK(read_fields(
              "{\"model\":\"m\",\"prompt\":\"\",\"echo\":true,\"logprobs\":0,\"max_tokens\":0}",
              &completions_table, &f, &tree, &e) == 0);
    CHECK(gen_options_read(&f, 100, o, &e) == 0);
    CHECK(o->no_tokens && p->max_tokens == 1 && p->prompt_logprobs && p->n_logprobs == 0);
    cJSON_Delete(tree);
    free(o);
}

/* One row of each kind, in two levels. */
struct sample {
    const char *text, *word;
    const cJSON *list, *any, *object;
    int64_t number;
    bool has_number;
};
#define SAMPLE(member) .offset = offsetof(struct sample, member)
static const struct json_field inner_rows[] = {
    {"word", JSON_ENUM, JSON_REQUIRED, SAMPLE(word), .words = "on|off", .initial = "\"off\""}};
static const struct json_table inner_table = JSON_TABLE(inner_rows, NULL);
static const struct json_field sample_rows[] = {
    {"text", JSON_STRING, 0, SAMPLE(text), .min = 1, .max = 3},
    {"word", JSON_ENUM, JSON_NULLABLE, SAMPLE(word), .words = "low|high"},
    {"list", JSON_ARRAY, 0, SAMPLE(list), .min = 1, .max = 2, .table = &inner_table},
    {"object", JSON_OBJECT, 0, SAMPLE(object), .table = &inner_table, .help = "an \"inner\" one"},
    {"any", JSON_VALUE, JSON_OR_STRING | JSON_OR_ARRAY, SAMPLE(any), .table = &inner_table},
    {"number", JSON_INT, 0, SAMPLE(number), .has = 1 + offsetof(struct sample, has_number),
     .min = -9223372036854775808.0, .max = 9223372036854775808.0},
    {"gone", JSON_REFUSED, JSON_NULLABLE, .words = "auto|none", .why = "it is gone"},
};
static const struct json_table sample_table = JSON_TABLE(sample_rows, NULL);

static void rows_of_every_kind_are_read(void) {
    static const struct {
        const char *body;
        int want;
        const char *message;
    } rows[] = {
        {"{\"text\":\"\"}", ERR_INVALID, "it is empty"},
        {"{\"text\":\"\\u20ac\\u20ac\\u20ac\"}", 0, ""},
        {"{\"text\":\"abcd\"}", ERR_INVALID, "at most 3 characters"},
        {"{\"text\":null}", ERR_INVALID, "expected a string, but got null"},
        {"{\"word\":\"high\"}", 0, ""},
        {"{\"word\":null}", 0, ""},
        {"{\"word\":\"low|high\"}", ERR_INVALID,
         "'low|high'. Supported values are: 'low', 'high'."},
        {"{\"word\":\"\"}", ERR_INVALID, "Supported values"},
        {"{\"word\":1}", ERR_INVALID, "expected a string, but got an integer"},
        {"{\"list\":[]}", ERR_INVALID, "it is empty"},
        {"{\"list\":[1,2,3]}", ERR_INVALID, "at most 2 items"},
        {"{\"list\":{}}", ERR_INVALID, "expected an array, but got an object"},
        {"{\"object\":[]}", ERR_INVALID, "expected an object, but got an array"},
        {"{\"any\":\"x\"}", 0, ""},
        {"{\"any\":[]}", 0, ""},
        {"{\"any\":true}", ERR_INVALID, "expected a string or an array, but got a boolean"},
        {"{\"number\":9223372036854775808}", ERR_INVALID, "must be between"},
        {"{\"number\":1e19}", ERR_INVALID, "must be between"},
        {"{\"number\":0.5}", ERR_INVALID, "expected an integer, but got a number"},
        {"{\"gone\":\"none\"}", 0, ""},
        {"{\"gone\":null}", 0, ""},
        {"{\"gone\":\"no\"}", ERR_UNSUPPORTED, "it is gone"},
        {"{\"gone\":{}}", ERR_UNSUPPORTED, "it is gone"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct sample out = {0};
        err e = {0};
        cJSON *v = parse(rows[i].body);
        int rc = json_read(v, &sample_table, "", &out, &e);
        CHECK_MSG(rc == rows[i].want && (rc == 0 || strcmp(e.param, v->child->string) == 0) &&
                      strstr(e.msg, rows[i].message),
                  "%s: %d param '%s' %s", rows[i].body, rc, e.param, e.msg);
        cJSON_Delete(v);
    }
}

/* Dropped at every level that a table describes, named in a way that a header can carry. */
static void unknown_fields_are_dropped_and_named(void) {
    cJSON *v =
        parse("{\"new\":1,\"text\":\"ab\",\"list\":[{\"word\":\"on\",\"x\":{}},3,{\"y\":[]}],"
              "\"object\":{\"z\":null,\"word\":\"off\"},\"any\":\"q\","
              "\"a\\r\\nb: c\\u20ac\":0}");
    str ignored;
    str_init(&ignored, 4096);
    json_drop_unknown(v, &sample_table, &ignored);
    CHECK_STR(str_cstr(&ignored), "new, list[0].x, list[2].y, object.z, a??b??c?");
    char *text = cJSON_PrintUnformatted(v);
    CHECK_STR(text,
              "{\"text\":\"ab\",\"list\":[{\"word\":\"on\"},3,{}],\"object\":{\"word\":\"off\"},"
              "\"any\":\"q\"}");
    cJSON_free(text);
    cJSON_Delete(v);
    str_fini(&ignored);
}

static void tables_are_written_as_json(void) {
    str s;
    str_init(&s, 65536);
    json_add_table(&s, &sample_table);
    cJSON *v = parse(str_cstr(&s));
    CHECK(cJSON_GetArraySize(v) == 7);
    char *first = cJSON_PrintUnformatted(cJSON_GetArrayItem(v, 0));
    CHECK_STR(first,
              "{\"name\":\"text\",\"type\":\"string\",\"required\":false,\"nullable\":false,"
              "\"default\":null,\"minimum\":1,\"maximum\":3,\"values\":null,\"supported\":true,"
              "\"reason\":null,\"help\":null,\"fields\":null}");
    cJSON_free(first);
    const cJSON *list = cJSON_GetArrayItem(v, 2);
    const cJSON *word = cJSON_GetArrayItem(cJSON_GetObjectItem(list, "fields"), 0);
    CHECK_STR(cJSON_GetStringValue(cJSON_GetObjectItem(word, "default")), "off");
    CHECK(cJSON_IsTrue(cJSON_GetObjectItem(word, "required")));
    CHECK(cJSON_GetArraySize(cJSON_GetObjectItem(word, "values")) == 2);
    CHECK(cJSON_GetArraySize(cJSON_GetObjectItem(cJSON_GetArrayItem(v, 4), "type")) == 2);
    int64_t bound = 0;
    CHECK(json_int64(cJSON_GetObjectItem(cJSON_GetArrayItem(v, 5), "maximum"), &bound) &&
          bound == INT64_MAX);
    CHECK(json_int64(cJSON_GetObjectItem(cJSON_GetArrayItem(v, 5), "minimum"), &bound) &&
          bound == INT64_MIN);
    const cJSON *gone = cJSON_GetArrayItem(v, 6);
    CHECK(cJSON_IsFalse(cJSON_GetObjectItem(gone, "supported")));
    CHECK_STR(cJSON_GetStringValue(cJSON_GetObjectItem(gone, "reason")), "it is gone");
    cJSON_Delete(v);
    str_fini(&s);
}

/* Every property of a schema and what it pulls in by $ref and allOf. */
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

static void tables_know_all_of_openai(void) {
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
                           &completions_table) >= 18);
    cJSON_Delete(spec);
    free(bytes);
}

/* ---- messages ---- */

static void messages_become_what_templates_read(void) {
    cJSON *in = parse(
        "[{\"role\":\"developer\",\"content\":\"be kind\"},"
        "{\"role\":\"user\",\"name\":\"Ann\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},"
        "{\"type\":\"text\",\"text\":\"b\"}]},"
        "{\"role\":\"assistant\",\"content\":null,\"refusal\":null,\"tool_calls\":[{\"id\":\"c1\","
        "\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"x\\\":1}\"}}]},"
        "{\"role\":\"tool\",\"tool_call_id\":\"c1\",\"content\":\"2\"},"
        "{\"role\":\"assistant\",\"content\":\"three\",\"annotations\":[]}]");
    cJSON *out = NULL;
    err e = {0};
    CHECK_MSG(chat_messages_read(in, &out, &e) == 0, "%s", e.msg);
    char *text = cJSON_PrintUnformatted(out);
    CHECK_STR(text ? text : "",
              "[{\"role\":\"developer\",\"content\":\"be kind\"},"
              "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},"
              "{\"type\":\"text\",\"text\":\"b\"}],\"name\":\"Ann\"},"
              "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"function\":{\"name\":"
              "\"f\",\"arguments\":\"{\\\"x\\\":1}\"},\"id\":\"c1\",\"type\":\"function\"}]},"
              "{\"role\":\"tool\",\"content\":\"2\",\"tool_call_id\":\"c1\"},"
              "{\"role\":\"assistant\",\"content\":\"three\"}]");
    cJSON_free(text);
    cJSON_Delete(out);
    cJSON_Delete(in);
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
        {"[{\"role\":\"user\",\"content\":\"x\",\"audio\":{\"id\":\"1\"}}]", ERR_UNSUPPORTED,
         "messages[0].audio"},
        {"[{\"role\":\"assistant\",\"content\":\"x\",\"refusal\":\"no\"}]", ERR_UNSUPPORTED,
         "messages[0].refusal"},
        {"[{\"role\":\"tool\",\"content\":\"x\"}]", ERR_INVALID, "messages[0].tool_call_id"},
        {"[{\"role\":\"function\",\"content\":\"x\"}]", ERR_INVALID, "messages[0].name"},
        {"[{\"role\":\"user\",\"content\":\"x\",\"tool_calls\":[]}]", ERR_INVALID,
         "messages[0].tool_calls"},
        {"[{\"role\":\"assistant\",\"tool_calls\":{}}]", ERR_INVALID, "messages[0].tool_calls"},
        {"[{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"1\",\"type\":\"custom\"}]}]",
         ERR_UNSUPPORTED, "messages[0].tool_calls[0].type"},
        {"[{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"1\",\"type\":\"function\","
         "\"function\":{\"name\":\"f\",\"arguments\":{}}}]}]",
         ERR_INVALID, "messages[0].tool_calls[0].function.arguments"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        cJSON *in = parse(rows[i].text), *out = NULL;
        err e = {0};
        int rc = chat_messages_read(in, &out, &e);
        CHECK_MSG(rc == rows[i].want && !out && strcmp(e.param, rows[i].param) == 0,
                  "%s: %d param '%s' %s", rows[i].text, rc, e.param, e.msg);
        cJSON_Delete(out);
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
        /* A 500 keeps what happened to itself. */
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
    DIR *shared = opendir("../shared/data/json-test-suite");
    RUN(json_suite_part);
    if (shared) {
        RUN(json_suite_whole);
        RUN(tables_know_all_of_openai);
        closedir(shared);
    } else {
        SKIP("json_suite_whole", "no ../shared/data/json-test-suite");
        SKIP("tables_know_all_of_openai", "no ../shared/data/openai");
    }
    RUN(json_refuses_what_cjson_lets_pass);
    RUN(json_limits_hold);
    RUN(json_many_keys_cost_no_square);
    RUN(json_strings_are_decoded);
    RUN(json_integers_are_exact);
    RUN(json_random_bytes_are_harmless);
    RUN(writers_are_read_back);
    RUN(fields_have_types_and_bounds);
    RUN(chat_fields_are_honoured_or_refused);
    RUN(completions_fields_are_honoured_or_refused);
    RUN(required_fields_are_missed_by_name);
    RUN(options_carry_the_values);
    RUN(rows_of_every_kind_are_read);
    RUN(unknown_fields_are_dropped_and_named);
    RUN(tables_are_written_as_json);
    RUN(messages_become_what_templates_read);
    RUN(messages_are_refused_by_name);
    RUN(errors_have_openais_shape);
    RUN(frames_are_server_sent_events);
    return check_done();
}
