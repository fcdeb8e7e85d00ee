/* input.c - reads users' files (configuration, keys, prompts), parses lists of token ids, and finds
 * the most similar name by edit distance (insert, delete, change, swap of neighbours) over short
 * ASCII names. */
#include "daemon/input.h"

#include "core/base/mem.h"
#include "core/base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- files ---- */

const char *textfile_name(const char *path) {
    return strcmp(path, "-") == 0 ? "standard input" : path;
}

int textfile_read(const char *path, size_t max_bytes, char **text, size_t *n, err *e) {
    char chunk[16384];
    str s;
    int rc = 0, fd = strcmp(path, "-") == 0 ? dup(STDIN_FILENO) : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return err_set(e, ERR_IO, "%s: %s", textfile_name(path), strerror(errno));
    str_init(&s, max_bytes);
    for (;;) {
        ssize_t got = read(fd, chunk, sizeof chunk);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) rc = err_set(e, ERR_IO, "%s: %s", textfile_name(path), strerror(errno));
        if (got <= 0) break;
        size_t room = max_bytes - s.len;
        str_add_n(&s, chunk, (size_t)got);
        if (s.failed) {
            rc = room < (size_t)got ? err_set(e, ERR_TOO_LONG, "%s is longer than %zu bytes",
                                              textfile_name(path), max_bytes)
                                    : err_no_memory(e);
            break;
        }
    }
    close(fd);
    *n = s.len;
    *text = rc ? NULL : str_take(&s);
    str_fini(&s);
    if (!rc && !*text) rc = err_no_memory(e);
    return rc;
}

int textfile_check(const char *name, const char *text, size_t n, err *e) {
    const char *nul = memchr(text, '\0', n);
    if (!nul) return 0;
    return err_set(e, ERR_FORMAT, "%s is not a text in UTF-8: byte %zu is 0", name,
                   (size_t)(nul - text));
}

/* ---- token ids ---- */

int idlist_parse(const char *text, int32_t n_vocab, int32_t **ids, size_t *n, err *e) {
    /* A list has at most one id for every two bytes. */
    int32_t *list = mem_new(strlen(text) / 2 + 1, sizeof *list);
    size_t count = 0;
    if (!list) return err_no_memory(e);
    for (const char *p = text + strspn(text, " \n\t"); *p;) {
        char *end;
        unsigned long id = *p >= '0' && *p <= '9' ? strtoul(p, &end, 10) : 0;
        if (*p < '0' || *p > '9' || id >= (unsigned long)n_vocab) {
            free(list);
            return err_set(e, ERR_INVALID,
                           "expected token ids from 0 to %d separated by commas, not \"%.24s\"",
                           (int)n_vocab - 1, p);
        }
        list[count++] = (int32_t)id;
        p = end + strspn(end, " \n\t");
        if (*p == ',')
            p += 1 + strspn(p + 1, " \n\t");
        else if (*p && p == end) {
            free(list);
            return err_set(e, ERR_INVALID, "expected a comma before \"%.24s\"", p);
        }
    }
    *ids = list;
    *n = count;
    return 0;
}

/* ---- names ---- */

enum { LONGEST = 48 };

static size_t min_size(size_t a, size_t b) {
    return a < b ? a : b;
}

/* '_' counts as '-'. */
static char fold_dash(char c) {
    return c == '_' ? '-' : c;
}

static size_t edit_distance(const char *a, const char *b) {
    size_t n = strlen(a), m = strlen(b), rows[3][LONGEST + 1];
    size_t *before = rows[0], *above = rows[1], *row = rows[2];
    if (n > LONGEST || m > LONGEST) return LONGEST;
    for (size_t j = 0; j <= m; j++)
        above[j] = j;
    for (size_t i = 1; i <= n; i++) {
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            size_t change = above[j - 1] + (fold_dash(a[i - 1]) != fold_dash(b[j - 1]));
            row[j] = min_size(change, min_size(above[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = min_size(row[j], before[j - 2] + 1);
        }
        size_t *oldest = before;
        before = above;
        above = row;
        row = oldest;
    }
    return above[m];
}

void suggest_init(struct suggest *s, const char *word) {
    *s = (struct suggest){.word = word, .distance = strlen(word) / 3 + 2};
}

void suggest_offer(struct suggest *s, const char *candidate) {
    size_t d = edit_distance(s->word, candidate);
    if (d >= s->distance) return;
    s->distance = d;
    s->best = candidate;
}
