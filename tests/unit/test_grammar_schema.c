/* test_grammar_schema.c - JSON Schema: the texts that the grammar of a schema accepts, byte by
 * byte, against recorded verdicts (tests/data/schema/README.md); refusals and their JSON pointers;
 * hostile schemas must be refused quickly. */
#include "core/chat/chat.h"
#include "core/grammar/grammar.h"
#include "tests/support/rng.h"
#include "tests/unit/check.h"

#include "core/base/str.h"

#include <stdlib.h>

enum { N_BYTES = 256, FILE_MAX_BYTES = 4 << 20 };

static void one_byte(const void *arg, int32_t id, struct grammar_token *out) {
    *out = (struct grammar_token){GRAMMAR_TOKEN_TEXT, (const char *)arg + id, 1};
}

static grammar_vocab *bytes_vocab(void) {
    char each[N_BYTES];
    for (int i = 0; i < N_BYTES; i++)
        each[i] = (char)i;
    struct grammar_vocab_config config = {
        .n_vocab = N_BYTES, .token = one_byte, .arg = each, .cache_bytes = 1 << 20};
    grammar_vocab *v = NULL;
    err e = {0};
    CHECK_MSG(grammar_vocab_new(&config, &v, &e) == 0, "%s", e.msg);
    return v;
}

static int compile_as(const struct grammar_schema *s, grammar **g, err *e) {
    grammar_builder *b = grammar_builder_new();
    int rc = grammar_finish(b, grammar_json(b, s), g, e);
    grammar_builder_free(b);
    return rc;
}

/* With the draft's integers, as in the recorded verdicts. */
static int compile(const cJSON *schema, bool in_order, grammar **g, err *e) {
    const struct grammar_schema s = {
        .schema = schema, .in_order = in_order, .draft_integers = true};
    return compile_as(&s, g, e);
}

static int compile_text(const char *schema, bool in_order, grammar **g, err *e) {
    cJSON *s = NULL;
    CHECK(chat_json_parse(schema, strlen(schema), &s, e) == 0);
    int rc = compile(s, in_order, g, e);
    cJSON_Delete(s);
    return rc;
}

/* By masks; accept must agree with them. */
static bool accepts(const grammar *g, grammar_vocab *v, const char *text) {
    uint32_t mask[N_BYTES / 32];
    grammar_matcher *m = NULL;
    err e = {0};
    bool ok = grammar_matcher_new(g, v, &m, &e) == 0;
    CHECK_MSG(ok, "%s", e.msg);
    for (const unsigned char *p = (const unsigned char *)text; *p && ok; p++) {
        grammar_matcher_mask(m, mask);
        ok = mask[*p / 32] >> *p % 32 & 1;
        bool accepted = grammar_matcher_accept(m, *p);
        CHECK_MSG(accepted == ok, "mask and accept differ in %s", text);
    }
    ok = ok && grammar_matcher_may_end(m);
    grammar_matcher_free(m);
    return ok;
}

/* ---- an instance as text ---- */

struct writing {
    const char *comma, *colon;
    bool escapes; /* non-ASCII characters as \u */
};

static void write_escape(str *s, uint32_t c) {
    if (c < 0x10000) {
        str_addf(s, "\\u%04x", (unsigned)c);
    } else {
        c -= 0x10000;
        str_addf(s, "\\u%04x\\u%04x", 0xd800 | (unsigned)(c >> 10), 0xdc00 | (unsigned)(c & 0x3ff));
    }
}

static void write_string(str *s, const char *text, const struct writing *w) {
    str_add_char(s, '"');
    for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
        if (*p == '"' || *p == '\\') {
            str_addf(s, "\\%c", *p);
        } else if (*p == '\n') {
            str_add(s, "\\n");
        } else if (*p < 0x20) {
            write_escape(s, *p);
        } else if (*p >= 0x80 && w->escapes) {
            int more = *p >= 0xf0 ? 3 : *p >= 0xe0 ? 2 : 1;
            uint32_t c = *p & (0x3fu >> more);
            while (more-- > 0)
                c = c << 6 | (*++p & 0x3f);
            write_escape(s, c);
        } else {
            str_add_char(s, (char)*p);
        }
    }
    str_add_char(s, '"');
}

