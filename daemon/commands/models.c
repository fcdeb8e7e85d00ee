/* commands/models.c - inferd models add | list | show | remove | verify. */
#include "core/model/model.h"
#include "daemon/commands/audit.h"
#include "daemon/commands/commands.h"
#include "daemon/commands/printing.h"
#include "daemon/commands/register.h"
#include "daemon/commands/remove.h"
#include "daemon/loader.h"
#include "daemon/options.h"
#include "registry/registry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COLUMNS = 7, ALIASES_SHOWN_BYTES = 60 };

static const char *const registry_keys[] = {"registry", "models-dir", NULL};

/* Common to all subcommands: a configuration for the registry's path, and the open registry. */
struct models_command {
    struct config config;
    struct options options;
    const char *arg; /* the positional argument or NULL */
    size_t n_args;
    registry *registry;
};

/* Parses the arguments and opens the registry. Returns -1 to continue, else the exit status. Call
 * models_close in any case. */
static int models_open(struct models_command *m, int argc, char **argv, err *e) {
    if (config_init(&m->config, e)) return 1;
    m->options.config = &m->config;
    m->options.keys = registry_keys;
    m->options.args = &m->arg;
    int rc = options_parse(&m->options, argc, argv, &m->n_args, e);
    if (rc) return options_exit(rc);
    char *path;
    if (config_registry_path(&m->config, &path, e)) return 1;
    rc = registry_open(path, &m->registry, e);
    free(path);
    return rc ? 1 : -1;
}

static int models_close(struct models_command *m, int status) {
    registry_close(m->registry);
    config_fini(&m->config);
    return status;
}

static int find_model(const struct models_command *m, struct registry_model *out, err *e) {
    int rc = registry_find(m->registry, m->arg, out, e);
    return rc == ERR_NOT_FOUND ? loader_suggest(m->registry, m->arg, e) : rc;
}

static cJSON *model_json(const struct registry_model *m) {
    cJSON *o = cJSON_CreateObject();
    cJSON_AddStringToObject(o, "name", m->name);
    cJSON *aliases = cJSON_AddArrayToObject(o, "aliases");
    for (size_t i = 0; i < m->n_aliases; i++)
        cJSON_AddItemToArray(aliases, cJSON_CreateString(m->aliases[i]));
    cJSON_AddStringToObject(o, "path", m->path);
    cJSON_AddStringToObject(o, "format", m->format);
    cJSON_AddStringToObject(o, "architecture", m->architecture);
    cJSON_AddStringToObject(o, "quantization", m->quantization);
    cJSON_AddNumberToObject(o, "parameters", (double)m->n_params);
    cJSON_AddNumberToObject(o, "context_length", (double)m->context_length);
    cJSON_AddNumberToObject(o, "size_bytes", (double)m->size_bytes);
    cJSON_AddStringToObject(o, "sha256", m->sha256);
    cJSON_AddNumberToObject(o, "added", (double)m->added_s);
    if (m->last_loaded_s)
        cJSON_AddNumberToObject(o, "last_loaded", (double)m->last_loaded_s);
    else
        cJSON_AddNullToObject(o, "last_loaded");
    return o;
}

static void join_aliases(const struct registry_model *m, size_t max_bytes, str *out) {
    str_init(out, max_bytes);
    for (size_t i = 0; i < m->n_aliases; i++)
        str_addf(out, "%s%s", i ? ", " : "", m->aliases[i]);
}

