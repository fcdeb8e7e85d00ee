/* fim.c - fill in the middle: prompts that ask for the text between a prefix and a suffix. Tokens
 * and their order follow the papers and repositories of StarCoder, Code Llama, DeepSeek-Coder,
 * CodeGemma, Qwen2.5-Coder and Codestral. Pure; any thread. */
#include "core/tokenizer/tokenizer_int.h"

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

bool tokenizer_fim(const tokenizer *t, struct tokenizer_fim *out) {
    *out = t->fim;
    if (out->prefix >= 0 && out->suffix >= 0) {
        out->suffix_first = is_suffix_first(t, out->prefix);
        if (out->suffix_first || out->middle >= 0) return true;
    }
    for (int i = 0; i < N_FAMILIES; i++) {
        const struct family *f = &families[i];
        *out =
            (struct tokenizer_fim){tokenizer_find(t, f->prefix), tokenizer_find(t, f->suffix),
                                   f->middle ? tokenizer_find(t, f->middle) : -1, f->suffix_first};
        if (out->prefix >= 0 && out->suffix >= 0 && (!f->middle || out->middle >= 0)) return true;
    }
    return false;
}

/* Appends a token and its text. The suffix continues a line, so it gets no space prefix. */
static int add_part(const tokenizer *t, int32_t token, const char *text, bool space_prefix,
                    struct id_list *ids, err *e) {
    int rc = id_list_add(ids, token, e);
    if (rc || !*text) return rc;
    return encode_plain(t, text, space_prefix, ids, e);
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
