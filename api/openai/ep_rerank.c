/* ep_rerank.c - POST /v1/rerank and /v2/rerank: documents in the order in which they answer a
 * query, as Jina, Cohere and vLLM have it; POST /v1/score: scores of pairs, as vLLM has it. The
 * work is rank.c's. Pool threads; writing: see embed.h. */
#include "api/generate/api_state.h"
#include "api/generate/body.h"
#include "api/generate/rank.h"
#include "api/http/error.h"
#include "api/http/id.h"
#include "api/http/request.h"
#include "api/http/route.h"

#include "core/base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct fields {
    const char *model, *query, *instruction, *cache_salt;
    const cJSON *documents, *text_1, *text_2;
    int64_t top_n, max_tokens_per_doc;
    bool return_documents, has_return_documents, activation;
};

#define AT(member)  .offset = offsetof(struct fields, member)
#define HAS(member) AT(member), .has = 1 + offsetof(struct fields, has_##member)
#define NEVER_CUT   "nothing is truncated: send shorter texts, or 'max_tokens_per_doc'"
#define WHOLE       "a document is scored as one text: use 'max_tokens_per_doc'"

enum { NUL = JSON_NULLABLE, TEXTS = JSON_OR_STRING | JSON_OR_ARRAY | JSON_WITH_NUL };

/* rank_fields of documents that have no other field than the text. */
static bool is_text_alone(const cJSON *v) {
    const cJSON *first = cJSON_IsArray(v) ? v->child : NULL;
    return cJSON_IsArray(v) && (!first || (!first->next && cJSON_IsString(first) &&
                                           strcmp(first->valuestring, "text") == 0));
}

/* Of both endpoints. */
static const struct json_field common_rows[] = {
    {"model", JSON_STRING, NUL, AT(model),
     .help = "Id or alias of a served model, see GET /v1/models; optional if only one is served."},
    {"instruction", JSON_STRING, NUL | JSON_WITH_NUL, AT(instruction), .min = 1,
     .help = "What a document must do to be relevant; replaces the line <Instruct> of the prompt "
             "of Qwen3-Reranker."},
    {"max_tokens_per_doc", JSON_INT, NUL, AT(max_tokens_per_doc), .min = 1, .max = INT32_MAX,
     .help =
         "Truncates each document to this many tokens. Default: a document that does not fit the "
         "context is refused."},
    {"use_activation", JSON_BOOL, NUL, AT(activation), .initial = "true",
     .help = "false: logits instead of probabilities."},
    {"activation", JSON_BOOL, NUL, AT(activation), .help = "The same."},
    {"cache_salt", JSON_STRING, NUL, AT(cache_salt), .min = 1,
     .help = "Only requests with the same salt (and API key) share cached prompts."},
    {"user", JSON_ADVISORY, NUL, .why = "scores do not depend on the user"},
    {"truncate", JSON_ADVISORY, NUL, .why = NEVER_CUT},
    {"truncation", JSON_ADVISORY, NUL, .why = NEVER_CUT},
    {"truncate_prompt_tokens", JSON_REFUSED, NUL, .why = NEVER_CUT},
    {"mm_processor_kwargs", JSON_REFUSED, NUL, .why = "models of text only score here"},
};
static const struct json_table common_table = JSON_TABLE(common_rows, NULL);

struct document {
    const char *text;
};
static const struct json_field document_rows[] = {
    {"text", JSON_STRING, JSON_REQUIRED | JSON_WITH_NUL, .offset = offsetof(struct document, text)},
};
static const struct json_table document_table = JSON_TABLE(document_rows, NULL);

