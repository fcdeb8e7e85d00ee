/* hf/tokenizer.c - reads tokenizer.json or tiktoken.model, and the files beside it. Texts are
 * borrowed from the parsed documents, which live as long as the tokenizer. Immutable once open; any
 * thread. */
#include "core/formats/hf/tokenizer_int.h"

#include "core/base/mem.h"
#include "core/base/str.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TOKENIZER_MAX_BYTES = 256 << 20, SHOWN_BYTES = 40 };
enum { DOC_TOKENIZER, DOC_CONFIG, DOC_SPECIAL, DOC_GENERATION, DOC_TEMPLATE, DOC_ADDED, DOC_MODEL };

int hf_id(const cJSON *item, int32_t *id, err *e) {
    double value = cJSON_IsNumber(item) ? item->valuedouble : -1;
    if (!(value >= 0 && value <= HF_MAX_ID) || value != (double)(int32_t)value)
        return err_set(e, ERR_FORMAT, "a token's id is not an integer from 0 to %d", HF_MAX_ID);
    *id = (int32_t)value;
    return 0;
}

/* Room for a vocabulary of n tokens. */
static int new_tokens(struct hf_tokenizer *t, int n, err *e) {
    if (n == 0 || n > HF_MAX_ID + 1)
        return err_set(e, ERR_FORMAT, "the vocabulary has %d tokens, expected 1 to %d", n,
                       HF_MAX_ID + 1);
    t->tokens = mem_new((uint64_t)n, sizeof *t->tokens);
    return t->tokens ? 0 : err_no_memory(e);
}

static int read_vocab(const cJSON *model, struct hf_tokenizer *t, err *e) {
    const cJSON *vocab = hf_member(model, "vocab"), *item;
    if (!cJSON_IsObject(vocab)) return err_set(e, ERR_FORMAT, "the model has no 'vocab'");
    int failed = new_tokens(t, cJSON_GetArraySize(vocab), e);
    if (failed) return failed;
    cJSON_ArrayForEach(item, vocab) {
        struct hf_token *token = &t->tokens[t->n_tokens];
        int rc = hf_id(item, &token->id, e);
        if (rc) return rc;
        token->text = item->string;
        t->n_tokens++;
    }
    return 0;
}

/* "left right" or ["left", "right"]. */
static int read_merge(const cJSON *item, struct hf_merge *m) {
    if (cJSON_IsString(item)) {
        const char *space = strchr(item->valuestring, ' ');
        if (!space || strchr(space + 1, ' ')) return -1;
        m->left = item->valuestring;
        m->left_len = (uint32_t)(space - item->valuestring);
        m->right = space + 1;
    } else {
        const cJSON *left = cJSON_IsArray(item) ? item->child : NULL;
        const cJSON *right = left ? left->next : NULL;
        if (!cJSON_IsString(left) || !cJSON_IsString(right) || right->next) return -1;
        m->left = left->valuestring;
        m->left_len = (uint32_t)strlen(m->left);
        m->right = right->valuestring;
    }
    m->right_len = (uint32_t)strlen(m->right);
    return 0;
}

static int read_merges(const cJSON *model, struct hf_tokenizer *t, err *e) {
    const cJSON *merges = hf_member(model, "merges"), *item;
    if (!cJSON_IsArray(merges)) return err_set(e, ERR_FORMAT, "the model has no 'merges'");
    int n = cJSON_GetArraySize(merges);
    if (n > HF_MAX_MERGES)
        return err_set(e, ERR_FORMAT, "the model has %d merges, expected at most %d", n,
                       HF_MAX_MERGES);
    t->merges = mem_new((uint64_t)n, sizeof *t->merges);
    if (!t->merges) return err_no_memory(e);
    cJSON_ArrayForEach(item, merges) {
        if (read_merge(item, &t->merges[t->n_merges]))
            return err_set(e, ERR_FORMAT, "merge %" PRIu32 " is not a pair of strings",
                           t->n_merges);
        t->n_merges++;
    }
    return 0;
}

