/* Masks and matchers: random programs against naive references, walks along masks to the end of the
 * text, caches, bounds. Mode "bench" prints the cost of masks (grammar_bench.h). */
#include "core/base/mem.h"
#include "core/grammar/match/machine.h"
#include "tests/support/rng.h"
#include "tests/unit/check.h"
#include "tests/unit/grammar_bench.h"
#include "tests/unit/grammar_ref.h"
#include "tests/unit/grammar_trees.h"

#include <pthread.h>

/* ---- vocabularies of tests ---- */

enum { MAX_TOKENS = 1024, MAX_WORDS = MAX_TOKENS / 32 };

struct tokens {
    char bytes[MAX_TOKENS][16];
    size_t n_bytes[MAX_TOKENS];
    enum grammar_token_kind kinds[MAX_TOKENS];
    uint32_t n;
};

static void tell_token(const void *arg, int32_t id, struct grammar_token *out) {
    const struct tokens *t = arg;
    *out = (struct grammar_token){t->kinds[id], t->bytes[id], t->n_bytes[id]};
}

static uint32_t add_token(struct tokens *t, enum grammar_token_kind kind, const char *bytes,
                          size_t n) {
    memcpy(t->bytes[t->n], bytes, n);
    t->n_bytes[t->n] = n;
    t->kinds[t->n] = kind;
    return t->n++;
}

static grammar_vocab *new_vocab(const struct tokens *t, uint64_t cache_bytes) {
    struct grammar_vocab_config config = {
        .n_vocab = t->n, .token = tell_token, .arg = t, .cache_bytes = cache_bytes};
    grammar_vocab *v = NULL;
    CHECK(grammar_vocab_new(&config, &v, NULL) == 0);
    return v;
}

static bool has(const uint32_t *mask, uint32_t id) {
    return mask[id / 32] >> id % 32 & 1;
}

static uint32_t n_set(const uint32_t *mask, uint32_t n) {
    uint32_t sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += has(mask, i);
    return sum;
}

static grammar_matcher *new_matcher(const grammar *g, grammar_vocab *v) {
    grammar_matcher *m = NULL;
    err e = {0};
    CHECK_MSG(grammar_matcher_new(g, v, &m, &e) == 0, "%s", e.msg);
    return m;
}

/* Calls that must not allocate. */
static void get_mask(grammar_matcher *m, uint32_t *mask) {
    mem_guard_enter();
    grammar_matcher_mask(m, mask);
    mem_guard_leave();
}
static bool accept(grammar_matcher *m, uint32_t token) {
    mem_guard_enter();
    bool taken = grammar_matcher_accept(m, (int32_t)token);
    mem_guard_leave();
    return taken;
}

/* ---- nodes against a naive matcher ---- */

static grammar *random_nodes(int *root) {
    grammar_builder *b = grammar_builder_new();
    grammar_node node, body;
    grammar *g = NULL;
    err e = {0};
    n_trees = 0;
    for (int i = 0; i < MAX_RULES; i++)
        rule_nodes[i] = grammar_rule(b);
    for (int i = 0; i < MAX_RULES; i++) {
        rule_bodies[i] = grow(b, 2, false, &body);
        grammar_rule_set(b, rule_nodes[i], body);
    }
    *root = grow(b, 3, false, &node);
    CHECK_MSG(grammar_finish(b, node, &g, &e) == 0, "%s", e.msg);
    grammar_builder_free(b);
    return g;
}

/* Every text of one to three letters of "abc", some twice, a control token, an end token. */
static void make_letters(struct tokens *t) {
    t->n = 0;
    for (int len = 1, n = 3; len <= 3; len++, n *= 3)
        for (int i = 0; i < n; i++) {
            char bytes[3];
            for (int k = 0, rest = i; k < len; k++, rest /= 3)
                bytes[k] = (char)('a' + rest % 3);
            add_token(t, GRAMMAR_TOKEN_TEXT, bytes, (size_t)len);
        }
    add_token(t, GRAMMAR_TOKEN_TEXT, "ab", 2);
    add_token(t, GRAMMAR_TOKEN_CONTROL, "C", 1);
    add_token(t, GRAMMAR_TOKEN_CONTROL, "D", 1);
    add_token(t, GRAMMAR_TOKEN_TEXT, "C", 1);
    add_token(t, GRAMMAR_TOKEN_NONE, "a", 1);
    add_token(t, GRAMMAR_TOKEN_END, "", 0);
}

