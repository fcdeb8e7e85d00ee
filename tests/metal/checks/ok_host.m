// ok_host.m - correct host code that every pass must accept.
#include "tests/metal/checks/host.h"

uint64_t check_buffer_bytes(id<MTLDevice> device, NSUInteger length) {
    id<MTLBuffer> buffer = [device newBufferWithLength:length options:MTLResourceStorageModeShared];
    if (!buffer) return 0;
    uint64_t bytes = [buffer length];
    [buffer release];
    return bytes;
}

int check_compile(id<MTLDevice> device, id<MTLLibrary> *out) {
    NSError *error = nil;
    MTLCompileOptions *options = [MTLCompileOptions new];
    options.languageVersion = MTLLanguageVersion3_0;
    if (@available(macOS 14, *)) options.languageVersion = MTLLanguageVersion3_1;
    *out = [device newLibraryWithSource:@"" options:options error:&error];
    [options release];
    if (*out) return 0;
    printf("%s\n", [[error localizedDescription] UTF8String]);
    return -1;
}