static void write_value(str *s, const cJSON *v, const struct writing *w) {
    bool object = cJSON_IsObject(v);
    if (cJSON_IsString(v)) {
        write_string(s, v->valuestring, w);
    } else if (cJSON_IsNumber(v)) {
        str_add(s, v->valuestring); /* as it was written */
    } else if (cJSON_IsArray(v) || object) {
        str_add_char(s, object ? '{' : '[');
        for (const cJSON *p = v->child; p; p = p->next) {
            if (object) write_string(s, p->string, w);
            if (object) str_add(s, w->colon);
            write_value(s, p, w);
            if (p->next) str_add(s, w->comma);
        }
        str_add_char(s, object ? '}' : ']');
    } else {
        str_add(s, cJSON_IsNull(v) ? "null" : cJSON_IsTrue(v) ? "true" : "false");
    }
}

/* ---- recorded cases ---- */

/* Does a number in v have a fraction or an exponent? */
static bool has_fraction(const cJSON *v) {
    if (cJSON_IsNumber(v)) return strpbrk(v->valuestring, ".eE") != NULL;
    const cJSON *p = v->child;
    while (p && !has_fraction(p))
        p = p->next;
    return p != NULL;
}

struct counts {
    int compiled, refused, verdicts;
};

static void check_case(const cJSON *one, grammar_vocab *v, struct counts *n) {
    static const struct writing writings[] = {
        {",", ":", false}, {", ", ": ", false}, {", ", ":", true}};
    const char *name = cJSON_GetObjectItem(one, "description")->valuestring;
    const cJSON *refused = cJSON_GetObjectItem(one, "refused"), *test;
    const cJSON *schema = cJSON_GetObjectItem(one, "schema");
    grammar *g = NULL, *strict = NULL;
    err e = {0};
    int rc = compile(schema, false, &g, &e);
    n->compiled += rc == 0;
    n->refused += rc != 0;
    CHECK_MSG(!refused || rc, "%s is not refused", name);
    if (rc) {
        CHECK_MSG(rc == ERR_INVALID || rc == ERR_UNSUPPORTED, "%s: %s", name, e.msg);
        CHECK_MSG(e.msg[0] == '#', "%s: no place: %s", name, e.msg);
        if (refused) CHECK_STR(e.param, refused->valuestring);
        return;
    }
    CHECK_MSG(compile_as(&(struct grammar_schema){.schema = schema}, &strict, &e) == 0, "%s",
              e.msg);
    cJSON_ArrayForEach(test, cJSON_GetObjectItem(one, "tests")) {
        const cJSON *data = cJSON_GetObjectItem(test, "data");
        for (size_t i = 0; i < sizeof writings / sizeof writings[0]; i++) {
            bool valid = cJSON_IsTrue(cJSON_GetObjectItem(test, "valid"));
            str text;
            str_init(&text, FILE_MAX_BYTES);
            write_value(&text, data, &writings[i]);
            CHECK_MSG(accepts(g, v, str_cstr(&text)) == valid, "%s: %s", name, str_cstr(&text));
            bool taken = accepts(strict, v, str_cstr(&text));
            CHECK_MSG(taken == valid || (valid && has_fraction(data)), "%s: strict: %s", name,
                      str_cstr(&text));
            str_fini(&text);
            n->verdicts++;
        }
    }
    grammar_release(g);
    grammar_release(strict);
}

static struct counts check_file(const char *path) {
    struct counts n = {0};
    cJSON *cases = NULL, *one;
    err e = {0};
    FILE *f = fopen(path, "rb");
    char *text = malloc(FILE_MAX_BYTES);
    CHECK_MSG(f && text, "%s cannot be read", path);
    if (f && text) {
        size_t size = fread(text, 1, FILE_MAX_BYTES - 1, f);
        text[size] = 0;
        CHECK_MSG(chat_json_parse(text, size, &cases, &e) == 0, "%s: %s", path, e.msg);
    }
    grammar_vocab *v = bytes_vocab();
    cJSON_ArrayForEach(one, cases) check_case(one, v, &n);
    printf("     %s: %d compiled, %d refused, %d verdicts\n", path, n.compiled, n.refused,
           n.verdicts);
    grammar_vocab_free(v);
    cJSON_Delete(cases);
    free(text);
    if (f) fclose(f);
    return n;
}

static void test_keywords(void) {
    struct counts n = check_file("tests/data/schema/keywords.json");
    CHECK(n.compiled == 72 && n.refused == 15);
}

static void test_suite(void) {
    struct counts n = check_file("tests/data/schema/suite.json");
    CHECK(n.compiled >= 230);
}

