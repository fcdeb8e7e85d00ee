/* commands/kv.c - inferd kv list | show | verify | prune | export | import: the folder of the KV
 * store. */
#include "core/base/clock.h"
#include "core/base/key.h"
#include "daemon/commands/audit.h"
#include "daemon/commands/commands.h"
#include "daemon/commands/printing.h"
#include "daemon/input.h"
#include "daemon/kv_tiers.h"
#include "daemon/loader.h"
#include "daemon/options.h"
#include "registry/keys.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { COLUMNS = 7, PATH_BYTES = 4096 };

static const char *const kv_keys[] = {
    "kv-dir", "kv-dir-bytes", "kv-dir-files", "kv-dir-age-s", "kv-dir-daily-bytes", "registry",
    NULL};

/* Common to all subcommands. */
struct kv_command {
    struct config config;
    struct options options;
    char secret[PATH_BYTES];
    char *registry; /* its file */
};

/* Returns -1 to continue, else the exit status. Call kv_end in any case. */
static int kv_begin(struct kv_command *k, int argc, char **argv, err *e) {
    if (config_init(&k->config, e)) return 1;
    k->options.config = &k->config;
    k->options.keys = kv_keys;
    int rc = options_parse(&k->options, argc, argv, NULL, e);
    if (rc) return options_exit(rc);
    if (!k->config.kv_dir[0]) {
        err_set_param(e, ERR_INVALID, "kv-dir",
                      "kv-dir is not set: give --kv-dir or --config FILE");
        return EXIT_USAGE;
    }
    if (config_registry_path(&k->config, &k->registry, e)) return 1;
    rc = kv_tiers_secret(k->registry, k->secret, sizeof k->secret, e);
    return rc ? 1 : -1;
}

static int kv_end(struct kv_command *k, int status) {
    config_fini(&k->config);
    free(k->registry);
    return status;
}

static void count_entry(void *arg, const struct kvstore_entry *s) {
    (void)s;
    ++*(uint64_t *)arg;
}

/* Nonzero: there is no folder with an index. */
static int find_folder(const struct kv_command *k, err *e) {
    uint64_t n = 0;
    return kvstore_list(k->config.kv_dir, count_entry, &n, e);
}

/* ---- list ---- */

struct listing {
    cJSON *array; /* NULL: a table */
    struct printing_table *table;
    uint64_t n, bytes;
};

/* Tokens of the chain that the segment holds: "0-1024". */
static void format_tokens(const struct kvstore_entry *s, char *out, size_t n) {
    const uint64_t first = (uint64_t)s->first * s->block_tokens;
    snprintf(out, n, "%llu-%llu", (unsigned long long)first,
             (unsigned long long)(first + (uint64_t)s->n_blocks * s->block_tokens));
}

/* Enough of a hash to tell tenants apart; "-": requests without key and cache_salt. */
static void format_tenant(const struct kvstore_entry *s, char *out, size_t n) {
    if (s->tenant.lo || s->tenant.hi)
        snprintf(out, n, "%08x", (unsigned)(s->tenant.lo >> 32));
    else
        snprintf(out, n, "-");
}

static void add_entry(void *arg, const struct kvstore_entry *s) {
    struct listing *l = arg;
    char tokens[48], tenant[16], size[32], hits[24], used[32];
    struct tm local;
    const time_t at = (time_t)s->used_s;
    format_tokens(s, tokens, sizeof tokens);
    format_tenant(s, tenant, sizeof tenant);
    l->n++;
    l->bytes += s->bytes;
    if (l->array) {
        cJSON *o = cJSON_CreateObject();
        cJSON_AddStringToObject(o, "file", s->file);
        cJSON_AddStringToObject(o, "model", s->label);
        cJSON_AddStringToObject(o, "version", s->version);
        cJSON_AddStringToObject(o, "tenant", tenant);
        cJSON_AddNumberToObject(o, "first_token", (double)s->first * s->block_tokens);
        cJSON_AddNumberToObject(o, "tokens", (double)s->n_blocks * s->block_tokens);
        cJSON_AddBoolToObject(o, "state", s->has_state);
        cJSON_AddNumberToObject(o, "size_bytes", (double)s->bytes);
        cJSON_AddNumberToObject(o, "hits", (double)s->hits);
        cJSON_AddNumberToObject(o, "created", (double)s->created_s);
        cJSON_AddNumberToObject(o, "used", (double)s->used_s);
        cJSON_AddItemToArray(l->array, o);
        return;
    }
    format_bytes(s->bytes, size, sizeof size);
    snprintf(hits, sizeof hits, "%llu", (unsigned long long)s->hits);
    strftime(used, sizeof used, "%Y-%m-%d %H:%M", localtime_r(&at, &local));
    const char *const cells[COLUMNS] = {s->label, tenant, tokens, size, hits, used, s->file};
    if (l->table) printing_table_add(l->table, cells);
}

