/* hf/components.c - normalizer, pre_tokenizer, decoder and post_processor of a tokenizer.json. A
 * Sequence is flattened; an unknown component is refused by its name. Pure; any thread. */
#include "core/formats/hf/tokenizer_int.h"

#include <string.h>

enum { MAX_DEPTH = 8, SHOWN_BYTES = 40 };

#define GPT2_WORDS                                                                                 \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define IDEOGRAPHS                                                                                 \
    "[\\x{4e00}-\\x{9fff}\\x{3400}-\\x{4dbf}\\x{20000}-\\x{2a6df}\\x{2a700}-\\x{2b73f}"            \
    "\\x{2b740}-\\x{2b81f}\\x{2b920}-\\x{2ceaf}\\x{f900}-\\x{faff}\\x{2f800}-\\x{2fa1f}]"
/* \w as recommended by Unicode; PCRE2's differs. */
#define WORD_CHARACTERS                                                                            \
    "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{200c}\\x{200d}\\x{24b6}-\\x{24e9}"                       \
    "\\x{1f130}-\\x{1f149}\\x{1f150}-\\x{1f169}\\x{1f170}-\\x{1f189}"

/* The destination of a component's steps. */
struct target {
    const char *what; /* "normalizer", for errors */
    const char *list; /* name of a Sequence's list */
    struct hf_tokenizer *t;
    struct hf_steps *steps;
    int (*read)(const struct target *to, const char *type, const cJSON *node, err *e);
};

static int err_unsupported(const struct target *to, const char *type, const char *why, err *e) {
    return err_set(e, ERR_UNSUPPORTED, "the %s '%.*s' is not supported%s", to->what, SHOWN_BYTES,
                   type, why);
}

/* Passes each component to to->read, in order. */
static int read_components(const struct target *to, const cJSON *node, int depth, err *e) {
    if (!node || cJSON_IsNull(node)) return 0;
    const char *type = hf_text(node, "type");
    if (!type) return err_set(e, ERR_FORMAT, "a %s has no type", to->what);
    if (strcmp(type, "Sequence") != 0) return to->read(to, type, node, e);
    const cJSON *list = hf_member(node, to->list), *item;
    if (!cJSON_IsArray(list) || depth == MAX_DEPTH)
        return err_set(e, ERR_FORMAT, "a %s Sequence has no list '%s', or is nested too deeply",
                       to->what, to->list);
    cJSON_ArrayForEach(item, list) {
        int rc = read_components(to, item, depth + 1, e);
        if (rc) return rc;
    }
    return 0;
}

static int add_step(const struct target *to, struct hf_step step, err *e) {
    if (to->steps->n == HF_MAX_STEPS)
        return err_set(e, ERR_UNSUPPORTED, "the %s has more than %d steps", to->what, HF_MAX_STEPS);
    to->steps->items[to->steps->n++] = step;
    return 0;
}

/* "pattern": {"String": "..."} or {"Regex": "..."}. */
static int read_pattern(const struct target *to, const cJSON *node, struct hf_step *step, err *e) {
    const cJSON *pattern = hf_member(node, "pattern");
    const char *text = hf_text(pattern, "String");
    step->literal = text != NULL;
    step->pattern = text ? text : hf_text(pattern, "Regex");
    if (step->pattern && (step->pattern[0] || !step->literal)) return 0;
    return err_set(e, ERR_FORMAT, "a %s has no pattern", to->what);
}

void hf_bert_steps(const struct hf_bert *b, struct hf_steps *out) {
    static const struct hf_step all[] = {
        {.kind = HF_REPLACE, .pattern = "[^\\P{C}\\t\\n\\r]|\\x{fffd}", .content = ""},
        {.kind = HF_REPLACE, .pattern = "\\s", .content = " "},
        {.kind = HF_REPLACE, .pattern = "(?=" IDEOGRAPHS ")|(?<=" IDEOGRAPHS ")", .content = " "},
        {.kind = HF_NFD},
        {.kind = HF_REPLACE, .pattern = "\\p{Mn}", .content = ""},
        {.kind = HF_LOWERCASE},
    };
    const bool wanted[] = {b->clean, b->clean, b->ideographs, b->strip, b->strip, b->lower};
    out->n = 0;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (wanted[i]) out->items[out->n++] = all[i];
}

