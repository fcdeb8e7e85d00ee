/* syntax.h - how a model's family writes tool calls and reasoning (learned at load), and the parser
 * that splits answers by it.
 *
 * The marks of a syntax are byte strings. In them a control token is written as CHAT_CONTROL_OPEN,
 * its text, CHAT_CONTROL_CLOSE; two more bytes are placeholders for parts that differ between
 * calls. None of these bytes occurs in UTF-8. An answer with calls is section_open call_open NAME
 * arguments_open JSON call_close { between call_open NAME arguments_open JSON call_close }
 * section_close
 *
 * THREAD SAFETY: a syntax is immutable; a parser one thread at a time. */
#ifndef INFERD_CHAT_SYNTAX_H
#define INFERD_CHAT_SYNTAX_H

#include "core/chat/chat.h"

#define CHAT_CONTROL_OPEN  '\xff'
#define CHAT_CONTROL_CLOSE '\xfe'
#define CHAT_HOLE_ID       '\xfd' /* nine letters and digits */
#define CHAT_HOLE_INDEX    '\xfc' /* the call's number, from 0 */

enum { CHAT_MARK_BYTES = 256, CHAT_MAX_NAME_BYTES = 128 };

struct chat_syntax {
    /* The template shows tools and calls, in this form. false: it does not, or not as JSON; the
     * marks are then those that chat_instruct() asks for, and the template gets neither tools nor
     * calls. */
    bool native;
    /* native, but the template shows tools alone: chat_write_calls() puts earlier calls into an
     * assistant's text. */
    bool in_text;
    bool several;      /* an answer may have more than one call */
    bool takes_system; /* accepts role system */
    /* Harmony: an answer is a list of messages, each with a header that names its channel and
     * recipient; the parser uses the headers, not the marks below. */
    bool harmony;
    /* Calls have no mark of their own: an answer that begins with call_open is a call. */
    bool at_start;
    /* Arguments are written as those of a Python call, `a=1, b="x"`; a JSON object in their place,
     * which a constrained answer has if its schema needs one, is accepted too. */
    bool python;
    /* Around strings of arguments that are a bare object, `{a:1,b:<|"|>x<|"|>}`; arguments_open is
     * then "", and JSON is accepted too. "": arguments are no bare object. */
    char quote[CHAT_MARK_BYTES];
    char section_open[CHAT_MARK_BYTES], call_open[CHAT_MARK_BYTES];
    char arguments_open[CHAT_MARK_BYTES], call_close[CHAT_MARK_BYTES];
    char between[CHAT_MARK_BYTES], section_close[CHAT_MARK_BYTES];
    /* The first mark of a call: it begins a call wherever it occurs. */
    char trigger[CHAT_MARK_BYTES];
    /* Around the reasoning before an answer; "": the model does not reason. */
    char reasoning_open[CHAT_MARK_BYTES], reasoning_close[CHAT_MARK_BYTES];
    /* The member of an assistant's message in which the template expects reasoning; NULL: unknown.
     */
    const char *reasoning_member;
};

/* Learns the syntax by rendering a conversation with known calls and examining the text around
 * their names and arguments. Call after chat_template_probe, before threads share t. tok
 * distinguishes control tokens from text; NULL: all is text. ERR_NOMEM. */
int chat_template_learn(chat_template *t, const tokenizer *tok, err *e);
/* The syntax of the tool variant if there is one. Before chat_template_learn: chat_instruct()'s. */
const struct chat_syntax *chat_template_syntax(const chat_template *t);

/* Prepares messages (an array as for chat_prompt()) for a template without tool support: puts the
 * tools and how to call them into the system message (tools NULL: does not), or into the first
 * message if the template takes no system message; turns calls into an assistant's text and their
 * results into a user's. ERR_NOMEM. */
int chat_instruct(const chat_template *t, cJSON *messages, const cJSON *tools, err *e);

/* Prepares messages likewise for a syntax that is in_text: calls become the end of an assistant's
 * text, in the syntax, with its control tokens in mark notation, which only chat_prompt() takes.
 * ERR_NOMEM. */
int chat_write_calls(const struct chat_syntax *s, cJSON *messages, err *e);

/* Where an answer begins, given the end of the prompt. */
enum chat_begin {
    CHAT_BEGIN_OPEN,      /* reasoning may begin */
    CHAT_BEGIN_REASONING, /* within reasoning */
    CHAT_BEGIN_TEXT       /* after it, or within an answer */
};
enum chat_begin chat_syntax_begin(const struct chat_syntax *s, const char *prompt, size_t n);

typedef struct chat_parser chat_parser;

struct chat_parser_config {
    const struct chat_syntax *syntax; /* borrowed */
    enum chat_begin begin;
    const char *const *names; /* (n_names) tools that may be called, copied */
    size_t n_names;           /* 0: no calls, and their marks are text */
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
    const char *text; /* (n) borrowed until the next call that feeds the parser */
    size_t n;
};

/* Feed whole UTF-8 characters; a control token's text; the end of the answer. Bytes that may be a
 * mark are held back until that is decided; if they are not, they are text. At the end such bytes
 * are text if the model ended the answer (`<tool_c` was all that it said), and are dropped if the
 * answer was cut off: a token limit leaves no part of a mark, and of a call its name with the
 * arguments so far, or nothing if these have not begun. Control tokens that are not marks are
 * dropped. The pieces do not depend on how the answer was divided. ERR_NOMEM. */
int chat_parser_text(chat_parser *p, const char *text, size_t n);
int chat_parser_control(chat_parser *p, const char *text, size_t n);
int chat_parser_finish(chat_parser *p, bool cut);
/* Returns the pieces of the last such call one by one; false: no more. */
bool chat_parser_next(chat_parser *p, struct chat_piece *out);
/* The kind of the next bytes; CHAT_PIECE_TEXT also while that is undecided. */
enum chat_piece_kind chat_parser_state(const chat_parser *p);
/* Are bytes being held back that may become text? */
bool chat_parser_holds_text(const chat_parser *p);

#endif
