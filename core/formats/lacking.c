/* lacking.c - one row for each name of a family; NULL where it has no such name. Pure. */
#include "core/formats/lacking.h"

#include <string.h>

static const struct {
    const char *arch, *model_type, *lacks;
} rows[] = {
    {"jina-bert-v3", NULL, "LoRA adapters chosen by task"},
    {"nomic-bert-moe", NULL, "experts in encoders"},
    {"neo-bert", "neobert", "RMS norms in encoders"},
    {"eurobert", "eurobert", "RMS norms in encoders"},
    {NULL, "distilbert", "its layout of BERT: use a GGUF file of it"},
    {NULL, "mpnet", "relative position biases"},
    {NULL, "deberta-v2", "disentangled attention"},
    {NULL, "new", "GTE's own encoder"},
    {NULL, "mimo_v2", "its layout of Q, K and V: use a GGUF file of it"},
    {"falcon", "falcon", "its layout of Q, K and V, and norms shared by attention and FFN"},
    {NULL, "step3p7", "its changes to Step 3.5"},
};

enum { N_ROWS = sizeof rows / sizeof rows[0] };

const char *lacking_for_arch(const char *name, size_t n) {
    for (size_t i = 0; i < N_ROWS; i++)
        if (rows[i].arch && n == strlen(rows[i].arch) && memcmp(name, rows[i].arch, n) == 0)
            return rows[i].lacks;
    return NULL;
}

const char *lacking_for_folder(const char *model_type) {
    for (size_t i = 0; i < N_ROWS; i++)
        if (rows[i].model_type && strcmp(model_type, rows[i].model_type) == 0) return rows[i].lacks;
    return NULL;
}
