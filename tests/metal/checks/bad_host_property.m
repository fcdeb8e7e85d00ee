// bad_host_property.m - a property introduced by macOS 15, without a version check.
#include "tests/metal/checks/host.h"

int check_mistake(id<MTLDevice> device) {
    MTLCompileOptions *options = [MTLCompileOptions new];
    options.mathMode = MTLMathModeSafe;
    id<MTLLibrary> library = [device newLibraryWithSource:@"" options:options error:NULL];
    [options release];
    [library release];
    return 0;
}
