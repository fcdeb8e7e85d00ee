/* commands/pull.c - inferd pull: downloads a model from the Hugging Face Hub and registers it. */
#include "core/base/str.h"
#include "daemon/commands/commands.h"
#include "daemon/commands/printing.h"
#include "daemon/commands/register.h"
#include "daemon/options.h"
#include "daemon/signals.h"
#include "registry/hub.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct pull_command {
    struct config config;
    const char *what, *revision, *name;
    struct option_list aliases;
    char *folder, *token;
    registry *registry;
    struct progress_bar bar;
};

static int show_progress(void *arg, uint64_t done, uint64_t total) {
    struct pull_command *c = arg;
    return progress_bar_show(&c->bar, done, total);
}

/* Prints a line without control characters: names come from a server. */
static void print_line(void *arg, const char *line) {
    struct pull_command *c = arg;
    progress_bar_end(&c->bar);
    fputs("inferd: ", stderr);
    for (; *line; line++)
        fputc((unsigned char)*line < ' ' || *line == 0x7f ? '?' : *line, stderr);
    fputc('\n', stderr);
}

/* Refuses an invalid or taken name before the download, not after it. */
static int check_free(const struct pull_command *c, const char *name, const char *path, err *e) {
    struct registry_model held;
    int rc = registry_check_name(name, e);
    if (rc) return rc;
    rc = registry_find(c->registry, name, &held, NULL);
    if (rc) return rc == ERR_NOT_FOUND ? 0 : registry_find(c->registry, name, &held, e);
    char *real = realpath(path, NULL); /* NULL if nothing was downloaded yet */
    bool same = real && strcmp(real, held.path) == 0;
    if (!same)
        rc = err_set_param(e, ERR_EXISTS, "name", "the name %s is already taken by %s", name,
                           held.path);
    free(real);
    registry_model_fini(&held);
    return rc;
}

static int check_names(const struct pull_command *c, const char *path, err *e) {
    int rc = c->name ? check_free(c, c->name, path, e) : 0;
    for (size_t i = 0; i < c->aliases.n && !rc; i++)
        rc = check_free(c, c->aliases.items[i], path, e);
    return rc;
}

static int open_registry(struct pull_command *c, err *e) {
    char *path;
    int rc = config_registry_path(&c->config, &path, e);
    if (rc) return rc;
    rc = registry_open(path, &c->registry, e);
    free(path);
    return rc;
}

static int pull_model(struct pull_command *c, err *e) {
    hub_model *model = NULL;
    const struct hub_options options = {.endpoint = config_hf_endpoint(&c->config),
                                        .token = c->token,
                                        .folder = c->folder,
                                        .stall_s = (uint32_t)c->config.hf_stall_s,
                                        .n_retries = (uint32_t)c->config.hf_retries,
                                        .progress = show_progress,
                                        .say = print_line,
                                        .arg = c};
    int rc = hub_open(&options, c->what, c->revision, &model, e);
    if (rc) return rc;
    rc = check_names(c, hub_path(model), e);
    if (!rc) {
        char size[32];
        format_bytes(hub_size_bytes(model), size, sizeof size);
        fprintf(stderr, "inferd: %s to %s\n", size, hub_path(model));
        rc = hub_fetch(model, e);
        progress_bar_end(&c->bar);
        if (rc == ERR_STOPPING)
            err_set(e, rc,
                    "stopped; the downloaded part is kept: the same command continues from "
                    "there");
    }
    if (!rc) {
        rc = register_model(c->registry, hub_path(model), c->name, &c->aliases, e);
        if (rc) err_prefix(e, "%s is downloaded but not registered: ", hub_path(model));
    }
    hub_close(model);
    return rc;
}

int cmd_pull(int argc, char **argv, err *e) {
    static const char *const keys[] = {"registry",   "models-dir", "hf-endpoint", "hf-token-file",
                                       "hf-stall-s", "hf-retries", NULL};
    struct pull_command c = {.revision = "main", .bar.bytes = true};
    const struct option own[] = {
        {.name = "revision",
         .kind = OPTION_TEXT,
         .target = &c.revision,
         .value = "REV",
         .help = "branch, tag or commit (default main)"},
        {.name = "name",
         .kind = OPTION_TEXT,
         .target = &c.name,
         .value = "NAME",
         .help = "name of the model (default: REPO, or the file's name without .gguf)"},
        {.name = "alias",
         .kind = OPTION_LIST,
         .target = &c.aliases,
         .value = "NAME",
         .help = "another name for it; may be repeated"}};
    const struct options options = {
        .usage = "pull hf:ORG/REPO[:FILE]",
        .summary =
            "Downloads a model from the Hugging Face Hub and registers it. FILE: a GGUF's name, a\n"
            "pattern with *, or a type such as Q4_K_M; all parts of a split GGUF are downloaded.\n"
            "Without FILE: the safetensors with their configuration and tokenizer, or the only "
            "GGUF.\n"
            "A stopped download can be continued; size and hash are checked.",
        .options = own,
        .n_options = sizeof own / sizeof own[0],
        .config = &c.config,
        .keys = keys,
        .args = &c.what,
        .min_args = 1,
        .max_args = 1};
    if (config_init(&c.config, e)) return 1;
    int status, rc = options_parse(&options, argc, argv, NULL, e);
    if (rc) {
        status = options_exit(rc);
    } else {
        rc = config_models_path(&c.config, &c.folder, e);
        if (!rc) rc = config_read_hf_token(&c.config, &c.token, e);
        if (!rc) rc = open_registry(&c, e);
        if (!rc) rc = signals_open(e);
        if (!rc) rc = pull_model(&c, e);
        status = rc ? 1 : 0;
    }
    registry_close(c.registry);
    free(c.folder);
    free(c.token);
    config_fini(&c.config);
    return status;
}