static uint32_t append(const struct tokens *t, uint32_t id, char *text, uint32_t n) {
    if (t->kinds[id] == GRAMMAR_TOKEN_CONTROL) text[n++] = '\xff';
    memcpy(text + n, t->bytes[id], t->n_bytes[id]);
    return n + (uint32_t)t->n_bytes[id];
}

static bool expected(const struct tokens *t, uint32_t id, int root, const char *text, uint32_t n) {
    char longer[MAX_TEXT + 16];
    if (t->kinds[id] == GRAMMAR_TOKEN_END) return ends(root, text, n, 0) >> n & 1;
    if (t->kinds[id] == GRAMMAR_TOKEN_NONE) return false;
    memcpy(longer, text, n);
    return begins(root, longer, append(t, id, longer, n), 0);
}

static void walk_nodes(const grammar *g, int root, const struct tokens *t, grammar_vocab *v) {
    grammar_matcher *m = new_matcher(g, v);
    char text[MAX_TEXT + 16];
    uint32_t n = 0, mask[MAX_WORDS], again[MAX_WORDS];
    while (m && n < MAX_TEXT - 4) {
        get_mask(m, mask);
        CHECK(grammar_matcher_may_end(m) == (ends(root, text, n, 0) >> n & 1));
        for (uint32_t id = 0; id < t->n; id++)
            CHECK_MSG(has(mask, id) == expected(t, id, root, text, n), "token %u after %.*s", id,
                      (int)n, text);
        uint32_t id = ref_below(t->n), tries = 0;
        while (!has(mask, id) || t->kinds[id] == GRAMMAR_TOKEN_END) {
            if (!has(mask, id)) CHECK(!accept(m, id));
            if (++tries == 500) break;
            id = ref_below(t->n);
        }
        get_mask(m, again);
        CHECK(memcmp(mask, again, (t->n + 31) / 32 * 4) == 0);
        if (tries == 500) break;
        CHECK(accept(m, id));
        n = append(t, id, text, n);
    }
    grammar_matcher_free(m);
}

static void test_nodes(void) {
    static struct tokens t;
    make_letters(&t);
    grammar_vocab *v = new_vocab(&t, 0);
    for (int i = 0; i < 300; i++) {
        int root;
        grammar *g = random_nodes(&root);
        for (int k = 0; k < 6 && g && v; k++)
            walk_nodes(g, root, &t, v);
        grammar_release(g);
    }
    grammar_vocab_free(v);
}

/* ---- random JSON ---- */

static uint32_t add_regex(grammar *g, const char *pattern) {
    struct dfa d = {0};
    uint32_t index = GRAMMAR_NONE;
    err e = {0};
    CHECK_MSG(dfa_from_regex(pattern, 0, NULL, &d, &e) == 0, "%s: %s", pattern, e.msg);
    CHECK(program_add_dfa(g, &d, &index, &e) == 0);
    return index;
}

static struct g_alt random_scalar(grammar *g, bool many) {
    static const char *const texts[] = {
        "null|true|false", "-?(0|[1-9][0-9]*)(\\.[0-9]+)?([eE]-?[0-9])?",
        "-?(0|[1-9][0-9]?)(\\.0)?", "1|1\\.0|1\\.00|2|3e0|30e-1", "[1-3](\\.0+)?"};
    static const char *const strings[] = {"[ab]{1,3}", "a|\\n|\"|\xc3\xa9|\xf0\x9f\x98\x80",
                                          "(x|\\\\)*", "(ab|cd|\xe4\xbd\xa0)"};
    struct g_string s = {.dfa = GRAMMAR_NONE, .min = ref_below(3), .max = GRAMMAR_UNLIMITED};
    struct g_alt alt = {G_ALT_STRING, 0};
    if (ref_below(2)) return (struct g_alt){G_ALT_TEXT, add_regex(g, texts[ref_below(5)])};
    if (ref_below(2))
        s.dfa = add_regex(g, strings[ref_below(4)]);
    else if (ref_below(2))
        s.max = s.min + ref_below(3) + many;
    CHECK(program_add_string(g, &s, &alt.index, NULL) == 0);
    return alt;
}

static uint32_t random_value(grammar *g, int depth);

static uint32_t random_scalar_value(grammar *g) {
    struct g_alt alts[2] = {random_scalar(g, true), random_scalar(g, true)};
    uint32_t value = 0;
    CHECK(program_add_value(g, alts, 1 + ref_below(2), &value, NULL) == 0);
    return value;
}