static const struct json_field rerank_rows[] = {
    {"query", JSON_STRING, JSON_REQUIRED | JSON_WITH_NUL, AT(query)},
    {"documents", JSON_ARRAY, JSON_REQUIRED | JSON_WITH_NUL, AT(documents), .min = 1,
     .table = &document_table,
     .help = "Texts, or objects {\"text\"}; at most max-rerank-documents."},
    {"top_n", JSON_INT, NUL, AT(top_n), .min = 0, .max = INT32_MAX,
     .help = "How many of the best are returned; 0: all."},
    {"return_documents", JSON_BOOL, NUL, HAS(return_documents),
     .help = "Whether results have the documents' texts. Default: true; /v2/rerank: false."},
    {"max_doc_length", JSON_INT, NUL, AT(max_tokens_per_doc), .min = 1, .max = INT32_MAX,
     .help = "The same as max_tokens_per_doc."},
    {"max_chunks_per_doc", JSON_REFUSED, NUL, .why = WHOLE},
    {"rank_fields", JSON_REFUSED, NUL, .accepts = is_text_alone,
     .why = "documents have only the field 'text'"},
    {"return_embeddings", JSON_REFUSED, NUL, .why = "use /v1/embeddings"},
};
static const struct json_table rerank_table = JSON_TABLE(rerank_rows, &common_table);

static const struct json_field score_rows[] = {
    {"text_1", JSON_VALUE, TEXTS, AT(text_1),
     .help = "The query: a text, or an array of as many as there are documents."},
    {"queries", JSON_VALUE, TEXTS, AT(text_1), .help = "The same."},
    {"text_2", JSON_VALUE, TEXTS, AT(text_2),
     .help = "The documents: a text or an array; at most max-rerank-documents."},
    {"documents", JSON_VALUE, TEXTS, AT(text_2), .help = "The same."},
};
static const struct json_table score_table = JSON_TABLE(score_rows, &common_table);

/* What a writer needs; owned by the job. */
struct answer {
    char id[48];
    bool second; /* Cohere's second version */
    size_t top_n;
    str texts;       /* of all documents, if they are returned: each with a NUL behind it */
    size_t *offsets; /* (n) of them; NULL: they are not */
    struct place {
        float score;
        uint32_t index;
    } * order; /* (n) */
};

static void free_answer(void *arg) {
    struct answer *a = arg;
    if (!a) return;
    str_fini(&a->texts);
    free(a->offsets);
    free(a->order);
    free(a);
}

static struct answer *new_answer(size_t n, const char *id_prefix) {
    struct answer *a = mem_new(1, sizeof *a);
    if (!a) return NULL;
    str_init(&a->texts, REPLY_MAX_BYTES);
    id_new(a->id, id_prefix);
    a->order = mem_new(n, sizeof *a->order);
    if (a->order) return a;
    free_answer(a);
    return NULL;
}

/* ---- writing ---- */

