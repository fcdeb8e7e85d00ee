/* ep_tokenize.c - POST /tokenize and /detokenize (also below /v1): a model's tokens of a text, and
 * back, in the forms of vLLM and llama.cpp. The model computes nothing. Runs on pool threads. */
#include "api/generate/api_state.h"
#include "api/generate/chat_body.h"
#include "api/generate/prompts.h"
#include "api/generate/tools.h"
#include "api/http/request.h"
#include "api/http/route.h"
#include "core/text/utf8.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_CHARACTERS = 1 << 20, /* bounds the time of encoding */
    MAX_TOKENS = 1 << 20,
    NUL = JSON_NULLABLE
};

struct fields {
    struct gen_fields gen; /* what a chat has too */
    const char *prompt, *content;
    bool add_special, has_special, add_special_alias, has_alias, parse_special, has_parse,
        with_pieces, token_strs;
    const cJSON *tokens;
};

#define AT(member)  .offset = offsetof(struct fields, member)
#define HAS(member) .has = 1 + offsetof(struct fields, member)
#define MODEL_ROW                                                                                  \
    { "model", JSON_STRING, NUL, AT(gen.model), .help = "Optional if only one model is served." }

static const struct json_field tokenize_fields[] = {
    MODEL_ROW,
    {"prompt", JSON_STRING, JSON_WITH_NUL, AT(prompt), .max = MAX_CHARACTERS,
     .help = "The text to tokenize; instead of it 'content' or 'messages'."},
    {"content", JSON_STRING, JSON_WITH_NUL, AT(content), .max = MAX_CHARACTERS,
     .help = "The same; llama.cpp's name."},
    {"add_special_tokens", JSON_BOOL, NUL, AT(add_special), HAS(has_special),
     .help = "Adds the tokens that the model expects around a text (BOS). Default: true for "
             "'prompt', as in vLLM, false for 'content', as in llama.cpp."},
    {"add_special", JSON_BOOL, NUL, AT(add_special_alias), HAS(has_alias),
     .help = "The same; llama.cpp's name."},
    {"parse_special", JSON_BOOL, NUL, AT(parse_special), HAS(has_parse), .initial = "true",
     .help = "Parses the text of a control token as that token. Not with messages, whose text "
             "never becomes one."},
    {"with_pieces", JSON_BOOL, NUL, AT(with_pieces), .initial = "false",
     .help = "Returns tokens as objects with id and piece: text, or bytes if they are not whole "
             "characters."},
    {"messages", JSON_ARRAY, JSON_WITH_NUL, AT(gen.messages), .min = 1,
     .help = "Chat messages to render and tokenize instead of a text."},
    {"tools", JSON_ARRAY, NUL, AT(gen.tools), .max = CHAT_MAX_TOOLS, .table = &tool_table,
     .help = "Only with messages."},
    {"add_generation_prompt", JSON_BOOL, NUL, AT(gen.add_generation_prompt),
     HAS(gen.has_add_generation_prompt), .help = "Only with messages."},
    {"continue_final_message", JSON_BOOL, NUL, AT(gen.continue_final_message),
     .help = "Only with messages."},
    {"chat_template_kwargs", JSON_OBJECT, NUL, AT(gen.chat_template_kwargs),
     .help = "Only with messages: variables for the chat template."},
    {"return_token_strs", JSON_BOOL, NUL, AT(token_strs), .initial = "false",
     .help = "Adds token_strs: the tokens as spelled in the vocabulary."},
};
static const struct json_table tokenize_table = JSON_TABLE(tokenize_fields, NULL);

static const struct json_field detokenize_fields[] = {
    MODEL_ROW,
    {"tokens", JSON_ARRAY, JSON_REQUIRED, AT(tokens), .max = MAX_TOKENS, .help = "Token ids."},
};
static const struct json_table detokenize_table = JSON_TABLE(detokenize_fields, NULL);

/* Reads the fields and the model, which is optional if only one is served. */
static int read_body(struct request *r, const cJSON *body, const struct json_table *table,
                     struct fields *f, err *e) {
    int rc = gen_body_read(body, table, f, e);
    return rc ? rc : api_body_model(r, f->gen.model, e);
}

static void add_pieces(str *out, const tokenizer *tok, const struct gen_prompt *p) {
    str_add_char(out, '[');
    for (size_t i = 0; i < p->n; i++) {
        size_t n;
        const char *bytes = tokenizer_token_bytes(tok, p->ids[i], true, &n);
        str_addf(out, "%s{\"id\":%d,\"piece\":", i ? "," : "", (int)p->ids[i]);
        if (utf8_valid(bytes, n)) {
            json_add_string(out, bytes, n);
        } else {
            for (size_t k = 0; k < n; k++)
                str_addf(out, "%c%u", k ? ',' : '[', (unsigned char)bytes[k]);
            str_add_char(out, ']');
        }
        str_add_char(out, '}');
    }
    str_add_char(out, ']');
}

static void add_answer(str *out, const struct fields *f, const struct api_model *m,
                       const struct gen_prompt *p) {
    const tokenizer *tok = engine_tokenizer(m->engine);
    str_add(out, "{\"tokens\":");
    if (f->with_pieces)
        add_pieces(out, tok, p);
    else
        gen_add_ids(p, out);
    str_addf(out, ",\"count\":%zu,\"max_model_len\":%" PRIu32 ",\"token_strs\":", p->n,
             engine_context_length(m->engine));
    if (!f->token_strs) {
        str_add(out, "null}");
        return;
    }
    for (size_t i = 0; i < p->n; i++) {
        size_t n;
        const char *text = tokenizer_token_text(tok, p->ids[i], &n);
        str_add_char(out, i ? ',' : '[');
        json_add_string(out, text, n);
    }
    str_add(out, p->n ? "]}" : "[]}");
}

