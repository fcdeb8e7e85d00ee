/* anthropic/files.c - the text of uploaded files, which content blocks name. Owns nothing; pool
 * threads. */
#include "api/anthropic/files.h"

#include "api/generate/api_state.h"
#include "api/http/auth.h"
#include "api/http/request.h"

#include "core/base/clock.h"
#include "core/base/file.h"
#include "core/base/mem.h"
#include "core/base/work.h"
#include "core/text/utf8.h"
#include "registry/batches.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* As for the bytes of a body, a file of more than 256 KiB leaves the quick lane (prepare.c). */
enum { UNITS_PER_BYTE = 8 };

#define HINT "Send the text itself, with source type 'text'."

/* What cannot be a text by its media type is refused with that; the bytes decide of the rest. */
static int check_type(const struct batches_file *f, err *e) {
    static const char *const other[] = {"image/", "audio/", "video/", "font/", "application/pdf"};
    for (size_t i = 0; i < sizeof other / sizeof *other; i++)
        if (strncmp(f->mime, other[i], strlen(other[i])) == 0)
            return err_set(e, ERR_UNSUPPORTED,
                           "The model reads text only, and the file '%.60s' is %.100s. " HINT,
                           f->id, f->mime);
    return 0;
}

static int check_text(const struct batches_file *f, const char *text, size_t n, err *e) {
    if (!memchr(text, 0, n) && utf8_valid(text, n)) return 0;
    return err_set(
        e, ERR_UNSUPPORTED,
        "The model reads text only, and the file '%.60s' (%.100s) is none in UTF-8. " HINT, f->id,
        *f->mime ? f->mime : "application/octet-stream");
}

static int read_text(struct messages_files *files, const struct batches_file *f, int fd, str *out,
                     err *e) {
    static const char mark[] = "\xef\xbb\xbf"; /* of the byte order: no part of the text */
    size_t n = (size_t)f->n_bytes, skip = 0;
    char *text = mem_new(n + 1, 1);
    if (!text) return err_no_memory(e);
    int rc = 0;
    if (file_read_at(fd, text, n, 0))
        rc = err_set(e, ERR_IO, "cannot read the file %s: %s", f->id,
                     errno ? strerror(errno) : "it is too short");
    if (!rc) rc = check_text(f, text, n, e);
    if (!rc && strncmp(text, mark, sizeof mark - 1) == 0) skip = sizeof mark - 1;
    if (!rc) str_add_n(out, text + skip, n - skip);
    free(text);
    files->left_bytes -= f->n_bytes;
    return rc;
}

int messages_file_add(struct messages_files *files, const char *id, str *out, err *e) {
    struct request *r = files->request;
    batches *b = r->api->config.batches;
    struct batches_file f;
    int fd = -1;
    if (!b) return err_set(e, ERR_UNSUPPORTED, "This server stores no files. " HINT);
    int rc = batches_file_get(b, id, auth_key(r), clock_wall_s(), &f, e);
    if (!rc) rc = check_type(&f, e);
    if (!rc && f.n_bytes > files->left_bytes)
        rc = err_set(e, ERR_TOO_LONG, "The files of a request have more than %llu bytes.",
                     (unsigned long long)r->settings->config.max_body_bytes);
    if (!rc && !work_spend(&r->work, f.n_bytes * UNITS_PER_BYTE))
        rc = work_error(r->work.reason, e);
    if (!rc) rc = batches_file_open(b, id, &fd, e);
    if (!rc) rc = read_text(files, &f, fd, out, e);
    if (fd >= 0) close(fd);
    return rc;
}
