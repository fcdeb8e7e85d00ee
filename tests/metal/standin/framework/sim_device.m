// sim_device.m - the device: its capabilities, and the objects made from it. One per process, alive
// while it is retained.
#import "tests/metal/standin/framework/sim.h"

#include <string.h>
#include <sys/mman.h>

@interface SimDevice : MetalsimObject <MTLDevice>
@end

static struct {
    pthread_mutex_t mutex; // recursive: dealloc runs within release
    SimDevice *device;     // not retained
} only;
static pthread_once_t only_once = PTHREAD_ONCE_INIT;

static void init_only(void) {
    pthread_mutexattr_t attr;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&only.mutex, &attr);
    pthread_mutexattr_destroy(&attr);
}

static bool is_mapped(void *pointer, size_t n_bytes) {
    unsigned char resident[4096];
    for (size_t at = 0; at < n_bytes; at += sizeof resident * SIM_HOST_PAGE) {
        size_t n = n_bytes - at;
        if (n > sizeof resident * SIM_HOST_PAGE) n = sizeof resident * SIM_HOST_PAGE;
        if (mincore((char *)pointer + at, n, resident) != 0) return false;
    }
    return true;
}

@implementation SimDevice
+ (enum metalsim_kind)kind {
    return METALSIM_DEVICE;
}
- (NSString *)name {
    return [NSString stringWithUTF8String:sim_family()->gpu];
}
- (NSUInteger)maxBufferLength {
    return sim_max_buffer_bytes();
}
- (NSUInteger)maxThreadgroupMemoryLength {
    return MSL_TG_BYTES;
}
- (uint64_t)recommendedMaxWorkingSetSize {
    return sim_working_set_bytes();
}
- (NSUInteger)currentAllocatedSize {
    return sim_buffer_allocated();
}
- (BOOL)hasUnifiedMemory {
    return sim_family()->unified_memory;
}
- (MTLSize)maxThreadsPerThreadgroup {
    return MTLSizeMake(MSL_MAX_THREADS, MSL_MAX_THREADS, MSL_MAX_THREADS);
}
- (BOOL)supportsFamily:(MTLGPUFamily)family {
    return sim_supports_family(family);
}

- (id<MTLCommandQueue>)newCommandQueue {
    return [self newCommandQueueWithMaxCommandBufferCount:64];
}

- (id<MTLCommandQueue>)newCommandQueueWithMaxCommandBufferCount:(NSUInteger)count {
    if (!count) {
        sim_violation("newCommandQueueWithMaxCommandBufferCount: 0");
        return nil;
    }
    if (sim_fault(SIM_FAULT_QUEUE)) return nil;
    return [[SimQueue alloc] initWithDevice:self maxCommandBuffers:count];
}

- (id<MTLResidencySet>)newResidencySetWithDescriptor:(MTLResidencySetDescriptor *)how
                                               error:(NSError **)error {
    (void)how;
    if (!sim_fault(SIM_FAULT_RESIDENCY)) return [SimResidencySet new];
    if (error)
        *error = sim_error(MTLCommandBufferErrorDomain, MTLCommandBufferErrorInternal,
                           @"no residency set (injected)");
    return nil;
}

- (id<MTLBuffer>)newBufferWithLength:(NSUInteger)length options:(MTLResourceOptions)options {
    if (!length || length > self.maxBufferLength || sim_fault(SIM_FAULT_BUFFER)) return nil;
    return [[SimBuffer alloc] initWithLength:length options:options device:self];
}

- (id<MTLBuffer>)newBufferWithBytes:(const void *)bytes
                             length:(NSUInteger)length
                            options:(MTLResourceOptions)options {
    SimBuffer *b = [self newBufferWithLength:length options:options];
    if (b) memcpy(b->gpu, bytes, length);
    return b;
}

