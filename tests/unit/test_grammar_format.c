/* Formats: the cases of the JSON Schema Test Suite, if it is available, and tables of our own. */
#include "check.h"
#include "core/grammar/grammar_int.h"

#include <cjson/cJSON.h>
#include <stdlib.h>

static const char suite[] =
    "../shared/data/json-schema-test-suite/tests/draft2020-12/optional/format";

/* ---- the suite ---- */

static char *read_all(const char *path) {
    FILE *f = fopen(path, "rb");
    char *text = NULL;
    long n;
    if (!f) return NULL;
    if (fseek(f, 0, SEEK_END) == 0 && (n = ftell(f)) >= 0 && fseek(f, 0, SEEK_SET) == 0) {
        text = calloc(1, (size_t)n + 1);
        if (text && fread(text, 1, (size_t)n, f) != (size_t)n) text[0] = 0;
    }
    fclose(f);
    return text;
}

/* Automata cannot decode Punycode: such labels are accepted. */
static bool beyond_us(const char *format, const char *data) {
    return strcmp(format, "hostname") == 0 && (data[0] == 'x' || data[0] == 'X') &&
           strncmp(data + 2, "--", 2) == 0;
}

static int check_case(const char *format, const struct dfa *d, const cJSON *test) {
    const cJSON *data = cJSON_GetObjectItem(test, "data");
    bool valid = cJSON_IsTrue(cJSON_GetObjectItem(test, "valid"));
    const char *about = cJSON_GetObjectItem(test, "description")->valuestring;
    if (strstr(about, "NUL")) return 0; /* cJSON's strings end there */
    if (!cJSON_IsString(data) || (!valid && beyond_us(format, data->valuestring))) return 0;
    CHECK_MSG(dfa_accepts(d, data->valuestring, strlen(data->valuestring)) == valid,
              "%s \"%s\" (%s): want %d", format, data->valuestring, about, valid);
    return 1;
}

static void cases_of_the_suite(void) {
    static const char *const names[] = {"date-time", "date",         "email", "hostname", "ipv4",
                                        "iri",       "json-pointer", "regex", "uri",      "uuid"};
    int n = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[256];
        struct dfa d;
        err e;
        snprintf(path, sizeof path, "%s/%s.json", suite, names[i]);
        char *text = read_all(path);
        cJSON *groups = text ? cJSON_Parse(text) : NULL;
        const cJSON *group, *test;
        if (!groups) continue;
        CHECK(dfa_from_format(names[i], NULL, &d, &e) == 0);
        cJSON_ArrayForEach(group, groups)
            cJSON_ArrayForEach(test, cJSON_GetObjectItem(group, "tests")) n +=
            check_case(names[i], &d, test);
        dfa_fini(&d);
        cJSON_Delete(groups);
        free(text);
    }
    if (n)
        CHECK_MSG(n > 250, "%d cases", n);
    else
        SKIP("cases_of_the_suite", "../shared/data/json-schema-test-suite is not there");
}

/* ---- tables ---- */

struct row {
    const char *format, *accepted[18], *refused[18];
};

