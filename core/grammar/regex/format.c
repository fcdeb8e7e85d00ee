/* format.c - JSON Schema's formats as patterns, compiled on demand. Owns nothing.
 *
 * Limits: a pattern cannot check that the Punycode in a hostname's "xn--" label decodes to a name
 * that IDNA allows. Leap seconds are accepted only at offsets of whole and half hours. "regex"
 * accepts groups up to REGEX_DEPTH deep and omits rare syntax (look-behinds, references, ranges
 * other than of letters and digits); every text that it accepts is valid. Any thread. */
#include "core/base/str.h"
#include "core/grammar/regex/dfa_int.h"

#include <string.h>

/* ---- dates: RFC 3339 ---- */

#define DATE                                                                                       \
    "(?:\\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)" \
    "|02-(?:0[1-9]|1\\d|2[0-8]))"                                                                  \
    "|(?:\\d\\d(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29)"
#define FRACTION "(?:\\.\\d+)?"
#define CLOCK    "(?:[01]\\d|2[0-3]):[0-5]\\d"
#define TIME     CLOCK ":[0-5]\\d" FRACTION "(?:[Zz]|[+-]" CLOCK ")"

#define WITH_TIME "(?:T(?:\\d+H(?:\\d+M(?:\\d+S)?)?|\\d+M(?:\\d+S)?|\\d+S))"
#define DURATION                                                                                   \
    "P(?:(?:\\d+Y(?:\\d+M(?:\\d+D)?)?|\\d+M(?:\\d+D)?|\\d+D)" WITH_TIME "?|" WITH_TIME "|\\d+W)"

/* ---- hosts: RFC 1123, 5890, 4291 ---- */

#define LABEL                                                                                      \
    "(?:[Xx][Nn]--[A-Za-z0-9](?:[A-Za-z0-9-]{0,57}[A-Za-z0-9])?"                                   \
    "|(?!..--)[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?)"
#define HOSTNAME LABEL "(?:\\." LABEL ")*"
/* Letters, digits, marks and the characters that RFC 5892 allows in some contexts. */
#define IDN_FIRST "[a-z0-9\\p{Ll}\\p{Lo}\\p{Lm}\\p{Nd}\\u00B7\\u0375\\u05F3\\u05F4\\u30FB]"
#define IDN_OTHER                                                                                  \
    "[a-z0-9\\p{Ll}\\p{Lo}\\p{Lm}\\p{Nd}\\p{M}\\u00B7\\u0375\\u05F3\\u05F4\\u30FB\\u200C\\u200D]"
/* No length bound: the 63 bytes of a label apply to its Punycode form. */
#define IDN_LABEL    "(?:" LABEL "|(?!..--)" IDN_FIRST "(?:(?:" IDN_OTHER "|-)*" IDN_OTHER ")?)"
#define IDN_HOSTNAME IDN_LABEL "(?:[.\\u3002\\uFF0E\\uFF61]" IDN_LABEL ")*"

#define OCTET "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
#define IPV4  OCTET "(?:\\." OCTET "){3}"
#define H16   "[0-9A-Fa-f]{1,4}"
#define LS32  "(?:" H16 ":" H16 "|" IPV4 ")"
#define IPV6                                                                                       \
    "(?:(?:" H16 ":){6}" LS32 "|::(?:" H16 ":){5}" LS32 "|(?:" H16 ")?::(?:" H16 ":){4}" LS32      \
    "|(?:(?:" H16 ":){0,1}" H16 ")?::(?:" H16 ":){3}" LS32 "|(?:(?:" H16 ":){0,2}" H16             \
    ")?::(?:" H16 ":){2}" LS32 "|(?:(?:" H16 ":){0,3}" H16 ")?::" H16 ":" LS32 "|(?:(?:" H16       \
    ":){0,4}" H16 ")?::" LS32 "|(?:(?:" H16 ":){0,5}" H16 ")?::" H16 "|(?:(?:" H16 ":){0,6}" H16   \
    ")?::)"

/* ---- mail: RFC 5321, 6531 ---- */

#define ATEXT       "A-Za-z0-9!#$%&'*+/=?^_`{|}~\\-"
#define ATOM(chars) "[" ATEXT chars "]+(?:\\.[" ATEXT chars "]+)*"
#define QUOTED(chars)                                                                              \
    "\"(?:[\\x20\\x21\\x23-\\x5B\\x5D-\\x7E" chars "]|\\\\[\\x20-\\x7E" chars "])*\""
