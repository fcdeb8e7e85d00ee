// test_standin_api.m - misuse of the host API that the stand-in must report, correct use that it
// must accept, and its counts of live objects.
#include "tests/metal/standin_case.h"

static const MTLSize one = {1, 1, 1}, lanes = {32, 1, 1};

static id<MTLBuffer> new_buffer(NSUInteger length) {
    return [device newBufferWithLength:length options:MTLResourceStorageModeShared];
}

static void dispatch(id<MTLComputeCommandEncoder> encoder) {
    [encoder dispatchThreadgroups:one threadsPerThreadgroup:lanes];
}

static void dispatch_rules(void) {
    @autoreleasepool {
        id<MTLComputePipelineState> pipeline = pipeline_of(KERNEL("d[i] = 0; t[i] = 0;"), NULL);
        id<MTLBuffer> buffer = [new_buffer(4096) autorelease];
        id<MTLComputeCommandEncoder> encoder = [[queue commandBuffer] computeCommandEncoder];
        EXPECT_VIOLATION("without a pipeline", dispatch(encoder));
        [encoder setComputePipelineState:pipeline];
        EXPECT_VIOLATION("nothing bound at buffer(0) 'd'", dispatch(encoder));
        [encoder setBuffer:buffer offset:0 atIndex:0];
        EXPECT_VIOLATION("threadgroup(0) 't'", dispatch(encoder));
        EXPECT_VIOLATION("multiple of 16", [encoder setThreadgroupMemoryLength:100 atIndex:0]);
        [encoder setThreadgroupMemoryLength:32768 + 16 atIndex:0];
        EXPECT_VIOLATION("the limit is 32768", dispatch(encoder));
        [encoder setThreadgroupMemoryLength:256 atIndex:0];
        EXPECT_VIOLATION("the limit is 384", [encoder dispatchThreadgroups:one
                                                     threadsPerThreadgroup:MTLSizeMake(385, 1, 1)]);
        EXPECT_VIOLATION("empty grid", [encoder dispatchThreadgroups:MTLSizeMake(0, 1, 1)
                                               threadsPerThreadgroup:lanes]);
        EXPECT_VIOLATION(NULL, dispatch(encoder));
        [encoder endEncoding];
    }
}

static void binding_rules(void) {
    @autoreleasepool {
        id<MTLComputePipelineState> pipeline = pipeline_of(KERNEL("d[i] = 0; t[i] = 0;"), NULL);
        id<MTLBuffer> buffer = [new_buffer(4096) autorelease];
        id<MTLComputeCommandEncoder> encoder = [[queue commandBuffer] computeCommandEncoder];
        [encoder setComputePipelineState:pipeline];
        [encoder setThreadgroupMemoryLength:256 atIndex:0];
        EXPECT_VIOLATION("not inside the buffer", [encoder setBuffer:buffer offset:4096 atIndex:1]);
        EXPECT_VIOLATION("the limit is 30", [encoder setBuffer:buffer offset:0 atIndex:31]);
        EXPECT_VIOLATION("without a buffer", [encoder setBufferOffset:16 atIndex:2]);
        EXPECT_VIOLATION("must be 1..4096", [encoder setBytes:buffer.contents
                                                       length:4097
                                                      atIndex:1]);
        [encoder setBytes:"xxxx" length:4 atIndex:0];
        EXPECT_VIOLATION("setBytes data bound to writable", dispatch(encoder));
        [encoder endEncoding];
    }
}

static void order_of_calls(void) {
    @autoreleasepool {
        id<MTLBuffer> buffer = [new_buffer(4096) autorelease];
        id<MTLCommandBuffer> commands = [queue commandBuffer];
        id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
        EXPECT_VIOLATION("second encoder", [commands computeCommandEncoder]);
        EXPECT_VIOLATION("encoder is open", [commands commit]);
        EXPECT_VIOLATION("before commit", [commands waitUntilCompleted]);
        [encoder endEncoding];
        EXPECT_VIOLATION("after endEncoding", [encoder setBuffer:buffer offset:0 atIndex:0]);
        EXPECT_VIOLATION("endEncoding twice", [encoder endEncoding]);
        [commands commit];
        [commands waitUntilCompleted];
        CHECK(commands.status == MTLCommandBufferStatusCompleted);
        EXPECT_VIOLATION("commit twice", [commands commit]);
        EXPECT_VIOLATION("after commit", [commands addCompletedHandler:^(id<MTLCommandBuffer> c) {
                             (void)c;
                         }]);
        EXPECT_VIOLATION("encoder requested after commit", [commands blitCommandEncoder]);
    }
}