static struct g_item random_item(grammar *g, int depth, bool counts) {
    struct g_item item = {random_value(g, depth), GRAMMAR_NONE, GRAMMAR_NONE};
    if (!counts) return item;
    if (ref_below(3)) item.contains = random_value(g, depth);
    item.rest = item.contains == GRAMMAR_NONE || ref_below(3) ? item.value : GRAMMAR_NONE;
    return item;
}

/* Is there a length for which the counts can be satisfied? */
static bool array_is_possible(const struct g_array *a, const struct g_item *items,
                              const struct g_item *more) {
    uint32_t least = 0, most = 0;
    for (uint32_t n = 0; n < 12; n++) {
        if (n >= a->min && n <= a->max && least <= a->max_contains && most >= a->min_contains)
            return true;
        const struct g_item *item = n < a->n_items ? &items[n] : more;
        if (!item) return false;
        most += item->contains != GRAMMAR_NONE;
        least += item->contains != GRAMMAR_NONE && item->rest == GRAMMAR_NONE;
    }
    return false;
}

static struct g_alt random_array(grammar *g, int depth) {
    struct g_alt alt = {G_ALT_ARRAY, 0};
    struct g_item items[2], more;
    struct g_array a = {.max_contains = GRAMMAR_UNLIMITED};
    bool open, counts = ref_below(3) == 0;
    a.unique = !counts && ref_below(2);
    do {
        a.n_items = a.unique ? 0 : ref_below(3);
        a.min = ref_below(3);
        a.max = ref_below(2) ? GRAMMAR_UNLIMITED : a.min + ref_below(3);
        if (counts) a.min_contains = ref_below(3);
        if (counts && (!a.min_contains || ref_below(2))) a.max_contains = a.min_contains + 1;
        open = a.unique || ref_below(3);
        more = random_item(g, depth, counts);
        if (a.unique) more.value = random_scalar_value(g);
        for (uint32_t i = 0; i < a.n_items; i++)
            items[i] = random_item(g, depth, counts);
    } while (!array_is_possible(&a, items, open ? &more : NULL));
    CHECK(program_add_array(g, &a, items, open ? &more : NULL, &alt.index, NULL) == 0);
    return alt;
}

static struct g_alt random_object(grammar *g, int depth) {
    static const char *const names[] = {"a", "ab", "b", "\xc3\xa9", "\"q", "abc"};
    static const char *const languages[] = {"x[a-z]{0,2}", "k+", "y|yy", "z.*"};
    struct g_alt alt = {G_ALT_OBJECT, 0};
    struct g_member members[6];
    struct g_keys keys[2];
    struct g_object o = {.in_order = ref_below(2), .max = GRAMMAR_UNLIMITED};
    uint32_t required = 0, capacity = 0;
    for (uint32_t i = 0; i < 6; i++) {
        if (ref_below(2)) continue;
        members[o.n_properties++] = (struct g_member){names[i], strlen(names[i]),
                                                      random_value(g, depth), ref_below(3) == 0};
        required += members[o.n_properties - 1].required;
    }
    capacity = o.n_properties;
    for (uint32_t i = 0, k = ref_below(4); i < 2; i++, k++) {
        if (ref_below(2)) continue;
        k %= 4;
        capacity += k == 2 ? 2 : 100;
        keys[o.n_keys++] = (struct g_keys){add_regex(g, languages[k]), random_value(g, depth)};
    }
    if (ref_below(2)) o.max = required + ref_below(3);
    o.min = ref_below(4);
    if (o.min > o.max) o.min = o.max;
    if (o.min > capacity) o.min = capacity;
    CHECK(program_add_object(g, &o, members, keys, &alt.index, NULL) == 0);
    return alt;
}

static uint32_t random_value(grammar *g, int depth) {
    struct g_alt alts[2];
    uint32_t n = 1 + (ref_below(3) == 0), value = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t dice = depth ? ref_below(5) : 0;
        alts[i] = dice < 2   ? random_scalar(g, false)
                  : dice < 3 ? random_array(g, depth - 1)
                             : random_object(g, depth - 1);
    }
    CHECK(program_add_value(g, alts, n, &value, NULL) == 0);
    return value;
}

