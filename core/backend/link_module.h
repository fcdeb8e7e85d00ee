/* link_module.h - what libinferd-mpi.so exports: a `const struct link_module inferd_link_module`.
 * It is compiled against the MPI that it is to be used with, because implementations differ in
 * their handles. */
#ifndef INFERD_BACKEND_LINK_MODULE_H
#define INFERD_BACKEND_LINK_MODULE_H

#include "core/backend/link.h"

#include <stdatomic.h>

enum { LINK_MODULE_VERSION = 1, LINK_MAX_RANKS = 16 };
#define LINK_MODULE_ABI                                                                            \
    ((uint64_t)LINK_MODULE_VERSION << 32 | (uint64_t)sizeof(struct backend_piece) << 16 |          \
     LINK_MAX_RANKS)

struct link_place {
    uint32_t rank, n;
    uint32_t host; /* the lowest rank on this machine */
};

/* What was heard of the other ranks; written by beat alone. */
struct link_heard {
    uint64_t at_ns[LINK_MAX_RANKS]; /* when; the caller fills it at first */
    uint8_t word[LINK_MAX_RANKS];   /* the last word */
};

/* Functions return NULL, or what went wrong (static storage, or until the next call). */
struct link_module {
    uint64_t abi; /* LINK_MODULE_ABI */
    const char *(*open)(struct link_place *out);
    void (*close)(void); /* waits for all ranks */
    /* As backend_link_exchange; got (n): bytes received of each piece. Gives up once *broken. */
    const char *(*exchange)(const struct backend_piece *pieces, uint32_t n, uint32_t *got,
                            const atomic_bool *broken);
    /* Says a word to all others, unless the one before is still on its way, and hears theirs. Any
     * thread; does not wait. */
    const char *(*beat)(uint8_t word, uint64_t now_ns, struct link_heard *heard);
};

#endif
