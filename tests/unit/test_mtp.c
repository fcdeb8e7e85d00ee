/* test_mtp.c - tensors of layers that predict further tokens (MTP), in a GGUF file and in a folder:
 * a model with them has the logits and takes the memory of the same model without them, and the log
 * names them. Each model is opened in a process of its own, which reports what that took. */
#include "tests/support/files.h" /* first: arch_make.h has a global named path */

#include "core/base/log.h"
#include "core/formats/hf/safetensors.h"
#include "tests/support/arch_make.h"

#include <sys/mman.h>
#include <sys/wait.h>

enum {
    N_TOKENS = 33,
    MAX_VOCAB = 512,
    BIG_ROWS = 40000, /* of a tensor of MTP, of 36 or 40 columns: longer than all others */
    EDGES = 1 << 20   /* bytes of heap, pages and buffers that may differ */
};

/* What a process reports. */
struct report {
    bool done;
    uint64_t resident, allocated; /* bytes: how the process grew, of the device */
    struct model_memory memory;
    uint32_t n_vocab;
    float logits[N_TOKENS * MAX_VOCAB];
    char log[4096];
};

static void take_line(void *arg, enum log_level level, const char *line) {
    struct report *r = arg;
    const size_t used = strlen(r->log);
    (void)level;
    snprintf(r->log + used, sizeof r->log - used, "%s\n", line);
}

