/* fuzz_imatrix.c - an importance matrix in either form is refused, or every mean of every entry is
 * a finite number of at least 0. */
#include "core/formats/imatrix.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    static const char *const names[] = {"blk.0.attn_q.weight", "blk.0.ffn_down_exps.weight", "a"};
    imatrix *m = NULL;
    err e = {0};
    int rc = imatrix_open_memory(bytes, n, "input", &m, &e);
    if (rc && (m || !e.code || !e.msg[0])) abort();
    if (rc) return 0;
    uint64_t n_found = 0;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const struct imatrix_entry *entry = imatrix_find(m, (gguf_str){names[i], strlen(names[i])});
        if (!entry) continue;
        n_found++;
        for (uint64_t k = 0; k < entry->n_in * entry->n_mats; k++) {
            float mean;
            imatrix_means(entry, k, 1, &mean);
            if (!isfinite(mean) || mean < 0) abort();
        }
    }
    if (n_found > imatrix_n_entries(m)) abort();
    imatrix_free(m);
    return 0;
}
