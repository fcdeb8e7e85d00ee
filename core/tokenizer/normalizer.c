/* normalizer.c - runs the steps, each from one buffer into the other. Immutable once built. */
#include "core/tokenizer/normalizer.h"

#include "core/base/mem.h"
#include "core/text/utf8.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_STEPS = 16, TEXT_MAX_BYTES = 1 << 30 };

struct step {
    enum normalizer_kind kind;
    bool left, right;
    struct regex *regex; /* REPLACE by regular expression */
    char *pattern, *content;
    struct charsmap *map;
};

struct normalizer {
    const struct unicode_flags *flags;
    struct step steps[MAX_STEPS];
    unsigned n_steps;
};

struct normalizer *normalizer_new(const struct unicode_flags *flags) {
    struct normalizer *n = mem_new(1, sizeof *n);
    if (n) n->flags = flags;
    return n;
}

static void step_fini(struct step *s) {
    regex_free(s->regex);
    charsmap_free(s->map);
    free(s->pattern);
    free(s->content);
}

void normalizer_free(struct normalizer *n) {
    if (!n) return;
    for (unsigned i = 0; i < n->n_steps; i++)
        step_fini(&n->steps[i]);
    free(n);
}

int normalizer_add(struct normalizer *n, const struct normalizer_step *s, err *e) {
    struct step step = {.kind = s->kind, .left = s->left, .right = s->right, .map = s->map};
    if (n->n_steps == MAX_STEPS) {
        charsmap_free(s->map);
        return err_set(e, ERR_UNSUPPORTED, "the normalizer has more than the supported %d steps",
                       MAX_STEPS);
    }
    int rc = 0;
    if (s->pattern && !s->literal) rc = regex_new(s->pattern, false, &step.regex, e);
    step.pattern = s->pattern ? mem_strdup(s->pattern) : NULL;
    step.content = s->content ? mem_strdup(s->content) : NULL;
    if (!rc && ((s->pattern && !step.pattern) || (s->content && !step.content)))
        rc = err_no_memory(e);
    if (rc)
        step_fini(&step);
    else
        n->steps[n->n_steps++] = step;
    return rc;
}

void normalizer_work_init(struct normalizer_work *w) {
    memset(w, 0, sizeof *w);
    str_init(&w->texts[0], TEXT_MAX_BYTES);
    str_init(&w->texts[1], TEXT_MAX_BYTES);
}

void normalizer_work_fini(struct normalizer_work *w) {
    regex_work_fini(&w->regex);
    str_fini(&w->texts[0]);
    str_fini(&w->texts[1]);
}

static void strip_text(const struct normalizer *n, const struct step *s, const char *text,
                       size_t len, str *out) {
    size_t from = 0, end = s->right ? 0 : len; /* end: after the last character that is kept */
    bool leading = s->left;
    for (size_t i = 0; i < len;) {
        unsigned size;
        bool space = unicode_flags_of(n->flags, utf8_decode_valid(text + i, &size)) & UNICODE_SPACE;
        i += size;
        if (leading && space) from = i;
        if (!space) {
            leading = false;
            if (s->right) end = i;
        }
    }
    if (end > from) str_add_n(out, text + from, end - from);
}

static void replace_text(const struct step *s, const char *text, size_t len, str *out) {
    size_t n = strlen(s->pattern), done = 0;
    for (size_t i = 0; i + n <= len;) {
        const char *hit = memchr(text + i, s->pattern[0], len - i - n + 1);
        if (!hit) break;
        i = (size_t)(hit - text);
        if (memcmp(hit, s->pattern, n) != 0) {
            i++;
            continue;
        }
        str_add_n(out, text + done, i - done);
        str_add(out, s->content);
        i += n;
        done = i;
    }
    str_add_n(out, text + done, len - done);
}

static int replace_matches(const struct step *s, struct regex_work *w, const char *text, size_t len,
                           str *out, err *e) {
    size_t done = 0, start, end;
    for (size_t from = 0; from <= len;) {
        int found = regex_next(s->regex, w, text, len, from, &start, &end, e);
        if (found < 0) return found;
        if (!found) break;
        str_add_n(out, text + done, start - done);
        str_add(out, s->content);
        done = from = end;
        if (start == end) { /* an empty match: continue after the next character */
            unsigned size = 1;
            if (from < len) utf8_decode_valid(text + from, &size);
            from += size;
        }
    }
    str_add_n(out, text + done, len - done);
    return 0;
}

static int run_step(const struct normalizer *n, const struct step *s, struct regex_work *w,
                    const char *text, size_t len, str *out, err *e) {
    switch (s->kind) {
    case NORMALIZER_NFC:
    case NORMALIZER_NFD:
        if (!unicode_normalize(n->flags, text, len, s->kind == NORMALIZER_NFC, out))
            out->failed = true;
        return 0;
    case NORMALIZER_LOWERCASE:
        unicode_add_lower(out, text, len);
        return 0;
    case NORMALIZER_STRIP:
        strip_text(n, s, text, len, out);
        return 0;
    case NORMALIZER_CHARSMAP:
        charsmap_run(s->map, text, len, out);
        return 0;
    case NORMALIZER_PREPEND:
        if (len) str_add(out, s->content);
        str_add_n(out, text, len);
        return 0;
    default:
        if (s->regex) return replace_matches(s, w, text, len, out, e);
        replace_text(s, text, len, out);
        return 0;
    }
}

int normalizer_run(const struct normalizer *n, struct normalizer_work *w, const char *text,
                   size_t len, const char **out, size_t *out_len, err *e) {
    *out = text;
    *out_len = len;
    for (unsigned i = 0; i < n->n_steps; i++) {
        str *to = &w->texts[i % 2];
        str_clear(to);
        int rc = run_step(n, &n->steps[i], &w->regex, *out, *out_len, to, e);
        if (!rc && to->failed)
            rc = to->no_memory ? err_no_memory(e)
                               : err_set(e, ERR_TOO_LONG,
                                         "the text is too long to normalize: send a shorter one");
        if (rc) return rc;
        *out = str_cstr(to);
        *out_len = to->len;
    }
    return 0;
}
