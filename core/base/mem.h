/* mem.h - checked sizes and the arena of a request.
 *
 * Lifetimes: process and model memory come from mem_new/free, a request's small strings from its
 * arena, a step's scratch from buffers that were sized at start. The step loop allocates nothing:
 * worker threads enter mem_guard_enter() and any mem_* allocation inside trips the guard counter,
 * which tests read. */
#ifndef INFERD_BASE_MEM_H
#define INFERD_BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* a*b and a+b in uint64_t; false on overflow (result untouched). */
bool mem_mul(uint64_t a, uint64_t b, uint64_t *result);
bool mem_add(uint64_t a, uint64_t b, uint64_t *result);

/* Zeroed array of n objects of size bytes, or NULL (overflow, no memory, or n*size == 0 gives a
 * one-byte block). Free with free(). */
void *mem_new(uint64_t n, uint64_t size);

/* As realloc to n objects of size bytes; on failure NULL and p stays valid. */
void *mem_resize(void *p, uint64_t n, uint64_t size);

/* Copies of a NUL-terminated string / of n bytes plus NUL. NULL when out of memory. */
char *mem_strdup(const char *s);
char *mem_strndup(const char *s, size_t n);

/* Zeroed memory aligned to 64 bytes; free with free(). */
void *mem_new_aligned(uint64_t bytes);

/* Step-loop guard, per thread: allocations through mem_* between enter and leave are counted. */
void mem_guard_enter(void);
void mem_guard_leave(void);
uint64_t mem_guard_violations(void); /* process total */

/* Arena: bump allocation, freed all at once. Single thread. Bounded by max_bytes: beyond it
 * arena_alloc returns NULL. */
typedef struct arena arena;
arena *arena_new(uint64_t max_bytes);
void *arena_alloc(arena *a, uint64_t bytes); /* zeroed, aligned to 16 */
char *arena_strndup(arena *a, const char *s, size_t n);
void arena_free(arena *a); /* NULL is fine */

#endif