/* What the model's files recommend; nothing if they cannot be read. */
static cJSON *sampling_json(const struct registry_model *m) {
    struct model_hparams hp = {0};
    cJSON *o = cJSON_CreateObject();
    if (model_read_hparams(m->path, &hp, NULL)) return o;
    const struct sampling_recommended *r = &hp.sampling;
    char text[32];
#define ADD_VALUE(ARG, NAME, KIND, LEAST, MOST, INITIAL, HELP)                                     \
    snprintf(text, sizeof text, "%.7g", (double)r->values.NAME);                                   \
    if (r->has.NAME) cJSON_AddRawToObject(o, #NAME, text);
    SAMPLING_ROWS(ADD_VALUE, )
    return o;
}

static void print_sampling(const struct registry_model *m) {
    cJSON *o = sampling_json(m), *v;
    printf("sampling      ");
    cJSON_ArrayForEach(v, o) {
        printf("%s%s %s", v == o->child ? "" : ", ", v->string, v->valuestring);
    }
    printf("%s\n", o && o->child ? "" : "nothing recommended");
    cJSON_Delete(o);
}

static void print_model(const struct registry_model *m) {
    char params[32], size[32], added[32], loaded[32];
    str aliases;
    join_aliases(m, 1 << 16, &aliases);
    format_count(m->n_params, params, sizeof params);
    format_bytes(m->size_bytes, size, sizeof size);
    format_time(m->added_s, added, sizeof added);
    format_time(m->last_loaded_s, loaded, sizeof loaded);
    printf("name          %s\naliases       %s\npath          %s\nformat        %s\n"
           "architecture  %s\nquantization  %s\nparameters    %s\ncontext       %llu tokens\n"
           "size          %s (%llu bytes)\nsha256        %s\nadded         %s\nlast loaded   %s\n",
           m->name, str_cstr(&aliases), m->path, m->format, m->architecture, m->quantization,
           params, (unsigned long long)m->context_length, size, (unsigned long long)m->size_bytes,
           m->sha256, added, loaded);
    str_fini(&aliases);
}

static int run_add(int argc, char **argv, err *e) {
    const char *name = NULL;
    struct option_list aliases = {.n = 0};
    const struct option own[] = {
        {.name = "name",
         .kind = OPTION_TEXT,
         .target = &name,
         .value = "NAME",
         .help = "name of the model (default: the folder's name, or the file's without .gguf)"},
        {.name = "alias",
         .kind = OPTION_LIST,
         .target = &aliases,
         .value = "NAME",
         .help = "another name for it; may be repeated"}};
    struct models_command m = {
        .options = {.usage = "models add PATH",
                    .summary =
                        "Registers a GGUF file, the first part of a split one, or a Hugging Face\n"
                        "folder. Adding a registered model again updates its entry.",
                    .options = own,
                    .n_options = 2,
                    .min_args = 1,
                    .max_args = 1}};
    int status = models_open(&m, argc, argv, e);
    if (status >= 0) return models_close(&m, status);
    return models_close(&m, register_model(m.registry, m.arg, name, &aliases, e) ? 1 : 0);
}

static void print_table(const struct registry_model *models, size_t n) {
    static const char *const heads[COLUMNS] = {"NAME",    "ARCH", "QUANT",  "PARAMS",
                                               "CONTEXT", "SIZE", "ALIASES"};
    static const bool right[COLUMNS] = {false, false, false, true, true, true, false};
    struct printing_table *t = printing_table_new(heads, right, COLUMNS);
    for (size_t i = 0; t && i < n; i++) {
        const struct registry_model *m = &models[i];
        char params[32], context[32], size[32];
        str aliases;
        join_aliases(m, ALIASES_SHOWN_BYTES, &aliases);
        format_count(m->n_params, params, sizeof params);
        snprintf(context, sizeof context, "%llu", (unsigned long long)m->context_length);
        format_bytes(m->size_bytes, size, sizeof size);
        const char *const cells[COLUMNS] = {
            m->name, m->architecture, m->quantization, params, context, size, str_cstr(&aliases)};
        printing_table_add(t, cells);
        str_fini(&aliases);
    }
    printing_table_print(t);
}

static int run_list(int argc, char **argv, err *e) {
    bool json = false;
    const struct option own[] = {
        {.name = "json", .kind = OPTION_SWITCH, .target = &json, .help = "print a JSON array"}};
    struct models_command m = {.options = {.usage = "models list",
                                           .summary = "Lists the registered models.",
                                           .options = own,
                                           .n_options = 1}};
    struct registry_model *models;
    size_t n;
    int status = models_open(&m, argc, argv, e);
    if (status >= 0) return models_close(&m, status);
    if (registry_list(m.registry, &models, &n, e)) return models_close(&m, 1);
    if (json) {
        cJSON *array = cJSON_CreateArray();
        for (size_t i = 0; i < n; i++)
            cJSON_AddItemToArray(array, model_json(&models[i]));
        status = printing_json(array, e) ? 1 : 0;
    } else {
        if (n)
            print_table(models, n);
        else
            fprintf(stderr, "no model is registered: add one with `inferd models add PATH`\n");
        status = 0;
    }
    registry_models_free(models, n);
    return models_close(&m, status);
}

static int run_show(int argc, char **argv, err *e) {
    bool json = false;
    const struct option own[] = {
        {.name = "json", .kind = OPTION_SWITCH, .target = &json, .help = "print a JSON object"}};
    struct models_command m = {
        .options = {.usage = "models show MODEL",
                    .summary = "Shows everything that the registry knows about a model.",
                    .options = own,
                    .n_options = 1,
                    .min_args = 1,
                    .max_args = 1}};
    struct registry_model found;
    int status = models_open(&m, argc, argv, e);
    if (status >= 0) return models_close(&m, status);
    if (find_model(&m, &found, e)) return models_close(&m, 1);
    status = 0;
    if (json) {
        cJSON *o = model_json(&found);
        cJSON_AddItemToObject(o, "sampling", sampling_json(&found));
        status = printing_json(o, e) ? 1 : 0;
    } else {
        print_model(&found);
        print_sampling(&found);
    }
    registry_model_fini(&found);
    return models_close(&m, status);
}

/* usage: "models remove MODEL", or "rm MODEL" */
static int remove_model(const char *usage, int argc, char **argv, err *e) {
    struct remove_options how = {.files = false};
    const struct option own[] = {
        {.name = "files",
         .kind = OPTION_SWITCH,
         .target = &how.files,
         .help = "delete its files, too, after asking"},
        {.name = "yes", .kind = OPTION_SWITCH, .target = &how.yes, .help = "do not ask"},
        {.name = "outside",
         .kind = OPTION_SWITCH,
         .target = &how.outside,
         .help = "delete files even outside the folder of `inferd pull` (models-dir)"}};
    struct models_command m = {
        .options = {.usage = usage,
                    .summary = "Removes a model from the registry. Its files stay, unless --files.",
                    .options = own,
                    .n_options = 3,
                    .min_args = 1,
                    .max_args = 1}};
    struct registry_model found;
    char *folder = NULL;
    int status = models_open(&m, argc, argv, e);
    if (status >= 0) return models_close(&m, status);
    int rc = find_model(&m, &found, e);
    if (rc) {
        audit_note(m.registry, "models.remove", m.arg, rc);
        return models_close(&m, 1);
    }
    rc = config_models_path(&m.config, &folder, e);
    if (!rc) rc = remove_registered(m.registry, &found, folder, &how, e);
    free(folder);
    audit_note(m.registry, "models.remove", found.name, rc);
    registry_model_fini(&found);
    return models_close(&m, rc ? 1 : 0);
}

static int run_remove(int argc, char **argv, err *e) {
    return remove_model("models remove MODEL", argc, argv, e);
}

static int run_models_rm(int argc, char **argv, err *e) {
    return remove_model("models rm MODEL", argc, argv, e);
}

int cmd_rm(int argc, char **argv, err *e) {
    return remove_model("rm MODEL", argc, argv, e);
}

/* Prints one line. Returns 0 if the files are unchanged. */
static int verify_one(registry *r, const struct registry_model *found) {
    err why;
    struct progress progress = {.label = found->name};
    int rc = registry_verify(r, found, progress_show, &progress, &why);
    progress_end(&progress);
    if (rc)
        printf("%s: FAILED: %s\n", found->name, why.msg);
    else
        printf("%s: ok\n", found->name);
    return rc;
}

static int run_verify(int argc, char **argv, err *e) {
    struct models_command m = {
        .options = {
            .usage = "models verify [MODEL]",
            .summary =
                "Checks whether models' files are unchanged since they were added (SHA-256).",
            .max_args = 1}};
    struct registry_model found, *models;
    size_t n, n_bad = 0;
    int status = models_open(&m, argc, argv, e);
    if (status >= 0) return models_close(&m, status);
    if (m.n_args) {
        if (find_model(&m, &found, e)) return models_close(&m, 1);
        n_bad = verify_one(m.registry, &found) != 0;
        registry_model_fini(&found);
    } else {
        if (registry_list(m.registry, &models, &n, e)) return models_close(&m, 1);
        for (size_t i = 0; i < n; i++)
            n_bad += verify_one(m.registry, &models[i]) != 0;
        registry_models_free(models, n);
    }
    return models_close(&m, n_bad ? 1 : 0);
}

int cmd_models(int argc, char **argv, err *e) {
    static const struct command commands[] = {
        {"add", "register a model file or folder", run_add},
        {"list", "list registered models", run_list},
        {"show", "show one model", run_show},
        {"remove", "remove a model from the registry", run_remove},
        {"rm", "the same", run_models_rm},
        {"verify", "check that files are unchanged", run_verify},
    };
    static const struct command_table table = {"inferd models", "Manages the registry of models.",
                                               commands, sizeof commands / sizeof commands[0]};
    return command_run(&table, argc, argv, e);
}
