/* commands/keys.c - inferd keys add | list | show | rotate | revoke | limit. A secret is printed
 * once, to stdout, by the command that made it. */
#include "registry/keys.h"
#include "core/base/clock.h"
#include "core/base/duration.h"
#include "daemon/commands/audit.h"
#include "daemon/commands/commands.h"
#include "daemon/commands/printing.h"
#include "daemon/options.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COLUMNS = 7, DAY_S = 86400, SCOPES_BYTES = 40 };
#define MAX_DURATION_MS (INT64_C(36500) * DAY_S * 1000)

static const char *const registry_keys[] = {"registry", NULL};

static const struct {
    const char *name;
    unsigned scope;
} scopes[] = {
    {"infer", KEY_INFER}, {"embed", KEY_EMBED}, {"admin", KEY_ADMIN}, {"metrics", KEY_METRICS}};

/* Common to all subcommands: a configuration for the registry's path, the open registry, and what
 * the options say of a key. */
struct keys_command {
    struct config config;
    struct options options;
    const char *name; /* the positional argument or NULL */
    registry *registry;
    const char *scopes, *models, *expires, *label, *grace; /* NULL: not given */
    uint64_t limits[KEY_N_LIMITS];                         /* NOT_GIVEN: not given */
    bool json;
};
#define NOT_GIVEN UINT64_MAX

static const char *const limit_names[KEY_N_LIMITS] = {[KEY_REQUESTS_MINUTE] = "requests_per_minute",
                                                      [KEY_REQUESTS_DAY] = "requests_per_day",
                                                      [KEY_TOKENS_MINUTE] = "tokens_per_minute",
                                                      [KEY_TOKENS_DAY] = "tokens_per_day",
                                                      [KEY_SEQUENCES] = "sequences",
                                                      [KEY_WEIGHT] = "weight",
                                                      [KEY_KV_SHARE] = "kv_share"};

#define OPTION_JSON(C, WHAT)                                                                       \
    { .name = "json", .kind = OPTION_SWITCH, .target = &(C)->json, .help = WHAT }
#define OPTION_LIMIT(C, LIMIT, NAME, HELP)                                                         \
    {                                                                                              \
        .name = NAME, .kind = OPTION_NUMBER, .target = &(C)->limits[LIMIT], .value = "N",          \
        .help = HELP, .max = key_limit_max(LIMIT)                                                  \
    }
#define OPTIONS_OF_KEY(C)                                                                          \
    {.name = "scopes",                                                                             \
     .kind = OPTION_TEXT,                                                                          \
     .target = &(C)->scopes,                                                                       \
     .value = "LIST",                                                                              \
     .help = "what it may do, of infer, embed, admin and metrics (new keys: infer,embed)"},        \
        {.name = "models",                                                                         \
         .kind = OPTION_TEXT,                                                                      \
         .target = &(C)->models,                                                                   \
         .value = "LIST",                                                                          \
         .help = "the only models that it may use and see, separated by commas; all: every one"},  \
        {.name = "expires",                                                                        \
         .kind = OPTION_TEXT,                                                                      \
         .target = &(C)->expires,                                                                  \
         .value = "TIME",                                                                          \
         .help = "how long it is valid from now on: 30d, 12h, 15m, 60s; never"},                   \
        OPTION_LIMIT(C, KEY_REQUESTS_MINUTE, "requests-per-minute",                                \
                     "requests that start work, spread over a minute; 0: no limit"),               \
        OPTION_LIMIT(C, KEY_REQUESTS_DAY, "requests-per-day", "the same over a day"),              \
        OPTION_LIMIT(C, KEY_TOKENS_MINUTE, "tokens-per-minute",                                    \
                     "tokens of prompts and answers; 0: no limit"),                                \
        OPTION_LIMIT(C, KEY_TOKENS_DAY, "tokens-per-day", "the same over a day"),                  \
        OPTION_LIMIT(C, KEY_SEQUENCES, "sequences",                                                \
                     "answers that run or wait at once; 0: no limit"),                             \
        OPTION_LIMIT(C, KEY_WEIGHT, "weight",                                                      \
                     "its share where keys compete, relative to the others' (0: 100)"),            \
        OPTION_LIMIT(C, KEY_KV_SHARE, "kv-share",                                                  \
                     "percent of a model's KV cache that its answers hold at once; 0: no limit"),  \
    {                                                                                              \
        .name = "label", .kind = OPTION_TEXT, .target = &(C)->label, .value = "TEXT",              \
        .help = "a note for those who list the keys"                                               \
    }

