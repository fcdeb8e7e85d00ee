/* prompts.c - the prompts of llama.cpp's routes: texts and token ids in any mixture, and the parts
 * of a prompt to fill in. Runs on pool threads. */
#include "api/generate/prompts.h"
#include "api/generate/api_state.h"
#include "api/generate/body.h"
#include "api/http/request.h"
#include "api/llamacpp/llamacpp.h"

#include "core/base/mem.h"

#include <stdlib.h>
#include <string.h>

/* A longer prompt is refused without its number of tokens. */
enum { MOST_IDS = 1 << 20, MAX_CHUNKS = 4096 };

static int fail_prompt(const char *why, err *e) {
    return err_set_param(e, ERR_INVALID, "prompt", "Invalid value for 'prompt': %s.", why);
}

static int encode_text(const struct request *r, const struct llama_fields *f, const char *text,
                       struct gen_prompt *to, err *e) {
    const tokenizer *tok = engine_tokenizer(r->model->engine);
    int rc = prompts_encode_raw(tok, text, f->gen.parse_special, MOST_IDS, to, e);
    if (!rc && !to->n) return fail_prompt("it is empty, and the tokenizer adds no token", e);
    return rc;
}

static int append_ids(struct gen_prompt *to, const int32_t *ids, size_t n, err *e) {
    if (!n) return 0;
    int32_t *more = mem_resize(to->ids, to->n + n, sizeof *more);
    if (!more) return err_no_memory(e);
    memcpy(more + to->n, ids, n * sizeof *ids);
    to->ids = more;
    to->n += n;
    return 0;
}

/* One item of an array of ids and texts; the first one, if it is a text, gets the tokens that the
 * tokenizer adds before a text. */
static int append_item(const struct request *r, const struct llama_fields *f, const cJSON *v,
                       struct gen_prompt *to, err *e) {
    const tokenizer *tok = engine_tokenizer(r->model->engine);
    struct gen_prompt part = {0};
    int64_t id;
    int rc = 0;
    if (cJSON_IsString(v)) {
        int flags = (to->n ? 0 : TOKENIZER_ADD_SPECIAL) |
                    (f->gen.parse_special ? TOKENIZER_PARSE_SPECIAL : 0);
        rc = prompts_encode(tok, v->valuestring, flags, MOST_IDS, &part, e);
        if (!rc) rc = append_ids(to, part.ids, part.n, e);
        free(part.ids);
        return rc;
    }
    if (!json_int64(v, &id) || id < 0 || id >= tokenizer_n_vocab(tok))
        return fail_prompt("token ids must be integers of the model's vocabulary", e);
    int32_t one = (int32_t)id;
    return append_ids(to, &one, 1, e);
}

static int read_mixed(const struct request *r, const struct llama_fields *f, const cJSON *array,
                      struct gen_prompt *to, err *e) {
    if (!array->child) return fail_prompt("it is empty", e);
    if (cJSON_IsNumber(array->child)) {
        bool ids = true;
        for (const cJSON *v = array->child; v; v = v->next)
            ids &= cJSON_IsNumber(v);
        if (ids)
            return gen_ids_read(array, "prompt",
                                tokenizer_n_vocab(engine_tokenizer(r->model->engine)), to, e);
    }
    int rc = 0;
    for (const cJSON *v = array->child; v && !rc; v = v->next)
        rc = append_item(r, f, v, to, e);
    if (!rc && !to->n) rc = fail_prompt("it is empty", e);
    return rc;
}

/* {"prompt_string": text, "multimodal_data": []} */
static int read_object(const struct request *r, const struct llama_fields *f, const cJSON *object,
                       struct gen_prompt *to, err *e) {
    const cJSON *text = cJSON_GetObjectItemCaseSensitive(object, "prompt_string");
    const cJSON *media = cJSON_GetObjectItemCaseSensitive(object, "multimodal_data");
    if (cJSON_GetArraySize(media))
        return err_set_param(e, ERR_UNSUPPORTED, "prompt",
                             "Unsupported value for 'prompt': images and audio are not supported.");
    if (!cJSON_IsString(text)) return fail_prompt("an object needs the text 'prompt_string'", e);
    return encode_text(r, f, text->valuestring, to, e);
}

static int read_one(const struct request *r, const struct llama_fields *f, const cJSON *v,
                    struct gen_prompt *to, err *e) {
    if (cJSON_IsString(v)) return encode_text(r, f, v->valuestring, to, e);
    if (cJSON_IsObject(v)) return read_object(r, f, v, to, e);
    if (cJSON_IsArray(v)) return read_mixed(r, f, v, to, e);
    return fail_prompt("expected texts, token ids or objects", e);
}

