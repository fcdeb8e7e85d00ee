/* deadline.c - a request's deadline: the configuration's bound, or less if the client asks for
 * less. Owns nothing; runs on HTTP threads. */
#include "api/http/error.h"
#include "api/http/http.h"
#include "api/http/request.h"
#include "api/http/settings.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Asks for less time than request-timeout-s allows, in milliseconds. */
#define TIMEOUT_HEADER "X-Request-Timeout-Ms"

/* Milliseconds, digits only; values out of range become the largest. */
static bool parse_ms(const char *text, uint64_t *ms) {
    if (!*text || strspn(text, "0123456789") != strlen(text)) return false;
    errno = 0;
    *ms = strtoull(text, NULL, 10);
    if (errno || *ms > UINT64_MAX / 1000000) *ms = UINT64_MAX / 1000000;
    return *ms > 0;
}

bool request_read_deadline(struct request *r) {
    uint64_t most_ns = r->settings->config.request_timeout_s * UINT64_C(1000000000), ms;
    const char *given = request_header(r, TIMEOUT_HEADER);
    if (given && !parse_ms(given, &ms)) {
        reply_error(r, &(struct api_error){400, "invalid_request_error", NULL, TIMEOUT_HEADER,
                                           "The header " TIMEOUT_HEADER
                                           " must be a number of milliseconds, 1 or more."});
        return false;
    }
    if (given && (!most_ns || ms * 1000000 < most_ns)) most_ns = ms * 1000000;
    if (most_ns) r->deadline_ns = most_ns < UINT64_MAX - r->start_ns ? r->start_ns + most_ns : 0;
    return true;
}
