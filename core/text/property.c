/* property.c - the names of Unicode's properties and their characters. Pure; any thread. */
#include "core/text/property.h"

#include <string.h>

enum { LAST = 0x10ffff };

/* Bits of a set of general categories, in the order of property_categories' values. */
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

/* Values of property_categories beyond the categories: Lu and Ll in turn, beginning with ... */
enum { LU_LL = 30, LL_LU = 31 };

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

/* Categories, and what property_extras adds. */
static const struct {
    const char *brief, *name;
    uint32_t set, extra;
} properties[] = {
    {"Alpha", "Alphabetic", LETTERS | Nl, PROPERTY_ALPHABETIC},
    {"Lower", "Lowercase", Ll, PROPERTY_LOWERCASE},
    {"Upper", "Uppercase", Lu, PROPERTY_UPPERCASE},
    {"Emoji", "Emoji", 0, PROPERTY_EMOJI},
    {"EPres", "Emoji_Presentation", 0, PROPERTY_EMOJI_PRESENTATION},
    {"ExtPict", "Extended_Pictographic", 0, PROPERTY_EXTENDED_PICTOGRAPHIC},
    {"Any", "Any", EVERY, 0},
    {"Assigned", "Assigned", EVERY & ~(uint32_t)Cn, 0},
};

struct range {
    uint32_t first, last;
};
static const struct range ascii[] = {{0, 0x7F}};
static const struct range hex[] = {{'0', '9'}, {'A', 'F'}, {'a', 'f'}};
static const struct range white_space[] = {
    {0x09, 0x0D},     {0x20, 0x20},     {0x85, 0x85},     {0xA0, 0xA0},     {0x1680, 0x1680},
    {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}};
static const struct {
    const char *brief, *name;
    const struct range *ranges;
    uint32_t n;
} small[] = {
    {"ASCII", "ASCII", ascii, 1},
    {"AHex", "ASCII_Hex_Digit", hex, 3},
    {"space", "White_Space", white_space, sizeof white_space / sizeof *white_space},
};

/* Where the ranges go. */
struct sink {
    void (*add)(void *context, uint32_t first, uint32_t last);
    void *context;
};

static bool is_named(const char *name, size_t n, const char *brief, const char *full) {
    return (strlen(brief) == n && memcmp(name, brief, n) == 0) ||
           (strlen(full) == n && memcmp(name, full, n) == 0);
}

static bool skip_prefix(const char **name, size_t *n, const char *prefix) {
    size_t k = strlen(prefix);
    if (*n < k || memcmp(*name, prefix, k) != 0) return false;
    *name += k;
    *n -= k;
    return true;
}

/* Lu and Ll in turn: both, or every other character. */
static void add_alternating(const struct sink *s, uint32_t first, uint32_t end, uint32_t value,
                            uint32_t set) {
    uint32_t even = value == LU_LL ? Lu : Ll, odd = value == LU_LL ? Ll : Lu;
    if ((set & even) && (set & odd)) {
        s->add(s->context, first, end - 1);
        return;
    }
    for (uint32_t c = first; c < end; c++)
        if (set & ((c - first) % 2 ? odd : even)) s->add(s->context, c, c);
}

static void add_categories(const struct sink *s, uint32_t set) {
    uint32_t first = 0;
    for (uint32_t i = 0; i < property_categories_n; i++) {
        uint32_t value = property_categories[i] & 31;
        uint32_t end = first + (property_categories[i] >> 5) + 1;
        if (value >= LU_LL)
            add_alternating(s, first, end, value, set);
        else if (set >> value & 1)
            s->add(s->context, first, end - 1);
        first = end;
    }
}

static bool add_category(const struct sink *s, const char *name, size_t n) {
    for (size_t i = 0; i < sizeof categories / sizeof *categories; i++) {
        if (!is_named(name, n, categories[i].brief, categories[i].name)) continue;
        add_categories(s, categories[i].set);
        return true;
    }
    return false;
}

/* End of the run that begins at runs[i]. */
static uint32_t run_end(const uint32_t *runs, uint32_t n, uint32_t i) {
    return i + 1 < n ? runs[i + 1] >> 8 : LAST + 1;
}

static bool add_script(const struct sink *s, const char *name, size_t n) {
    const uint32_t *runs = property_scripts, n_runs = property_scripts_n;
    uint32_t script = 0;
    while (
        script < property_script_names_n &&
        !is_named(name, n, property_script_names[script].brief, property_script_names[script].name))
        script++;
    for (uint32_t i = 0; i < n_runs; i++)
        if ((runs[i] & 0xff) == script)
            s->add(s->context, runs[i] >> 8, run_end(runs, n_runs, i) - 1);
    return script < property_script_names_n;
}

static bool add_binary(const struct sink *s, const char *name, size_t n) {
    const uint32_t *runs = property_extras, n_runs = property_extras_n;
    size_t p = 0;
    while (p < sizeof properties / sizeof *properties &&
           !is_named(name, n, properties[p].brief, properties[p].name))
        p++;
    if (p == sizeof properties / sizeof *properties) return false;
    add_categories(s, properties[p].set);
    for (uint32_t i = 0; i < n_runs; i++)
        if (runs[i] & properties[p].extra & 0xff)
            s->add(s->context, runs[i] >> 8, run_end(runs, n_runs, i) - 1);
    return true;
}

bool property_ranges(const char *name, size_t n,
                     void (*add)(void *context, uint32_t first, uint32_t last), void *context) {
    const struct sink s = {add, context};
    if (skip_prefix(&name, &n, "General_Category=") || skip_prefix(&name, &n, "gc="))
        return add_category(&s, name, n);
    if (skip_prefix(&name, &n, "Script=") || skip_prefix(&name, &n, "sc="))
        return add_script(&s, name, n);
    if (add_category(&s, name, n) || add_binary(&s, name, n)) return true;
    for (size_t i = 0; i < sizeof small / sizeof *small; i++) {
        if (!is_named(name, n, small[i].brief, small[i].name)) continue;
        for (uint32_t k = 0; k < small[i].n; k++)
            add(context, small[i].ranges[k].first, small[i].ranges[k].last);
        return true;
    }
    return false;
}
