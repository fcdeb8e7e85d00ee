/* hf/json.c - the JSON files of a Hugging Face folder: read whole, parsed, their members looked up.
 * Any thread. */
#include "core/formats/hf/json.h"

#include "core/base/mem.h"
#include "core/text/json.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const cJSON *hf_member(const cJSON *object, const char *name) {
    return object ? cJSON_GetObjectItemCaseSensitive(object, name) : NULL;
}

const char *hf_text(const cJSON *object, const char *name) {
    const cJSON *item = hf_member(object, name);
    return cJSON_IsString(item) ? item->valuestring : NULL;
}

bool hf_flag(const cJSON *object, const char *name, bool otherwise) {
    const cJSON *item = hf_member(object, name);
    return cJSON_IsBool(item) ? cJSON_IsTrue(item) : otherwise;
}

int hf_file_read(const char *path, size_t max_bytes, bool may_miss, char **text, size_t *n,
                 err *e) {
    struct stat st;
    *text = NULL;
    *n = 0;
    int rc = 0, fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 && may_miss && errno == ENOENT) return 0;
    if (fd < 0) return err_set(e, ERR_IO, "%s: cannot open: %s", path, strerror(errno));
    if (fstat(fd, &st))
        rc = err_set(e, ERR_IO, "%s: cannot stat: %s", path, strerror(errno));
    else if (!S_ISREG(st.st_mode))
        rc = err_set(e, ERR_IO, "%s: not a regular file", path);
    else if ((uint64_t)st.st_size > max_bytes)
        rc = err_set(e, ERR_FORMAT, "%s: too large (at most %zu bytes)", path, max_bytes);
    size_t size = rc ? 0 : (size_t)st.st_size;
    if (!rc && !(*text = mem_new((uint64_t)size + 1, 1)))
        rc = err_set(e, ERR_NOMEM, "%s: no memory to read it", path);
    while (!rc && *n < size) {
        ssize_t got = read(fd, *text + *n, size - *n);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) rc = err_set(e, ERR_IO, "%s: cannot read: %s", path, strerror(errno));
        if (got == 0) rc = err_set(e, ERR_IO, "%s: the file was truncated while it was read", path);
        if (got > 0) *n += (size_t)got;
    }
    close(fd);
    if (rc) {
        free(*text);
        *text = NULL;
    }
    return rc;
}

int hf_json_parse(const char *text, size_t n, void **document, err *e) {
    static const struct json_rules rules = {
        .max_depth = 1000, .nul = JSON_NUL_ENDS, .duplicate_keys = true, .byte_order_mark = true};
    cJSON *json = NULL;
    int rc = json_decode(text, n, &rules, &json, e);
    *document = json;
    if (!rc && !cJSON_IsObject(json)) rc = err_set(e, ERR_FORMAT, "not a JSON object");
    return rc;
}