/* Pages of the process in memory. */
static uint64_t resident_bytes(void) {
    unsigned long long size = 0, resident = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (f && fscanf(f, "%llu %llu", &size, &resident) != 2) resident = 0;
    if (f) fclose(f);
    return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void run_model(const char *file, struct report *r) {
    struct runner run;
    int32_t tokens[N_TOKENS];
    log_set_sink(take_line, r, LOG_LEVEL_INFO);
    const uint64_t before = resident_bytes();
    runner_open(&run, &(struct runner_config){.path = file,
                                              .n_threads = 2,
                                              .kv_type = QTYPE_F32,
                                              .max_rows = N_TOKENS,
                                              .max_tokens = 64});
    r->resident = resident_bytes() - before;
    r->allocated = backend_allocated_bytes(run.be);
    const struct model_limits limits = {.max_rows = N_TOKENS,
                                        .max_logit_rows = N_TOKENS,
                                        .max_seqs = 1,
                                        .table_stride = 4,
                                        .n_ctx = 64};
    err e = {0};
    runner_need(model_memory_find(file, run.be, &limits, &r->memory, &e), &e);
    r->n_vocab = run.hp.n_vocab;
    be_need(r->n_vocab <= MAX_VOCAB, "room for logits");
    for (uint32_t i = 0; i < N_TOKENS; i++)
        tokens[i] = (int32_t)(7 * i % r->n_vocab);
    struct piece p = {.tokens = tokens, .n = N_TOKENS};
    memcpy(r->logits, runner_step(&run, &p, 1, true),
           (size_t)N_TOKENS * r->n_vocab * sizeof *r->logits);
    runner_close(&run);
    r->done = true;
}

static struct report *report_on(const char *file) {
    struct report *r =
        mmap(NULL, sizeof *r, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    be_need(r != MAP_FAILED, "shared memory");
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        run_model(file, r);
        _exit(0);
    }
    int status = -1;
    be_need(child > 0 && waitpid(child, &status, 0) == child, "a process");
    CHECK_MSG(status == 0 && r->done, "%s: exit status %d", file, status);
    return r;
}

/* MiB of the file that the device reads there, by the log; 0: it has its own copies. */
static double in_place(const struct report *r) {
    const char *end = strstr(r->log, " MiB of weights read in place"), *at = end;
    while (at && at > r->log && at[-1] != ' ')
        at--;
    return at ? strtod(at, NULL) : 0;
}

/* Both models give and take the same; says: the log line of the one with MTP. */
static void compare(const char *with_file, const char *without_file, const char *says) {
    struct report *with = report_on(with_file), *without = report_on(without_file);
    CHECK(with->n_vocab && with->n_vocab == without->n_vocab);
    CHECK(memcmp(with->logits, without->logits, sizeof with->logits) == 0);
    CHECK(with->memory.weights == without->memory.weights &&
          with->memory.steps == without->memory.steps);
    CHECK_MSG(strstr(with->log, says), "no \"%s\" in: %s", says, with->log);
    CHECK_MSG(!strstr(without->log, "further tokens"), "%s", without->log);
    printf("     resident: %.2f MiB with MTP, %.2f without; allocated by the device: %.2f, %.2f; "
           "read in place: %.1f, %.1f\n",
           (double)with->resident / (1 << 20), (double)without->resident / (1 << 20),
           (double)with->allocated / (1 << 20), (double)without->allocated / (1 << 20),
           in_place(with), in_place(without));
    CHECK(with->allocated <= without->allocated + EDGES);
    CHECK(in_place(with) <= in_place(without) + 0.25);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    CHECK(with->resident <= without->resident + EDGES);
#endif
    munmap(with, sizeof *with);
    munmap(without, sizeof *without);
}

/* ---- a file ---- */

static void make_file(const char *name, bool with) {
    struct maker m;
    be_rng.state = 41;
    make_qwen35(&m);
    if (with) {
        const uint64_t before = be_rng.state;
        m.n_predicting = 1;
        set_u32(&m, "nextn_predict_layers", 1);
        add_matrix(&m, (int)m.f.n_layers, "nextn.embed_tokens.weight", BIG_ROWS, m.f.n_embd);
        be_rng.state = before; /* the same values in the others */
    }
    finish(&m);
    be_need(rename(path, name) == 0, name);
}

static void test_file(void) {
    char with[64], without[64];
    snprintf(with, sizeof with, "%s.mtp", path);
    snprintf(without, sizeof without, "%s.none", path);
    make_file(with, true);
    make_file(without, false);
    compare(with, without, "tensors blk.5.* of layers that predict further tokens are not loaded");
    unlink(with), unlink(without);
}

/* ---- a folder ---- */

static const char golden[] = "tests/golden/arch/qwen35/hf";

/* A tensor's entry in a header, behind `used` bytes of data; returns its length. */
static size_t put_entry(char *to, size_t room, const struct safetensor *t, uint64_t used) {
    char *at = to, *end = to + room;
    at += snprintf(at, room, ",\"%.*s\":{\"dtype\":\"%s\",\"shape\":[", (int)t->name.len,
                   t->name.data, t->type_name);
    for (uint32_t d = 0; d < t->n_dims; d++)
        at += snprintf(at, (size_t)(end - at), "%s%llu", d ? "," : "",
                       (unsigned long long)t->dims[d]);
    at += snprintf(at, (size_t)(end - at), "],\"data_offsets\":[%llu,%llu]}",
                   (unsigned long long)used, (unsigned long long)(used + t->bytes));
    return (size_t)(at - to);
}

/* The golden folder's tensors without those of MTP, or with one more among them. */
static void write_tensors(const char *folder, bool with) {
    static char header[1 << 16] = "        {\"__metadata__\":{\"format\":\"pt\"}";
    char file[256];
    safetensors *s;
    err e = {0};
    snprintf(file, sizeof file, "%s/model.safetensors", golden);
    runner_need(safetensors_open(file, &s, &e), &e);
    float *zeros = be_new((uint64_t)BIG_ROWS * 40, sizeof *zeros);
    const struct safetensor big = {.name = {"mtp.embed_tokens.weight", 23},
                                   .type_name = "F32",
                                   .n_dims = 2,
                                   .dims = {BIG_ROWS, 40},
                                   .data = (const uint8_t *)zeros,
                                   .bytes = (uint64_t)BIG_ROWS * 40 * sizeof *zeros};
    const uint64_t n = safetensors_n(s);
    const struct safetensor **all = be_new(n + 1, sizeof *all);
    uint64_t n_kept = 0, used = 0;
    for (uint64_t i = 0; i < n; i++) {
        const struct safetensor *t = safetensors_at(s, i);
        if (with && i == n / 2) all[n_kept++] = &big;
        if (with || memcmp(t->name.data, "mtp.", 4) != 0) all[n_kept++] = t;
    }
    size_t at = strlen(header);
    for (uint64_t i = 0; i < n_kept; used += all[i++]->bytes)
        at += put_entry(header + at, sizeof header - at, all[i], used);
    be_need(at + 9 < sizeof header, "room for the header");
    header[at++] = '}';
    while (at % 8)
        header[at++] = ' ';
    const uint64_t length = at - 8;
    memcpy(header, &length, 8);
    snprintf(file, sizeof file, "%s/model.safetensors", folder);
    FILE *f = fopen(file, "wb");
    be_need(f && fwrite(header, 1, at, f) == at, file);
    for (uint64_t i = 0; i < n_kept; i++)
        be_need(fwrite(all[i]->data, 1, all[i]->bytes, f) == all[i]->bytes, file);
    be_need(fclose(f) == 0, file);
    strcpy(header, "        {\"__metadata__\":{\"format\":\"pt\"}");
    free(zeros), free(all);
    safetensors_close(s);
}

static const char *const others[] = {"config.json", "tokenizer.json", "tokenizer_config.json"};

static void make_folder(char *folder, bool with) {
    be_need(mkdtemp(folder) != NULL, folder);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        char from[256];
        snprintf(from, sizeof from, "%s/%s", golden, others[i]);
        char *text = file_read(from, NULL);
        be_need(text && file_write(folder, others[i], text), others[i]);
        free(text);
    }
    write_tensors(folder, with);
}

static void remove_folder(const char *folder) {
    char file[256];
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        snprintf(file, sizeof file, "%s/%s", folder, others[i]);
        unlink(file);
    }
    snprintf(file, sizeof file, "%s/model.safetensors", folder);
    unlink(file);
    rmdir(folder);
}

static void test_folder(void) {
    char with[] = "/tmp/inferd-mtp-XXXXXX", without[] = "/tmp/inferd-mtp-XXXXXX";
    make_folder(with, true);
    make_folder(without, false);
    compare(with, without, "16 tensors of layers that predict further tokens");
    remove_folder(with), remove_folder(without);
}

int main(int argc, char **argv) {
    be_args(argc, argv);
    int fd = mkstemp(path);
    be_need(fd >= 0, "a file");
    close(fd);
    if (!be_quick || !be_only || !be_is_device_set(be_only)) RUN(test_file);
    RUN(test_folder);
    unlink(path);
    return check_done();
}
