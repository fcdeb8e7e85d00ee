/* tls.c - see tls.h. Owns what it has read; GnuTLS owns the copies that it is given. */
#include "api/http/tls.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/mem.h"

#include <errno.h>
#include <gnutls/x509.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { FILE_MAX_BYTES = 1 << 20, CHAIN_MAX = 16, KEY_ID_BYTES = 64 };

/* Key exchange by ECDHE or DHE alone, ciphers that authenticate, the server's order. */
const char tls_priorities[] =
    "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2:-RSA:-CIPHER-ALL:+AES-256-GCM:+AES-128-GCM:"
    "+CHACHA20-POLY1305:-SIGN-ALL:+SIGN-RSA-SHA256:+SIGN-RSA-SHA384:+SIGN-RSA-SHA512:"
    "+SIGN-RSA-PSS-SHA256:+SIGN-RSA-PSS-SHA384:+SIGN-RSA-PSS-SHA512:+SIGN-RSA-PSS-RSAE-SHA256:"
    "+SIGN-RSA-PSS-RSAE-SHA384:+SIGN-RSA-PSS-RSAE-SHA512:+SIGN-ECDSA-SHA256:+SIGN-ECDSA-SHA384:"
    "+SIGN-ECDSA-SHA512:+SIGN-ECDSA-SECP256R1-SHA256:+SIGN-ECDSA-SECP384R1-SHA384:"
    "+SIGN-ECDSA-SECP521R1-SHA512:+SIGN-EDDSA-ED25519:+SIGN-EDDSA-ED448:%SERVER_PRECEDENCE";

struct tls {
    gnutls_x509_crt_t *chain; /* (n) the server's own first */
    unsigned n;
    gnutls_x509_privkey_t key;
    gnutls_x509_trust_list_t clients; /* NULL: none are asked for */
    pthread_mutex_t mu;               /* held while chain and key are copied */
};

static int err_file(err *e, const char *param, const char *path, const char *why) {
    return err_set_param(e, ERR_INVALID, param, "%s: %s", path, why);
}

