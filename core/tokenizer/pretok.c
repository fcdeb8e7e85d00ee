/* pretok.c - runs the steps depth first, so no list of pieces is built. Immutable once built. */
#include "core/tokenizer/pretok.h"

#include "core/base/mem.h"
#include "core/text/utf8.h"
#include "core/tokenizer/scan.h"

#include <stdlib.h>
#include <string.h>

enum { MARK_BYTES = 8, BUFFER_MAX_BYTES = 1 << 30 };

enum step_kind { STEP_SPLIT, STEP_PREFIX, STEP_METASPACE, STEP_ALPHABET };

struct step {
    enum step_kind kind;
    struct scan scan; /* SCAN_NONE: regex */
    struct regex *regex;
    enum pretok_behavior behavior;
    bool invert;
    char mark[MARK_BYTES]; /* STEP_METASPACE */
    enum pretok_prepend prepend;
};

struct pretok {
    const struct unicode_flags *flags;
    struct step steps[PRETOK_MAX_STEPS];
    unsigned n_steps;
    bool has_alphabet;
};

struct pretok *pretok_new(const struct unicode_flags *flags) {
    struct pretok *p = mem_new(1, sizeof *p);
    if (p) p->flags = flags;
    return p;
}

void pretok_free(struct pretok *p) {
    if (!p) return;
    for (unsigned i = 0; i < p->n_steps; i++)
        regex_free(p->steps[i].regex);
    free(p);
}

static int add_step(struct pretok *p, const struct step *s, err *e) {
    if (p->n_steps == PRETOK_MAX_STEPS)
        return err_set(e, ERR_UNSUPPORTED, "the pre-tokenizer has more than the supported %d steps",
                       PRETOK_MAX_STEPS);
    p->steps[p->n_steps++] = *s;
    return 0;
}

int pretok_add_split(struct pretok *p, const struct pretok_split *s, err *e) {
    struct step step = {.kind = STEP_SPLIT, .behavior = s->behavior, .invert = s->invert};
    if (!s->literal) step.scan = scan_of_pattern(s->pattern);
    int rc = 0;
    if (step.scan.kind == SCAN_NONE) rc = regex_new(s->pattern, s->literal, &step.regex, e);
    if (!rc && (rc = add_step(p, &step, e))) regex_free(step.regex);
    return rc;
}

int pretok_add_prefix_space(struct pretok *p, err *e) {
    return add_step(p, &(struct step){.kind = STEP_PREFIX}, e);
}

int pretok_add_metaspace(struct pretok *p, const char *mark, enum pretok_prepend prepend,
                         bool split, err *e) {
    struct step step = {.kind = STEP_METASPACE, .prepend = prepend};
    size_t n = strlen(mark);
    if (n == 0 || n >= MARK_BYTES)
        return err_set(e, ERR_UNSUPPORTED, "a Metaspace replacement of %zu bytes is not supported",
                       n);
    memcpy(step.mark, mark, n);
    int rc = add_step(p, &step, e);
    struct pretok_split cut = {.pattern = mark, .literal = true, .behavior = PRETOK_WITH_NEXT};
    return rc || !split ? rc : pretok_add_split(p, &cut, e);
}

int pretok_add_alphabet(struct pretok *p, err *e) {
    p->has_alphabet = true;
    return add_step(p, &(struct step){.kind = STEP_ALPHABET}, e);
}

int pretok_add_rule(struct pretok *p, const struct pretok_rule *rule, err *e) {
    int rc = 0;
    for (int i = 0; !rc && rule->patterns[i]; i++)
        rc = pretok_add_split(p, &(struct pretok_split){.pattern = rule->patterns[i]}, e);
    return rc;
}

void pretok_work_init(struct pretok_work *w) {
    memset(w, 0, sizeof *w);
    for (int i = 0; i <= PRETOK_MAX_STEPS; i++)
        str_init(&w->buffers[i], BUFFER_MAX_BYTES);
}

void pretok_work_fini(struct pretok_work *w) {
    regex_work_fini(&w->regex);
    for (int i = 0; i <= PRETOK_MAX_STEPS; i++)
        str_fini(&w->buffers[i]);
}

struct run {
    const struct pretok *p;
    struct pretok_work *w;
    const struct pretok_sink *sink;
    err *e;
};

static int run_step(const struct run *r, unsigned step, const char *text, size_t n, bool at_start);

/* The state of a split: matches and the texts between them arrive in order; a piece that may still
 * grow is pending. */
struct split {
    const struct run *r;
    unsigned step;
    const char *text;
    bool at_start;
    bool has_piece, is_match;
    size_t start, end; /* of the pending piece */
};

static int pass_on(const struct split *s, size_t start, size_t end) {
    if (start == end) return 0;
    return run_step(s->r, s->step + 1, s->text + start, end - start, s->at_start && start == 0);
}

static int flush_piece(struct split *s) {
    bool has = s->has_piece;
    s->has_piece = false;
    return has ? pass_on(s, s->start, s->end) : 0;
}

