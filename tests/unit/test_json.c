/* test_json.c - the strict JSON reader against JSONTestSuite, reading objects by tables, the
 * tables' descriptions, and the writers' output read by another parser (cJSON's). */
#include "api/http/ignored.h"
#include "api/http/json.h"

#include "core/base/mem.h"
#include "core/text/json.h"
#include "core/text/utf8.h"

#include "check.h"
#include "tests/support/files.h"
#include "tests/support/rng.h"

#include <dirent.h>
#include <stdlib.h>

/* ---- helpers ---- */

static cJSON *parse(const char *text) {
    cJSON *v = NULL;
    err e = {0};
    CHECK_MSG(json_parse(text, strlen(text), &v, &e) == 0, "%s: %s", text, e.msg);
    return v;
}

/* Refused with a message that contains `why`. */
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
    if (strcmp(name, "y_object_escaped_null_in_key.json") == 0) return "u0000";
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
        {"{\"a\\u0000\":1}", "u0000"},
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
        {"\xef\xbb\xbf\xef\xbb\xbf{}", "unexpected character at byte 3"},
        {" \xef\xbb\xbf{}", "unexpected character"},
        {"\"\xc3\"", "not valid UTF-8"},
        {"\"\xed\xa0\x80\"", "not valid UTF-8"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        refuses(rows[i][0], strlen(rows[i][0]), rows[i][1]);
    refuses("\"a\0b\"", 5, "control character");
}

