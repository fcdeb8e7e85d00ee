/* ep_web.c - the web page: files embedded at build time. Runs on HTTP threads. */
#include "api/http/error.h"
#include "api/http/request.h"
#include "api/http/route.h"
#include "api/native/web_files.h"

#include <string.h>

static const struct web_file *find_file(const char *path) {
    const char *name = strcmp(path, "/") == 0 ? "index.html" : path + (*path == '/');
    for (size_t i = 0; i < web_n_files; i++)
        if (strcmp(web_files[i].name, name) == 0) return &web_files[i];
    return NULL;
}

/* May the file's encoding be sent? Without the header any may (RFC 9110, 12.5.3). Weights are not
 * read: every browser names gzip. */
static bool accepts_encoding(const struct request *r, const struct web_file *file) {
    const char *accepted = request_header(r, "Accept-Encoding");
    return !file->encoding || !accepted || strstr(accepted, file->encoding) ||
           strchr(accepted, '*');
}

/* The page shows text that a model wrote, so the policy allows only its own scripts and styles, no
 * frames, no other hosts. */
static void handle_web(struct request *r) {
    const struct web_file *file = find_file(r->path);
    struct reply *p = &r->reply;
    if (!accepts_encoding(r, file)) {
        static const struct api_error refused = {
            406, "invalid_request_error", "encoding_not_accepted", NULL,
            "This file is kept compressed: send Accept-Encoding: gzip."};
        reply_error(r, &refused);
        return;
    }
    if (file->encoding) reply_header(r, "Content-Encoding", file->encoding);
    p->content_type = file->content_type;
    reply_header(r, "Content-Security-Policy",
                 "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
                 "font-src 'self'; connect-src 'self'; manifest-src 'self'; base-uri 'none'; "
                 "form-action 'none'; "
                 "frame-ancestors 'none'");
    reply_header(r, "X-Content-Type-Options", "nosniff");
    reply_header(r, "Referrer-Policy", "no-referrer");
    reply_header(r, "Cache-Control", "no-cache");
    reply_header(r, "ETag", file->etag);
    const char *known = request_header(r, "If-None-Match");
    p->data = file->bytes;
    p->n_data = known && strstr(known, file->etag) ? 0 : file->n;
    p->status = p->n_data || !file->n ? 200 : 304;
}

static bool is_file(const char *path) {
    return find_file(path) != NULL;
}

const struct route web_route = {"GET", "/", ROUTE_DIRECT, handle_web, "web", .matches = is_file};