static void test_random(void) {
    struct counts n = check_file("tests/data/schema/random.json");
    CHECK(n.compiled >= 170);
}

/* ---- order, spaces ---- */

static void test_in_order(void) {
    static const char *const schema =
        "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"type\":"
        "\"null\"},"
        "\"c\":{\"type\":\"integer\"}},\"required\":[\"a\",\"c\"],\"additionalProperties\":false}";
    grammar_vocab *v = bytes_vocab();
    for (int in_order = 0; in_order < 2; in_order++) {
        grammar *g = NULL;
        err e = {0};
        CHECK_MSG(compile_text(schema, in_order, &g, &e) == 0, "%s", e.msg);
        CHECK(accepts(g, v, "{\"a\":1,\"b\":null,\"c\":2}"));
        CHECK(accepts(g, v, "{\"a\":1, \"c\": 2}"));
        CHECK(accepts(g, v, "{\"c\":1,\"a\":2}") == !in_order);
        CHECK(accepts(g, v, "{\"a\":1,\"c\":2,\"b\":null}") == !in_order);
        CHECK(!accepts(g, v, "{\"a\":1,\"a\":2,\"c\":1}"));
        CHECK(!accepts(g, v, "{\"a\":1,\"c\":2"));
        CHECK(!accepts(g, v, "{ \"a\":1,\"c\":2}"));
        CHECK(!accepts(g, v, "{\"a\":1,  \"c\":2}"));
        grammar_release(g);
    }
    grammar_vocab_free(v);
}

/* ---- integers ---- */

static struct rng rng = {7};

static int number_from(int low, int high) {
    return low + (int)rng_below(&rng, (uint32_t)(high - low + 1));
}

/* A satisfiable schema of an integer. */
static void write_integer_schema(str *s) {
    int one = number_from(-300, 300), step = number_from(1, 12);
    str_add(s, "{\"type\":");
    str_add(s, rng_below(&rng, 3) ? "\"integer\"" : "[\"integer\",\"null\"]");
    if (rng_below(&rng, 2)) str_addf(s, ",\"minimum\":%d", one - step - number_from(0, 90));
    if (rng_below(&rng, 3) == 0) str_addf(s, ",\"exclusiveMinimum\":%d.5", one - step - 1);
    if (rng_below(&rng, 2)) str_addf(s, ",\"maximum\":%d.0", one + step + number_from(0, 9));
    if (rng_below(&rng, 3) == 0) str_addf(s, ",\"exclusiveMaximum\":%de0", one + step + 1);
    if (rng_below(&rng, 3) == 0) str_addf(s, ",\"multipleOf\":%d", step);
    if (rng_below(&rng, 4) == 0) str_addf(s, ",\"not\":{\"const\":%d}", one + step + 1);
    str_add_char(s, '}');
}

/* enum, const and alternatives; their values are integers too. */
static void write_listed_schema(str *s) {
    int one = number_from(-300, 300);
    switch (rng_below(&rng, 4)) {
    case 0:
        str_addf(s, "{\"enum\":[%d,%d,%d]}", one, one + 1, -one);
        break;
    case 1:
        str_addf(s, "{\"const\":%d}", one);
        break;
    case 2:
        str_addf(s, "{\"type\":\"integer\",\"enum\":[%d.0,%de1,\"x\",0.5]}", one, one);
        break;
    default:
        str_addf(s, "{\"oneOf\":[{\"const\":%d},{\"type\":\"integer\",\"minimum\":%d}]}", one,
                 one + 1);
    }
}

static double number_of(const cJSON *schema, const char *name, double otherwise) {
    const cJSON *at = cJSON_GetObjectItem(schema, name);
    return at ? at->valuedouble : otherwise;
}

/* Is the number v valid? For the schemas above. */
static bool is_valid(const cJSON *schema, double v) {
    const cJSON *list = cJSON_GetObjectItem(schema, "enum"), *p;
    if (v != (double)(long long)v) return false;
    if (v < number_of(schema, "minimum", v) || v > number_of(schema, "maximum", v)) return false;
    if (v <= number_of(schema, "exclusiveMinimum", v - 1)) return false;
    if (v >= number_of(schema, "exclusiveMaximum", v + 1)) return false;
    double step = number_of(schema, "multipleOf", 1), times = v / step;
    if (times != (double)(long long)times || v != number_of(schema, "const", v)) return false;
    if ((p = cJSON_GetObjectItem(schema, "not")) && v == number_of(p, "const", v + 1)) return false;
    bool found = list == NULL;
    cJSON_ArrayForEach(p, list) found |= cJSON_IsNumber(p) && p->valuedouble == v;
    int matches = 0;
    list = cJSON_GetObjectItem(schema, "oneOf");
    cJSON_ArrayForEach(p, list) matches += is_valid(p, v);
    return found && (!list || matches == 1);
}