static int encode_messages(struct request *r, const struct fields *f, struct gen_prompt *p,
                           err *e) {
    struct chat_request chat;
    if (f->has_special || (f->has_parse && f->parse_special))
        return err_set_param(e, ERR_INVALID,
                             f->has_special ? "add_special_tokens" : "parse_special",
                             "It cannot be set with 'messages': the chat template decides it.");
    chat_request_init(&chat, r->ignored);
    chat.model = r->model;
    int rc = chat_messages_read(f->gen.messages, &chat, e);
    if (!rc) rc = chat_fields_read(&f->gen, r->model->chat, &chat, e);
    if (!rc) rc = chat_tools_read(&f->gen, &chat, e);
    if (!rc) rc = chat_request_encode(r, &chat, p, e);
    chat_request_fini(&chat);
    return rc;
}

static int encode_text(const struct request *r, const struct fields *f, struct gen_prompt *p,
                       err *e) {
    const char *text = f->prompt ? f->prompt : f->content;
    int flags = (f->add_special ? TOKENIZER_ADD_SPECIAL : 0) |
                (f->parse_special ? TOKENIZER_PARSE_SPECIAL : 0);
    if (f->gen.chat_template_kwargs || f->gen.has_add_generation_prompt ||
        f->gen.continue_final_message || f->gen.tools)
        return err_set_param(e, ERR_INVALID,
                             f->gen.chat_template_kwargs        ? "chat_template_kwargs"
                             : f->gen.has_add_generation_prompt ? "add_generation_prompt"
                             : f->gen.tools                     ? "tools"
                                                                : "continue_final_message",
                             "This field is only allowed with 'messages'.");
    int rc = prompts_encode(engine_tokenizer(r->model->engine), text, flags, MAX_TOKENS, p, e);
    if (rc == ERR_TOO_LONG)
        return err_set_param(e, ERR_INVALID, f->prompt ? "prompt" : "content",
                             "The text has more than %d tokens: send a shorter one.", MAX_TOKENS);
    return rc;
}

static int answer_tokenize(struct request *r, const cJSON *body, err *e) {
    struct fields f = {.parse_special = true};
    struct gen_prompt p = {0};
    int rc = read_body(r, body, &tokenize_table, &f, e);
    if (rc) return rc;
    if (f.has_alias && f.has_special && f.add_special_alias != f.add_special)
        return err_set_param(
            e, ERR_INVALID, "add_special",
            "'add_special' and 'add_special_tokens' mean the same: send only one.");
    if (f.has_alias) f.add_special = f.add_special_alias;
    f.has_special |= f.has_alias;
    if (!f.has_special) f.add_special = f.prompt != NULL;
    int n_texts = (f.prompt != NULL) + (f.content != NULL) + (f.gen.messages != NULL);
    if (n_texts != 1)
        return err_set_param(
            e, ERR_INVALID, "prompt",
            "%s: send exactly one of 'prompt', 'content' (the same) and 'messages'.",
            n_texts ? "More than one text" : "Missing required parameter: 'prompt'");
    rc = f.gen.messages ? encode_messages(r, &f, &p, e) : encode_text(r, &f, &p, e);
    if (!rc) {
        str out;
        str_init(&out, REPLY_MAX_BYTES);
        add_answer(&out, &f, r->model, &p);
        rc = gen_reply_bounded(r, &out, e);
    }
    free(p.ids);
    return rc;
}

static int32_t n_vocab(const struct request *r) {
    return tokenizer_n_vocab(engine_tokenizer(r->model->engine));
}

static int answer_detokenize(struct request *r, const cJSON *body, err *e) {
    struct fields f = {0};
    struct gen_prompt p = {0};
    int rc = read_body(r, body, &detokenize_table, &f, e);
    if (!rc) rc = gen_ids_read(f.tokens, "tokens", n_vocab(r), &p, e);
    if (rc) return rc;
    char *text = NULL;
    size_t n = 0;
    rc = tokenizer_decode(engine_tokenizer(r->model->engine), p.ids, p.n, true, &text, &n, e);
    free(p.ids);
    if (rc) return rc;
    str out;
    str_init(&out, REPLY_MAX_BYTES);
    str_add(&out, "{\"prompt\":");
    json_add_string(&out, text, n);
    str_add(&out, ",\"content\":");
    json_add_string(&out, text, n);
    str_add_char(&out, '}');
    free(text);
    return gen_reply_bounded(r, &out, e);
}

static void handle_tokenize(struct request *r) {
    gen_handle(r, answer_tokenize);
}

static void handle_detokenize(struct request *r) {
    gen_handle(r, answer_detokenize);
}

const struct route tokenize_route = {"POST", "/tokenize", ROUTE_TEXT | ROUTE_V1, handle_tokenize,
                                     .table = &tokenize_table};
const struct route detokenize_route = {"POST", "/detokenize", ROUTE_TEXT | ROUTE_V1,
                                       handle_detokenize, .table = &detokenize_table};
