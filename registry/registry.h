/* registry.h - the catalogue of models on disk, in one SQLite file.
 *
 * WAL, foreign keys, migrations by user_version, busy timeout: several processes may use it at
 * once. A model is a GGUF, a split GGUF (by its first part) or a Hugging Face folder, identified by
 * size, modification time and SHA-256 of all its files. registry_resolve checks size and time
 * (cheap), registry_verify the hash.
 *
 * THREAD SAFETY: one registry handle per thread. */
#ifndef INFERD_REGISTRY_H
#define INFERD_REGISTRY_H

#include "core/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct registry registry;

/* A row. Strings are owned by the struct: registry_model_fini. */
struct registry_model {
    int64_t id;
    char *name;     /* unique among names and aliases, [A-Za-z0-9._:/-]{1,96} */
    char **aliases; /* (n_aliases) */
    size_t n_aliases;
    char *path;   /* absolute; of a split GGUF the first part, or a folder */
    char *format; /* "gguf" or "safetensors" */
    char *architecture, *quantization;
    uint64_t n_params, context_length, size_bytes;
    /* Of one file its SHA-256; of several the SHA-256 of a line "NAME SIZE SHA256\n" for each of
     * config.json, *.safetensors, their index, tokenizer files and templates (or the parts), in
     * order of names. */
    char sha256[65];
    int64_t mtime_ns, added_s, last_loaded_s; /* last_loaded_s 0: never */
};

/* Creates file and folder when they are not there. */
int registry_open(const char *file, registry **out, err *e);
void registry_close(registry *r);

/* Copies the models of another registry's file, with their names and presets, to r, which has none.
 */
int registry_copy(registry *r, const char *from, err *e);

enum { REGISTRY_NAME_BYTES = 97 }; /* with the NUL */
/* Makes a model's name of a file's or folder's: without .gguf and part number; characters that
 * names may not have become '-'. */
void registry_name_from_path(const char *path, char name[REGISTRY_NAME_BYTES]);

/* Checks a model's name. ERR_INVALID (param: name). */
int registry_check_name(const char *name, err *e);

/* Checks files and headers of a model at path; reads no weights. Errors as registry_add's. */
int registry_check_model(const char *path, err *e);

/* Inspects path, hashes it and adds it. ERR_UNSUPPORTED names what this build lacks to serve it.
 * name NULL: made from the name of the file or folder. ERR_EXISTS names the holder of a taken name.
 * Adding the same path again with the same name refreshes the row. */
struct registry_add {
    const char *path, *name;
    const char *const *aliases;
    size_t n_aliases;
    void (*progress)(void *arg, uint64_t done, uint64_t total); /* hashing; may be NULL */
    void *progress_arg;
};
int registry_add(registry *r, const struct registry_add *add, struct registry_model *out, err *e);

int registry_list(registry *r, struct registry_model **models, size_t *n, err *e);
/* By name or alias. ERR_NOT_FOUND lists the registered names. */
int registry_find(registry *r, const char *name, struct registry_model *out, err *e);
/* Gives the model `name` another name, with a preset (NULL: without; an older one of the name is
 * replaced). Both are written, or neither. ERR_EXISTS: the name belongs to another model.
 * ERR_INVALID: no name, too many names, too large a preset, or one for the model's own name. */
int registry_add_alias(registry *r, const char *name, const char *alias, const char *preset,
                       err *e);

/* What a name stands for. preset: a text that its writer knows how to read, kept until the name is
 * removed; owned: registry_name_fini; NULL: none. */
enum { REGISTRY_PRESET_BYTES = 1 << 20 };
struct registry_name {
    char model[REGISTRY_NAME_BYTES]; /* the model's own name */
    char *preset;
};
/* By name or alias. ERR_NOT_FOUND. */
int registry_find_name(registry *r, const char *name, struct registry_name *out, err *e);
void registry_name_fini(struct registry_name *n);
/* Removes one name: of a model the alias, or the whole model by its own name; the files stay. */
int registry_remove_name(registry *r, const char *name, err *e);
int registry_remove(registry *r, const char *name, err *e); /* the files stay */

/* Paths of the files that make the model (those of its SHA-256). The caller frees *paths (n) with
 * registry_paths_free. ERR_IO: one is missing. */
int registry_model_paths(const struct registry_model *m, char ***paths, size_t *n, err *e);
void registry_paths_free(char **paths, size_t n);

/* As registry_find; also checks that the files did not change since: ERR_CHANGED, ERR_IO. */
int registry_resolve(registry *r, const char *name, struct registry_model *out, err *e);
int registry_touch_loaded(registry *r, int64_t id, err *e);

/* Checks the SHA-256. 0 (the new time of an unchanged file is stored), ERR_CHANGED, ERR_IO (a file
 * is missing). */
int registry_verify(registry *r, const struct registry_model *m,
                    void (*progress)(void *arg, uint64_t done, uint64_t total), void *progress_arg,
                    err *e);

void registry_model_fini(struct registry_model *m);
void registry_models_free(struct registry_model *models, size_t n);

#endif
