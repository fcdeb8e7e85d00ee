/* commands/grammar.c - inferd grammar: which texts a schema, a regular expression or a grammar
 * allows, in a model's tokens. Reads the vocabulary only. */
#include "core/base/mem.h"
#include "core/base/str.h"
#include "core/chat/chat.h"
#include "daemon/commands/commands.h"
#include "daemon/commands/instrument.h"
#include "daemon/commands/jsonl.h"
#include "daemon/input.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    TEXT_MAX_BYTES = 64 << 20,
    IDS_MAX = 16 << 20,
    MASK_CACHE_BYTES = 64 << 20,
    FREE_TOKENS = 500,  /* a longer text is started again, with members in order */
    WALK_TOKENS = 2000, /* a longer text is not shown */
    N_BYTES = 256,
    EXIT_REFUSED = 2
};

struct grammar_args {
    const char *schema, *regex, *gbnf;
    bool jsonl, strict, draft_integers;
    uint64_t generate, seed;
};

struct grammar_tools {
    const tokenizer *tok;
    grammar *g, *ordered; /* ordered: with members in the schema's order; for --generate alone */
    grammar_vocab *vocab, *bytes; /* the model's tokens; each byte alone */
    uint32_t n_vocab;
    uint32_t *mask; /* ((n_vocab + 31) / 32) */
};

/* ---- the grammar ---- */

static int from_schema(grammar_builder *b, const struct grammar_args *a, bool in_order,
                       grammar **out, err *e) {
    char *text;
    size_t n;
    cJSON *schema = NULL;
    int rc = textfile_read(a->schema, TEXT_MAX_BYTES, &text, &n, e);
    if (rc) return rc;
    rc = chat_json_parse(text, n, &schema, e);
    if (rc) err_prefix(e, "%s: ", textfile_name(a->schema));
    if (!rc) {
        struct grammar_schema s = {
            .schema = schema, .in_order = in_order, .draft_integers = a->draft_integers};
        rc = grammar_finish(b, grammar_json(b, &s), out, e);
    }
    cJSON_Delete(schema);
    free(text);
    return rc;
}

static int from_gbnf(grammar_builder *b, const struct grammar_args *a, grammar **out, err *e) {
    char *text;
    size_t n;
    int rc = textfile_read(a->gbnf, TEXT_MAX_BYTES, &text, &n, e);
    if (rc) return rc;
    rc = grammar_finish(b, grammar_gbnf(b, text, n), out, e);
    free(text);
    return rc;
}

static int compile_grammar(const struct grammar_args *a, bool in_order, grammar **out, err *e) {
    if (!a->schema + !a->regex + !a->gbnf != 2)
        return err_set(e, ERR_INVALID, "expected exactly one of --schema, --regex and --gbnf");
    grammar_builder *b = grammar_builder_new();
    if (!b) return err_no_memory(e);
    int rc = a->schema  ? from_schema(b, a, in_order, out, e)
             : a->regex ? grammar_finish(b, grammar_regex(b, a->regex), out, e)
                        : from_gbnf(b, a, out, e);
    grammar_builder_free(b);
    return rc;
}

/* ---- texts that are accepted ---- */

/* The tokens of a text in the middle of others: where the tokenizer puts a space before a text, a
 * line break before it takes that. *skip: tokens of the line break. */
static int encode_inside(const tokenizer *tok, const char *text, int32_t **ids, size_t *n,
                         size_t *skip, err *e) {
    bool spaced = tokenizer_strips_leading_space(tok);
    size_t seen = 0, n_piece;
    str s;
    str_init(&s, (size_t)TEXT_MAX_BYTES + 1);
    if (spaced) str_add_char(&s, '\n');
    str_add(&s, text);
    int rc = s.failed ? err_no_memory(e)
                      : tokenizer_encode(tok, str_cstr(&s), s.len, 0, IDS_MAX, ids, n, e);
    str_fini(&s);
    for (*skip = 0; spaced && !rc && *skip < *n && seen < 2; ++*skip) {
        tokenizer_token_bytes(tok, (*ids)[*skip], false, &n_piece);
        seen += n_piece;
    }
    return rc;
}

static bool mask_allows(struct grammar_tools *t, grammar_matcher *m, int32_t id) {
    grammar_matcher_mask(m, t->mask);
    return (t->mask[(uint32_t)id / 32] >> (uint32_t)id % 32 & 1) && grammar_matcher_accept(m, id);
}

/* Counts the bytes that are accepted, one byte at a time. */
static int count_bytes(struct grammar_tools *t, const char *text, size_t *n, err *e) {
    grammar_matcher *m;
    int rc = grammar_matcher_new(t->g, t->bytes, &m, e);
    if (rc) return rc;
    for (*n = 0; text[*n] && grammar_matcher_accept(m, (unsigned char)text[*n]); ++*n) {
    }
    grammar_matcher_free(m);
    return 0;
}

