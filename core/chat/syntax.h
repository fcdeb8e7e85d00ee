/* syntax.h - how a model's family writes tool calls and reasoning, found out at load, and the
 * parser that takes answers apart by it.
 *
 * The marks of a syntax are bytes in which a control token stands as CHAT_CONTROL_OPEN, its text,
 * CHAT_CONTROL_CLOSE; two more bytes stand for what differs from call to call. UTF-8 has none of
 * these bytes. An answer with calls is
 *     section_open call_open NAME arguments_open JSON call_close
 *         { between call_open NAME arguments_open JSON call_close } section_close
 *
 * THREAD SAFETY: a syntax is immutable; a parser one thread at a time. */
#ifndef INFERD_CHAT_SYNTAX_H
#define INFERD_CHAT_SYNTAX_H

#include "core/chat/chat.h"

#define CHAT_CONTROL_OPEN  '\xff'
#define CHAT_CONTROL_CLOSE '\xfe'
#define CHAT_HOLE_ID       '\xfd' /* nine letters and digits */
#define CHAT_HOLE_INDEX    '\xfc' /* the call's number, from 0 */

enum { CHAT_MARK_BYTES = 256, CHAT_MAX_NAME_BYTES = 64 };

struct chat_syntax {
    /* The template shows tools and calls, in this form. false: it does not, or in a form that is no
     * JSON; the marks are then those that chat_instruct() asks for, and the template gets neither
     * tools nor calls. */
    bool native;
    bool several;      /* an answer may have more than one call */
    bool takes_system; /* role system */
    /* Harmony: an answer is messages, each with a header that names its channel and whom it is for:
     * the parser goes by the headers, and not by the marks below. */
    bool harmony;
    /* Calls have no mark of their own: an answer that begins with call_open is one. */
    bool at_start;
    char section_open[CHAT_MARK_BYTES], call_open[CHAT_MARK_BYTES];
    char arguments_open[CHAT_MARK_BYTES], call_close[CHAT_MARK_BYTES];
    char between[CHAT_MARK_BYTES], section_close[CHAT_MARK_BYTES];
    /* The first mark of a call: where it comes, a call has begun. */
    char trigger[CHAT_MARK_BYTES];
    /* Around what the model thinks before it answers; "": it does not. */
    char reasoning_open[CHAT_MARK_BYTES], reasoning_close[CHAT_MARK_BYTES];
    /* The member of an assistant's message whose reasoning the template shows; NULL: none that is
     * known. */
    const char *reasoning_member;
};

/* Finds the syntax by rendering a conversation with known calls and looking at what stands around
 * their names and arguments. After chat_template_probe, before threads share t. tok: tells control
 * tokens from text; NULL: all is text. ERR_NOMEM. */
int chat_template_learn(chat_template *t, const tokenizer *tok, err *e);
/* Of the tool variant where there is one. Before chat_template_learn: chat_instruct()'s. */
const struct chat_syntax *chat_template_syntax(const chat_template *t);

/* For templates that know no tools. messages, an array as chat_prompt() takes it, gets the tools
 * and how to call them into its system message (tools NULL: not), or its first one where the
 * template takes none; calls become an assistant's text and their results a user's. ERR_NOMEM. */
int chat_instruct(const chat_template *t, cJSON *messages, const cJSON *tools, err *e);

/* Where a prompt ends. */
enum chat_begin {
    CHAT_BEGIN_OPEN,      /* reasoning may come */
    CHAT_BEGIN_REASONING, /* within it */
    CHAT_BEGIN_TEXT       /* behind it, or in the midst of an answer */
};
enum chat_begin chat_syntax_begin(const struct chat_syntax *s, const char *prompt, size_t n);

typedef struct chat_parser chat_parser;

struct chat_parser_config {
    const struct chat_syntax *syntax; /* borrowed */
    enum chat_begin begin;
    const char *const *names; /* (n_names) of the tools that may be called, copied */
    size_t n_names;           /* 0: no calls: their marks are text */
};
chat_parser *chat_parser_new(const struct chat_parser_config *config); /* NULL: no memory */
void chat_parser_free(chat_parser *p);                                 /* NULL is fine */

enum chat_piece_kind {
    CHAT_PIECE_TEXT,
    CHAT_PIECE_REASONING,
    CHAT_PIECE_CALL,     /* its name */
    CHAT_PIECE_ARGUMENTS /* JSON text of the latest call */
};
struct chat_piece {
    enum chat_piece_kind kind;
    const char *text; /* (n) borrowed until the parser is fed again */
    size_t n;
};

/* Feeds whole UTF-8 characters; a control token's text; the end of the answer. What can be a mark
 * is held back until that is decided; what turns out to be none is text. Control tokens that are no
 * mark are dropped. The pieces do not depend on how the answer was cut. ERR_NOMEM. */
int chat_parser_text(chat_parser *p, const char *text, size_t n);
int chat_parser_control(chat_parser *p, const char *text, size_t n);
int chat_parser_finish(chat_parser *p);
/* Takes the pieces of the last feeding, one by one. */
bool chat_parser_next(chat_parser *p, struct chat_piece *out);
/* What the next bytes belong to, as far as that is decided; text also where it is not. */
enum chat_piece_kind chat_parser_state(const chat_parser *p);
/* Are bytes held back that may become text? */
bool chat_parser_holds_text(const chat_parser *p);

#endif
