// bad_host_width.m - on macOS uint64_t is not NSUInteger, as it is on Linux.
#include "tests/metal/checks/host.h"

int check_mistake(id<MTLDevice> device) {
    uint64_t length = 0;
    NSUInteger *alias = &length;
    *alias = [device maxBufferLength];
    return length != 0;
}
