// bad_host_format.m - a format for Linux: macOS wants %llu.
#include "tests/metal/checks/host.h"

int check_mistake(id<MTLDevice> device) {
    uint64_t bytes = [device recommendedMaxWorkingSetSize];
    return printf("%lu\n", bytes);
}
