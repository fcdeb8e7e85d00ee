/* progress.h - a line on a terminal that says how far a long read is; nothing when stderr is none.
 */
#ifndef INFERD_PROGRESS_H
#define INFERD_PROGRESS_H

#include <stdint.h>

/* Caller's storage, zero except label. */
struct progress {
    const char *label;
    int shown_percent; /* 1 + the last one printed, 0 none */
};

/* Fits registry_add's progress. arg: struct progress. */
void progress_show(void *arg, uint64_t done, uint64_t total);
void progress_end(struct progress *p); /* wipes the line */

#endif