static int read_bert(const struct target *to, const cJSON *node, err *e) {
    const bool lower = hf_flag(node, "lowercase", true);
    struct hf_steps steps;
    int rc = 0;
    hf_bert_steps(&(struct hf_bert){.clean = hf_flag(node, "clean_text", true),
                                    .ideographs = hf_flag(node, "handle_chinese_chars", true),
                                    .strip = hf_flag(node, "strip_accents", lower),
                                    .lower = lower},
                  &steps);
    for (unsigned i = 0; !rc && i < steps.n; i++)
        rc = add_step(to, steps.items[i], e);
    return rc;
}

static int read_normalizer(const struct target *to, const char *type, const cJSON *node, err *e) {
    struct hf_step step = {.content = hf_text(node, "content")};
    if (strcmp(type, "BertNormalizer") == 0) return read_bert(to, node, e);
    if (strcmp(type, "Precompiled") == 0) {
        step.kind = HF_CHARSMAP;
        step.content = hf_text(node, "precompiled_charsmap");
        if (!step.content)
            return err_set(e, ERR_FORMAT, "a normalizer Precompiled has no precompiled_charsmap");
    } else if (strcmp(type, "NFC") == 0) {
        step.kind = HF_NFC;
    } else if (strcmp(type, "NFD") == 0) {
        step.kind = HF_NFD;
    } else if (strcmp(type, "Lowercase") == 0) {
        step.kind = HF_LOWERCASE;
    } else if (strcmp(type, "Strip") == 0) {
        step.kind = HF_STRIP;
        step.left = hf_flag(node, "strip_left", true);
        step.right = hf_flag(node, "strip_right", true);
    } else if (strcmp(type, "Replace") == 0) {
        step.kind = HF_REPLACE;
        int rc = read_pattern(to, node, &step, e);
        if (rc) return rc;
        if (!step.content) return err_set(e, ERR_FORMAT, "a normalizer Replace has no content");
    } else if (strcmp(type, "Prepend") == 0) {
        step.kind = HF_PREPEND;
        step.content = hf_text(node, "prepend");
        if (!step.content) return err_set(e, ERR_FORMAT, "a normalizer Prepend has no text");
    } else {
        return err_unsupported(to, type, "", e);
    }
    return add_step(to, step, e);
}

int hf_read_normalizer(const cJSON *node, struct hf_tokenizer *t, err *e) {
    struct target to = {.what = "normalizer",
                        .list = "normalizers",
                        .t = t,
                        .steps = &t->normalizer,
                        .read = read_normalizer};
    return read_components(&to, node, 0, e);
}

static int read_behavior(const struct target *to, const cJSON *node, struct hf_step *step, err *e) {
    static const char *const names[] = {[HF_ISOLATED] = "Isolated",
                                        [HF_REMOVED] = "Removed",
                                        [HF_MERGED_WITH_PREVIOUS] = "MergedWithPrevious",
                                        [HF_MERGED_WITH_NEXT] = "MergedWithNext",
                                        [HF_CONTIGUOUS] = "Contiguous"};
    const char *name = hf_text(node, "behavior");
    if (!name) return 0;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(name, names[i]) != 0) continue;
        step->behavior = (enum hf_behavior)i;
        return 0;
    }
    return err_unsupported(to, name, " as behavior", e);
}

static int add_split(const struct target *to, const char *pattern, enum hf_behavior behavior,
                     bool invert, err *e) {
    return add_step(
        to,
        (struct hf_step){
            .kind = HF_SPLIT, .pattern = pattern, .behavior = behavior, .invert = invert},
        e);
}

static int read_byte_level(const struct target *to, const cJSON *node, err *e) {
    int rc = 0;
    if (hf_flag(node, "add_prefix_space", true))
        rc = add_step(to, (struct hf_step){.kind = HF_PREFIX_SPACE}, e);
    if (!rc && hf_flag(node, "use_regex", true))
        rc = add_split(to, GPT2_WORDS, HF_ISOLATED, false, e);
    return rc ? rc : add_step(to, (struct hf_step){.kind = HF_BYTE_LEVEL}, e);
}

/* Older files have add_prefix_space, newer ones prepend_scheme. */
static int read_scheme(const struct target *to, const cJSON *node, enum hf_prepend *scheme,
                       err *e) {
    const char *name = hf_text(node, "prepend_scheme");
    *scheme = hf_flag(node, "add_prefix_space", true) ? HF_PREPEND_ALWAYS : HF_PREPEND_NEVER;
    if (!name || strcmp(name, "always") == 0) return 0;
    *scheme = strcmp(name, "first") == 0 ? HF_PREPEND_FIRST : HF_PREPEND_NEVER;
    return *scheme || strcmp(name, "never") == 0
               ? 0
               : err_unsupported(to, name, " as prepend_scheme", e);
}