/* Unigram: a list of texts with their scores. */
static int read_scored(const cJSON *model, struct hf_tokenizer *t, err *e) {
    const cJSON *vocab = hf_member(model, "vocab"), *item;
    int rc = new_tokens(t, cJSON_IsArray(vocab) ? cJSON_GetArraySize(vocab) : 0, e);
    if (rc) return rc;
    cJSON_ArrayForEach(item, vocab) {
        const cJSON *text = cJSON_IsArray(item) ? item->child : NULL;
        const cJSON *score = text ? text->next : NULL;
        if (!cJSON_IsString(text) || !cJSON_IsNumber(score) || !isfinite(score->valuedouble))
            return err_set(e, ERR_FORMAT, "token %" PRIu32 " is not a text with its score",
                           t->n_tokens);
        t->tokens[t->n_tokens] =
            (struct hf_token){text->valuestring, (int32_t)t->n_tokens, (float)score->valuedouble};
        t->n_tokens++;
    }
    const cJSON *unk = hf_member(model, "unk_id");
    int32_t id;
    if (!unk || cJSON_IsNull(unk)) return 0;
    rc = hf_id(unk, &id, e);
    if (rc) return rc;
    if ((uint32_t)id >= t->n_tokens)
        return err_set(e, ERR_FORMAT, "the model's unk_id is no token");
    t->unk = t->tokens[id].text;
    return 0;
}

static int read_wordpiece(const cJSON *model, struct hf_tokenizer *t, err *e) {
    const cJSON *most = hf_member(model, "max_input_chars_per_word");
    if (cJSON_IsNumber(most) && most->valuedouble != 100)
        return err_set(e, ERR_UNSUPPORTED,
                       "the model's max_input_chars_per_word is not supported (expected 100)");
    t->next_prefix = hf_text(model, "continuing_subword_prefix");
    if (!t->next_prefix) t->next_prefix = "##";
    t->unk = hf_text(model, "unk_token");
    return read_vocab(model, t, e);
}

static int read_model(const cJSON *model, struct hf_tokenizer *t, err *e) {
    const char *type = hf_text(model, "type");
    if (!type && hf_member(model, "merges")) type = "BPE"; /* the oldest files have no type */
    if (!type) return err_set(e, ERR_FORMAT, "there is no 'model' with a 'type'");
    if (strcmp(type, "WordPiece") == 0) {
        t->model = HF_MODEL_WORDPIECE;
        return read_wordpiece(model, t, e);
    }
    if (strcmp(type, "Unigram") == 0) {
        t->model = HF_MODEL_UNIGRAM;
        if (hf_flag(model, "byte_fallback", false))
            return err_set(e, ERR_UNSUPPORTED, "byte_fallback of Unigram is not supported");
        return read_scored(model, t, e);
    }
    if (strcmp(type, "BPE") != 0)
        return err_set(e, ERR_UNSUPPORTED,
                       "model type '%.*s' is not supported (expected BPE, WordPiece or Unigram)",
                       SHOWN_BYTES, type);
    static const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    for (int i = 0; i < 2; i++) {
        const char *affix = hf_text(model, affixes[i]);
        if (affix && affix[0])
            return err_set(e, ERR_UNSUPPORTED, "the model's %s is not supported", affixes[i]);
    }
    const cJSON *dropout = hf_member(model, "dropout");
    if (cJSON_IsNumber(dropout) && dropout->valuedouble > 0)
        return err_set(e, ERR_UNSUPPORTED, "the model's dropout is not supported");
    t->unk = hf_text(model, "unk_token");
    t->byte_fallback = hf_flag(model, "byte_fallback", false);
    t->fuse_unk = hf_flag(model, "fuse_unk", false);
    t->ignore_merges = hf_flag(model, "ignore_merges", false);
    int rc = read_vocab(model, t, e);
    return rc ? rc : read_merges(model, t, e);
}

static int new_added(struct hf_tokenizer *t, int n, err *e) {
    if (n > HF_MAX_ID + 1)
        return err_set(e, ERR_FORMAT, "there are %d added tokens, expected at most %d", n,
                       HF_MAX_ID + 1);
    t->added = mem_new((uint64_t)n, sizeof *t->added);
    return t->added ? 0 : err_no_memory(e);
}

/* Adds an added token with the given id. */
static int add_added(struct hf_tokenizer *t, int32_t id, const cJSON *item, err *e) {
    struct hf_added *a = &t->added[t->n_added];
    a->token.id = id;
    a->token.text = hf_text(item, "content");
    if (!a->token.text) return err_set(e, ERR_FORMAT, "an added token has no content");
    a->special = hf_flag(item, "special", false);
    a->lstrip = hf_flag(item, "lstrip", false);
    a->rstrip = hf_flag(item, "rstrip", false);
    a->single_word = hf_flag(item, "single_word", false);
    a->normalized = hf_flag(item, "normalized", !a->special);
    t->n_added++;
    return 0;
}

