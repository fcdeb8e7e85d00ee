/* model_name.h - what clients put after a model's name. */
#ifndef INFERD_BASE_MODEL_NAME_H
#define INFERD_BASE_MODEL_NAME_H

#include <stddef.h>
#include <string.h>

/* Length of name without ":latest", which Ollama's clients append. A model may have a name that
 * ends in it: look for the whole name first. */
static inline size_t model_name_bare(const char *name) {
    static const char tag[] = ":latest";
    size_t n = strlen(name), n_tag = sizeof tag - 1;
    return n > n_tag && strcmp(name + n - n_tag, tag) == 0 ? n - n_tag : n;
}

#endif
