/* hash.c - SHA-256, git's SHA-1 of a blob (over "blob SIZE", a NUL and the bytes), and the HMAC of
 * API keys. The only caller of nettle, whose signatures differ between versions. */
#include "registry/registry_int.h"

#include <nettle/hmac.h>
#include <nettle/memops.h>
#include <nettle/version.h>
#include <stdio.h>
#include <string.h>

void registry_hash_init(struct registry_hash *h) {
    h->is_git = false;
    sha256_init(&h->sha256);
}

void registry_hash_init_git(struct registry_hash *h, uint64_t size_bytes) {
    char head[32];
    int n = snprintf(head, sizeof head, "blob %llu", (unsigned long long)size_bytes);
    h->is_git = true;
    sha1_init(&h->sha1);
    sha1_update(&h->sha1, (size_t)n + 1, (const uint8_t *)head);
}

void registry_hash_add(struct registry_hash *h, const void *bytes, size_t n) {
    if (h->is_git)
        sha1_update(&h->sha1, n, bytes);
    else
        sha256_update(&h->sha256, n, bytes);
}

void registry_hash_hex(struct registry_hash *h, char hex[65]) {
    uint8_t digest[SHA256_DIGEST_SIZE];
    size_t n = h->is_git ? SHA1_DIGEST_SIZE : SHA256_DIGEST_SIZE;
#if NETTLE_VERSION_MAJOR >= 4
    if (h->is_git)
        sha1_digest(&h->sha1, digest);
    else
        sha256_digest(&h->sha256, digest);
#else
    if (h->is_git)
        sha1_digest(&h->sha1, n, digest);
    else
        sha256_digest(&h->sha256, n, digest);
#endif
    for (size_t i = 0; i < n; i++)
        snprintf(hex + 2 * i, 3, "%02x", digest[i]);
}

void registry_owner_of(const char *key, char owner[REGISTRY_OWNER_BYTES]) {
    struct registry_hash h;
    *owner = '\0';
    if (!key) return;
    registry_hash_init(&h);
    registry_hash_add(&h, key, strlen(key));
    registry_hash_hex(&h, owner);
}

void registry_hmac(const uint8_t salt[REGISTRY_SALT_BYTES], const char *text,
                   uint8_t out[SHA256_DIGEST_SIZE]) {
    struct hmac_sha256_ctx h;
    hmac_sha256_set_key(&h, REGISTRY_SALT_BYTES, salt);
    hmac_sha256_update(&h, strlen(text), (const uint8_t *)text);
#if NETTLE_VERSION_MAJOR >= 4
    hmac_sha256_digest(&h, out);
#else
    hmac_sha256_digest(&h, SHA256_DIGEST_SIZE, out);
#endif
}

bool registry_hmac_is(const uint8_t a[SHA256_DIGEST_SIZE], const uint8_t b[SHA256_DIGEST_SIZE]) {
    return memeql_sec(a, b, SHA256_DIGEST_SIZE);
}
