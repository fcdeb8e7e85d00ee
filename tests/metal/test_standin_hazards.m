// test_standin_hazards.m - wrong bindings and wrong order, with which a real GPU would access other
// data: structs, offsets, blits, host memory, concurrent dispatches.
#include "tests/metal/standin_case.h"

#include <stdlib.h>
#include <sys/mman.h>

enum { PAGE = 16384 };

static id<MTLBuffer> new_buffer(NSUInteger length) {
    return [[device newBufferWithLength:length options:MTLResourceStorageModeShared] autorelease];
}

static void go(id<MTLComputeCommandEncoder> encoder) {
    [encoder dispatchThreadgroups:MTLSizeMake(1, 1, 1) threadsPerThreadgroup:MTLSizeMake(1, 1, 1)];
}

static const char *const arguments_source =
    "struct args { uint n; float scale; uint m; };\n"
    "kernel void k(constant args &a [[buffer(0)]], device float4 *d [[buffer(1)]],\n"
    "              constant uint *table [[buffer(2)]], device uchar *bytes [[buffer(3)]]) {\n"
    "    d[0] = a.scale + table[0]; bytes[0] = 1;\n}";

static void struct_sizes(void) {
    @autoreleasepool {
        static const char zeros[64];
        id<MTLComputeCommandEncoder> encoder = [[queue commandBuffer] computeCommandEncoder];
        [encoder setComputePipelineState:pipeline_of(arguments_source, NULL)];
        for (NSUInteger i = 1; i < 4; i++)
            [encoder setBuffer:new_buffer(256) offset:0 atIndex:i];
        [encoder setBytes:zeros length:8 atIndex:0];
        EXPECT_VIOLATION("needs 12 bytes, 8 are bound", go(encoder));
        [encoder setBytes:zeros length:16 atIndex:0];
        EXPECT_VIOLATION("is 12 bytes, setBytes: gave 16", go(encoder));
        [encoder setBytes:zeros length:12 atIndex:0];
        EXPECT_VIOLATION(NULL, go(encoder));
        [encoder setBytes:zeros length:64 atIndex:2]; // an array may have any length
        EXPECT_VIOLATION(NULL, go(encoder));
        [encoder endEncoding];
    }
}

static void offsets(void) {
    @autoreleasepool {
        static const char zeros[12];
        id<MTLBuffer> buffer = new_buffer(1024);
        id<MTLComputeCommandEncoder> encoder = [[queue commandBuffer] computeCommandEncoder];
        [encoder setComputePipelineState:pipeline_of(arguments_source, NULL)];
        [encoder setBytes:zeros length:12 atIndex:0];
        for (NSUInteger i = 1; i < 4; i++)
            [encoder setBuffer:buffer offset:256 * (i - 1) atIndex:i];
        [encoder setBufferOffset:8 atIndex:1];
        EXPECT_VIOLATION("'d' is bound at offset 8, which must be a multiple of 16", go(encoder));
        [encoder setBufferOffset:16 atIndex:1];
        [encoder setBufferOffset:257 atIndex:3];
        EXPECT_VIOLATION(NULL, go(encoder));
        [encoder setBufferOffset:4 atIndex:2];
        EXPECT_VIOLATION(NULL, go(encoder));
        metalsim_set_family("mac2");
        EXPECT_VIOLATION("'table' is bound at offset 4, which must be a multiple of 32",
                         go(encoder));
        metalsim_set_family("apple9");
        [encoder setBufferOffset:6 atIndex:2];
        EXPECT_VIOLATION("must be a multiple of 4", go(encoder));
        [encoder endEncoding];
    }
}

static void too_many_constants(void) {
    @autoreleasepool {
        NSMutableString *text = [NSMutableString stringWithString:@"kernel void k("];
        for (int i = 0; i < 15; i++)
            [text appendFormat:@"constant uint &a%d [[buffer(%d)]], ", i, i];
        [text appendString:@"device uint *d [[buffer(15)]]) { d[0] = a0 + a14; }"];
        id<MTLComputeCommandEncoder> encoder = [[queue commandBuffer] computeCommandEncoder];
        [encoder setComputePipelineState:pipeline_of(text.UTF8String, NULL)];
        for (NSUInteger i = 0; i < 16; i++)
            [encoder setBuffer:new_buffer(64) offset:0 atIndex:i];
        EXPECT_VIOLATION(NULL, go(encoder));
        metalsim_set_family("mac2");
        EXPECT_VIOLATION("15 arguments in the constant address space, this GPU takes 14",
                         go(encoder));
        metalsim_set_family("apple9");
        [encoder endEncoding];
    }
}

