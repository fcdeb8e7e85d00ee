/* parser.c - splits a streamed answer into text, reasoning and calls by the marks of a syntax. Owns
 * the undecided bytes and never guesses: a mark counts once it is complete, a name once it is
 * complete and known, a call once the object of its arguments has begun.
 *
 * Each step examines the start of the held bytes and consumes some of them, changes the state, or
 * waits for more, so the result does not depend on how the answer was divided. White space in a
 * mark matches any white space, or none. Runs on the thread that reads the stream. */
#include "core/base/mem.h"
#include "core/base/str.h"
#include "core/chat/chat_int.h"
#include "core/chat/python.h"
#include "core/chat/syntax.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { HELD_MAX_BYTES = 1 << 26, FIRST_PIECES = 8, HEADER_MAX_BYTES = 512 };

enum state {
    AT_BEGIN,     /* start of the answer: reasoning may open */
    AT_REASONING, /* within reasoning */
    AT_TEXT,
    AT_HEAD,      /* at a trigger, perhaps after white space: is it a call? */
    AT_ARGUMENTS, /* within the object of arguments */
    AT_KEYWORDS,  /* within arguments in Python's notation, or a bare object */
    AT_CLOSE,     /* after that object */
    AT_GAP,       /* after a complete call: another one, the section's end, or text */
    AT_HEADER,    /* harmony: in the header of a message */
    AT_MESSAGE    /* harmony: within a message of kind `message` */
};

struct piece {
    enum chat_piece_kind kind;
    size_t at, n; /* in out */
};

struct chat_parser {
    const struct chat_syntax *syntax;
    char **names; /* (n_names) */
    size_t n_names;
    enum state state;
    bool cut;        /* the end of the answer is not the model's */
    bool skip_space; /* white space that follows belongs to a mark */
    bool said;       /* text or a call came: the answer as a whole can no longer be a call */
    bool in_string, escaped;
    uint32_t depth; /* nesting within the arguments */
    enum chat_piece_kind message;
    struct chat_python python;
    str json; /* what a step adds to arguments in such a notation */
    str held; /* undecided bytes */
    str out;  /* texts of pieces */
    struct piece *pieces;
    size_t n_pieces, n_capacity, n_taken;
    bool failed;
};

chat_parser *chat_parser_new(const struct chat_parser_config *config) {
    chat_parser *p = mem_new(1, sizeof *p);
    if (!p) return NULL;
    p->syntax = config->syntax;
    str_init(&p->json, HELD_MAX_BYTES);
    str_init(&p->held, HELD_MAX_BYTES);
    str_init(&p->out, HELD_MAX_BYTES);
    bool reasons = *p->syntax->reasoning_open && *p->syntax->reasoning_close;
    p->state = !reasons                                ? AT_TEXT
               : config->begin == CHAT_BEGIN_REASONING ? AT_REASONING
               : config->begin == CHAT_BEGIN_OPEN      ? AT_BEGIN
                                                       : AT_TEXT;
    if (p->syntax->harmony) p->state = config->begin == CHAT_BEGIN_TEXT ? AT_MESSAGE : AT_HEADER;
    p->skip_space = p->state == AT_REASONING;
    p->n_capacity = FIRST_PIECES;
    p->pieces = mem_new(p->n_capacity, sizeof *p->pieces);
    p->names = mem_new(config->n_names, sizeof *p->names);
    p->failed = !p->pieces || !p->names;
    for (size_t i = 0; i < config->n_names && !p->failed; i++) {
        p->names[p->n_names++] = mem_strdup(config->names[i]);
        p->failed = !p->names[i];
    }
    if (!p->failed) return p;
    chat_parser_free(p);
    return NULL;
}

void chat_parser_free(chat_parser *p) {
    if (!p) return;
    for (size_t i = 0; i < p->n_names; i++)
        free(p->names[i]);
    free(p->names);
    free(p->pieces);
    str_fini(&p->json);
    str_fini(&p->held);
    str_fini(&p->out);
    free(p);
}

/* ---- pieces ---- */

