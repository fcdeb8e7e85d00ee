// bad_host_selector.m - a method that does not exist.
#include "tests/metal/checks/host.h"

int check_mistake(id<MTLDevice> device) {
    id<MTLBuffer> buffer = [device newBufferOfLength:16 options:0];
    [buffer release];
    return 0;
}