static void blits(void) {
    @autoreleasepool {
        id<MTLBuffer> a = new_buffer(256), b = new_buffer(256);
        unsigned char *bytes = a.contents;
        for (int i = 0; i < 256; i++)
            bytes[i] = (unsigned char)i;
        id<MTLCommandBuffer> commands = [queue commandBuffer];
        id<MTLBlitCommandEncoder> e = [commands blitCommandEncoder];
#define COPY(from, at, to, where, n)                                                               \
    [e copyFromBuffer:from sourceOffset:at toBuffer:to destinationOffset:where size:n]
        EXPECT_VIOLATION("multiples of 4", COPY(a, 2, b, 0, 8));
        EXPECT_VIOLATION("multiples of 4", COPY(a, 0, b, 6, 8));
        EXPECT_VIOLATION("multiples of 4", COPY(a, 0, b, 0, 7));
        EXPECT_VIOLATION("outside the buffer", COPY(a, 200, b, 0, 60));
        EXPECT_VIOLATION("outside the buffer", COPY(a, 0, b, 0, (NSUInteger)-4));
        EXPECT_VIOLATION("overlap", COPY(a, 0, a, 12, 16));
        EXPECT_VIOLATION("multiples of 4", [e fillBuffer:b range:NSMakeRange(2, 4) value:1]);
        EXPECT_VIOLATION("no bytes", [e fillBuffer:b range:NSMakeRange(0, 0) value:1]);
        EXPECT_VIOLATION(NULL, COPY(a, 16, a, 0, 16));
        EXPECT_VIOLATION(NULL, COPY(a, 0, b, 128, 64));
        EXPECT_VIOLATION(NULL, [e fillBuffer:b range:NSMakeRange(4, 4) value:9]);
        [e endEncoding];
        [commands commit];
        [commands waitUntilCompleted];
        unsigned char *out = b.contents;
        CHECK(bytes[0] == 16 && bytes[15] == 31 && bytes[16] == 16);
        CHECK(out[128] == 16 && out[191] == 63 && out[127] == 0 && out[192] == 0);
        CHECK(out[3] == 0 && out[4] == 9 && out[7] == 9 && out[8] == 0);
    }
}

static id<MTLBuffer> wrap(void *memory, NSUInteger length) {
    return [[device newBufferWithBytesNoCopy:memory
                                      length:length
                                     options:MTLResourceStorageModeShared
                                 deallocator:nil] autorelease];
}