- (id<MTLBuffer>)newBufferWithBytesNoCopy:(void *)pointer
                                   length:(NSUInteger)length
                                  options:(MTLResourceOptions)options
                              deallocator:(void (^)(void *, NSUInteger))deallocator {
    if ((uintptr_t)pointer % SIM_MAC_PAGE || length % SIM_MAC_PAGE || !length) {
        sim_violation("newBufferWithBytesNoCopy: pointer %p and length %lu must be multiples of "
                      "the %d-byte page",
                      pointer, (unsigned long)length, SIM_MAC_PAGE);
        return nil;
    }
    if (!is_mapped(pointer, length)) {
        sim_violation("newBufferWithBytesNoCopy: %lu bytes at %p are not all mapped",
                      (unsigned long)length, pointer);
        return nil;
    }
    if (length > self.maxBufferLength || sim_fault(SIM_FAULT_BUFFER)) return nil;
    return [[SimBuffer alloc] initWithMemory:pointer
                                      length:length
                                     options:options
                                 deallocator:deallocator
                                      device:self];
}

- (id<MTLLibrary>)newLibraryWithSource:(NSString *)source
                               options:(MTLCompileOptions *)options
                                 error:(NSError **)error {
    if (sim_fault(SIM_FAULT_LIBRARY)) {
        if (error)
            *error = sim_error(MTLLibraryErrorDomain, MTLLibraryErrorInternal,
                               @"the compiler service did not reply (injected)");
        return nil;
    }
    NSString *path = sim_compile(source, options, error);
    return path ? [[SimLibrary alloc] initWithPath:path device:self] : nil;
}

- (id<MTLComputePipelineState>)newComputePipelineStateWithFunction:(id<MTLFunction>)function
                                                             error:(NSError **)error {
    SimFunction *f = (SimFunction *)function;
    if (!f) {
        sim_violation("newComputePipelineStateWithFunction: nil");
        return nil;
    }
    if (f->missing) {
        if (error)
            *error = sim_error(
                MTLLibraryErrorDomain, MTLLibraryErrorCompileFailure,
                [NSString
                    stringWithFormat:@"function '%@' has unspecialised function constant(s) %@",
                                     f.name, f->missing]);
        return nil;
    }
    if (sim_fault(SIM_FAULT_PIPELINE)) {
        if (error)
            *error = sim_error(MTLLibraryErrorDomain, MTLLibraryErrorInternal,
                               @"Compiler encountered an internal error (injected)");
        return nil;
    }
    SimPipeline *p = [SimPipeline new];
    p->function = [f retain];
    return p;
}

- (id<MTLComputePipelineState>)
    newComputePipelineStateWithFunction:(id<MTLFunction>)function
                                options:(MTLPipelineOption)options
                             reflection:(MTLAutoreleasedComputePipelineReflection *)reflection
                                  error:(NSError **)error {
    SimPipeline *p = (SimPipeline *)[self newComputePipelineStateWithFunction:function error:error];
    if (p && reflection)
        *reflection =
            options & MTLPipelineOptionArgumentInfo ? sim_reflection(p->function->kernel) : nil;
    return p;
}

// The device must not be handed out between its last release and its dealloc.
- (oneway void)release {
    pthread_mutex_lock(&only.mutex);
    [super release];
    pthread_mutex_unlock(&only.mutex);
}
- (void)dealloc {
    only.device = nil;
    [super dealloc];
}
@end

id<MTLDevice> MTLCreateSystemDefaultDevice(void) {
    sim_state_init();
    if (sim_fault(SIM_FAULT_DEVICE)) return nil;
    pthread_once(&only_once, init_only);
    pthread_mutex_lock(&only.mutex);
    SimDevice *device = [only.device retain];
    if (!device) device = only.device = [SimDevice new];
    pthread_mutex_unlock(&only.mutex);
    return device;
}

NSArray *MTLCopyAllDevices(void) {
    id<MTLDevice> device = MTLCreateSystemDefaultDevice();
    NSArray *all = device ? [[NSArray alloc] initWithObjects:device, nil] : [NSArray new];
    [device release];
    return all;
}
