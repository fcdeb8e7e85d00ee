/* register.h - how `inferd models add` and `inferd pull` put a model into the registry. */
#ifndef INFERD_DAEMON_COMMANDS_REGISTER_H
#define INFERD_DAEMON_COMMANDS_REGISTER_H

#include "daemon/options.h"
#include "registry/registry.h"

/* Checks what the registry does not see (the vocabulary), adds path with a progress line, prints
 * what was added. name NULL: made from the path. Errors as registry_add and tokenizer_open. */
int register_model(registry *r, const char *path, const char *name,
                   const struct option_list *aliases, err *e);

#endif
