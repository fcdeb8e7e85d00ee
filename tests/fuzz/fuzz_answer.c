/* fuzz_answer.c - a letter for the family that writes calls and reasoning, one for where the prompt
 * ends, and an answer in which a control token stands as in marks: taken apart as a whole and byte
 * by byte, with the same pieces, arguments behind the call that they belong to and names that were
 * offered. A client can make a model write anything. */
#include "core/base/str.h"
#include "core/chat/syntax.h"
#include "core/text/utf8.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

enum { MAX_BYTES = 1 << 12 };

static const char *const names[] = {"get_weather", "add", "a-b"};

static const struct chat_syntax families[] = {
    {.several = true,
     .call_open = "<tool_call>\n{\"name\": \"",
     .arguments_open = "\", \"arguments\": ",
     .call_close = "}\n</tool_call>",
     .between = "\n",
     .trigger = "<tool_call>",
     .reasoning_open = "<think>",
     .reasoning_close = "</think>"},
    {.at_start = true,
     .call_open = "{\"name\": \"",
     .arguments_open = "\", \"parameters\": ",
     .call_close = "}",
     .trigger = "{\"name\": \""},
    {.several = true,
     .section_open = "\xff[TOOL_CALLS]\xfe[",
     .call_open = "{\"name\": \"",
     .arguments_open = "\", \"arguments\": ",
     .call_close = ", \"id\": \"\xfd\"}",
     .between = ", ",
     .section_close = "]",
     .trigger = "\xff[TOOL_CALLS]\xfe",
     .reasoning_open = "\xff[THINK]\xfe",
     .reasoning_close = "\xff[/THINK]\xfe"},
    {.several = true,
     .section_open = "\xff<|calls|>\xfe",
     .call_open = "\xff<|call|>\xfe"
                  "functions.",
     .arguments_open = ":\xfc\xff<|args|>\xfe",
     .call_close = "\xff<|end|>\xfe",
     .section_close = "\xff<|calls_end|>\xfe",
     .trigger = "\xff<|calls|>\xfe"},
    {.harmony = true,
     .trigger = "to=functions.",
     .reasoning_open = "\xff<|channel|>\xfe"
                       "analysis\xff<|message|>\xfe",
     .reasoning_close = "\xff<|end|>\xfe"},
};

/* The pieces as one text, a letter before each new one. */
static void collect(chat_parser *p, str *out, int *last) {
    struct chat_piece piece;
    while (chat_parser_next(p, &piece)) {
        if (piece.kind == CHAT_PIECE_ARGUMENTS && *last != CHAT_PIECE_CALL &&
            *last != (int)piece.kind)
            abort();
        bool known = piece.kind != CHAT_PIECE_CALL;
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
            known |= piece.n == strlen(names[i]) && memcmp(piece.text, names[i], piece.n) == 0;
        if (!known) abort();
        if ((int)piece.kind != *last || piece.kind == CHAT_PIECE_CALL)
            str_addf(out, "|%c:", "TRCA"[piece.kind]);
        str_add_n(out, piece.text, piece.n);
        *last = (int)piece.kind;
    }
}

/* Length of what is fed at once: a control token, or text: all up to the next one, or a character.
 */
static size_t next_part(const char *s, size_t n, bool whole) {
    size_t k = 1;
    if (*s == CHAT_CONTROL_OPEN) {
        const char *end = memchr(s, CHAT_CONTROL_CLOSE, n);
        return end ? (size_t)(end - s) + 1 : 0;
    }
    while (k < n && s[k] != CHAT_CONTROL_OPEN && (whole || (s[k] & 0xc0) == 0x80))
        k++;
    return k;
}

static void take(const struct chat_parser_config *config, const char *s, size_t n, bool whole,
                 str *out) {
    chat_parser *p = chat_parser_new(config);
    int last = -1, rc = p ? 0 : -1;
    while (n && !rc) {
        size_t k = next_part(s, n, whole);
        if (!k) break;
        if (*s == CHAT_CONTROL_OPEN)
            rc = chat_parser_control(p, s + 1, k - 2);
        else
            rc = chat_parser_text(p, s, k);
        collect(p, out, &last);
        s += k;
        n -= k;
    }
    if (!rc) rc = chat_parser_finish(p);
    if (rc) abort();
    collect(p, out, &last);
    chat_parser_free(p);
}

/* The parser is fed whole characters: of the rest only what is text, control tokens apart. */
static bool is_answer(const char *s, size_t n) {
    for (size_t k; n; s += k, n -= k) {
        k = next_part(s, n, true);
        if (!k || (*s == CHAT_CONTROL_OPEN ? !utf8_valid(s + 1, k - 2) : !utf8_valid(s, k)))
            return false;
    }
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    enum { N_FAMILIES = sizeof families / sizeof *families };
    if (n < 2 || n > MAX_BYTES || !is_answer((const char *)bytes + 2, n - 2)) return 0;
    const struct chat_parser_config config = {.syntax = &families[bytes[0] % N_FAMILIES],
                                              .begin = (enum chat_begin)(bytes[1] % 3),
                                              .names = names,
                                              .n_names =
                                                  bytes[1] & 4 ? 0 : sizeof names / sizeof *names};
    str one, other;
    str_init(&one, 1 << 20);
    str_init(&other, 1 << 20);
    take(&config, (const char *)bytes + 2, n - 2, true, &one);
    take(&config, (const char *)bytes + 2, n - 2, false, &other);
    if (one.len != other.len || (one.len && memcmp(one.data, other.data, one.len) != 0)) abort();
    str_fini(&one);
    str_fini(&other);
    return 0;
}