static void add_piece(chat_parser *p, enum chat_piece_kind kind) {
    struct piece *last = p->n_pieces ? &p->pieces[p->n_pieces - 1] : NULL;
    if (last && last->kind == kind && kind != CHAT_PIECE_CALL) return;
    if (p->n_pieces == p->n_capacity) {
        struct piece *grown = mem_resize(p->pieces, 2 * p->n_capacity, sizeof *grown);
        p->failed |= !grown;
        if (!grown) return;
        p->pieces = grown;
        p->n_capacity *= 2;
    }
    p->pieces[p->n_pieces++] = (struct piece){kind, p->out.len, 0};
}

static void drop_held(chat_parser *p, size_t n) {
    if (!n) return;
    memmove(p->held.data, p->held.data + n, p->held.len - n);
    p->held.len -= n;
}

/* Length of the control token at s[0..n), 0: none. Control tokens are never divided. */
static size_t control_at(const char *s, size_t n) {
    if (!n || *s != CHAT_CONTROL_OPEN) return 0;
    const char *end = memchr(s, (unsigned char)CHAT_CONTROL_CLOSE, n);
    return end ? (size_t)(end - s) + 1 : n;
}

/* Adds the JSON of a step to the latest call's arguments. */
static void emit_json(chat_parser *p) {
    p->failed |= p->json.failed;
    if (!p->json.len || p->failed) return;
    add_piece(p, CHAT_PIECE_ARGUMENTS);
    if (p->failed) return;
    str_add_n(&p->out, p->json.data, p->json.len);
    p->pieces[p->n_pieces - 1].n += p->json.len;
    str_clear(&p->json);
}

/* Turns the first n held bytes into a piece, without control tokens. */
static void emit_piece(chat_parser *p, enum chat_piece_kind kind, size_t n) {
    const char *s = p->held.data;
    for (size_t i = 0; i < n;) {
        size_t skip = control_at(s + i, n - i), from = i;
        if (!skip && p->skip_space && chat_is_space(s[i])) skip = 1;
        i += skip;
        if (skip) continue;
        while (i < n && s[i] != CHAT_CONTROL_OPEN)
            i++;
        add_piece(p, kind);
        if (p->failed) return;
        str_add_n(&p->out, s + from, i - from);
        p->pieces[p->n_pieces - 1].n += i - from;
        p->skip_space = false;
        p->said |= kind == CHAT_PIECE_TEXT;
    }
    drop_held(p, n);
}

bool chat_parser_next(chat_parser *p, struct chat_piece *out) {
    if (p->n_taken == p->n_pieces) return false;
    const struct piece *piece = &p->pieces[p->n_taken++];
    *out = (struct chat_piece){piece->kind, str_cstr(&p->out) + piece->at, piece->n};
    return true;
}

enum chat_piece_kind chat_parser_state(const chat_parser *p) {
    return p->state == AT_MESSAGE     ? p->message
           : p->state == AT_REASONING ? CHAT_PIECE_REASONING
           : p->state >= AT_ARGUMENTS ? CHAT_PIECE_ARGUMENTS
                                      : CHAT_PIECE_TEXT;
}

bool chat_parser_holds_text(const chat_parser *p) {
    return p->held.len && p->state != AT_HEADER && chat_parser_state(p) == CHAT_PIECE_TEXT;
}

/* ---- marks ---- */

enum match { NO, PARTIAL, YES };

struct cursor {
    const char *s;
    size_t n, at;
    bool exact; /* white space in marks matches only itself */
};

static struct cursor cursor_of(const chat_parser *p) {
    return (struct cursor){str_cstr(&p->held), p->held.len, 0, p->syntax->at_start};
}

static void pass_space(struct cursor *c) {
    while (c->at < c->n && chat_is_space(c->s[c->at]))
        c->at++;
}

/* Matches a placeholder: at least one character, and another character must follow. */
static enum match match_hole(char hole, struct cursor *c) {
    size_t from = c->at;
    while (c->at < c->n && (hole == CHAT_HOLE_ID ? isalnum((unsigned char)c->s[c->at])
                                                 : isdigit((unsigned char)c->s[c->at])))
        c->at++;
    if (c->at - from > CHAT_MAX_NAME_BYTES) return NO;
    return c->at == c->n ? PARTIAL : c->at > from ? YES : NO;
}

