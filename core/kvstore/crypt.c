/* crypt.c - keys, names and encryption of segments: the only caller of nettle and libgcrypt here.
 * Pure, except for the secret's file; any thread.
 *
 * HKDF (RFC 5869) derives every key from the secret: that of a tenant, from it that of the tenant's
 * names in a space, and that of each file from a salt of its own. Records are encrypted by AES-256
 * in OCB mode (RFC 7253), which costs next to nothing beside AES itself, by libgcrypt, which has
 * AES for vectors: one core with VAES decrypts 17 GB/s, against 8.4 GB/s of OCB in OpenSSL 3.0, 5.7
 * to 6.0 of GCM in either and 4.7 of GCM in GnuTLS. The nonce is the record's number; the tag of
 * the file's head is authenticated with each record. */
#include "core/kvstore/kvstore_int.h"

#include "core/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <gcrypt.h>
#include <nettle/hmac.h>
#include <nettle/pbkdf2.h>
#include <nettle/version.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#ifdef __APPLE__
#include <sys/random.h>
#endif

/* ---- hashes ---- */

#if NETTLE_VERSION_MAJOR >= 4
#define DIGEST(what, context, n, out) what##_digest(context, out)
#else
#define DIGEST(what, context, n, out) what##_digest(context, n, out)
#endif

void kvstore_sha256(const void *bytes, size_t n, uint8_t out[32]) {
    struct sha256_ctx h;
    sha256_init(&h);
    sha256_update(&h, n, bytes);
    DIGEST(sha256, &h, 32, out);
}

void kvstore_key_extract(const char *salt, const void *secret, size_t n, struct kvstore_key *out) {
    struct hmac_sha256_ctx h;
    hmac_sha256_set_key(&h, strlen(salt), (const uint8_t *)salt);
    hmac_sha256_update(&h, n, secret);
    DIGEST(hmac_sha256, &h, 32, out->bytes);
}

void kvstore_key_expand(const struct kvstore_key *from, const char *label, const void *bytes,
                        size_t n, struct kvstore_key *out) {
    static const uint8_t first = 1;
    struct hmac_sha256_ctx h;
    hmac_sha256_set_key(&h, sizeof from->bytes, from->bytes);
    hmac_sha256_update(&h, strlen(label) + 1, (const uint8_t *)label);
    hmac_sha256_update(&h, n, bytes);
    hmac_sha256_update(&h, 1, &first);
    DIGEST(hmac_sha256, &h, 32, out->bytes);
}

void kvstore_key_tenant(const struct kvstore_key *root, struct hash128 tenant,
                        struct kvstore_key *out) {
    uint8_t id[16];
    kvstore_put(id, tenant.lo, 8);
    kvstore_put(id + 8, tenant.hi, 8);
    kvstore_key_expand(root, "tenant", id, sizeof id, out);
}

void kvstore_key_names(const struct kvstore_key *root, struct hash128 tenant,
                       const uint8_t space[32], struct kvstore_key *out) {
    struct kvstore_key mine;
    kvstore_key_tenant(root, tenant, &mine);
    kvstore_key_expand(&mine, "names", space, 32, out);
}

void kvstore_key_file(const struct kvstore_key *root, struct hash128 tenant, const uint8_t salt[32],
                      struct kvstore_key *out) {
    struct kvstore_key mine;
    kvstore_key_tenant(root, tenant, &mine);
    kvstore_key_expand(&mine, "file", salt, 32, out);
}

void kvstore_key_passphrase(const char *passphrase, const uint8_t salt[32], uint32_t iterations,
                            struct kvstore_key *out) {
    pbkdf2_hmac_sha256(strlen(passphrase), (const uint8_t *)passphrase, iterations, 32, salt,
                       sizeof out->bytes, out->bytes);
}

void kvstore_name_next(const struct kvstore_key *names, const struct kvstore_name *parent,
                       const int32_t *tokens, uint32_t block_tokens, struct kvstore_name *out) {
    static const struct kvstore_name start;
    struct hmac_sha256_ctx h;
    hmac_sha256_set_key(&h, sizeof names->bytes, names->bytes);
    hmac_sha256_update(&h, sizeof start.bytes, parent ? parent->bytes : start.bytes);
    for (uint32_t i = 0; i < block_tokens; i++) {
        const uint32_t t = (uint32_t)tokens[i];
        const uint8_t le[4] = {(uint8_t)t, (uint8_t)(t >> 8), (uint8_t)(t >> 16),
                               (uint8_t)(t >> 24)};
        hmac_sha256_update(&h, sizeof le, le);
    }
    DIGEST(hmac_sha256, &h, 32, out->bytes);
}

/* ---- encryption ---- */

static pthread_once_t started = PTHREAD_ONCE_INIT;

static void start_libgcrypt(void) {
    if (gcry_control(GCRYCTL_INITIALIZATION_FINISHED_P)) return;
    gcry_check_version(NULL);
    gcry_control(GCRYCTL_DISABLE_SECMEM, 0);
    gcry_control(GCRYCTL_INITIALIZATION_FINISHED, 0);
}

static int err_cipher(err *e, const char *what, gcry_error_t why) {
    return err_set(e, ERR_NOMEM, "cannot %s: %s", what, gcry_strerror(why));
}

/* A handle with the box's key, nonce and authenticated data. */
static gcry_error_t open_box(const struct kvstore_box *box, gcry_cipher_hd_t *out) {
    uint8_t nonce[12] = {0};
    kvstore_put(nonce, box->number, 8);
    pthread_once(&started, start_libgcrypt);
    gcry_error_t why = gcry_cipher_open(out, GCRY_CIPHER_AES256, GCRY_CIPHER_MODE_OCB, 0);
    if (why) return why;
    why = gcry_cipher_setkey(*out, box->key->bytes, sizeof box->key->bytes);
    if (!why) why = gcry_cipher_setiv(*out, nonce, sizeof nonce);
    if (!why) why = gcry_cipher_authenticate(*out, box->more, box->n_more);
    if (!why) return 0;
    gcry_cipher_close(*out);
    *out = NULL;
    return why;
}

