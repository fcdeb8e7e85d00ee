/* replies.c - what the endpoints of files and batches answer when they cannot. Pool threads. */
#include "api/batch/batch_int.h"

#include "api/http/error.h"
#include "api/http/request.h"

batches *batch_store(struct request *r) {
    batches *b = r->api->config.batches;
    if (!b)
        reply_error(r, &(struct api_error){501, "invalid_request_error", "files_not_stored", NULL,
                                           "This server stores no files: see its log."});
    return b;
}

void batch_reply_failed(struct request *r, unsigned full, const char *full_code, const err *e) {
    struct api_error error = {400, "invalid_request_error", NULL, e->param, e->msg};
    if (e->code == ERR_NOT_FOUND) {
        error.status = 404;
    } else if (e->code == ERR_FULL) {
        error.status = full;
        error.code = full_code;
    } else if (e->code == ERR_UNAVAILABLE) {
        error.status = 503;
        error.type = "server_error";
        error.code = "overloaded";
    } else if (e->code != ERR_FORMAT) {
        reply_err(r, e);
        return;
    }
    reply_error(r, &error);
}
