/* standin_case.h - shared by the tests of the stand-in: one device, one queue, the last violation,
 * and a one-line way to build and run a kernel. */
#ifndef INFERD_TESTS_STANDIN_CASE_H
#define INFERD_TESTS_STANDIN_CASE_H

#import <Metal/Metal.h>

#include "tests/metal/standin/framework/metalsim.h"
#include "tests/unit/check.h"

#include <pthread.h>

static char violation[1024]; /* the first since it was cleared */
static id<MTLDevice> device;
static id<MTLCommandQueue> queue;

static inline void on_violation(const char *message) {
    if (!violation[0]) snprintf(violation, sizeof violation, "%s", message);
}

/* want: part of the report; NULL: no report expected. */
static inline void expect_report(const char *what, const char *got, const char *want) {
    if (!got || !got[0])
        CHECK_MSG(!want, "%s: no report, want \"%s\"", what, want);
    else
        CHECK_MSG(want && strstr(got, want), "%s: got \"%s\", want \"%s\"", what, got,
                  want ? want : "no report");
}

/* Runs a statement that misuses the API. */
#define EXPECT_VIOLATION(want, ...)                                                                \
    do {                                                                                           \
        violation[0] = 0;                                                                          \
        __VA_ARGS__;                                                                               \
        expect_report(#__VA_ARGS__, violation, want);                                              \
    } while (0)

static inline NSString *source_of(const char *text) {
    return [NSString stringWithFormat:@"#include <metal_stdlib>\nusing namespace metal;\n%s", text];
}

/* The pipeline of kernel k, autoreleased; nil with *error. */
static inline id<MTLComputePipelineState> pipeline_of(const char *text, NSError **error) {
    id<MTLLibrary> library = [[device newLibraryWithSource:source_of(text) options:nil
                                                     error:error] autorelease];
    if (!library) return nil;
    id<MTLFunction> function = [[library newFunctionWithName:@"k"] autorelease];
    return [[device newComputePipelineStateWithFunction:function error:error] autorelease];
}

/* A kernel k with device float *d in buffer(0), threadgroup float *t, and the thread's indices. */
#define KERNEL(body) "kernel void k(device float *d [[buffer(0)]], " KERNEL_PLACE ") {" body "}"
#define KERNEL_PLACE                                                                               \
    "threadgroup float *t [[threadgroup(0)]], uint i [[thread_index_in_threadgroup]], "            \
    "uint l [[thread_index_in_simdgroup]], uint s [[simdgroup_index_in_threadgroup]], "            \
    "uint g [[threadgroup_position_in_grid]]"
#define BARRIER "threadgroup_barrier(mem_flags::mem_threadgroup);"

#endif
