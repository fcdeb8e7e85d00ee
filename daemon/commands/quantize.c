/* commands/quantize.c - inferd quantize: converts a model to another type of weights, as GGUF. */
#include "core/formats/quantize/quantize.h"
#include "core/base/mem.h"
#include "core/formats/model_file.h"
#include "core/text/utf8.h"
#include "core/tokenizer/tokenizer.h"
#include "daemon/commands/commands.h"
#include "daemon/commands/printing.h"
#include "daemon/options.h"
#include "daemon/signals.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { COLUMNS = 7, TYPES_MAX = 64, FALLBACKS_MAX = 32 };

struct quantize_command {
    const char *type, *output_type, *embedding_type, *imatrix, *args[2];
    size_t n_args;
    uint64_t threads;
    bool pure, requantize, force, dry_run, json;
};

/* Totals over all tensors of one type. */
struct total {
    const char *name;
    uint64_t n_tensors, n_elems, bytes_before, bytes_after;
    double error_sq, value_sq;
};

/* Tensors whose rows do not fit the wanted type. */
struct fallback {
    int wanted, type;
    uint64_t n_cols, n_tensors;
    gguf_str first;
};

struct report {
    struct total all, types[TYPES_MAX]; /* by enum qtype; unused ones have no tensors */
    struct fallback fallbacks[FALLBACKS_MAX];
    size_t n_fallbacks;
};

static void add_to(struct total *total, const struct quantize_tensor *t) {
    total->n_tensors++;
    total->n_elems += t->source->n_elems;
    total->bytes_before += t->source->bytes;
    total->bytes_after += t->bytes;
    total->error_sq += t->error_sq;
    total->value_sq += t->value_sq;
}

static void add_fallback(struct report *r, const struct quantize_tensor *t) {
    size_t i = 0;
    while (i < r->n_fallbacks &&
           (r->fallbacks[i].wanted != t->wanted || r->fallbacks[i].n_cols != t->source->dims[0]))
        i++;
    if (i == FALLBACKS_MAX) return; /* the table shows the others */
    if (i == r->n_fallbacks) {
        r->n_fallbacks++;
        r->fallbacks[i] = (struct fallback){.wanted = t->wanted,
                                            .type = t->type,
                                            .n_cols = t->source->dims[0],
                                            .first = t->source->name};
    }
    r->fallbacks[i].n_tensors++;
}

static void make_report(const quantize_plan *p, struct report *r) {
    memset(r, 0, sizeof *r);
    r->all.name = "all";
    for (uint64_t i = 0; i < quantize_plan_n(p); i++) {
        const struct quantize_tensor *t = quantize_plan_at(p, i);
        if (t->type >= 0 && t->type < TYPES_MAX) {
            r->types[t->type].name = qtype_name(t->type);
            add_to(&r->types[t->type], t);
        }
        add_to(&r->all, t);
        if (t->type != t->wanted) add_fallback(r, t);
    }
}

static double root_mean_square(double sum_sq, uint64_t n) {
    return n ? sqrt(sum_sq / (double)n) : 0;
}

/* Root-mean-square error relative to that of the values. */
static double relative_error(const struct total *t) {
    return t->value_sq > 0 ? sqrt(t->error_sq / t->value_sq) : 0;
}

static void add_row(struct printing_table *table, const struct total *t, bool measured) {
    char n[32], before[32], after[32], bits[32], error[32] = "-", relative[32] = "-";
    snprintf(n, sizeof n, "%" PRIu64, t->n_tensors);
    format_bytes(t->bytes_before, before, sizeof before);
    format_bytes(t->bytes_after, after, sizeof after);
    snprintf(bits, sizeof bits, "%.2f", (double)t->bytes_after * 8 / (double)t->n_elems);
    if (measured && t->error_sq > 0) {
        snprintf(error, sizeof error, "%.3g", root_mean_square(t->error_sq, t->n_elems));
        snprintf(relative, sizeof relative, "%.3g %%", 100 * relative_error(t));
    } else if (measured) {
        strcpy(error, "0");
        strcpy(relative, "0 %");
    }
    const char *const cells[COLUMNS] = {t->name, n, before, after, bits, error, relative};
    printing_table_add(table, cells);
}

static void print_report(const struct report *r, bool measured) {
    static const char *const heads[COLUMNS] = {"TYPE",        "TENSORS",   "BEFORE",        "AFTER",
                                               "BITS/WEIGHT", "RMS ERROR", "RELATIVE ERROR"};
    static const bool right[COLUMNS] = {false, true, true, true, true, true, true};
    struct printing_table *table = printing_table_new(heads, right, COLUMNS);
    for (int i = 0; table && i < TYPES_MAX; i++)
        if (r->types[i].n_tensors) add_row(table, &r->types[i], measured);
    if (table) add_row(table, &r->all, measured);
    printing_table_print(table);
}

