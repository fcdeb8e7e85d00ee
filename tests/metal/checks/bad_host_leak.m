// bad_host_leak.m - the early return leaks.
#include "tests/metal/checks/host.h"

int check_mistake(id<MTLDevice> device) {
    id<MTLBuffer> buffer = [device newBufferWithLength:16 options:MTLResourceStorageModeShared];
    if ([device hasUnifiedMemory]) return -1;
    [buffer release];
    return 0;
}
