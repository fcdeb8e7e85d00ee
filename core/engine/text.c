/* text.c - incremental text of one choice: token bytes become whole UTF-8 characters, in which stop
 * strings are searched.
 *
 * Two stages. Bytes of an incomplete character (at most three) wait in `partial`; whole characters,
 * with malformed bytes replaced, go through the matcher into `held`. The matcher has one
 * Knuth-Morris-Pratt state per stop string: the length of the longest suffix of the text that is a
 * prefix of the stop string, so the largest state is exactly how much must be held back.
 *
 * A stop string is found when its last byte arrives: the occurrence that ends first wins, and of
 * those that end there the longest. So the result does not depend on how the text was split into
 * tokens. Runs on the thread that reads the stream. */
#include "core/base/mem.h"
#include "core/base/str.h"
#include "core/engine/engine.h"
#include "core/text/utf8.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_STOPS = 16, PARTIAL_BYTES = 3, MAX_HELD_BYTES = 1 << 24 };

struct stop {
    char *text;     /* (len) */
    uint32_t *fail; /* (len): fail[i] = longest proper border of text[0..i] */
    size_t len, state;
};

struct engine_text {
    const tokenizer *tok;
    struct stop stops[MAX_STOPS];
    uint32_t n_stops;
    const char *found; /* the stop string that ended the text; NULL: none did */
    bool include_stop, strip_space, with_control, stopped;
    char partial[PARTIAL_BYTES];
    size_t n_partial;
    str raw;  /* partial + the new token's bytes */
    str held; /* whole characters not returned yet */
    str out;  /* what the last call returned */
};

static int init_stop(struct stop *s, const char *text) {
    s->len = strlen(text);
    s->text = mem_strndup(text, s->len);
    s->fail = mem_new(s->len, sizeof *s->fail);
    if (!s->text || !s->fail) return ERR_NOMEM;
    uint32_t k = 0;
    for (size_t i = 1; i < s->len; i++) {
        while (k && text[i] != text[k])
            k = s->fail[k - 1];
        if (text[i] == text[k]) k++;
        s->fail[i] = k;
    }
    return 0;
}

/* True when c completes the stop string. */
static bool feed_stop(struct stop *s, char c) {
    while (s->state && s->text[s->state] != c)
        s->state = s->fail[s->state - 1];
    if (s->text[s->state] == c) s->state++;
    return s->state == s->len;
}

engine_text *engine_text_new(const struct engine_text_config *config) {
    engine_text *t = mem_new(1, sizeof *t);
    if (!t) return NULL;
    t->tok = config->tok;
    t->include_stop = config->include_stop;
    t->strip_space = config->strip_leading_space;
    t->with_control = config->with_control;
    str_init(&t->raw, MAX_HELD_BYTES);
    str_init(&t->held, MAX_HELD_BYTES);
    str_init(&t->out, MAX_HELD_BYTES);
    for (uint32_t i = 0; i < config->n_stop && i < MAX_STOPS; i++) {
        if (!config->stop[i][0]) continue;
        if (init_stop(&t->stops[t->n_stops++], config->stop[i])) {
            engine_text_free(t);
            return NULL;
        }
    }
    return t;
}

void engine_text_free(engine_text *t) {
    if (!t) return;
    for (uint32_t i = 0; i < t->n_stops; i++) {
        free(t->stops[i].text);
        free(t->stops[i].fail);
    }
    str_fini(&t->raw);
    str_fini(&t->held);
    str_fini(&t->out);
    free(t);
}

/* Matches held[from..]; true: a stop string was completed, and held is cut to the text to return.
 */
static bool match_stops(engine_text *t, size_t from) {
    for (size_t i = from; i < t->held.len; i++) {
        size_t longest = 0;
        for (uint32_t k = 0; k < t->n_stops; k++)
            if (feed_stop(&t->stops[k], t->held.data[i]) && t->stops[k].len > longest) {
                longest = t->stops[k].len;
                t->found = t->stops[k].text;
            }
        if (longest) {
            t->held.len = t->include_stop ? i + 1 : i + 1 - longest;
            return true;
        }
    }
    return false;
}

/* Moves held[0..n) to out. */
static void emit_held(engine_text *t, size_t n) {
    if (!n) return;
    str_add_n(&t->out, t->held.data, n);
    memmove(t->held.data, t->held.data + n, t->held.len - n);
    t->held.len -= n;
}

/* Matches the new text held[from..] and moves what is final to out. */
static void take_new_text(engine_text *t, size_t from) {
    size_t keep = 0;
    if (match_stops(t, from)) {
        t->stopped = true;
    } else {
        for (uint32_t k = 0; k < t->n_stops; k++)
            if (t->stops[k].state > keep) keep = t->stops[k].state;
    }
    emit_held(t, t->held.len - keep);
}

bool engine_text_push(engine_text *t, int32_t token, const char **out, size_t *n) {
    str_clear(&t->out);
    size_t n_bytes = 0;
    const char *bytes = tokenizer_token_bytes(t->tok, token, t->with_control, &n_bytes);
    if (!t->stopped && n_bytes) {
        if (t->strip_space) {
            t->strip_space = false;
            if (bytes[0] == ' ') bytes++, n_bytes--;
        }
        str_clear(&t->raw);
        str_add_n(&t->raw, t->partial, t->n_partial);
        str_add_n(&t->raw, bytes, n_bytes);
        size_t whole = utf8_whole(str_cstr(&t->raw), t->raw.len);
        size_t from = t->held.len;
        utf8_add_lossy(&t->held, str_cstr(&t->raw), whole);
        t->n_partial = t->raw.len - whole;
        memcpy(t->partial, str_cstr(&t->raw) + whole, t->n_partial);
        take_new_text(t, from);
    }
    *out = str_cstr(&t->out);
    *n = t->out.len;
    return t->stopped;
}

bool engine_text_push_text(engine_text *t, const char *text, size_t n, const char **out,
                           size_t *n_out) {
    str_clear(&t->out);
    if (!t->stopped && n) {
        size_t from = t->held.len;
        str_add_n(&t->held, text, n);
        take_new_text(t, from);
    }
    *out = str_cstr(&t->out);
    *n_out = t->out.len;
    return t->stopped;
}

void engine_text_flush(engine_text *t, const char **out, size_t *n) {
    str_clear(&t->out);
    if (!t->stopped) emit_held(t, t->held.len);
    for (uint32_t k = 0; k < t->n_stops; k++)
        t->stops[k].state = 0;
    *out = str_cstr(&t->out);
    *n = t->out.len;
}

void engine_text_finish(engine_text *t, const char **out, size_t *n) {
    str_clear(&t->out);
    if (!t->stopped) {
        size_t from = t->held.len;
        utf8_add_lossy(&t->held, t->partial, t->n_partial);
        t->n_partial = 0;
        take_new_text(t, from);
        emit_held(t, t->held.len);
        t->stopped = true;
    }
    *out = str_cstr(&t->out);
    *n = t->out.len;
}

const char *engine_text_stop(const engine_text *t) {
    return t->found;
}