static const struct row rows[] = {
    {"date",
     {"2024-02-29", "2000-02-29", "0000-02-29"},
     {"1900-02-29", "2023-02-29", "2024-02-30", "2024-2-1"}},
    {"time",
     {"08:30:06Z", "23:59:60Z", "23:59:60z", "23:59:60+00:00", "01:29:60+01:30", "23:29:60+23:30",
      "15:59:60-08:00", "00:29:60-23:30", "23:20:50.52Z", "08:30:06+00:20", "08:30:06-08:00",
      "23:59:59+23:59", "15:59:60.5-08:00"},
     {"008:030:006Z", "8:3:6Z", "8:0030:6Z", "22:59:60Z", "23:58:60Z", "22:59:60+00:00",
      "23:59:60+01:00", "23:59:60+00:30", "23:59:60-01:00", "24:00:00Z", "00:60:00Z", "00:00:61Z",
      "01:02:03+24:00", "01:02:03+00:60", "01:02:03", "01:02:03Z+00:30", "12:00:00.52",
      "08:30:06#00:20"}},
    {"date-time",
     {"2016-12-31T23:59:60Z", "2016-12-31t15:59:60-08:00", "2024-02-29T00:00:00Z"},
     {"2023-02-29T00:00:00Z", "2024-01-01 00:00:00Z", "2024-01-01T00:00:00"}},
    {"duration",
     {"P4DT12H30M5S", "P4Y", "PT0S", "P0D", "P1M", "PT1M", "PT36H", "P1DT12H", "P2W", "P1Y2M3D"},
     {"PT1D", "4DT12H30M5S", "P", "P1YT", "PT", "P2D1Y", "P1D2H", "P2S", "P1Y2W", "P1", "P1YD",
      "P2W1D", "PT1H1S", "P1Y1D", "\xE0\xA7\xA8Y"}},
    {"email",
     {"a@b", "\"a\\\"b\"@example.com", "a.b+c@sub.example.org", "x@[IPv6:2001:db8::1]"},
     {"a@-b.com", "a@b..c", "\"a\"b@c.d", "a@[1.2.3]", "a@b.com.", "\xC3\xA4@b.com"}},
    {"idn-email",
     {"\xEC\x8B\xA4\xEB\xA1\x80@\xEC\x8B\xA4\xEB\xA1\x80.\xED\x85\x8C\xEC\x8A\xA4\xED\x8A\xB8",
      "joe.bloggs@example.com"},
     {"2962", "@b", "a@"}},
    {"hostname", {"a", "A-1.b", "xn--4gbwdl.xn--wgbh1c"}, {"ab--c.d", "a..b", "a_b", "a b", "-"}},
    {"idn-hostname",
     {"\xEC\x8B\xA4\xEB\xA1\x80.\xED\x85\x8C\xEC\x8A\xA4\xED\x8A\xB8", "hostname", "host-name",
      "\xE3\x82\xA2\xE3\x83\xBB",
      "a\xE3\x80\x82"
      "b"},
     {"-\xEC\x8B\xA4", "\xE2\x82\xAC.de", "a b", "", "\xE3\x80\xAE\xEC\x8B\xA4", "."}},
    {"ipv4", {"1.2.3.4"}, {"087.10.0.1", "1.2.3.04"}},
    {"ipv6",
     {"::1", "::", "::abef", "1::", "d6::", "1:2::8", "1::d6:192.168.0.1", "1:2::192.168.0.1",
      "::ffff:192.168.0.1", "1:2:3:4:5:6:7:8", "::2:3:4:5:6:7:8",
      "1:2:3:4:5:6:7::", "1000:1000:1000:1000:1000:1000:255.255.255.255", "1::2:3"},
     {"12345::", "::abcef", "1:1:1:1:1:1:1:1:1:1:1:1:1:1:1:1", "::laptop", ":2:3:4:5:6:7:8",
      "1:2:3:4:5:6:7:", ":2:3:4::8", "1:2:3:4:5:::8", "1::2::3", "1::2:192.168.256.1", "1:2:3",
      "127.0.0.1", "1:2:3:4:1.2.3", "  ::1", "fe80::a%eth1", "::1/64", "1:2:3:4:5:6:7:8:9",
      "1:2:3:4:5:6:7::8:9"}},
    {"uri",
     {"urn:a", "a:", "http://a:80/b?c#d", "http://u:p@h", "a:/b//c"},
     {"a", "", "http://a:8a/", "a:b#c#d", "a:[b]"}},
    {"uri-reference",
     {"", "/abc", "abc", "//foo.bar/?baz=qux#quux", "#frag", "?q", "a:b", "./a:b", "#ra"},
     {"\\\\WINDOWS\\fileshare", "#frag\\ment", "a^b", ":a", "1:a"}},
    {"iri-reference", {"/\xC3\xA2\xCF\x80\xCF\x80", "#\xC6\x92r", ""}, {"\\\\a", "#a\\b"}},
    {"uri-template",
     {"http://example.com/dictionary/{term:1}/{term}", "http://example.com/dictionary", "{?q,r*}",
      "dictionary/{term:1}/{term}", ""},
     {"http://example.com/dictionary/{term:1}/{term", "{}", "a b", "{a:0}", "{a:10000}", "%g1"}},
    {"uuid", {}, {"", "00000000-0000-0000-0000-00000000000"}},
    {"relative-json-pointer",
     {"1", "0/foo/bar", "2/0/baz/1/zip", "0#", "120/foo/bar"},
     {"/foo/bar", "-1/foo/bar", "+1/foo/bar", "0##", "01/a", "01#", "", "1a"}},
    {"regex",
     {"", "^abc$", "a|b", "(a(b(?:c)))+", "[a-z0-9_]*", "\\d{2,}", "\\u00e9?", "[^\\]]", "a{1,5}?"},
     {"(", ")", "a**", "[", "*a", "\\", "a{2", "[z-a]x\\", "a{", "+", "{1}", "\\q"}},
};

