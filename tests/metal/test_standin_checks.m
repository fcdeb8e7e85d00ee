// test_standin_checks.m - kernels with mistakes, which the stand-in must report, and correct
// variants of them, for which it must report nothing.
#include "tests/metal/standin_case.h"

struct kernel_case {
    const char *what, *source, *want; // want NULL: clean
    int n_floats, tg_bytes, n_groups, n_threads;
};

// Runs kernel k over buffer(0) of floats 0, 1, 2, ...; returns the violation or the error.
static void run_case(const struct kernel_case *c) {
    @autoreleasepool {
        NSError *error = nil;
        violation[0] = 0;
        id<MTLComputePipelineState> pipeline = pipeline_of(c->source, &error);
        if (!pipeline) {
            expect_report(c->what, error.localizedDescription.UTF8String, c->want);
            return;
        }
        id<MTLBuffer> buffer = [[device newBufferWithLength:(NSUInteger)c->n_floats * 4
                                                    options:0] autorelease];
        buffer.label = @"data";
        for (int i = 0; i < c->n_floats; i++)
            ((float *)buffer.contents)[i] = (float)i;
        id<MTLCommandBuffer> commands = [queue commandBuffer];
        id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
        [encoder setComputePipelineState:pipeline];
        [encoder setBuffer:buffer offset:0 atIndex:0];
        if (c->tg_bytes) [encoder setThreadgroupMemoryLength:(NSUInteger)c->tg_bytes atIndex:0];
        [encoder dispatchThreadgroups:MTLSizeMake((NSUInteger)c->n_groups, 1, 1)
                threadsPerThreadgroup:MTLSizeMake((NSUInteger)c->n_threads, 1, 1)];
        [encoder endEncoding];
        [commands commit];
        [commands waitUntilCompleted];
        const char *report =
            violation[0] ? violation : commands.error.localizedDescription.UTF8String;
        expect_report(c->what, report, c->want);
    }
}

#define RUN_CASES(cases)                                                                           \
    for (size_t i_case = 0; i_case < sizeof cases / sizeof *cases; i_case++)                       \
    run_case(&cases[i_case])

static void bounds_and_initialisation(void) {
    static const struct kernel_case cases[] = {
        {"read one past the end", KERNEL("d[i] = d[i + 1]; t[i] = 0;"),
         "past the end of buffer(0) 'data'", 1, 256, 1, 1},
        {"write before the buffer", KERNEL("d[int(i) - 1] = 1; t[i] = 0;"), "before buffer(0)", 64,
         256, 1, 64},
        {"write past threadgroup memory", KERNEL("t[i + 64] = d[i];"),
         "outside every threadgroup allocation", 64, 256, 1, 64},
        {"uninitialised threadgroup memory", KERNEL("d[i] = t[i];"),
         "uninitialised threadgroup memory", 64, 256, 1, 64},
        {"a vector copied to threadgroup memory and back",
         KERNEL("((threadgroup float4 *)t)[i] = ((device float4 *)d)[i]; " BARRIER
                " ((device float4 *)d)[i] = ((threadgroup float4 *)t)[i];"),
         NULL, 256, 1024, 1, 64},
        {"a vector copied from uninitialised threadgroup memory",
         KERNEL("((device float4 *)d)[i] = ((threadgroup float4 *)t)[i];"),
         "uninitialised threadgroup memory", 256, 1024, 1, 64},
        {"a vector copied past the end",
         KERNEL("((threadgroup float4 *)t)[i] = ((device float4 *)d)[i + 1];"),
         "past the end of buffer(0)", 256, 1024, 1, 64},
        {"static threadgroup memory above 32 KB",
         KERNEL("threadgroup float big[8000]; big[i] = d[i]; t[i] = 0; d[i] = big[i];"),
         "threadgroup memory", 64, 1024, 1, 64},
        {"static threadgroup array overrun",
         KERNEL("threadgroup float a[32]; threadgroup float b[32]; if (i < 32) { a[i] = 0; b[i] = "
                "0; } " BARRIER " a[i] = d[i]; t[i] = b[0];"),
         "threadgroup", 64, 256, 1, 64},
        {"const buffer written through a cast",
         "kernel void k(device const float *d [[buffer(0)]], " KERNEL_PLACE
         ") { ((device float *)d)[i] = t[i] = 1; }",
         "bound const", 64, 256, 1, 64},
        {"misuse of uninitialised private variable",
         KERNEL(
             "float v; if (d[0] > 1e9f) v = 1; d[i] = v; t[i] = 0; if (isnan(v)) d[1 << 20] = 0;"),
         "out of bounds", 64, 256, 1, 64},
        {"private memory too large",
         KERNEL("float big[40000]; for (int j = 0; j < 40000; j++) big[j] = d[0]; d[i] = "
                "big[int(d[i])]; t[i] = 0;"),
         "overflow", 64, 256, 1, 1},
    };
    RUN_CASES(cases);
}

