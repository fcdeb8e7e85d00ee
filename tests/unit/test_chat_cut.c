/* test_chat_cut.c - answers with calls, cut off at every position, in the syntax of every available
 * template and in forms with control tokens: no byte of a mark becomes text or reasoning, names and
 * arguments are prefixes of those of the whole answer, and the pieces do not depend on how the
 * answer was divided. */
#include "tests/support/answer_kit.h"
#include "tests/support/rng.h"
#include "tests/unit/chat_golden.h"

enum { OUT_BYTES = 1 << 16, MAX_CALLS = 3 };

static struct rng rng = {11};

static const char *const arguments[] = {
    "{\"city\": \"Rome\", \"days\": [1, {\"n\": -2.5e3}]}",
    "{\"a\": \"}{\\\"\\\\\", \"b\": {\"c\": [[], {}]}, \"d\": null}",
    "{\"u\": \"\\u00e4\\ud83d\\ude00 gr\xc3\xbc\xc3\x9f \xf0\x9f\x98\x80\"}",
    "{}",
};
enum { N_ARGUMENTS = sizeof arguments / sizeof *arguments };

/* As bare objects, with ` for the mark around strings, and what becomes of them. */
static const char *const bare[N_ARGUMENTS][2] = {
    {"{city:`Rome`,days:[1,{n:-2.5e3}]}", "{\"city\":\"Rome\",\"days\":[1,{\"n\":-2.5e3}]}"},
    {"{a:`}{\"\\<|\n`, \"b\": {`c`:[[],{}]},d:None}",
     "{\"a\":\"}{\\\"\\\\<|\\n\",\"b\":{\"c\":[[],{}]},\"d\":null}"},
    {"{u-v.w:`gr\xc3\xbc\xc3\x9f <\xf0\x9f\x98\x80`,x:``,y:true}",
     "{\"u-v.w\":\"gr\xc3\xbc\xc3\x9f <\xf0\x9f\x98\x80\",\"x\":\"\",\"y\":true}"},
    {"{}", "{}"},
};

/* The parsed answer. */
struct result {
    str text, reasoning;
    str names[MAX_CALLS], arguments[MAX_CALLS];
    size_t n_calls;
};

static void result_init(struct result *r) {
    r->n_calls = 0;
    str_init(&r->text, OUT_BYTES);
    str_init(&r->reasoning, OUT_BYTES);
    for (size_t i = 0; i < MAX_CALLS; i++) {
        str_init(&r->names[i], OUT_BYTES);
        str_init(&r->arguments[i], OUT_BYTES);
    }
}

static void result_fini(struct result *r) {
    str_fini(&r->text);
    str_fini(&r->reasoning);
    for (size_t i = 0; i < MAX_CALLS; i++) {
        str_fini(&r->names[i]);
        str_fini(&r->arguments[i]);
    }
}

static void take(chat_parser *p, struct result *r) {
    struct chat_piece piece;
    while (chat_parser_next(p, &piece)) {
        if (piece.kind == CHAT_PIECE_CALL) CHECK(r->n_calls < MAX_CALLS);
        if (piece.kind == CHAT_PIECE_CALL) r->n_calls++;
        size_t call = r->n_calls ? r->n_calls - 1 : 0;
        str *out = piece.kind == CHAT_PIECE_TEXT        ? &r->text
                   : piece.kind == CHAT_PIECE_REASONING ? &r->reasoning
                   : piece.kind == CHAT_PIECE_CALL      ? &r->names[call]
                                                        : &r->arguments[call];
        str_add_n(out, piece.text, piece.n);
    }
}

/* Feeds answer[0..n): parts of one character (most 0), of random lengths, or (most SIZE_MAX) as
 * long as control tokens allow; and ends it. */
static void parse(const struct chat_syntax *x, const char *answer, size_t n, size_t most, bool cut,
                  struct result *r) {
    const struct chat_parser_config config = {
        .syntax = x, .begin = CHAT_BEGIN_OPEN, .names = names, .n_names = N_NAMES};
    chat_parser *p = chat_parser_new(&config);
    result_init(r);
    for (size_t k; p && n; answer += k, n -= k) {
        k = next_part(answer, n, most == SIZE_MAX);
        if (*answer == CHAT_CONTROL_OPEN) {
            CHECK(chat_parser_control(p, answer + 1, k - 2) == 0);
        } else {
            size_t want = most && most != SIZE_MAX ? 1 + rng_below(&rng, (uint32_t)most) : 0;
            while (k < want && k < n && answer[k] != CHAT_CONTROL_OPEN)
                k += next_part(answer + k, n - k, false);
            CHECK(chat_parser_text(p, answer, k) == 0);
        }
        take(p, r);
    }
    CHECK(p && chat_parser_finish(p, cut) == 0);
    if (p) take(p, r);
    chat_parser_free(p);
}

