/* standin_case.h - what the tests of the stand-in share: one device, one queue, the last violation,
 * and a kernel that is built and run in a line. */
#ifndef INFERD_TESTS_STANDIN_CASE_H
#define INFERD_TESTS_STANDIN_CASE_H

#import <Metal/Metal.h>

#include "tests/metal/standin/framework/metalsim.h"
#include "tests/unit/check.h"

#include <pthread.h>

static char violation[1024]; /* the first one since it was emptied */
static id<MTLDevice> device;
static id<MTLCommandQueue> queue;

static inline void on_violation(const char *message) {
    if (!violation[0]) snprintf(violation, sizeof violation, "%s", message);
}

/* want: part of the report, NULL: there must be none. */
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

/* A kernel k over device float *d in buffer(0), threadgroup float *t, and where its thread is. */
#define KERNEL(body) "kernel void k(device float *d [[buffer(0)]], " KERNEL_PLACE ") {" body "}"
#define KERNEL_PLACE                                                                               \
    "threadgroup float *t [[threadgroup(0)]], uint i [[thread_index_in_threadgroup]], "            \
    "uint l [[thread_index_in_simdgroup]], uint s [[simdgroup_index_in_threadgroup]], "            \
    "uint g [[threadgroup_position_in_grid]]"
#define BARRIER "threadgroup_barrier(mem_flags::mem_threadgroup);"

#endif
