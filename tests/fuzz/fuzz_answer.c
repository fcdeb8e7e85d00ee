/* fuzz_answer.c - a byte that selects the family, one for where the prompt ends, whether tools are
 * offered and whether the answer is cut off, and an answer in which control tokens are written as
 * in marks. Parses it whole and character by character: the pieces must be equal, arguments must
 * follow a call, and only offered tools may be called. */
#include "core/text/utf8.h"
#include "tests/support/answer_kit.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

enum { MAX_BYTES = 1 << 12 };

static const struct chat_syntax *const families[] = {&hermes,   &llama,   &mistral,
                                                     &numbered, &harmony, &bare_objects};

static void parse_answer(const struct chat_parser_config *config, const char *s, size_t n,
                         bool whole, bool cut, str *out) {
    chat_parser *p = chat_parser_new(config);
    int last = -1;
    if (!p || !feed(p, s, n, whole, out, &last) || chat_parser_finish(p, cut) ||
        !collect(p, out, &last))
        abort();
    chat_parser_free(p);
}

/* Does it consist of valid UTF-8 and terminated control tokens? The parser requires it. */
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
    const struct chat_parser_config config = {.syntax = families[bytes[0] % N_FAMILIES],
                                              .begin = (enum chat_begin)(bytes[1] % 3),
                                              .names = names,
                                              .n_names = bytes[1] & 4 ? 0 : N_NAMES};
    str one, other;
    str_init(&one, 1 << 20);
    str_init(&other, 1 << 20);
    parse_answer(&config, (const char *)bytes + 2, n - 2, true, bytes[1] & 8, &one);
    parse_answer(&config, (const char *)bytes + 2, n - 2, false, bytes[1] & 8, &other);
    if (one.len != other.len || (one.len && memcmp(one.data, other.data, one.len) != 0)) abort();
    str_fini(&one);
    str_fini(&other);
    return 0;
}
