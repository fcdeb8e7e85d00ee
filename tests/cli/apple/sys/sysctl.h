/* sys/sysctl.h - what inferd uses of macOS' header of this name. */
#ifndef INFERD_TESTS_SYSCTL_H
#define INFERD_TESTS_SYSCTL_H

#include <stddef.h>

int sysctlbyname(const char *name, void *old, size_t *old_bytes, void *set, size_t set_bytes);

#endif