/* Takes text[start..end), which is a match or the text between two. */
static int take_part(struct split *s, const struct step *step, size_t start, size_t end,
                     bool is_match) {
    if (start == end) return 0;
    is_match ^= step->invert;
    bool joins = false;
    switch (step->behavior) {
    case PRETOK_ISOLATED:
        return pass_on(s, start, end);
    case PRETOK_REMOVED:
        return is_match ? 0 : pass_on(s, start, end);
    case PRETOK_WITH_PREVIOUS:
        joins = is_match && !s->is_match;
        break;
    case PRETOK_WITH_NEXT:
        joins = !is_match && s->is_match;
        break;
    case PRETOK_CONTIGUOUS:
        joins = is_match == s->is_match;
        break;
    }
    int rc = 0;
    if (!s->has_piece || !joins) {
        rc = flush_piece(s);
        s->start = start;
        s->has_piece = true;
    }
    s->end = end;
    s->is_match = is_match;
    return rc;
}

/* The error of a buffer that failed. */
static int refuse_text(const str *out, err *e) {
    if (out->no_memory) return err_no_memory(e);
    return err_set(e, ERR_TOO_LONG, "the text is too long to split: send a shorter one");
}

static int run_split(const struct run *r, unsigned number, const char *text, size_t n,
                     bool at_start) {
    const struct step *step = &r->p->steps[number];
    struct split s = {.r = r, .step = number, .text = text, .at_start = at_start};
    struct scan_match m = {0};
    size_t done = 0;
    int rc = 0;
    while (m.from <= n) {
        int found = step->regex ? regex_next(step->regex, &r->w->regex, text, n, m.from, &m.start,
                                             &m.end, r->e)
                                : scan_next(&step->scan, r->p->flags, text, n, &m);
        if (found < 0) return found;
        if (!found) break;
        rc = take_part(&s, step, done, m.start, false);
        if (!rc) rc = take_part(&s, step, m.start, m.end, true);
        if (rc) return rc;
        done = m.from = m.end;
        if (m.start == m.end) { /* an empty match only cuts: continue after the next character */
            unsigned len = 1;
            if (m.from < n) utf8_decode_valid(text + m.from, &len);
            m.from += len;
        }
    }
    rc = take_part(&s, step, done, n, false);
    return rc ? rc : flush_piece(&s);
}

static int run_metaspace(const struct run *r, unsigned number, const char *text, size_t n,
                         bool at_start) {
    const struct step *step = &r->p->steps[number];
    str *out = &r->w->buffers[number];
    size_t n_mark = strlen(step->mark);
    bool has = (n >= n_mark && memcmp(text, step->mark, n_mark) == 0) || text[0] == ' ';
    bool wanted = step->prepend == PRETOK_ALWAYS || (step->prepend == PRETOK_FIRST && at_start);
    str_clear(out);
    if (wanted && !has) str_add_n(out, step->mark, n_mark);
    for (size_t i = 0; i < n;) {
        size_t end = i;
        while (end < n && text[end] != ' ')
            end++;
        str_add_n(out, text + i, end - i);
        if (end < n) str_add_n(out, step->mark, n_mark);
        i = end + 1;
    }
    if (out->failed) return refuse_text(out, r->e);
    return run_step(r, number + 1, out->data, out->len, at_start);
}

static int run_prefix(const struct run *r, unsigned number, const char *text, size_t n,
                      bool at_start) {
    str *out = &r->w->buffers[number];
    if (text[0] == ' ') return run_step(r, number + 1, text, n, at_start);
    str_clear(out);
    str_add_char(out, ' ');
    str_add_n(out, text, n);
    if (out->failed) return refuse_text(out, r->e);
    return run_step(r, number + 1, out->data, out->len, at_start);
}

static int run_alphabet(const struct run *r, unsigned number, const char *text, size_t n,
                        bool at_start) {
    str *out = &r->w->buffers[number];
    str_clear(out);
    for (size_t i = 0; i < n; i++)
        utf8_add(out, unicode_of_byte((unsigned char)text[i]));
    if (out->failed) return refuse_text(out, r->e);
    return run_step(r, number + 1, out->data, out->len, at_start);
}

static int pass_out(const struct run *r, const char *text, size_t n) {
    if (!r->p->has_alphabet) return r->sink->piece(r->sink->context, text, n, r->e);
    str *out = &r->w->buffers[PRETOK_MAX_STEPS];
    str_clear(out);
    for (size_t i = 0; i < n;) {
        unsigned len;
        str_add_char(out, (char)unicode_byte_of(utf8_decode_valid(text + i, &len)));
        i += len;
    }
    if (out->failed) return refuse_text(out, r->e);
    return r->sink->piece(r->sink->context, out->data, out->len, r->e);
}

/* Recursive; the depth is the number of steps. */
static int run_step(const struct run *r, unsigned step, const char *text, size_t n, bool at_start) {
    if (step == r->p->n_steps) return pass_out(r, text, n);
    switch (r->p->steps[step].kind) {
    case STEP_PREFIX:
        return run_prefix(r, step, text, n, at_start);
    case STEP_ALPHABET:
        return run_alphabet(r, step, text, n, at_start);
    case STEP_METASPACE:
        return run_metaspace(r, step, text, n, at_start);
    default:
        return run_split(r, step, text, n, at_start);
    }
}

int pretok_run(const struct pretok *p, struct pretok_work *w, const char *text, size_t n,
               bool at_start, const struct pretok_sink *sink, err *e) {
    struct run r = {p, w, sink, e};
    return n ? run_step(&r, 0, text, n, at_start) : 0;
}
