/* launch.h - what the daemon uses of macOS' header of this name, declared as Apple documents it, so
 * that its launchd half is compiled and run elsewhere too (tests/cli/launchd_socket.c). */
#ifndef INFERD_TESTS_LAUNCH_H
#define INFERD_TESTS_LAUNCH_H

#include <stddef.h>

int launch_activate_socket(const char *name, int **fds, size_t *cnt);

#endif