#define ADDRESS           "\\[(?:" IPV4 "|IPv6:" IPV6 ")\\]"
#define EMAIL(chars, dom) "(?:" ATOM(chars) "|" QUOTED(chars) ")@(?:" dom "|" ADDRESS ")"

/* ---- references: RFC 3986, 3987; ucs: the unreserved characters that IRIs add ---- */

#define UCS                                                                                        \
    "\\u{A0}-\\u{D7FF}\\u{F900}-\\u{FDCF}\\u{FDF0}-\\u{FFEF}\\u{10000}-\\u{1FFFD}"                 \
    "\\u{20000}-\\u{2FFFD}\\u{30000}-\\u{3FFFD}\\u{40000}-\\u{4FFFD}\\u{50000}-\\u{5FFFD}"         \
    "\\u{60000}-\\u{6FFFD}\\u{70000}-\\u{7FFFD}\\u{80000}-\\u{8FFFD}\\u{90000}-\\u{9FFFD}"         \
    "\\u{A0000}-\\u{AFFFD}\\u{B0000}-\\u{BFFFD}\\u{C0000}-\\u{CFFFD}\\u{D0000}-\\u{DFFFD}"         \
    "\\u{E1000}-\\u{EFFFD}"
#define PRIVATE     "\\u{E000}-\\u{F8FF}\\u{F0000}-\\u{FFFFD}\\u{100000}-\\u{10FFFD}"
#define PCT         "%[0-9A-Fa-f]{2}"
#define PLAIN       "A-Za-z0-9._~!$&'()*+,;=\\-"
#define PCHAR(ucs)  "(?:[" PLAIN ":@" ucs "]|" PCT ")"
#define NOCHAR(ucs) "(?:[" PLAIN "@" ucs "]|" PCT ")"
#define AUTHORITY(ucs)                                                                             \
    "(?:(?:[" PLAIN ":" ucs "]|" PCT ")*@)?"                                                       \
    "(?:\\[(?:" IPV6 "|[Vv][0-9A-Fa-f]+\\.[" PLAIN ":]+)\\]|(?:[" PLAIN ucs "]|" PCT ")*)"         \
    "(?::\\d*)?"
#define ROOTED(ucs)   "//" AUTHORITY(ucs) "(?:/" PCHAR(ucs) "*)*"
#define ABSOLUTE(ucs) "/(?:" PCHAR(ucs) "+(?:/" PCHAR(ucs) "*)*)?"
#define ROOTLESS(ucs) PCHAR(ucs) "+(?:/" PCHAR(ucs) "*)*"
#define NOSCHEME(ucs) NOCHAR(ucs) "+(?:/" PCHAR(ucs) "*)*"
#define QUERY(ucs, private_)                                                                       \
    "(?:\\?(?:[" PLAIN ":@/?" ucs private_ "]|" PCT ")*)?(?:#(?:[" PLAIN ":@/?" ucs "]|" PCT ")*)" \
    "?"
#define URI(ucs, private_)                                                                         \
    "[A-Za-z][A-Za-z0-9+.-]*:(?:" ROOTED(ucs) "|" ABSOLUTE(ucs) "|" ROOTLESS(ucs) ")?" QUERY(      \
        ucs, private_)
#define REFERENCE(ucs, private_)                                                                   \
    "(?:" URI(ucs, private_) "|(?:" ROOTED(ucs) "|" ABSOLUTE(ucs) "|" NOSCHEME(ucs) ")?" QUERY(    \
        ucs, private_) ")"

/* RFC 6570, with erratum 6937: an apostrophe is a literal. */
#define VARNAME "(?:[A-Za-z0-9_]|" PCT ")(?:\\.?(?:[A-Za-z0-9_]|" PCT "))*"
#define VARSPEC VARNAME "(?::[1-9]\\d{0,3}|\\*)?"
#define URI_TEMPLATE                                                                               \
    "(?:[\\x21\\x23\\x24\\x26-\\x3B\\x3D\\x3F-\\x5B\\x5D\\x5F\\x61-\\x7A\\x7E" UCS PRIVATE         \
    "]|" PCT "|\\{[+#./;?&=,!@|]?" VARSPEC "(?:," VARSPEC ")*\\})*"

#define POINTER "(?:/(?:[^~/]|~[01])*)*"
#define HEX(n)  "[0-9A-Fa-f]{" #n "}"

