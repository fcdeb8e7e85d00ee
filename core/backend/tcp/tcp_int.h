/* tcp_int.h - the parts of a link of stages: addresses (address.c), what two stages tell each other
 * first (hello.c), a connection (wire.c). tcp.c makes a link of them. Private to core/backend/tcp.
 */
#ifndef INFERD_BACKEND_TCP_INT_H
#define INFERD_BACKEND_TCP_INT_H

#include "core/backend/link_module.h"
#include "core/base/err.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TCP_ADDRESS_BYTES = 128, TCP_KEY_BYTES = 32, TCP_GROUP_BYTES = 16 };

/* ---- address.c ---- */

/* Item i of the list "HOST:PORT,..." without white space around it. false: there is none. ERR:
 * it is too long (out is cut; checked again by the calls below). */
bool tcp_address_at(const char *list, uint32_t i, char out[TCP_ADDRESS_BYTES]);
/* Connects to / listens on "HOST:PORT" or "[HOST]:PORT". loopback: any other address is refused.
 * *fd is not blocking. ERR_INVALID: the address; ERR_IO: it cannot be reached by deadline_ns, or
 * listened on. */
int tcp_dial(const char *address, bool loopback, uint64_t deadline_ns, int *fd, err *e);
int tcp_listen(const char *address, bool loopback, int *fd, err *e);
/* Who connects, for messages. */
void tcp_peer_name(int fd, char out[TCP_ADDRESS_BYTES]);
/* Prepares a connection that was accepted. */
int tcp_prepare(int fd, err *e);

/* ---- hello.c: pure ---- */

/* The first message of a connection, in both directions. */
struct hello {
    uint32_t from, to, n;           /* stages; n of them */
    uint8_t group[TCP_GROUP_BYTES]; /* made by stage 0: connections of one group */
    uint32_t n_facts;
    struct backend_link_fact facts[BACKEND_MAX_FACTS];
    char addresses[LINK_MAX_RANKS][TCP_ADDRESS_BYTES]; /* (n) [0]: "" */
    char refusal[320]; /* of an answer: why the group does not begin; "": it does */
};

/* A hello is a head of HELLO_HEAD_BYTES, which says how many bytes follow, at most HELLO_MAX_BYTES:
 *
 *   head  "INFSTG1\0"; bytes u32
 *   body  from, to, n, n_facts u32; group 16 bytes; then texts, each a length u16, then that
 *         many bytes of printable ASCII: name and value of each fact, n addresses, the refusal
 *
 * Numbers are little-endian. */
enum { HELLO_HEAD_BYTES = 12, HELLO_MAX_BYTES = 8192 };

/* Writes head and body; returns their bytes. */
size_t hello_write(const struct hello *h, uint8_t out[HELLO_HEAD_BYTES + HELLO_MAX_BYTES]);
/* The body's bytes. ERR_FORMAT: another protocol, or too many. */
int hello_read_head(const uint8_t head[HELLO_HEAD_BYTES], uint32_t *n, err *e);
/* Reads a body of n bytes. ERR_FORMAT: it is not one. */
int hello_read(const uint8_t *body, uint32_t n, struct hello *out, err *e);
/* Do two stages have the same facts? ERR_UNSUPPORTED names the one that differs, and both values.
 */
int hello_compare(const struct hello *own, const struct hello *other, err *e);

/* ---- wire.c ---- */

/* An open connection to another stage. After wire_start a thread of its own reads messages into
 * slots, so that who sends never waits for what the receiver computes. */
struct wire;

/* Takes fd. key: the shared one, or NULL: plain. dialed: by this side. ERR_IO, ERR_NOMEM. */
int wire_open(int fd, const uint8_t *key, bool dialed, uint64_t deadline_ns, struct wire **out,
              err *e);
void wire_close(struct wire *w); /* waits for nothing. NULL is fine */

/* Before wire_start: exactly n bytes. */
int wire_write(struct wire *w, const void *bytes, size_t n, uint64_t deadline_ns, err *e);
int wire_read(struct wire *w, void *bytes, size_t n, uint64_t deadline_ns, err *e);
/* Has the other side closed it, with nothing left to read? */
bool wire_is_closed(const struct wire *w);

int wire_start(struct wire *w, uint32_t peer, err *e);
void wire_allow(struct wire *w, uint32_t most); /* bytes of a message */
/* Sends a message; waits for the next one. NULL, or why not (the wire's, until it is closed). Give
 * up once *broken. One thread each. */
const char *wire_send(struct wire *w, const void *bytes, uint32_t n, const atomic_bool *broken);
const char *wire_receive(struct wire *w, void *bytes, uint32_t most, uint32_t *got,
                         const atomic_bool *broken);
/* Says a word, unless the connection is busy with something that says as much. */
void wire_beat(struct wire *w, uint8_t word);
/* Says that this side leaves; has the other one? (Then it is not missed.) */
void wire_leave(struct wire *w);
bool wire_has_left(struct wire *w);
/* When something was heard last, and the last word; NULL, or why nothing more will be. */
const char *wire_heard(struct wire *w, uint64_t *at_ns, uint8_t *word);

#endif