static enum match match_mark(const char *mark, struct cursor *c) {
    for (; *mark; mark++) {
        if (chat_is_space(*mark) && !c->exact) {
            pass_space(c);
            continue;
        }
        if (c->at == c->n) return PARTIAL;
        if (*mark == CHAT_HOLE_ID || *mark == CHAT_HOLE_INDEX) {
            enum match m = match_hole(*mark, c);
            if (m != YES) return m;
        } else if (c->s[c->at++] != *mark) {
            return NO;
        }
    }
    return YES;
}

/* Is s[0..n) the beginning of arguments in Python's notation: `name =`, or the parenthesis that
 * ends the call? */
static enum match match_keyword(const char *s, size_t n) {
    size_t i = 0;
    if (*s == ')') return YES;
    if (*s != '_' && !isalpha((unsigned char)*s)) return NO;
    while (i < n && (s[i] == '_' || isalnum((unsigned char)s[i])))
        i++;
    if (i > CHAT_MAX_NAME_BYTES) return NO;
    while (i < n && chat_is_space(s[i]))
        i++;
    return i == n ? PARTIAL : s[i] == '=' ? YES : NO;
}

static enum match match_arguments(const chat_parser *p, const struct cursor *c) {
    if (c->at == c->n) return PARTIAL;
    if (c->s[c->at] == '{') return YES;
    return p->syntax->python ? match_keyword(c->s + c->at, c->n - c->at) : NO;
}

/* Matches one of the names, arguments_open, and how the arguments begin, which is not consumed.
 * A name may go on with characters that arguments_open begins with. */
static enum match match_name(const chat_parser *p, struct cursor *c, const char **name) {
    enum match best = NO;
    for (size_t i = 0; i < p->n_names; i++) {
        size_t left = c->n - c->at, n = strlen(p->names[i]);
        if (memcmp(p->names[i], c->s + c->at, n < left ? n : left) != 0) continue;
        struct cursor end = *c;
        end.at += n;
        enum match m = n < left ? match_mark(p->syntax->arguments_open, &end) : PARTIAL;
        if (m == YES) {
            pass_space(&end);
            m = match_arguments(p, &end);
        }
        if (m == YES) {
            *c = end;
            *name = p->names[i];
            return YES;
        }
        if (m == PARTIAL) best = PARTIAL;
    }
    return best;
}

static enum match match_call(const chat_parser *p, struct cursor *c, const char **name) {
    enum match m = match_mark(p->syntax->call_open, c);
    return m == YES ? match_name(p, c, name) : m;
}

/* Length of the longest suffix of s[0..n) that is a proper prefix of mark. */
static size_t partial_at_end(const char *s, size_t n, const char *mark) {
    size_t k = strlen(mark) - 1;
    for (k = k < n ? k : n; k; k--)
        if (memcmp(s + n - k, mark, k) == 0) return k;
    return 0;
}

/* Length of s[0..n) without trailing white space. */
static size_t trimmed_length(const char *s, size_t n) {
    while (n && chat_is_space(s[n - 1]))
        n--;
    return n;
}

/* ---- steps; true: step again ---- */

/* The answer ends within what may be a mark. true: it was cut off there, and the bytes are
 * dropped. */
static bool drop_cut(chat_parser *p) {
    if (p->cut) drop_held(p, p->held.len);
    return p->cut;
}

/* Emits what cannot belong to the mark, with the white space before that only at the end. */
static void emit_before(chat_parser *p, enum chat_piece_kind kind, const char *mark, bool final) {
    const char *s = str_cstr(&p->held);
    size_t n = p->held.len, keep = final && !p->cut ? 0 : partial_at_end(s, n, mark);
    emit_piece(p, kind, final && !keep ? n : trimmed_length(s, n - keep));
    if (final) drop_held(p, p->held.len);
}

static bool step_begin(chat_parser *p, bool final) {
    struct cursor c = cursor_of(p);
    pass_space(&c);
    bool begun = c.at < c.n;
    enum match m = match_mark(p->syntax->reasoning_open, &c);
    if (m == PARTIAL && (!final || (begun && drop_cut(p)))) return false;
    if (m == YES) drop_held(p, c.at);
    p->skip_space = m == YES;
    p->state = m == YES ? AT_REASONING : AT_TEXT;
    return true;
}