static int check_line(void *arg, const cJSON *line, str *out, err *e) {
    struct grammar_tools *t = arg;
    const cJSON *text = cJSON_GetObjectItemCaseSensitive(line, "text");
    grammar_matcher *m;
    int32_t *ids;
    size_t n, i, at;
    if (!cJSON_IsString(text))
        return err_set(e, ERR_INVALID, "expected an object with the string \"text\"");
    int rc = encode_inside(t->tok, text->valuestring, &ids, &n, &i, e);
    if (rc) return rc;
    rc = grammar_matcher_new(t->g, t->vocab, &m, e);
    if (!rc) {
        while (i < n && mask_allows(t, m, ids[i]))
            i++;
        at = strlen(text->valuestring);
        if (i < n) rc = count_bytes(t, text->valuestring, &at, e);
        bool accepted = i == n && grammar_matcher_may_end(m);
        str_addf(out, "{\"accepted\":%s,\"at_byte\":%zu}", accepted ? "true" : "false", at);
        grammar_matcher_free(m);
    }
    free(ids);
    return rc;
}

/* ---- random texts ---- */

static uint64_t next_random(uint64_t *state) { /* splitmix64 */
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static bool is_one_byte(const struct grammar_tools *t, int32_t id) {
    size_t n;
    tokenizer_token_bytes(t->tok, id, false, &n);
    return n == 1;
}

static bool token_closes(const struct grammar_tools *t, int32_t id) {
    size_t n;
    const char *bytes = tokenizer_token_bytes(t->tok, id, false, &n);
    return n == 1 && strchr("\"]},", bytes[0]) != NULL;
}

enum choice { ANY, ONE_BYTE, CLOSING };

/* One of the mask's tokens, none that ends: one that closes something, else of one byte (so that
 * the few bytes that lead on are not lost among many words), else any. -1: only the end is left. */
static int32_t choose_token(const struct grammar_tools *t, enum choice from, uint64_t *random) {
    int32_t chosen = -1;
    uint64_t n = 0;
    for (uint32_t id = 0; id < t->n_vocab; id++) {
        if (!(t->mask[id / 32] >> id % 32 & 1) || tokenizer_is_eog(t->tok, (int32_t)id)) continue;
        if (from == CLOSING && !token_closes(t, (int32_t)id)) continue;
        if (from == ONE_BYTE && !is_one_byte(t, (int32_t)id)) continue;
        if (next_random(random) % ++n == 0) chosen = (int32_t)id;
    }
    return chosen < 0 && from != ANY ? choose_token(t, from - 1, random) : chosen;
}

/* Generates a random text; the longer it is, the more it is steered to its end. */
static int walk_grammar(struct grammar_tools *t, const grammar *g, uint64_t *random, str *text,
                        bool *ended, err *e) {
    grammar_matcher *m;
    uint32_t max = g == t->ordered ? WALK_TOKENS : FREE_TOKENS;
    int rc = grammar_matcher_new(g, t->vocab, &m, e);
    if (rc) return rc;
    *ended = false;
    str_clear(text);
    for (uint32_t i = 0; i < max && !*ended; i++) {
        bool closing = next_random(random) % 100 < (i < 90 ? 5 + i : 95);
        size_t n;
        grammar_matcher_mask(m, t->mask);
        int32_t id = -1;
        if (!grammar_matcher_may_end(m) || next_random(random) % 3)
            id = choose_token(t, closing ? CLOSING : ANY, random);
        *ended = id < 0 || !grammar_matcher_accept(m, id);
        if (*ended) break;
        const char *bytes = tokenizer_token_bytes(t->tok, id, false, &n);
        str_add_n(text, bytes, n);
    }
    if (*ended && !grammar_matcher_may_end(m))
        rc = err_set(e, ERR_DEVICE, "no token can follow, but the text cannot end: %.100s",
                     str_cstr(text));
    grammar_matcher_free(m);
    return rc;
}

static int generate_texts(struct grammar_tools *t, const struct grammar_args *a, err *e) {
    uint64_t random = a->seed, n_open = 0;
    int rc = 0;
    for (uint64_t i = 0; i < a->generate && !rc; i++) {
        str text, line;
        bool ended = false;
        str_init(&text, TEXT_MAX_BYTES);
        str_init(&line, TEXT_MAX_BYTES);
        rc = walk_grammar(t, t->g, &random, &text, &ended, e);
        /* In any order, a required member is one name among all possible ones. */
        if (!rc && !ended) rc = walk_grammar(t, t->ordered, &random, &text, &ended, e);
        str_add(&line, "{\"text\":");
        jsonl_add_text(&line, str_cstr(&text), text.len);
        str_add_char(&line, '}');
        if (!rc && (text.failed || line.failed)) rc = err_no_memory(e);
        if (!rc && ended) puts(str_cstr(&line));
        n_open += !ended;
        str_fini(&text);
        str_fini(&line);
    }
    if (n_open)
        fprintf(stderr, "inferd: %llu texts did not end within %d tokens\n",
                (unsigned long long)n_open, WALK_TOKENS);
    return rc;
}

/* ---- the command ---- */

static void one_byte(const void *arg, int32_t id, struct grammar_token *out) {
    *out = (struct grammar_token){GRAMMAR_TOKEN_TEXT, (const char *)arg + id, 1};
}

static int write_answers(struct grammar_tools *t, const struct grammar_args *a, err *e) {
    char each[N_BYTES];
    for (int i = 0; i < N_BYTES; i++)
        each[i] = (char)i;
    struct grammar_vocab_config bytes = {.n_vocab = N_BYTES, .token = one_byte, .arg = each};
    t->n_vocab = (uint32_t)tokenizer_n_vocab(t->tok);
    t->mask = mem_new(((uint64_t)t->n_vocab + 31) / 32, sizeof *t->mask);
    int rc = t->mask ? 0 : err_no_memory(e);
    if (!rc) rc = engine_grammar_vocab(t->tok, t->n_vocab, MASK_CACHE_BYTES, &t->vocab, e);
    if (!rc) rc = grammar_vocab_new(&bytes, &t->bytes, e);
    if (!rc && a->generate) rc = generate_texts(t, a, e);
    if (!rc && a->jsonl) rc = jsonl_run(&(struct jsonl){check_line, t, TEXT_MAX_BYTES}, e);
    grammar_vocab_free(t->bytes);
    grammar_vocab_free(t->vocab);
    free(t->mask);
    return rc;
}

static int run_grammar(const char *path, const struct grammar_args *a, err *e) {
    struct grammar_tools t = {0};
    tokenizer *tok = NULL;
    int status = 1;
    if (!a->jsonl && !a->generate) {
        err_set(e, ERR_INVALID, "expected --jsonl or --generate N");
        return EXIT_USAGE;
    }
    int rc = compile_grammar(a, a->strict, &t.g, e);
    if (!rc && a->generate) rc = compile_grammar(a, true, &t.ordered, e);
    if (rc == ERR_INVALID || rc == ERR_UNSUPPORTED || rc == ERR_TOO_LONG || rc == ERR_FORMAT) {
        status = EXIT_REFUSED;
    } else if (!rc && !tokenizer_open(path, &tok, e)) {
        t.tok = tok;
        status = write_answers(&t, a, e) ? 1 : 0;
    }
    tokenizer_close(tok);
    grammar_release(t.g);
    grammar_release(t.ordered);
    return status;
}

int cmd_grammar(int argc, char **argv, err *e) {
    static const char *const keys[] = {"model", "registry", "json-integers", "log-level", NULL};
    struct grammar_args a = {0};
    const struct option own[] = {
        {.name = "schema",
         .kind = OPTION_TEXT,
         .target = &a.schema,
         .value = "FILE",
         .help = "JSON Schema (draft 2020-12; 7 or 4 if $schema says so)"},
        {.name = "regex",
         .kind = OPTION_TEXT,
         .target = &a.regex,
         .value = "R",
         .help = "regular expression of the whole text"},
        {.name = "gbnf",
         .kind = OPTION_TEXT,
         .target = &a.gbnf,
         .value = "FILE",
         .help = "GBNF grammar; begins with the rule root"},
        {.name = "strict",
         .kind = OPTION_SWITCH,
         .target = &a.strict,
         .help = "with --schema: properties in the schema's order"},
        {.name = "jsonl",
         .kind = OPTION_SWITCH,
         .target = &a.jsonl,
         .help = "read a line {\"text\": ...} of standard input for each text; print a line\n"
                 "{\"accepted\": true or false, \"at_byte\": number of bytes accepted}"},
        {.name = "generate",
         .kind = OPTION_NUMBER,
         .target = &a.generate,
         .value = "N",
         .help = "print N random texts that are accepted, a line {\"text\": ...} each",
         .min = 1,
         .max = 1000000},
        {.name = "seed",
         .kind = OPTION_NUMBER,
         .target = &a.seed,
         .value = "S",
         .help = "seed of --generate",
         .max = UINT32_MAX}};
    struct instrument in = {
        .options = {.usage = "grammar",
                    .summary =
                        "Tests which texts a schema, a regular expression or a grammar "
                        "allows a model to write.\nA schema that cannot be enforced is refused "
                        "with status 2; the message names the place in it.",
                    .options = own,
                    .n_options = sizeof own / sizeof own[0],
                    .keys = keys}};
    int status = instrument_parse(&in, argc, argv, e);
    a.draft_integers = in.config.json_integers && strcmp(in.config.json_integers, "draft") == 0;
    if (status < 0) status = run_grammar(in.model.path, &a, e);
    instrument_fini(&in);
    return status;
}
