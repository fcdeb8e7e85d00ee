/* limits.c - times the same short work on every thread: plain reads, or dot products in registers.
 * Both exist in all vector widths of x86, because narrow instructions would be the limit. Owns its
 * threads and buffer for one call. */
#include "daemon/commands/limits.h"

#include "core/base/clock.h"
#include "core/base/mem.h"
#include "core/base/thread.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

enum { BUFFER_BYTES = 256 << 20, READ_PASSES = 7, DOT_PASSES = 50, THREADS_MAX = 256 };

/* 64 bytes at a time from each of four places: one stream of reads does not saturate a core. */
typedef uint64_t wide __attribute__((vector_size(64)));
enum { STREAMS = 4, STEP = STREAMS * (int)sizeof(wide) };

enum { CHAINS = 12, ROUNDS = 1 << 18 }; /* chains of dot products, each as long as ROUNDS */

struct share {
    pthread_t thread;
    void (*work)(struct share *s);
    const uint8_t *data;
    size_t bytes;          /* a multiple of STEP */
    atomic_int *n_missing; /* threads that have not started */
    uint64_t begin_ns, end_ns;
    uint64_t sum; /* keeps the compiler from removing the work */
};

static inline __attribute__((always_inline)) void read_streams(struct share *s) {
    const wide *p = (const void *)s->data;
    size_t n = s->bytes / STEP;
    wide a = {0}, b = {0}, c = {0}, d = {0};
    for (size_t i = 0; i < n; i++) {
        a += p[i];
        b += p[i + n];
        c += p[i + 2 * n];
        d += p[i + 3 * n];
    }
    a += b + (c + d);
    for (size_t i = 0; i < sizeof(wide) / sizeof a[0]; i++)
        s->sum += a[i];
}

static void read_plain(struct share *s) {
    read_streams(s);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static void read_avx2(struct share *s) {
    read_streams(s);
}

__attribute__((target("avx512f"))) static void read_avx512(struct share *s) {
    read_streams(s);
}

/* CHAINS independent sums of dot products hide the instruction's latency. They stay in registers
 * only if the loop over them is unrolled, and stay separate only if each begins differently. */
#define UNROLL _Pragma("GCC unroll 12")
#define DOT_CHAINS(vector, set, dot)                                                               \
    vector sums[CHAINS], x = set(0x55);                                                            \
    UNROLL for (int k = 0; k < CHAINS; k++) sums[k] = set((char)k);                                \
    for (int i = 0; i < ROUNDS; i++) {                                                             \
        UNROLL for (int k = 0; k < CHAINS; k++) sums[k] = dot;                                     \
    }                                                                                              \
    UNROLL for (int k = 1; k < CHAINS; k++) sums[0] ^= sums[k]; /* a sum would overflow */         \
    s->sum += (uint64_t)sums[0][0]

__attribute__((target("avx512f,avx512bw,avx512vl,avx512vnni"))) static void
dot_avx512(struct share *s) {
    DOT_CHAINS(__m512i, _mm512_set1_epi8, _mm512_dpbusd_epi32(sums[k], x, x));
}

__attribute__((target("avx2,avxvnni"))) static void dot_avxvnni(struct share *s) {
    DOT_CHAINS(__m256i, _mm256_set1_epi8, _mm256_dpbusd_avx_epi32(sums[k], x, x));
}

/* AVX2's equivalent: products of bytes added to 16 bits, pairs added to 32 bits, an addition. */
__attribute__((target("avx2"))) static void dot_avx2(struct share *s) {
    const __m256i ones = _mm256_set1_epi16(1);
    DOT_CHAINS(
        __m256i, _mm256_set1_epi8,
        _mm256_add_epi32(sums[k], _mm256_madd_epi16(_mm256_maddubs_epi16(x, sums[k]), ones)));
}

static bool has_avxvnni(void) {
    unsigned a, b, c, d; /* no name in __builtin_cpu_supports of every compiler */
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & 1u << 4);
}
#endif

