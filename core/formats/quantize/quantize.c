/* quantize.c - runs a plan: reads, decodes, encodes and writes a model piece by piece. Owns its
 * threads from start to join and holds one piece per thread. A piece's number determines its place
 * in the file and in the error sums, so the result does not depend on the thread that computes it.
 *
 * A GGUF is read with pread, not through the mapping: a file that shrinks meanwhile is then an
 * error, and the process's memory does not grow with the model. A folder's files are read through
 * their mappings, whose pages are released as the work proceeds. */
#include "core/formats/quantize/quantize_int.h"

#include "core/base/file.h"
#include "core/base/mem.h"
#include "core/formats/gguf/gguf_int.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Values per piece: whole blocks of every type. */
enum { PIECE_ELEMS = 1 << 18, QUANTIZATION_VERSION = 2, THREADS_MAX = 1024 };
/* A folder's pages are released after this many pieces. */
enum { KEEP_PIECES = 64 };

struct sums {
    double error_sq, value_sq;
};

/* Shared by all threads. */
struct job {
    quantize_plan *plan;
    gguf_writer *writer;
    const struct quantize_output *output;
    int fd; /* of the source; -1: it is not a single file */
    uint64_t n_pieces, total_bytes;
    uint64_t *first_piece; /* (n_tensors + 1) */
    struct sums *sums;     /* (n_pieces), each written by the thread that computes the piece */
    _Atomic uint64_t next_piece, done_bytes;
    _Atomic bool stop;
    pthread_mutex_t lock; /* guards rc and error */
    int rc;
    err error; /* the first one */
};

/* One thread's buffers, of one piece each. */
struct worker {
    struct job *job;
    uint8_t *raw, *encoded; /* (PIECE_ELEMS * 4) bytes */
    float *values, *back;   /* (PIECE_ELEMS) */
    float *importance;      /* (PIECE_ELEMS) or NULL: no tensor has any */
    pthread_t thread;
};

/* Values start .. start + n - 1 of a tensor. */
struct piece {
    uint64_t index, tensor, start, n;
};

static void stop_with_error(struct job *j, int rc, const err *e) {
    pthread_mutex_lock(&j->lock);
    if (!j->rc) {
        j->rc = rc;
        j->error = *e;
    }
    pthread_mutex_unlock(&j->lock);
    j->stop = true;
}

/* n is whole blocks. */
static uint64_t bytes_of(int type, uint64_t n) {
    const struct qtype_info *info = qtype_find(type);
    return n / info->block_elems * info->block_bytes;
}

static int read_source(const struct job *j, const gguf_tensor *t, const struct piece *p,
                       uint8_t *raw, err *e) {
    if (j->fd < 0) {
        if (p->index % KEEP_PIECES == KEEP_PIECES - 1) gguf_drop_pages(j->plan->src);
        return gguf_tensor_read(j->plan->src, t, bytes_of(t->type, p->start),
                                bytes_of(t->type, p->n), raw, e);
    }
    uint64_t begin =
        (uint64_t)((const uint8_t *)t->data - (const uint8_t *)gguf_mapping(j->plan->src));
    uint64_t n = bytes_of(t->type, p->n);
    begin += bytes_of(t->type, p->start);
    if (!file_read_at(j->fd, raw, n, begin)) return 0;
    return err_set(e, ERR_IO, "%s: cannot read: %s", gguf_path(j->plan->src),
                   errno ? strerror(errno) : "the file was truncated while it was read");
}

/* Index of the first value that is not finite, or n. */
static uint64_t find_nonfinite(const float *v, uint64_t n) {
    uint64_t i = 0;
    while (i < n && isfinite(v[i]))
        i++;
    return i;
}

static int refuse_value(const gguf_tensor *t, uint64_t at, float v, int type, err *e) {
    int shown = (int)(t->name.len < 64 ? t->name.len : 64);
    if (!isfinite(v))
        return err_set(e, ERR_INVALID,
                       "tensor %.*s: value %" PRIu64
                       " is %g, expected a finite number: the model is damaged",
                       shown, t->name.data, at, (double)v);
    return err_set(e, ERR_INVALID, "tensor %.*s: value %" PRIu64 " is %g, too large for %s", shown,
                   t->name.data, at, (double)v, qtype_name(type));
}

