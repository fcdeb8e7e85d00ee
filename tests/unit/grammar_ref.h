/* grammar_ref.h - a naive reference of compiled JSON values: parses a text into a tree and compares
 * the tree with the value's alternatives. Also random values and random texts of them. Independent
 * of the machine. Single thread. */
#ifndef INFERD_TESTS_GRAMMAR_REF_H
#define INFERD_TESTS_GRAMMAR_REF_H

#include "core/grammar/grammar_int.h"
#include "tests/support/rng.h"

#include <stdlib.h>
#include <string.h>

static struct rng ref_rng = {1};
static inline uint32_t ref_below(uint32_t n) {
    return rng_below(&ref_rng, n);
}

/* ---- texts as trees ---- */

enum ref_type { REF_WORD, REF_NUMBER, REF_STRING, REF_ARRAY, REF_OBJECT };
struct ref_node {
    enum ref_type type;
    const char *text; /* as written */
    size_t n;
    char content[200]; /* of a string */
    size_t n_content;
    int child, sibling, key; /* -1: none */
};
static struct ref_node ref_nodes[600];
static int ref_n_nodes;
static const char *ref_at, *ref_end;

static int ref_new(enum ref_type type) {
    if (ref_n_nodes == 600) return -1;
    ref_nodes[ref_n_nodes] =
        (struct ref_node){.type = type, .text = ref_at, .child = -1, .sibling = -1, .key = -1};
    return ref_n_nodes++;
}

static bool ref_take(char c) {
    if (ref_at == ref_end || *ref_at != c) return false;
    ref_at++;
    return true;
}

static void ref_put(struct ref_node *s, uint32_t cp) {
    char *out = s->content + s->n_content;
    if (s->n_content + 4 > sizeof s->content) return;
    if (cp < 0x80) {
        out[0] = (char)cp;
        s->n_content += 1;
    } else if (cp < 0x800) {
        out[0] = (char)(0xc0 | cp >> 6);
        out[1] = (char)(0x80 | (cp & 63));
        s->n_content += 2;
    } else if (cp < 0x10000) {
        out[0] = (char)(0xe0 | cp >> 12);
        out[1] = (char)(0x80 | (cp >> 6 & 63));
        out[2] = (char)(0x80 | (cp & 63));
        s->n_content += 3;
    } else {
        out[0] = (char)(0xf0 | cp >> 18);
        out[1] = (char)(0x80 | (cp >> 12 & 63));
        out[2] = (char)(0x80 | (cp >> 6 & 63));
        out[3] = (char)(0x80 | (cp & 63));
        s->n_content += 4;
    }
}

static bool ref_hex(uint32_t *cp) {
    *cp = 0;
    for (int i = 0; i < 4; i++, ref_at++) {
        const char *digits = "0123456789abcdef0123456789ABCDEF", *at;
        if (ref_at == ref_end || !*ref_at || !(at = strchr(digits, *ref_at))) return false;
        *cp = *cp * 16 + (uint32_t)((at - digits) % 16);
    }
    return true;
}