/* Is the array one prompt: are there numbers in it? Otherwise each item is one. */
static bool is_one_prompt(const cJSON *array) {
    for (const cJSON *v = array->child; v; v = v->next)
        if (cJSON_IsNumber(v)) return true;
    return !array->child;
}

int llama_prompts_read(const struct request *r, const struct llama_fields *f,
                       struct gen_prompt **list, size_t *n, bool *many, err *e) {
    const cJSON *v = f->gen.prompt;
    *many = cJSON_IsArray(v) && !is_one_prompt(v);
    size_t n_all = *many ? (size_t)cJSON_GetArraySize(v) : 1;
    *list = NULL;
    *n = 0;
    if (n_all * (size_t)f->gen.n > ENGINE_MAX_CHOICES)
        return fail_prompt("there are more answers than a request may have", e);
    *list = mem_new(n_all, sizeof **list);
    if (!*list) return err_no_memory(e);
    int rc = 0;
    for (const cJSON *one = *many ? v->child : v; one && !rc; one = *many ? one->next : NULL)
        rc = read_one(r, f, one, &(*list)[(*n)++], e);
    if (rc) {
        gen_prompts_free(*list, *n);
        *list = NULL;
    }
    return rc;
}

/* ---- fill in the middle ---- */

/* The chunks of input_extra, which the caller frees. */
static int read_chunks(const struct llama_fields *f, struct tokenizer_chunk **list, size_t *n,
                       err *e) {
    *n = (size_t)cJSON_GetArraySize(f->input_extra);
    *list = NULL;
    if (*n > MAX_CHUNKS)
        return err_set_param(e, ERR_INVALID, "input_extra",
                             "Invalid value for 'input_extra': at most %d chunks.", MAX_CHUNKS);
    *list = mem_new(*n, sizeof **list);
    if (!*list) return err_no_memory(e);
    size_t i = 0;
    for (const cJSON *v = f->input_extra ? f->input_extra->child : NULL; v; v = v->next, i++) {
        char path[JSON_PATH_BYTES];
        struct tokenizer_chunk *chunk = &(*list)[i];
        json_path(path, "input_extra[%zu].", i);
        int rc = json_read(v, &llama_chunk_table, path, chunk, e);
        if (rc) return rc;
        if (!chunk->name || !*chunk->name) chunk->name = "tmp"; /* as llama.cpp */
    }
    return 0;
}

/* The tokens to generate must fit, too; without a limit a quarter of the context. */
static uint32_t room_for_prompt(const struct request *r, const struct gen_options *o) {
    uint32_t context = engine_context_length(r->model->engine), wanted = o->params.max_tokens;
    int64_t room = wanted ? (int64_t)context - wanted : (int64_t)context - context / 4;
    if (room < context / 4) room = context / 4;
    if (room >= context) room = context - 1;
    return room < 1 ? 1 : (uint32_t)room;
}

int llama_infill_read(const struct request *r, const struct llama_body *b, struct gen_prompt **list,
                      err *e) {
    const struct llama_fields *f = &b->fields;
    const tokenizer *tok = engine_tokenizer(r->model->engine);
    struct tokenizer_chunk *chunks = NULL;
    size_t n_chunks = 0;
    *list = mem_new(1, sizeof **list);
    int rc = *list ? read_chunks(f, &chunks, &n_chunks, e) : err_no_memory(e);
    if (!rc) {
        const struct tokenizer_infill in = {.prefix = f->input_prefix,
                                            .suffix = f->input_suffix,
                                            .start = f->start ? f->start : "",
                                            .parse_special = f->gen.parse_special,
                                            .chunks = chunks,
                                            .n_chunks = n_chunks};
        (*list)->text = (*list)->infill = true;
        rc = tokenizer_encode_infill(tok, &in, room_for_prompt(r, &b->options), &(*list)->ids,
                                     &(*list)->n, e);
        if (rc == ERR_UNSUPPORTED)
            rc = err_set_param(e, rc, "input_prefix",
                               "Infill is not supported by this model: its vocabulary has no "
                               "fill-in-the-middle tokens.");
        if (rc == ERR_TOO_LONG)
            rc = err_set_param(e, rc, "prompt", "The texts have more tokens than fit.");
    }
    free(chunks);
    if (rc) {
        gen_prompts_free(*list, *list != NULL);
        *list = NULL;
    }
    return rc;
}
