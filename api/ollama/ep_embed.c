/* ep_embed.c - POST /api/embed and the older POST /api/embeddings: texts -> vectors of length 1.
 * Pool threads; the work is embed.c's. */
#include "api/generate/api_state.h"
#include "api/generate/body.h"
#include "api/generate/embed.h"
#include "api/http/request.h"
#include "api/http/route.h"
#include "api/ollama/ollama.h"

#include "core/base/clock.h"

#include <inttypes.h>

static void write_list(struct request *r, const struct embed_result *v) {
    str out;
    str_init(&out, REPLY_MAX_BYTES);
    str_add(&out, "{\"model\":");
    json_add_cstr(&out, v->model->id);
    str_add(&out, ",\"embeddings\":[");
    for (size_t i = 0; i < v->n; i++) {
        if (i) str_add_char(&out, ',');
        embed_add_vector(v->vectors + i * v->n_dims, v->n_dims, &out);
    }
    str_addf(&out,
             "],\"total_duration\":%" PRIu64 ",\"load_duration\":0,\"prompt_eval_count\":%" PRIu64
             "}",
             clock_now_ns() - r->start_ns, v->n_tokens);
    reply_json(r, 200, &out);
}

static void write_one(struct request *r, const struct embed_result *v) {
    str out;
    str_init(&out, REPLY_MAX_BYTES);
    str_add(&out, "{\"embedding\":");
    if (v->n)
        embed_add_vector(v->vectors, v->n_dims, &out);
    else
        str_add(&out, "[]");
    str_add_char(&out, '}');
    reply_json(r, 200, &out);
}

/* ERR_INVALID: something else than text. Clients of Ollama send no token ids. */
static int check_input(const cJSON *input, err *e) {
    int i = 0;
    for (const cJSON *v = cJSON_IsArray(input) ? input->child : NULL; v; v = v->next, i++) {
        char name[JSON_PATH_BYTES];
        json_path(name, "input[%d]", i);
        if (!cJSON_IsString(v)) return json_wrong_type(name, "a string", v, e);
    }
    return 0;
}

/* Without text the answer has no vectors: clients send it to load a model. */
static bool is_empty(const cJSON *input) {
    return cJSON_IsArray(input) ? !input->child : !input || !*input->valuestring;
}

static int answer_embed(struct request *r, const cJSON *body, err *e) {
    struct ollama_fields f;
    int rc = ollama_fields_read(r, body, &ollama_embed_table, &f, e);
    if (!rc) rc = check_input(f.input, e);
    if (!rc) rc = ollama_keep(r, &f, e);
    if (rc) return rc;
    if (is_empty(f.input)) {
        write_list(r, &(struct embed_result){.model = r->model});
        return 0;
    }
    return embed_start(r,
                       &(struct embed_config){.input = f.input,
                                              .param = "input",
                                              .n_dims = f.dimensions,
                                              .truncate = f.truncate,
                                              .write = write_list},
                       e);
}

static int answer_embeddings(struct request *r, const cJSON *body, err *e) {
    struct ollama_fields f;
    int rc = ollama_fields_read(r, body, &ollama_embeddings_table, &f, e);
    if (!rc) rc = ollama_keep(r, &f, e);
    if (rc) return rc;
    if (is_empty(f.input)) {
        write_one(r, &(struct embed_result){.model = r->model});
        return 0;
    }
    return embed_start(
        r,
        &(struct embed_config){
            .input = f.input, .param = "prompt", .truncate = true, .write = write_one},
        e);
}

static void handle_embed(struct request *r) {
    gen_handle(r, answer_embed);
}

static void handle_embeddings(struct request *r) {
    gen_handle(r, answer_embeddings);
}

const struct route ollama_embed_route = {"POST",
                                         "/api/embed",
                                         OLLAMA_MODEL | ROUTE_WORK | ROUTE_EMBED,
                                         handle_embed,
                                         .table = &ollama_embed_table,
                                         .protocol = &ollama_protocol};
const struct route ollama_embeddings_route = {"POST",
                                              "/api/embeddings",
                                              OLLAMA_MODEL | ROUTE_WORK | ROUTE_EMBED,
                                              handle_embeddings,
                                              .table = &ollama_embeddings_table,
                                              .protocol = &ollama_protocol};