/* Parses the arguments and opens the registry. Returns -1 to continue, else the exit status. Call
 * keys_close in any case. */
static int keys_open(struct keys_command *c, int argc, char **argv, err *e) {
    for (int i = 0; i < KEY_N_LIMITS; i++)
        c->limits[i] = NOT_GIVEN;
    if (config_init(&c->config, e)) return 1;
    c->options.config = &c->config;
    c->options.keys = registry_keys;
    c->options.args = &c->name;
    int rc = options_parse(&c->options, argc, argv, NULL, e);
    if (rc) return options_exit(rc);
    char *path;
    if (config_registry_path(&c->config, &path, e)) return 1;
    rc = registry_open(path, &c->registry, e);
    free(path);
    return rc ? 1 : -1;
}

static int keys_close(struct keys_command *c, int status) {
    registry_close(c->registry);
    config_fini(&c->config);
    return status;
}

/* ---- values of options ---- */

static int parse_scopes(const char *text, unsigned *out, err *e) {
    *out = 0;
    for (const char *at = text; *at;) {
        size_t n = strcspn(at, ","), i = 0;
        while (i < sizeof scopes / sizeof *scopes &&
               (strlen(scopes[i].name) != n || strncmp(scopes[i].name, at, n) != 0))
            i++;
        if (i == sizeof scopes / sizeof *scopes)
            return err_set(e, ERR_INVALID,
                           "--scopes: \"%.*s\" is none of infer, embed, admin and metrics", (int)n,
                           at);
        *out |= scopes[i].scope;
        at += n + (at[n] == ',');
    }
    return *out ? 0 : err_set(e, ERR_INVALID, "--scopes: a key needs at least one scope");
}

/* "30d", "12h", "1h30m", rounded up to seconds. A number alone could be meant as days. */
static int parse_duration(const char *option, const char *text, uint64_t *seconds, err *e) {
    int64_t ms;
    size_t n = strlen(text);
    bool has_unit = n && text[n - 1] >= 'a' && text[n - 1] <= 'z';
    if (!has_unit || !duration_parse(text, &ms) || ms < 0 || ms > MAX_DURATION_MS)
        return err_set(e, ERR_INVALID,
                       "--%s: \"%.32s\" is not a time such as 30d, 12h, 15m or 60s (at most "
                       "36500d)",
                       option, text);
    *seconds = (uint64_t)(ms + 999) / 1000;
    return 0;
}

/* Changes k as the options say. */
static int apply_options(const struct keys_command *c, int64_t now_s, struct registry_key *k,
                         err *e) {
    uint64_t seconds;
    int rc = c->scopes ? parse_scopes(c->scopes, &k->scopes, e) : 0;
    if (!rc && c->expires) {
        bool never = strcmp(c->expires, "never") == 0;
        rc = never ? 0 : parse_duration("expires", c->expires, &seconds, e);
        if (!rc) k->expires_s = never ? 0 : now_s + (int64_t)seconds;
    }
    if (rc) return rc;
    if (c->models && strlen(c->models) >= sizeof k->models)
        return err_set(e, ERR_INVALID, "--models: the list is longer than %d bytes",
                       KEY_MODELS_BYTES - 1);
    if (c->models && !*c->models)
        return err_set(e, ERR_INVALID, "--models: no name is given; all: every model");
    if (c->label && strlen(c->label) >= sizeof k->label)
        return err_set(e, ERR_INVALID, "--label: the text is longer than %d bytes",
                       KEY_LABEL_BYTES - 1);
    if (c->models)
        snprintf(k->models, sizeof k->models, "%s", strcmp(c->models, "all") == 0 ? "" : c->models);
    if (c->label) snprintf(k->label, sizeof k->label, "%s", c->label);
    for (int i = 0; i < KEY_N_LIMITS; i++)
        if (c->limits[i] != NOT_GIVEN) k->limits[i] = c->limits[i];
    return 0;
}