static void print_fallbacks(const struct report *r) {
    for (size_t i = 0; i < r->n_fallbacks; i++) {
        const struct fallback *f = &r->fallbacks[i];
        fprintf(stderr, "inferd: rows of %" PRIu64 " values do not fit %s", f->n_cols,
                qtype_name(f->wanted));
        fprintf(stderr, ", %s instead: %.*s", qtype_name(f->type),
                (int)(f->first.len < 64 ? f->first.len : 64), f->first.data);
        if (f->n_tensors > 1) fprintf(stderr, " and %" PRIu64 " more", f->n_tensors - 1);
        fputc('\n', stderr);
    }
}

static void add_numbers(cJSON *o, const struct total *t, bool measured) {
    cJSON_AddNumberToObject(o, "elements", (double)t->n_elems);
    cJSON_AddNumberToObject(o, "bytes_before", (double)t->bytes_before);
    cJSON_AddNumberToObject(o, "bytes_after", (double)t->bytes_after);
    cJSON_AddNumberToObject(o, "bits_per_weight", (double)t->bytes_after * 8 / (double)t->n_elems);
    if (!measured) return;
    cJSON_AddNumberToObject(o, "rms_error", root_mean_square(t->error_sq, t->n_elems));
    cJSON_AddNumberToObject(o, "relative_error", relative_error(t));
}

static cJSON *total_json(const struct total *t, bool measured) {
    cJSON *o = cJSON_CreateObject();
    cJSON_AddStringToObject(o, "type", t->name);
    cJSON_AddNumberToObject(o, "tensors", (double)t->n_tensors);
    add_numbers(o, t, measured);
    return o;
}

/* Names in a GGUF need not be UTF-8; JSON must be. */
static void add_name(cJSON *o, gguf_str name) {
    str text;
    str_init(&text, 1 << 20);
    utf8_add_lossy(&text, name.data, name.len);
    cJSON_AddStringToObject(o, "name", str_cstr(&text));
    str_fini(&text);
}

static cJSON *tensor_json(const struct quantize_tensor *t, bool measured) {
    struct total one = {0};
    cJSON *o = cJSON_CreateObject();
    add_name(o, t->source->name);
    cJSON_AddStringToObject(o, "from", qtype_name(t->source->type));
    cJSON_AddStringToObject(o, "to", qtype_name(t->type));
    if (t->type != t->wanted) cJSON_AddStringToObject(o, "wanted", qtype_name(t->wanted));
    add_to(&one, t);
    add_numbers(o, &one, measured);
    return o;
}

static int print_json(const quantize_plan *p, const struct report *r, bool measured, err *e) {
    cJSON *o = cJSON_CreateObject();
    cJSON_AddStringToObject(o, "type", quantize_plan_type(p));
    cJSON_AddItemToObject(o, "all", total_json(&r->all, measured));
    cJSON *types = cJSON_AddArrayToObject(o, "types");
    for (int i = 0; i < TYPES_MAX; i++)
        if (r->types[i].n_tensors) cJSON_AddItemToArray(types, total_json(&r->types[i], measured));
    cJSON *tensors = cJSON_AddArrayToObject(o, "tensors");
    for (uint64_t i = 0; i < quantize_plan_n(p); i++)
        cJSON_AddItemToArray(tensors, tensor_json(quantize_plan_at(p, i), measured));
    return printing_json(o, e);
}

/* State of a run's callbacks. */
struct run {
    const gguf *src;
    struct progress_bar bar;
};

static int show_progress(void *arg, uint64_t done, uint64_t total) {
    return progress_bar_show(&((struct run *)arg)->bar, done, total);
}

/* Adds the tokenizer of a folder, which is not among its model's keys. */
static int add_tokenizer(void *arg, gguf_writer *w, err *e) {
    const struct run *r = arg;
    const gguf_tensor *embedding = gguf_tensor_find(r->src, "token_embd.weight");
    return tokenizer_write_gguf(gguf_path(r->src), embedding ? embedding->dims[1] : 0, w, e);
}

