/* fuzz_number.c - bounds and steps of numbers: a literal and, after a NUL and two bytes that number
 * the failing allocation, another one. They are refused with an error, or the automata are trimmed.
 */
#include "tests/fuzz/grammar_fuzz.h"

static void try_number(const struct dfa_number *spec, uint32_t fails) {
    struct work work = {.left = FUZZ_WORK};
    struct dfa d = {0};
    err e = {0};
    mem_fail_at(fails);
    int rc = dfa_from_number(spec, &work, &d, &e);
    mem_fail_at(0);
    if (rc)
        fuzz_refusal(rc, &e);
    else if (d.n_states < 2000)
        fuzz_check_trimmed(&d);
    dfa_fini(&d);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    struct fuzz_input in;
    if (!fuzz_input_init(&in, bytes, n)) return 0;
    /* From after the two bytes to the end, copied with a NUL. */
    size_t skip = in.n + 3 < n ? in.n + 3 : n;
    char *other = mem_strndup((const char *)bytes + skip, n - skip);
    const char *bound = in.notation;
    const struct dfa_number specs[] = {{.min = bound, .max = other},
                                       {.integer = true, .min = bound, .exclusive_min = true},
                                       {.multiple_of = bound, .max = skip < n ? other : NULL}};
    for (size_t i = 0; other && i < sizeof specs / sizeof *specs; i++)
        try_number(&specs[i], in.fails);
    free(other);
    free(in.notation);
    return 0;
}
