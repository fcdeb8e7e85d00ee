/* windows.h - a text in windows through a model, for the commands perplexity and imatrix.
 *
 * The text is encoded once, without BOS, and cut into windows of `context` - 1 tokens that do not
 * overlap (a shorter last one is dropped). Each window is preceded by BOS, and each of its tokens
 * is predicted from those before it in the window. For a model without BOS a window has `context`
 * tokens, and the first is context only. */
#ifndef INFERD_DAEMON_COMMANDS_WINDOWS_H
#define INFERD_DAEMON_COMMANDS_WINDOWS_H

#include "daemon/commands/instrument.h"

struct windows {
    size_t context;             /* tokens of a window, BOS included */
    size_t max;                 /* windows; 0: all of the text */
    struct imatrix *importance; /* see engine_config; or NULL */
    /* The result. */
    size_t n;           /* windows */
    double *nll_sums;   /* (n) of -ln p(token); free() */
    uint64_t n_counted; /* tokens */
};

/* file: "-" is standard input. Free w->nll_sums also on failure. */
int windows_run(struct instrument *in, const char *file, struct windows *w, err *e);
double windows_mean_nll(const struct windows *w);

#endif
