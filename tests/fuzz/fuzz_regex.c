/* fuzz_regex.c - a regular expression is refused with an error, or its automaton is as dfa.h
 * specifies and its masks can be walked. Input: grammar_fuzz.h. */
#include "tests/fuzz/grammar_fuzz.h"
#include "tests/fuzz/mutate.h"

#ifdef LIBFUZZER
static const fuzz_rule rules[] = {
    {"@B", "@B@B", "^@A$", "@A|@A", "(?=@A)@A", "(?!@A)@B", "(?<=@B)@A", "(?<!@B)@A", "@B@A"},
    {"@C", "[@D]", "@C@E", "(@A)@E", "(?:@A)", "[^@D]@E", "\\b@C", "\\B", "(?<n>@A)", "@F@E",
     "@C@C@C@C@C"},
    {"a", "b", ".", "\xc3\xa9", "\xf0\x9f\x98\x80", "_", "0", "-", " "},
    {"a-z", "@C", "@F", "@C-@C", "a-c@F", "\\]", "^", "-"},
    {"*", "+", "?", "{2}", "{1,3}", "{0,}", "{17}", "*?", "{5,2}", "{0,9}?"},
    {"\\d", "\\w", "\\s", "\\S", "\\W", "\\D", "\\p{L}", "\\P{Lu}", "\\u00e9", "\\u{1F600}",
     "\\x41", "\\cA", "\\n", "\\0", "\\1", "\\k<n>", "\\p{sc=Greek}", "\\ud83d\\ude00"},
};
FUZZ_MUTATOR(rules)
#endif

static grammar_node make(grammar_builder *b, void *arg) {
    const struct fuzz_input *in = arg;
    return grammar_regex(b, in->notation);
}

/* A text that matches as a whole is also found by a search. */
static void check_search(struct fuzz_input *in) {
    struct dfa whole = {0}, found = {0}, missed = {0};
    struct work work = {.left = FUZZ_WORK};
    err e = {0};
    int rc = dfa_from_regex(in->notation, 0, &work, &whole, &e);
    if (!rc && whole.n_states < 2000) fuzz_check_trimmed(&whole);
    if (!rc) rc = dfa_from_regex(in->notation, DFA_REGEX_SEARCH, &work, &found, &e);
    if (!rc) rc = dfa_combine(&whole, &found, DFA_MINUS, &work, &missed, &e);
    if (rc)
        fuzz_refusal(rc, &e);
    else if (!dfa_is_empty(&missed) || dfa_count(&missed, 1) != 0)
        abort();
    dfa_fini(&whole);
    dfa_fini(&found);
    dfa_fini(&missed);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    struct fuzz_input in;
    if (fuzz_input_init(&in, bytes, n)) {
        if (!in.fails) check_search(&in);
        fuzz_build(&in, make, &in);
    }
    free(in.notation);
    return 0;
}