static int read_added(const cJSON *list, struct hf_tokenizer *t, err *e) {
    const cJSON *item;
    int n = cJSON_IsArray(list) ? cJSON_GetArraySize(list) : 0;
    int rc = new_added(t, n, e);
    for (item = n ? list->child : NULL; !rc && item; item = item->next) {
        int32_t id;
        rc = hf_id(hf_member(item, "id"), &id, e);
        if (!rc) rc = add_added(t, id, item, e);
    }
    return rc;
}

static int read_tokenizer(const cJSON *json, struct hf_tokenizer *t, err *e) {
    int rc = read_model(hf_member(json, "model"), t, e);
    if (!rc) rc = read_added(hf_member(json, "added_tokens"), t, e);
    if (!rc) rc = hf_read_normalizer(hf_member(json, "normalizer"), t, e);
    if (!rc) rc = hf_read_pre_tokenizer(hf_member(json, "pre_tokenizer"), t, e);
    if (!rc) rc = hf_read_decoder(hf_member(json, "decoder"), t, e);
    if (!rc) rc = hf_read_post_processor(hf_member(json, "post_processor"), t, e);
    return rc;
}

/* "</s>" or {"content": "</s>"}. */
static const char *text_of(const cJSON *item) {
    return cJSON_IsString(item) ? item->valuestring : hf_text(item, "content");
}

static const char *token_text(const cJSON *config, const char *name) {
    return text_of(hf_member(config, name));
}

/* transformers rebuilds the post-processor of these classes from add_bos_token and similar. */
static bool class_adds(const cJSON *config) {
    static const char *const classes[] = {"LlamaTokenizer", "GemmaTokenizer", "CohereTokenizer",
                                          "CodeLlamaTokenizer"};
    const char *name = hf_text(config, "tokenizer_class");
    for (size_t i = 0; name && i < sizeof classes / sizeof classes[0]; i++)
        if (strncmp(name, classes[i], strlen(classes[i])) == 0) return true;
    return false;
}

static int tri_state(const cJSON *config, const char *name) {
    const cJSON *item = hf_member(config, name);
    return cJSON_IsBool(item) ? cJSON_IsTrue(item) : -1;
}

/* The template with this name in a list; a single template is "default". */
static const char *find_template(const cJSON *config, const char *wanted) {
    const cJSON *item, *list = hf_member(config, "chat_template");
    if (cJSON_IsString(list)) return strcmp(wanted, "default") == 0 ? list->valuestring : NULL;
    cJSON_ArrayForEach(item, list) {
        const char *name = hf_text(item, "name");
        if (name && strcmp(name, wanted) == 0) return hf_text(item, "template");
    }
    return NULL;
}

/* "eos_token_id": 2 or [2, 7]. */
static int read_eos_ids(const cJSON *config, struct hf_tokenizer *t, err *e) {
    const cJSON *eos = hf_member(config, "eos_token_id");
    const cJSON *item = cJSON_IsArray(eos) ? eos->child : eos;
    for (; item && t->n_eos_ids < HF_MAX_EOS; item = item->next) {
        if (cJSON_IsNumber(item)) {
            int rc = hf_id(item, &t->eos_ids[t->n_eos_ids], e);
            if (rc) return rc;
            t->n_eos_ids++;
        }
        if (item == eos) break;
    }
    return 0;
}

/* "suppress_tokens": [5, 9] or null. */
static int read_suppressed(const cJSON *config, struct hf_tokenizer *t, err *e) {
    const cJSON *list = hf_member(config, "suppress_tokens"), *item;
    if (!list || cJSON_IsNull(list)) return 0;
    if (!cJSON_IsArray(list) || cJSON_GetArraySize(list) > HF_MAX_SUPPRESSED)
        return err_set(e, ERR_FORMAT,
                       "generation_config.json: suppress_tokens is not a list of at most %d tokens",
                       HF_MAX_SUPPRESSED);
    cJSON_ArrayForEach(item, list) {
        int rc = hf_id(item, &t->suppressed[t->n_suppressed], e);
        if (rc) return err_prefix(e, "generation_config.json: suppress_tokens: ");
        t->n_suppressed++;
    }
    return 0;
}

