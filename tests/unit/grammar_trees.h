/* grammar_trees.h - random grammars as trees, and a naive matcher of the trees. Independent of the
 * machine. Single thread. */
#ifndef INFERD_TESTS_GRAMMAR_TREES_H
#define INFERD_TESTS_GRAMMAR_TREES_H

#include "tests/unit/grammar_ref.h"

enum tree_kind { TREE_WORDS, TREE_SEQ, TREE_ALT, TREE_REPEAT, TREE_CALL };
struct tree {
    enum tree_kind kind;
    int n, child[3]; /* a call's first: the rule */
    uint32_t min, max;
    const char *words[3];
};
enum { MAX_TREES = 400, MAX_RULES = 2, MAX_TEXT = 14 };
static struct tree trees[MAX_TREES];
static int n_trees, rule_bodies[MAX_RULES];
static grammar_node rule_nodes[MAX_RULES];

static const char *const pool[] = {"a",
                                   "b",
                                   "c",
                                   "ab",
                                   "ba",
                                   "abc",
                                   "aab",
                                   "\xff"
                                   "C",
                                   "cc",
                                   ""};

static int grow(grammar_builder *b, int depth, bool may_call, grammar_node *node);

static int new_tree(enum tree_kind kind) {
    trees[n_trees] = (struct tree){.kind = kind};
    return n_trees++;
}

static int grow_words(grammar_builder *b, bool empty, grammar_node *node) {
    int t = new_tree(TREE_WORDS);
    trees[t].n = 1 + (int)ref_below(3);
    for (int i = 0; i < trees[t].n; i++)
        trees[t].words[i] = pool[ref_below(empty ? 10 : 9)];
    *node = grammar_choice(b, trees[t].words, (size_t)trees[t].n);
    return t;
}

static int grow_children(grammar_builder *b, enum tree_kind kind, int depth, bool may_call,
                         grammar_node *node) {
    int t = new_tree(kind), n = 1 + (int)ref_below(3);
    grammar_node nodes[3];
    for (int i = 0; i < n; i++) {
        bool taken = kind == TREE_SEQ && i && trees[trees[t].child[0]].kind == TREE_WORDS;
        for (int w = 0; taken && w < trees[trees[t].child[0]].n; w++)
            taken = trees[trees[t].child[0]].words[w][0] != 0;
        int child = grow(b, depth - 1, may_call || taken, &nodes[i]);
        trees[t].child[i] = child;
    }
    trees[t].n = n;
    *node = kind == TREE_SEQ ? grammar_seq(b, nodes, (size_t)n) : grammar_alt(b, nodes, (size_t)n);
    return t;
}

/* A call has a word as an alternative, so that it can end, and one before it, so that it consumes
 * something. */
static int grow_call(grammar_builder *b, grammar_node *node) {
    int t = new_tree(TREE_ALT), call = new_tree(TREE_CALL);
    grammar_node nodes[2];
    trees[call].child[0] = (int)ref_below(MAX_RULES);
    nodes[0] = rule_nodes[trees[call].child[0]];
    int word = grow_words(b, false, &nodes[1]);
    trees[t].n = 2;
    trees[t].child[0] = call;
    trees[t].child[1] = word;
    *node = grammar_alt(b, nodes, 2);
    return t;
}

static int grow(grammar_builder *b, int depth, bool may_call, grammar_node *node) {
    uint32_t dice = depth ? ref_below(6) : 0;
    if (may_call && dice == 5) return grow_call(b, node);
    if (dice == 1 || dice == 2) return grow_children(b, TREE_SEQ, depth, may_call, node);
    if (dice == 3) return grow_children(b, TREE_ALT, depth, may_call, node);
    if (dice != 4) return grow_words(b, true, node);
    int t = new_tree(TREE_REPEAT);
    grammar_node child;
    int body = grow(b, depth - 1, may_call, &child);
    trees[t].child[0] = body;
    trees[t].min = ref_below(3);
    trees[t].max = ref_below(2) ? GRAMMAR_UNLIMITED : trees[t].min + ref_below(3);
    *node = grammar_repeat(b, child, trees[t].min, trees[t].max);
    return t;
}

/* Where a match of the tree from pos on may end: bit i is position i. */
static uint32_t ends(int tree, const char *text, uint32_t n, uint32_t pos) {
    const struct tree *t = &trees[tree];
    uint32_t at = UINT32_C(1) << pos, found = 0;
    switch (t->kind) {
    case TREE_WORDS:
        for (int i = 0; i < t->n; i++) {
            size_t len = strlen(t->words[i]);
            if (len <= n - pos && memcmp(text + pos, t->words[i], len) == 0) found |= at << len;
        }
        return found;
    case TREE_CALL:
        return ends(rule_bodies[t->child[0]], text, n, pos);
    case TREE_ALT:
        for (int i = 0; i < t->n; i++)
            found |= ends(t->child[i], text, n, pos);
        return found;
    default:
        break;
    }
    uint32_t last = t->kind == TREE_SEQ           ? (uint32_t)t->n
                    : t->max == GRAMMAR_UNLIMITED ? t->min + n + 1
                                                  : t->max;
    for (uint32_t k = 0; k <= last; k++) {
        if (k >= (t->kind == TREE_SEQ ? last : t->min)) found |= at;
        uint32_t next = 0;
        for (uint32_t p = pos; k < last && p <= n; p++)
            if (at >> p & 1) next |= ends(t->child[t->kind == TREE_SEQ ? k : 0], text, n, p);
        at = next;
    }
    return found;
}

/* Is the text from pos on a prefix of a match? (Every tree here matches something.) */
static bool begins(int tree, const char *text, uint32_t n, uint32_t pos) {
    const struct tree *t = &trees[tree];
    uint32_t at = UINT32_C(1) << pos;
    if (pos == n) return true;
    if (t->kind == TREE_CALL) return begins(rule_bodies[t->child[0]], text, n, pos);
    if (t->kind == TREE_WORDS || t->kind == TREE_ALT) {
        for (int i = 0; i < t->n; i++)
            if (t->kind == TREE_ALT ? begins(t->child[i], text, n, pos)
                                    : strlen(t->words[i]) >= n - pos &&
                                          memcmp(t->words[i], text + pos, n - pos) == 0)
                return true;
        return false;
    }
    uint32_t last = t->kind == TREE_SEQ           ? (uint32_t)t->n
                    : t->max == GRAMMAR_UNLIMITED ? t->min + n + 1
                                                  : t->max;
    for (uint32_t k = 0; k <= last; k++) {
        uint32_t next = 0;
        if (at >> n & 1) return true;
        for (uint32_t p = pos; k < last && p <= n; p++) {
            int child = t->child[t->kind == TREE_SEQ ? k : 0];
            if (!(at >> p & 1)) continue;
            if (begins(child, text, n, p)) return true;
            next |= ends(child, text, n, p);
        }
        at = next;
    }
    return false;
}

#endif
