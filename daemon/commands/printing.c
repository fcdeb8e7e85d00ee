/* printing.c - text and JSON on stdout; progress on stderr, redrawn when the percentage changes.
 * Main thread. */
#include "daemon/commands/printing.h"

#include "core/base/clock.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "daemon/signals.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { COLUMNS_MAX = 16, BAR_CHARS = 30, STEP_PERCENT = 10, REDRAW_MS = 250 };

struct printing_table {
    const char *const *heads;
    const bool *right;
    size_t n_columns, n_rows;
    char **cells; /* (n_rows, n_columns) */
};

static void format_scaled(double value, double step, const char *const *units, char *out,
                          size_t n) {
    while (value >= step && units[1]) {
        value /= step;
        units++;
    }
    snprintf(out, n,
             value < 10 && **units    ? "%.2f%s"
             : value < 100 && **units ? "%.1f%s"
                                      : "%.0f%s",
             value, *units);
}

void format_bytes(uint64_t bytes, char *out, size_t n) {
    static const char *const units[] = {" B", " KiB", " MiB", " GiB", " TiB", NULL};
    if (bytes < 1024)
        snprintf(out, n, "%u B", (unsigned)bytes);
    else
        format_scaled((double)bytes, 1024, units, out, n);
}

void format_time(int64_t seconds, char *out, size_t n) {
    time_t t = (time_t)seconds;
    struct tm local;
    if (seconds == 0)
        snprintf(out, n, "never");
    else
        strftime(out, n, "%Y-%m-%d %H:%M", localtime_r(&t, &local));
}

void format_count(uint64_t count, char *out, size_t n) {
    static const char *const units[] = {"", " K", " M", " B", " T", NULL};
    format_scaled((double)count, 1000, units, out, n);
}

struct printing_table *printing_table_new(const char *const *heads, const bool *right,
                                          size_t n_columns) {
    struct printing_table *t = mem_new(1, sizeof *t);
    if (t) *t = (struct printing_table){.heads = heads, .right = right, .n_columns = n_columns};
    return t;
}

void printing_table_add(struct printing_table *t, const char *const *cells) {
    char **more = mem_resize(t->cells, (t->n_rows + 1) * t->n_columns, sizeof *more);
    if (!more) return;
    t->cells = more;
    for (size_t i = 0; i < t->n_columns; i++)
        more[t->n_rows * t->n_columns + i] = mem_strdup(cells[i]);
    t->n_rows++;
}

static const char *table_cell(const struct printing_table *t, size_t row, size_t column) {
    const char *text = row ? t->cells[(row - 1) * t->n_columns + column] : t->heads[column];
    return text ? text : "";
}

/* Row 0 is the heads. The last column is not padded. */
void printing_table_print(struct printing_table *t) {
    if (!t) return;
    int widths[COLUMNS_MAX] = {0};
    for (size_t row = 0; row <= t->n_rows; row++)
        for (size_t column = 0; column < t->n_columns; column++) {
            int width = (int)strlen(table_cell(t, row, column));
            if (width > widths[column]) widths[column] = width;
        }
    for (size_t row = 0; row <= t->n_rows; row++)
        for (size_t column = 0; column < t->n_columns; column++) {
            bool last = column + 1 == t->n_columns;
            int pad = t->right[column] ? widths[column] : last ? 0 : -widths[column];
            printf("%*s%s", pad, table_cell(t, row, column), last ? "\n" : "  ");
        }
    for (size_t i = 0; i < t->n_rows * t->n_columns; i++)
        free(t->cells[i]);
    free(t->cells);
    free(t);
}

int printing_json(cJSON *value, err *e) {
    char *text = cJSON_Print(value);
    cJSON_Delete(value);
    if (!text) return err_no_memory(e);
    puts(text);
    cJSON_free(text);
    return 0;
}

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

/* ", 1.20 GiB of 3.40 GiB, 12.0 MiB/s" */
static void add_speed(const struct progress_bar *bar, uint64_t done, uint64_t total, str *line) {
    char have[32], all[32], speed[32];
    uint64_t ms = (bar->shown_ns - bar->start_ns) / 1000000;
    format_bytes(done, have, sizeof have);
    format_bytes(total, all, sizeof all);
    str_addf(line, ", %s of %s", have, all);
    if (ms < 1000 || done < bar->start_done) return;
    format_bytes((done - bar->start_done) * 1000 / ms, speed, sizeof speed);
    str_addf(line, ", %s/s", speed);
}

int progress_bar_show(void *arg, uint64_t done, uint64_t total) {
    static const char full[] = "##############################";
    struct progress_bar *bar = arg;
    int percent = total ? (int)((double)done / (double)total * 100) : 0;
    bool tty = isatty(STDERR_FILENO);
    uint64_t now = clock_now_ns();
    if (!bar->start_ns) {
        bar->start_ns = now;
        bar->start_done = done;
    }
    bool due = percent >= bar->shown_percent + (tty ? 1 : STEP_PERCENT) ||
               (tty && bar->bytes && now - bar->shown_ns >= REDRAW_MS * UINT64_C(1000000));
    if (total && due) {
        str line;
        str_init(&line, 256);
        bar->shown_percent = tty ? percent : percent - percent % STEP_PERCENT;
        bar->shown_ns = now;
        int filled = percent * BAR_CHARS / 100;
        if (tty)
            str_addf(&line, "\r[%.*s%*s] %3d %%", filled, full, BAR_CHARS - filled, "", percent);
        else
            str_addf(&line, "inferd: %d %%", bar->shown_percent);
        if (bar->bytes) add_speed(bar, done, total, &line);
        fprintf(stderr, "%s%s", str_cstr(&line), tty ? "\033[K" : "\n");
        fflush(stderr);
        str_fini(&line);
    }
    return signals_count() > 0;
}

void progress_bar_end(struct progress_bar *bar) {
    if (bar->shown_ns && isatty(STDERR_FILENO)) fprintf(stderr, "\r\033[K");
}
