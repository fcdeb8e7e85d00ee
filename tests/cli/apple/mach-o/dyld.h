/* mach-o/dyld.h - what inferd uses of macOS' header of this name. */
#ifndef INFERD_TESTS_DYLD_H
#define INFERD_TESTS_DYLD_H

#include <stdint.h>

int _NSGetExecutablePath(char *path, uint32_t *n);

#endif