static bool is_folder(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static int write_model(const struct quantize_command *c, const gguf *src, quantize_plan *p,
                       err *e) {
    struct run r = {.src = src};
    const struct quantize_output output = {.path = c->args[1],
                                           .overwrite = c->force,
                                           .n_threads = (uint32_t)c->threads,
                                           .progress = show_progress,
                                           .add_keys = is_folder(c->args[0]) ? add_tokenizer : NULL,
                                           .arg = &r};
    int rc = signals_open(e);
    if (!rc) rc = quantize_run(p, &output, e);
    progress_bar_end(&r.bar);
    return rc;
}

static void print_lacking(const quantize_plan *p) {
    uint64_t n = 0;
    for (uint64_t i = 0; i < quantize_plan_n(p); i++)
        n += quantize_plan_at(p, i)->lacks_importance;
    if (n)
        fprintf(stderr, "inferd: %" PRIu64 " tensors need an importance matrix (--imatrix)\n", n);
}

static int run_quantize(const struct quantize_command *c, err *e) {
    struct quantize_options options = {.type = c->type,
                                       .output_type = c->output_type,
                                       .embedding_type = c->embedding_type,
                                       .pure = c->pure,
                                       .allow_requantize = c->requantize};
    struct report *report = mem_new(1, sizeof *report);
    quantize_plan *plan = NULL;
    imatrix *importance = NULL;
    gguf *src = NULL;
    int rc = c->imatrix ? imatrix_open(c->imatrix, &importance, e) : 0;
    options.imatrix = importance;
    if (!rc)
        rc = report ? model_file_open(c->args[0], GGUF_OPEN_AS_FILE, &src, e) : err_no_memory(e);
    if (!rc) rc = quantize_plan_new(src, &options, &plan, e);
    if (!rc) {
        make_report(plan, report);
        print_fallbacks(report);
        if (c->dry_run) print_lacking(plan);
    }
    if (!rc && !c->dry_run) {
        rc = write_model(c, src, plan, e);
        if (!rc) make_report(plan, report);
    }
    if (!rc && c->json) rc = print_json(plan, report, !c->dry_run, e);
    if (!rc && !c->json) print_report(report, !c->dry_run);
    quantize_plan_free(plan);
    gguf_close(src);
    imatrix_free(importance);
    free(report);
    return rc;
}

int cmd_quantize(int argc, char **argv, err *e) {
    struct quantize_command c = {0};
    str types;
    str_init(&types, 4096);
    quantize_add_types(&types, 60);
    str_add(&types, "\nBut for F32, F16, BF16 and Q8_0 the output head and what suffers most get\n"
                    "a better type, as llama.cpp chooses them.");
    const struct option own[] = {
        {.name = "type",
         .kind = OPTION_TEXT,
         .target = &c.type,
         .value = "TYPE",
         .help = str_cstr(&types)},
        {.name = "pure",
         .kind = OPTION_SWITCH,
         .target = &c.pure,
         .help = "use the same type for every matrix"},
        {.name = "output-type",
         .kind = OPTION_TEXT,
         .target = &c.output_type,
         .value = "TYPE",
         .help = "type of the output head (of the embedding if they are tied)"},
        {.name = "embedding-type",
         .kind = OPTION_TEXT,
         .target = &c.embedding_type,
         .value = "TYPE",
         .help = "type of the embedding"},
        {.name = "imatrix",
         .kind = OPTION_TEXT,
         .target = &c.imatrix,
         .value = "FILE",
         .help = "importance matrix, of inferd imatrix or llama-imatrix: errors are weighed by\n"
                 "it; the IQ1 and IQ2 types, IQ3_XXS and Q2_K_S need one"},
        {.name = "allow-requantize",
         .kind = OPTION_SWITCH,
         .target = &c.requantize,
         .help = "accept a quantized model: the result is worse than from F32, F16 or BF16"},
        {.name = "force",
         .kind = OPTION_SWITCH,
         .target = &c.force,
         .help = "overwrite an existing DST"},
        {.name = "threads",
         .kind = OPTION_NUMBER,
         .target = &c.threads,
         .value = "N",
         .max = 1024,
         .help = "threads (default 0: as many as the process may use)"},
        {.name = "dry-run",
         .kind = OPTION_SWITCH,
         .target = &c.dry_run,
         .help = "only print what each type would become; DST may be omitted"},
        {.name = "json",
         .kind = OPTION_SWITCH,
         .target = &c.json,
         .help = "print JSON, with every tensor"}};
    const struct options options = {
        .usage = "quantize SRC DST --type TYPE",
        .summary =
            "Converts a model (GGUF file or Hugging Face folder) to a GGUF file with weights "
            "of another\ntype, and prints the root-mean-square error of each type against the "
            "source.",
        .options = own,
        .n_options = sizeof own / sizeof own[0],
        .args = c.args,
        .min_args = 1,
        .max_args = 2};
    int status = EXIT_USAGE, rc = options_parse(&options, argc, argv, &c.n_args, e);
    if (rc)
        status = options_exit(rc);
    else if (!c.type || (c.n_args < 2 && !c.dry_run))
        err_set(e, ERR_INVALID, "usage: inferd %s", options.usage);
    else
        status = run_quantize(&c, e) ? 1 : 0;
    str_fini(&types);
    return status;
}