static const struct {
    const char *name, *pattern;
} formats[] = {
    {"date", DATE},
    {"duration", DURATION},
    {"email", EMAIL("", HOSTNAME)},
    {"hostname", HOSTNAME},
    {"idn-email", EMAIL("\\u{80}-\\u{10FFFF}", IDN_HOSTNAME)},
    {"idn-hostname", IDN_HOSTNAME},
    {"ipv4", IPV4},
    {"ipv6", IPV6},
    {"iri", URI(UCS, PRIVATE)},
    {"iri-reference", REFERENCE(UCS, PRIVATE)},
    {"json-pointer", POINTER},
    {"relative-json-pointer", "(?:0|[1-9]\\d*)(?:#|" POINTER ")"},
    {"uri", URI("", "")},
    {"uri-reference", REFERENCE("", "")},
    {"uri-template", URI_TEMPLATE},
    {"uuid", HEX(8) "-" HEX(4) "-" HEX(4) "-" HEX(4) "-" HEX(12)},
};

/* ---- formats whose patterns are generated ---- */

/* A leap second is the last second of a day in UTC, so with an offset it ends the minute before the
 * offset (or before 24 hours minus the offset). */
static void add_time_pattern(str *s) {
    str_add(s, "(?:" TIME "|23:59:60" FRACTION "[Zz]");
    for (int half = 0; half < 48; half++)
        str_addf(s, "|%02d:%02d:60" FRACTION "(?:\\+%02d:%02d|-%02d:%02d)", (half + 47) % 48 / 2,
                 half % 2 ? 29 : 59, half / 2, half % 2 * 30, (48 - half) % 48 / 2, half % 2 * 30);
    str_add(s, ")");
}

enum { REGEX_DEPTH = 3 };

#define RX_ESCAPE                                                                                  \
    "\\\\(?:[dDwWsStnvfr0^$\\\\.*+?()[\\]{}|/]|x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|c[A-Za-z])"
#define RX_MEMBER  "(?:a-z|A-Z|0-9|a-f|A-F|[^\\\\\\]\\-^]|" RX_ESCAPE "|\\\\-)"
#define RX_COUNT   "(?:[*+?]|\\{(?:\\d{1,4},?|[01],[1-9]\\d{0,3})\\})\\??"
#define RX_PRIMARY "[^\\\\^$.*+?()[\\]{}|]|\\.|" RX_ESCAPE "|\\[\\^?" RX_MEMBER "*-?\\]"

static void add_regex_pattern(str *s, int depth) {
    str_add(s, "(?:(?:[\\^$|]|\\\\[bB]|(?:" RX_PRIMARY);
    if (depth) {
        str_add(s, "|\\((?:\\?:)?");
        add_regex_pattern(s, depth - 1);
        str_add(s, "\\)");
    }
    str_add(s, ")(?:" RX_COUNT ")?)*)");
}

static int compile_pattern(str *s, struct work *w, struct dfa *out, err *e) {
    int rc = s->failed ? err_no_memory(e) : dfa_from_regex(str_cstr(s), 0, w, out, e);
    str_fini(s);
    return rc;
}

/* The length bound of a whole name, beside those of its labels. */
static int bound_name_length(struct dfa *d, uint32_t max, struct work *w, struct dfa *out, err *e) {
    struct dfa length = {0};
    int rc = dfa_from_length(1, max, w, &length, e);
    if (!rc) rc = dfa_combine(d, &length, DFA_AND, w, out, e);
    if (!rc) out->cost += d->cost + length.cost;
    dfa_fini(d);
    dfa_fini(&length);
    return rc;
}

int dfa_from_format(const char *format, struct work *w, struct dfa *out, err *e) {
    bool with_date = strcmp(format, "date-time") == 0;
    str s;
    str_init(&s, 1 << 16);
    if (with_date || strcmp(format, "time") == 0) {
        if (with_date) str_add(&s, DATE "[Tt]");
        add_time_pattern(&s);
        return compile_pattern(&s, w, out, e);
    }
    if (strcmp(format, "regex") == 0) {
        add_regex_pattern(&s, REGEX_DEPTH);
        return compile_pattern(&s, w, out, e);
    }
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        struct dfa d = {0};
        if (strcmp(format, formats[i].name) != 0) continue;
        bool bounded = strcmp(format, "hostname") == 0;
        int rc = dfa_from_regex(formats[i].pattern, 0, w, bounded ? &d : out, e);
        return rc || !bounded ? rc : bound_name_length(&d, 253, w, out, e);
    }
    return err_set(e, ERR_NOT_FOUND, "Unknown format \"%.60s\".", format);
}