static void encoder_left_open(void) {
    violation[0] = 0;
    @autoreleasepool {
        [[queue commandBuffer] computeCommandEncoder];
    }
    expect_report("an encoder is dropped", violation, "released without endEncoding");
}

static void buffers(void) {
    @autoreleasepool {
        id<MTLBuffer> buffer = [new_buffer(65536) autorelease];
        EXPECT_VIOLATION("16384", [device newBufferWithBytesNoCopy:(char *)buffer.contents + 64
                                                            length:16384
                                                           options:0
                                                       deallocator:nil]);
        EXPECT_VIOLATION("16384", [device newBufferWithBytesNoCopy:(void *)(uintptr_t)(1 << 30)
                                                            length:4096
                                                           options:0
                                                       deallocator:nil]);
        id<MTLBuffer> own =
            [[device newBufferWithLength:64 options:MTLResourceStorageModePrivate] autorelease];
        EXPECT_VIOLATION("private buffer", [own contents]);
        EXPECT_VIOLATION("not managed", [buffer didModifyRange:NSMakeRange(0, 4)]);
        CHECK([device newBufferWithLength:0 options:0] == nil);
        CHECK([device newBufferWithLength:device.maxBufferLength + 1 options:0] == nil);
    }
}

static void function_constants(void) {
    @autoreleasepool {
        NSError *error = nil;
        id<MTLLibrary> library = [[device
            newLibraryWithSource:source_of(
                                     "constant int N [[function_constant(3)]];\n"
                                     "constant bool M [[function_constant(4)]];\n"
                                     "kernel void k(device int *d [[buffer(0)]]) { d[0] = N; }\n"
                                     "kernel void q(device int *d [[buffer(0)]]) { d[0] = M; }\n")
                         options:nil
                           error:NULL] autorelease];
        CHECK([library.functionNames containsObject:@"q"] && library.functionNames.count == 2);
        MTLFunctionConstantValues *values = [[MTLFunctionConstantValues new] autorelease];
        int n = 7;
        CHECK(![library newFunctionWithName:@"k" constantValues:values error:&error]);
        expect_report("no value", error.localizedDescription.UTF8String,
                      "no value for function constant(s) N");
        [values setConstantValue:&n type:MTLDataTypeUInt atIndex:3];
        CHECK(![library newFunctionWithName:@"k" constantValues:values error:&error]);
        expect_report("wrong type", error.localizedDescription.UTF8String, "declared int");
        [values setConstantValue:&n type:MTLDataTypeInt atIndex:3];
        CHECK([[library newFunctionWithName:@"k" constantValues:values error:NULL] autorelease]);
        CHECK(![library newFunctionWithName:@"nope" constantValues:values error:&error]);
        expect_report("unknown function", error.localizedDescription.UTF8String, "not found");
        id<MTLFunction> q = [[library newFunctionWithName:@"q"] autorelease];
        CHECK(![device newComputePipelineStateWithFunction:q error:&error]);
        expect_report("not specialised", error.localizedDescription.UTF8String, "unspecialised");
    }
}

// Encodes one dispatch of k; the command buffer is not committed.
static id<MTLCommandBuffer> encode(id<MTLCommandBuffer> commands,
                                   id<MTLComputePipelineState> pipeline, id<MTLBuffer> buffer) {
    id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
    [encoder setComputePipelineState:pipeline];
    [encoder setBuffer:buffer offset:0 atIndex:0];
    [encoder setThreadgroupMemoryLength:4096 atIndex:0];
    dispatch(encoder);
    [encoder endEncoding];
    return commands;
}

static void released_in_flight(void) {
    @autoreleasepool {
        id<MTLComputePipelineState> pipeline = pipeline_of(KERNEL("d[i] = 0; t[i] = 0;"), NULL);
        id<MTLBuffer> buffer = new_buffer(4096);
        encode([queue commandBufferWithUnretainedReferences], pipeline, buffer);
        EXPECT_VIOLATION("in flight", [buffer release]);
    }
}

