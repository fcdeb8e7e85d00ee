/* arch_table.c - one row for each architecture that the forward pass can run. Pure. */
#include "core/model/model_int.h"

#include <stdio.h>
#include <string.h>

static const struct model_arch archs[] = {
    {.name = "llama", .rope_interleaved = true},
};

enum { N_ARCHS = sizeof archs / sizeof archs[0] };

const struct model_arch *model_arch_find(gguf_str name) {
    for (size_t i = 0; i < N_ARCHS; i++)
        if (name.len == strlen(archs[i].name) && memcmp(name.data, archs[i].name, name.len) == 0)
            return &archs[i];
    return NULL;
}

void model_arch_list(char *text, size_t n) {
    size_t used = 0;
    for (size_t i = 0; i < N_ARCHS && used < n; i++)
        used += (size_t)snprintf(text + used, n - used, "%s%s", i ? ", " : "", archs[i].name);
}
