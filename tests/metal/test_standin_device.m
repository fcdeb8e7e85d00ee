// test_standin_device.m - the stand-in as other GPUs, with an older language version, and with
// failures.
#include "tests/metal/standin_case.h"

static const char *const matrix_source =
    "#include <metal_simdgroup_matrix>\n"
    "kernel void k(device float *d [[buffer(0)]]) {\n"
    "    simdgroup_float8x8 m; simdgroup_load(m, d, 8); simdgroup_store(m, d, 8);\n}";
static const char *const bfloat_source =
    "kernel void k(device float *d [[buffer(0)]]) { d[0] = float(bfloat(d[1])); }";

static void family(void) {
    static const struct {
        const char *name;
        BOOL apple7, apple8, apple9, apple10, mac2, metal3, metal4, unified;
    } rows[] = {
        {"apple7", YES, NO, NO, NO, YES, YES, YES, YES},
        {"apple8", YES, YES, NO, NO, YES, YES, YES, YES},
        {"apple9", YES, YES, YES, NO, YES, YES, YES, YES},
        {"apple10", YES, YES, YES, YES, YES, YES, YES, YES},
        {"mac2", NO, NO, NO, NO, YES, YES, NO, NO},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        CHECK(metalsim_set_family(rows[i].name) == 0);
        CHECK([device supportsFamily:MTLGPUFamilyApple7] == rows[i].apple7);
        CHECK([device supportsFamily:MTLGPUFamilyApple8] == rows[i].apple8);
        CHECK([device supportsFamily:MTLGPUFamilyApple9] == rows[i].apple9);
        CHECK([device supportsFamily:MTLGPUFamilyApple10] == rows[i].apple10);
        CHECK([device supportsFamily:MTLGPUFamilyMac2] == rows[i].mac2);
        CHECK([device supportsFamily:MTLGPUFamilyMetal3] == rows[i].metal3);
        CHECK([device supportsFamily:MTLGPUFamilyMetal4] == rows[i].metal4);
        CHECK(device.hasUnifiedMemory == rows[i].unified);
        CHECK(device.maxThreadgroupMemoryLength == 32768);
    }
    CHECK(metalsim_set_family("apple6") == -1 && metalsim_set_family("") == -1);
}

// Error text from compiling a source; NULL if it compiles.
static const char *build_error(const char *text, MTLLanguageVersion version) {
    NSError *error = nil;
    MTLCompileOptions *options = [[MTLCompileOptions new] autorelease];
    options.languageVersion = version;
    id<MTLLibrary> library = [[device newLibraryWithSource:source_of(text)
                                                   options:options
                                                     error:&error] autorelease];
    return library ? NULL : error.localizedDescription.UTF8String;
}

static void features_of_families(void) {
    @autoreleasepool {
        metalsim_set_family("mac2");
        expect_report("matrix on mac2", build_error(matrix_source, MTLLanguageVersion3_1),
                      "'simdgroup_float8x8' needs a GPU of family Apple7");
        metalsim_set_family("apple7");
        expect_report("matrix on M1", build_error(matrix_source, MTLLanguageVersion3_1), NULL);
    }
}

static void language_versions(void) {
    @autoreleasepool {
        metalsim_set_family("apple9");
        expect_report("bfloat in 3.0", build_error(bfloat_source, MTLLanguageVersion3_0),
                      "'bfloat' needs Metal 3.1");
        expect_report("bfloat in 3.1", build_error(bfloat_source, MTLLanguageVersion3_1), NULL);
        expect_report("matrix in 3.0", build_error(matrix_source, MTLLanguageVersion3_0), NULL);
        // text removed by the preprocessor, and comments, do not count
        expect_report("guarded",
                      build_error("#if __METAL_VERSION__ >= 310\ntypedef bfloat wide;\n#endif\n"
                                  "kernel void k(device float *d [[buffer(0)]]) { d[0] = 1; /* "
                                  "bfloat */ }",
                                  MTLLanguageVersion3_0),
                      NULL);
    }
}

static void limits(void) {
    @autoreleasepool {
        id<MTLComputePipelineState> pipeline =
            pipeline_of(KERNEL("d[i] = float(i); t[i] = 0;"), NULL);
        struct metalsim_limits small = {
            .max_buffer_bytes = 65536, .working_set_bytes = 1 << 20, .max_threads = 256};
        CHECK(pipeline.maxTotalThreadsPerThreadgroup == 384); /* it has no attribute for more */
        metalsim_set_limits(&small);
        CHECK(pipeline.maxTotalThreadsPerThreadgroup == 256);
        CHECK(device.maxBufferLength == 65536);
        CHECK(device.recommendedMaxWorkingSetSize == 1 << 20);
        CHECK([[device newBufferWithLength:65536 options:0] autorelease]);
        CHECK(![device newBufferWithLength:65537 options:0]);
        id<MTLComputeCommandEncoder> encoder = [[queue commandBuffer] computeCommandEncoder];
        [encoder setComputePipelineState:pipeline];
        EXPECT_VIOLATION("512 threads per threadgroup, the limit is 256",
                         [encoder dispatchThreadgroups:MTLSizeMake(1, 1, 1)
                                 threadsPerThreadgroup:MTLSizeMake(512, 1, 1)]);
        [encoder endEncoding];
        metalsim_set_limits(NULL);
        CHECK(pipeline.maxTotalThreadsPerThreadgroup == 384);
    }
}

// ---- failures ----

static id<MTLComputePipelineState> adder; // adds 1 to every float

