/* fim.c - fill in the middle: prompts that ask for the text between a prefix and a suffix. Tokens
 * and their order follow the papers and repositories of StarCoder, Code Llama, DeepSeek-Coder,
 * CodeGemma, Qwen2.5-Coder and Codestral. Pure; any thread. */
#include "core/tokenizer/tokenizer_int.h"

#include "core/base/mem.h"

#include <stdlib.h>
#include <string.h>

/* The suffix-first family ends with the prefix, so it has no middle token. */
static const struct family {
    const char *prefix, *suffix, *middle;
    bool suffix_first;
} families[] = {
    /* Qwen2.5-Coder, CodeGemma, Granite 4 */
    {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", false},
    /* StarCoder, StarCoder2, Granite Code */
    {"<fim_prefix>", "<fim_suffix>", "<fim_middle>", false},
    /* SantaCoder */
    {"<fim-prefix>", "<fim-suffix>", "<fim-middle>", false},
    /* DeepSeek-Coder */
    {"<\357\275\234fim\342\226\201begin\357\275\234>",
     "<\357\275\234fim\342\226\201hole\357\275\234>",
     "<\357\275\234fim\342\226\201end\357\275\234>", false},
    /* Code Llama */
    {"\342\226\201<PRE>", "\342\226\201<SUF>", "\342\226\201<MID>", false},
    /* GLM */
    {"<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>", false},
    /* Codestral */
    {"[PREFIX]", "[SUFFIX]", NULL, true},
};
enum { N_FAMILIES = sizeof families / sizeof *families };

/* Files name the tokens but not their order, which follows from the text of the first one. */
static bool is_suffix_first(const tokenizer *t, int32_t prefix) {
    size_t n;
    const char *text = tokenizer_token_text(t, prefix, &n);
    for (int i = 0; i < N_FAMILIES; i++)
        if (strlen(families[i].prefix) == n && memcmp(families[i].prefix, text, n) == 0)
            return families[i].suffix_first;
    return false;
}

/* The first of these tokens that the vocabulary has, or -1. */
static int32_t find_any(const tokenizer *t, const char *const *names, size_t n) {
    int32_t id = -1;
    for (size_t i = 0; i < n && id < 0; i++)
        id = tokenizer_find(t, names[i]);
    return id;
}

/* Qwen2.5-Coder, StarCoder2, StarCoder; CodeGemma has the last one. */
static void find_names(const tokenizer *t, struct tokenizer_fim *out) {
    static const char *const repositories[] = {"<|repo_name|>", "<repo_name>", "<reponame>"};
    static const char *const files[] = {"<|file_sep|>", "<file_sep>", "<filename>",
                                        "<|file_separator|>"};
    if (out->repository < 0)
        out->repository = find_any(t, repositories, sizeof repositories / sizeof *repositories);
    if (out->file < 0) out->file = find_any(t, files, sizeof files / sizeof *files);
}

static bool find_family(const tokenizer *t, struct tokenizer_fim *out) {
    *out = t->fim;
    if (out->prefix >= 0 && out->suffix >= 0) {
        out->suffix_first = is_suffix_first(t, out->prefix);
        if (out->suffix_first || out->middle >= 0) return true;
    }
    for (int i = 0; i < N_FAMILIES; i++) {
        const struct family *f = &families[i];
        out->prefix = tokenizer_find(t, f->prefix);
        out->suffix = tokenizer_find(t, f->suffix);
        out->middle = f->middle ? tokenizer_find(t, f->middle) : -1;
        out->suffix_first = f->suffix_first;
        if (out->prefix >= 0 && out->suffix >= 0 && (!f->middle || out->middle >= 0)) return true;
    }
    return false;
}

bool tokenizer_fim(const tokenizer *t, struct tokenizer_fim *out) {
    if (!find_family(t, out)) return false;
    find_names(t, out);
    return true;
}

/* Appends a token and its text. The suffix continues a line, so it gets no space prefix. */
static int add_part(const tokenizer *t, int32_t token, const char *text, bool space_prefix,
                    struct id_list *ids, err *e) {
    int rc = id_list_add(ids, token, e);
    if (rc || !*text) return rc;
    return encode_passage(t, text, space_prefix, false, ids, e);
}

int tokenizer_encode_fim(const tokenizer *t, const char *prefix, const char *suffix, size_t max_ids,
                         int32_t **out, size_t *n_out, err *e) {
    struct id_list ids = {.max = max_ids};
    struct tokenizer_fim fim;
    int rc = 0;
    *out = NULL;
    *n_out = 0;
    if (!tokenizer_fim(t, &fim))
        return err_set(e, ERR_UNSUPPORTED,
                       "the vocabulary has no tokens for filling in the middle");
    for (unsigned i = 0; !rc && i < t->n_before; i++)
        rc = id_list_add(&ids, t->before[i], e);
    if (!rc && fim.suffix_first) rc = add_part(t, fim.suffix, suffix, false, &ids, e);
    if (!rc) rc = add_part(t, fim.prefix, prefix, true, &ids, e);
    if (!rc && !fim.suffix_first) rc = add_part(t, fim.suffix, suffix, false, &ids, e);
    if (!rc && !fim.suffix_first) rc = id_list_add(&ids, fim.middle, e);
    if (rc) {
        free(ids.ids);
        return rc;
    }
    *out = ids.ids;
    *n_out = ids.n;
    return 0;
}

/* ---- with further context ---- */

enum { INFILL_MAX_IDS = 1 << 20 };

/* The parts of a prompt, each by itself. */
struct infill {
    const tokenizer *t;
    struct tokenizer_fim fim;
    struct id_list prefix, suffix, start, chunks;
    size_t *begins; /* (n_chunks + 1) where each chunk begins in chunks */
    err *e;
};

static int add_plain(const struct infill *f, const char *text, struct id_list *ids) {
    return *text ? encode_passage(f->t, text, false, false, ids, f->e) : 0;
}

/* A file's name on its own line, behind its token if there is one. */
static int add_name(const struct infill *f, int32_t token, const char *name, struct id_list *ids) {
    int rc = token >= 0 ? id_list_add(ids, token, f->e) : add_plain(f, "\n\n--- ", ids);
    if (!rc) rc = add_plain(f, name, ids);
    return rc ? rc : add_plain(f, token >= 0 ? "\n" : " ---\n\n", ids);
}

static int encode_parts(struct infill *f, const struct tokenizer_infill *in) {
    int rc = 0;
    for (size_t i = 0; i < in->n_chunks && !rc; i++) {
        f->begins[i] = f->chunks.n;
        rc = add_name(f, f->fim.file, in->chunks[i].name, &f->chunks);
        if (!rc) rc = add_plain(f, in->chunks[i].text, &f->chunks);
    }
    f->begins[in->n_chunks] = f->chunks.n;
    if (!rc && *in->prefix) rc = encode_passage(f->t, in->prefix, true, false, &f->prefix, f->e);
    if (!rc) rc = add_plain(f, in->suffix, &f->suffix);
    if (!rc && *in->start)
        rc = encode_passage(f->t, in->start, false, in->parse_special, &f->start, f->e);
    return rc;
}

static int add_ids(const struct infill *f, const int32_t *from, size_t n, struct id_list *ids) {
    int rc = 0;
    for (size_t i = 0; i < n && !rc; i++)
        rc = id_list_add(ids, from[i], f->e);
    return rc;
}

/* The last n_prefix ids of the prefix and the start of the answer. */
static int add_prefix(const struct infill *f, size_t n_prefix, struct id_list *ids) {
    int rc = id_list_add(ids, f->fim.prefix, f->e);
    if (!rc && n_prefix) rc = add_ids(f, f->prefix.ids + f->prefix.n - n_prefix, n_prefix, ids);
    return rc ? rc : add_ids(f, f->start.ids, f->start.n, ids);
}

static int add_suffix(const struct infill *f, size_t n_suffix, struct id_list *ids) {
    int rc = id_list_add(ids, f->fim.suffix, f->e);
    return rc ? rc : add_ids(f, f->suffix.ids, n_suffix, ids);
}

static int add_marked(const struct infill *f, size_t n_prefix, size_t n_suffix,
                      struct id_list *ids) {
    int rc = 0;
    if (f->fim.suffix_first) rc = add_suffix(f, n_suffix, ids);
    if (!rc) rc = add_prefix(f, n_prefix, ids);
    if (f->fim.suffix_first || rc) return rc;
    rc = add_suffix(f, n_suffix, ids);
    return rc ? rc : id_list_add(ids, f->fim.middle, f->e);
}

/* The head that names the repository, the chunks that fit, and the head of the file itself. */
static int add_chunks(const struct infill *f, size_t n_chunks, size_t room, struct id_list *ids) {
    struct id_list head = {.max = INFILL_MAX_IDS}, last = {.max = INFILL_MAX_IDS};
    int rc = f->fim.repository >= 0 ? add_name(f, f->fim.repository, "repository", &head) : 0;
    if (!rc) rc = add_name(f, f->fim.file, "file", &last);
    size_t taken = head.n + last.n, first = n_chunks;
    while (first && f->chunks.n - f->begins[first - 1] + taken <= room)
        first--;
    if (!rc && first < n_chunks) {
        rc = add_ids(f, head.ids, head.n, ids);
        if (!rc)
            rc = add_ids(f, f->chunks.ids + f->begins[first], f->chunks.n - f->begins[first], ids);
        if (!rc) rc = add_ids(f, last.ids, last.n, ids);
    }
    free(head.ids);
    free(last.ids);
    return rc;
}

static int join_parts(const struct infill *f, size_t n_chunks, struct id_list *ids) {
    size_t marks = f->t->n_before + (f->fim.suffix_first ? 2 : 3) + f->start.n;
    if (marks > ids->max)
        return err_set(f->e, ERR_TOO_LONG, "the text has more than %zu tokens", ids->max);
    size_t room = ids->max - marks, most = room - room / 4;
    size_t n_prefix = f->prefix.n < most ? f->prefix.n : most;
    size_t n_suffix = f->suffix.n < room - n_prefix ? f->suffix.n : room - n_prefix;
    if (n_prefix < f->prefix.n) /* what the suffix leaves */
        n_prefix = f->prefix.n < room - n_suffix ? f->prefix.n : room - n_suffix;
    int rc = add_ids(f, f->t->before, f->t->n_before, ids);
    if (!rc && n_chunks) rc = add_chunks(f, n_chunks, room - n_prefix - n_suffix, ids);
    return rc ? rc : add_marked(f, n_prefix, n_suffix, ids);
}

int tokenizer_encode_infill(const tokenizer *t, const struct tokenizer_infill *in, size_t max_ids,
                            int32_t **out, size_t *n_out, err *e) {
    struct id_list ids = {.max = max_ids};
    struct infill f = {.t = t,
                       .prefix.max = INFILL_MAX_IDS,
                       .suffix.max = INFILL_MAX_IDS,
                       .start.max = INFILL_MAX_IDS,
                       .chunks.max = INFILL_MAX_IDS,
                       .e = e};
    *out = NULL;
    *n_out = 0;
    if (!tokenizer_fim(t, &f.fim))
        return err_set(e, ERR_UNSUPPORTED,
                       "the vocabulary has no tokens for filling in the middle");
    f.begins = mem_new(in->n_chunks + 1, sizeof *f.begins);
    int rc = f.begins ? encode_parts(&f, in) : err_no_memory(e);
    if (!rc) rc = join_parts(&f, in->n_chunks, &ids);
    free(f.prefix.ids);
    free(f.suffix.ids);
    free(f.start.ids);
    free(f.chunks.ids);
    free(f.begins);
    if (rc) {
        free(ids.ids);
        return rc;
    }
    *out = ids.ids;
    *n_out = ids.n;
    return 0;
}