static int compare_places(const void *a, const void *b) {
    const struct place *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

static void add_usage(str *out, const struct embed_result *v) {
    str_addf(out,
             "\"usage\":{\"prompt_tokens\":%" PRIu64 ",\"total_tokens\":%" PRIu64
             ",\"completion_tokens\":0}",
             v->n_tokens, v->n_tokens);
}

static void reply_bounded(struct request *r, str *body) {
    err e = {0};
    if (gen_reply_bounded(r, body, &e)) reply_err(r, &e);
}

static void write_ranking(struct request *r, const struct embed_result *v) {
    struct answer *a = v->arg;
    str out;
    str_init(&out, REPLY_MAX_BYTES);
    for (uint32_t i = 0; i < v->n; i++)
        a->order[i] = (struct place){v->vectors[i], i};
    qsort(a->order, v->n, sizeof *a->order, compare_places);
    str_addf(&out, "{\"id\":\"%s\",\"object\":\"list\",\"model\":", a->id);
    json_add_cstr(&out, v->model->id);
    str_add(&out, ",\"results\":[");
    for (size_t i = 0; i < v->n && i < a->top_n; i++) {
        const struct place *p = &a->order[i];
        str_addf(&out, "%s{\"index\":%" PRIu32 ",\"relevance_score\":", i ? "," : "", p->index);
        json_add_number(&out, (double)p->score);
        if (a->offsets) {
            str_add(&out, ",\"document\":{\"text\":");
            json_add_cstr(&out, str_cstr(&a->texts) + a->offsets[p->index]);
            str_add_char(&out, '}');
        }
        str_add_char(&out, '}');
    }
    str_add(&out, "],");
    add_usage(&out, v);
    if (a->second)
        str_addf(
            &out,
            ",\"meta\":{\"api_version\":{\"version\":\"2\"},\"tokens\":{\"input_tokens\":%" PRIu64
            ",\"output_tokens\":0}}",
            v->n_tokens);
    str_add_char(&out, '}');
    reply_bounded(r, &out);
}

static void write_scores(struct request *r, const struct embed_result *v) {
    const struct answer *a = v->arg;
    str out;
    str_init(&out, REPLY_MAX_BYTES);
    str_addf(&out, "{\"id\":\"%s\",\"object\":\"list\",\"created\":%lld,\"model\":", a->id,
             (long long)time(NULL));
    json_add_cstr(&out, v->model->id);
    str_add(&out, ",\"data\":[");
    for (size_t i = 0; i < v->n; i++) {
        str_addf(&out, "%s{\"index\":%zu,\"object\":\"score\",\"score\":", i ? "," : "", i);
        json_add_number(&out, (double)v->vectors[i]);
        str_add_char(&out, '}');
    }
    str_add(&out, "],");
    add_usage(&out, v);
    str_add_char(&out, '}');
    reply_bounded(r, &out);
}

/* ---- reading ---- */

static int read_document(const cJSON *v, size_t i, const char **text, err *e) {
    struct document d = {NULL};
    char path[JSON_PATH_BYTES];
    json_path(path, "documents[%zu]", i);
    *text = cJSON_IsString(v) ? v->valuestring : NULL;
    if (*text) return 0;
    if (!cJSON_IsObject(v)) return json_wrong_type(path, "a string or an object with 'text'", v, e);
    json_path(path, "documents[%zu].", i);
    int rc = json_read(v, &document_table, path, &d, e);
    *text = d.text;
    return rc;
}

/* Keeps the documents' texts for the answer, counted as its memory. */
static int keep_texts(struct answer *a, const struct rank_pair *pairs, size_t n, err *e) {
    a->offsets = mem_new(n, sizeof *a->offsets);
    if (!a->offsets) return err_no_memory(e);
    for (size_t i = 0; i < n; i++) {
        a->offsets[i] = a->texts.len;
        str_add_n(&a->texts, pairs[i].document, strlen(pairs[i].document) + 1);
    }
    if (!a->texts.failed) return 0;
    if (a->texts.no_memory) return err_no_memory(e);
    return err_set_param(e, ERR_INVALID, "documents",
                         "Invalid value for 'documents': they are too large to be returned: set "
                         "'return_documents' to false.");
}

static struct rank_config common_config(const struct fields *f, struct answer *a) {
    return (struct rank_config){.instruction = f->instruction,
                                .cache_salt = f->cache_salt,
                                .max_document_tokens = f->max_tokens_per_doc,
                                .raw = !f->activation,
                                .arg = a,
                                .free_arg = free_answer};
}

static int start_ranking(struct request *r, const struct fields *f, struct rank_pair *pairs,
                         bool second, err *e) {
    size_t n = 0;
    int rc = 0;
    for (const cJSON *v = f->documents->child; !rc && v; v = v->next, n++) {
        pairs[n].query = f->query;
        rc = read_document(v, n, &pairs[n].document, e);
    }
    struct answer *a = rc ? NULL : new_answer(n, "rerank-");
    if (!rc && !a) rc = err_no_memory(e);
    if (!rc && f->return_documents) rc = keep_texts(a, pairs, n, e);
    if (rc) {
        free_answer(a);
        return rc;
    }
    a->second = second;
    a->top_n = f->top_n ? (size_t)f->top_n : n;
    struct rank_config c = common_config(f, a);
    c.query_param = "query";
    c.document_param = "documents";
    c.write = write_ranking;
    return rank_start(r, &c, pairs, n, e);
}

static int answer_version(struct request *r, const cJSON *body, bool second, err *e) {
    struct fields f = {.activation = true};
    int rc = gen_body_read(body, &rerank_table, &f, e);
    if (!rc) rc = api_body_model(r, f.model, e);
    if (!f.has_return_documents) f.return_documents = !second;
    size_t n = rc ? 0 : (size_t)cJSON_GetArraySize(f.documents);
    if (!rc) rc = rank_check_number(r, n, "documents", e);
    if (rc) return rc;
    struct rank_pair *pairs = mem_new(n, sizeof *pairs);
    if (!pairs) return err_no_memory(e);
    rc = start_ranking(r, &f, pairs, second, e);
    free(pairs);
    return rc;
}

static int answer_rerank(struct request *r, const cJSON *body, err *e) {
    return answer_version(r, body, false, e);
}

static int answer_rerank_2(struct request *r, const cJSON *body, err *e) {
    return answer_version(r, body, true, e);
}

/* A text or an array of texts. The name that the client used is in errors. */
struct texts {
    const char *param;
    const cJSON *first;
    size_t n;
};
static int read_texts(const cJSON *body, const char *const names[2], const cJSON *v,
                      struct texts *out, err *e) {
    const bool usual = cJSON_GetObjectItemCaseSensitive(body, names[0]) ||
                       !cJSON_GetObjectItemCaseSensitive(body, names[1]);
    *out = (struct texts){.param = names[usual ? 0 : 1], .first = v, .n = 1};
    if (!v)
        return err_set_param(e, ERR_INVALID, out->param, "Missing required parameter: '%s'.",
                             out->param);
    if (cJSON_IsString(v)) return 0;
    out->first = v->child;
    out->n = (size_t)cJSON_GetArraySize(v);
    if (!out->n)
        return err_set_param(e, ERR_INVALID, out->param,
                             "Invalid value for '%s': the array is empty.", out->param);
    for (const cJSON *item = out->first; item; item = item->next)
        if (!cJSON_IsString(item))
            return json_wrong_type(out->param, "a string or an array of strings", item, e);
    return 0;
}

static int start_scores(struct request *r, const struct fields *f, const struct texts sides[2],
                        err *e) {
    const size_t n = sides[1].n;
    struct rank_pair *pairs = mem_new(n, sizeof *pairs);
    struct answer *a = new_answer(n, "score-");
    const cJSON *query = sides[0].first, *document = sides[1].first;
    if (!pairs || !a) {
        free(pairs);
        free_answer(a);
        return err_no_memory(e);
    }
    for (size_t i = 0; i < n; i++) {
        pairs[i] = (struct rank_pair){query->valuestring, document->valuestring};
        if (sides[0].n > 1) query = query->next;
        document = document->next;
    }
    struct rank_config c = common_config(f, a);
    c.query_param = sides[0].param;
    c.document_param = sides[1].param;
    c.write = write_scores;
    int rc = rank_start(r, &c, pairs, n, e);
    free(pairs);
    return rc;
}

static int answer_score(struct request *r, const cJSON *body, err *e) {
    static const char *const names[2][2] = {{"text_1", "queries"}, {"text_2", "documents"}};
    struct fields f = {.activation = true};
    struct texts sides[2];
    int rc = gen_body_read(body, &score_table, &f, e);
    if (!rc) rc = api_body_model(r, f.model, e);
    if (!rc) rc = read_texts(body, names[0], f.text_1, &sides[0], e);
    if (!rc) rc = read_texts(body, names[1], f.text_2, &sides[1], e);
    if (!rc) rc = rank_check_number(r, sides[1].n, sides[1].param, e);
    if (rc) return rc;
    if (sides[0].n != 1 && sides[0].n != sides[1].n)
        return err_set_param(e, ERR_INVALID, sides[0].param,
                             "Invalid value for '%s': expected one text, or as many as '%s' has "
                             "(%zu), but got %zu.",
                             sides[0].param, sides[1].param, sides[1].n, sides[0].n);
    return start_scores(r, &f, sides, e);
}

static void handle_rerank(struct request *r) {
    gen_handle(r, answer_rerank);
}

static void handle_rerank_2(struct request *r) {
    gen_handle(r, answer_rerank_2);
}

static void handle_score(struct request *r) {
    gen_handle(r, answer_score);
}

const struct route rerank_route = {"POST", "/v1/rerank", ROUTE_POOL | ROUTE_V1, handle_rerank,
                                   .table = &rerank_table};
const struct route rerank_2_route = {"POST", "/v2/rerank", ROUTE_POOL, handle_rerank_2,
                                     .table = &rerank_table};
const struct route score_route = {"POST",       "/v1/score",           ROUTE_POOL | ROUTE_V1,
                                  handle_score, .table = &score_table, .answers = "list"};
