/* program.h - where this program's own file is. Any thread. */
#ifndef INFERD_BASE_PROGRAM_H
#define INFERD_BASE_PROGRAM_H

#include <stddef.h>
#include <stdint.h>

/* Writes the path of the running program (n bytes). "": the system does not tell, or it is longer.
 */
void program_path(char *out, size_t n);

/* The same, up to the last slash with it. */
void program_folder(char *out, size_t n);

/* Bytes of this process that are in memory; 0: the system does not tell. */
uint64_t program_resident_bytes(void);

#endif
