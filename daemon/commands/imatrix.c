/* commands/imatrix.c - inferd imatrix: which columns of a model's weights matter for a text, for
 * inferd quantize and llama-quantize. */
#include "core/formats/imatrix.h"
#include "core/base/mem.h"
#include "daemon/commands/commands.h"
#include "daemon/commands/windows.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct imatrix_command {
    const char *file, *out;
    uint64_t context, windows;
};

/* Experts that no token of the text chose: nothing is known of them. */
static uint64_t count_unused(const imatrix *m) {
    uint64_t n = 0;
    for (uint64_t i = 0; i < imatrix_n_entries(m); i++) {
        const struct imatrix_entry *entry = imatrix_at(m, i);
        for (uint64_t k = 0; k < entry->n_mats; k++)
            n += entry->counts[k] == 0;
    }
    return n;
}

/* Before hours are spent: can the matrix be written, and does it replace another one at most? */
static int check_out(const char *path, err *e) {
    struct stat st;
    imatrix *old = NULL;
    if (stat(path, &st) == 0) {
        bool replaceable =
            S_ISREG(st.st_mode) && (st.st_size == 0 || imatrix_open(path, &old, NULL) == 0);
        imatrix_free(old);
        if (!replaceable)
            return err_set(e, ERR_EXISTS,
                           "%s exists and is no importance matrix: choose another name", path);
    }
    const char *slash = strrchr(path, '/');
    char *folder = slash ? mem_strdup(path) : NULL;
    if (slash && !folder) return err_no_memory(e);
    if (slash) folder[slash - path + 1] = '\0';
    int rc =
        *path && access(slash ? folder : ".", W_OK) == 0
            ? 0
            : err_set(e, ERR_IO, "%s: cannot write: %s", path, strerror(*path ? errno : ENOENT));
    free(folder);
    return rc;
}

static int collect(struct instrument *in, const struct imatrix_command *c, imatrix *m, err *e) {
    struct windows w = {.context = (size_t)c->context, .max = (size_t)c->windows, .importance = m};
    char *name = mem_strdup(strcmp(c->file, "-") != 0 ? c->file : "standard input");
    int rc = name ? windows_run(in, c->file, &w, e) : err_no_memory(e);
    const struct imatrix_text text = {
        .name = name, .n_chunks = (uint32_t)w.n, .chunk_tokens = (uint32_t)c->context};
    if (!rc) rc = imatrix_set_text(m, &text, e);
    if (!rc) rc = imatrix_write(m, c->out, e);
    if (!rc) {
        const uint64_t n_unused = count_unused(m);
        printf("%s: %" PRIu64 " weights, %zu windows of %" PRIu64 " tokens, perplexity %.4f\n",
               c->out, imatrix_n_entries(m), w.n, c->context, exp(windows_mean_nll(&w)));
        if (n_unused)
            fprintf(stderr,
                    "inferd: no token chose %" PRIu64
                    " matrices of experts, so their columns count the same: a longer text helps\n",
                    n_unused);
    }
    free(name);
    free(w.nll_sums);
    return rc;
}

static int run_imatrix(struct instrument *in, const struct imatrix_command *c, err *e) {
    if (!c->out) return err_set(e, ERR_INVALID, "--out FILE is missing");
    int rc = check_out(c->out, e);
    if (rc) return rc;
    imatrix *m = imatrix_new();
    rc = m ? collect(in, c, m, e) : err_no_memory(e);
    imatrix_free(m);
    return rc;
}

int cmd_imatrix(int argc, char **argv, err *e) {
    struct imatrix_command c = {.file = "-", .context = 512};
    const struct option own[] = {
        {.name = "file",
         .kind = OPTION_TEXT,
         .target = &c.file,
         .value = "FILE",
         .help = "text like that which the model will see (default: standard input)"},
        {.name = "out",
         .kind = OPTION_TEXT,
         .target = &c.out,
         .value = "FILE",
         .help = "importance matrix to write (GGUF, as of llama-imatrix)"},
        {.name = "context",
         .kind = OPTION_NUMBER,
         .target = &c.context,
         .value = "N",
         .min = 2,
         .max = 1 << 24,
         .help = "tokens per window, including BOS (default 512)"},
        {.name = "windows",
         .kind = OPTION_NUMBER,
         .target = &c.windows,
         .value = "N",
         .max = 1 << 24,
         .help = "stop after N windows (default 0: the whole text)"}};
    struct instrument in = {
        .options = {.usage = "imatrix --file TEXT --out FILE",
                    .summary = "Measures how large the inputs of a model's weights are, column by "
                               "column, over a text:\nan importance matrix for inferd quantize "
                               "--imatrix. It takes a few MB of text, and a\nmodel in F16, BF16 or "
                               "Q8_0 on the CPU.",
                    .options = own,
                    .n_options = sizeof own / sizeof own[0],
                    .keys = instrument_compute_keys}};
    int status = instrument_parse(&in, argc, argv, e);
    if (status < 0) status = run_imatrix(&in, &c, e) ? 1 : 0;
    instrument_fini(&in);
    return status;
}
