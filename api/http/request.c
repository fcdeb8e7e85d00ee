/* request.c - what is done to a request by several of the server's files. Owns nothing. */
#include "api/http/request.h"

#include "api/http/http.h"

void request_drop_body(struct request *r) {
    atomic_fetch_sub(&r->http->n_body_bytes, r->kept_bytes);
    r->kept_bytes = 0;
    str_fini(&r->body);
}
