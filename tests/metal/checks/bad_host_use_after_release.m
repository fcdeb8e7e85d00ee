// bad_host_use_after_release.m - a message to a released object.
#include "tests/metal/checks/host.h"

int check_mistake(id<MTLDevice> device) {
    id<MTLBuffer> buffer = [device newBufferWithLength:16 options:MTLResourceStorageModeShared];
    [buffer release];
    return [buffer length] != 0;
}
