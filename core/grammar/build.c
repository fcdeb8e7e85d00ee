/* build.c - the public builder: makes nodes from texts, patterns, schemas and other nodes, and the
 * finished grammar. The first failure is kept; grammar_finish reports it.
 *
 * THREAD SAFETY: one builder, one thread at a time. */
#include "core/base/mem.h"
#include "core/grammar/grammar_int.h"

#include <stdlib.h>
#include <string.h>

static grammar_node fail_build(grammar_builder *b, int code, const char *text) {
    if (!b->failure.code) err_set(&b->failure, code, "%s", text);
    return -1;
}

static grammar_node fail_build_no_memory(grammar_builder *b) {
    if (!b->failure.code) err_no_memory(&b->failure);
    return -1;
}

/* The node of an attempt with result rc, or its failure e; the first failure is kept. */
static grammar_node node_or_failure(grammar_builder *b, int rc, uint32_t node, const err *e) {
    if (!rc) return (grammar_node)node;
    if (!b->failure.code) {
        b->failure = *e;
        b->failure.code = rc;
    }
    return -1;
}

static bool has_failed(const grammar_builder *b) {
    return b->failure.code != 0;
}

void grammar_builder_limit(grammar_builder *b, struct work *w) {
    b->g->work = w;
}

static grammar_node add_node(grammar_builder *b, const struct g_node *node,
                             const uint32_t *children) {
    err e = {0};
    uint32_t index = 0;
    int rc = program_add_node(b->g, node, children, &index, &e);
    return node_or_failure(b, rc, index, &e);
}

static grammar_node add_parent(grammar_builder *b, enum g_kind kind, const grammar_node *nodes,
                               size_t n) {
    if (n > GRAMMAR_MAX_NODES) return fail_build(b, ERR_TOO_LONG, "the grammar is too large");
    for (size_t i = 0; i < n; i++)
        if (nodes[i] < 0 || (uint32_t)nodes[i] >= b->g->nodes.n)
            return fail_build(b, ERR_INVALID, "a part of the grammar is missing");
    uint32_t *children = mem_new(n, sizeof *children);
    if (!children) return fail_build_no_memory(b);
    for (size_t i = 0; i < n; i++)
        children[i] = (uint32_t)nodes[i];
    struct g_node made = {.kind = kind, .n_children = (uint32_t)n};
    grammar_node node = add_node(b, &made, children);
    free(children);
    return node;
}

/* The node of the automaton d, which was made with result rc. */
static grammar_node add_dfa(grammar_builder *b, int rc, struct dfa *d, err *e) {
    struct g_node made = {.kind = G_DFA};
    if (!rc) rc = program_add_dfa(b->g, d, &made.index, e);
    return rc ? node_or_failure(b, rc, 0, e) : add_node(b, &made, NULL);
}

static grammar_node add_words(grammar_builder *b, const struct dfa_word *words, size_t n) {
    struct dfa d = {0};
    err e = {0};
    int rc = dfa_from_words(words, n, b->g->work, &d, &e);
    return add_dfa(b, rc, &d, &e);
}

grammar_node grammar_text(grammar_builder *b, const char *bytes, size_t n) {
    return n ? add_words(b, &(struct dfa_word){bytes, n}, 1) : grammar_seq(b, NULL, 0);
}

grammar_node grammar_control(grammar_builder *b, const char *text) {
    size_t n = strlen(text), prefix = strlen(GRAMMAR_CONTROL);
    char *bytes = mem_new(n + prefix, 1);
    if (!bytes) return fail_build_no_memory(b);
    memcpy(bytes, GRAMMAR_CONTROL, prefix);
    memcpy(bytes + prefix, text, n);
    grammar_node node = grammar_text(b, bytes, n + prefix);
    free(bytes);
    return node;
}

grammar_node grammar_seq(grammar_builder *b, const grammar_node *nodes, size_t n) {
    return add_parent(b, G_SEQ, nodes, n);
}

grammar_node grammar_alt(grammar_builder *b, const grammar_node *nodes, size_t n) {
    if (!n) return fail_build(b, ERR_INVALID, "a choice has no alternatives");
    return add_parent(b, G_ALT, nodes, n);
}

grammar_node grammar_repeat(grammar_builder *b, grammar_node node, uint32_t min, uint32_t max) {
    if (min > max)
        return fail_build(b, ERR_INVALID,
                          "the minimum of a repetition is greater than its maximum");
    grammar_node made = add_parent(b, G_REPEAT, &node, 1);
    if (made >= 0) {
        b->g->nodes.at[made].min = min;
        b->g->nodes.at[made].max = max;
    }
    return made;
}

grammar_node grammar_until(grammar_builder *b, const char *const *stops, size_t n) {
    struct dfa d = {0};
    err e = {0};
    int rc = dfa_from_until(stops, n, b->g->work, &d, &e);
    return add_dfa(b, rc, &d, &e);
}

grammar_node grammar_rule(grammar_builder *b) {
    const uint32_t unset = GRAMMAR_NONE;
    return add_node(b, &(struct g_node){.kind = G_RULE, .n_children = 1}, &unset);
}

void grammar_rule_set(grammar_builder *b, grammar_node rule, grammar_node body) {
    grammar *g = b->g;
    if (rule < 0 || body < 0 || (uint32_t)rule >= g->nodes.n || (uint32_t)body >= g->nodes.n ||
        g->nodes.at[rule].kind != G_RULE)
        fail_build(b, ERR_INVALID, "a part of the grammar is missing");
    else
        g->children.at[g->nodes.at[rule].first_child] = (uint32_t)body;
}

grammar_node grammar_regex(grammar_builder *b, const char *pattern) {
    struct dfa d = {0};
    err e = {0};
    if (has_failed(b)) return -1;
    int rc = dfa_from_regex(pattern, 0, b->g->work, &d, &e);
    return add_dfa(b, rc, &d, &e);
}

grammar_node grammar_choice(grammar_builder *b, const char *const *texts, size_t n) {
    if (!n) return fail_build(b, ERR_INVALID, "a choice has no alternatives");
    struct dfa_word *words = mem_new(n, sizeof *words);
    if (!words) return fail_build_no_memory(b);
    for (size_t i = 0; i < n; i++)
        words[i] = (struct dfa_word){texts[i], strlen(texts[i])};
    grammar_node node = add_words(b, words, n);
    free(words);
    return node;
}

grammar_node grammar_json(grammar_builder *b, const struct grammar_schema *schema) {
    struct g_node made = {.kind = G_VALUE};
    err e = {0};
    if (has_failed(b)) return -1;
    int rc = schema_compile(b->g, schema, &made.index, &e);
    return rc ? node_or_failure(b, rc, 0, &e) : add_node(b, &made, NULL);
}

int grammar_finish(grammar_builder *b, grammar_node root, grammar **out, err *e) {
    *out = NULL;
    if (!b->failure.code && (root < 0 || (uint32_t)root >= b->g->nodes.n))
        fail_build(b, ERR_INVALID, "the grammar has no root");
    err failure = b->failure;
    grammar *g = NULL;
    int rc = program_take(b, &g, e);
    if (rc) return rc;
    if (failure.code) {
        if (e) *e = failure;
        grammar_release(g);
        return failure.code;
    }
    g->root = (uint32_t)root;
    rc = program_analyse(g, e);
    g->work = NULL;
    if (rc)
        grammar_release(g);
    else
        *out = g;
    return rc;
}