/* A random text of g with a number of at most 15 characters; false: none came. */
static bool write_number(const grammar *g, grammar_vocab *v, char text[32]) {
    uint32_t mask[N_BYTES / 32];
    grammar_matcher *m = NULL;
    err e = {0};
    CHECK_MSG(grammar_matcher_new(g, v, &m, &e) == 0, "%s", e.msg);
    bool done = false;
    for (int n = 0; m && !done && n < 15;) {
        int choices[N_BYTES], k = 0;
        grammar_matcher_mask(m, mask);
        for (int c = 0; c < N_BYTES; c++)
            if (mask[c / 32] >> c % 32 & 1) choices[k++] = c;
        bool may_end = grammar_matcher_may_end(m);
        CHECK_MSG(k || may_end, "a dead end after %.*s", n, text);
        if (!k || (may_end && rng_below(&rng, 3) == 0)) {
            done = true;
            text[n] = 0;
            break;
        }
        int c = choices[rng_below(&rng, (uint32_t)k)];
        text[n++] = (char)c;
        CHECK(grammar_matcher_accept(m, c));
    }
    grammar_matcher_free(m);
    return done && text[0] != 'n' && text[0] != '"';
}

static bool is_plain(const char *text) {
    const char *digits = text + (*text == '-');
    return *digits && strspn(digits, "0123456789") == strlen(digits) &&
           (*digits != '0' || (!digits[1] && digits == text));
}

static void test_integers(void) {
    grammar_vocab *v = bytes_vocab();
    int numbers = 0, fractions = 0;
    for (int i = 0; i < 300; i++) {
        str schema;
        str_init(&schema, 1000);
        if (i % 3)
            write_integer_schema(&schema);
        else
            write_listed_schema(&schema);
        cJSON *tree = NULL;
        err e = {0};
        CHECK(chat_json_parse(schema.data, schema.len, &tree, &e) == 0);
        for (int draft = 0; draft < 2; draft++) {
            const struct grammar_schema s = {.schema = tree, .draft_integers = draft};
            grammar *g = NULL;
            char text[32];
            CHECK_MSG(compile_as(&s, &g, &e) == 0, "%s: %s", schema.data, e.msg);
            for (int k = 0; g && k < 40; k++) {
                if (!write_number(g, v, text)) continue;
                numbers++;
                fractions += strpbrk(text, ".eE") != NULL;
                CHECK_MSG(is_valid(tree, strtod(text, NULL)), "%s: %s", schema.data, text);
                CHECK_MSG(draft || is_plain(text), "%s: %s", schema.data, text);
            }
            grammar_release(g);
        }
        cJSON_Delete(tree);
        str_fini(&schema);
    }
    CHECK_MSG(numbers > 5000 && fractions > 200, "%d numbers, %d fractions", numbers, fractions);
    grammar_vocab_free(v);
}

/* ---- schemas with excessive costs ---- */

/* part n times, '%' replaced by its number, between open and close. */
static char *repeated(const char *open, const char *part, int n, const char *close) {
    str s;
    str_init(&s, FILE_MAX_BYTES);
    str_add(&s, open);
    for (int i = 0; i < n; i++) {
        if (i) str_add_char(&s, ',');
        for (const char *p = part; *p; p++) {
            if (*p == '%')
                str_addf(&s, "%d", i);
            else
                str_add_char(&s, *p);
        }
    }
    str_add(&s, close);
    return str_take(&s);
}

static void check_bounded(char *schema, int want) {
    grammar *g = NULL;
    err e = {0};
    int rc = compile_text(schema, false, &g, &e);
    CHECK_MSG(rc == want, "%d %s: %.80s", rc, e.msg, schema);
    grammar_release(g);
    free(schema);
}

/* Neither too many states nor too much work, but too large to store. */
static void test_size(void) {
    grammar_builder *b = grammar_builder_new();
    grammar *g = NULL;
    err e = {0};
    CHECK(grammar_finish(b, grammar_regex(b, "(\\p{L}|\\p{N}){350}"), &g, &e) == ERR_TOO_LONG);
    CHECK_MSG(strstr(e.msg, "32 MiB"), "%s", e.msg);
    grammar_release(g);
    grammar_builder_free(b);
}