static grammar *finish_value(grammar_builder *b, uint32_t value) {
    struct g_node node = {.kind = G_VALUE, .index = value};
    uint32_t root = 0;
    grammar *g = NULL;
    err e = {0};
    CHECK(program_add_node(b->g, &node, NULL, &root, &e) == 0);
    CHECK_MSG(grammar_finish(b, (grammar_node)root, &g, &e) == 0, "%s", e.msg);
    grammar_builder_free(b);
    return g;
}

static const char *const pieces[] = {
    "{\"",      "\"}",      "\":",   "\": ",   "\",",          "\", \"",   "\"]",
    "[[",       "]]",       "]}",    "}]",     "1.0",          ", 1",      ",1",
    "10",       ".0",       "\\u00", "\\u",    "\\n",          "\\\"",     "\\ud83d",
    "\\ude00",  "null",     "true",  "false",  "ab",           "ab\":",    "a\"",
    "{}",       "[]",       "},",    "}, {\"", "e-1",          "\xc3\xa9", "\xa9\"",
    "\xf0\x9f", "\x98\x80", "x",     "xy",     "aaaaaaaaaaaa", "a, b",     "\xf0\x9f\x98\x80",
    "\xe4\xbd", "\xa0",     "ba",    "[\"",    "[1",           "\"a",      "\"a\":",
    "\"ab\": ", " \"",      " [",    " {",     "k\"",          "zz\"",
};

/* Bytes, pieces of JSON, an end token. */
static uint32_t make_json_tokens(struct tokens *t) {
    t->n = 0;
    for (int b = 0; b < 0x100; b++)
        add_token(t, GRAMMAR_TOKEN_TEXT, (char[]){(char)b}, 1);
    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++)
        add_token(t, GRAMMAR_TOKEN_TEXT, pieces[i], strlen(pieces[i]));
    add_token(t, GRAMMAR_TOKEN_CONTROL, "<|im_start|>", 12);
    return add_token(t, GRAMMAR_TOKEN_END, "", 0);
}

/* Reference of the masks: the machine alone, byte by byte. */
struct probe {
    struct machine m;
    uint32_t n; /* of the set at the start of the pool */
};

static uint32_t probe_bytes(struct probe *p, const char *bytes, size_t n) {
    uint32_t from = 0, size = p->n;
    for (size_t i = 0; i < n && size; i++) {
        uint32_t next = p->m.n_pool;
        size = machine_step(&p->m, p->m.pool + from, size, (uint8_t)bytes[i]);
        from = next;
    }
    return size;
}

static void check_mask(struct probe *p, const struct tokens *t, const uint32_t *mask) {
    uint32_t frames = p->m.n_frames;
    for (uint32_t id = 0; id < t->n; id++) {
        bool want = t->kinds[id] == GRAMMAR_TOKEN_END ? machine_may_end(p->m.pool, p->n)
                    : t->kinds[id] == GRAMMAR_TOKEN_TEXT
                        ? probe_bytes(p, t->bytes[id], t->n_bytes[id]) > 0
                        : false;
        CHECK_MSG(has(mask, id) == want, "token %u (%.*s)", id, (int)t->n_bytes[id], t->bytes[id]);
        p->m.n_pool = p->n;
        machine_roll_back(&p->m, frames);
    }
}

static void probe_accept(struct probe *p, const char *bytes, size_t n) {
    uint32_t size = probe_bytes(p, bytes, n);
    memmove(p->m.pool, p->m.pool + p->m.n_pool - size, size * sizeof *p->m.pool);
    p->n = p->m.n_pool = size;
}

/* Vocabularies of the same tokens: without a cache, with one, with one of three masks. */
enum { N_VOCABS = 3 };

/* A token that the mask allows; after a while one that leads towards the end. */
static uint32_t choose(const uint32_t *mask, const struct tokens *t, uint32_t end, int steps) {
    static const char closing[] = "\"}]:";
    if (has(mask, end) && (steps > 60 || ref_below(3) == 0)) return end;
    for (int i = 0; steps > 60 && ref_below(2) && closing[i]; i++)
        if (has(mask, (uint8_t)closing[i])) return (uint8_t)closing[i];
    for (int tries = 0; tries < 100000; tries++) {
        uint32_t id = ref_below(t->n);
        bool opens = t->n_bytes[id] && (t->bytes[id][0] == '[' || t->bytes[id][0] == '{');
        if (has(mask, id) && id != end && (!opens || steps < 60 || ref_below(20) == 0)) return id;
    }
    return end;
}

