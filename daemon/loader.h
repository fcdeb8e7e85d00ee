/* loader.h - resolves the name of a model and prepares its engine and chat template. */
#ifndef INFERD_LOADER_H
#define INFERD_LOADER_H

#include "core/chat/chat.h"
#include "core/engine/engine.h"
#include "daemon/config.h"
#include "registry/registry.h"

/* A model's file and names. Strings are owned. */
struct loader_model {
    char *id, *path;
    char **aliases; /* (n_aliases) */
    size_t n_aliases;
    int64_t created_s;
    char sha256[65];     /* as in the registry; "": given as a path */
    int64_t registry_id; /* 0: given as a path */
};

/* name: a registered name or alias, or a path (if it begins with '/' or '.', or no such name is
 * registered and the file exists). "": the default model, see the key model. While no model has
 * these names, inferd-demo and demo are the demo model that was installed with the program; "" is
 * it, too, while none is registered. ERR_NOT_FOUND, ERR_CHANGED (the file changed since it was
 * registered), ERR_IO. */
int loader_find(const struct config *c, const char *name, struct loader_model *out, err *e);

/* The same among registered models only, never a path or the default. ":latest" after a name may be
 * absent from the registry. */
int loader_find_registered(const struct config *c, const char *name, struct loader_model *out,
                           err *e);

/* After ERR_NOT_FOUND for a name: asks "did you mean" if a registered name is similar. Returns
 * ERR_NOT_FOUND. */
int loader_suggest(registry *r, const char *name, err *e);
void loader_model_fini(struct loader_model *m);

/* Stores when a registered model was loaded; a failure is only logged. */
void loader_note_loaded(const struct config *c, const struct loader_model *m);

void loader_engine_config(const struct config *c, const char *path, struct engine_config *out);

/* The chat template of the model at path, compiled and probed: that of the key chat-template, else
 * the model's own with its variant for tools, else the built-in format that its vocabulary
 * indicates. ERR_NOT_FOUND: none of these. */
int loader_chat_template(const struct config *c, const char *path, const tokenizer *tok,
                         chat_template **out, err *e);

/* A Jinja file, compiled and probed. */
int loader_template_file(const char *path, const char *bos, const char *eos, chat_template **out,
                         err *e);

#endif
