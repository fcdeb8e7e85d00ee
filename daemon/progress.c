/* progress.c - redraws only when the percentage changes. Main thread. */
#include "daemon/progress.h"

#include <stdio.h>
#include <unistd.h>

void progress_show(void *arg, uint64_t done, uint64_t total) {
    struct progress *p = arg;
    int percent = total ? (int)((double)done / (double)total * 100) : 100;
    if (p->shown_percent == percent + 1 || !isatty(STDERR_FILENO)) return;
    p->shown_percent = percent + 1;
    fprintf(stderr, "\r%s %3d %%", p->label, percent);
    fflush(stderr);
}

void progress_end(struct progress *p) {
    if (p->shown_percent) fprintf(stderr, "\r\033[K");
    p->shown_percent = 0;
}