static void tables(void) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct dfa d;
        err e = {0};
        int rc = dfa_from_format(rows[i].format, NULL, &d, &e);
        CHECK_MSG(rc == 0, "%s: %s", rows[i].format, e.msg);
        for (int k = 0; k < 18 && !rc; k++) {
            const char *yes = rows[i].accepted[k], *no = rows[i].refused[k];
            if (yes) CHECK_MSG(dfa_accepts(&d, yes, strlen(yes)), "%s: %s", rows[i].format, yes);
            if (no) CHECK_MSG(!dfa_accepts(&d, no, strlen(no)), "%s: %s", rows[i].format, no);
        }
        if (!rc) dfa_fini(&d);
    }
}

static void long_names(void) {
    char name[300] = "";
    struct dfa d;
    err e;
    CHECK(dfa_from_format("hostname", NULL, &d, &e) == 0);
    for (int i = 0; i < 126; i++)
        strcat(name, "a.");
    strcat(name, "a");
    CHECK(strlen(name) == 253 && dfa_accepts(&d, name, 253));
    strcat(name, "a");
    CHECK(!dfa_accepts(&d, name, 254));
    memset(name, 'b', 64);
    CHECK(dfa_accepts(&d, name, 63) && !dfa_accepts(&d, name, 64));
    dfa_fini(&d);
}

static void unknown(void) {
    struct dfa d = {0};
    err e = {0};
    CHECK(dfa_from_format("colour", NULL, &d, &e) == ERR_NOT_FOUND && !d.next && e.msg[0]);
}

/* Every text accepted as a regex must compile. */
static int compiles(void *arg, const char *bytes, size_t n) {
    char pattern[64];
    struct dfa d;
    err e = {0};
    snprintf(pattern, sizeof pattern, "%.*s", (int)n, bytes);
    int rc = dfa_from_regex(pattern, 0, NULL, &d, &e);
    CHECK_MSG(rc == 0, "%s: %s", pattern, e.msg);
    if (!rc) dfa_fini(&d);
    ++*(int *)arg;
    return 0;
}

static void regexes_compile(void) {
    struct dfa regex, short_ones, both;
    err e;
    int n = 0;
    CHECK(dfa_from_format("regex", NULL, &regex, &e) == 0);
    CHECK(dfa_from_regex("[ab\\\\^$|()[\\]{}?*+.,:1-]{0,4}", 0, NULL, &short_ones, &e) == 0);
    CHECK(dfa_combine(&regex, &short_ones, DFA_AND, NULL, &both, &e) == 0);
    CHECK(dfa_each(&both, 200000, compiles, &n) == 0);
    CHECK_MSG(n > 10000, "%d patterns", n);
    dfa_fini(&regex);
    dfa_fini(&short_ones);
    dfa_fini(&both);
}

int main(void) {
    RUN(cases_of_the_suite);
    RUN(tables);
    RUN(long_names);
    RUN(unknown);
    RUN(regexes_compile);
    return check_done();
}
