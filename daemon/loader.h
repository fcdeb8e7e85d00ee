/* loader.h - from what a user calls a model to what opens it. */
#ifndef INFERD_LOADER_H
#define INFERD_LOADER_H

#include "core/chat/chat.h"
#include "core/engine/engine.h"
#include "daemon/config.h"

/* A model's file and names. Strings are owned. */
struct loader_model {
    char *id, *path;
    char **aliases; /* (n_aliases) */
    size_t n_aliases;
    int64_t created_s;
    int64_t registry_id; /* 0: given as a path */
};

/* name: registered name or alias, or a path (always one when it begins with '/' or '.', else when
 * no such name is registered and the file is there). "": the default model, see the key model.
 * ERR_NOT_FOUND, ERR_CHANGED (file is not what was registered), ERR_IO. */
int loader_find(const struct config *c, const char *name, struct loader_model *out, err *e);
void loader_model_fini(struct loader_model *m);

/* Remembers when a registered model was loaded; a failure is only logged. */
void loader_note_loaded(const struct config *c, const struct loader_model *m);

void loader_engine_config(const struct config *c, const char *path, struct engine_config *out);

/* The chat template of the model at path, compiled and probed: what the key chat-template says,
 * else the model's own with its variant for tools, else the built-in format that its vocabulary
 * tells. ERR_NOT_FOUND: none of these. */
int loader_chat_template(const struct config *c, const char *path, const tokenizer *tok,
                         chat_template **out, err *e);

/* A Jinja file, compiled and probed. */
int loader_template_file(const char *path, const char *bos, const char *eos, chat_template **out,
                         err *e);

#endif
