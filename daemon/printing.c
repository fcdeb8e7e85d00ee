/* printing.c - text for people and JSON for programs, on stdout; progress on stderr, redrawn only
 * when the percentage changes. Main thread. */
#include "daemon/printing.h"

#include "core/base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { COLUMNS_MAX = 16 };

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

static const char *cell(const struct printing_table *t, size_t row, size_t column) {
    const char *text = row ? t->cells[(row - 1) * t->n_columns + column] : t->heads[column];
    return text ? text : "";
}

/* Row 0 is the heads. The last column is not padded. */
void printing_table_print(struct printing_table *t) {
    if (!t) return;
    int widths[COLUMNS_MAX] = {0};
    for (size_t row = 0; row <= t->n_rows; row++)
        for (size_t column = 0; column < t->n_columns; column++) {
            int width = (int)strlen(cell(t, row, column));
            if (width > widths[column]) widths[column] = width;
        }
    for (size_t row = 0; row <= t->n_rows; row++)
        for (size_t column = 0; column < t->n_columns; column++) {
            bool last = column + 1 == t->n_columns;
            int pad = t->right[column] ? widths[column] : last ? 0 : -widths[column];
            printf("%*s%s", pad, cell(t, row, column), last ? "\n" : "  ");
        }
    for (size_t i = 0; i < t->n_rows * t->n_columns; i++)
        free(t->cells[i]);
    free(t->cells);
    free(t);
}

int printing_json(cJSON *value, err *e) {
    char *text = cJSON_Print(value);
    cJSON_Delete(value);
    if (!text) return err_set(e, ERR_NOMEM, "no memory for the output");
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
