/* ep_embeddings.c - POST /v1/embeddings: texts -> vectors of length 1, as floats or base64. The
 * work is embed.c's. */
#include "api/generate/api_state.h"
#include "api/generate/body.h"
#include "api/generate/embed.h"
#include "api/http/request.h"
#include "api/http/route.h"

#include <inttypes.h>
#include <nettle/base64.h>
#include <string.h>

struct fields {
    const char *model, *encoding_format, *pooling, *cache_salt;
    const cJSON *input;
    int64_t dimensions;
};

#define AT(member) .offset = offsetof(struct fields, member)
#define NEVER_CUT  "inputs are never truncated: send shorter ones"

enum { NUL = JSON_NULLABLE };

static const struct json_field rows[] = {
    {"input", JSON_VALUE, JSON_REQUIRED | JSON_OR_STRING | JSON_OR_ARRAY | JSON_WITH_NUL, AT(input),
     .help =
         "A text, an array of texts, token ids, or an array of such arrays; at most 2048 inputs."},
    {"model", JSON_STRING, NUL, AT(model),
     .help = "Id or alias of a served model, see GET /v1/models; optional if only one is served."},
    {"encoding_format", JSON_ENUM, NUL, AT(encoding_format), .words = "float|base64",
     .initial = "\"float\"", .help = "base64 encodes the float32 values in little-endian order."},
    {"dimensions", JSON_INT, NUL, AT(dimensions), .min = 1, .max = 1 << 30,
     .help = "Truncates to this many dimensions and renormalizes; only for models trained for it "
             "(Matryoshka)."},
    {"user", JSON_ADVISORY, NUL, .why = "vectors do not depend on the user"},
    {"pooling", JSON_ENUM, NUL, AT(pooling), .words = "mean|cls|last",
     .help = "Which hidden states become the vector: the mean of all tokens, the first token's "
             "(cls), or the last one's. Default: the model file's {arch}.pooling_type, else last."},
    {"cache_salt", JSON_STRING, NUL, AT(cache_salt), .min = 1,
     .help = "Only requests with the same salt (and API key) share cached prompts."},
    {"truncate", JSON_ADVISORY, NUL, .why = NEVER_CUT},
    {"truncation", JSON_ADVISORY, NUL, .why = NEVER_CUT},
    {"truncate_prompt_tokens", JSON_REFUSED, NUL, .why = NEVER_CUT},
};
static const struct json_table embeddings_table = JSON_TABLE(rows, NULL);

/* ---- writing ---- */

/* Float32 values in little-endian order. Groups of 12 floats fill 64 characters without padding. */
static void add_base64(const float *v, uint32_t n, str *out) {
    enum { GROUP = 12 };
    str_add_char(out, '"');
    for (uint32_t done = 0; done < n; done += GROUP) {
        uint32_t n_here = n - done < GROUP ? n - done : GROUP;
        size_t n_bytes = n_here * sizeof *v;
        char text[BASE64_ENCODE_RAW_LENGTH(GROUP * sizeof *v)];
        base64_encode_raw(text, n_bytes, (const uint8_t *)(v + done));
        str_add_n(out, text, BASE64_ENCODE_RAW_LENGTH(n_bytes));
    }
    str_add_char(out, '"');
}

static void write_vectors(struct request *r, const struct embed_result *v, bool base64) {
    str out;
    str_init(&out, REPLY_MAX_BYTES);
    str_add(&out, "{\"object\":\"list\",\"data\":[");
    for (size_t i = 0; i < v->n; i++) {
        const float *row = v->vectors + i * v->n_dims;
        str_addf(&out, "%s{\"object\":\"embedding\",\"index\":%zu,\"embedding\":", i ? "," : "", i);
        if (base64)
            add_base64(row, v->n_dims, &out);
        else
            embed_add_vector(row, v->n_dims, &out);
        str_add_char(&out, '}');
    }
    str_add(&out, "],\"model\":");
    json_add_cstr(&out, v->model->id);
    str_addf(&out, ",\"usage\":{\"prompt_tokens\":%" PRIu64 ",\"total_tokens\":%" PRIu64 "}}",
             v->n_tokens, v->n_tokens);
    reply_json(r, 200, &out);
}

static void write_floats(struct request *r, const struct embed_result *v) {
    write_vectors(r, v, false);
}

static void write_base64(struct request *r, const struct embed_result *v) {
    write_vectors(r, v, true);
}

/* ---- start ---- */

static int answer_embeddings(struct request *r, const cJSON *body, err *e) {
    struct fields f = {0};
    int rc = gen_body_read(body, &embeddings_table, &f, e);
    if (!rc) rc = api_body_model(r, f.model, e);
    if (rc) return rc;
    bool base64 = f.encoding_format && !strcmp(f.encoding_format, "base64");
    return embed_start(
        r,
        &(struct embed_config){.input = f.input,
                               .param = "input",
                               .pooling = f.pooling,
                               .cache_salt = f.cache_salt,
                               .n_dims = f.dimensions,
                               .no_empty = true,
                               .base64 = base64,
                               .hint = base64 ? NULL : ", or request 'encoding_format' base64",
                               .write = base64 ? write_base64 : write_floats},
        e);
}

static void handle_embeddings(struct request *r) {
    gen_handle(r, answer_embeddings);
}

const struct route embeddings_route = {
    "POST",           "/v1/embeddings", ROUTE_POOL, handle_embeddings, .table = &embeddings_table,
    .answers = "list"};
