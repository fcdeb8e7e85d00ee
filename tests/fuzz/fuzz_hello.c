/* fuzz_hello.c - the first message of a stage's connection: head, then body. It is refused, or what
 * was read is within its bounds, and written again gives the same bytes. */
#include "core/backend/tcp/tcp_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

static void need(bool ok, const char *what) {
    if (ok) return;
    fprintf(stderr, "fuzz_hello: %s\n", what);
    abort();
}

static void try_body(const uint8_t *body, uint32_t n) {
    static struct hello h, other;
    uint8_t again[HELLO_HEAD_BYTES + HELLO_MAX_BYTES];
    err e = {0};
    int rc = hello_read(body, n, &h, &e);
    need(!rc == !e.msg[0], "an error has a text, success has none");
    if (rc) return;
    need(h.n >= 2 && h.n <= LINK_MAX_RANKS && h.from < h.n && h.to < h.n && h.from != h.to &&
             h.n_facts <= BACKEND_MAX_FACTS,
         "numbers are within their bounds");
    need(hello_write(&h, again) == HELLO_HEAD_BYTES + n, "it is written in as many bytes");
    need(memcmp(again + HELLO_HEAD_BYTES, body, n) == 0, "and the same ones");
    need(hello_compare(&h, &h, &e) == 0, "it agrees with itself");
    if (!h.n_facts) return;
    other = h;
    other.n_facts--;
    snprintf(other.facts[0].value, sizeof other.facts[0].value, "another");
    hello_compare(&h, &other, &e);
    hello_compare(&other, &h, &e);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    uint32_t n_body = 0;
    err e = {0};
    if (n < HELLO_HEAD_BYTES || hello_read_head(bytes, &n_body, &e)) return 0;
    need(n_body <= HELLO_MAX_BYTES, "a body is bounded");
    if (n - HELLO_HEAD_BYTES < n_body) n_body = (uint32_t)(n - HELLO_HEAD_BYTES);
    uint8_t *body = malloc(n_body ? n_body : 1);
    need(body != NULL, "memory");
    memcpy(body, bytes + HELLO_HEAD_BYTES, n_body); /* of exactly its size */
    try_body(body, n_body);
    free(body);
    return 0;
}
