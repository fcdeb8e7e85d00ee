// bad_host_availability.m - a language version that macOS 13 does not know, without asking.
#include "tests/metal/checks/host.h"

int check_mistake(id<MTLDevice> device) {
    MTLCompileOptions *options = [MTLCompileOptions new];
    options.languageVersion = MTLLanguageVersion3_1;
    id<MTLLibrary> library = [device newLibraryWithSource:@"" options:options error:NULL];
    [options release];
    [library release];
    return 0;
}
