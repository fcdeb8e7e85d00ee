/* pull_model.c - see pull_model.h. Owns nothing. */
#include "daemon/pull_model.h"

#include "core/engine/engine.h"
#include "registry/hub.h"

#include <stdlib.h>
#include <string.h>

struct pulling {
    const struct pull_job *job;
    enum pull_step step;
};

static int on_progress(void *arg, uint64_t done, uint64_t total) {
    const struct pulling *p = arg;
    return p->job->progress(p->job->arg, p->step, done, total);
}

static void on_hashing(void *arg, uint64_t done, uint64_t total) {
    on_progress(arg, done, total);
}

static void on_line(void *arg, const char *line) {
    const struct pulling *p = arg;
    p->job->say(p->job->arg, line);
}

/* Refuses an invalid or taken name before the download, not after it. */
static int check_free(registry *r, const char *name, const char *path, err *e) {
    struct registry_model held;
    int rc = registry_check_name(name, e);
    if (rc) return rc;
    rc = registry_find(r, name, &held, NULL);
    if (rc) return rc == ERR_NOT_FOUND ? 0 : registry_find(r, name, &held, e);
    char *real = realpath(path, NULL); /* NULL if nothing was downloaded yet */
    bool same = real && strcmp(real, held.path) == 0;
    if (!same)
        rc = err_set_param(e, ERR_EXISTS, "name", "the name %s is already taken by %s", name,
                           held.path);
    free(real);
    registry_model_fini(&held);
    return rc;
}

static int check_names(const struct pull_job *job, const char *path, err *e) {
    int rc = job->name ? check_free(job->registry, job->name, path, e) : 0;
    for (size_t i = 0; i < job->n_aliases && !rc; i++)
        rc = check_free(job->registry, job->aliases[i], path, e);
    return rc;
}

int pull_register(registry *r, const struct registry_add *add, struct registry_model *added,
                  err *e) {
    /* The registry checks the weights, then the tokenizer is checked: the registry's error is the
     * clearer one for a file that is not a model. */
    tokenizer *tok;
    int rc = registry_check_model(add->path, e);
    if (!rc) rc = tokenizer_open(add->path, &tok, e);
    if (!rc) tokenizer_close(tok);
    return rc ? rc : registry_add(r, add, added, e);
}

static int fetch(struct pulling *p, hub_model *model, struct registry_model *added, err *e) {
    const struct pull_job *job = p->job;
    const char *path = hub_path(model);
    int rc = check_names(job, path, e);
    if (rc) return rc;
    if (job->chosen) job->chosen(job->arg, path, hub_size_bytes(model), hub_sha256(model));
    p->step = PULL_DOWNLOADING;
    rc = hub_fetch(model, e);
    if (rc == ERR_STOPPING)
        err_set(e, rc,
                "stopped; the downloaded part is kept: the same command continues from there");
    if (rc) return rc;
    p->step = PULL_HASHING;
    const struct registry_add add = {.path = path,
                                     .name = job->name,
                                     .aliases = job->aliases,
                                     .n_aliases = job->n_aliases,
                                     .progress = on_hashing,
                                     .progress_arg = p};
    rc = pull_register(job->registry, &add, added, e);
    if (rc) err_prefix(e, "%s is downloaded but not registered: ", path);
    return rc;
}

int pull_model(const struct pull_job *job, struct registry_model *added, err *e) {
    const struct config *c = job->config;
    struct pulling p = {.job = job, .step = PULL_LISTING};
    hub_model *model = NULL;
    char *folder = NULL, *token = NULL;
    int rc = config_models_path(c, &folder, e);
    if (!rc) rc = config_read_hf_token(c, &token, e);
    const struct hub_options options = {.endpoint = config_hf_endpoint(c),
                                        .token = token,
                                        .folder = folder,
                                        .stall_s = (uint32_t)c->hf_stall_s,
                                        .n_retries = (uint32_t)c->hf_retries,
                                        .progress = on_progress,
                                        .say = on_line,
                                        .arg = &p};
    if (!rc) rc = hub_open(&options, job->what, job->revision ? job->revision : "main", &model, e);
    if (!rc) rc = fetch(&p, model, added, e);
    hub_close(model);
    free(folder);
    free(token);
    return rc;
}