static void choose_read(struct share *s) {
    s->work = read_plain;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) s->work = read_avx2;
    if (__builtin_cpu_supports("avx512f")) s->work = read_avx512;
#endif
}

/* Returns the bytes that one instruction multiplies; 0: no instruction is known. */
static int choose_dot(struct share *s) {
    (void)s;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vnni")) {
        s->work = dot_avx512;
        return 64;
    }
    if (__builtin_cpu_supports("avx2")) {
        s->work = has_avxvnni() ? dot_avxvnni : dot_avx2;
        return 32;
    }
#endif
    return 0;
}

/* All threads begin together, so that starting them is not measured. */
static void *run_share(void *arg) {
    struct share *s = arg;
    atomic_fetch_sub(s->n_missing, 1);
    while (atomic_load(s->n_missing) > 0)
        sched_yield();
    s->begin_ns = clock_now_ns();
    s->work(s);
    s->end_ns = clock_now_ns();
    return NULL;
}

/* Seconds from the first beginning to the last end. */
static int time_pass(struct share *shares, int n, double *seconds, err *e) {
    atomic_int n_missing = n;
    int started = 0, rc = 0;
    while (started < n && !rc) {
        struct share *s = &shares[started];
        s->n_missing = &n_missing;
        rc = thread_start(&s->thread, run_share, s, "measures the machine's limits", e);
        if (!rc) started++;
    }
    if (rc) atomic_store(&n_missing, 0);
    uint64_t begin_ns = UINT64_MAX, end_ns = 0;
    for (int i = 0; i < started; i++) {
        pthread_join(shares[i].thread, NULL);
        if (shares[i].begin_ns < begin_ns) begin_ns = shares[i].begin_ns;
        if (shares[i].end_ns > end_ns) end_ns = shares[i].end_ns;
    }
    *seconds = (double)(end_ns - begin_ns) * 1e-9;
    return rc;
}

/* Seconds of the best of several passes of n threads like first, each with its part of the data. */
static int best_pass(const struct share *first, int n, int n_passes, double *seconds, err *e) {
    struct share *shares = mem_new((uint64_t)n, sizeof *shares);
    int rc = shares ? 0 : err_no_memory(e);
    *seconds = 0;
    for (int i = 0; i < n && !rc; i++) {
        shares[i] = *first;
        if (first->data) shares[i].data = first->data + (size_t)i * first->bytes;
    }
    for (int i = 0; i < n_passes && !rc; i++) {
        double s = 0;
        rc = time_pass(shares, n, &s, e);
        if (*seconds == 0 || s < *seconds) *seconds = s;
    }
    free(shares);
    return rc;
}

int limits_read_bandwidth(int n_threads, double *bytes_per_s, err *e) {
    int n = n_threads < THREADS_MAX ? n_threads : THREADS_MAX;
    uint8_t *data = mem_new_aligned(BUFFER_BYTES);
    struct share s = {.data = data, .bytes = (size_t)(BUFFER_BYTES / n / STEP * STEP)};
    double seconds = 0;
    *bytes_per_s = 0;
    if (!data) return err_no_memory(e);
    choose_read(&s);
    memset(data, 1, BUFFER_BYTES); /* real pages instead of the shared zero page */
    int rc = best_pass(&s, n, READ_PASSES, &seconds, e);
    if (!rc) *bytes_per_s = (double)s.bytes * n / seconds;
    free(data);
    return rc;
}

int limits_int8_peak(int n_threads, double *ops_per_s, err *e) {
    int n = n_threads < THREADS_MAX ? n_threads : THREADS_MAX;
    struct share s = {.bytes = STEP};
    double seconds = 0;
    int width = choose_dot(&s);
    *ops_per_s = 0;
    if (!width) return 0;
    int rc = best_pass(&s, n, DOT_PASSES, &seconds, e);
    if (!rc) *ops_per_s = 2.0 * width * CHAINS * ROUNDS * n / seconds;
    return rc;
}
