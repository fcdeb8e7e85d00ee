/* gen_answer.c - splits answers into text, reasoning and calls: tokens become characters and
 * control tokens, a parser splits these, and stop strings are searched in its text. Keeps
 * log-probabilities in step with the text: those of reasoning, calls and marks are dropped. Runs on
 * the connection's HTTP thread. */
#include "api/generate/gen_int.h"
#include "api/http/id.h"
#include "api/http/reply.h"

#include "core/base/mem.h"

#include <stdlib.h>
#include <string.h>

static void clear_logprobs(struct gen_choice *c) {
    for (size_t k = 0; k < 4; k++) {
        str_clear(&c->logprobs[k]);
        c->content_logprobs[k] = 0;
    }
    c->n_logprobs = c->n_content_logprobs = 0;
}

void gen_write_text(struct gen *g, struct gen_choice *c) {
    /* With a parser, log-probabilities wait until their text is decided. */
    if (!c->text.len && (!c->n_logprobs || (c->parser && !c->done))) return;
    const struct gen_piece piece = {.kind = GEN_TEXT, .text = str_cstr(&c->text), .n = c->text.len};
    g->writer->piece(g, c, &piece, &g->out);
    str_clear(&c->text);
    clear_logprobs(c);
}

int gen_answer_init(struct gen_choice *c, const struct chat_parser_config *parser,
                    const struct gen_options *o, err *e) {
    c->parser = chat_parser_new(parser);
    c->stop_text =
        engine_text_new(&(struct engine_text_config){.stop = o->stops, .n_stop = o->n_stops});
    return c->parser && c->stop_text ? 0 : err_no_memory(e);
}

static void keep_logprobs(struct gen_choice *c) {
    for (size_t k = 0; k < 4; k++)
        c->content_logprobs[k] = c->logprobs[k].len;
    c->n_content_logprobs = c->n_logprobs;
}

static void drop_logprobs(struct gen_choice *c) {
    for (size_t k = 0; k < 4; k++)
        if (c->logprobs[k].len > c->content_logprobs[k]) {
            c->logprobs[k].len = c->content_logprobs[k];
            c->logprobs[k].data[c->logprobs[k].len] = '\0';
        }
    c->n_logprobs = c->n_content_logprobs;
}

static void append_text(struct gen_choice *c, const char *text, size_t n) {
    if (n) str_add_n(&c->text, text, n);
}

static void begin_call(struct gen *g, struct gen_choice *c, const struct chat_piece *piece) {
    struct gen_call *more = mem_resize(c->calls, c->n_calls + 1, sizeof *more);
    char *name = mem_strndup(piece->text, piece->n);
    if (more) c->calls = more;
    if (!more || !name) {
        free(name);
        if (!g->error.code) err_no_memory(&g->error);
        return;
    }
    struct gen_call *call = &c->calls[c->n_calls++];
    *call = (struct gen_call){.name = name};
    id_new(call->id, "call_");
    str_init(&call->arguments, REPLY_MAX_BYTES);
}

/* Takes a piece that is not text. In a stream the text before it is written first. */
static void take_other_piece(struct gen *g, struct gen_choice *c, const struct chat_piece *piece) {
    static const enum gen_piece_kind kinds[] = {[CHAT_PIECE_REASONING] = GEN_REASONING,
                                                [CHAT_PIECE_CALL] = GEN_CALL,
                                                [CHAT_PIECE_ARGUMENTS] = GEN_ARGUMENTS};
    const char *held;
    size_t n;
    engine_text_flush(c->stop_text, &held, &n);
    append_text(c, held, n);
    if (piece->kind == CHAT_PIECE_CALL) begin_call(g, c, piece);
    if (g->error.code) return;
    if (piece->kind == CHAT_PIECE_ARGUMENTS)
        str_add_n(&c->calls[c->n_calls - 1].arguments, piece->text, piece->n);
    if (!g->stream) {
        if (piece->kind == CHAT_PIECE_REASONING) str_add_n(&c->reasoning, piece->text, piece->n);
        return;
    }
    if (c->text.len) {
        drop_logprobs(c);
        gen_write_text(g, c);
    }
    const struct gen_piece out = {.kind = kinds[piece->kind],
                                  .text = piece->text,
                                  .n = piece->kind == CHAT_PIECE_CALL ? 0 : piece->n,
                                  .call = c->n_calls ? c->n_calls - 1 : 0};
    g->writer->piece(g, c, &out, &g->out);
}

/* Takes the parser's pieces. true: a stop string ended the answer. */
static bool take_pieces(struct gen *g, struct gen_choice *c, bool *text_came) {
    struct chat_piece piece;
    while (!g->error.code && chat_parser_next(c->parser, &piece)) {
        if (piece.kind != CHAT_PIECE_TEXT) {
            take_other_piece(g, c, &piece);
            continue;
        }
        const char *text;
        size_t n;
        *text_came = true;
        keep_logprobs(c); /* even if the text may still become a stop string */
        bool stop = engine_text_push_text(c->stop_text, piece.text, piece.n, &text, &n);
        append_text(c, text, n);
        if (stop) return true;
    }
    return false;
}

bool gen_answer_take(struct gen *g, struct gen_choice *c, int32_t token) {
    const char *text;
    size_t n;
    bool text_came = false, control = tokenizer_is_control(g->tok, token);
    bool thought = chat_parser_state(c->parser) == CHAT_PIECE_REASONING;
    engine_text_push(c->text_state, token, &text, &n);
    int rc;
    if (control) {
        text = tokenizer_token_text(g->tok, token, &n);
        rc = chat_parser_control(c->parser, text, n);
    } else {
        rc = chat_parser_text(c->parser, text, n);
    }
    if (rc && !g->error.code) err_no_memory(&g->error);
    bool stop = take_pieces(g, c, &text_came);
    thought |= chat_parser_state(c->parser) == CHAT_PIECE_REASONING;
    c->n_reasoning += thought;
    /* Bytes of an incomplete character stay undecided. */
    bool undecided = (!control && !n && !thought) || chat_parser_holds_text(c->parser);
    if (!text_came && !undecided) drop_logprobs(c);
    return stop;
}

void gen_answer_finish(struct gen *g, struct gen_choice *c, bool cut) {
    const char *text;
    size_t n;
    bool text_came = false;
    engine_text_finish(c->text_state, &text, &n);
    /* A character that was cut off is not part of the arguments. */
    if (cut && chat_parser_state(c->parser) == CHAT_PIECE_ARGUMENTS) n = 0;
    int rc = chat_parser_text(c->parser, text, n);
    bool stop = take_pieces(g, c, &text_came);
    if (!rc && !stop) rc = chat_parser_finish(c->parser, cut);
    if (!rc && !stop) stop = take_pieces(g, c, &text_came);
    if (rc && !g->error.code) err_no_memory(&g->error);
    if (stop) return;
    engine_text_finish(c->stop_text, &text, &n);
    append_text(c, text, n);
    if (!text_came) drop_logprobs(c);
}