static bool step_reasoning(chat_parser *p, bool final) {
    const char *mark = p->syntax->reasoning_close, *s = p->held.data;
    size_t n = p->held.len;
    const char *end = n ? memmem(s, n, mark, strlen(mark)) : NULL;
    if (end) {
        size_t at = (size_t)(end - s), text = trimmed_length(s, at);
        emit_piece(p, CHAT_PIECE_REASONING, text);
        drop_held(p, at - text + strlen(mark));
        p->state = AT_TEXT;
        p->skip_space = true;
        return true;
    }
    emit_before(p, CHAT_PIECE_REASONING, mark, final);
    return false;
}

/* Length of the control tokens before a call without a mark. */
static size_t controls_before(const struct cursor *c) {
    size_t at = 0;
    for (size_t n = 1; n; at += n)
        n = control_at(c->s + at, c->n - at);
    return at;
}

/* The answer as a whole may be a call: everything is held back until that is decided. */
static bool step_whole(chat_parser *p, bool final) {
    const char *name = NULL;
    struct cursor c = cursor_of(p);
    c.at = controls_before(&c);
    bool begun = c.at < c.n;
    enum match m = match_call(p, &c, &name);
    if (m == PARTIAL && (!final || (begun && drop_cut(p)))) return false;
    if (m == YES)
        p->state = AT_HEAD;
    else
        p->said = true;
    return true;
}

static bool step_text(chat_parser *p, bool final) {
    const char *s = p->held.data, *mark = p->syntax->trigger;
    size_t n = p->held.len;
    if (!n) return false;
    if (p->n_names && p->syntax->at_start && !p->said) return step_whole(p, final);
    if (!p->n_names || p->syntax->at_start) {
        emit_piece(p, CHAT_PIECE_TEXT, n);
        return false;
    }
    const char *found = memmem(s, n, mark, strlen(mark));
    if (found) {
        emit_piece(p, CHAT_PIECE_TEXT, trimmed_length(s, (size_t)(found - s)));
        p->state = AT_HEAD;
        return true;
    }
    emit_before(p, CHAT_PIECE_TEXT, mark, final);
    return false;
}

static void begin_call(chat_parser *p, const char *name, size_t n_mark) {
    drop_held(p, n_mark);
    add_piece(p, CHAT_PIECE_CALL);
    if (p->failed) return;
    str_add(&p->out, name);
    p->pieces[p->n_pieces - 1].n = strlen(name);
    p->state = AT_ARGUMENTS;
    p->depth = 0;
    p->in_string = p->escaped = p->skip_space = false;
    p->said = true;
    if (*p->syntax->quote) {
        drop_held(p, 1); /* its brace */
        chat_python_begin_bare(&p->python, &p->json);
    } else if (p->syntax->python && p->held.len && *p->held.data != '{') {
        chat_python_begin(&p->python, &p->json);
    } else {
        return;
    }
    p->state = AT_KEYWORDS;
    emit_json(p);
}

/* A call is reported only once its arguments have begun: clients take a call without arguments for
 * a complete call. */
static enum match with_arguments(enum match m, const struct cursor *c) {
    size_t at = c->at;
    while (at < c->n && chat_is_space(c->s[at]))
        at++;
    return m == YES && at == c->n ? PARTIAL : m;
}

static bool step_head(chat_parser *p, bool final) {
    const char *name = NULL;
    struct cursor c = cursor_of(p);
    if (p->syntax->at_start)
        c.at = controls_before(&c);
    else
        pass_space(&c);
    size_t first = control_at(c.s + c.at, c.n - c.at), begin = c.at + (first ? first : 1);
    enum match m = match_mark(p->syntax->section_open, &c);
    if (m == YES) m = with_arguments(match_call(p, &c, &name), &c);
    if (m == PARTIAL && (!final || drop_cut(p))) return false;
    if (m == YES) {
        begin_call(p, name, c.at);
    } else {
        /* Not a call: its first character is text, the rest is examined again. */
        emit_piece(p, CHAT_PIECE_TEXT, begin < c.n ? begin : c.n);
        p->state = AT_TEXT;
    }
    return true;
}