static int run_list(int argc, char **argv, err *e) {
    static const char *const heads[COLUMNS] = {"MODEL", "TENANT", "TOKENS", "SIZE",
                                               "HITS",  "USED",   "FILE"};
    static const bool right[COLUMNS] = {false, false, true, true, true, false, false};
    bool json = false;
    const struct option own[] = {
        {.name = "json", .kind = OPTION_SWITCH, .target = &json, .help = "print a JSON array"}};
    struct kv_command k = {.options = {.usage = "kv list",
                                       .summary = "Lists the segments in kv-dir, by model, tenant\n"
                                                  "(API key and cache_salt, hashed) and place. A\n"
                                                  "daemon may be using it.",
                                       .options = own,
                                       .n_options = 1}};
    struct listing l = {.n = 0};
    char size[32];
    int status = kv_begin(&k, argc, argv, e);
    if (status >= 0) return kv_end(&k, status);
    if (find_folder(&k, e)) return kv_end(&k, 1);
    if (json)
        l.array = cJSON_CreateArray();
    else
        l.table = printing_table_new(heads, right, COLUMNS);
    int rc = kvstore_list(k.config.kv_dir, add_entry, &l, e);
    if (json && rc)
        cJSON_Delete(l.array);
    else if (json)
        rc = printing_json(l.array, e);
    else
        printing_table_print(l.table);
    format_bytes(l.bytes, size, sizeof size);
    if (!rc && !json) printf("%llu segments, %s\n", (unsigned long long)l.n, size);
    return kv_end(&k, rc ? 1 : 0);
}

/* ---- verify ---- */

struct verifying {
    uint64_t n, n_bad;
};

static void show_damage(void *arg, const struct kvstore_entry *s) {
    struct verifying *v = arg;
    v->n++;
    if (!s->damage->code) return;
    v->n_bad++;
    printf("%s: FAILED: %s\n", s->file, s->damage->msg);
}

static int run_verify(int argc, char **argv, err *e) {
    struct kv_command k = {.options = {.usage = "kv verify",
                                       .summary =
                                           "Reads and authenticates every byte in kv-dir, and\n"
                                           "changes nothing. A daemon may be using it."}};
    struct verifying v = {.n = 0};
    int status = kv_begin(&k, argc, argv, e);
    if (status >= 0) return kv_end(&k, status);
    if (kvstore_verify(k.config.kv_dir, k.secret, show_damage, &v, e)) return kv_end(&k, 1);
    printf("%llu segments, %llu damaged\n", (unsigned long long)v.n, (unsigned long long)v.n_bad);
    return kv_end(&k, v.n_bad ? 1 : 0);
}

/* ---- prune ---- */

struct pruning {
    const char *model; /* NULL: of any */
    uint64_t unused_s;
    int64_t now_s;
};

static bool is_chosen(void *arg, const struct kvstore_entry *s) {
    const struct pruning *p = arg;
    if (p->model && strcmp(p->model, s->label) != 0) return false;
    return p->now_s - s->used_s >= (int64_t)p->unused_s;
}

