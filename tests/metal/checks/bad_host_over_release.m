// bad_host_over_release.m - the caller releases an autoreleased object.
#include "tests/metal/checks/host.h"

int check_mistake(id<MTLDevice> device) {
    NSString *text = [NSString stringWithUTF8String:"x"];
    id<MTLLibrary> library = [device newLibraryWithSource:text options:nil error:NULL];
    [library release];
    [text release];
    return 0;
}