/* gnutls_free(out->data). */
static int read_file(const char *param, const char *path, bool private, gnutls_datum_t *out,
                     err *e) {
    struct stat st;
    *out = (gnutls_datum_t){0};
    if (stat(path, &st)) return err_set_param(e, ERR_IO, param, "%s: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode)) return err_file(e, param, path, "not a file");
    if (st.st_size > FILE_MAX_BYTES) return err_file(e, param, path, "longer than 1 MiB");
    if (private && (st.st_mode & (S_IROTH | S_IWOTH)))
        return err_file(e, param, path, "can be read or written by every user: chmod 600 it");
    errno = 0;
    if (gnutls_load_file(path, out) < 0)
        return err_set_param(e, ERR_IO, param, "%s: %s", path,
                             errno ? strerror(errno) : "cannot be read");
    return 0;
}

static int load_chain(tls *t, const char *path, err *e) {
    gnutls_datum_t text;
    int rc = read_file("tls_certificate", path, false, &text, e);
    if (rc) return rc;
    int n = gnutls_x509_crt_list_import2(&t->chain, &t->n, &text, GNUTLS_X509_FMT_PEM,
                                         GNUTLS_X509_CRT_LIST_FAIL_IF_UNSORTED);
    gnutls_free(text.data);
    if (n < 0) {
        t->chain = NULL;
        t->n = 0;
        return err_set_param(e, ERR_INVALID, "tls_certificate",
                             "%s has no chain of certificates in PEM form: %s", path,
                             gnutls_strerror(n));
    }
    return t->n <= CHAIN_MAX ? 0 : err_file(e, "tls_certificate", path, "too many certificates");
}

static int load_key(tls *t, const char *path, err *e) {
    gnutls_datum_t text;
    int rc = read_file("tls_key", path, true, &text, e);
    if (rc) return rc;
    int why = gnutls_x509_privkey_init(&t->key);
    if (!why) why = gnutls_x509_privkey_import2(t->key, &text, GNUTLS_X509_FMT_PEM, NULL, 0);
    gnutls_memset(text.data, 0, text.size);
    gnutls_free(text.data);
    if (!why) return 0;
    return err_set_param(e, ERR_INVALID, "tls_key", "%s is not a private key in PEM form%s: %s",
                         path, why == GNUTLS_E_DECRYPTION_FAILED ? " without a passphrase" : "",
                         gnutls_strerror(why));
}

static int check_pair(const tls *t, const struct tls_files *f, err *e) {
    unsigned char a[KEY_ID_BYTES], b[KEY_ID_BYTES];
    size_t n = sizeof a, m = sizeof b;
    if (gnutls_x509_crt_get_key_id(t->chain[0], GNUTLS_KEYID_USE_SHA256, a, &n) ||
        gnutls_x509_privkey_get_key_id(t->key, GNUTLS_KEYID_USE_SHA256, b, &m) || n != m ||
        memcmp(a, b, n) != 0)
        return err_set_param(e, ERR_INVALID, "tls_key", "%s is not the key of the certificate %s",
                             f->key, f->certificate);
    int64_t now = clock_wall_s();
    if (now > gnutls_x509_crt_get_expiration_time(t->chain[0]))
        log_warn("the certificate %s has expired: clients will refuse it", f->certificate);
    if (now < gnutls_x509_crt_get_activation_time(t->chain[0]))
        log_warn("the certificate %s is not valid yet: clients will refuse it", f->certificate);
    return 0;
}

static int load_clients(tls *t, const char *path, err *e) {
    gnutls_datum_t text;
    int rc = read_file("tls_client_ca", path, false, &text, e);
    if (rc) return rc;
    int n = gnutls_x509_trust_list_init(&t->clients, 0);
    if (n >= 0)
        n = gnutls_x509_trust_list_add_trust_mem(t->clients, &text, NULL, GNUTLS_X509_FMT_PEM, 0,
                                                 0);
    gnutls_free(text.data);
    if (n > 0) return 0;
    return err_set_param(e, ERR_INVALID, "tls_client_ca", "%s has no certificates in PEM form%s%s",
                         path, n < 0 ? ": " : "", n < 0 ? gnutls_strerror(n) : "");
}

int tls_load(const struct tls_files *f, tls **out, err *e) {
    tls *t = mem_new(1, sizeof *t);
    *out = NULL;
    if (!t) return err_no_memory(e);
    pthread_mutex_init(&t->mu, NULL);
    int rc = load_chain(t, f->certificate, e);
    if (!rc) rc = load_key(t, f->key, e);
    if (!rc) rc = check_pair(t, f, e);
    if (!rc && f->client_ca && *f->client_ca) rc = load_clients(t, f->client_ca, e);
    if (rc) {
        tls_free(t);
        return rc;
    }
    *out = t;
    return 0;
}

void tls_free(tls *t) {
    if (!t) return;
    for (unsigned i = 0; i < t->n; i++)
        gnutls_x509_crt_deinit(t->chain[i]);
    gnutls_free(t->chain);
    if (t->key) gnutls_x509_privkey_deinit(t->key);
    if (t->clients) gnutls_x509_trust_list_deinit(t->clients, 1);
    pthread_mutex_destroy(&t->mu);
    free(t);
}

int tls_give_certificate(tls *t, gnutls_pcert_st **chain, unsigned *n, gnutls_privkey_t *key,
                         unsigned *flags) {
    gnutls_pcert_st *copies = gnutls_calloc(t->n, sizeof *copies);
    gnutls_privkey_t k = NULL;
    unsigned done = 0;
    int why = copies ? 0 : GNUTLS_E_MEMORY_ERROR;
    pthread_mutex_lock(&t->mu);
    for (; done < t->n && !why; done += !why)
        why = gnutls_pcert_import_x509(&copies[done], t->chain[done], 0);
    if (!why) why = gnutls_privkey_init(&k);
    if (!why) why = gnutls_privkey_import_x509(k, t->key, GNUTLS_PRIVKEY_IMPORT_COPY);
    pthread_mutex_unlock(&t->mu);
    if (why) {
        for (unsigned i = 0; i < done; i++)
            gnutls_pcert_deinit(&copies[i]);
        gnutls_free(copies);
        if (k) gnutls_privkey_deinit(k);
        return -1;
    }
    *chain = copies;
    *n = t->n;
    *key = k;
    *flags = GNUTLS_CERT_RETR_DEINIT_ALL;
    return 0;
}

bool tls_needs_client(const tls *t) {
    return t->clients;
}

int tls_check_client(const tls *t, gnutls_session_t session) {
    gnutls_x509_crt_t chain[CHAIN_MAX];
    gnutls_typed_vdata_st purpose = {GNUTLS_DT_KEY_PURPOSE_OID,
                                     (unsigned char *)GNUTLS_KP_TLS_WWW_CLIENT, 0};
    unsigned n = 0, given = 0, status = ~0u;
    if (gnutls_certificate_type_get2(session, GNUTLS_CTYPE_CLIENT) != GNUTLS_CRT_X509)
        return GNUTLS_E_CERTIFICATE_ERROR;
    const gnutls_datum_t *der = gnutls_certificate_get_peers(session, &given);
    int why = der && given && given <= CHAIN_MAX ? 0 : GNUTLS_E_CERTIFICATE_ERROR;
    while (n < given && !why) {
        why = gnutls_x509_crt_init(&chain[n]);
        if (why) break;
        why = gnutls_x509_crt_import(chain[n], &der[n], GNUTLS_X509_FMT_DER);
        n++;
    }
    if (!why)
        why =
            gnutls_x509_trust_list_verify_crt2(t->clients, chain, n, &purpose, 1, 0, &status, NULL);
    for (unsigned i = 0; i < n; i++)
        gnutls_x509_crt_deinit(chain[i]);
    return why || status ? GNUTLS_E_CERTIFICATE_ERROR : 0;
}