/* ---- answers ---- */

static void add_mark(str *s, const char *mark, size_t index) {
    for (; *mark; mark++) {
        if (*mark == CHAT_HOLE_ID)
            str_add(s, "abc123XYZ");
        else if (*mark == CHAT_HOLE_INDEX)
            str_addf(s, "%zu", index);
        else
            str_add_char(s, *mark);
    }
}

struct answer {
    size_t n_calls;
    bool thinks, speaks;
};

static size_t pick(size_t call, size_t seed, size_t n) {
    return (call + seed) % n;
}

#define C(token) "\xff<|" token "|>\xfe"

static void write_harmony(str *s, const struct answer *a, size_t seed) {
    if (a->thinks)
        str_add(s, C("channel") "analysis" C("message") "Why. " C("end") C("start") "assistant");
    if (a->speaks)
        str_add(s, C("channel") "commentary" C("message") "I ask <b>. " C("end")
                       C("start") "assistant");
    for (size_t i = 0; i < a->n_calls; i++)
        str_addf(
            s,
            "%s" C("channel") "commentary to=functions.%s " C("constrain") "json" C("message") "%s",
            i ? C("call") C("start") "assistant" : "", names[pick(i, seed, N_NAMES)],
            arguments[pick(i, seed, N_ARGUMENTS)]);
}

static void add_arguments(str *s, const struct chat_syntax *x, size_t i) {
    if (!*x->quote) {
        str_add(s, arguments[i]);
        return;
    }
    for (const char *c = bare[i][0]; *c; c++) {
        if (*c == '`')
            str_add(s, x->quote);
        else
            str_add_char(s, *c);
    }
}

static void write_answer(str *s, const struct chat_syntax *x, const struct answer *a, size_t seed) {
    if (x->harmony) {
        write_harmony(s, a, seed);
        return;
    }
    if (a->thinks) {
        str_add(s, x->reasoning_open);
        str_add(s, "\nWhy <not>?\n");
        str_add(s, x->reasoning_close);
        str_add(s, "\n\n");
    }
    if (a->speaks) str_add(s, "I <ask> [them] {\"now\": gr\xc3\xbc\xc3\x9f}.\n");
    add_mark(s, x->section_open, 0);
    for (size_t i = 0; i < a->n_calls; i++) {
        if (i) add_mark(s, x->between, i);
        add_mark(s, x->call_open, i);
        str_add(s, names[pick(i, seed, N_NAMES)]);
        add_mark(s, x->arguments_open, i);
        add_arguments(s, x, pick(i, seed, N_ARGUMENTS));
        add_mark(s, x->call_close, i);
    }
    add_mark(s, x->section_close, 0);
}

/* ---- checks ---- */

static bool same(const str *a, const str *b) {
    return a->len == b->len && memcmp(str_cstr(a), str_cstr(b), a->len) == 0;
}

static bool same_results(const struct result *a, const struct result *b) {
    bool ok =
        same(&a->text, &b->text) && same(&a->reasoning, &b->reasoning) && a->n_calls == b->n_calls;
    for (size_t i = 0; ok && i < a->n_calls; i++)
        ok = same(&a->names[i], &b->names[i]) && same(&a->arguments[i], &b->arguments[i]);
    return ok;
}

/* Is part a prefix of whole, ignoring white space at its end? */
static bool begins(const str *whole, const str *part, bool spaces) {
    size_t n = part->len;
    while (spaces && n && strchr(" \n\t\r", part->data[n - 1]))
        n--;
    return n <= whole->len && memcmp(str_cstr(whole), str_cstr(part), n) == 0;
}

static void check_cut(const char *name, const char *answer, size_t n, const struct result *cut,
                      const struct result *whole) {
    bool ok = begins(&whole->text, &cut->text, true) &&
              begins(&whole->reasoning, &cut->reasoning, true) && cut->n_calls <= whole->n_calls;
    for (size_t i = 0; ok && i < cut->n_calls; i++) {
        ok = same(&cut->names[i], &whole->names[i]) && cut->arguments[i].len &&
             begins(&whole->arguments[i], &cut->arguments[i], false);
        if (i + 1 < cut->n_calls) ok = ok && same(&cut->arguments[i], &whole->arguments[i]);
    }
    CHECK_MSG(ok, "%s: cut after %zu bytes of %s: text \"%s\", reasoning \"%s\", %zu calls", name,
              n, answer, str_cstr(&cut->text), str_cstr(&cut->reasoning), cut->n_calls);
}