// Commits n dispatches over buffer as one command buffer and waits; returns its error code, 0:
// none.
static NSInteger run(id<MTLBuffer> buffer, int n) {
    id<MTLCommandBuffer> commands = [queue commandBuffer];
    id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
    [encoder setComputePipelineState:adder];
    [encoder setBuffer:buffer offset:0 atIndex:0];
    [encoder setThreadgroupMemoryLength:256 atIndex:0];
    for (int i = 0; i < n; i++)
        [encoder dispatchThreadgroups:MTLSizeMake(1, 1, 1)
                threadsPerThreadgroup:MTLSizeMake(64, 1, 1)];
    [encoder endEncoding];
    [commands commit];
    [commands waitUntilCompleted];
    CHECK((commands.status == MTLCommandBufferStatusError) == (commands.error != nil));
    return commands.error.code;
}

static void new_queue(void) {
    [queue release];
    queue = [device newCommandQueue];
}

static void failing_commands(void) {
    static const struct {
        const char *spec;
        NSInteger code;
    } rows[] = {
        {"command=2:internal", MTLCommandBufferErrorInternal},
        {"command=2:timeout", MTLCommandBufferErrorTimeout},
        {"command=2:pagefault", MTLCommandBufferErrorPageFault},
        {"command=2:oom", MTLCommandBufferErrorOutOfMemory},
        {"command=2:revoked", MTLCommandBufferErrorAccessRevoked},
        {"command=2:denied", MTLCommandBufferErrorNotPermitted},
        {"command=2:resource", MTLCommandBufferErrorInvalidResource},
        {"command=2:memoryless", MTLCommandBufferErrorMemoryless},
        {"command=2:stack", MTLCommandBufferErrorStackOverflow},
    };
    @autoreleasepool {
        id<MTLBuffer> buffer = [[device newBufferWithLength:256 options:0] autorelease];
        float *values = buffer.contents;
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            CHECK(metalsim_set_faults(rows[i].spec) == 0);
            values[0] = 0;
            CHECK(run(buffer, 4) == 0 && values[0] == 4);
            CHECK_MSG(run(buffer, 4) == rows[i].code, "%s", rows[i].spec);
            CHECK(values[0] == 6); // half of it was executed
            CHECK(run(buffer, 4) == MTLCommandBufferErrorAccessRevoked && values[0] == 6);
            new_queue();
            CHECK(run(buffer, 4) == 0 && values[0] == 10);
        }
        CHECK(metalsim_set_faults("command=1:lost") == 0);
        CHECK(run(buffer, 1) == MTLCommandBufferErrorDeviceRemoved);
        new_queue();
        values[0] = 0;
        CHECK(run(buffer, 2) == MTLCommandBufferErrorAccessRevoked);
        CHECK(values[0] < 2);
        CHECK(metalsim_set_faults(NULL) == 0);
        new_queue();
        CHECK(run(buffer, 1) == 0);
    }
}

static void failing_objects(void) {
    @autoreleasepool {
        NSError *error = nil;
        CHECK(metalsim_set_faults("buffer=2,library=1,pipeline=1,queue=1") == 0);
        CHECK([[device newBufferWithLength:64 options:0] autorelease]);
        CHECK(![device newBufferWithLength:64 options:0]);
        CHECK([[device newBufferWithLength:64 options:0] autorelease]);
        CHECK(![device newCommandQueue]);
        CHECK(!pipeline_of(KERNEL("d[i] += 1; t[i] = 0;"), &error) && error);
        error = nil; // the library is cached now, the pipeline is not
        CHECK(!pipeline_of(KERNEL("d[i] += 1; t[i] = 0;"), &error) && error);
        CHECK(pipeline_of(KERNEL("d[i] += 1; t[i] = 0;"), NULL));
        CHECK(metalsim_set_faults("nodevice") == 0);
        CHECK(!MTLCreateSystemDefaultDevice());
        CHECK([MTLCopyAllDevices() autorelease].count == 0);
        CHECK(metalsim_set_faults("") == 0);
        CHECK(metalsim_set_faults("command=1:cold") == -1);
        CHECK(metalsim_set_faults("command=1") == -1 && metalsim_set_faults("buffer") == -1);
    }
}

// The host sees old bytes until it waits.
static void delay(void) {
    @autoreleasepool {
        id<MTLBuffer> buffer = [[device newBufferWithLength:256 options:0] autorelease];
        volatile float *values = buffer.contents;
        metalsim_set_delay_ms(200);
        values[0] = 7;
        id<MTLCommandBuffer> commands = [queue commandBuffer];
        id<MTLBlitCommandEncoder> encoder = [commands blitCommandEncoder];
        [encoder fillBuffer:buffer range:NSMakeRange(0, 256) value:0];
        [encoder endEncoding];
        [commands commit];
        CHECK(values[0] == 7);
        [commands waitUntilCompleted];
        CHECK(values[0] == 0);
        metalsim_set_delay_ms(0);
    }
}

static void nothing_left(void) {
    [adder release];
    [queue release];
    [device release];
    for (int i = 0; i < 1000 && metalsim_live_all(); i++)
        [NSThread sleepForTimeInterval:0.001]; // the GPU thread releases its last command buffer
    CHECK_MSG(metalsim_live_all() == 0, "%ld objects are left", metalsim_live_all());
}

int main(void) {
    metalsim_set_violation_handler(on_violation);
    metalsim_set_options(0, 1, 0, 1);
    device = MTLCreateSystemDefaultDevice();
    queue = [device newCommandQueue];
    RUN(family);
    RUN(features_of_families);
    RUN(language_versions);
    RUN(limits);
    @autoreleasepool {
        adder = [pipeline_of(KERNEL("d[i] += 1; t[i] = 0;"), NULL) retain];
    }
    RUN(failing_commands);
    RUN(failing_objects);
    RUN(delay);
    RUN(nothing_left);
    return check_done();
}