static int read_metaspace(const struct target *to, const cJSON *node, err *e) {
    struct hf_step step = {.kind = HF_METASPACE, .content = hf_text(node, "replacement")};
    step.split = hf_flag(node, "split", true);
    if (!step.content) return err_set(e, ERR_FORMAT, "a Metaspace has no replacement");
    int rc = read_scheme(to, node, &step.prepend, e);
    return rc ? rc : add_step(to, step, e);
}

static int read_pre_tokenizer(const struct target *to, const char *type, const cJSON *node,
                              err *e) {
    struct hf_step step = {.kind = HF_SPLIT, .invert = hf_flag(node, "invert", false)};
    int rc = 0;
    if (strcmp(type, "Split") == 0) {
        rc = read_pattern(to, node, &step, e);
        if (!rc) rc = read_behavior(to, node, &step, e);
        return rc ? rc : add_step(to, step, e);
    }
    if (strcmp(type, "ByteLevel") == 0) return read_byte_level(to, node, e);
    if (strcmp(type, "Metaspace") == 0) return read_metaspace(to, node, e);
    if (strcmp(type, "Digits") == 0) {
        bool single = hf_flag(node, "individual_digits", false);
        return add_split(to, single ? "\\p{N}" : "\\p{N}+", HF_ISOLATED, false, e);
    }
    if (strcmp(type, "Punctuation") == 0) {
        rc = read_behavior(to, node, &step, e);
        return rc ? rc : add_split(to, HF_PUNCTUATION, step.behavior, false, e);
    }
    if (strcmp(type, "Whitespace") == 0)
        return add_split(to, "[" WORD_CHARACTERS "]+|[^" WORD_CHARACTERS "\\s]+", HF_REMOVED, true,
                         e);
    if (strcmp(type, "BertPreTokenizer") == 0) {
        rc = add_split(to, "\\s", HF_REMOVED, false, e);
        return rc ? rc : add_split(to, HF_PUNCTUATION, HF_ISOLATED, false, e);
    }
    if (strcmp(type, "WhitespaceSplit") == 0) return add_split(to, "\\s", HF_REMOVED, false, e);
    if (strcmp(type, "CharDelimiterSplit") == 0) {
        step = (struct hf_step){.kind = HF_SPLIT, .literal = true, .behavior = HF_REMOVED};
        step.pattern = hf_text(node, "delimiter");
        if (!step.pattern || !step.pattern[0])
            return err_set(e, ERR_FORMAT, "a CharDelimiterSplit has no delimiter");
        return add_step(to, step, e);
    }
    return err_unsupported(to, type, "", e);
}

int hf_read_pre_tokenizer(const cJSON *node, struct hf_tokenizer *t, err *e) {
    struct target to = {.what = "pre_tokenizer",
                        .list = "pretokenizers",
                        .t = t,
                        .steps = &t->pre_tokenizer,
                        .read = read_pre_tokenizer};
    return read_components(&to, node, 0, e);
}

/* Decoding is fixed: marks become spaces, byte tokens their bytes. Any other decoder is refused. */
static int read_decoder(const struct target *to, const char *type, const cJSON *node, err *e) {
    if (strcmp(type, "ByteLevel") == 0) {
        to->t->decodes_bytes = true;
        return 0;
    }
    if (strcmp(type, "WordPiece") == 0) { /* words are joined by spaces */
        to->t->decoder_strips_space = true;
        return 0;
    }
    if (strcmp(type, "ByteFallback") == 0 || strcmp(type, "Fuse") == 0) return 0;
    if (strcmp(type, "Metaspace") == 0) {
        enum hf_prepend scheme;
        int rc = read_scheme(to, node, &scheme, e);
        to->t->decoder_strips_space |= scheme != HF_PREPEND_NEVER;
        return rc;
    }
    const char *content = hf_text(node, "content");
    if (strcmp(type, "Replace") == 0) {
        struct hf_step step = {0};
        int rc = read_pattern(to, node, &step, e);
        if (rc) return rc;
        bool mark = step.literal && strcmp(step.pattern, "\xe2\x96\x81") == 0;
        return mark && content && strcmp(content, " ") == 0
                   ? 0
                   : err_unsupported(to, type, " like this", e);
    }
    if (strcmp(type, "Strip") == 0) {
        const cJSON *start = hf_member(node, "start"), *stop = hf_member(node, "stop");
        bool known = content && strcmp(content, " ") == 0 && cJSON_IsNumber(start) &&
                     (start->valueint == 0 || start->valueint == 1) &&
                     (!stop || stop->valueint == 0);
        if (!known) return err_unsupported(to, type, " like this", e);
        to->t->decoder_strips_space |= start->valueint == 1;
        return 0;
    }
    return err_unsupported(to, type, "", e);
}