/* ---- output ---- */

static void format_scopes(unsigned set, char out[SCOPES_BYTES]) {
    size_t at = 0;
    *out = '\0';
    for (size_t i = 0; i < sizeof scopes / sizeof *scopes; i++)
        if (set & scopes[i].scope)
            at += (size_t)snprintf(out + at, SCOPES_BYTES - at, "%s%s", at ? "," : "",
                                   scopes[i].name);
}

static const char *state_of(const struct registry_key *k, int64_t now_s) {
    if (k->revoked_s) return "revoked";
    return k->expires_s && k->expires_s <= now_s ? "expired" : "valid";
}

/* secret: NULL: not shown. */
static cJSON *key_json(const struct registry_key *k, const char *secret) {
    cJSON *o = cJSON_CreateObject();
    cJSON_AddNumberToObject(o, "id", (double)k->id);
    cJSON_AddStringToObject(o, "name", k->name);
    cJSON_AddStringToObject(o, "prefix", k->prefix);
    if (secret) cJSON_AddStringToObject(o, "key", secret);
    cJSON_AddStringToObject(o, "label", k->label);
    cJSON_AddStringToObject(o, "state", state_of(k, clock_wall_s()));
    cJSON *list = cJSON_AddArrayToObject(o, "scopes");
    for (size_t i = 0; i < sizeof scopes / sizeof *scopes; i++)
        if (k->scopes & scopes[i].scope)
            cJSON_AddItemToArray(list, cJSON_CreateString(scopes[i].name));
    list = *k->models ? cJSON_AddArrayToObject(o, "models") : cJSON_AddNullToObject(o, "models");
    for (const char *at = k->models; *at;) {
        char name[REGISTRY_NAME_BYTES];
        size_t n = strcspn(at, ",");
        snprintf(name, sizeof name, "%.*s", (int)n, at);
        cJSON_AddItemToArray(list, cJSON_CreateString(name));
        at += n + (at[n] == ',');
    }
    cJSON *limits = cJSON_AddObjectToObject(o, "limits");
    for (int i = 0; i < KEY_N_LIMITS; i++)
        if (k->limits[i])
            cJSON_AddNumberToObject(limits, limit_names[i], (double)k->limits[i]);
        else
            cJSON_AddNullToObject(limits, limit_names[i]);
    const struct {
        const char *name;
        int64_t seconds;
    } times[] = {{"created", k->created_s}, {"expires", k->expires_s}, {"revoked", k->revoked_s}};
    for (size_t i = 0; i < sizeof times / sizeof *times; i++)
        if (times[i].seconds)
            cJSON_AddNumberToObject(o, times[i].name, (double)times[i].seconds);
        else
            cJSON_AddNullToObject(o, times[i].name);
    return o;
}

static void print_limits(const struct registry_key *k) {
    const char *comma = "";
    printf("limits    ");
    for (int i = 0; i < KEY_N_LIMITS; i++) {
        if (!k->limits[i]) continue;
        printf("%s%" PRIu64 " ", comma, k->limits[i]);
        for (const char *ch = limit_names[i]; *ch; ch++)
            putchar(*ch == '_' ? ' ' : *ch);
        comma = ", ";
    }
    printf("%s\n", *comma ? "" : "none");
}

static void print_key(const struct registry_key *k) {
    char created[32], expires[32], revoked[32], may[SCOPES_BYTES];
    format_time(k->created_s, created, sizeof created);
    format_time(k->expires_s, expires, sizeof expires);
    format_time(k->revoked_s, revoked, sizeof revoked);
    format_scopes(k->scopes, may);
    printf("name      %s\nprefix    %s\nlabel     %s\nstate     %s\nscopes    %s\nmodels    %s\n"
           "created   %s\nexpires   %s\nrevoked   %s\n",
           k->name, k->prefix, k->label, state_of(k, clock_wall_s()), may,
           *k->models ? k->models : "all", created, expires, revoked);
    print_limits(k);
}

