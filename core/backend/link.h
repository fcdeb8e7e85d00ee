/* link.h - the processes of a group, which exchange bytes: ranks of tensor parallelism, started by
 * an MPI launcher (mpirun), or stages of a pipeline, which meet over TCP. MPI is loaded at run
 * time, through the module libinferd-mpi.so (link_module.h). A stage's number is its rank here.
 *
 * A link fails for good when a process has not been heard of for hang_s seconds, says that it
 * failed, or a transfer fails: every call then returns ERR_DEVICE with the reason, including those
 * that are waiting. A thread of the link listens and is heard, whatever the ranks compute.
 *
 * THREAD SAFETY: one thread at a time sends, receives and exchanges; the others: any thread. */
#ifndef INFERD_BACKEND_LINK_H
#define INFERD_BACKEND_LINK_H

#include "core/base/err.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct backend_link backend_link;

/* Processes that the launcher says it started, this one included; 1: there is no launcher. */
uint32_t backend_link_launched(void);

/* Loads the module and meets the other processes, all of which must call it. version: of the
 * program, the same in all of them. ERR_UNSUPPORTED: no module, or the processes are of different
 * builds. ERR_DEVICE. Once in the life of a process. */
int backend_link_open(const char *version, uint32_t hang_s, backend_link **out, err *e);
/* Something that all stages of a group have in common, as the model; texts of printable ASCII. */
struct backend_link_fact {
    char name[32], value[96];
};
enum { BACKEND_MAX_FACTS = 12 };
struct backend_link_stages {
    /* Stage 0: the others' addresses, "HOST:PORT,...", in their order; else "". */
    const char *others;
    /* The others: where they are met, "HOST:PORT"; else "". */
    const char *listen;
    /* A file with the same secret at all stages, readable by its owner alone: the stages prove to
     * each other that they know it, and what they send is encrypted (TLS 1.3 with a pre-shared
     * key). "": none; then only loopback addresses are accepted. */
    const char *secret_file;
    struct backend_link_fact facts[BACKEND_MAX_FACTS];
    uint32_t n_facts;
    bool (*stops)(void); /* asked while the stage waits for stage 0; true: it gives up */
};
/* Meets the other stages: stage 0 for some time, the others until it comes. ERR_INVALID: an address
 * or the file. ERR_UNSUPPORTED: another stage has a fact that differs. ERR_CANCELLED: it gave up.
 * ERR_DEVICE, ERR_IO. */
int backend_link_open_stages(const struct backend_link_stages *how, const char *version,
                             uint32_t hang_s, backend_link **out, err *e);
/* Stages: messages may have up to `bytes` bytes from now on; at first 64 KiB. All call it before
 * one sends more. Ranks may always send what they like. */
void backend_link_allow(backend_link *link, uint32_t bytes);
/* With a sound link all processes must call it. After a failure it waits for no process, and the
 * launcher ends the other processes when this one ends. NULL is fine. */
void backend_link_close(backend_link *link);

uint32_t backend_link_rank(const backend_link *link);
uint32_t backend_link_n(const backend_link *link);
uint32_t backend_link_n_here(const backend_link *link); /* processes on this machine */
uint32_t backend_link_here(const backend_link *link);   /* of these, those of a lower rank */
/* Which of *n processes that may use the same processors this is. */
uint32_t backend_link_share(const backend_link *link, uint32_t *n);

/* What goes to a rank and comes from it, each at most BACKEND_PIECE_BYTES; 0 bytes: nothing. */
struct backend_piece {
    const void *out;
    void *in;
    uint32_t rank;
    uint32_t out_bytes, in_bytes;
};
enum { BACKEND_MAX_PIECES = 64, BACKEND_PIECE_BYTES = 1 << 30 };

/* Transfers all pieces (at most BACKEND_MAX_PIECES) and waits. Pieces between two ranks arrive in
 * their order; ERR_INVALID if one is not of the size that is expected. */
int backend_link_exchange(backend_link *link, const struct backend_piece *pieces, uint32_t n,
                          err *e);
/* Rank 0: sends a message to every other rank. */
int backend_link_send(backend_link *link, const void *message, uint32_t bytes, err *e);
/* Waits for a message of that rank, of at most `most` bytes, sleeping after a while. */
int backend_link_receive(backend_link *link, uint32_t from, void *message, uint32_t most,
                         uint32_t *bytes, err *e);
/* Gets what each rank has, in the order of ranks: all (n ranks, bytes). */
int backend_link_gather(backend_link *link, const void *own, uint32_t bytes, void *all, err *e);

/* All ranks: returns the first rank's failure on all of them. rc, e: this rank's result. */
int backend_link_agree(backend_link *link, int rc, err *e);

/* Makes the link fail, and tells the other processes. The first reason counts. */
void backend_link_break(backend_link *link, const char *why);
/* ERR_DEVICE with the reason once the link has failed, else 0. */
int backend_link_failed(backend_link *link, err *e);

/* The calls above for a device that is a module of its own, and so not linked with them. */
struct backend_link_calls {
    uint32_t (*n_here)(const backend_link *link);
    int (*gather)(backend_link *link, const void *own, uint32_t bytes, void *all, err *e);
    int (*agree)(backend_link *link, int rc, err *e);
    int (*failed)(backend_link *link, err *e);
    void (*fail)(backend_link *link, const char *why);
};
extern const struct backend_link_calls backend_link_calls;

#endif
