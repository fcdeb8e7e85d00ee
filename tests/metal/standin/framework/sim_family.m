// sim_family.m - the GPU that the stand-in imitates: the families it supports, its limits, and the
// shader features it accepts. Source: Apple's Metal feature set tables.
#import "tests/metal/standin/framework/sim.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct sim_family families[] = {
    {"apple7", "Apple M1", MTLGPUFamilyApple7, 8ull << 30, 12ull << 30, true, 4, 31},
    {"apple8", "Apple M2", MTLGPUFamilyApple8, 8ull << 30, 12ull << 30, true, 4, 31},
    {"apple9", "Apple M4", MTLGPUFamilyApple9, 8ull << 30, 12ull << 30, true, 4, 31},
    {"apple10", "Apple M5", MTLGPUFamilyApple10, 8ull << 30, 12ull << 30, true, 4, 31},
    {"mac2", "AMD Radeon Pro 5500M", MTLGPUFamilyMac2, 3ull << 30, 4ull << 30, false, 32, 14},
};

// Words in a shader and what they require. since: language version times 10. apple: the first Apple
// family that has the feature; 0: every GPU, including Mac2.
static const struct {
    const char *word;
    unsigned since;
    int apple;
} words[] = {
    {"simdgroup_matrix", 23, 7},
    {"simdgroup_float8x8", 23, 7},
    {"simdgroup_half8x8", 23, 7},
    {"simdgroup_bfloat8x8", 31, 7},
    {"simdgroup_multiply_accumulate", 23, 7},
    {"simdgroup_multiply", 23, 7},
    {"simdgroup_load", 23, 7},
    {"simdgroup_store", 23, 7},
    {"simd_shuffle_and_fill_up", 24, 8},
    {"simd_shuffle_and_fill_down", 24, 8},
    {"bfloat", 31, 0},
    {"bfloat2", 31, 0},
    {"bfloat3", 31, 0},
    {"bfloat4", 31, 0},
    {"atomic_float", 30, 0},
    {"atomic_ulong", 24, 8},
    {"tensor", 40, 7},
    {"cooperative_tensor", 40, 7},
    {"metal_tensor", 40, 7},
};

static const struct sim_family *current = &families[2];
static struct metalsim_limits forced;

const struct sim_family *sim_family(void) {
    return current;
}

static int set_family(const char *name) {
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (strcmp(families[i].name, name) == 0) {
            current = &families[i];
            return 0;
        }
    return -1;
}

int metalsim_set_family(const char *name) {
    sim_state_init();
    return set_family(name);
}

void metalsim_set_limits(const struct metalsim_limits *limits) {
    sim_state_init();
    forced = limits ? *limits : (struct metalsim_limits){0};
}

uint64_t sim_max_buffer_bytes(void) {
    return forced.max_buffer_bytes ? forced.max_buffer_bytes : current->max_buffer_bytes;
}

uint64_t sim_working_set_bytes(void) {
    return forced.working_set_bytes ? forced.working_set_bytes : current->working_set_bytes;
}

uint32_t sim_max_threads(void) {
    return forced.max_threads ? forced.max_threads : MSL_MAX_THREADS;
}

uint32_t sim_simd_width(void) {
    return forced.simd_width ? forced.simd_width : MSL_SIMD;
}

bool sim_supports_family(MTLGPUFamily family) {
    bool apple = current->family != MTLGPUFamilyMac2;
    switch (family) {
    case MTLGPUFamilyMac1:
    case MTLGPUFamilyMac2:
    case MTLGPUFamilyCommon1:
    case MTLGPUFamilyCommon2:
    case MTLGPUFamilyCommon3:
    case MTLGPUFamilyMetal3:
        return true;
    case MTLGPUFamilyMetal4:
        return apple;
    default:
        return apple && family >= MTLGPUFamilyApple1 && family <= current->family;
    }
}

static bool is_word(int c) {
    return isalnum(c) || c == '_';
}

static bool has_word(const char *text, const char *word) {
    size_t n = strlen(word);
    for (const char *p = text; (p = strstr(p, word)); p += n)
        if ((p == text || !is_word((unsigned char)p[-1])) && !is_word((unsigned char)p[n]))
            return true;
    return false;
}

NSString *sim_family_refuses(const char *text, MTLLanguageVersion version) {
    unsigned language = (unsigned)(version >> 16) * 10 + (unsigned)(version & 0xFFFF);
    bool apple = current->family != MTLGPUFamilyMac2;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (!has_word(text, words[i].word)) continue;
        if (language < words[i].since)
            return
                [NSString stringWithFormat:@"error: use of '%s' needs Metal %u.%u, the source is "
                                           @"compiled as Metal %u.%u",
                                           words[i].word, words[i].since / 10, words[i].since % 10,
                                           language / 10, language % 10];
        if (words[i].apple && (!apple || current->family - 1000 < words[i].apple))
            return [NSString
                stringWithFormat:@"error: '%s' needs a GPU of family Apple%d, this one is %s (%s)",
                                 words[i].word, words[i].apple, current->name, current->gpu];
    }
    return nil;
}

void sim_family_init(void) {
    const char *name = getenv("METALSIM_FAMILY");
    if (name && set_family(name) != 0)
        sim_violation("METALSIM_FAMILY=%s: want apple7, apple8, apple9, apple10 or mac2", name);
    if (getenv("METALSIM_MAX_BUFFER"))
        forced.max_buffer_bytes = strtoull(getenv("METALSIM_MAX_BUFFER"), NULL, 0);
    if (getenv("METALSIM_MAX_THREADS"))
        forced.max_threads = (uint32_t)strtoul(getenv("METALSIM_MAX_THREADS"), NULL, 0);
}
