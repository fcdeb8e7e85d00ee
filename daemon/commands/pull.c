/* commands/pull.c - inferd pull: downloads a model from the Hugging Face Hub and registers it. */
#include "daemon/commands/audit.h"
#include "daemon/commands/commands.h"
#include "daemon/commands/printing.h"
#include "daemon/commands/register.h"
#include "daemon/options.h"
#include "daemon/pull_model.h"
#include "daemon/signals.h"

#include <stdio.h>
#include <stdlib.h>

struct pull_command {
    struct config config;
    const char *what, *revision, *name;
    struct option_list aliases;
    registry *registry;
    struct progress_bar bar;
    struct progress hashing;
};

static int show_progress(void *arg, enum pull_step step, uint64_t done, uint64_t total) {
    struct pull_command *c = arg;
    if (step != PULL_HASHING) return progress_bar_show(&c->bar, done, total);
    progress_bar_end(&c->bar);
    progress_show(&c->hashing, done, total);
    return 0;
}

static void show_chosen(void *arg, const char *path, uint64_t bytes, const char *sha256) {
    char size[32];
    (void)arg;
    (void)sha256;
    format_bytes(bytes, size, sizeof size);
    fprintf(stderr, "inferd: %s to %s\n", size, path);
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

static int open_registry(struct pull_command *c, err *e) {
    char *path;
    int rc = config_registry_path(&c->config, &path, e);
    if (rc) return rc;
    rc = registry_open(path, &c->registry, e);
    free(path);
    return rc;
}

static int run_pull(struct pull_command *c, err *e) {
    const struct pull_job job = {.config = &c->config,
                                 .registry = c->registry,
                                 .what = c->what,
                                 .revision = c->revision,
                                 .name = c->name,
                                 .aliases = c->aliases.items,
                                 .n_aliases = c->aliases.n,
                                 .chosen = show_chosen,
                                 .progress = show_progress,
                                 .say = print_line,
                                 .arg = c};
    struct registry_model added;
    int rc = pull_model(&job, &added, e);
    progress_bar_end(&c->bar);
    progress_end(&c->hashing);
    audit_note(c->registry, "models.pull", rc ? c->what : added.name, rc);
    if (rc) return rc;
    print_added(&added);
    registry_model_fini(&added);
    return 0;
}

int cmd_pull(int argc, char **argv, err *e) {
    static const char *const keys[] = {"registry",   "models-dir", "hf-endpoint", "hf-token-file",
                                       "hf-stall-s", "hf-retries", NULL};
    struct pull_command c = {.revision = "main", .bar.bytes = true, .hashing.label = "hashing"};
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
        rc = open_registry(&c, e);
        if (!rc) rc = signals_open(e);
        if (!rc) rc = run_pull(&c, e);
        status = rc ? 1 : 0;
    }
    registry_close(c.registry);
    config_fini(&c.config);
    return status;
}
