// bad_host_width.m - uint64_t is NSUInteger on Linux, but not on macOS.
#include "tests/metal/checks/host.h"

int check_mistake(id<MTLDevice> device) {
    uint64_t length = 0;
    NSUInteger *alias = &length;
    *alias = [device maxBufferLength];
    return length != 0;
}
