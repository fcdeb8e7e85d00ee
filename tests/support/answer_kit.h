/* answer_kit.h - syntaxes of some families, and the parser's pieces of an answer as one text. For
 * test_chat_parser, test_chat_cut and fuzz_answer. */
#ifndef INFERD_TESTS_SUPPORT_ANSWER_KIT_H
#define INFERD_TESTS_SUPPORT_ANSWER_KIT_H

#include "core/base/str.h"
#include "core/chat/syntax.h"

#include <string.h>

static const struct chat_syntax hermes = {
    .several = true,
    .call_open = "<tool_call>\n{\"name\": \"",
    .arguments_open = "\", \"arguments\": ",
    .call_close = "}\n</tool_call>",
    .between = "\n",
    .trigger = "<tool_call>",
    .reasoning_open = "<think>",
    .reasoning_close = "</think>",
};

static const struct chat_syntax llama = {
    .at_start = true,
    .call_open = "{\"name\": \"",
    .arguments_open = "\", \"parameters\": ",
    .call_close = "}",
    .trigger = "{\"name\": \"",
};

static const struct chat_syntax mistral = {
    .several = true,
    .section_open = "\xff[TOOL_CALLS]\xfe[",
    .call_open = "{\"name\": \"",
    .arguments_open = "\", \"arguments\": ",
    .call_close = ", \"id\": \"\xfd\"}",
    .between = ", ",
    .section_close = "]",
    .trigger = "\xff[TOOL_CALLS]\xfe",
    .reasoning_open = "\xff[THINK]\xfe",
    .reasoning_close = "\xff[/THINK]\xfe",
};

static const struct chat_syntax harmony = {
    .harmony = true,
    .trigger = "to=functions.",
    .reasoning_open = "\xff<|channel|>\xfe"
                      "analysis\xff<|message|>\xfe",
    .reasoning_close = "\xff<|end|>\xfe",
};

/* Calls in a section, with their number. */
static const struct chat_syntax numbered = {
    .several = true,
    .section_open = "\xff<|calls|>\xfe",
    .call_open = "\xff<|call|>\xfe"
                 "functions.",
    .arguments_open = ":\xfc\xff<|args|>\xfe",
    .call_close = "\xff<|end|>\xfe",
    .section_close = "\xff<|calls_end|>\xfe",
    .trigger = "\xff<|calls|>\xfe",
};

/* Arguments that are bare objects. */
static const struct chat_syntax bare_objects = {
    .several = true,
    .quote = "\xff<|\"|>\xfe",
    .call_open = "\xff<|tool_call>\xfe"
                 "call:",
    .call_close = "\xff<tool_call|>\xfe",
    .trigger = "\xff<|tool_call>\xfe",
    .reasoning_open = "\xff<|channel>\xfe"
                      "thought",
    .reasoning_close = "\xff<channel|>\xfe",
};

/* The tools that may be called. */
static const char *const names[] = {"get_weather", "add", "a-b", "ns.add:v/2", "add:2"};
enum { N_NAMES = sizeof names / sizeof *names };

/* Appends the parser's pieces: "|T:..." text, "|R:..." reasoning, "|C:name" a call, "|A:..." its
 * arguments. *last: kind of the previous piece, -1 at first. false: arguments without a call, or a
 * call of a tool that was not offered. */
static bool collect(chat_parser *p, str *out, int *last) {
    struct chat_piece piece;
    bool ok = true;
    while (chat_parser_next(p, &piece)) {
        if (piece.kind == CHAT_PIECE_ARGUMENTS)
            ok = ok && (*last == CHAT_PIECE_CALL || *last == CHAT_PIECE_ARGUMENTS);
        bool known = piece.kind != CHAT_PIECE_CALL;
        for (size_t i = 0; i < N_NAMES; i++)
            known |= piece.n == strlen(names[i]) && memcmp(piece.text, names[i], piece.n) == 0;
        ok = ok && known;
        if ((int)piece.kind != *last || piece.kind == CHAT_PIECE_CALL)
            str_addf(out, "|%c:", "TRCA"[piece.kind]);
        str_add_n(out, piece.text, piece.n);
        *last = (int)piece.kind;
    }
    return ok;
}

/* Length of the next part of an answer, in which control tokens are written as in marks: a control
 * token, or text up to the next one (whole) or one character. 0: an unterminated control token. */
static size_t next_part(const char *s, size_t n, bool whole) {
    size_t k = 1;
    if (*s == CHAT_CONTROL_OPEN) {
        const char *end = memchr(s, (unsigned char)CHAT_CONTROL_CLOSE, n);
        return end ? (size_t)(end - s) + 1 : 0;
    }
    while (k < n && s[k] != CHAT_CONTROL_OPEN && (whole || (s[k] & 0xc0) == 0x80))
        k++;
    return k;
}

/* Feeds an answer part by part and collects the pieces. false: a failure, or as collect. */
static inline bool feed(chat_parser *p, const char *s, size_t n, bool whole, str *out, int *last) {
    for (size_t k; n && (k = next_part(s, n, whole)); s += k, n -= k) {
        int rc = *s == CHAT_CONTROL_OPEN ? chat_parser_control(p, s + 1, k - 2)
                                         : chat_parser_text(p, s, k);
        if (rc || !collect(p, out, last)) return false;
    }
    return true;
}

#endif