static void walk_json(const grammar *g, uint32_t value, const struct tokens *t,
                      grammar_vocab *const v[N_VOCABS]) {
    grammar_matcher *m[N_VOCABS];
    uint32_t masks[N_VOCABS][MAX_WORDS], end = t->n - 1, id = 0;
    static struct ref_text text;
    struct probe p = {.n = 0};
    CHECK(machine_init(&p.m, g) == 0);
    p.n = machine_start(&p.m);
    for (int i = 0; i < N_VOCABS; i++)
        m[i] = new_matcher(g, v[i]);
    text.n = 0;
    for (int steps = 0; steps < 1500 && id != end; steps++) {
        for (int i = 0; i < N_VOCABS; i++)
            get_mask(m[i], masks[i]);
        CHECK(memcmp(masks[0], masks[1], (t->n + 31) / 32 * 4) == 0);
        CHECK(memcmp(masks[0], masks[2], (t->n + 31) / 32 * 4) == 0);
        if (steps < 40) check_mask(&p, t, masks[0]);
        CHECK_MSG(n_set(masks[0], t->n) > 0, "stuck after %s", text.at);
        if (!n_set(masks[0], t->n)) break;
        id = choose(masks[0], t, end, steps);
        for (int i = 0; i < N_VOCABS; i++)
            CHECK(accept(m[i], id));
        if (steps < 40) probe_accept(&p, t->bytes[id], t->n_bytes[id]);
        ref_add(&text, t->bytes[id], t->n_bytes[id]);
    }
    CHECK_MSG(id == end, "no end of %.99s", text.at);
    CHECK_MSG(ref_accepts(g, value, text.at, text.n), "let through: %.999s", text.at);
    for (int i = 0; i < N_VOCABS; i++)
        grammar_matcher_free(m[i]);
    machine_fini(&p.m);
}

/* Tokens are the bytes themselves. */
static bool takes_all(const grammar *g, grammar_vocab *v, const char *text, size_t n) {
    grammar_matcher *m = new_matcher(g, v);
    bool all = true;
    for (size_t i = 0; i < n && all; i++)
        all = accept(m, (uint8_t)text[i]);
    all = all && grammar_matcher_may_end(m);
    grammar_matcher_free(m);
    return all;
}

/* Texts of the value, and the same with one byte changed. */
static void compare_texts(const grammar *g, uint32_t value, grammar_vocab *v) {
    static const char bytes[] = "\"{}[],:01.ae\\ \xc3";
    static struct ref_text text;
    text.n = 0;
    ref_write(g, value, &text);
    for (int i = 0; i < 4 && text.n && text.n < 180; i++) {
        bool want = ref_accepts(g, value, text.at, text.n);
        CHECK_MSG(takes_all(g, v, text.at, text.n) == want, "%.*s (%d)", (int)text.n, text.at,
                  want);
        size_t at = ref_below((uint32_t)text.n);
        if (ref_below(2))
            text.at[at] = bytes[ref_below(sizeof bytes - 1)];
        else
            memmove(text.at + at, text.at + at + 1, text.n-- - at);
    }
}

static void test_json(void) {
    static struct tokens t;
    make_json_tokens(&t);
    grammar_vocab *v[N_VOCABS] = {new_vocab(&t, 0), new_vocab(&t, 1 << 22), new_vocab(&t, 8000)};
    uint64_t violations = mem_guard_violations();
    for (int i = 0; i < 200; i++) {
        grammar_builder *b = grammar_builder_new();
        uint32_t value = random_value(b->g, 2);
        grammar *g = finish_value(b, value);
        for (int k = 0; k < 3 && g; k++)
            walk_json(g, value, &t, v);
        for (int k = 0; k < 12 && g; k++)
            compare_texts(g, value, v[0]);
        grammar_release(g);
    }
    struct grammar_vocab_stats stats;
    grammar_vocab_stats(v[1], &stats);
    CHECK(stats.n_hits > 0 && stats.n_hits < stats.n_masks);
    CHECK(mem_guard_violations() == violations);
    for (int i = 0; i < N_VOCABS; i++)
        grammar_vocab_free(v[i]);
}

/* ---- by hand ---- */

static grammar *json_grammar(const char *schema, bool in_order) {
    grammar_builder *b = grammar_builder_new();
    struct grammar_schema s = {.schema = cJSON_Parse(schema), .in_order = in_order};
    grammar *g = NULL;
    err e = {0};
    CHECK_MSG(grammar_finish(b, grammar_json(b, &s), &g, &e) == 0, "%s", e.msg);
    grammar_builder_free(b);
    cJSON_Delete((cJSON *)s.schema);
    return g;
}