static bool step_arguments(chat_parser *p, bool final) {
    const char *s = p->held.data;
    size_t i = 0;
    (void) final;
    if (!p->held.len) return false;
    for (bool done = false; i < p->held.len && !done; i++) {
        size_t skip = control_at(s + i, p->held.len - i);
        if (skip) {
            i += skip - 1;
        } else if (p->in_string) {
            if (!p->escaped && s[i] == '"') p->in_string = false;
            p->escaped = !p->escaped && s[i] == '\\';
        } else if (s[i] == '"') {
            p->in_string = true;
        } else if (s[i] == '{' || s[i] == '[') {
            p->depth++;
        } else if (s[i] == '}' || s[i] == ']') {
            done = --p->depth == 0;
            if (done) p->state = AT_CLOSE;
        }
    }
    emit_piece(p, CHAT_PIECE_ARGUMENTS, i);
    return p->state == AT_CLOSE;
}

/* Takes the bytes at s[0..n). *used: how many; 0: the rest of a mark is awaited. */
static enum chat_python_result put_keywords(chat_parser *p, const char *s, size_t n, bool final,
                                            size_t *used) {
    const char *quote = p->syntax->quote;
    const size_t n_quote = strlen(quote), skip = control_at(s, n);
    *used = skip ? skip : 1;
    if (n_quote && memcmp(s, quote, n < n_quote ? n : n_quote) == 0) {
        *used = n < n_quote ? 0 : n_quote;
        if (n >= n_quote) return chat_python_quote(&p->python, &p->json);
        if (!final) return CHAT_PYTHON_MORE;
        *used = p->cut ? n : 1;
        if (p->cut) return CHAT_PYTHON_MORE;
    }
    return skip ? CHAT_PYTHON_MORE : chat_python_put(&p->python, *s, &p->json);
}

/* The parenthesis that ends the call is left to call_close. After what does not follow the notation
 * the arguments stay incomplete, and the rest is text. */
static bool step_keywords(chat_parser *p, bool final) {
    const char *s = p->held.data;
    size_t i = 0, used = 1;
    enum chat_python_result r = CHAT_PYTHON_MORE;
    while (i < p->held.len && r == CHAT_PYTHON_MORE && used) {
        r = put_keywords(p, s + i, p->held.len - i, final, &used);
        if (r == CHAT_PYTHON_MORE || (r == CHAT_PYTHON_END && *p->syntax->quote)) i += used;
    }
    emit_json(p);
    drop_held(p, i);
    if (r != CHAT_PYTHON_MORE) p->state = r == CHAT_PYTHON_END ? AT_CLOSE : AT_TEXT;
    return r != CHAT_PYTHON_MORE;
}

static bool step_close(chat_parser *p, bool final) {
    struct cursor c = cursor_of(p);
    pass_space(&c);
    enum match m = match_mark(p->syntax->call_close, &c);
    if (m == PARTIAL && !final) return false;
    /* An incomplete call_close at the end of the answer is dropped too. */
    drop_held(p, m == YES ? c.at : m == PARTIAL ? p->held.len : 0);
    p->skip_space = true;
    p->state = m == NO ? AT_TEXT : AT_GAP;
    return true;
}

static bool step_gap(chat_parser *p, bool final) {
    const struct chat_syntax *x = p->syntax;
    const char *name = NULL;
    struct cursor next = cursor_of(p), end = next;
    pass_space(&next);
    pass_space(&end);
    enum match more = x->several ? match_mark(x->between, &next) : NO;
    if (more == YES) more = with_arguments(match_call(p, &next, &name), &next);
    enum match close = *x->section_close ? match_mark(x->section_close, &end) : NO;
    if (more == YES) {
        begin_call(p, name, next.at);
        return true;
    }
    if (close != YES && (more == PARTIAL || close == PARTIAL) && !final) return false;
    if (close == NO && more == PARTIAL && drop_cut(p)) return false;
    drop_held(p, close == YES ? end.at : close == PARTIAL ? p->held.len : 0);
    p->state = AT_TEXT;
    return true;
}

/* ---- harmony ---- */