static void barriers_and_races(void) {
    static const struct kernel_case cases[] = {
        {"clean: neighbour exchange with barrier",
         KERNEL("t[i] = d[i]; " BARRIER " d[i] = t[(i + 1) % 64];"), NULL, 64, 256, 1, 64},
        {"missing barrier (write, read)", KERNEL("t[i] = d[i]; d[i] = t[(i + 33) % 64];"),
         "threadgroup memory", 64, 256, 1, 64},
        {"missing barrier (read, write)",
         KERNEL("t[i] = d[i]; " BARRIER " float v = t[(i + 1) % 64]; t[i] = v * 2;"),
         "race on threadgroup memory", 64, 256, 1, 64},
        {"mem_none barrier instead of threadgroup",
         KERNEL("t[i] = d[i]; threadgroup_barrier(mem_flags::mem_none); d[i] = t[(i + 33) % 64];"),
         "race on threadgroup memory", 64, 256, 1, 64},
        {"mem_device data under mem_threadgroup barrier",
         KERNEL("d[i] = 1; t[i] = 0; " BARRIER " t[i] = d[(i + 1) % 64];"), "race on buffer(0)", 64,
         256, 1, 64},
        {"clean: device data, mem_device barrier",
         KERNEL("d[i] = 1; t[i] = 0; threadgroup_barrier(mem_flags::mem_device); t[i] = d[(i + 1) "
                "% 64];"),
         NULL, 64, 256, 1, 64},
        {"race between threadgroups", KERNEL("d[i] = g; t[i] = 0;"), "race on buffer(0)", 64, 256,
         2, 64},
        {"race inside a simdgroup", KERNEL("t[i] = d[i]; d[i] = t[i ^ 1];"), "threadgroup memory",
         64, 256, 1, 64},
        {"clean: simdgroup_barrier inside a simdgroup",
         KERNEL("t[i] = d[i]; simdgroup_barrier(mem_flags::mem_threadgroup); d[i] = t[i ^ 1];"),
         NULL, 64, 256, 1, 64},
        {"simdgroup_barrier(mem_none) orders nothing",
         KERNEL("t[i] = d[i]; simdgroup_barrier(mem_flags::mem_none); d[i] = t[i ^ 1];"),
         "race on threadgroup memory", 64, 256, 1, 64},
    };
    RUN_CASES(cases);
}

static void divergence(void) {
    static const struct kernel_case cases[] = {
        {"divergent barrier (early return)",
         KERNEL("if (i >= 40) return; t[i] = d[i]; " BARRIER " d[i] = t[i];"),
         "divergent threadgroup_barrier", 64, 256, 1, 64},
        {"divergent barrier (if/else)",
         KERNEL("t[i] = 0; if (i < 32) { " BARRIER "\n d[i] = 1; } else { " BARRIER " }"),
         "divergent threadgroup_barrier", 64, 256, 1, 64},
        {"divergent simd_sum",
         KERNEL("t[i] = 0; float v = d[i]; if (l < 16) {\n v = simd_sum(v);\n } else {\n v = "
                "simd_sum(v * 2);\n } d[i] = v;"),
         "divergent simdgroup operation", 64, 256, 1, 64},
        {"simd op against barrier",
         KERNEL("t[i] = 0; float v = d[i]; if (l == 0) {\n v = simd_sum(v);\n } " BARRIER
                " d[i] = v;"),
         "divergent simdgroup operation", 64, 256, 1, 64},
        {"clean: simd_sum in one simdgroup only",
         KERNEL("t[i] = 0; float v = d[i]; if (s == 0) v = simd_sum(v); " BARRIER " d[i] = v;"),
         NULL, 64, 256, 1, 64},
        {"clean: partial simdgroup (40 threads)", KERNEL("t[i] = 0; d[i] = simd_sum(1.0f);"), NULL,
         64, 256, 1, 40},
    };
    RUN_CASES(cases);
}

