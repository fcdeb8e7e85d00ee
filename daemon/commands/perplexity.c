/* commands/perplexity.c - inferd perplexity: how well a model predicts a text, through the engine
 * that serves. nll is the mean of -ln p(token) over windows of the text, perplexity is exp(nll). */
#include "daemon/commands/commands.h"
#include "daemon/commands/printing.h"
#include "daemon/commands/windows.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static int print_result(const struct windows *w, bool json, err *e) {
    double nll = windows_mean_nll(w);
    if (!json) {
        printf("nll %.6f  perplexity %.4f  tokens %llu  windows %zu\n", nll, exp(nll),
               (unsigned long long)w->n_counted, w->n);
        return 0;
    }
    cJSON *o = cJSON_CreateObject();
    cJSON_AddNumberToObject(o, "context", (double)w->context);
    cJSON_AddNumberToObject(o, "windows", (double)w->n);
    cJSON_AddNumberToObject(o, "tokens_counted", (double)w->n_counted);
    cJSON_AddNumberToObject(o, "mean_nll", nll);
    cJSON_AddNumberToObject(o, "perplexity", exp(nll));
    cJSON *sums = cJSON_AddArrayToObject(o, "window_nll_sums");
    for (size_t i = 0; i < w->n; i++)
        cJSON_AddItemToArray(sums, cJSON_CreateNumber(w->nll_sums[i]));
    return printing_json(o, e);
}

static int run_perplexity(struct instrument *in, const char *file, size_t context, bool json,
                          err *e) {
    struct windows w = {.context = context};
    int rc = windows_run(in, file, &w, e);
    if (!rc) rc = print_result(&w, json, e);
    free(w.nll_sums);
    return rc;
}

int cmd_perplexity(int argc, char **argv, err *e) {
    const char *file = "-";
    uint64_t context = 512;
    bool json = false;
    const struct option own[] = {
        {.name = "file",
         .kind = OPTION_TEXT,
         .target = &file,
         .value = "FILE",
         .help = "text (default: standard input)"},
        {.name = "context",
         .kind = OPTION_NUMBER,
         .target = &context,
         .value = "N",
         .min = 2,
         .max = 1 << 24,
         .help = "tokens per window, including BOS (default 512)"},
        {.name = "json", .kind = OPTION_SWITCH, .target = &json, .help = "print JSON"}};
    struct instrument in = {
        .options = {.usage = "perplexity --file TEXT",
                    .summary = "Measures how well a model predicts a text, in windows of N tokens "
                               "that do not overlap.\nEach begins with BOS if the model has one; a "
                               "shorter last one is dropped.",
                    .options = own,
                    .n_options = sizeof own / sizeof own[0],
                    .keys = instrument_compute_keys}};
    int status = instrument_parse(&in, argc, argv, e);
    if (status < 0) status = run_perplexity(&in, file, (size_t)context, json, e) ? 1 : 0;
    instrument_fini(&in);
    return status;
}
