/* ep_embedding.c - POST /embedding and /embeddings: llama.cpp's own form of vectors, an array of
 * {"index", "embedding": [vector]}. The work is embed.c's. Pool threads; writing: see embed.h. */
#include "api/generate/api_state.h"
#include "api/generate/body.h"
#include "api/generate/embed.h"
#include "api/http/request.h"
#include "api/http/route.h"
#include "api/llamacpp/llamacpp.h"

struct fields {
    const char *model;
    const cJSON *content, *input;
    int64_t norm;
};

#define AT(member) .offset = offsetof(struct fields, member)
enum { NUL = JSON_NULLABLE, MOST_NORM = 64 };

static const struct json_field rows[] = {
    {"content", JSON_VALUE, NUL | JSON_OR_STRING | JSON_OR_ARRAY | JSON_WITH_NUL, AT(content),
     .help = "A text, an array of texts, token ids, or an array of such arrays; at most 2048."},
    {"input", JSON_VALUE, NUL | JSON_OR_STRING | JSON_OR_ARRAY | JSON_WITH_NUL, AT(input),
     .help = "The same, and goes before it."},
    {"model", JSON_STRING, NUL, AT(model), .help = "Optional if only one model is served."},
    {"embd_normalize", JSON_INT, NUL, AT(norm), .min = -1, .max = MOST_NORM, .initial = "2",
     .help = "How vectors are scaled: -1 not at all, 0 the largest value to 32760, p to p-norm 1."},
    {"encoding_format", JSON_REFUSED, NUL, .words = "float", .why = "use /v1/embeddings"},
};
static const struct json_table table = JSON_TABLE(rows, NULL);

static void write_vectors(struct request *r, const struct embed_result *v) {
    str out;
    str_init(&out, REPLY_MAX_BYTES);
    str_add_char(&out, '[');
    for (size_t i = 0; i < v->n; i++) {
        str_addf(&out, "%s{\"index\":%zu,\"embedding\":[", i ? "," : "", i);
        embed_add_vector(v->vectors + i * v->n_dims, v->n_dims, &out);
        str_add(&out, "]}");
    }
    str_add_char(&out, ']');
    reply_json(r, 200, &out);
}

static int answer_embedding(struct request *r, const cJSON *body, err *e) {
    struct fields f = {.norm = 2};
    int rc = gen_body_read(body, &table, &f, e);
    if (!rc) rc = api_body_model(r, f.model, e);
    if (rc) return rc;
    if (!f.input && !f.content)
        return err_set_param(e, ERR_INVALID, "content", "Missing required parameter: 'content'.");
    return embed_start(r,
                       &(struct embed_config){.input = f.input ? f.input : f.content,
                                              .param = f.input ? "input" : "content",
                                              .parse_special = true,
                                              .norm = f.norm == -1  ? EMBED_AS_COMPUTED
                                                      : f.norm == 0 ? EMBED_TO_INT16
                                                                    : (int)f.norm,
                                              .write = write_vectors},
                       e);
}

static void handle_embedding(struct request *r) {
    gen_handle(r, answer_embedding);
}

const struct route llama_embedding_route = {"POST",          "/embedding",
                                            ROUTE_POOL,      handle_embedding,
                                            .table = &table, .protocol = &llama_protocol};
const struct route llama_embeddings_route = {"POST",          "/embeddings",
                                             ROUTE_POOL,      handle_embedding,
                                             .table = &table, .protocol = &llama_protocol};
