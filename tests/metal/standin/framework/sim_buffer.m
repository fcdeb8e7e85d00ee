// sim_buffer.m - MTLBuffer: memory between guard pages, so that an access past the end faults;
// under METALSIM_GUARD mapped twice, for the GPU and for the host.
#import "tests/metal/standin/framework/sim.h"

#include <Block.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static size_t n_allocated; /* bytes, atomic */

size_t sim_buffer_allocated(void) {
    return __atomic_load_n(&n_allocated, __ATOMIC_SEQ_CST);
}

// Maps the same memory twice: at gpu, and at the returned address. NULL: failed.
static void *map_twice(void *gpu, size_t n_bytes) {
    int fd = memfd_create("mtlbuffer", 0);
    if (fd < 0) return NULL;
    void *host = MAP_FAILED;
    if (ftruncate(fd, (off_t)n_bytes) == 0 &&
        mmap(gpu, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) != MAP_FAILED)
        host = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return host == MAP_FAILED ? NULL : host;
}

@implementation SimBuffer
@synthesize label = _label, device = _device;

+ (enum metalsim_kind)kind {
    return METALSIM_BUFFER;
}

- (id)initWithLength:(size_t)length options:(MTLResourceOptions)opt device:(id<MTLDevice>)device {
    if (!(self = [super init])) return nil;
    size_t n_pages = (length + SIM_HOST_PAGE - 1) / SIM_HOST_PAGE * SIM_HOST_PAGE;
    uint8_t *area = mmap(NULL, n_pages + 2 * SIM_HOST_PAGE, PROT_NONE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (area == MAP_FAILED) {
        [self release];
        return nil;
    }
    n_bytes = length;
    n_mapped = n_pages;
    options = opt;
    own = true;
    gpu = area + SIM_HOST_PAGE;
    if (sim_guard_level())
        host = map_twice(gpu, n_pages);
    else if (mprotect(gpu, n_pages, PROT_READ | PROT_WRITE) == 0)
        host = gpu;
    __atomic_fetch_add(&n_allocated, n_mapped, __ATOMIC_SEQ_CST);
    _device = [device retain];
    if (!host) {
        [self release];
        return nil;
    }
    if (sim_poison()) memset(gpu, 0xFF, n_pages);
    return self;
}

- (id)initWithMemory:(void *)memory
              length:(size_t)length
             options:(MTLResourceOptions)opt
         deallocator:(void (^)(void *, NSUInteger))block
              device:(id<MTLDevice>)device {
    if (!(self = [super init])) return nil;
    n_bytes = n_mapped = length;
    options = opt;
    host = gpu = memory;
    deallocator = block ? Block_copy(block) : NULL;
    _device = [device retain];
    return self;
}

- (NSUInteger)length {
    return n_bytes;
}
- (NSUInteger)allocatedSize {
    return n_mapped;
}
- (uint64_t)gpuAddress {
    return (uint64_t)(uintptr_t)gpu;
}
- (MTLStorageMode)storageMode {
    return (MTLStorageMode)(options >> 4 & 15);
}
- (void *)contents {
    if (self.storageMode == MTLStorageModePrivate) {
        sim_violation("-[MTLBuffer contents] on a private buffer");
        return NULL;
    }
    return host;
}
- (void)didModifyRange:(NSRange)range {
    if (self.storageMode != MTLStorageModeManaged)
        sim_violation("didModifyRange: on a buffer that is not managed");
    else if (range.length > n_bytes || range.location > n_bytes - range.length)
        sim_violation("didModifyRange: outside the buffer of %zu bytes", n_bytes);
}

- (void)dealloc {
    if (__atomic_load_n(&in_flight, __ATOMIC_SEQ_CST))
        sim_violation("buffer '%s' released while a command buffer that uses it is in flight",
                      _label ? _label.UTF8String : "?");
    sim_residency_ends(self);
    if (own) {
        munmap((uint8_t *)gpu - SIM_HOST_PAGE, n_mapped + 2 * SIM_HOST_PAGE);
        if (host && host != gpu) munmap(host, n_mapped);
        __atomic_fetch_sub(&n_allocated, n_mapped, __ATOMIC_SEQ_CST);
    } else if (deallocator) {
        deallocator(host, n_bytes);
        Block_release(deallocator);
    }
    [_label release];
    [_device release];
    [super dealloc];
}
@end