int kvstore_seal(const struct kvstore_box *box, uint8_t *bytes, uint64_t n,
                 uint8_t tag[KVSTORE_TAG_BYTES], err *e) {
    gcry_cipher_hd_t c;
    gcry_error_t why = open_box(box, &c);
    if (why) return err_cipher(e, "encrypt", why);
    why = gcry_cipher_final(c);
    if (!why) why = gcry_cipher_encrypt(c, bytes, (size_t)n, NULL, 0);
    if (!why) why = gcry_cipher_gettag(c, tag, KVSTORE_TAG_BYTES);
    gcry_cipher_close(c);
    return why ? err_cipher(e, "encrypt", why) : 0;
}

int kvstore_unseal_begin(const struct kvstore_box *box, struct kvstore_unsealing *u, err *e) {
    gcry_cipher_hd_t c = NULL;
    gcry_error_t why = open_box(box, &c);
    u->cipher = c;
    return why ? err_cipher(e, "decrypt", why) : 0;
}

int kvstore_unseal_piece(struct kvstore_unsealing *u, uint8_t *bytes, uint64_t n, bool last,
                         err *e) {
    gcry_error_t why = last ? gcry_cipher_final(u->cipher) : 0;
    if (!why) why = gcry_cipher_decrypt(u->cipher, bytes, (size_t)n, NULL, 0);
    return why ? err_cipher(e, "decrypt", why) : 0;
}

int kvstore_unseal_check(struct kvstore_unsealing *u, const uint8_t tag[KVSTORE_TAG_BYTES],
                         err *e) {
    const gcry_error_t why = gcry_cipher_checktag(u->cipher, tag, KVSTORE_TAG_BYTES);
    if (gcry_err_code(why) == GPG_ERR_CHECKSUM) return err_set(e, ERR_FORMAT, "it is forged");
    return why ? err_cipher(e, "decrypt", why) : 0;
}

void kvstore_unseal_end(struct kvstore_unsealing *u) {
    gcry_cipher_close(u->cipher);
}

int kvstore_unseal(const struct kvstore_box *box, uint8_t *bytes, uint64_t n,
                   const uint8_t tag[KVSTORE_TAG_BYTES], err *e) {
    struct kvstore_unsealing u;
    int rc = kvstore_unseal_begin(box, &u, e);
    if (rc) return rc;
    rc = kvstore_unseal_piece(&u, bytes, n, true, e);
    if (!rc) rc = kvstore_unseal_check(&u, tag, e);
    kvstore_unseal_end(&u);
    return rc;
}

/* ---- the secret ---- */

static int err_secret(err *e, const char *path, const char *what) {
    return err_set_param(e, ERR_IO, "folder", "cannot %s the secret of the KV store, %s: %s", what,
                         path, strerror(errno));
}

/* Written beside its place and linked there, so that of two processes one makes it and both read
 * the same. */
static int make_secret(const char *path, err *e) {
    uint8_t secret[KVSTORE_KEY_BYTES];
    char made[KVSTORE_PATH];
    int n = snprintf(made, sizeof made, "%s.%ld", path, (long)getpid());
    if (n < 0 || n >= (int)sizeof made) {
        errno = ENAMETOOLONG;
        return err_secret(e, path, "make");
    }
    if (getentropy(secret, sizeof secret)) return err_secret(e, path, "make");
    unlink(made);
    int fd = file_open(made, O_WRONLY | O_CREAT | O_EXCL, 0600);
    bool ok = fd >= 0 && !file_write_at(fd, secret, sizeof secret, 0) && !file_sync(fd);
    int why = errno;
    if (fd >= 0) close(fd);
    errno = why;
    if (ok && link(made, path) && errno != EEXIST) ok = false;
    why = errno;
    unlink(made);
    errno = why;
    memset(secret, 0, sizeof secret);
    return ok ? 0 : err_secret(e, path, "make");
}

int kvstore_secret_read(const char *path, bool make, struct kvstore_key *root, err *e) {
    uint8_t secret[KVSTORE_KEY_BYTES];
    struct stat st;
    int fd = file_open(path, O_RDONLY, 0);
    if (fd < 0 && errno == ENOENT && make) {
        int rc = make_secret(path, e);
        if (rc) return rc;
        fd = file_open(path, O_RDONLY, 0);
    }
    if (fd < 0) return err_secret(e, path, "read");
    int rc = 0;
    if (fstat(fd, &st))
        rc = err_secret(e, path, "read");
    else if (!S_ISREG(st.st_mode) || st.st_size != KVSTORE_KEY_BYTES)
        rc =
            err_set_param(e, ERR_INVALID, "folder",
                          "%s is not a secret of the KV store (a file of %d bytes): remove it, and "
                          "what was stored is lost",
                          path, KVSTORE_KEY_BYTES);
    else if (st.st_mode & 077)
        rc = err_set_param(e, ERR_INVALID, "folder",
                           "%s, the secret of the KV store, can be read or written by others: "
                           "chmod 600 it",
                           path);
    else if (file_read_at(fd, secret, sizeof secret, 0))
        rc = err_secret(e, path, "read");
    close(fd);
    if (!rc) kvstore_key_extract("inferd kv store", secret, sizeof secret, root);
    memset(secret, 0, sizeof secret);
    return rc;
}