int hf_read_decoder(const cJSON *node, struct hf_tokenizer *t, err *e) {
    struct target to = {.what = "decoder", .list = "decoders", .t = t, .read = read_decoder};
    return read_components(&to, node, 0, e);
}

/* Ids that a template adds on one side. */
static int add_ids(int32_t *ids, unsigned *n, const cJSON *list, err *e) {
    const cJSON *item;
    cJSON_ArrayForEach(item, list) {
        if (*n == HF_MAX_ADDED_IDS)
            return err_set(e, ERR_UNSUPPORTED, "the post_processor adds more than %d tokens",
                           HF_MAX_ADDED_IDS);
        int rc = hf_id(item, &ids[*n], e);
        if (rc) return rc;
        ++*n;
    }
    return 0;
}

/* The tokens of a template before, between and after its texts. */
static int read_places(const cJSON *node, const char *list, struct hf_tokenizer *t, err *e) {
    const cJSON *item, *tokens = hf_member(node, "special_tokens");
    const bool pair = strcmp(list, "pair") == 0;
    int32_t others[HF_MAX_ADDED_IDS];
    unsigned n_texts = 0, n_others = 0;
    int rc = 0;
    cJSON_ArrayForEach(item, hf_member(node, list)) {
        const cJSON *token = hf_member(item, "SpecialToken");
        if (hf_member(item, "Sequence")) {
            if (++n_texts > (pair ? 2 : 1))
                return err_set(e, ERR_UNSUPPORTED, "a post_processor repeats the text");
            continue;
        }
        const char *name = hf_text(token, "id");
        const cJSON *ids = name ? hf_member(hf_member(tokens, name), "ids") : NULL;
        if (!cJSON_IsArray(ids))
            return err_set(e, ERR_FORMAT, "the post_processor names a token without ids");
        rc = pair && n_texts != 1 ? add_ids(others, &n_others, ids, e) /* as of one text */
             : pair               ? add_ids(t->between, &t->n_between, ids, e)
             : n_texts            ? add_ids(t->after, &t->n_after, ids, e)
                                  : add_ids(t->before, &t->n_before, ids, e);
        if (rc) return rc;
    }
    t->has_pair |= pair && n_texts == 2;
    return n_texts || pair ? 0
                           : err_set(e, ERR_FORMAT, "the post_processor's template has no text");
}

static int read_template(const cJSON *node, struct hf_tokenizer *t, err *e) {
    int rc = read_places(node, "single", t, e);
    return rc ? rc : read_places(node, "pair", t, e);
}

/* "cls": ["[CLS]", 101] before the text, "sep" after it. */
static int read_pair(const cJSON *node, const char *name, int32_t *ids, unsigned *n, err *e) {
    const cJSON *id = cJSON_GetArrayItem(hf_member(node, name), 1);
    if (!id || *n == HF_MAX_ADDED_IDS)
        return err_set(e, ERR_FORMAT, "the post_processor has no '%s'", name);
    return hf_id(id, &ids[(*n)++], e);
}

static int read_post_processor(const struct target *to, const char *type, const cJSON *node,
                               err *e) {
    struct hf_tokenizer *t = to->t;
    if (strcmp(type, "ByteLevel") == 0) return 0;
    if (strcmp(type, "TemplateProcessing") == 0) return read_template(node, t, e);
    if (strcmp(type, "RobertaProcessing") == 0 || strcmp(type, "BertProcessing") == 0) {
        int rc = read_pair(node, "cls", t->before, &t->n_before, e);
        if (!rc) rc = read_pair(node, "sep", t->after, &t->n_after, e);
        /* RoBERTa's has it twice. */
        for (int i = 0; !rc && i < (type[0] == 'R' ? 2 : 1); i++)
            rc = read_pair(node, "sep", t->between, &t->n_between, e);
        t->has_pair = !rc;
        return rc;
    }
    return err_unsupported(to, type, "", e);
}

int hf_read_post_processor(const cJSON *node, struct hf_tokenizer *t, err *e) {
    struct target to = {
        .what = "post_processor", .list = "processors", .t = t, .read = read_post_processor};
    return read_components(&to, node, 0, e);
}
