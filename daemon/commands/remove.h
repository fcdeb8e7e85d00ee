/* remove.h - removal of a registered model, with its files if wanted. Main thread. */
#ifndef INFERD_DAEMON_COMMANDS_REMOVE_H
#define INFERD_DAEMON_COMMANDS_REMOVE_H

#include "registry/registry.h"

struct remove_options {
    bool files;   /* delete them */
    bool yes;     /* without a question on the terminal */
    bool outside; /* even outside the models folder */
};

/* models_folder: where `inferd pull` stores models. Files that another registered model uses stay.
 * Nothing is removed before everything is checked; then the row goes first. ERR_INVALID: files
 * outside, or no terminal to confirm on; ERR_STOPPING: the answer was no; ERR_IO. */
int remove_registered(registry *r, const struct registry_model *m, const char *models_folder,
                      const struct remove_options *how, err *e);

#endif
