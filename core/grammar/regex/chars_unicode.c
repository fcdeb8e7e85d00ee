/* chars_unicode.c - the names of Unicode's properties (ECMA-262, tables of General_Category, Script
 * and binary properties) and their characters. Pure; any thread. */
#include "core/grammar/regex/chars_unicode.h"

#include <string.h>

/* Bits of a set of general categories, in the order of chars_categories' values. */
enum {
    Cc = 1 << 0,
    Cf = 1 << 1,
    Cn = 1 << 2,
    Co = 1 << 3,
    Cs = 1 << 4,
    Ll = 1 << 5,
    Lm = 1 << 6,
    Lo = 1 << 7,
    Lt = 1 << 8,
    Lu = 1 << 9,
    Mc = 1 << 10,
    Me = 1 << 11,
    Mn = 1 << 12,
    Nd = 1 << 13,
    Nl = 1 << 14,
    No = 1 << 15,
    Pc = 1 << 16,
    Pd = 1 << 17,
    Pe = 1 << 18,
    Pf = 1 << 19,
    Pi = 1 << 20,
    Po = 1 << 21,
    Ps = 1 << 22,
    Sc = 1 << 23,
    Sk = 1 << 24,
    Sm = 1 << 25,
    So = 1 << 26,
    Zl = 1 << 27,
    Zp = 1 << 28,
    Zs = 1 << 29,
    LETTERS = Ll | Lm | Lo | Lt | Lu,
    EVERY = (1 << 30) - 1
};

static const struct {
    const char *brief, *name;
    uint32_t set;
} categories[] = {
    {"C", "Other", Cc | Cf | Cn | Co | Cs},
    {"Cc", "Control", Cc},
    {"cntrl", "Control", Cc},
    {"Cf", "Format", Cf},
    {"Cn", "Unassigned", Cn},
    {"Co", "Private_Use", Co},
    {"Cs", "Surrogate", Cs},
    {"L", "Letter", LETTERS},
    {"LC", "Cased_Letter", Ll | Lt | Lu},
    {"Ll", "Lowercase_Letter", Ll},
    {"Lm", "Modifier_Letter", Lm},
    {"Lo", "Other_Letter", Lo},
    {"Lt", "Titlecase_Letter", Lt},
    {"Lu", "Uppercase_Letter", Lu},
    {"M", "Mark", Mc | Me | Mn},
    {"M", "Combining_Mark", Mc | Me | Mn},
    {"Mc", "Spacing_Mark", Mc},
    {"Me", "Enclosing_Mark", Me},
    {"Mn", "Nonspacing_Mark", Mn},
    {"N", "Number", Nd | Nl | No},
    {"Nd", "Decimal_Number", Nd},
    {"digit", "Decimal_Number", Nd},
    {"Nl", "Letter_Number", Nl},
    {"No", "Other_Number", No},
    {"P", "Punctuation", Pc | Pd | Pe | Pf | Pi | Po | Ps},
    {"punct", "Punctuation", Pc | Pd | Pe | Pf | Pi | Po | Ps},
    {"Pc", "Connector_Punctuation", Pc},
    {"Pd", "Dash_Punctuation", Pd},
    {"Pe", "Close_Punctuation", Pe},
    {"Pf", "Final_Punctuation", Pf},
    {"Pi", "Initial_Punctuation", Pi},
    {"Po", "Other_Punctuation", Po},
    {"Ps", "Open_Punctuation", Ps},
    {"S", "Symbol", Sc | Sk | Sm | So},
    {"Sc", "Currency_Symbol", Sc},
    {"Sk", "Modifier_Symbol", Sk},
    {"Sm", "Math_Symbol", Sm},
    {"So", "Other_Symbol", So},
    {"Z", "Separator", Zl | Zp | Zs},
    {"Zl", "Line_Separator", Zl},
    {"Zp", "Paragraph_Separator", Zp},
    {"Zs", "Space_Separator", Zs},
};

