/* request.c - operations on a request that several files of the server need. Owns nothing. */
#include "api/http/request.h"

#include "api/http/http.h"

void request_drop_body(struct request *r) {
    atomic_fetch_sub(&r->http->n_body_bytes, r->kept_bytes);
    r->kept_bytes = 0;
    str_fini(&r->body);
}