static bool ref_escape(struct ref_node *s) {
    static const char names[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    uint32_t cp, low;
    if (ref_at == ref_end || !*ref_at) return false;
    char c = *ref_at++;
    const char *at = strchr(names, c);
    if (at) {
        ref_put(s, (uint8_t)meant[at - names]);
        return true;
    }
    if (c != 'u' || !ref_hex(&cp) || (cp >= 0xdc00 && cp < 0xe000)) return false;
    if (cp >= 0xd800 && cp < 0xdc00) {
        if (!ref_take('\\') || !ref_take('u') || !ref_hex(&low)) return false;
        if (low < 0xdc00 || low > 0xdfff) return false;
        cp = 0x10000 + ((cp - 0xd800) << 10) + (low - 0xdc00);
    }
    ref_put(s, cp);
    return true;
}

/* One well-formed code point of UTF-8, decoded; -1: malformed. */
static int64_t ref_utf8(const char **at, const char *end) {
    const uint8_t *p = (const uint8_t *)*at;
    size_t n = p[0] < 0x80 ? 1 : p[0] < 0xc0 ? 0 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    if (!n || p[0] > 0xf7 || n > (size_t)(end - *at)) return -1;
    uint32_t cp = n == 1 ? p[0] : p[0] & (0x7fu >> n);
    for (size_t i = 1; i < n; i++) {
        if ((p[i] & 0xc0) != 0x80) return -1;
        cp = cp << 6 | (p[i] & 63);
    }
    *at += n;
    bool bad = cp < least[n] || cp > 0x10ffff || (cp >= 0xd800 && cp < 0xe000);
    return bad ? -1 : (int64_t)cp;
}

static int ref_string(void) {
    int node = ref_new(REF_STRING);
    if (node < 0 || !ref_take('"')) return -1;
    struct ref_node *s = &ref_nodes[node];
    while (ref_at < ref_end && *ref_at != '"') {
        if (ref_take('\\')) {
            if (!ref_escape(s)) return -1;
            continue;
        }
        int64_t cp = ref_utf8(&ref_at, ref_end);
        if (cp < 0x20) return -1;
        ref_put(s, (uint32_t)cp);
    }
    return ref_take('"') ? node : -1;
}

static int ref_parse(void);

static int ref_members(enum ref_type type) {
    int node = ref_new(type), *link;
    bool object = type == REF_OBJECT;
    char close = object ? '}' : ']';
    if (node < 0) return -1;
    ref_at++;
    if (ref_take(close)) return node;
    link = &ref_nodes[node].child;
    for (;;) {
        int key = object ? ref_string() : -1;
        if (object && (key < 0 || !ref_take(':'))) return -1;
        if (object) ref_take(' ');
        int value = ref_parse();
        if (value < 0) return -1;
        ref_nodes[value].key = key;
        *link = value;
        link = &ref_nodes[value].sibling;
        if (ref_take(close)) return node;
        if (!ref_take(',')) return -1;
        ref_take(' ');
    }
}

static int ref_parse(void) {
    if (ref_at == ref_end) return -1;
    if (*ref_at == '"') return ref_string();
    if (*ref_at == '{') return ref_members(REF_OBJECT);
    if (*ref_at == '[') return ref_members(REF_ARRAY);
    int node =
        ref_new(*ref_at == '-' || (*ref_at >= '0' && *ref_at <= '9') ? REF_NUMBER : REF_WORD);
    if (node < 0) return -1;
    while (ref_at < ref_end && *ref_at && !strchr(",]}: \"[{", *ref_at))
        ref_at++;
    ref_nodes[node].n = (size_t)(ref_at - ref_nodes[node].text);
    return ref_nodes[node].n ? node : -1;
}

/* ---- trees against values ---- */

static bool ref_value(const grammar *g, uint32_t value, int node);

static uint32_t ref_n_code_points(const struct ref_node *s) {
    uint32_t n = 0;
    for (size_t i = 0; i < s->n_content; i++)
        n += ((uint8_t)s->content[i] & 0xc0) != 0x80;
    return n;
}

static bool ref_same(const struct ref_node *a, const struct ref_node *b) {
    if (a->type != b->type) return false;
    if (a->type == REF_NUMBER) return strtod(a->text, NULL) == strtod(b->text, NULL);
    if (a->type == REF_WORD) return a->n == b->n && memcmp(a->text, b->text, a->n) == 0;
    return a->n_content == b->n_content && memcmp(a->content, b->content, a->n_content) == 0;
}

static bool ref_array(const grammar *g, const struct g_array *a, int node) {
    uint32_t n = 0, least = 0, most = 0;
    bool counts = a->min_contains || a->max_contains != GRAMMAR_UNLIMITED;
    for (int c = ref_nodes[node].child; c >= 0; c = ref_nodes[c].sibling, n++) {
        uint32_t place = n < a->n_items ? a->first_item + n : a->more;
        if (place == GRAMMAR_NONE) return false;
        const struct g_item *item = &g->items.at[place];
        bool in = counts && ref_value(g, item->contains, c);
        if (!in && !ref_value(g, counts ? item->rest : item->value, c)) return false;
        most += in;
        least += in && !ref_value(g, item->rest, c);
        for (int d = ref_nodes[node].child; a->unique && d != c; d = ref_nodes[d].sibling)
            if (ref_same(&ref_nodes[c], &ref_nodes[d])) return false;
    }
    return n >= a->min && n <= a->max && least <= a->max_contains && most >= a->min_contains;
}

static bool ref_member(const grammar *g, const struct g_object *o, int node, uint32_t *place) {
    const struct ref_node *key = &ref_nodes[ref_nodes[node].key];
    for (*place = 0; *place < o->n_properties; ++*place) {
        const struct g_property *p = &g->properties.at[o->first_property + *place];
        if (p->name_bytes == key->n_content &&
            memcmp(g->names.at + p->name, key->content, key->n_content) == 0)
            return ref_value(g, p->value, node);
    }
    for (uint32_t k = 0; k < o->n_keys; k++) {
        const struct g_keys *keys = &g->keys.at[o->first_keys + k];
        if (dfa_accepts(&g->dfas.at[keys->dfa], key->content, key->n_content))
            return ref_value(g, keys->value, node);
    }
    return false;
}

static bool ref_object(const grammar *g, const struct g_object *o, int node) {
    uint32_t n = 0, place, last = 0;
    uint64_t seen = 0;
    for (int c = ref_nodes[node].child; c >= 0; c = ref_nodes[c].sibling, n++) {
        if (!ref_member(g, o, c, &place)) return false;
        if (o->in_order && place < last) return false;
        last = place;
        if (place < 64) seen |= UINT64_C(1) << place;
        for (int d = ref_nodes[node].child; d != c; d = ref_nodes[d].sibling)
            if (ref_same(&ref_nodes[ref_nodes[c].key], &ref_nodes[ref_nodes[d].key])) return false;
    }
    for (uint32_t i = 0; i < o->n_properties; i++)
        if (g->properties.at[o->first_property + i].required && !(seen >> i & 1)) return false;
    return n >= o->min && n <= o->max;
}

static bool ref_value(const grammar *g, uint32_t value, int node) {
    const struct ref_node *t = &ref_nodes[node];
    if (value == GRAMMAR_NONE) return false;
    for (uint32_t i = 0; i < g->values.at[value].n_alts; i++) {
        const struct g_alt *alt = &g->alts.at[g->values.at[value].first_alt + i];
        if (alt->kind == G_ALT_TEXT && t->type <= REF_NUMBER) {
            if (dfa_accepts(&g->dfas.at[alt->index], t->text, t->n)) return true;
        } else if (alt->kind == G_ALT_STRING && t->type == REF_STRING) {
            const struct g_string *s = &g->strings.at[alt->index];
            uint32_t n = ref_n_code_points(t);
            if (s->dfa == GRAMMAR_NONE ? n >= s->min && n <= s->max
                                       : dfa_accepts(&g->dfas.at[s->dfa], t->content, t->n_content))
                return true;
        } else if (alt->kind == G_ALT_ARRAY && t->type == REF_ARRAY) {
            if (ref_array(g, &g->arrays.at[alt->index], node)) return true;
        } else if (alt->kind == G_ALT_OBJECT && t->type == REF_OBJECT) {
            if (ref_object(g, &g->objects.at[alt->index], node)) return true;
        }
    }
    return false;
}

static bool ref_accepts(const grammar *g, uint32_t value, const char *text, size_t n) {
    ref_at = text;
    ref_end = text + n;
    ref_n_nodes = 0;
    int node = ref_parse();
    return node >= 0 && ref_at == ref_end && ref_value(g, value, node);
}

/* ---- random texts ---- */

struct ref_text {
    char at[4096];
    size_t n;
};

static void ref_add(struct ref_text *t, const char *bytes, size_t n) {
    if (t->n + n >= sizeof t->at) return;
    memcpy(t->at + t->n, bytes, n);
    t->n += n;
    t->at[t->n] = 0;
}

/* A text of an automaton: random steps, which end with some probability in accepting states. */
static void ref_draw(const struct dfa *d, struct ref_text *out) {
    uint32_t state = d->start;
    while (out->n < 150) {
        uint8_t live[256];
        uint32_t n = 0;
        for (int b = 0; b < 256; b++)
            if (dfa_step(d, state, (uint8_t)b)) live[n++] = (uint8_t)b;
        if (d->accept[state] && (!n || ref_below(3) == 0)) return;
        char byte = (char)live[ref_below(n)];
        state = dfa_step(d, state, (uint8_t)byte);
        ref_add(out, &byte, 1);
    }
}

static void ref_add_escape(struct ref_text *t, uint32_t cp) {
    char text[16];
    if (cp < 0x10000)
        snprintf(text, sizeof text, ref_below(2) ? "\\u%04x" : "\\u%04X", cp);
    else
        snprintf(text, sizeof text, "\\u%04x\\u%04X", 0xd800 + ((cp - 0x10000) >> 10),
                 0xdc00 + (cp & 0x3ff));
    ref_add(t, text, strlen(text));
}

static void ref_write_string(struct ref_text *t, const char *content, size_t n) {
    const char *at = content, *end = content + n;
    ref_add(t, "\"", 1);
    while (at < end) {
        const char *from = at;
        int64_t cp = ref_utf8(&at, end);
        if (cp < 0) break;
        if (cp == '\n' && ref_below(2))
            ref_add(t, "\\n", 2);
        else if ((cp == '"' || cp == '\\' || cp == '/') && ref_below(2))
            ref_add(t, (char[]){'\\', (char)cp}, 2);
        else if (cp < 0x20 || cp == '"' || cp == '\\' || ref_below(8) == 0)
            ref_add_escape(t, (uint32_t)cp);
        else
            ref_add(t, from, (size_t)(at - from));
    }
    ref_add(t, "\"", 1);
}

static void ref_write_content(const grammar *g, const struct g_string *s, struct ref_text *t) {
    static const char *const chars[] = {"a", "b", "\"", "\\", "\n", "\xc3\xa9", "\xf0\x9f\x98\x80"};
    struct ref_text content = {.n = 0};
    uint32_t n = s->min + ref_below(3);
    if (s->dfa != GRAMMAR_NONE) {
        ref_draw(&g->dfas.at[s->dfa], &content);
    } else {
        for (uint32_t i = 0; i < (n < s->max ? n : s->max); i++) {
            const char *c = chars[ref_below(7)];
            ref_add(&content, c, strlen(c));
        }
    }
    ref_write_string(t, content.at, content.n);
}

static void ref_write(const grammar *g, uint32_t value, struct ref_text *t);

static void ref_comma(struct ref_text *t, uint32_t i, const char *comma) {
    if (i) ref_add(t, comma, 1);
    if (i && ref_below(2)) ref_add(t, " ", 1);
}

static void ref_write_array(const grammar *g, const struct g_array *a, struct ref_text *t) {
    uint32_t n = a->min + ref_below(3), last = a->more == GRAMMAR_NONE ? a->n_items : a->max;
    if (n > last) n = last;
    ref_add(t, "[", 1);
    for (uint32_t i = 0; i < n; i++) {
        const struct g_item *item = &g->items.at[i < a->n_items ? a->first_item + i : a->more];
        uint32_t value = item->contains != GRAMMAR_NONE && ref_below(2) ? item->contains
                         : a->min_contains                              ? item->rest
                                                                        : item->value;
        ref_comma(t, i, ",");
        ref_write(g, value == GRAMMAR_NONE ? item->value : value, t);
    }
    ref_add(t, "]", 1);
}

/* Members in order, then other keys; occasionally out of order. */
static void ref_write_object(const grammar *g, const struct g_object *o, struct ref_text *t) {
    uint32_t n = 0, first = o->in_order || !o->n_properties ? 0 : ref_below(o->n_properties);
    ref_add(t, "{", 1);
    for (uint32_t k = 0; k < o->n_properties; k++) {
        const struct g_property *p =
            &g->properties.at[o->first_property + (first + k) % o->n_properties];
        if (!p->required && ref_below(2)) continue;
        ref_comma(t, n++, ",");
        ref_write_string(t, g->names.at + p->name, p->name_bytes);
        ref_comma(t, 1, ":");
        ref_write(g, p->value, t);
    }
    for (uint32_t k = 0; k < o->n_keys; k++) {
        struct ref_text key = {.n = 0};
        const struct g_keys *keys = &g->keys.at[o->first_keys + k];
        if (ref_below(2)) continue;
        ref_draw(&g->dfas.at[keys->dfa], &key);
        ref_comma(t, n++, ",");
        ref_write_string(t, key.at, key.n);
        ref_comma(t, 1, ":");
        ref_write(g, keys->value, t);
    }
    ref_add(t, "}", 1);
}

/* Usually a text of the value; it may violate a bound, which the reference detects. */
static void ref_write(const grammar *g, uint32_t value, struct ref_text *t) {
    const struct g_value *v = &g->values.at[value];
    const struct g_alt *alt = &g->alts.at[v->first_alt + ref_below(v->n_alts)];
    struct ref_text word = {.n = 0};
    switch (alt->kind) {
    case G_ALT_TEXT:
        ref_draw(&g->dfas.at[alt->index], &word);
        ref_add(t, word.at, word.n);
        break;
    case G_ALT_STRING:
        ref_write_content(g, &g->strings.at[alt->index], t);
        break;
    case G_ALT_ARRAY:
        ref_write_array(g, &g->arrays.at[alt->index], t);
        break;
    case G_ALT_OBJECT:
        ref_write_object(g, &g->objects.at[alt->index], t);
        break;
    }
}

#endif