static int run_prune(int argc, char **argv, err *e) {
    struct pruning p = {.now_s = clock_wall_s()};
    bool all = false;
    const struct option own[] = {
        {.name = "model",
         .kind = OPTION_TEXT,
         .target = &p.model,
         .value = "MODEL",
         .help = "only segments of this model"},
        {.name = "unused-s",
         .kind = OPTION_NUMBER,
         .target = &p.unused_s,
         .value = "SECONDS",
         .help = "only what was not used for so long",
         .max = UINT64_C(315360000)},
        {.name = "all", .kind = OPTION_SWITCH, .target = &all, .help = "every segment"}};
    struct kv_command k = {.options = {.usage = "kv prune",
                                       .summary = "Deletes segments from kv-dir. No daemon may be\n"
                                                  "using it.",
                                       .options = own,
                                       .n_options = 3}};
    kvstore *ks = NULL;
    int status = kv_begin(&k, argc, argv, e);
    if (status >= 0) return kv_end(&k, status);
    if (!all && !p.model && !p.unused_s) {
        err_set(e, ERR_INVALID, "say which segments: --model, --unused-s or --all");
        return kv_end(&k, EXIT_USAGE);
    }
    const struct kvstore_config config = {.folder = k.config.kv_dir,
                                          .secret = k.secret,
                                          .version = "",
                                          .max_bytes = UINT64_MAX,
                                          .max_files = UINT64_MAX};
    int rc = find_folder(&k, e); /* kvstore_open would make it */
    if (!rc) rc = kvstore_open(&config, &ks, e);
    if (!rc)
        printf("deleted %llu segments\n", (unsigned long long)kvstore_prune(ks, is_chosen, &p));
    kvstore_close(ks);
    audit_note_at(k.registry, "kv.prune", p.model, rc);
    return kv_end(&k, rc ? 1 : 0);
}

/* ---- show, export, import ---- */

/* Tokens of a chain as text, of the registered model that the store calls so; NULL: there is none.
 */
static char *text_of(const struct config *c, const char *label, const int32_t *ids, size_t n,
                     size_t *len) {
    struct loader_model m;
    tokenizer *tok = NULL;
    char *text = NULL;
    if (loader_find_registered(c, label, &m, NULL)) return NULL;
    if (!tokenizer_open(m.path, &tok, NULL) &&
        tokenizer_decode(tok, ids, n, true, &text, len, NULL))
        text = NULL;
    tokenizer_close(tok);
    loader_model_fini(&m);
    return text;
}

static int run_show(int argc, char **argv, err *e) {
    const char *file = NULL;
    bool text = false;
    const struct option own[] = {
        {.name = "text",
         .kind = OPTION_SWITCH,
         .target = &text,
         .help = "print what the chain was computed from; the model must be registered"}};
    struct kv_command k = {.options = {.usage = "kv show SEGMENT",
                                       .summary =
                                           "Shows the chain that ends with a segment of\n"
                                           "`inferd kv list`: its model, tokens and size. A\n"
                                           "daemon may be using it.",
                                       .options = own,
                                       .n_options = 1,
                                       .args = &file,
                                       .min_args = 1,
                                       .max_args = 1}};
    struct kvstore_moved m;
    int32_t *ids;
    size_t n_text = 0;
    int status = kv_begin(&k, argc, argv, e);
    if (status >= 0) return kv_end(&k, status);
    const struct kvstore_place place = {k.config.kv_dir, k.secret};
    if (kvstore_show(&place, file, &ids, &m, e)) return kv_end(&k, 1);
    const size_t n = (size_t)m.n_blocks * m.block_tokens;
    if (text) {
        char *decoded = text_of(&k.config, m.label, ids, n, &n_text);
        if (decoded)
            fwrite(decoded, 1, n_text, stdout);
        else
            err_set(e, ERR_NOT_FOUND, "no registered model is named %s", m.label);
        status = decoded ? 0 : 1;
        free(decoded);
        audit_note_at(k.registry, "kv.show_text", file, status ? ERR_NOT_FOUND : 0);
    } else {
        char size[32];
        format_bytes(m.bytes, size, sizeof size);
        printf("model     %s\ntokens    %zu\nsegments  %u, %s\nstate     %s\nbuild     %s\n",
               m.label, n, m.n_segments, size, m.has_state ? "yes" : "no", m.version);
        status = 0;
    }
    free(ids);
    return kv_end(&k, status);
}

enum { PASSPHRASE_LEAST = 8, PASSPHRASE_MOST = 1024, KEY_FILE_MOST = 65536 };