// Four pages, page-aligned.
static char *map_pages(int protection) {
    char *all = mmap(NULL, 5 * PAGE, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return all + (PAGE - (uintptr_t)all % PAGE) % PAGE;
}

static void host_memory(void) {
    @autoreleasepool {
        char *pages = map_pages(PROT_READ | PROT_WRITE);
        EXPECT_VIOLATION(NULL, wrap(pages, 2 * PAGE));
        EXPECT_VIOLATION("multiples of the 16384-byte page", wrap(pages, 2 * PAGE - 4096));
        EXPECT_VIOLATION("multiples of the 16384-byte page", wrap(pages + 4096, PAGE));
        munmap(pages + PAGE, 4096);
        EXPECT_VIOLATION("not all mapped", wrap(pages, 2 * PAGE));
        EXPECT_VIOLATION(NULL, wrap(pages + 2 * PAGE, PAGE));
        metalsim_set_limits(&(struct metalsim_limits){.max_buffer_bytes = PAGE});
        CHECK(!wrap(pages + 2 * PAGE, 2 * PAGE));
        metalsim_set_limits(NULL);
    }
}

// Copies a float from buffer 0 to buffer 1; returns the error text.
static const char *copy_float(id<MTLBuffer> from, id<MTLBuffer> to) {
    const char *source = "kernel void k(device const float *a [[buffer(0)]], device float *b "
                         "[[buffer(1)]]) { b[0] = a[0] + 1; }";
    id<MTLCommandBuffer> commands = [queue commandBuffer];
    id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
    [encoder setComputePipelineState:pipeline_of(source, NULL)];
    [encoder setBuffer:from offset:0 atIndex:0];
    [encoder setBuffer:to offset:0 atIndex:1];
    go(encoder);
    [encoder endEncoding];
    [commands commit];
    [commands waitUntilCompleted];
    return commands.error.localizedDescription.UTF8String;
}

// Like a mapped model file: the GPU may read it; a write faults.
static void read_only_memory(void) {
    for (int check = 0; check < 2; check++) {
        metalsim_set_options(check, 1, 0, 1);
        @autoreleasepool {
            id<MTLBuffer> file = wrap(map_pages(PROT_READ), PAGE), own = new_buffer(64);
            CHECK(!copy_float(file, own));
            CHECK(*(float *)own.contents == 1);
            expect_report("write to the file", copy_float(own, file), "page fault");
        }
    }
}

// Two dispatches in one encoder: the second reads what the first wrote, or (apart) neither uses
// what the other does.
static const char *two_of(MTLDispatchType type, bool barrier, bool same_encoder, bool apart) {
    const char *source = "kernel void k(device const float *a [[buffer(0)]], device float *b "
                         "[[buffer(1)]]) { b[0] = a[0] + 1; }";
    id<MTLBuffer> bufs[] = {new_buffer(64), new_buffer(64), new_buffer(64), new_buffer(64)};
    const int second = apart ? 2 : 1;
    id<MTLComputePipelineState> pipeline = pipeline_of(source, NULL);
    id<MTLCommandBuffer> commands = [queue commandBuffer];
    id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoderWithDispatchType:type];
    violation[0] = 0;
    for (int i = 0; i < 2; i++) {
        [encoder setComputePipelineState:pipeline];
        [encoder setBuffer:bufs[i * second] offset:0 atIndex:0];
        [encoder setBuffer:bufs[i * second + 1] offset:0 atIndex:1];
        go(encoder);
        if (i == 0 && barrier) [encoder memoryBarrierWithScope:MTLBarrierScopeBuffers];
        if (i == 0 && !same_encoder) {
            [encoder endEncoding];
            encoder = [commands computeCommandEncoderWithDispatchType:type];
        }
    }
    [encoder endEncoding];
    [commands commit];
    [commands waitUntilCompleted];
    CHECK(*(float *)bufs[second + 1].contents == (apart ? 1 : 2));
    return violation;
}

static const char *two(MTLDispatchType type, bool barrier, bool same_encoder) {
    return two_of(type, barrier, same_encoder, false);
}

static void concurrent_dispatches(void) {
    @autoreleasepool {
        const MTLDispatchType concurrent = MTLDispatchTypeConcurrent;
        expect_report("no barrier", two(concurrent, false, true), "no memoryBarrierWithScope:");
        expect_report("barrier", two(concurrent, true, true), NULL);
        expect_report("two encoders", two(concurrent, false, false), NULL);
        expect_report("serial", two(MTLDispatchTypeSerial, false, true), NULL);
        CHECK(metalsim_barriers() == 1 && metalsim_needless_barriers() == 0);
        expect_report("apart", two_of(concurrent, false, true, true), NULL);
        expect_report("needless barrier", two_of(concurrent, true, true, true), NULL);
        CHECK(metalsim_barriers() == 2 && metalsim_needless_barriers() == 1);
    }
}

int main(void) {
    metalsim_set_violation_handler(on_violation);
    metalsim_set_options(0, 1, 0, 1);
    device = MTLCreateSystemDefaultDevice();
    queue = [device newCommandQueue];
    RUN(struct_sizes);
    RUN(offsets);
    RUN(too_many_constants);
    RUN(blits);
    RUN(host_memory);
    RUN(read_only_memory);
    RUN(concurrent_dispatches);
    return check_done();
}