/* Whole: the calls equal those written. */
static void check_whole(const char *name, const struct chat_syntax *x, const char *answer,
                        const struct answer *a, size_t seed, const struct result *r) {
    CHECK_MSG(r->n_calls == a->n_calls, "%s: %zu calls in %s", name, r->n_calls, answer);
    for (size_t i = 0; i < r->n_calls; i++) {
        CHECK_STR(str_cstr(&r->names[i]), names[pick(i, seed, N_NAMES)]);
        const size_t k = pick(i, seed, N_ARGUMENTS);
        CHECK_STR(str_cstr(&r->arguments[i]), *x->quote ? bare[k][1] : arguments[k]);
    }
    CHECK_MSG((r->text.len != 0) == a->speaks && (r->reasoning.len != 0) == a->thinks, "%s: %s",
              name, answer);
}

static int check_answer(const char *name, const struct chat_syntax *x, const struct answer *a,
                        size_t seed) {
    struct result whole, cut, other;
    str s;
    int cuts = 0;
    str_init(&s, OUT_BYTES);
    write_answer(&s, x, a, seed);
    parse(x, s.data, s.len, SIZE_MAX, false, &whole);
    check_whole(name, x, s.data, a, seed, &whole);
    for (size_t n = 0; n <= s.len; n += n < s.len ? next_part(s.data + n, s.len - n, false) : 1) {
        parse(x, s.data, n, SIZE_MAX, true, &cut);
        check_cut(name, s.data, n, &cut, &whole);
        for (size_t most = 0; most < 24; most += 8) {
            parse(x, s.data, n, most, true, &other);
            CHECK_MSG(same_results(&cut, &other), "%s: %zu bytes of %s, divided otherwise", name, n,
                      s.data);
            result_fini(&other);
        }
        result_fini(&cut);
        cuts++;
    }
    result_fini(&whole);
    str_fini(&s);
    return cuts;
}

static int check_syntax(const char *name, const struct chat_syntax *x) {
    bool reasons = *x->reasoning_open && *x->reasoning_close;
    size_t most = x->several || x->harmony ? MAX_CALLS : 1;
    int cuts = 0;
    for (size_t n = 1; n <= most; n++)
        for (size_t seed = 0; seed < N_ARGUMENTS; seed++)
            for (int form = 0; form < 4; form++) {
                const struct answer a = {n, form & 1, form & 2};
                if ((a.thinks && !reasons) || (a.speaks && x->at_start)) continue;
                cuts += check_answer(name, x, &a, seed);
            }
    return cuts;
}

static int check_folder(const char *dir) {
    char path[300];
    int n = 0, cuts = 0;
    snprintf(path, sizeof path, "%s/templates", dir);
    DIR *d = opendir(path);
    for (struct dirent *f; d && (f = readdir(d)) != NULL;) {
        if (!strstr(f->d_name, ".jinja")) continue;
        char *source = read_in(dir, "templates", f->d_name, "");
        chat_template *t = NULL;
        err e = {0};
        int rc = source ? chat_template_new(source, "<BOS>", "<EOS>", &t, &e) : -1;
        if (!rc) rc = chat_template_probe(t, &e);
        if (!rc) rc = chat_template_learn(t, NULL, &e);
        CHECK_MSG(rc == 0, "%s: %s", f->d_name, e.msg);
        /* Without its tokenizer's control tokens, gpt-oss has no syntax: see harmony below. */
        bool harmony_form = source && strstr(source, "<|channel|>") && strstr(source, "commentary");
        if (!rc && !harmony_form) cuts += check_syntax(f->d_name, chat_template_syntax(t));
        n++;
        chat_template_free(t);
        free(source);
    }
    if (d) closedir(d);
    printf("     %s: %d templates, %d cuts\n", dir, n, cuts);
    return n;
}

static void test_templates(void) {
    CHECK(check_folder(LOCAL) >= 15);
}

static void test_shared_templates(void) {
    int n = check_folder(SHARED);
    CHECK(n == 0 || n >= 40);
}

/* Marks that are control tokens. */
static void test_control_tokens(void) {
    static const struct {
        const char *name;
        const struct chat_syntax *syntax;
    } rows[] = {{"hermes", &hermes},     {"llama", &llama},       {"mistral", &mistral},
                {"numbered", &numbered}, {"bare", &bare_objects}, {"harmony", &harmony}};
    int cuts = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        cuts += check_syntax(rows[i].name, rows[i].syntax);
    CHECK(cuts > 10000);
}

int main(void) {
    RUN(test_control_tokens);
    RUN(test_templates);
    RUN(test_shared_templates);
    return check_done();
}