/* The importance of a piece's values: that of their columns, in their expert. */
static void find_importance(const struct quantize_tensor *t, const struct piece *p, float *out) {
    const gguf_tensor *src = t->source;
    const uint64_t n_cols = src->dims[0], one = n_cols * src->dims[1], end = p->start + p->n;
    for (uint64_t at = p->start, n; at < end; at += n, out += n) {
        n = n_cols - at % n_cols < end - at ? n_cols - at % n_cols : end - at;
        imatrix_means(t->importance, at / one * n_cols + at % n_cols, n, out);
    }
}

static void encode_piece(struct worker *w, const struct quantize_tensor *t, const struct piece *p) {
    if (!t->importance) {
        qtype_encode(t->type, w->values, w->encoded, p->n);
        return;
    }
    find_importance(t, p, w->importance);
    qtype_encode_weighted(t->type, w->values, w->importance, w->encoded, p->n);
}

/* Encodes w->raw as t->type and adds up the error. */
static int convert_piece(struct worker *w, const struct quantize_tensor *t, const struct piece *p,
                         struct sums *s, err *e) {
    const gguf_tensor *src = t->source;
    qtype_decode(src->type, w->raw, w->values, p->n);
    uint64_t bad = find_nonfinite(w->values, p->n);
    if (bad < p->n) return refuse_value(src, p->start + bad, w->values[bad], t->type, e);
    encode_piece(w, t, p);
    qtype_decode(t->type, w->encoded, w->back, p->n);
    bad = find_nonfinite(w->back, p->n);
    if (bad < p->n) return refuse_value(src, p->start + bad, w->values[bad], t->type, e);
    for (uint64_t i = 0; i < p->n; i++) {
        double lost = (double)w->back[i] - (double)w->values[i];
        s->error_sq += lost * lost;
        s->value_sq += (double)w->values[i] * (double)w->values[i];
    }
    return 0;
}

static int process_piece(struct worker *w, const struct piece *p, err *e) {
    struct job *j = w->job;
    const struct quantize_tensor *t = &j->plan->tensors[p->tensor];
    const uint8_t *result = w->raw;
    int rc = read_source(j, t->source, p, w->raw, e);
    if (!rc && t->type != t->source->type) {
        rc = convert_piece(w, t, p, &j->sums[p->index], e);
        result = w->encoded;
    }
    if (!rc)
        rc = gguf_writer_put(j->writer, p->tensor, bytes_of(t->type, p->start), result,
                             bytes_of(t->type, p->n), e);
    if (!rc) j->done_bytes += bytes_of(t->source->type, p->n);
    return rc;
}

/* Processes pieces until none are left. Only the calling thread reports progress. */
static void process_pieces(struct worker *w, bool reports) {
    struct job *j = w->job;
    const struct quantize_output *o = j->output;
    struct piece p = {0};
    err e;
    while (!j->stop && (p.index = j->next_piece++) < j->n_pieces) {
        while (p.index >= j->first_piece[p.tensor + 1])
            p.tensor++;
        uint64_t n_elems = j->plan->tensors[p.tensor].source->n_elems;
        p.start = (p.index - j->first_piece[p.tensor]) * PIECE_ELEMS;
        p.n = n_elems - p.start < PIECE_ELEMS ? n_elems - p.start : PIECE_ELEMS;
        int rc = process_piece(w, &p, &e);
        if (!rc && reports && o->progress && o->progress(o->arg, j->done_bytes, j->total_bytes))
            rc = err_set(&e, ERR_STOPPING, "stopped by request: %s was not written", o->path);
        if (rc) stop_with_error(j, rc, &e);
    }
}

static void *thread_main(void *arg) {
    process_pieces(arg, false);
    return NULL;
}

static uint32_t usable_cores(void) {
#ifdef __linux__
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) return (uint32_t)CPU_COUNT(&set);
#endif
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (uint32_t)n : 1;
}

static void worker_fini(struct worker *w) {
    free(w->raw);
    free(w->encoded);
    free(w->values);
    free(w->back);
    free(w->importance);
}