/* config.json applies if the other files have no value; a negative id means no token. */
static int read_model_ids(const cJSON *config, struct hf_tokenizer *t, err *e) {
    const cJSON *text = hf_member(config, "text_config");
    if (cJSON_IsObject(text) && !hf_member(config, "eos_token_id")) config = text;
    if (hf_id(hf_member(config, "bos_token_id"), &t->bos_id, NULL)) t->bos_id = -1;
    if (hf_id(hf_member(config, "pad_token_id"), &t->pad_id, NULL)) t->pad_id = -1;
    return t->n_eos_ids ? 0 : read_eos_ids(config, t, e);
}

/* folder/name, or name where folder is "". */
static int join_path(const char *folder, const char *name, char *path, err *e) {
    int n = snprintf(path, HF_PATH_MAX_BYTES, "%s%s%s", folder, folder[0] ? "/" : "", name);
    return n < HF_PATH_MAX_BYTES ? 0
                                 : err_set(e, ERR_IO, "%s: the path is longer than %d bytes",
                                           folder, HF_PATH_MAX_BYTES);
}

static int read_document(const char *folder, const char *name, void **document, err *e) {
    char path[HF_PATH_MAX_BYTES], *text = NULL;
    size_t n = 0;
    int rc = join_path(folder, name, path, e);
    if (!rc) rc = hf_file_read(path, HF_CONFIG_MAX_BYTES, true, &text, &n, e);
    if (rc || !text) return rc;
    rc = hf_json_parse(text, n, document, e);
    if (rc) err_prefix(e, "%s: ", path);
    free(text);
    return rc;
}

static int read_folder(const char *folder, struct hf_tokenizer *t, err *e) {
    char path[HF_PATH_MAX_BYTES];
    size_t n;
    int rc = read_document(folder, "tokenizer_config.json", &t->documents[DOC_CONFIG], e);
    if (!rc) rc = read_document(folder, "special_tokens_map.json", &t->documents[DOC_SPECIAL], e);
    if (!rc) rc = read_document(folder, "generation_config.json", &t->documents[DOC_GENERATION], e);
    if (!rc) rc = read_document(folder, "config.json", &t->documents[DOC_MODEL], e);
    if (!rc) rc = read_eos_ids(t->documents[DOC_GENERATION], t, e);
    if (!rc) rc = read_suppressed(t->documents[DOC_GENERATION], t, e);
    if (!rc) rc = read_model_ids(t->documents[DOC_MODEL], t, e);
    if (!rc) rc = read_document(folder, "chat_template.json", &t->documents[DOC_TEMPLATE], e);
    if (!rc) rc = join_path(folder, "chat_template.jinja", path, e);
    if (!rc) rc = hf_file_read(path, HF_CONFIG_MAX_BYTES, true, &t->template_file, &n, e);
    if (rc) return rc;
    if (t->template_file && memchr(t->template_file, 0, n))
        return err_set(e, ERR_FORMAT, "%s contains a NUL byte", path);
    const cJSON *config = t->documents[DOC_CONFIG], *special = t->documents[DOC_SPECIAL];
    t->bos = token_text(config, "bos_token");
    t->eos = token_text(config, "eos_token");
    t->pad = token_text(config, "pad_token");
    if (!t->bos) t->bos = token_text(special, "bos_token");
    if (!t->eos) t->eos = token_text(special, "eos_token");
    if (!t->pad) t->pad = token_text(special, "pad_token");
    if (class_adds(config)) {
        t->add_bos = tri_state(config, "add_bos_token");
        t->add_eos = tri_state(config, "add_eos_token");
    }
    t->chat_template = t->template_file ? t->template_file : find_template(config, "default");
    if (!t->chat_template) t->chat_template = find_template(t->documents[DOC_TEMPLATE], "default");
    /* A separate file replaces all templates of the list. */
    if (!t->template_file) t->tool_template = find_template(config, "tool_use");
    return 0;
}

