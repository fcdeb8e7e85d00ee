/* register.h - registration of a model, shared by `inferd models add` and `inferd pull`. */
#ifndef INFERD_DAEMON_COMMANDS_REGISTER_H
#define INFERD_DAEMON_COMMANDS_REGISTER_H

#include "daemon/options.h"
#include "registry/registry.h"

/* Checks the tokenizer, which the registry does not, adds path with a progress line, and prints the
 * result. name NULL: made from the path. Errors as registry_add's and tokenizer_open's. */
int register_model(registry *r, const char *path, const char *name,
                   const struct option_list *aliases, err *e);
/* The line about a model that was added. */
void print_added(const struct registry_model *added);

#endif