/* Categories, and what chars_extras adds. */
static const struct {
    const char *brief, *name;
    uint32_t set, extra;
} properties[] = {
    {"Alpha", "Alphabetic", LETTERS | Nl, CHARS_ALPHABETIC},
    {"Lower", "Lowercase", Ll, CHARS_LOWERCASE},
    {"Upper", "Uppercase", Lu, CHARS_UPPERCASE},
    {"Emoji", "Emoji", 0, CHARS_EMOJI},
    {"EPres", "Emoji_Presentation", 0, CHARS_EMOJI_PRESENTATION},
    {"ExtPict", "Extended_Pictographic", 0, CHARS_EXTENDED_PICTOGRAPHIC},
    {"Any", "Any", EVERY, 0},
    {"Assigned", "Assigned", EVERY & ~(uint32_t)Cn, 0},
};

static const struct chars_range ascii[] = {{0, 0x7F}};
static const struct chars_range hex[] = {{'0', '9'}, {'A', 'F'}, {'a', 'f'}};
static const struct chars_range white_space[] = {
    {0x09, 0x0D},     {0x20, 0x20},     {0x85, 0x85},     {0xA0, 0xA0},     {0x1680, 0x1680},
    {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}};
static const struct {
    const char *brief, *name;
    const struct chars_range *ranges;
    uint32_t n;
} small[] = {
    {"ASCII", "ASCII", ascii, 1},
    {"AHex", "ASCII_Hex_Digit", hex, 3},
    {"space", "White_Space", white_space, sizeof white_space / sizeof *white_space},
};

static bool is(const char *name, size_t n, const char *brief, const char *full) {
    return (strlen(brief) == n && memcmp(name, brief, n) == 0) ||
           (strlen(full) == n && memcmp(name, full, n) == 0);
}

/* Passes a prefix, and says so. */
static bool take(const char **name, size_t *n, const char *prefix) {
    size_t k = strlen(prefix);
    if (*n < k || memcmp(*name, prefix, k) != 0) return false;
    *name += k;
    *n -= k;
    return true;
}

enum compare { ONE_OF_BITS, ANY_BIT, SAME };

/* Adds the runs whose value fits. */
static void add_runs(struct chars *c, const uint32_t *runs, uint32_t n, enum compare how,
                     uint32_t wanted) {
    for (uint32_t i = 0; i < n; i++) {
        uint32_t value = runs[i] & 0xff;
        uint32_t end = i + 1 < n ? runs[i + 1] >> 8 : CHARS_LAST + 1;
        bool fits = how == ONE_OF_BITS ? wanted >> value & 1
                    : how == ANY_BIT   ? (value & wanted) != 0
                                       : value == wanted;
        if (fits) chars_add(c, runs[i] >> 8, end - 1);
    }
}

static bool add_category(struct chars *c, const char *name, size_t n) {
    for (size_t i = 0; i < sizeof categories / sizeof *categories; i++) {
        if (!is(name, n, categories[i].brief, categories[i].name)) continue;
        add_runs(c, chars_categories, chars_categories_n, ONE_OF_BITS, categories[i].set);
        return true;
    }
    return false;
}

static bool add_script(struct chars *c, const char *name, size_t n) {
    for (uint32_t i = 0; i < chars_script_names_n; i++) {
        if (!is(name, n, chars_script_names[i].brief, chars_script_names[i].name)) continue;
        add_runs(c, chars_scripts, chars_scripts_n, SAME, i);
        return true;
    }
    return false;
}

bool chars_add_property(struct chars *c, const char *name, size_t n) {
    if (take(&name, &n, "General_Category=") || take(&name, &n, "gc="))
        return add_category(c, name, n);
    if (take(&name, &n, "Script=") || take(&name, &n, "sc=")) return add_script(c, name, n);
    if (add_category(c, name, n)) return true;
    for (size_t i = 0; i < sizeof properties / sizeof *properties; i++) {
        if (!is(name, n, properties[i].brief, properties[i].name)) continue;
        add_runs(c, chars_categories, chars_categories_n, ONE_OF_BITS, properties[i].set);
        add_runs(c, chars_extras, chars_extras_n, ANY_BIT, properties[i].extra);
        return true;
    }
    for (size_t i = 0; i < sizeof small / sizeof *small; i++) {
        if (!is(name, n, small[i].brief, small[i].name)) continue;
        for (uint32_t k = 0; k < small[i].n; k++)
            chars_add(c, small[i].ranges[k].first, small[i].ranges[k].last);
        return true;
    }
    return false;
}