static bool worker_init(struct worker *w, struct job *j) {
    uint64_t bytes = PIECE_ELEMS * sizeof(float);
    *w = (struct worker){.job = j,
                         .raw = mem_new_aligned(bytes),
                         .encoded = mem_new_aligned(bytes),
                         .values = mem_new_aligned(bytes),
                         .back = mem_new_aligned(bytes)};
    const bool weighs = j->plan->imatrix != NULL;
    if (weighs) w->importance = mem_new_aligned(bytes);
    if (w->raw && w->encoded && w->values && w->back && (w->importance || !weighs)) return true;
    worker_fini(w);
    return false;
}

/* Runs with fewer threads if some cannot be started. The calling thread is one of them. */
static int run_workers(struct job *j, err *e) {
    uint32_t wanted = j->output->n_threads ? j->output->n_threads : usable_cores();
    if (wanted > THREADS_MAX) wanted = THREADS_MAX;
    if (wanted > j->n_pieces) wanted = (uint32_t)j->n_pieces;
    struct worker *workers = mem_new(wanted, sizeof *workers);
    if (!workers || !worker_init(&workers[0], j)) {
        free(workers);
        return err_no_memory(e);
    }
    uint32_t n = 1;
    while (n < wanted && worker_init(&workers[n], j)) {
        if (pthread_create(&workers[n].thread, NULL, thread_main, &workers[n])) {
            worker_fini(&workers[n]);
            break;
        }
        n++;
    }
    process_pieces(&workers[0], true);
    for (uint32_t i = 1; i < n; i++)
        pthread_join(workers[i].thread, NULL);
    for (uint32_t i = 0; i < n; i++)
        worker_fini(&workers[i]);
    free(workers);
    if (j->rc && e) *e = j->error;
    return j->rc;
}

static int cut_pieces(struct job *j, err *e) {
    const quantize_plan *p = j->plan;
    j->first_piece = mem_new(p->n_tensors + 1, sizeof *j->first_piece);
    if (!j->first_piece) return err_no_memory(e);
    for (uint64_t i = 0; i < p->n_tensors; i++) {
        const gguf_tensor *t = p->tensors[i].source;
        j->first_piece[i] = j->n_pieces;
        j->n_pieces += (t->n_elems - 1) / PIECE_ELEMS + 1;
        j->total_bytes += t->bytes;
    }
    j->first_piece[p->n_tensors] = j->n_pieces;
    j->sums = mem_new(j->n_pieces, sizeof *j->sums);
    return j->sums ? 0 : err_no_memory(e);
}

static void sum_errors(struct job *j) {
    for (uint64_t i = 0; i < j->plan->n_tensors; i++) {
        struct quantize_tensor *t = &j->plan->tensors[i];
        t->error_sq = t->value_sq = 0;
        for (uint64_t k = j->first_piece[i]; k < j->first_piece[i + 1]; k++) {
            t->error_sq += j->sums[k].error_sq;
            t->value_sq += j->sums[k].value_sq;
        }
    }
}

/* Keys that say what importance the types were chosen by, as llama-quantize writes them. */
static int add_importance(const quantize_plan *p, gguf_writer *w, err *e) {
    const struct imatrix_text *text = imatrix_text(p->imatrix);
    int rc = 0;
    if (text->name) rc = gguf_writer_set_str(w, "quantize.imatrix.dataset", text->name, e);
    if (!rc)
        rc = gguf_writer_set_u32(w, "quantize.imatrix.entries_count",
                                 (uint32_t)imatrix_n_entries(p->imatrix), e);
    if (!rc && text->n_chunks)
        rc = gguf_writer_set_u32(w, "quantize.imatrix.chunks_count", text->n_chunks, e);
    return rc;
}

/* Adds metadata and tensors. Keys of the new file are set before those of src are copied. */
static int add_metadata(struct job *j, err *e) {
    const quantize_plan *p = j->plan;
    gguf_writer *w = j->writer;
    uint64_t alignment;
    const struct quantize_output *o = j->output;
    int rc = gguf_writer_set_u32(w, "general.file_type", p->file_type, e);
    if (!rc) rc = gguf_writer_set_u32(w, "general.quantization_version", QUANTIZATION_VERSION, e);
    if (!rc && gguf_get_u64(p->src, "general.alignment", &alignment, NULL) == 0)
        rc = gguf_writer_set_u32(w, "general.alignment", (uint32_t)alignment, e);
    if (!rc && p->imatrix) rc = add_importance(p, w, e);
    if (!rc && o->add_keys) rc = o->add_keys(o->arg, w, e);
    if (!rc) rc = gguf_writer_copy_metadata(w, p->src, e);
    for (uint64_t i = 0; !rc && i < p->n_tensors; i++) {
        gguf_tensor t = *p->tensors[i].source;
        t.type = p->tensors[i].type;
        t.bytes = p->tensors[i].bytes;
        t.data = NULL;
        rc = gguf_writer_add_tensor(w, &t, e);
    }
    return rc;
}