/* The first line of the file. */
static int read_passphrase(const char *file, char **out, err *e) {
    size_t n;
    int rc = file ? textfile_read(file, PASSPHRASE_MOST, out, &n, e)
                  : err_set(e, ERR_INVALID, "give --passphrase-file FILE");
    if (rc) return rc;
    (*out)[strcspn(*out, "\r\n")] = '\0';
    if (strlen(*out) >= PASSPHRASE_LEAST) return 0;
    free(*out);
    *out = NULL;
    return err_set(e, ERR_INVALID, "%s: a passphrase has at least %d characters", file,
                   PASSPHRASE_LEAST);
}

#define PASSPHRASE(target_at)                                                                      \
    {                                                                                              \
        .name = "passphrase-file", .kind = OPTION_TEXT, .target = (target_at), .value = "FILE",    \
        .help = "its first line is the passphrase"                                                 \
    }

static int run_export(int argc, char **argv, err *e) {
    const char *args[2] = {NULL, NULL}, *file = NULL;
    const struct option own[] = {PASSPHRASE(&file)};
    struct kv_command k = {
        .options = {.usage = "kv export SEGMENT FILE",
                    .summary = "Writes the chain that ends with a segment to a new file, for\n"
                               "`inferd kv import` on another machine with the same model, build\n"
                               "and kind of processor. It is encrypted under the passphrase. A\n"
                               "daemon may be using kv-dir.",
                    .options = own,
                    .n_options = 1,
                    .args = args,
                    .min_args = 2,
                    .max_args = 2}};
    struct kvstore_moved m;
    char *passphrase = NULL, size[32];
    int status = kv_begin(&k, argc, argv, e);
    if (status >= 0) return kv_end(&k, status);
    const struct kvstore_place place = {k.config.kv_dir, k.secret};
    int rc = read_passphrase(file, &passphrase, e);
    if (!rc) rc = kvstore_export(&place, args[0], args[1], passphrase, &m, e);
    free(passphrase);
    audit_note_at(k.registry, "kv.export", args[0], rc);
    if (rc) return kv_end(&k, 1);
    format_bytes(m.bytes, size, sizeof size);
    printf("exported %llu tokens of %s, %s\n", (unsigned long long)m.n_blocks * m.block_tokens,
           m.label, size);
    return kv_end(&k, 0);
}

/* Has the folder K/V of that space already? */
struct seeking {
    const uint8_t *space;
    bool found;
};

static void seek_space(void *arg, const struct kvstore_entry *s) {
    struct seeking *k = arg;
    k->found = k->found || memcmp(s->space, k->space, sizeof s->space) == 0;
}

/* For whom a chain is imported. */
struct import_tenant {
    const char *key, *key_file, *cache_salt; /* NULL: not given */
    char owner[KEY_OWNER_BYTES];             /* of a key of the registry */
    char *text;                              /* of key_file; owned */
};

static int find_registered(const char *registry_file, const char *name, struct import_tenant *t,
                           err *e) {
    struct registry_key found = {.id = 0};
    registry *r = NULL;
    int rc = registry_open(registry_file, &r, e);
    if (!rc) rc = registry_key_find(r, name, &found, e);
    if (!rc) key_owner(found.id, t->owner);
    registry_close(r);
    return rc;
}

/* Finds the key in the registry, or reads a file's: the text of one of the registry is that. */
static int find_tenant(const char *registry_file, struct import_tenant *t, err *e) {
    char prefix[KEY_PREFIX_BYTES];
    size_t n;
    if (t->key && t->key_file)
        return err_set(e, ERR_INVALID, "give --key or --api-key-file, not both");
    if (t->key) return find_registered(registry_file, t->key, t, e);
    if (!t->key_file) return 0;
    int rc = textfile_read(t->key_file, KEY_FILE_MOST, &t->text, &n, e);
    if (rc) return rc;
    t->text[strcspn(t->text, "\r\n")] = '\0';
    if (!*t->text) return err_set(e, ERR_INVALID, "%s: no key in the first line", t->key_file);
    snprintf(prefix, sizeof prefix, "%s", t->text);
    if (strncmp(prefix, "ik_", 3) == 0) find_registered(registry_file, prefix, t, NULL);
    return 0;
}

