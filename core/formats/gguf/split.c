/* gguf/split.c - presents the parts of a split model as one gguf: the first part, to which the
 * tensors of the others are added. Opened on one thread, then read-only. */
#include "core/formats/gguf/split.h"

#include "core/base/mem.h"
#include "core/formats/gguf/gguf_int.h"
#include "core/formats/model_file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_PARTS = 99999 };

/* The parts after the first. */
struct parts {
    gguf **list; /* (n) */
    uint64_t n;
};

static void drop_pages(const void *state) {
    const struct parts *p = state;
    for (uint64_t i = 0; i < p->n; i++)
        gguf_drop_pages(p->list[i]);
}

static const char *path_of(const void *state, uint64_t i) {
    const struct parts *p = state;
    return i < p->n ? gguf_path(p->list[i]) : NULL;
}

static const struct file_map *map_of(const void *state, uint64_t i) {
    const struct parts *p = state;
    return i < p->n ? &p->list[i]->map : NULL;
}

static void close_parts(void *state) {
    struct parts *p = state;
    for (uint64_t i = 0; i < p->n; i++)
        gguf_close(p->list[i]);
    free(p->list);
    free(p);
}

/* The name of part number `no` in the folder of path, which is the name of a part; the caller frees
 * *out. ERR_FORMAT: path is not named like a part. */
static int part_path(const char *path, uint64_t no, uint64_t count, char **out, err *e) {
    struct model_file_part part;
    *out = NULL;
    if (!model_file_part_read(path, &part))
        return err_set(e, ERR_FORMAT,
                       "%s: the model has %" PRIu64 " parts, but this one is not named "
                       "*-00001-of-%05" PRIu64 ".gguf: the others cannot be found",
                       path, count, count);
    if (!(*out = mem_strdup(path))) return err_no_memory(e);
    part.part = (unsigned)no + 1;
    part.n_parts = (unsigned)count;
    model_file_part_write(&part, *out);
    return 0;
}

/* Reads the part's number and their count; count 1: an unsplit model. */
static int read_numbers(const gguf *g, uint64_t *no, uint64_t *count, err *e) {
    int rc = 0;
    *no = 0;
    *count = 1;
    if (gguf_has(g, "split.count")) rc = gguf_get_u64(g, "split.count", count, e);
    if (!rc && gguf_has(g, "split.no")) rc = gguf_get_u64(g, "split.no", no, e);
    if (rc) return rc;
    if (*count == 0) *count = 1;
    if (*count > MAX_PARTS || *no >= *count)
        return err_set(e, ERR_FORMAT,
                       "%s: split.no is %" PRIu64 " and split.count is %" PRIu64
                       ": expected split.no below it",
                       gguf_path(g), *no, *count);
    return 0;
}

/* Opens part number `no` and checks the number and count in its keys. */
static int open_part(struct parts *p, const gguf *first, uint64_t no, uint64_t count, int flags,
                     err *e) {
    uint64_t its_no, its_count;
    char *path;
    int rc = part_path(gguf_path(first), no, count, &path, e);
    if (rc) return rc;
    if (access(path, F_OK) && errno == ENOENT)
        rc = err_set(e, ERR_NOT_FOUND, "%s: part %" PRIu64 " of %" PRIu64 " is missing", path,
                     no + 1, count);
    if (!rc) rc = gguf_open(path, flags, &p->list[p->n], e);
    if (!rc) rc = read_numbers(p->list[p->n++], &its_no, &its_count, e);
    if (!rc && (its_no != no || its_count != count))
        rc = err_set(e, ERR_FORMAT,
                     "%s: its keys say part %" PRIu64 " of %" PRIu64 ", expected part %" PRIu64
                     " of %" PRIu64,
                     path, its_no + 1, its_count, no + 1, count);
    free(path);
    return rc;
}

/* The tensors of all parts, concatenated; the caller frees. */
static gguf_tensor *join_tensors(const gguf *first, const struct parts *p, uint64_t *n) {
    *n = gguf_n_tensors(first);
    for (uint64_t i = 0; i < p->n; i++)
        *n += gguf_n_tensors(p->list[i]);
    gguf_tensor *all = mem_new(*n, sizeof *all);
    uint64_t at = 0;
    for (uint64_t i = 0; all && i <= p->n; i++) {
        const gguf *g = i ? p->list[i - 1] : first;
        for (uint64_t k = 0; k < gguf_n_tensors(g); k++)
            all[at++] = *gguf_tensor_at(g, k);
    }
    return all;
}

static int check_count(const gguf *first, uint64_t n, err *e) {
    uint64_t wanted = n;
    int rc = gguf_has(first, "split.tensors.count")
                 ? gguf_get_u64(first, "split.tensors.count", &wanted, e)
                 : 0;
    if (rc || wanted == n) return rc;
    return err_set(e, ERR_FORMAT,
                   "%s: split.tensors.count is %" PRIu64 ", but the parts have %" PRIu64 " tensors",
                   gguf_path(first), wanted, n);
}

/* Opens the parts after first and adds their tensors to it; first owns p afterwards. */
static int join_parts(gguf *first, struct parts *p, uint64_t count, int flags, err *e) {
    int rc = 0;
    for (uint64_t i = 1; !rc && i < count; i++)
        rc = open_part(p, first, i, count, flags, e);
    uint64_t n = 0;
    gguf_tensor *all = rc ? NULL : join_tensors(first, p, &n);
    if (!rc && !all) rc = err_no_memory(e);
    if (!rc) rc = check_count(first, n, e);
    struct gguf_source source = {.state = p,
                                 .drop_pages = drop_pages,
                                 .path = path_of,
                                 .map = map_of,
                                 .close = close_parts,
                                 .bytes = first->bytes};
    for (uint64_t i = 0; i < p->n; i++)
        source.bytes += gguf_file_bytes(p->list[i]);
    if (rc)
        close_parts(p);
    else if (!(rc = gguf_set_tensors(first, all, n, &source, e)))
        gguf_forget_keys(first, "split.");
    free(all);
    return rc;
}

/* Opens path, which must be an unsplit file or the first of *count parts. */
static int open_first(const char *path, int flags, uint64_t *count, gguf **out, err *e) {
    gguf *first = NULL;
    uint64_t no = 0;
    *out = NULL;
    int rc = gguf_open(path, flags, &first, e);
    if (!rc) rc = read_numbers(first, &no, count, e);
    if (!rc && no > 0) {
        char *wanted;
        part_path(path, 0, *count, &wanted, NULL);
        rc = err_set(e, ERR_INVALID, "%s is part %" PRIu64 " of %" PRIu64 ": open %s", path, no + 1,
                     *count, wanted ? wanted : "the first part");
        free(wanted);
    }
    if (rc)
        gguf_close(first);
    else
        *out = first;
    return rc;
}

int gguf_split_open_first(const char *path, int flags, gguf **out, err *e) {
    uint64_t count;
    return open_first(path, flags, &count, out, e);
}

int gguf_split_open(const char *path, int flags, gguf **out, err *e) {
    uint64_t count = 1;
    int rc = open_first(path, flags, &count, out, e);
    if (rc || count == 1) return rc;
    struct parts *p = mem_new(1, sizeof *p);
    if (p) p->list = mem_new(count, sizeof(gguf *));
    if (p && p->list) {
        rc = join_parts(*out, p, count, flags, e);
    } else {
        free(p);
        rc = err_no_memory(e);
    }
    if (rc) {
        gguf_close(*out);
        *out = NULL;
    }
    return rc;
}