/* The matcher after text, whose tokens are its bytes. */
static grammar_matcher *matcher_after(const grammar *g, grammar_vocab *v, const char *text) {
    grammar_matcher *m = new_matcher(g, v);
    for (size_t i = 0; text[i]; i++)
        CHECK_MSG(accept(m, (uint8_t)text[i]), "%s at %zu", text, i);
    return m;
}

static void check_forced(const grammar *g, grammar_vocab *v, const char *text, const char *want) {
    grammar_matcher *m = matcher_after(g, v, text);
    char bytes[64];
    uint32_t mask[MAX_WORDS], after[MAX_WORDS];
    get_mask(m, mask);
    mem_guard_enter();
    size_t n = grammar_matcher_forced(m, bytes, sizeof bytes);
    mem_guard_leave();
    CHECK_MSG(n == strlen(want) && memcmp(bytes, want, n) == 0, "%s: %.*s", text, (int)n, bytes);
    get_mask(m, after);
    CHECK(memcmp(mask, after, sizeof(uint32_t) * 8) == 0);
    for (size_t i = 0; i < n; i++)
        CHECK(accept(m, (uint8_t)bytes[i]));
    grammar_matcher_free(m);
}

static void test_forced(void) {
    static struct tokens t;
    make_json_tokens(&t);
    grammar_vocab *v = new_vocab(&t, 1 << 20);
    grammar *g = json_grammar("{\"type\":\"object\",\"properties\":{\"name\":{\"enum\":[\"xa\","
                              "\"xb\"]},\"list\":{\"type\":\"array\",\"items\":{\"const\":true},"
                              "\"minItems\":2,\"maxItems\":2}},\"required\":[\"name\",\"list\"],"
                              "\"additionalProperties\":false}",
                              true);
    check_forced(g, v, "", "{\"name\": \"x");
    check_forced(g, v, "{\"name\":", " \"x");
    check_forced(g, v, "{\"n\\u00", "61me\": \"x");
    check_forced(g, v, "{\"name\":\"xa", "\", \"list\": [true, true]}");
    check_forced(g, v, "{\"name\":\"xa\",\"list\":[true,true]}", "");
    grammar_release(g);
    grammar_vocab_free(v);
}

/* At most 256 brackets; at the limit only other values are allowed. */
/* [[[... with a 1 at the nesting limit. */
static void test_depth(void) {
    static struct tokens t;
    make_json_tokens(&t);
    grammar_vocab *v = new_vocab(&t, 1 << 20);
    grammar_builder *b = grammar_builder_new();
    struct g_alt alts[2] = {{G_ALT_ARRAY, 0}, {G_ALT_TEXT, add_regex(b->g, "1")}};
    struct g_array a = {.min = 1, .max = 1, .max_contains = GRAMMAR_UNLIMITED};
    uint32_t value = 0, mask[MAX_WORDS];
    CHECK(program_add_open_value(b->g, &value, NULL) == 0);
    struct g_item more = {value, GRAMMAR_NONE, GRAMMAR_NONE};
    CHECK(program_add_array(b->g, &a, NULL, &more, &alts[0].index, NULL) == 0);
    CHECK(program_set_value(b->g, value, alts, 2, NULL) == 0);
    grammar *g = finish_value(b, value);
    grammar_matcher *m = new_matcher(g, v);
    for (int i = 0; i < GRAMMAR_MAX_DEPTH; i++) {
        get_mask(m, mask);
        CHECK(has(mask, '['));
        CHECK_MSG(accept(m, '['), "at %d", i);
    }
    get_mask(m, mask);
    CHECK(!has(mask, '['));
    CHECK(has(mask, '1'));
    grammar_matcher_free(m);
    grammar_release(g);
    grammar_vocab_free(v);
}

/* {"v": [[]], "next": {...} or null}: the last object allowed is the one whose v still fits within
 * the nesting limit; its "next" can only be null. */
