/* parts.c - which files make one model: the parts of a split GGUF, the files of a Hugging Face
 * folder. Names only. */
#include "registry/registry_int.h"

#include <string.h>

static bool ends_with(const char *name, const char *end) {
    size_t n = strlen(name), m = strlen(end);
    return n > m && strcmp(name + n - m, end) == 0;
}

/* Five digits at text. */
static unsigned read_number(const char *text) {
    unsigned n = 0;
    for (int i = 0; i < 5; i++) {
        if (text[i] < '0' || text[i] > '9') return 0;
        n = n * 10 + (unsigned)(text[i] - '0');
    }
    return n;
}

bool registry_part_read(const char *name, struct registry_part *out) {
    static const char shape[] = "-00001-of-00002.gguf";
    size_t n = strlen(name), m = sizeof shape - 1;
    if (n <= m) return false;
    const char *end = name + n - m;
    *out = (struct registry_part){
        .stem_len = n - m, .part = read_number(end + 1), .n_parts = read_number(end + 10)};
    return end[0] == '-' && strncmp(end + 6, "-of-", 4) == 0 && strcmp(end + 15, ".gguf") == 0 &&
           out->part >= 1 && out->part <= out->n_parts;
}

bool registry_is_safetensors(const char *name) {
    /* consolidated*.safetensors hold the same weights once more, under other names. */
    return ends_with(name, ".safetensors") && strncmp(name, "consolidated", 12) != 0;
}

bool registry_folder_has(const char *name) {
    static const char *const names[] = {
        "config.json",
        "generation_config.json",
        "model.safetensors.index.json",
        "tokenizer.json",
        "tokenizer.model",
        "tokenizer_config.json",
        "special_tokens_map.json",
        "chat_template.jinja",
    };
    if (strchr(name, '/')) return false;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(name, names[i]) == 0) return true;
    return registry_is_safetensors(name);
}