static void test_bounds(void) {
    check_bounded(repeated("{\"allOf\":[",
                           "{\"anyOf\":[{\"required\":[\"a%\"]},{\"required\":[\"b%\"]}]}", 40,
                           "]}"),
                  ERR_TOO_LONG);
    check_bounded(repeated("{\"type\":\"object\",\"oneOf\":[",
                           "{\"properties\":{\"k\":{\"const\":\"v%\"}},\"required\":[\"k\"]}", 60,
                           "]}"),
                  0);
    check_bounded(repeated("{\"enum\":[", "\"word %\"", 20000, "]}"), 0);
    check_bounded(repeated("{\"enum\":[", "%", 2000, "]}"), 0);
    check_bounded(repeated("{\"properties\":{", "\"name%\":{\"type\":\"string\"}", 2000, "}}"), 0);
    check_bounded(repeated("{\"allOf\":[", "{\"pattern\":\"^(a|b)*a(a|b){%}$\"}", 20, "]}"),
                  ERR_TOO_LONG);
    check_bounded(repeated("{\"$defs\":{",
                           "\"d%\":{\"properties\":{\"a\":{\"allOf\":[{\"$ref\":\"#/$defs/d%\"},"
                           "{\"minProperties\":%}]}}}",
                           40, "},\"$ref\":\"#/$defs/d7\"}"),
                  0);
    /* Names and references use hash tables: with linear searches these took minutes. */
    check_bounded(repeated("{\"properties\":{", "\"name%\":{}", 60000, "}}"), 0);
    check_bounded(repeated("{\"required\":[", "\"name%\"", 60000, "]}"), 0);
    check_bounded(
        repeated("{\"properties\":{", "\"p%\":{\"$ref\":\"#/x/29999\"}", 30000, "},\"x\":[{}]}"),
        ERR_INVALID);
    /* Automata that are expensive to make although the result is small. */
    check_bounded(repeated("{\"allOf\":[{\"pattern\":\"^(a{499})*c$\"},{\"anyOf\":[",
                           "{\"pattern\":\"^(a{5%})*b$\"}", 400, "]}]}"),
                  ERR_TOO_LONG);
    check_bounded(repeated("{\"enum\":[", "[%,\"%\"]", 1000, "]}"), 0);
    check_bounded(repeated("{\"oneOf\":[",
                           "{\"properties\":{\"k\":{\"const\":\"v%\"}},\"required\":[\"k\"]}", 600,
                           "]}"),
                  ERR_TOO_LONG);
    check_bounded(repeated("{\"minLength\":100000,\"allOf\":[", "{\"pattern\":\"x%\"}", 3, "]}"),
                  ERR_TOO_LONG);
}

/* A property's value alone: references and places are the whole document's. */
static void test_part(void) {
    const char *text = "{\"$defs\":{\"n\":{\"type\":\"integer\",\"minimum\":7}},\"properties\":{"
                       "\"a\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/n\"}},"
                       "\"b\":{\"pattern\":\"(\"}},\"required\":[\"b\"]}";
    grammar_vocab *v = bytes_vocab();
    cJSON *s = NULL;
    grammar *g = NULL;
    err e = {0};
    CHECK(chat_json_parse(text, strlen(text), &s, &e) == 0);
    const cJSON *properties = cJSON_GetObjectItem(s, "properties");
    struct grammar_schema part = {.schema = s, .part = cJSON_GetObjectItem(properties, "a")};
    CHECK_MSG(compile_as(&part, &g, &e) == 0, "%s", e.msg);
    CHECK(accepts(g, v, "[7, 12]") && !accepts(g, v, "[6]") && !accepts(g, v, "{\"a\":[7]}"));
    grammar_release(g);
    part.part = cJSON_GetObjectItem(properties, "b");
    CHECK(compile_as(&part, &g, &e) == ERR_INVALID && strstr(e.msg, "#/properties/b/pattern"));
    cJSON_Delete(s);
    grammar_vocab_free(v);
}

int main(void) {
    RUN(test_part);
    RUN(test_keywords);
    RUN(test_suite);
    RUN(test_random);
    RUN(test_in_order);
    RUN(test_integers);
    RUN(test_bounds);
    RUN(test_size);
    return check_done();
}
