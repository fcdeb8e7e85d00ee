/* config_files.c - files that the configuration refers to: paths of registry and models, API keys,
 * the Hub's address and token. */
#include "daemon/config.h"

#include "core/base/mem.h"
#include "daemon/input.h"

#include <errno.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_MAX_BYTES = 4096, KEYS_MAX_BYTES = 1 << 20, KEYS_MAX = 10000, TOKEN_MAX_BYTES = 4096 };

/* A folder of the XDG base directory specification, which requires to ignore a relative value of
 * the variable. initial: its place in the home folder. */
static void add_user_folder(str *path, const char *variable, const char *initial) {
    const char *data = getenv(variable), *home = getenv("HOME");
    if (data && data[0] == '/') {
        str_add(path, data);
        return;
    }
    if (!home || home[0] != '/') {
        const struct passwd *pw = getpwuid(getuid());
        home = pw ? pw->pw_dir : NULL;
    }
    if (home && home[0] == '/') str_addf(path, "%s/%s", home, initial);
}

/* The value of key, else name below the systemd unit's state folder or the user's data folder. */
static int data_path(const char *key, const char *value, const char *name, char **path, err *e) {
    str s;
    str_init(&s, PATH_MAX_BYTES);
    const char *state = getenv("STATE_DIRECTORY"); /* several are separated by colons */
    if (value[0]) {
        str_add(&s, value);
    } else if (state && state[0] == '/') {
        str_add_n(&s, state, strcspn(state, ":"));
        str_addf(&s, "/%s", name);
    } else {
        add_user_folder(&s, "XDG_DATA_HOME", ".local/share");
        if (s.len == 0) {
            str_fini(&s);
            return err_set_param(e, ERR_INVALID, key, "the home folder is unknown: set %s", key);
        }
        str_addf(&s, "/inferd/%s", name);
    }
    *path = str_take(&s);
    str_fini(&s);
    return *path ? 0
                 : err_set_param(e, ERR_INVALID, key, "%s: the path is longer than %d bytes", key,
                                 PATH_MAX_BYTES);
}

int config_registry_path(const struct config *c, char **path, err *e) {
    return data_path("registry", c->registry, "registry.db", path, e);
}

int config_models_path(const struct config *c, char **path, err *e) {
    return data_path("models-dir", c->models_dir, "models", path, e);
}

/* Creates the folders of path. false: errno tells why. */
static bool make_folders(char *path) {
    int refused = 0; /* perhaps because the folder exists */
    for (char *slash = path + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = '\0';
        bool ok = mkdir(path, 0700) == 0 || errno == EEXIST;
        *slash = '/';
        if (ok) continue;
        if (errno != EROFS && errno != EACCES) break;
        refused = errno;
    }
    if (mkdir(path, 0700) == 0 || errno == EEXIST) return true;
    if (errno == ENOENT && refused) errno = refused;
    return false;
}

int config_state_folder(const char *name, char **path, err *e) {
    const char *state = getenv("STATE_DIRECTORY");
    str s;
    str_init(&s, PATH_MAX_BYTES);
    if (state && state[0] == '/') {
        str_add_n(&s, state, strcspn(state, ":"));
    } else {
        add_user_folder(&s, "XDG_STATE_HOME", ".local/state");
        if (s.len) str_add(&s, "/inferd");
    }
    int rc = s.len ? 0 : err_set(e, ERR_IO, "the home folder is unknown: set XDG_STATE_HOME");
    if (name[0]) str_addf(&s, "/%s", name);
    *path = rc ? NULL : str_take(&s);
    str_fini(&s);
    if (!rc && !*path) rc = err_no_memory(e);
    if (!rc && !make_folders(*path)) {
        rc = err_set(e, ERR_IO, "cannot create %s: %s (XDG_STATE_HOME names another folder for it)",
                     *path, strerror(errno));
        free(*path);
        *path = NULL;
    }
    return rc;
}

static int check_private(const char *key, const char *path, err *e) {
    struct stat st;
    if (stat(path, &st))
        return err_set_param(e, ERR_IO, key, "%s %s: %s", key, path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return err_set_param(e, ERR_INVALID, key, "%s %s is not a file", key, path);
    if (st.st_mode & (S_IROTH | S_IWOTH))
        return err_set_param(e, ERR_INVALID, key,
                             "%s %s can be read or written by every user: chmod 600 it", key, path);
    return 0;
}

static int add_key(struct config_api_keys *k, const char *line, size_t n, err *e) {
    for (size_t i = 0; i < n; i++)
        if (line[i] <= ' ' || line[i] > '~')
            return err_set(e, ERR_INVALID, "an API key must be printable ASCII without spaces");
    if (k->n == KEYS_MAX) return err_set(e, ERR_INVALID, "more than %d API keys", KEYS_MAX);
    char **more = mem_resize(k->keys, k->n + 1, sizeof *more);
    if (!more) return err_no_memory(e);
    k->keys = more;
    if (!(k->keys[k->n] = mem_strndup(line, n))) return err_no_memory(e);
    k->n++;
    return 0;
}

int config_read_api_keys(const char *path, struct config_api_keys *out, err *e) {
    memset(out, 0, sizeof *out);
    return config_add_api_keys("api-key-file", path, out, e);
}

int config_add_api_keys(const char *key, const char *path, struct config_api_keys *out, err *e) {
    char *text;
    size_t before = out->n;
    size_t n;
    unsigned number = 0;
    if (!path[0]) return 0;
    int rc = check_private(key, path, e);
    if (!rc) rc = textfile_read(path, KEYS_MAX_BYTES, &text, &n, e);
    if (rc) {
        config_api_keys_fini(out);
        return rc;
    }
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
    } else if (out->n == before) {
        config_api_keys_fini(out);
        rc = err_set_param(e, ERR_INVALID, key, "%s %s contains no key", key, path);
    }
    return rc;
}

void config_api_keys_fini(struct config_api_keys *k) {
    for (size_t i = 0; i < k->n; i++)
        free(k->keys[i]);
    free(k->keys);
    memset(k, 0, sizeof *k);
}

const char *config_hf_endpoint(const struct config *c) {
    const char *env = getenv("HF_ENDPOINT");
    if (c->hf_endpoint[0]) return c->hf_endpoint;
    return env && env[0] ? env : "https://huggingface.co";
}

int config_read_hf_token(const struct config *c, char **token, err *e) {
    const char *path = c->hf_token_file, *env = getenv("HF_TOKEN"), *from = "HF_TOKEN";
    char *text;
    size_t n;
    int rc = 0;
    *token = NULL;
    if (path[0]) {
        from = "hf-token-file";
        rc = check_private(from, path, e);
        if (!rc) rc = textfile_read(path, TOKEN_MAX_BYTES, &text, &n, e);
        if (rc) return rc;
    } else if (!(text = mem_strdup(env ? env : ""))) {
        return err_no_memory(e);
    }
    text[strcspn(text, "\r\n")] = '\0';
    for (const char *ch = text; *ch && !rc; ch++)
        if (*ch <= ' ' || *ch > '~')
            rc = err_set_param(e, ERR_INVALID, from,
                               "%s: a token must be printable ASCII without spaces", from);
    if (!rc && path[0] && !text[0])
        rc = err_set_param(e, ERR_INVALID, from, "%s %s contains no token", from, path);
    if (rc)
        free(text);
    else
        *token = text;
    return rc;
}