static void test_depth_of_members(void) {
    static struct tokens t;
    make_json_tokens(&t);
    grammar_vocab *v = new_vocab(&t, 1 << 20);
    grammar_builder *b = grammar_builder_new();
    uint32_t node = 0, inner = 0, outer = 0, mask[MAX_WORDS];
    struct g_alt array = {G_ALT_ARRAY, 0},
                 ends[2] = {{G_ALT_OBJECT, 0}, {G_ALT_TEXT, add_regex(b->g, "null")}};
    struct g_array a = {.max = 1, .max_contains = GRAMMAR_UNLIMITED};
    struct g_object o = {.n_properties = 2, .max = GRAMMAR_UNLIMITED, .in_order = true};
    CHECK(program_add_array(b->g, &a, NULL, NULL, &array.index, NULL) == 0);
    CHECK(program_add_value(b->g, &array, 1, &inner, NULL) == 0);
    struct g_item item = {inner, GRAMMAR_NONE, GRAMMAR_NONE};
    a.min = 1;
    CHECK(program_add_array(b->g, &a, NULL, &item, &array.index, NULL) == 0);
    CHECK(program_add_value(b->g, &array, 1, &outer, NULL) == 0);
    CHECK(program_add_open_value(b->g, &node, NULL) == 0);
    struct g_member members[2] = {{"v", 1, outer, true}, {"n", 1, node, true}};
    CHECK(program_add_object(b->g, &o, members, NULL, &ends[0].index, NULL) == 0);
    CHECK(program_set_value(b->g, node, ends, 2, NULL) == 0);
    grammar *g = finish_value(b, node);
    grammar_matcher *m = new_matcher(g, v);
    int n = 0;
    for (;; n++) {
        get_mask(m, mask);
        if (!has(mask, '{')) break;
        for (const char *c = "{\"v\":[[]],\"n\":"; *c; c++)
            CHECK_MSG(accept(m, (unsigned char)*c), "'%c' at level %d", *c, n);
        if (n > GRAMMAR_MAX_DEPTH) break;
    }
    CHECK_MSG(n == GRAMMAR_MAX_DEPTH - 2, "%d levels", n);
    for (const char *c = "null"; *c; c++)
        CHECK(accept(m, (unsigned char)*c));
    for (int i = 0; i < n; i++)
        CHECK(accept(m, '}'));
    CHECK(grammar_matcher_may_end(m));
    grammar_matcher_free(m);
    grammar_release(g);
    grammar_vocab_free(v);
}

static void check_refused(grammar_builder *b, grammar_node root, const char *why) {
    grammar *g = NULL;
    err e = {0};
    CHECK(grammar_finish(b, root, &g, &e) == ERR_INVALID);
    CHECK_MSG(strstr(e.msg, why) != NULL, "%s", e.msg);
    CHECK(g == NULL);
}

static void test_refused(void) {
    grammar_builder *b = grammar_builder_new();
    grammar_node r = grammar_rule(b), maybe = grammar_repeat(b, grammar_text(b, "a", 1), 0, 1);
    grammar_rule_set(b, r, grammar_seq(b, (grammar_node[]){maybe, r}, 2));
    check_refused(b, r, "never");
    r = grammar_rule(b);
    maybe = grammar_repeat(b, grammar_text(b, "a", 1), 0, 1);
    grammar_rule_set(b, r,
                     grammar_alt(b,
                                 (grammar_node[]){grammar_seq(b, (grammar_node[]){maybe, r}, 2),
                                                  grammar_text(b, "b", 1)},
                                 2));
    check_refused(b, r, "left-recursive");
    r = grammar_rule(b);
    check_refused(b, grammar_seq(b, &r, 1), "not defined");
    check_refused(b, grammar_seq(b, (grammar_node[]){-1}, 1), "is missing");
    check_refused(b, grammar_alt(b, NULL, 0), "alternatives");
    check_refused(b, grammar_repeat(b, grammar_text(b, "a", 1), 2, 1), "minimum");
    check_refused(b, grammar_regex(b, "(a"), "");
    grammar_builder_free(b);
}

/* Nested texts of a recursive rule: up to the memory's limit, then none. */
static void test_rule_depth(void) {
    static struct tokens t;
    make_json_tokens(&t);
    grammar_vocab *v = new_vocab(&t, 0);
    grammar_builder *b = grammar_builder_new();
    grammar *g = NULL;
    grammar_node r = grammar_rule(b), open = grammar_text(b, "(", 1),
                 shut = grammar_text(b, ")", 1);
    grammar_rule_set(
        b, r,
        grammar_alt(b,
                    (grammar_node[]){grammar_seq(b, (grammar_node[]){open, r, shut}, 3),
                                     grammar_text(b, "x", 1)},
                    2));
    CHECK(grammar_finish(b, r, &g, NULL) == 0);
    grammar_builder_free(b);
    grammar_matcher *m = new_matcher(g, v);
    uint32_t mask[MAX_WORDS];
    int depth = 0;
    for (get_mask(m, mask); has(mask, '(') && depth < 5000; get_mask(m, mask), depth++)
        CHECK(accept(m, '('));
    CHECK_MSG(depth >= GRAMMAR_MAX_DEPTH && depth < 5000, "%d", depth);
    CHECK(!accept(m, '('));
    CHECK(accept(m, 'x'));
    for (int i = 0; i < depth; i++)
        CHECK(accept(m, ')'));
    CHECK(grammar_matcher_may_end(m));
    grammar_matcher_free(m);
    grammar_release(g);
    grammar_vocab_free(v);
}