/* The tool that a header addresses, or NULL. */
static const char *find_recipient(const chat_parser *p, const char *header, size_t n) {
    const char *mark = p->syntax->trigger;
    const char *at = memmem(header, n, mark, strlen(mark));
    if (!at) return NULL;
    at += strlen(mark);
    size_t left = n - (size_t)(at - header), k = 0;
    while (k < left && (chat_is_name_char(at[k]) || memchr(".:/", at[k], 3)))
        k++;
    for (size_t i = 0; i < p->n_names; i++)
        if (strlen(p->names[i]) == k && memcmp(p->names[i], at, k) == 0) return p->names[i];
    return NULL;
}

/* Is s[0..n) the beginning of a header: a control token in it, or the recipient first? */
static bool is_header(const char *s, size_t n, const char *mark) {
    if (memchr(s, (unsigned char)CHAT_CONTROL_OPEN, n)) return true;
    while (n && chat_is_space(*s))
        s++, n--;
    size_t n_mark = strlen(mark);
    return memcmp(s, mark, n < n_mark ? n : n_mark) == 0;
}

static bool step_header(chat_parser *p, bool final) {
    static const char mark[] = "\xff<|message|>\xfe", analysis[] = "\xff<|channel|>\xfe"
                                                                   "analysis";
    const char *s = str_cstr(&p->held);
    size_t n = p->held.len;
    const char *end = n ? memmem(s, n, mark, sizeof mark - 1) : NULL;
    p->message = CHAT_PIECE_TEXT;
    if (!end) {
        if (final && is_header(s, n, p->syntax->trigger) && drop_cut(p)) return false;
        /* No header: the answer has no messages and is text. */
        bool none = final || n > HEADER_MAX_BYTES;
        if (none) p->state = AT_MESSAGE;
        return none && n;
    }
    size_t header = (size_t)(end - s);
    const char *name = find_recipient(p, s, header);
    bool begun = n > header + sizeof mark - 1; /* the arguments, see with_arguments */
    if (name && !begun && !final) return false;
    if (memmem(s, header, analysis, sizeof analysis - 1)) p->message = CHAT_PIECE_REASONING;
    if (name && begun) {
        begin_call(p, name, header + sizeof mark - 1);
        p->message = CHAT_PIECE_ARGUMENTS;
    } else {
        drop_held(p, header + sizeof mark - 1);
    }
    p->state = AT_MESSAGE;
    return true;
}

/* A message ends at the next control token. */
static bool step_message(chat_parser *p, bool final) {
    (void) final;
    size_t n = 0;
    while (n < p->held.len && p->held.data[n] != CHAT_CONTROL_OPEN)
        n++;
    emit_piece(p, p->message, n);
    if (!p->held.len) return false;
    drop_held(p, control_at(p->held.data, p->held.len));
    p->state = AT_HEADER;
    return p->held.len > 0;
}

/* ---- feeding ---- */

static int run_steps(chat_parser *p, bool final) {
    static bool (*const steps[])(chat_parser * p, bool final) = {
        [AT_BEGIN] = step_begin,         [AT_REASONING] = step_reasoning,
        [AT_TEXT] = step_text,           [AT_HEAD] = step_head,
        [AT_ARGUMENTS] = step_arguments, [AT_KEYWORDS] = step_keywords,
        [AT_CLOSE] = step_close,         [AT_GAP] = step_gap,
        [AT_HEADER] = step_header,       [AT_MESSAGE] = step_message};
    bool again = true;
    while (again && !p->failed)
        again = steps[p->state](p, final);
    p->failed |= p->held.failed || p->out.failed;
    return p->failed ? ERR_NOMEM : 0;
}

static void begin_feed(chat_parser *p) {
    str_clear(&p->out);
    p->n_pieces = p->n_taken = 0;
}

int chat_parser_text(chat_parser *p, const char *text, size_t n) {
    begin_feed(p);
    str_add_n(&p->held, text, n);
    return run_steps(p, false);
}

int chat_parser_control(chat_parser *p, const char *text, size_t n) {
    begin_feed(p);
    str_add_char(&p->held, CHAT_CONTROL_OPEN);
    str_add_n(&p->held, text, n);
    str_add_char(&p->held, CHAT_CONTROL_CLOSE);
    return run_steps(p, false);
}

int chat_parser_finish(chat_parser *p, bool cut) {
    begin_feed(p);
    p->cut = cut;
    return run_steps(p, true);
}
