/* check.h - the unit tests' harness: CHECK counts failures and continues, a test binary prints one
 * line per test function and ends with "N passed, N failed". Before that, if tests noted errors
 * (check_error), it prints "errors {...}": JSON with the largest one of each test function. */
#ifndef INFERD_TESTS_CHECK_H
#define INFERD_TESTS_CHECK_H

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static int check_failures, check_tests_passed, check_tests_failed, check_tests_skipped;

enum { CHECK_MAX_ERRORS = 64 };
static struct check_worst {
    const char *test; /* static storage */
    double share;
} check_errors[CHECK_MAX_ERRORS];
static int check_n_errors;
static double check_worst_share; /* of the test that runs; negative: it noted none */

/* Notes an error, in units of what is allowed. NaN counts as infinite. */
static inline void check_note_error(double share) {
    if (!(share <= check_worst_share)) check_worst_share = share == share ? share : HUGE_VAL;
}

static inline void check_keep_error(const char *test) {
    if (check_worst_share >= 0 && check_n_errors < CHECK_MAX_ERRORS)
        check_errors[check_n_errors].test = test,
        check_errors[check_n_errors++].share = check_worst_share;
    check_worst_share = -1;
}

#define CHECK(cond)                                                                                \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            check_failures++;                                                                      \
            fprintf(stderr, "  %s:%d: CHECK(%s)\n", __FILE__, __LINE__, #cond);                    \
        }                                                                                          \
    } while (0)

/* As CHECK, with values in the message. */
#define CHECK_MSG(cond, ...)                                                                       \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            check_failures++;                                                                      \
            fprintf(stderr, "  %s:%d: CHECK(%s): ", __FILE__, __LINE__, #cond);                    \
            fprintf(stderr, __VA_ARGS__);                                                          \
            fputc('\n', stderr);                                                                   \
        }                                                                                          \
    } while (0)

#define CHECK_STR(got, want)                                                                       \
    CHECK_MSG(strcmp((got), (want)) == 0, "got \"%s\", want \"%s\"", (got), (want))

/* Runs one test function: void f(void). */
#define RUN(f)                                                                                     \
    do {                                                                                           \
        int before = check_failures;                                                               \
        check_worst_share = -1;                                                                    \
        f();                                                                                       \
        check_keep_error(#f);                                                                      \
        if (check_failures == before) {                                                            \
            check_tests_passed++;                                                                  \
            printf("ok   %s\n", #f);                                                               \
        } else {                                                                                   \
            check_tests_failed++;                                                                  \
            printf("FAIL %s\n", #f);                                                               \
        }                                                                                          \
        fflush(stdout);                                                                            \
    } while (0)

/* Reports a test that cannot run here. */
#define SKIP(name, why)                                                                            \
    do {                                                                                           \
        check_tests_skipped++;                                                                     \
        printf("skip %s: %s\n", name, why);                                                        \
    } while (0)

/* Is a test binary called to measure ("bench" as its first argument)? */
static inline bool check_bench(int argc, char **argv) {
    return argc > 1 && strcmp(argv[1], "bench") == 0;
}

static inline int check_done(void) {
    (void)check_failures; /* of a test that only skips */
    for (int i = 0; i < check_n_errors; i++)
        printf("%s\"%s\":%.6g%s", i ? "," : "errors {", check_errors[i].test,
               check_errors[i].share < 1e300 ? check_errors[i].share : 1e300,
               i + 1 < check_n_errors ? "" : "}\n");
    printf("%d passed, %d failed, %d skipped\n", check_tests_passed, check_tests_failed,
           check_tests_skipped);
    return check_tests_failed ? 1 : 0;
}

#endif
