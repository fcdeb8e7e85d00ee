/* mem.c - allocation with overflow checks, the step-loop guard and the request arena. */
#include "core/base/mem.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { ARENA_CHUNK_BYTES = 16 * 1024, ARENA_ALIGN = 16, MEM_ALIGN = 64 };

static _Thread_local int guard_depth;
static _Thread_local uint64_t fail_in; /* mem_fail_at; 0: never */
static atomic_uint_fast64_t guard_violations;
/* mem_fail_elsewhere_at: 0: off. */
static atomic_uint_fast64_t fail_elsewhere_in;
static _Thread_local bool spared; /* the thread that called it */

bool mem_mul(uint64_t a, uint64_t b, uint64_t *result) {
    return !__builtin_mul_overflow(a, b, result);
}

bool mem_add(uint64_t a, uint64_t b, uint64_t *result) {
    return !__builtin_add_overflow(a, b, result);
}

void mem_guard_enter(void) {
    guard_depth++;
}

void mem_guard_leave(void) {
    guard_depth--;
}

uint64_t mem_guard_violations(void) {
    return atomic_load(&guard_violations);
}

uint64_t mem_fail_at(uint64_t n) {
    uint64_t before = fail_in;
    fail_in = n;
    return before;
}

uint64_t mem_fail_elsewhere_at(uint64_t n) {
    spared = n != 0;
    return atomic_exchange(&fail_elsewhere_in, n);
}

/* Counts down; false: this is the allocation that fails. */
static bool passes_elsewhere(void) {
    uint64_t n = atomic_load(&fail_elsewhere_in);
    while (n && !atomic_compare_exchange_weak(&fail_elsewhere_in, &n, n - 1)) {
    }
    return n != 1;
}

/* Before each allocation. false: it is to fail. */
static bool may_allocate(void) {
    if (guard_depth > 0) atomic_fetch_add(&guard_violations, 1);
    if (!spared && !passes_elsewhere()) return false;
    return !fail_in || --fail_in;
}

void *mem_new(uint64_t n, uint64_t size) {
    uint64_t bytes;
    if (!may_allocate() || !mem_mul(n, size, &bytes) || bytes > SIZE_MAX) return NULL;
    return calloc(1, bytes ? (size_t)bytes : 1);
}

void *mem_resize(void *p, uint64_t n, uint64_t size) {
    uint64_t bytes;
    if (!may_allocate() || !mem_mul(n, size, &bytes) || bytes > SIZE_MAX) return NULL;
    return realloc(p, bytes ? (size_t)bytes : 1);
}

bool mem_grow(void *array_at, uint32_t n, uint32_t *capacity, size_t size) {
    if (n < *capacity) return true;
    if (*capacity > UINT32_MAX / 2) return false;
    uint32_t more = *capacity ? 2 * *capacity : 16;
    void *array;
    memcpy(&array, array_at, sizeof array);
    array = mem_resize(array, more, size);
    if (!array) return false;
    memcpy(array_at, &array, sizeof array);
    *capacity = more;
    return true;
}

char *mem_strndup(const char *s, size_t n) {
    char *copy = mem_new((uint64_t)n + 1, 1);
    if (copy) memcpy(copy, s, n);
    return copy;
}

char *mem_strdup(const char *s) {
    return mem_strndup(s, strlen(s));
}

void *mem_new_aligned(uint64_t bytes) {
    void *p = NULL;
    if (!may_allocate() || bytes > SIZE_MAX - MEM_ALIGN) return NULL;
    size_t padded = ((size_t)bytes + MEM_ALIGN) / MEM_ALIGN * MEM_ALIGN;
    if (posix_memalign(&p, MEM_ALIGN, padded)) return NULL;
    return memset(p, 0, padded);
}

struct arena_chunk {
    struct arena_chunk *next;
    uint64_t used, capacity; /* bytes of data[] */
    _Alignas(ARENA_ALIGN) unsigned char data[];
};

struct arena {
    struct arena_chunk *head;
    uint64_t total, max_bytes;
};

arena *arena_new(uint64_t max_bytes) {
    arena *a = mem_new(1, sizeof *a);
    if (a) a->max_bytes = max_bytes;
    return a;
}

void *arena_alloc(arena *a, uint64_t bytes) {
    uint64_t need;
    if (!mem_add(bytes, ARENA_ALIGN - 1, &need)) return NULL;
    need &= ~(uint64_t)(ARENA_ALIGN - 1);
    if (need > a->max_bytes || a->total > a->max_bytes - need) return NULL;
    if (!a->head || a->head->capacity - a->head->used < need) {
        uint64_t capacity = need > ARENA_CHUNK_BYTES ? need : ARENA_CHUNK_BYTES;
        struct arena_chunk *c = mem_new(1, sizeof *c + capacity);
        if (!c) return NULL;
        c->capacity = capacity;
        c->next = a->head;
        a->head = c;
    }
    void *p = a->head->data + a->head->used;
    a->head->used += need;
    a->total += need;
    return p;
}

char *arena_strndup(arena *a, const char *s, size_t n) {
    char *copy = arena_alloc(a, (uint64_t)n + 1);
    if (copy) memcpy(copy, s, n);
    return copy;
}

void arena_free(arena *a) {
    if (!a) return;
    for (struct arena_chunk *c = a->head, *next; c; c = next) {
        next = c->next;
        free(c);
    }
    free(a);
}