/* Long arrays and many keys: the arena must release frames that are no longer needed. */
static void test_long(void) {
    static struct tokens t;
    make_json_tokens(&t);
    grammar_vocab *v = new_vocab(&t, 0);
    grammar *g = json_grammar("{\"type\":\"array\",\"items\":{\"type\":\"array\",\"uniqueItems\":"
                              "true,\"items\":{\"type\":\"integer\"}}}",
                              false);
    grammar_matcher *m = matcher_after(g, v, "[");
    for (int i = 0; i < 2000; i++) {
        char text[64];
        snprintf(text, sizeof text, "%s[%d, %d,%d]", i ? "," : "", i, i + 1, -i - 1);
        for (size_t k = 0; text[k]; k++)
            CHECK_MSG(accept(m, (uint8_t)text[k]), "%d: %s", i, text);
    }
    CHECK(accept(m, ']') && grammar_matcher_may_end(m));
    grammar_matcher_free(m);
    m = matcher_after(g, v, "[[1,2,1");
    CHECK(!accept(m, ']'));
    CHECK(accept(m, '0') && accept(m, ']'));
    grammar_matcher_free(m);
    grammar_release(g);
    grammar_vocab_free(v);
}

/* ---- threads ---- */

struct walker {
    const grammar *g;
    grammar_vocab *cached, *plain;
    const struct tokens *t;
    uint32_t seed;
    int differences;
};

static void *walk_along(void *arg) {
    struct walker *w = arg;
    uint32_t masks[2][MAX_WORDS];
    struct rng random = {w->seed + 1};
    for (int round = 0; round < 40; round++) {
        grammar_matcher *m[2] = {NULL, NULL};
        if (grammar_matcher_new(w->g, w->cached, &m[0], NULL) ||
            grammar_matcher_new(w->g, w->plain, &m[1], NULL))
            w->differences++;
        for (int step = 0; step < 40 && m[0] && m[1]; step++) {
            for (int i = 0; i < 2; i++)
                grammar_matcher_mask(m[i], masks[i]);
            w->differences += memcmp(masks[0], masks[1], (w->t->n + 31) / 32 * 4) != 0;
            uint32_t id, tries = 0;
            do
                id = rng_below(&random, w->t->n);
            while (!has(masks[0], id) && ++tries < 100000);
            for (int i = 0; i < 2; i++)
                w->differences += !grammar_matcher_accept(m[i], (int32_t)id);
        }
        grammar_matcher_free(m[0]);
        grammar_matcher_free(m[1]);
    }
    return NULL;
}

static void test_threads(void) {
    static struct tokens t;
    make_json_tokens(&t);
    grammar *g = json_grammar("{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"array\"},"
                              "\"b\":{\"type\":\"string\"}}}",
                              false);
    grammar_vocab *plain = new_vocab(&t, 0), *cached = new_vocab(&t, 20000);
    struct walker walkers[4];
    pthread_t threads[4];
    for (uint32_t i = 0; i < 4; i++) {
        walkers[i] = (struct walker){g, cached, plain, &t, i / 2, 0};
        CHECK(pthread_create(&threads[i], NULL, walk_along, &walkers[i]) == 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        CHECK(walkers[i].differences == 0);
    }
    grammar_release(g);
    grammar_vocab_free(plain);
    grammar_vocab_free(cached);
}

int main(int argc, char **argv) {
    if (check_bench(argc, argv)) return grammar_bench();
    RUN(test_nodes);
    RUN(test_json);
    RUN(test_forced);
    RUN(test_depth);
    RUN(test_depth_of_members);
    RUN(test_refused);
    RUN(test_rule_depth);
    RUN(test_long);
    RUN(test_threads);
    return check_done();
}
