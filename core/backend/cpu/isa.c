/* isa.c - the instruction sets of this machine. A new one needs a test here and a row in the
 * table. Any thread. */
#include "core/backend/cpu/cpu_int.h"
#include "core/backend/cpu/gemm/gemm.h"

#include <stddef.h>
#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#elif defined(__aarch64__) && defined(__APPLE__)
#include <sys/sysctl.h>
#endif

static bool always_available(void) {
    return true;
}

#if defined(__x86_64__)
bool cpu_has_avx2(void) {
    unsigned a, b, c, d; /* not every compiler's __builtin_cpu_supports knows f16c */
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

bool cpu_has_avxvnni(void) {
    unsigned a, b, c, d; /* leaf 7, subleaf 1, EAX bit 4 */
    return cpu_has_avx2() && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 4 & 1);
}

/* The features that the *_avx512.c files are compiled for. */
bool cpu_has_avx512(void) {
    return cpu_has_avx2() && __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512vnni");
}
#elif defined(__aarch64__) && defined(__linux__)
/* The features that the *_neon.c files (dot product) and the *_i8mm.c files (also 8-bit matrix
 * product) are compiled for. */
bool cpu_has_neon(void) {
    return getauxval(AT_HWCAP) & HWCAP_ASIMDDP;
}

bool cpu_has_i8mm(void) {
    return cpu_has_neon() && (getauxval(AT_HWCAP2) & HWCAP2_I8MM);
}
#elif defined(__aarch64__) && defined(__APPLE__)
static bool has_feature(const char *name) {
    int yes = 0;
    size_t size = sizeof yes;
    return sysctlbyname(name, &yes, &size, NULL, 0) == 0 && yes;
}

bool cpu_has_neon(void) {
    return has_feature("hw.optional.arm.FEAT_DotProd");
}

bool cpu_has_i8mm(void) {
    return cpu_has_neon() && has_feature("hw.optional.arm.FEAT_I8MM");
}
#elif defined(__aarch64__)
bool cpu_has_neon(void) {
    return false;
}

bool cpu_has_i8mm(void) {
    return false;
}
#endif

/* Best first. */
static const struct {
    const struct gemm_isa *isa;
    bool (*available)(void);
} gemm_isas[] = {
#if defined(__x86_64__)
    {&gemm_avx512, cpu_has_avx512},
    {&gemm_avxvnni, cpu_has_avxvnni},
    {&gemm_avx2, cpu_has_avx2},
#elif defined(__aarch64__)
    {&gemm_i8mm, cpu_has_i8mm},
    {&gemm_neon, cpu_has_neon},
#endif
    {&gemm_generic, always_available},
};

const struct gemm_isa *gemm_isa_at(uint32_t i) {
    for (size_t k = 0; k < sizeof gemm_isas / sizeof gemm_isas[0]; k++)
        if (gemm_isas[k].available() && i-- == 0) return gemm_isas[k].isa;
    return NULL;
}