static int compare_texts(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Sorted list of the texts that files declare special: "eos_token" and similar roles, and
 * additional ones. The caller frees. NULL: out of memory. */
static const char **list_special(const struct hf_tokenizer *t, size_t *n) {
    const cJSON *files[] = {t->documents[DOC_CONFIG], t->documents[DOC_SPECIAL]}, *item;
    uint64_t room = 0;
    *n = 0;
    for (int f = 0; f < 2; f++)
        room += (uint64_t)cJSON_GetArraySize(files[f]) +
                (uint64_t)cJSON_GetArraySize(hf_member(files[f], "additional_special_tokens"));
    const char **texts = mem_new(room, sizeof *texts);
    for (int f = 0; texts && f < 2; f++) {
        cJSON_ArrayForEach(item, files[f]) {
            const char *role = item->string ? strstr(item->string, "_token") : NULL;
            bool is_token = role && strcmp(role, "_token") == 0 && text_of(item);
            if (is_token) texts[(*n)++] = text_of(item);
        }
        cJSON_ArrayForEach(item,
                           hf_member(files[f], "additional_special_tokens")) if (text_of(item))
            texts[(*n)++] = text_of(item);
    }
    if (*n) qsort(texts, *n, sizeof *texts, compare_texts);
    return texts;
}

/* Reads "32000": {"content": ...}, one member per token. */
static int read_decoder(const cJSON *list, struct hf_tokenizer *t, err *e) {
    const cJSON *item;
    int rc = 0;
    for (item = list ? list->child : NULL; !rc && item; item = item->next) {
        char *end = NULL;
        long id = item->string ? strtol(item->string, &end, 10) : -1;
        if (!end || end == item->string || *end || id < 0 || id > HF_MAX_ID)
            return err_set(e, ERR_FORMAT, "added_tokens_decoder: '%.*s' is not a token id",
                           SHOWN_BYTES, item->string ? item->string : "");
        rc = add_added(t, (int32_t)id, item, e);
    }
    return rc;
}

/* Reads "<|x|>": 32000, one member per token; the other files declare which are special. */
static int read_plain_added(const cJSON *list, struct hf_tokenizer *t, err *e) {
    size_t n;
    const char **special = list_special(t, &n);
    int rc = special ? 0 : err_no_memory(e);
    for (const cJSON *item = list ? list->child : NULL; item && !rc; item = item->next) {
        struct hf_added *a = &t->added[t->n_added];
        rc = hf_id(item, &a->token.id, e);
        a->token.text = item->string;
        a->special = n && bsearch(&a->token.text, special, n, sizeof *special, compare_texts);
        if (!rc) t->n_added++;
    }
    free(special);
    return rc;
}

/* Reads both lists; added_tokens_decoder, which has flags, takes precedence. */
static int read_beside(const char *folder, struct hf_tokenizer *t, err *e) {
    int rc = read_document(folder, "added_tokens.json", &t->documents[DOC_ADDED], e);
    if (!rc) rc = read_folder(folder, t, e);
    if (rc) return rc;
    const cJSON *config = t->documents[DOC_CONFIG], *plain = t->documents[DOC_ADDED];
    const cJSON *decoder = hf_member(config, "added_tokens_decoder");
    if (!cJSON_IsObject(decoder)) decoder = NULL;
    t->add_bos = tri_state(config, "add_bos_token");
    t->add_eos = tri_state(config, "add_eos_token");
    t->space_prefix = tri_state(config, "add_prefix_space");
    int n_decoder = decoder ? cJSON_GetArraySize(decoder) : 0;
    int n_plain = plain ? cJSON_GetArraySize(plain) : 0;
    if (n_decoder > HF_MAX_ID + 1) n_plain = 0; /* new_added refuses it */
    rc = new_added(t, n_decoder + n_plain, e);
    if (!rc) rc = read_plain_added(plain, t, e);
    return rc ? rc : read_decoder(decoder, t, e);
}

static const char ranks_name[] = "tiktoken.model";

/* A folder without tokenizer.json. */
static int find_ranks(const char *path, char *file, err *e) {
    int rc = join_path(path, ranks_name, file, e);
    if (!rc && access(file, F_OK))
        rc = err_set(e, ERR_NOT_FOUND, "%s contains no tokenizer.json", path);
    return rc;
}

static bool has_ranks(const char *file) {
    const size_t n = strlen(file), n_name = sizeof ranks_name - 1;
    return n >= n_name && strcmp(file + n - n_name, ranks_name) == 0 &&
           (n == n_name || file[n - n_name - 1] == '/');
}

/* The special tokens of a folder with tiktoken.model. The file does not say how text is split into
 * words: only Kimi's way is known. */
static int finish_ranks(struct hf_tokenizer *t, err *e) {
    const cJSON *config = t->documents[DOC_CONFIG], *map = hf_member(config, "auto_map"),
                *code = hf_member(map, "AutoTokenizer");
    if (cJSON_IsArray(code)) code = code->child;
    const cJSON *list = hf_member(config, "added_tokens_decoder");
    const int n = cJSON_IsObject(list) ? cJSON_GetArraySize(list) : 0;
    if (!cJSON_IsString(code) || !strstr(code->valuestring, "tokenization_kimi"))
        return err_set(e, ERR_UNSUPPORTED,
                       "tokenizer_config.json: a tiktoken.model is supported of Kimi only "
                       "(AutoTokenizer in 'auto_map' names no tokenization_kimi)");
    int rc = new_added(t, n > HF_MAX_ID ? n : n + 256, e);
    if (!rc && n) rc = read_decoder(list, t, e);
    return rc ? rc : hf_tiktoken_reserve(t, e);
}

/* Splits path into the file and its folder. */
static int find_files(const char *path, char *folder, char *file, err *e) {
    struct stat st;
    if (stat(path, &st)) return err_set(e, ERR_IO, "%s: cannot open: %s", path, strerror(errno));
    if (S_ISDIR(st.st_mode)) {
        int rc = join_path(path, "tokenizer.json", file, e);
        if (!rc) rc = join_path("", path, folder, e);
        return rc || !access(file, F_OK) ? rc : find_ranks(path, file, e);
    }
    const char *slash = strrchr(path, '/');
    int rc = join_path("", path, file, e);
    if (rc) return rc;
    if (slash)
        snprintf(folder, HF_PATH_MAX_BYTES, "%.*s", slash == path ? 1 : (int)(slash - path), path);
    else
        snprintf(folder, HF_PATH_MAX_BYTES, ".");
    return 0;
}

static struct hf_tokenizer *new_tokenizer(void) {
    struct hf_tokenizer *t = mem_new(1, sizeof *t);
    if (t) t->add_bos = t->add_eos = t->space_prefix = t->bos_id = t->pad_id = -1;
    return t;
}

int hf_tokenizer_open_memory(const char *json, size_t n, struct hf_tokenizer **out, err *e) {
    struct hf_tokenizer *t = new_tokenizer();
    *out = NULL;
    if (!t) return err_no_memory(e);
    int rc = hf_json_parse(json, n, &t->documents[DOC_TOKENIZER], e);
    if (!rc) rc = read_tokenizer(t->documents[DOC_TOKENIZER], t, e);
    if (rc)
        hf_tokenizer_close(t);
    else
        *out = t;
    return rc;
}

int hf_tokenizer_open_ranks(const char *text, size_t n, struct hf_tokenizer **out, err *e) {
    struct hf_tokenizer *t = new_tokenizer();
    *out = NULL;
    if (!t) return err_no_memory(e);
    int rc = hf_tiktoken_read(text, n, t, e);
    if (rc)
        hf_tokenizer_close(t);
    else
        *out = t;
    return rc;
}

int hf_tokenizer_open(const char *path, struct hf_tokenizer **out, err *e) {
    char folder[HF_PATH_MAX_BYTES], file[HF_PATH_MAX_BYTES], *text = NULL;
    size_t n;
    *out = NULL;
    int rc = find_files(path, folder, file, e);
    if (!rc) rc = hf_file_read(file, TOKENIZER_MAX_BYTES, false, &text, &n, e);
    if (rc) return rc;
    const bool ranks = has_ranks(file);
    rc = ranks ? hf_tokenizer_open_ranks(text, n, out, e)
               : hf_tokenizer_open_memory(text, n, out, e);
    free(text);
    if (rc) return err_prefix(e, "%s: ", file);
    rc = read_folder(folder, *out, e);
    if (!rc && ranks) rc = finish_ranks(*out, e);
    if (rc) {
        hf_tokenizer_close(*out);
        *out = NULL;
    }
    return rc;
}

int hf_tokenizer_open_beside(const char *path, struct hf_tokenizer **out, err *e) {
    char folder[HF_PATH_MAX_BYTES], file[HF_PATH_MAX_BYTES];
    *out = NULL;
    int rc = find_files(path, folder, file, e);
    if (rc) return rc;
    struct hf_tokenizer *t = new_tokenizer();
    if (!t) return err_no_memory(e);
    rc = read_beside(folder, t, e);
    if (rc)
        hf_tokenizer_close(t);
    else
        *out = t;
    return rc;
}

void hf_tokenizer_close(struct hf_tokenizer *t) {
    if (!t) return;
    for (size_t i = 0; i < sizeof t->documents / sizeof t->documents[0]; i++)
        cJSON_Delete(t->documents[i]);
    arena_free(t->memory);
    free(t->template_file);
    free(t->tokens);
    free(t->merges);
    free(t->added);
    free(t);
}
