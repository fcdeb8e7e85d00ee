/* prompts.c - reads texts or token ids from a request's field. Runs on pool threads. */
#include "api/generate/prompts.h"
#include "api/generate/body.h"
#include "api/http/json.h"

#include "core/base/mem.h"
#include "core/text/utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fail_too_long(const struct prompts_config *c, err *e) {
    return err_set_param(e, ERR_TOO_LONG, c->param,
                         "This model's maximum context length is %u tokens; '%s' is longer than "
                         "that.",
                         c->max_tokens, c->param);
}

static int fail_empty(const struct prompts_config *c, const char *why, err *e) {
    return err_set_param(e, ERR_INVALID, c->param, "Invalid value for '%s': it is empty%s.",
                         c->param, why);
}

static int fail_too_many(const struct prompts_config *c, size_t n, err *e) {
    char why[64] = "";
    if (c->n_answers > 1)
        snprintf(why, sizeof why, " with %u answers to each ('n', 'best_of')", c->n_answers);
    return err_set_param(e, ERR_INVALID, c->param,
                         "Invalid value for '%s': expected at most %zu text%s%s, but got %zu.",
                         c->param, c->max, c->max == 1 ? "" : "s", why, n);
}

static bool has_suffix(const struct prompts_config *c) {
    return c->suffix && *c->suffix;
}

int prompts_encode(const tokenizer *tok, const char *text, int flags, size_t max_ids,
                   struct gen_prompt *to, err *e) {
    if (!text_holds_nul(text))
        return tokenizer_encode(tok, text, strlen(text), flags, max_ids, &to->ids, &to->n, e);
    char *restored = mem_strdup(text);
    if (!restored) return err_no_memory(e);
    size_t n = text_restore_nuls(restored, text);
    int rc = tokenizer_encode(tok, restored, n, flags, max_ids, &to->ids, &to->n, e);
    free(restored);
    return rc;
}

int prompts_encode_raw(const tokenizer *tok, const char *text, bool parse_special, size_t max_ids,
                       struct gen_prompt *to, err *e) {
    int flags = TOKENIZER_ADD_SPECIAL | (parse_special ? TOKENIZER_PARSE_SPECIAL : 0);
    int rc = prompts_encode(tok, text, flags, max_ids, to, e);
    to->text = true;
    tokenizer_added(tok, &to->n_before, &to->n_behind);
    if (!parse_special || tokenizer_bos(tok) < 0) return rc;
    size_t n;
    const char *bos = tokenizer_token_text(tok, tokenizer_bos(tok), &n);
    if (n && strncmp(text, bos, n) == 0) to->n_before = 0; /* the client wrote it */
    return rc;
}

/* At most as many ids as bytes, and those that the tokenizer adds. */
static int encode_cut(const struct prompts_config *c, const char *text, struct gen_prompt *to,
                      err *e) {
    size_t most = strlen(text) + 16;
    int rc = prompts_encode_raw(c->tok, text, c->parse_special, most, to, e);
    if (rc || to->n <= c->max_tokens) return rc;
    int32_t last = to->ids[to->n - 1];
    to->n = c->max_tokens;
    if (last == tokenizer_eos(c->tok)) to->ids[to->n - 1] = last;
    return 0;
}

static int add_text(const struct prompts_config *c, const char *text, struct gen_prompt *to,
                    err *e) {
    if (!*text && c->no_empty) return fail_empty(c, "", e);
    to->text = true;
    to->infill = has_suffix(c);
    if (to->infill && text_holds_nul(text))
        return err_set_param(e, ERR_INVALID, c->param,
                             "Invalid value for '%s': with 'suffix' it must not contain the "
                             "character U+0000 (\\u0000).",
                             c->param);
    int rc = to->infill
                 ? tokenizer_encode_fim(c->tok, text, c->suffix, c->max_tokens, &to->ids, &to->n, e)
             : c->truncate
                 ? encode_cut(c, text, to, e)
                 : prompts_encode_raw(c->tok, text, c->parse_special, c->max_tokens, to, e);
    if (rc == ERR_TOO_LONG) return fail_too_long(c, e);
    if (!rc && !to->n) return fail_empty(c, ", and this model's tokenizer adds no token", e);
    return rc;
}

static int add_ids(const struct prompts_config *c, const cJSON *array, struct gen_prompt *to,
                   err *e) {
    size_t n = (size_t)cJSON_GetArraySize(array);
    if (has_suffix(c))
        return err_set_param(
            e, ERR_INVALID, c->param,
            "Invalid value for '%s': with 'suffix' it must be text, not token ids.", c->param);
    if (n > c->max_tokens) return fail_too_long(c, e);
    if (!n) return fail_empty(c, "", e);
    return gen_ids_read(array, c->param, tokenizer_n_vocab(c->tok), to, e);
}

static int wrong_type(const struct prompts_config *c, const cJSON *v, err *e) {
    return err_set_param(e, ERR_INVALID, c->param,
                         "Invalid type for '%s': expected a string, an array of strings, an "
                         "array of token ids or an array of such arrays, but got %s.",
                         c->param, json_type_name(v));
}

static int add_item(const struct prompts_config *c, const cJSON *item, struct gen_prompt *to,
                    err *e) {
    if (!item) return add_text(c, "", to, e);
    return cJSON_IsString(item) ? add_text(c, item->valuestring, to, e) : add_ids(c, item, to, e);
}

static int wrong_item(const struct prompts_config *c, const cJSON *item, size_t i, err *e) {
    if (!i) return wrong_type(c, item, e);
    return err_set_param(e, ERR_INVALID, c->param,
                         "Invalid type for '%s': items must be all strings or all arrays of token "
                         "ids, but item %zu is %s.",
                         c->param, i, json_type_name(item));
}

/* All items must have the type of the first one. */
static int add_items(const struct prompts_config *c, const cJSON *array, struct gen_prompt *list,
                     size_t *n, err *e) {
    bool texts = cJSON_IsString(array->child);
    for (const cJSON *item = array->child; item; item = item->next) {
        if (texts ? !cJSON_IsString(item) : !cJSON_IsArray(item)) return wrong_item(c, item, *n, e);
        int rc = add_item(c, item, &list[(*n)++], e);
        if (rc) return rc;
    }
    return 0;
}

int prompts_read(const struct prompts_config *c, const cJSON *v, struct gen_prompt **list,
                 size_t *n, err *e) {
    *list = NULL;
    *n = 0;
    if (v && !cJSON_IsString(v) && !cJSON_IsArray(v)) return wrong_type(c, v, e);
    if (cJSON_IsArray(v) && !v->child)
        return err_set_param(e, ERR_INVALID, c->param,
                             "Invalid value for '%s': the array is empty.", c->param);
    bool many = cJSON_IsArray(v) && !cJSON_IsNumber(v->child);
    size_t n_items = many ? (size_t)cJSON_GetArraySize(v) : 1;
    if (n_items > c->max) return fail_too_many(c, n_items, e);
    *list = mem_new(n_items, sizeof **list);
    if (!*list) return err_no_memory(e);
    int rc = 0;
    if (many)
        rc = add_items(c, v, *list, n, e);
    else
        rc = add_item(c, v, &(*list)[(*n)++], e);
    if (rc) {
        gen_prompts_free(*list, *n);
        *list = NULL;
    }
    return rc;
}

int prompts_read_text(const struct prompts_config *c, const char *text, struct gen_prompt **list,
                      size_t *n, err *e) {
    const cJSON value = {.type = cJSON_String, .valuestring = (char *)text};
    return prompts_read(c, &value, list, n, e);
}
