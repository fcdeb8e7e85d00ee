// bad_host_format.m - a format that is right on Linux only: macOS needs %llu.
#include "tests/metal/checks/host.h"

int check_mistake(id<MTLDevice> device) {
    uint64_t bytes = [device recommendedMaxWorkingSetSize];
    return printf("%lu\n", bytes);
}