static void print_table(const struct registry_key *keys, size_t n) {
    static const char *const heads[COLUMNS] = {"NAME",   "PREFIX",  "STATE", "SCOPES",
                                               "MODELS", "EXPIRES", "LABEL"};
    static const bool right[COLUMNS] = {false};
    struct printing_table *t = printing_table_new(heads, right, COLUMNS);
    for (size_t i = 0; t && i < n; i++) {
        const struct registry_key *k = &keys[i];
        char may[SCOPES_BYTES], expires[32];
        format_scopes(k->scopes, may);
        format_time(k->expires_s, expires, sizeof expires);
        const char *const cells[COLUMNS] = {
            k->name, k->prefix, state_of(k, clock_wall_s()), may, *k->models ? k->models : "all",
            expires, k->label};
        printing_table_add(t, cells);
    }
    printing_table_print(t);
}

/* The only time that the secret is shown. */
static int show_secret(const struct keys_command *c, const struct registry_key *k,
                       const char *secret, err *e) {
    if (c->json) return printing_json(key_json(k, secret), e);
    printf("%s\n", secret);
    fprintf(stderr, "This is the key %s. It is not stored and cannot be shown again.\n", k->name);
    return 0;
}

/* ---- commands ---- */

static int run_add(int argc, char **argv, err *e) {
    struct keys_command c = {.name = NULL};
    const struct option own[] = {OPTIONS_OF_KEY(&c),
                                 OPTION_JSON(&c, "print a JSON object with the key")};
    struct registry_key k = {.scopes = KEY_INFER | KEY_EMBED};
    char secret[KEY_TEXT_BYTES];
    c.options = (struct options){
        .usage = "keys add NAME",
        .summary = "Adds an API key and prints it, this once. From then on daemons with this\n"
                   "registry answer only requests with a key.",
        .options = own,
        .n_options = sizeof own / sizeof *own,
        .min_args = 1,
        .max_args = 1};
    int status = keys_open(&c, argc, argv, e);
    if (status >= 0) return keys_close(&c, status);
    int64_t now_s = clock_wall_s();
    int rc = apply_options(&c, now_s, &k, e);
    if (!rc && strlen(c.name) >= sizeof k.name)
        rc = err_set(e, ERR_INVALID, "a key's name has at most %d characters", KEY_NAME_BYTES - 1);
    snprintf(k.name, sizeof k.name, "%.*s", KEY_NAME_BYTES - 1, c.name);
    if (!rc) rc = registry_key_add(c.registry, &k, now_s, secret, e);
    audit_note(c.registry, "keys.add", rc ? NULL : k.name, rc);
    if (!rc) rc = show_secret(&c, &k, secret, e);
    return keys_close(&c, rc ? 1 : 0);
}

static int run_list(int argc, char **argv, err *e) {
    struct keys_command c = {.name = NULL};
    const struct option own[] = {OPTION_JSON(&c, "print a JSON array")};
    c.options = (struct options){.usage = "keys list",
                                 .summary = "Lists the API keys, without the secrets.",
                                 .options = own,
                                 .n_options = 1};
    struct registry_key *keys;
    size_t n;
    int status = keys_open(&c, argc, argv, e);
    if (status >= 0) return keys_close(&c, status);
    int rc = registry_key_list(c.registry, &keys, &n, e);
    if (!rc && c.json) {
        cJSON *array = cJSON_CreateArray();
        for (size_t i = 0; i < n; i++)
            cJSON_AddItemToArray(array, key_json(&keys[i], NULL));
        rc = printing_json(array, e);
    } else if (!rc && n) {
        print_table(keys, n);
    } else if (!rc) {
        fprintf(stderr, "there is no key: add one with `inferd keys add NAME`\n");
    }
    free(keys);
    return keys_close(&c, rc ? 1 : 0);
}

static int print_one(const struct keys_command *c, const struct registry_key *k, err *e) {
    if (c->json) return printing_json(key_json(k, NULL), e);
    print_key(k);
    return 0;
}

static int run_show(int argc, char **argv, err *e) {
    struct keys_command c = {.name = NULL};
    const struct option own[] = {OPTION_JSON(&c, "print a JSON object")};
    c.options = (struct options){.usage = "keys show KEY",
                                 .summary = "Shows a key by its name or prefix.",
                                 .options = own,
                                 .n_options = 1,
                                 .min_args = 1,
                                 .max_args = 1};
    struct registry_key k;
    int status = keys_open(&c, argc, argv, e);
    if (status >= 0) return keys_close(&c, status);
    int rc = registry_key_find(c.registry, c.name, &k, e);
    if (!rc) rc = print_one(&c, &k, e);
    return keys_close(&c, rc ? 1 : 0);
}

