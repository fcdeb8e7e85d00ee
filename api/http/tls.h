/* tls.h - the server's certificate, its key, and whose client certificates it accepts, as GnuTLS
 * has them. A set never changes: a reload reads the files into a new one, which the next handshakes
 * use. TLS 1.2 and 1.3 with forward secrecy.
 *
 * THREAD SAFETY: tls_load from any thread; the functions for sessions on HTTP threads. */
#ifndef INFERD_API_HTTP_TLS_H
#define INFERD_API_HTTP_TLS_H

#include "core/base/err.h"

#include <gnutls/abstract.h>
#include <gnutls/gnutls.h>
#include <stdbool.h>

typedef struct tls tls;

/* GnuTLS's words for what is offered. */
extern const char tls_priorities[];

struct tls_files {
    const char *certificate; /* PEM: the server's own, then those that lead to the root */
    const char *key;         /* PEM, not encrypted, not readable by every user */
    const char *client_ca; /* PEM: clients need a certificate that one of these has signed; NULL or
                              "": they need none */
};

/* ERR_IO, ERR_INVALID: param is tls_certificate, tls_key or tls_client_ca, the text names the file.
 * A certificate that is not valid today is loaded, with a line in the log. */
int tls_load(const struct tls_files *files, tls **out, err *e);
void tls_free(tls *t); /* NULL is fine */

/* Fills what a gnutls_certificate_retrieve_function3 fills, with copies of GnuTLS's own. */
int tls_give_certificate(tls *t, gnutls_pcert_st **chain, unsigned *n, gnutls_privkey_t *key,
                         unsigned *flags);
bool tls_needs_client(const tls *t);
/* A gnutls_certificate_verify_function's result for the client's certificate. */
int tls_check_client(const tls *t, gnutls_session_t session);

#endif