static int import_chain(kvstore *ks, const char *path, const char *passphrase,
                        const struct import_tenant *t, struct kvstore_moved *m, err *e) {
    const char *owner = *t->owner ? t->owner : t->text;
    struct hash128 tenant;
    int rc = key_tenant(kvstore_client_key(ks), owner, t->cache_salt, &tenant, e);
    return rc ? rc : kvstore_import(ks, path, passphrase, tenant, m, e);
}

static int import_file(struct kv_command *k, const char *path, const char *passphrase,
                       struct import_tenant *t, err *e) {
    char size[32];
    struct kvstore_moved m;
    kvstore *ks = NULL;
    struct seeking seek = {.space = m.space};
    int rc = find_tenant(k->registry, t, e);
    if (!rc) rc = kvstore_export_check(path, passphrase, &m, e); /* before the folder is touched */
    if (!rc) kvstore_list(k->config.kv_dir, seek_space, &seek, NULL);
    if (!rc) rc = kv_tiers_open(&k->config, k->registry, &ks, e);
    if (!rc && !ks) rc = err_set(e, ERR_IO, "kv-dir cannot be used (see the log)");
    if (!rc) rc = import_chain(ks, path, passphrase, t, &m, e);
    kvstore_close(ks);
    if (rc) return rc;
    format_bytes(m.bytes, size, sizeof size);
    printf("imported %llu tokens of %s: %u segments, %s\n",
           (unsigned long long)m.n_blocks * m.block_tokens, m.label, m.n_segments, size);
    if (!seek.found)
        fprintf(stderr,
                "nothing of the same model and settings is in this folder yet: a daemon "
                "finds the chain if it serves the same file of %s with the same "
                "kv-cache-type, block-tokens and kind of processor\n",
                m.label);
    return 0;
}

static int run_import(int argc, char **argv, err *e) {
    const char *path = NULL, *file = NULL;
    struct import_tenant t = {.key = NULL};
    const struct option own[] = {
        PASSPHRASE(&file),
        {.name = "key",
         .kind = OPTION_TEXT,
         .target = &t.key,
         .value = "NAME",
         .help = "whose requests find it: an API key of the registry (`inferd keys list`), by its "
                 "name or prefix"},
        {.name = "api-key-file",
         .kind = OPTION_TEXT,
         .target = &t.key_file,
         .value = "FILE",
         .help = "the same for a key of the daemon's own key file: the first line of FILE"},
        {.name = "cache-salt",
         .kind = OPTION_TEXT,
         .target = &t.cache_salt,
         .value = "TEXT",
         .help = "only requests with this cache_salt find it"}};
    struct kv_command k = {
        .options = {.usage = "kv import FILE",
                    .summary =
                        "Stores a chain that `inferd kv export` wrote, within the bounds of\n"
                        "kv-dir, for requests of one API key and cache_salt; by default those\n"
                        "with neither (with prefix-sharing = all, those of any key). No daemon\n"
                        "may be using the folder.",
                    .options = own,
                    .n_options = sizeof own / sizeof own[0],
                    .args = &path,
                    .min_args = 1,
                    .max_args = 1}};
    char *passphrase = NULL;
    int status = kv_begin(&k, argc, argv, e);
    if (status >= 0) return kv_end(&k, status);
    int rc = read_passphrase(file, &passphrase, e);
    if (!rc) rc = import_file(&k, path, passphrase, &t, e);
    free(passphrase);
    audit_note_at(k.registry, "kv.import", path, rc);
    free(t.text);
    return kv_end(&k, rc ? 1 : 0);
}

int cmd_kv(int argc, char **argv, err *e) {
    static const struct command commands[] = {
        {"list", "list the stored segments", run_list},
        {"show", "what a chain is", run_show},
        {"verify", "check every byte", run_verify},
        {"prune", "delete segments", run_prune},
        {"export", "a chain for another machine", run_export},
        {"import", "a chain of another machine", run_import},
    };
    static const struct command_table table = {"inferd kv", "Manages the K/V that kv-dir stores.",
                                               commands, sizeof commands / sizeof commands[0]};
    return command_run(&table, argc, argv, e);
}