static int run_rotate(int argc, char **argv, err *e) {
    struct keys_command c = {.name = NULL};
    const struct option own[] = {
        {.name = "grace",
         .kind = OPTION_TEXT,
         .target = &c.grace,
         .value = "TIME",
         .help = "how long the old secret still works: 24h, 15m (default: not at all)"},
        OPTION_JSON(&c, "print a JSON object with the key")};
    c.options = (struct options){
        .usage = "keys rotate KEY",
        .summary = "Gives a key a new secret and prints it, this once. Name, rights and what is\n"
                   "stored for the key stay.",
        .options = own,
        .n_options = sizeof own / sizeof *own,
        .min_args = 1,
        .max_args = 1};
    struct registry_key k = {.name = ""};
    char secret[KEY_TEXT_BYTES];
    uint64_t grace_s = 0;
    int status = keys_open(&c, argc, argv, e);
    if (status >= 0) return keys_close(&c, status);
    int rc = c.grace ? parse_duration("grace", c.grace, &grace_s, e) : 0;
    if (!rc) rc = registry_key_find(c.registry, c.name, &k, e);
    if (!rc) rc = registry_key_rotate(c.registry, k.id, clock_wall_s(), grace_s, secret, e);
    audit_note(c.registry, "keys.rotate", k.name, rc);
    if (!rc) rc = registry_key_find(c.registry, k.name, &k, e);
    if (!rc) rc = show_secret(&c, &k, secret, e);
    return keys_close(&c, rc ? 1 : 0);
}

static int run_revoke(int argc, char **argv, err *e) {
    struct keys_command c = {.name = NULL};
    c.options = (struct options){
        .usage = "keys revoke KEY",
        .summary = "Ends a key for good. Requests with it are refused within a second; answers\n"
                   "that run are finished.",
        .min_args = 1,
        .max_args = 1};
    struct registry_key k = {.name = ""};
    int status = keys_open(&c, argc, argv, e);
    if (status >= 0) return keys_close(&c, status);
    int rc = registry_key_find(c.registry, c.name, &k, e);
    if (!rc) rc = registry_key_revoke(c.registry, k.id, clock_wall_s(), e);
    audit_note(c.registry, "keys.revoke", k.name, rc);
    if (!rc) printf("%s: revoked\n", k.name);
    return keys_close(&c, rc ? 1 : 0);
}

static int run_limit(int argc, char **argv, err *e) {
    struct keys_command c = {.name = NULL};
    const struct option own[] = {OPTIONS_OF_KEY(&c), OPTION_JSON(&c, "print a JSON object")};
    c.options = (struct options){.usage = "keys limit KEY",
                                 .summary = "Changes what a key may do. What is not given stays.",
                                 .options = own,
                                 .n_options = sizeof own / sizeof *own,
                                 .min_args = 1,
                                 .max_args = 1};
    struct registry_key k = {.name = ""};
    int status = keys_open(&c, argc, argv, e);
    if (status >= 0) return keys_close(&c, status);
    int rc = registry_key_find(c.registry, c.name, &k, e);
    if (!rc) rc = apply_options(&c, clock_wall_s(), &k, e);
    if (!rc) rc = registry_key_change(c.registry, &k, e);
    audit_note(c.registry, "keys.limit", k.name, rc);
    if (!rc) rc = print_one(&c, &k, e);
    return keys_close(&c, rc ? 1 : 0);
}

int cmd_keys(int argc, char **argv, err *e) {
    static const struct command commands[] = {
        {"add", "add a key and print it", run_add},
        {"list", "list the keys", run_list},
        {"show", "show one key", run_show},
        {"rotate", "give a key a new secret", run_rotate},
        {"revoke", "end a key", run_revoke},
        {"limit", "change what a key may do", run_limit},
    };
    static const struct command_table table = {"inferd keys", "Manages the API keys of clients.",
                                               commands, sizeof commands / sizeof commands[0]};
    return command_run(&table, argc, argv, e);
}
