// bad_host_availability.m - a language version newer than macOS 13, without a version check.
#include "tests/metal/checks/host.h"

int check_mistake(id<MTLDevice> device) {
    MTLCompileOptions *options = [MTLCompileOptions new];
    options.languageVersion = MTLLanguageVersion3_1;
    id<MTLLibrary> library = [device newLibraryWithSource:@"" options:options error:NULL];
    [options release];
    [library release];
    return 0;
}
