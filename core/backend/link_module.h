/* link_module.h - what carries a link's bytes. For ranks, libinferd-mpi.so exports a `const struct
 * link_module inferd_link_module`: it is compiled against the MPI that it is to be used with,
 * because implementations differ in their handles. For stages, core/backend/tcp has one. */
#ifndef INFERD_BACKEND_LINK_MODULE_H
#define INFERD_BACKEND_LINK_MODULE_H

#include "core/backend/link.h"

#include <stdatomic.h>

enum { LINK_MODULE_VERSION = 3, LINK_MAX_RANKS = 16 };
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
    /* *self: its state, for the others; NULL: it has one of its own. */
    const char *(*open)(struct link_place *out, void **self);
    /* sound: waits for all ranks, then closes. Otherwise for none: what a broken link leaves is the
     * process's, which ends. */
    void (*close)(void *self, bool sound);
    /* As backend_link_exchange; got (n): bytes received of each piece. Gives up once *broken. */
    const char *(*exchange)(void *self, const struct backend_piece *pieces, uint32_t n,
                            uint32_t *got, const atomic_bool *broken);
    /* Says a word to all others, unless the one before is still on its way, and hears theirs. Any
     * thread; does not wait. */
    const char *(*beat)(void *self, uint8_t word, uint64_t now_ns, struct link_heard *heard);
    /* Messages of more bytes than this break the link; at first LINK_TCP_FIRST_BYTES. NULL: of any
     * number are fine. */
    void (*allow)(void *self, uint32_t bytes);
};

enum { LINK_TCP_FIRST_BYTES = 1 << 16 };
/* Meets the other stages; *self is for the module. See backend_link_open_stages. */
typedef int link_stages_open(const struct backend_link_stages *how, struct link_place *out,
                             void **self, err *e);
/* A link of stages that `open` makes and `module` serves. */
int link_open_stages(const struct link_module *module, link_stages_open *open,
                     const struct backend_link_stages *how, const char *version, uint32_t hang_s,
                     backend_link **out, err *e);

#endif
