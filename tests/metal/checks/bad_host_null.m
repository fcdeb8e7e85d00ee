// bad_host_null.m - dereferences a pointer that is NULL on one path.
#include "tests/metal/checks/host.h"

int check_mistake(id<MTLDevice> device) {
    int *counter = NULL, value = 1;
    if ([device maxBufferLength] > 16) counter = &value;
    return *counter;
}