static bool same_file(const struct stat *a, const struct stat *b) {
    return a->st_ino == b->st_ino && a->st_dev == b->st_dev;
}

/* True if path leads to one of the source's files. */
static bool is_source(const gguf *src, const char *path) {
    struct stat st, own;
    const char *file;
    if (stat(path, &st)) return false;
    for (uint64_t i = 0; (file = gguf_source_path(src, i)); i++)
        if (stat(file, &own) == 0 && same_file(&st, &own)) return true;
    return false;
}

/* Refuses to overwrite the source, also as PATH.tmp, and an older result. */
static int check_target(const struct job *j, err *e) {
    const char *path = j->output->path;
    const gguf *src = j->plan->src;
    struct stat st;
    size_t n = strlen(path);
    char *tmp = mem_new((uint64_t)n + sizeof ".tmp", 1);
    if (!tmp) return err_no_memory(e);
    memcpy(tmp, path, n);
    memcpy(tmp + n, ".tmp", sizeof ".tmp");
    int rc = 0;
    if (is_source(src, tmp))
        rc = err_set(e, ERR_INVALID,
                     "%s is the source, and is needed as a temporary name to write %s: choose "
                     "another name for the result",
                     tmp, path);
    free(tmp);
    if (rc || stat(path, &st)) return rc;
    if (is_source(src, path))
        return err_set(e, ERR_INVALID,
                       "%s is the source itself: choose another name for the result", path);
    if (!S_ISREG(st.st_mode))
        return err_set(e, ERR_EXISTS, "%s exists and is not a regular file", path);
    if (!j->output->overwrite)
        return err_set(e, ERR_EXISTS, "%s already exists (--force overwrites it)", path);
    return 0;
}

static int open_source(struct job *j, err *e) {
    const char *path = gguf_path(j->plan->src);
    struct stat st;
    if (!gguf_mapping(j->plan->src)) return check_target(j, e);
    j->fd = file_open(path, O_RDONLY | O_NONBLOCK, 0);
    if (j->fd < 0 || fstat(j->fd, &st))
        return err_set(e, ERR_IO, "%s: cannot open: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != gguf_file_bytes(j->plan->src))
        return err_set(e, ERR_CHANGED, "%s changed since it was opened: start again", path);
    return check_target(j, e);
}

static int check_importance(const quantize_plan *p, err *e) {
    for (uint64_t i = 0; i < p->n_tensors; i++) {
        const struct quantize_tensor *t = &p->tensors[i];
        const gguf_str name = t->source->name;
        if (!t->lacks_importance) continue;
        return err_set(e, ERR_INVALID,
                       "tensor %.*s as %s needs an importance matrix%s: without one the model "
                       "would be of no use",
                       (int)(name.len < 64 ? name.len : 64), name.data, qtype_name(t->type),
                       p->imatrix ? " that has it" : " (--imatrix, made by inferd imatrix)");
    }
    return 0;
}

int quantize_run(quantize_plan *p, const struct quantize_output *o, err *e) {
    int rc = check_importance(p, e);
    if (rc) return rc;
    struct job j = {.plan = p, .output = o, .fd = -1, .lock = PTHREAD_MUTEX_INITIALIZER};
    j.writer = gguf_writer_new();
    rc = j.writer ? open_source(&j, e) : err_no_memory(e);
    if (!rc) rc = cut_pieces(&j, e);
    if (!rc) rc = add_metadata(&j, e);
    if (!rc) rc = gguf_writer_begin(j.writer, o->path, e);
    if (!rc) rc = run_workers(&j, e);
    if (!rc) rc = gguf_writer_commit(j.writer, e);
    if (!rc) sum_errors(&j);
    gguf_writer_free(j.writer);
    if (j.fd >= 0) close(j.fd);
    free(j.sums);
    free(j.first_piece);
    pthread_mutex_destroy(&j.lock);
    return rc;
}
