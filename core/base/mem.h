/* mem.h - checked sizes and the arena of a request.
 *
 * Lifetimes: memory of the process and of models comes from mem_new and free(), small strings of a
 * request from its arena, scratch of a step from buffers sized at start. The step loop must not
 * allocate: worker threads call mem_guard_enter(), and each mem_* allocation until
 * mem_guard_leave() is counted as a violation, which tests read. */
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

/* Makes room for element n (size bytes) in the array *array_at (NULL: empty), which has room for
 * *capacity elements. A new array is stored in *array_at before this returns, so that no caller can
 * lose it or free it twice. false: no memory, nothing changed. array_at is the address of a pointer
 * to any type of object. */
bool mem_grow(void *array_at, uint32_t n, uint32_t *capacity, size_t size);

/* Copies of a NUL-terminated string / of n bytes plus NUL. NULL when out of memory. */
char *mem_strdup(const char *s);
char *mem_strndup(const char *s, size_t n);

/* Zeroed memory aligned to 64 bytes; free with free(). */
void *mem_new_aligned(uint64_t bytes);

/* Step-loop guard, per thread: allocations through mem_* between enter and leave are counted. */
void mem_guard_enter(void);
void mem_guard_leave(void);
uint64_t mem_guard_violations(void); /* process total */

/* Fault injection for tests: the n-th mem_* allocation of this thread from now on fails (1: the
 * next), later ones succeed. 0: none fails. Returns what was left of the previous n; 0: that fault
 * has happened, or none was set. */
uint64_t mem_fail_at(uint64_t n);

/* The same for the n-th allocation of all threads except the calling one, so that a test can let a
 * server fail that runs in its own process. */
uint64_t mem_fail_elsewhere_at(uint64_t n);

/* Arena: bump allocation, freed all at once. Single thread. Bounded by max_bytes: beyond it
 * arena_alloc returns NULL. */
typedef struct arena arena;
arena *arena_new(uint64_t max_bytes);
void *arena_alloc(arena *a, uint64_t bytes); /* zeroed, aligned to 16 */
char *arena_strndup(arena *a, const char *s, size_t n);
void arena_free(arena *a); /* NULL is fine */

#endif
