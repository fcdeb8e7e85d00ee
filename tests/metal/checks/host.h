/* host.h - includes of the host code's fixtures. */
#import <Foundation/Foundation.h>
#import <Metal/Metal.h>

#include <stdint.h>
#include <stdio.h>

uint64_t check_buffer_bytes(id<MTLDevice> device, NSUInteger length);
int check_compile(id<MTLDevice> device, id<MTLLibrary> *out);
int check_mistake(id<MTLDevice> device);