static void language_rules(void) {
    static const struct kernel_case cases[] = {
        {"double", KERNEL("double x = d[i]; d[i] = x; t[i] = 0;"), "double is not an MSL type", 64,
         256, 1, 64},
        {"recursion",
         "float f(float x) { return x < 1 ? x : f(x - 1); }\n" KERNEL("d[i] = f(d[i]); t[i] = 0;"),
         "recursive", 64, 256, 1, 64},
        {"pointer parameter without address space",
         "void f(float *x) { *x = 1; }\n" KERNEL("float v; f(&v); d[i] = v; t[i] = 0;"),
         "no address space", 64, 256, 1, 64},
        {"local pointer without address space", KERNEL("float *p = d; p[i] = 0; t[i] = 0;"),
         "no address space", 64, 256, 1, 64},
        {"array sized by a function constant",
         "constant int N [[function_constant(0)]];\n" KERNEL(
             "float a[N]; a[0] = d[i]; d[i] = a[0]; t[i] = 0;"),
         "variable length array", 64, 256, 1, 64},
        {"virtual", "struct A { virtual int f(); };\n" KERNEL("d[i] = 0; t[i] = 0;"),
         "virtual functions", 64, 256, 1, 64},
        {"clean: if constexpr is only a warning", KERNEL("if constexpr (true) d[i] = 0; t[i] = 0;"),
         NULL, 64, 256, 1, 64},
        {"vector types are not converted silently",
         KERNEL("float4 v = half4(1.0h); d[i] = v.x; t[i] = 0;"), "no viable conversion", 64, 256,
         1, 64},
        {"max(float, int) is ambiguous", KERNEL("d[i] = max(d[i], 0); t[i] = 0;"), "error", 64, 256,
         1, 64},
        {"program-scope variable not constant", "float g = 1;\n" KERNEL("d[i] = g; t[i] = 0;"),
         "program-scope", 64, 256, 1, 64},
        {"undeclared identifier, line number", KERNEL("\n\n d[i] = nope; t[i] = 0;"),
         "program_source:5", 64, 256, 1, 64},
    };
    RUN_CASES(cases);
}

static void plain_mode(void) {
    static const struct kernel_case cases[] = {
        {"plain: page fault past the buffer", KERNEL("d[i + 4096] = 1; t[i] = 0;"), "page fault",
         64, 256, 1, 64},
        {"plain: divergent barrier",
         KERNEL("if (i >= 40) return; t[i] = d[i]; " BARRIER " d[i] = t[i];"),
         "divergent threadgroup_barrier", 64, 256, 1, 64},
        {"plain: uninitialised threadgroup memory is NaN", KERNEL("if (isnan(t[i])) d[1200] = 1;"),
         "page fault", 64, 256, 1, 64},
    };
    metalsim_set_options(0, 2, 0, 1);
    RUN_CASES(cases);
}

int main(int argc, char **argv) {
    metalsim_set_violation_handler(on_violation);
    // shuffle: 0 ascending, 1 random, 2 descending
    for (int shuffle = 0; shuffle < 3; shuffle++) {
        if (argc > 1 && argv[1][0] != '0' + shuffle) continue;
        printf("-- order of threads %d\n", shuffle);
        metalsim_set_options(1, 1, shuffle, 1);
        device = MTLCreateSystemDefaultDevice();
        queue = [device newCommandQueue];
        RUN(bounds_and_initialisation);
        RUN(barriers_and_races);
        RUN(divergence);
        if (shuffle == 0) RUN(language_rules);
        RUN(plain_mode);
        [queue release];
        [device release];
    }
    return check_done();
}
