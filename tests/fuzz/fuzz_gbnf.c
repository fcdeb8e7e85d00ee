/* fuzz_gbnf.c - a grammar in GBNF is refused with an error, or its masks can be walked. Input:
 * grammar_fuzz.h. */
#include "tests/fuzz/grammar_fuzz.h"
#include "tests/fuzz/mutate.h"

#ifdef LIBFUZZER
static const fuzz_rule rules[] = {
    {"root ::= @B\n", "root ::= @C @C\n", "root ::= @B\nb ::= @B\n",
     "root ::= b @B\nb ::= @B\nc-d ::= @B | root\n", "# @F\nroot ::= (@B)\n"},
    {"@C", "@C @C", "@C @B", "@B | @B", "@C @C @C @C @C @C @C @C", "(@B)@E @B"},
    {"\"@F\"", "[@D]", "b", "root", "c-d", ".", "'@F'", "(@B)", "@C@E", "[^@D]", "!", "<@F>",
     "\"@G\""},
    {"a-z", "@F", "@G", "0-9_", "@F-@F", "^@F"},
    {"*", "+", "?", "{2}", "{1,3}", "{0,}", "{,2}", "{3,1}", "{16}"},
    {"a", "xy", "\xc3\xa9", "\xf0\x9f\x98\x80", " ", "0", "\\\"", "]", "|", "::="},
    {"\\n", "\\x41", "\\u00e9", "\\U0001F600", "\\]", "\\q", "\\x4", "\\ud800"},
};
FUZZ_MUTATOR(rules)
#endif

static grammar_node make(grammar_builder *b, void *arg) {
    const struct fuzz_input *in = arg;
    return grammar_gbnf(b, in->notation, in->n);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    struct fuzz_input in;
    if (fuzz_input_init(&in, bytes, n)) fuzz_build(&in, make, &in);
    free(in.notation);
    return 0;
}