static void json_errors_name_the_path(void) {
    static const char *const rows[][2] = {
        {"{\"messages\":[{},{\"tool_calls\":[{\"id\":1,\"b\":2,\"id\":3}]}]}",
         "duplicate key \"id\" in the object at byte 31, messages[1].tool_calls[0]"},
        {"{\"a\":1,\"a\":2}", "duplicate key \"a\" in the object at byte 0"},
        {"{\"messages\":[{\"content\":\"a\"},{\"content\":tru}]}",
         "unexpected character at byte 40 in messages[1].content"},
        {"{\"a\":[1,2,{\"b c\":[\"\\x\"]}]}", "unknown escape at byte 21 in a[2][\"b c\"][0]"},
        {"{\"a\":{\"b\":1,}}", "expected a key at byte 12 in a"},
        {"[[1,2", "expected ',' or ']' at byte 5 in [0]"},
        {"{\"a\":[\"\xc3\"]}", "not valid UTF-8 in a[0] (byte 7)"},
        {"{\"\":{\"\xc3\xa4\":-}}", "bad number at byte 11 in [\"\"][\"\xc3\xa4\"]"},
        {"{} \xff", "not valid UTF-8 (byte 3)"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        refuses(rows[i][0], strlen(rows[i][0]), rows[i][1]);
    /* Errors in the root have no path. */
    cJSON *v = NULL;
    err e = {0};
    CHECK(json_parse("{\"a\" 1}", 7, &v, &e) == ERR_FORMAT);
    CHECK_STR(e.msg, "the request body is not valid JSON: expected ':' at byte 5");
    /* A path of long keys is truncated to fit. */
    char text[2000] = "";
    for (int i = 0; i < 12; i++)
        strcat(text, "{\"\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac"
                     "\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac"
                     "\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac\":");
    CHECK(json_parse(text, strlen(text), &v, &e) == ERR_FORMAT);
    CHECK_MSG(strlen(e.msg) < 280 && utf8_valid(e.msg, strlen(e.msg)), "%s", e.msg);
    CHECK_STR(e.msg + strlen(e.msg) - 3, "...");
}

/* Each rule allows only its own extension. */
static void rules_allow_what_they_name(void) {
    static const struct json_rules strict = {.max_depth = 3}, open = {.max_depth = 3,
                                                                      .nul = JSON_NUL_ENDS,
                                                                      .duplicate_keys = true,
                                                                      .control_characters = true,
                                                                      .byte_order_mark = true,
                                                                      .all_literals = true};
    static const struct {
        const char *text;
        const char *first; /* its printed tree by the open rules; NULL: refused by both */
    } rows[] = {
        {"{\"a\":1,\"a\":2}", "{\"a\":1,\"a\":2}"},
        {"\"a\nb\"", "\"a\\nb\""},
        {"\xef\xbb\xbf[]", "[]"},
        {"\xef\xbb\xbf\xef\xbb\xbf[]", NULL},
        {" \xef\xbb\xbf[]", NULL},
        {"[[[[]]]]", NULL},
        {"{\"a\":01}", NULL},
        {"[1.]", NULL},
        {"\"\\ud800\"", NULL},
        {"[1]]", NULL},
        {"\"\xc0\x80\"", NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        cJSON *v = NULL;
        CHECK_MSG(
            json_decode(rows[i].text, strlen(rows[i].text), &strict, &v, NULL) == ERR_FORMAT && !v,
            "%s", rows[i].text);
        int rc = json_decode(rows[i].text, strlen(rows[i].text), &open, &v, NULL);
        char *printed = v ? cJSON_PrintUnformatted(v) : NULL;
        CHECK_MSG(rows[i].first ? printed && strcmp(printed, rows[i].first) == 0 : rc == ERR_FORMAT,
                  "%s: %d %s", rows[i].text, rc, printed ? printed : "");
        cJSON_free(printed);
        cJSON_Delete(v);
    }
    cJSON *v = NULL;
    CHECK(json_decode("[7,\"a\\u0000b\"]", 14, &open, &v, NULL) == 0);
    if (v) CHECK_STR(v->child->valuestring, "7");
    if (v) CHECK_STR(v->child->next->valuestring, "a");
    cJSON_Delete(v);
    CHECK(json_decode("\"\0\"", 3, &open, &v, NULL) == ERR_FORMAT && !v);
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

/* Random bytes, truncated and damaged copies of a real body: never a crash, never a tree on
 * failure. */
static void json_random_bytes_are_harmless(void) {
    static const char seed[] =
        "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"h\\u00e9\\ud83d\\ude00\"}]"
        ","
        "\"seed\":-9007199254740993,\"stop\":[\"a\",\"b\"],\"x\":[1.5e-3,true,null,{}]}";
    struct rng rng = {12345};
    char buf[sizeof seed];
    for (int round = 0; round < 20000; round++) {
        memcpy(buf, seed, sizeof seed);
        size_t n = sizeof seed - 1;
        for (int k = 0; k < 3; k++) {
            buf[rng_next(&rng) % n] = (char)rng_next(&rng);
        }
        if (rng_next(&rng) & 1) n = rng_next(&rng) % n;
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

/* U+0000: two bytes in the tree, a NUL with a length on request, an escape again when written. */
static void nuls_survive(void) {
    static const char text[] = "{\"k\":[\"\\u0000\",\"a\\u0000\\u0000b\",\"\xc3\x80\"]}";
    static const char wanted[] = "a\0\0b";
    cJSON *v = parse(text);
    const cJSON *list = v->child, *two = cJSON_GetArrayItem(list, 1);
    char bytes[16];
    CHECK(json_holds_nul(v) && json_holds_nul(two) && !json_holds_nul(cJSON_GetArrayItem(list, 2)));
    CHECK(text_restore_nuls(bytes, two->valuestring) == 4 && memcmp(bytes, wanted, 5) == 0);
    CHECK(text_restore_nuls(bytes, list->child->valuestring) == 1 && bytes[0] == 0);
    CHECK(text_restore_nuls(bytes, "\xc3\x80\xc0") == 3 && strcmp(bytes, "\xc3\x80\xc0") == 0);
    str s;
    str_init(&s, 4096);
    json_add_value(&s, v);
    CHECK_STR(str_cstr(&s), text);
    str_fini(&s);
    cJSON_Delete(v);
    refuses("\"\xc0\x80\"", 4, "not valid UTF-8"); /* no client can write it directly */
}

/* ---- objects by tables ---- */

/* One row of each kind, in two levels. */
struct sample {
    const char *text, *word;
    const cJSON *list, *any, *object, *label;
    int64_t number;
    bool has_number;
};
#define SAMPLE(member) .offset = offsetof(struct sample, member)
static const struct json_field inner_rows[] = {
    {"word", JSON_ENUM, JSON_REQUIRED, SAMPLE(word), .words = "on|off", .initial = "\"off\""}};
static const struct json_table inner_table = JSON_TABLE(inner_rows, NULL);
static const struct json_field echo_rows[] = {
    {"word", JSON_ENUM, 0, SAMPLE(word), .words = "on|off"},
    {"hint", JSON_ADVISORY, 0, .why = "it changes nothing"},
    {"parts", JSON_ARRAY, 0, SAMPLE(list), .table = &inner_table},
};
static const struct json_table echo_table = JSON_TABLE(echo_rows, NULL);
static const struct json_table *tool_of(const cJSON *tool) {
    return cJSON_HasObjectItem(tool, "hosted") ? NULL : &inner_table;
}
static const struct json_table tool_table = {.of = tool_of};
static const struct json_field sample_rows[] = {
    {"text", JSON_STRING, 0, SAMPLE(text), .min = 1, .max = 3},
    {"word", JSON_ENUM, JSON_NULLABLE, SAMPLE(word), .words = "low|high"},
    {"list", JSON_ARRAY, 0, SAMPLE(list), .min = 1, .max = 2, .table = &inner_table},
    {"object", JSON_OBJECT, 0, SAMPLE(object), .table = &inner_table, .help = "an \"inner\" one"},
    {"any", JSON_VALUE, JSON_OR_STRING | JSON_OR_ARRAY, SAMPLE(any), .table = &inner_table},
    {"number", JSON_INT, 0, SAMPLE(number), .has = 1 + offsetof(struct sample, has_number),
     .min = -9223372036854775808.0, .max = 9223372036854775808.0},
    {"gone", JSON_REFUSED, JSON_NULLABLE, .words = "auto|none", .why = "it is gone"},
    {"with_nul", JSON_STRING, JSON_WITH_NUL, SAMPLE(text), .max = 3},
    {"hint", JSON_ADVISORY, 0, .words = "auto", .why = "it changes nothing"},
    {"label", JSON_ADVISORY, JSON_KEPT, SAMPLE(label), .why = "it changes nothing"},
    {"echoes", JSON_ARRAY, JSON_ECHOED, SAMPLE(list), .table = &echo_table},
    {"tools", JSON_ARRAY, 0, SAMPLE(list), .table = &tool_table},
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
        {"{\"text\":\"a\\u0000\"}", ERR_INVALID, "U+0000"},
        {"{\"word\":\"high\\u0000\"}", ERR_INVALID, "U+0000"},
        {"{\"any\":[1,{\"x\":[\"\\u0000\"]}]}", ERR_INVALID, "U+0000"},
        {"{\"with_nul\":\"\\u0000b\\u0000\"}", 0, ""},
        {"{\"with_nul\":\"a\\u0000\\u0000\\u0000\"}", ERR_INVALID, "at most 3 characters"},
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
        {"{\"gone\":{\"a\":1}}", ERR_UNSUPPORTED, "it is gone"},
        {"{\"gone\":0}", ERR_UNSUPPORTED, "it is gone"},
        {"{\"gone\":{}}", 0, ""},
        {"{\"gone\":[]}", 0, ""},
        {"{\"gone\":\"\"}", 0, ""},
        {"{\"gone\":false}", 0, ""},
        {"{\"hint\":[\"\\u0000\"]}", 0, ""},
        {"{\"label\":5}", 0, ""},
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

/* The header and the rest of the body after sifting. */
static void expect_sifted(const char *body, const char *header, const char *rest) {
    struct ignored list = {0};
    char names[IGNORED_HEADER_BYTES];
    err e = {0};
    cJSON *v = parse(body);
    CHECK(ignored_sift(&list, v, &sample_table, &e) == 0);
    ignored_header(&list, names);
    CHECK_STR(names, header);
    char *text = cJSON_PrintUnformatted(v);
    CHECK_STR(text, rest);
    cJSON_free(text);
    cJSON_Delete(v);
}

/* Dropped at every level that a table describes, and named in a form that fits a header. */
static void unknown_fields_are_dropped_and_named(void) {
    expect_sifted(
        "{\"new\":1,\"\":2,\"text\":\"ab\",\"list\":[{\"word\":\"on\",\"x\":{}},3,{\"y\":[]}],"
        "\"object\":{\"z\":null,\"word\":\"off\"},\"any\":\"q\","
        "\"a\\r\\nb: c\\u20ac\":0}",
        "new, ?, list[0].x, list[2].y, object.z, a??b??c?",
        "{\"text\":\"ab\",\"list\":[{\"word\":\"on\"},3,{}],\"object\":{\"word\":\"off\"},"
        "\"any\":\"q\"}");
}

/* Harmless values are not reported. A field in many objects is named once. */
static void advisory_fields_are_named(void) {
    static const char many[] =
        "{\"hint\":{\"a\":1},\"label\":\"x\",\"tools\":[{\"word\":\"on\"},"
        "{\"hosted\":1},{\"hosted\":2}],\"echoes\":[{\"hint\":1},{\"hint\":2}]}";
    static const char harmless[] =
        "{\"hint\":\"auto\",\"label\":null,\"echoes\":[{\"hint\":\"\"}]}";
    expect_sifted(many, "hint, label, tools[1], tools[2], echoes[0].hint",
                  "{\"label\":\"x\",\"tools\":[{\"word\":\"on\"},{\"hosted\":1},{\"hosted\":2}],"
                  "\"echoes\":[{},{}]}");
    expect_sifted(harmless, "", "{\"label\":null,\"echoes\":[{}]}");
    expect_sifted("{\"text\":null,\"echoes\":[{\"word\":null,\"parts\":[{\"word\":null}]}]}", "",
                  "{\"text\":null,\"echoes\":[{\"parts\":[{}]}]}");
    struct sample out = {0};
    err e = {0};
    cJSON *v = parse("{\"hint\":5,\"label\":7}");
    CHECK(json_read(v, &sample_table, "", &out, &e) == 0);
    CHECK(cJSON_IsNumber(out.label) && out.label->valuedouble == 7);
    cJSON_Delete(v);
}

/* With refuse, each is an error; but clients cannot choose what they echo. */
static void ignored_fields_can_be_refused(void) {
    static const struct {
        const char *body;
        int want;
        const char *param;
    } rows[] = {
        {"{\"new\":1}", ERR_INVALID, "new"},
        {"{\"object\":{\"new\":1}}", ERR_INVALID, "object.new"},
        {"{\"hint\":1}", ERR_UNSUPPORTED, "hint"},
        {"{\"hint\":\"auto\"}", 0, ""},
        {"{\"tools\":[{},{\"hosted\":1}]}", ERR_UNSUPPORTED, "tools[1]"},
        {"{\"echoes\":[{\"hint\":1,\"new\":1,\"parts\":[{\"new\":1}]}]}", 0, ""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct ignored list = {.refuse = true};
        err e = {0};
        cJSON *v = parse(rows[i].body);
        int rc = ignored_sift(&list, v, &sample_table, &e);
        CHECK_MSG(rc == rows[i].want && strcmp(e.param, rows[i].param) == 0, "%s: %d %s %s",
                  rows[i].body, rc, e.param, e.msg);
        cJSON_Delete(v);
    }
}

/* Thousands of names: the list, the header and the counts stay bounded, and say that there is more.
 */
static void ignored_fields_are_bounded(void) {
    struct ignored list = {0};
    struct ignored_counts *counts = mem_new(1, sizeof *counts);
    char names[IGNORED_HEADER_BYTES], name[32];
    err e = {0};
    cJSON *v = parse("{\"hint\":1}");
    for (int i = 0; i < 5000; i++) {
        snprintf(name, sizeof name, "field_%d", i);
        cJSON_AddNumberToObject(v, name, i);
    }
    CHECK(ignored_sift(&list, v, &sample_table, &e) == 0);
    CHECK(list.n == IGNORED_MAX && cJSON_GetArraySize(v) == 0);
    ignored_header(&list, names);
    CHECK_MSG(strlen(names) < IGNORED_HEADER_BYTES && strncmp(names, "hint, field_0, ", 15) == 0 &&
                  strcmp(names + strlen(names) - 5, ", ...") == 0,
              "%s", names);
    ignored_counts_init(counts);
    ignored_counts_add(counts, 3, &list);
    ignored_counts_add(counts, 3, &list);
    uint64_t n = 0, known = 0, unknown = 0;
    for (size_t i = 0; i < IGNORED_COUNTS; i++) {
        const struct ignored_count *slot = &counts->slots[i];
        if (!slot->n) continue;
        n++;
        CHECK(slot->row == 3);
        if (strcmp(slot->field, "hint") == 0) known = slot->n;
        if (strcmp(slot->field, "unknown") == 0) unknown = slot->n;
    }
    CHECK(n == 2 && known == 2 && unknown == 10000);
    ignored_counts_fini(counts);
    free(counts);
    cJSON_Delete(v);
}

static void tables_are_written_as_json(void) {
    str s;
    str_init(&s, 65536);
    json_add_table(&s, &sample_table);
    cJSON *v = parse(str_cstr(&s));
    CHECK(cJSON_GetArraySize(v) == 12);
    char *first = cJSON_PrintUnformatted(cJSON_GetArrayItem(v, 0));
    CHECK_STR(first,
              "{\"name\":\"text\",\"type\":\"string\",\"required\":false,\"nullable\":false,"
              "\"default\":null,\"minimum\":1,\"maximum\":3,\"values\":null,\"class\":\"honoured\","
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
    CHECK_STR(cJSON_GetStringValue(cJSON_GetObjectItem(gone, "class")), "refused");
    CHECK_STR(cJSON_GetStringValue(cJSON_GetObjectItem(cJSON_GetArrayItem(v, 8), "class")),
              "advisory");
    CHECK_STR(cJSON_GetStringValue(cJSON_GetObjectItem(gone, "reason")), "it is gone");
    cJSON_Delete(v);
    str_fini(&s);
}

int main(void) {
    DIR *shared = opendir("../shared/data/json-test-suite");
    RUN(json_suite_part);
    if (shared) {
        RUN(json_suite_whole);
        closedir(shared);
    } else {
        SKIP("json_suite_whole", "no ../shared/data/json-test-suite");
    }
    RUN(json_refuses_what_cjson_lets_pass);
    RUN(json_errors_name_the_path);
    RUN(rules_allow_what_they_name);
    RUN(json_limits_hold);
    RUN(json_many_keys_cost_no_square);
    RUN(json_strings_are_decoded);
    RUN(json_integers_are_exact);
    RUN(json_random_bytes_are_harmless);
    RUN(writers_are_read_back);
    RUN(nuls_survive);
    RUN(rows_of_every_kind_are_read);
    RUN(unknown_fields_are_dropped_and_named);
    RUN(advisory_fields_are_named);
    RUN(ignored_fields_can_be_refused);
    RUN(ignored_fields_are_bounded);
    RUN(tables_are_written_as_json);
    return check_done();
}
