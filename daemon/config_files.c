/* config_files.c - files that the configuration points to: where the registry is, API keys. */
#include "daemon/config.h"

#include "core/base/mem.h"
#include "daemon/input.h"

#include <errno.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_MAX_BYTES = 4096, KEYS_MAX_BYTES = 1 << 20, KEYS_MAX = 10000 };

/* A relative XDG_DATA_HOME is to be ignored (XDG base directory specification). */
static void add_data_home(str *path) {
    const char *data = getenv("XDG_DATA_HOME"), *home = getenv("HOME");
    if (data && data[0] == '/') {
        str_add(path, data);
        return;
    }
    if (!home || home[0] != '/') {
        const struct passwd *pw = getpwuid(getuid());
        home = pw ? pw->pw_dir : NULL;
    }
    if (home && home[0] == '/') str_addf(path, "%s/.local/share", home);
}

int config_registry_path(const struct config *c, char **path, err *e) {
    str s;
    str_init(&s, PATH_MAX_BYTES);
    const char *state = getenv("STATE_DIRECTORY"); /* may be several, colons between */
    if (c->registry[0]) {
        str_add(&s, c->registry);
    } else if (state && state[0] == '/') {
        str_add_n(&s, state, strcspn(state, ":"));
        str_add(&s, "/registry.db");
    } else {
        add_data_home(&s);
        if (s.len == 0) {
            str_fini(&s);
            return err_set_param(e, ERR_INVALID, "registry",
                                 "no home folder to keep the registry in: give --registry FILE");
        }
        str_add(&s, "/inferd/registry.db");
    }
    *path = str_take(&s);
    str_fini(&s);
    return *path ? 0 : err_set(e, ERR_INVALID, "the registry's path is too long");
}

static int check_private(const char *path, err *e) {
    struct stat st;
    if (stat(path, &st))
        return err_set_param(e, ERR_IO, "api-key-file", "api-key-file %s: %s", path,
                             strerror(errno));
    if (!S_ISREG(st.st_mode))
        return err_set_param(e, ERR_INVALID, "api-key-file", "api-key-file %s is not a file", path);
    if (st.st_mode & (S_IROTH | S_IWOTH))
        return err_set_param(e, ERR_INVALID, "api-key-file",
                             "api-key-file %s can be read or written by everybody: chmod 600 it",
                             path);
    return 0;
}

static int add_key(struct config_api_keys *k, const char *line, size_t n, err *e) {
    for (size_t i = 0; i < n; i++)
        if (line[i] <= ' ' || line[i] > '~')
            return err_set(e, ERR_INVALID, "a key is printable ASCII without spaces");
    if (k->n == KEYS_MAX) return err_set(e, ERR_INVALID, "more than %d keys", KEYS_MAX);
    char **more = mem_resize(k->keys, k->n + 1, sizeof *more);
    if (!more) return err_set(e, ERR_NOMEM, "no memory for API keys");
    k->keys = more;
    if (!(k->keys[k->n] = mem_strndup(line, n)))
        return err_set(e, ERR_NOMEM, "no memory for API keys");
    k->n++;
    return 0;
}

int config_read_api_keys(const char *path, struct config_api_keys *out, err *e) {
    char *text;
    size_t n;
    unsigned number = 0;
    memset(out, 0, sizeof *out);
    if (!path[0]) return 0;
    int rc = check_private(path, e);
    if (!rc) rc = textfile_read(path, KEYS_MAX_BYTES, &text, &n, e);
    if (rc) return rc;
    for (char *line = text, *end = text + n; line < end && !rc;) {
        size_t len = 0;
        while (line + len < end && line[len] != '\n')
            len++;
        size_t used = len && line[len - 1] == '\r' ? len - 1 : len;
        number++;
        if (used && line[0] != '#') rc = add_key(out, line, used, e);
        line += len < (size_t)(end - line) ? len + 1 : len;
    }
    free(text);
    if (rc) {
        err_prefix(e, "%s:%u: ", path, number);
        config_api_keys_fini(out);
    } else if (out->n == 0) {
        rc = err_set_param(e, ERR_INVALID, "api-key-file", "api-key-file %s holds no key", path);
    }
    return rc;
}

void config_api_keys_fini(struct config_api_keys *k) {
    for (size_t i = 0; i < k->n; i++)
        free(k->keys[i]);
    free(k->keys);
    memset(k, 0, sizeof *k);
}
