/* program.h - where this program's own file is, and which build it is. Any thread. */
#ifndef INFERD_BASE_PROGRAM_H
#define INFERD_BASE_PROGRAM_H

#include "core/base/siphash.h"

#include <stddef.h>
#include <stdint.h>

/* Writes the path of the running program (n bytes). "": the system does not tell, or it is longer.
 */
void program_path(char *out, size_t n);

/* The same, up to the last slash with it. */
void program_folder(char *out, size_t n);

/* A hash of a file's bytes, which tells builds apart: added to *hash. 0, or -1: it cannot
 * be read. */
int program_hash_file(const char *path, struct hash128 *hash);

/* Bytes of this process that are in memory; 0: the system does not tell. */
uint64_t program_resident_bytes(void);

#endif
