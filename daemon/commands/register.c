/* register.c - adds a model on disk to the registry. Main thread of a command. */
#include "daemon/commands/register.h"

#include "daemon/commands/audit.h"
#include "daemon/commands/printing.h"
#include "daemon/pull_model.h"

#include <stdio.h>

void print_added(const struct registry_model *added) {
    char params[32], size[32];
    format_count(added->n_params, params, sizeof params);
    format_bytes(added->size_bytes, size, sizeof size);
    printf("added %s: %s, %s parameters, %s, context %llu, %s\n", added->name, added->architecture,
           params, added->quantization, (unsigned long long)added->context_length, size);
}

int register_model(registry *r, const char *path, const char *name,
                   const struct option_list *aliases, err *e) {
    struct progress progress = {.label = "hashing"};
    struct registry_model added;
    const struct registry_add add = {.path = path,
                                     .name = name,
                                     .aliases = aliases->items,
                                     .n_aliases = aliases->n,
                                     .progress = progress_show,
                                     .progress_arg = &progress};
    int rc = pull_register(r, &add, &added, e);
    progress_end(&progress);
    audit_note(r, "models.add", rc ? path : added.name, rc);
    if (rc) return rc;
    print_added(&added);
    registry_model_fini(&added);
    return 0;
}