// An encoded command buffer may be dropped without commit: nothing runs, nothing leaks.
static void dropped_command_buffer(void) {
    @autoreleasepool {
        id<MTLComputePipelineState> pipeline = pipeline_of(KERNEL("d[i] = 1; t[i] = 0;"), NULL);
        long before = metalsim_live_all();
        NSUInteger bytes = device.currentAllocatedSize;
        violation[0] = 0;
        @autoreleasepool {
            id<MTLBuffer> buffer = [new_buffer(4096) autorelease];
            id<MTLCommandBuffer> commands = encode([queue commandBuffer], pipeline, buffer);
            [commands addCompletedHandler:^(id<MTLCommandBuffer> c) {
                (void)c;
                CHECK(!"a handler of a command buffer that was never committed");
            }];
        }
        CHECK_STR(violation, "");
        CHECK_MSG(metalsim_live_all() == before, "%ld objects are left",
                  metalsim_live_all() - before);
        CHECK(device.currentAllocatedSize == bytes);
    }
}

static void too_many_command_buffers(void) {
    @autoreleasepool {
        id<MTLCommandQueue> two = [[device newCommandQueueWithMaxCommandBufferCount:2] autorelease];
        EXPECT_VIOLATION("never return", {
            for (int i = 0; i < 3; i++)
                [two commandBuffer];
        });
        // if one is committed, the third waits for it
        id<MTLCommandQueue> other =
            [[device newCommandQueueWithMaxCommandBufferCount:2] autorelease];
        EXPECT_VIOLATION(NULL, {
            [[other commandBuffer] commit];
            [other commandBuffer];
            [other commandBuffer];
        });
    }
}

static void live_objects(void) {
    @autoreleasepool {
        id<MTLComputePipelineState> pipeline = pipeline_of(KERNEL("d[i] = i; t[i] = 0;"), NULL);
        id<MTLBuffer> buffer = [new_buffer(4096) autorelease];
        long before[METALSIM_N_KINDS];
        for (int i = 0; i < METALSIM_N_KINDS; i++)
            before[i] = metalsim_live(i);
        CHECK(before[METALSIM_PIPELINE] == 1 && before[METALSIM_QUEUE] == 1);
        NSUInteger bytes = device.currentAllocatedSize;
        for (int round = 0; round < 1000; round++) {
            @autoreleasepool {
                id<MTLCommandBuffer> commands = encode([queue commandBuffer], pipeline, buffer);
                [commands commit];
                [commands waitUntilCompleted];
            }
            CHECK(device.currentAllocatedSize == bytes);
        }
        // the GPU thread releases the last one after waitUntilCompleted returns
        for (int i = 0; i < 1000 && metalsim_live(METALSIM_COMMAND_BUFFER); i++)
            [NSThread sleepForTimeInterval:0.001];
        for (int i = 0; i < METALSIM_N_KINDS; i++)
            CHECK_MSG(metalsim_live(i) == before[i], "%s: %ld, %ld before", metalsim_kind_name(i),
                      metalsim_live(i), before[i]);
        // a leaked object is counted
        id<MTLBuffer> leak = new_buffer(64);
        CHECK(metalsim_live(METALSIM_BUFFER) == before[METALSIM_BUFFER] + 1);
        CHECK(device.currentAllocatedSize > bytes);
        [leak release];
    }
}

static void over_release(void) {
    @autoreleasepool {
        id<MTLBuffer> buffer = new_buffer(64);
        EXPECT_VIOLATION(NULL, [buffer release]);
        EXPECT_VIOLATION("over-release: release sent to a deallocated buffer", [buffer release]);
        EXPECT_VIOLATION("contents sent to a deallocated buffer", [buffer contents]);
        EXPECT_VIOLATION("retain sent to a deallocated buffer", [buffer retain]);
    }
}

static void *without_pool(void *unused) {
    (void)unused;
    [queue commandBuffer];
    return NULL;
}

static void autorelease_without_pool(void) {
    pthread_t thread;
    EXPECT_VIOLATION("command buffer autoreleased in a thread without a pool", {
        pthread_create(&thread, NULL, without_pool, NULL);
        pthread_join(thread, NULL);
    });
}

int main(void) {
    metalsim_set_violation_handler(on_violation);
    metalsim_set_options(1, 1, 0, 1);
    device = MTLCreateSystemDefaultDevice();
    queue = [device newCommandQueue];
    RUN(live_objects);
    RUN(dispatch_rules);
    RUN(binding_rules);
    RUN(order_of_calls);
    RUN(encoder_left_open);
    RUN(buffers);
    RUN(function_constants);
    RUN(released_in_flight);
    RUN(dropped_command_buffer);
    RUN(too_many_command_buffers);
    RUN(over_release);
    RUN(autorelease_without_pool);
    return check_done();
}
