/* test_gguf_split.c - models in parts: a golden model in three parts equals the original, and a
 * mismatch is refused with the part's name. */
#include "core/formats/gguf/gguf_int.h"
#include "core/formats/model_file.h"
#include "core/formats/quantize/quantize.h"
#include "core/tokenizer/tokenizer.h"
#include "tests/support/gguf_make.h"
#include "tests/unit/check.h"

#include <stdlib.h>
#include <unistd.h>

static const char golden[] = "tests/golden/arch/qwen3/model.gguf";
static char folder[] = "/tmp/inferd-split-XXXXXX";

static const char *path_of(int no, int count, char path[128]) {
    snprintf(path, 128, "%s/m-%05d-of-%05d.gguf", folder, no + 1, count);
    return path;
}

/* Three parts: no tensors, some, the rest. */
static bool write_parts(const gguf *src) {
    uint64_t n = gguf_n_tensors(src), ends[] = {0, 0, n / 3, n};
    char path[128];
    err e = {0};
    for (int i = 0; i < 3; i++) {
        struct gguf_make_part p = {(uint16_t)i, 3, (int32_t)n, ends[i], ends[i + 1]};
        if (gguf_make_part(src, path_of(i, 3, path), &p, &e)) return false;
    }
    return true;
}

/* The number of g's tensors in its i-th file; 0 and false: no such file. */
static bool tensors_in(const gguf *g, uint64_t i, uint64_t *n) {
    const void *base;
    uint64_t bytes;
    *n = 0;
    if (!gguf_file_mapping(g, i, &base, &bytes)) return false;
    CHECK((uintptr_t)base % FILE_MAP_ALIGN == 0 && bytes % FILE_MAP_ALIGN == 0);
    for (uint64_t t = 0; t < gguf_n_tensors(g); t++) {
        uint64_t at = (uint64_t)((const char *)gguf_tensor_at(g, t)->data - (const char *)base);
        *n += at < bytes && bytes - at >= gguf_tensor_at(g, t)->bytes;
    }
    return true;
}

static void each_part_has_its_mapping(void) {
    gguf *g = NULL;
    char path[128];
    err e = {0};
    CHECK_MSG(model_file_open(path_of(0, 3, path), 0, &g, &e) == 0, "%s", e.msg);
    uint64_t all = g ? gguf_n_tensors(g) : 0, n;
    CHECK(g && tensors_in(g, 0, &n) && n == 0);
    CHECK(g && tensors_in(g, 1, &n) && n == all / 3);
    CHECK(g && tensors_in(g, 2, &n) && n == all - all / 3);
    CHECK(g && !tensors_in(g, 3, &n));
    gguf_close(g);
    CHECK_MSG(gguf_open(golden, 0, &g, &e) == 0, "%s", e.msg);
    CHECK(g && tensors_in(g, 0, &n) && n == all && !tensors_in(g, 1, &n));
    gguf_close(g);
}

static void parts_are_the_whole(void) {
    gguf *src = NULL, *g = NULL;
    char path[128];
    err e = {0};
    CHECK_MSG(gguf_open(golden, 0, &src, &e) == 0, "%s", e.msg);
    if (!src) return;
    CHECK(write_parts(src));
    CHECK_MSG(model_file_open(path_of(0, 3, path), 0, &g, &e) == 0, "%s", e.msg);
    if (g) {
        CHECK(gguf_n_keys(g) == gguf_n_keys(src) && !gguf_has(g, "split.count"));
        CHECK(gguf_has(g, "general.architecture") && gguf_has(g, "tokenizer.ggml.tokens"));
        CHECK(gguf_n_tensors(g) == gguf_n_tensors(src) && gguf_mapping(g) == NULL);
        CHECK(gguf_file_bytes(g) > gguf_file_bytes(src) / 2);
        gguf_drop_pages(g);
        for (uint64_t i = 0; i < gguf_n_tensors(src); i++) {
            const gguf_tensor *a = gguf_tensor_at(src, i), *b = gguf_tensor_at(g, i);
            uint8_t *bytes = malloc(a->bytes);
            CHECK(!gguf_str_compare(a->name, b->name) && a->bytes == b->bytes && b->data);
            CHECK(bytes && gguf_tensor_read(g, b, 0, b->bytes, bytes, &e) == 0 &&
                  memcmp(bytes, a->data, a->bytes) == 0);
            CHECK(gguf_tensor_read(g, b, 1, b->bytes, bytes, &e) == ERR_INVALID);
            free(bytes);
        }
    }
    gguf_close(g);
    gguf_close(src);
}

/* Rewrites g as F16 and opens the result. */
static gguf *rewrite(const gguf *g, const char *path) {
    struct quantize_options options = {.type = "F16"};
    struct quantize_output output = {.path = path, .n_threads = 1};
    quantize_plan *plan = NULL;
    gguf *out = NULL;
    err e = {0};
    int rc = quantize_plan_new(g, &options, &plan, &e);
    if (!rc) rc = quantize_run(plan, &output, &e);
    if (!rc) rc = gguf_open(path, 0, &out, &e);
    CHECK_MSG(rc == 0, "%s: %s", path, e.msg);
    quantize_plan_free(plan);
    unlink(path);
    return out;
}

static void parts_are_quantized_as_the_whole(void) {
    gguf *src = NULL, *g = NULL;
    char path[128], one[128], two[128];
    err e = {0};
    snprintf(one, sizeof one, "%s/one.gguf", folder);
    snprintf(two, sizeof two, "%s/two.gguf", folder);
    CHECK(gguf_open(golden, 0, &src, &e) == 0 &&
          model_file_open(path_of(0, 3, path), 0, &g, &e) == 0);
    if (src && g) {
        gguf *a = rewrite(src, one), *b = rewrite(g, two);
        CHECK(a && b && gguf_file_bytes(a) == gguf_file_bytes(b) &&
              memcmp(gguf_mapping(a), gguf_mapping(b), gguf_file_bytes(a)) == 0);
        gguf_close(a);
        gguf_close(b);
    }
    gguf_close(g);
    gguf_close(src);
}

static void no_part_is_overwritten(void) {
    struct quantize_options options = {.type = "F16"};
    gguf *g = NULL;
    quantize_plan *plan = NULL;
    char path[128];
    err e = {0};
    CHECK(model_file_open(path_of(0, 3, path), 0, &g, &e) == 0);
    CHECK(g && quantize_plan_new(g, &options, &plan, &e) == 0);
    for (int i = 0; plan && i < 3; i++) {
        struct quantize_output output = {
            .path = path_of(i, 3, path), .n_threads = 1, .overwrite = true};
        CHECK_MSG(quantize_run(plan, &output, &e) == ERR_INVALID && strstr(e.msg, "is the source"),
                  "%s", e.msg);
    }
    quantize_plan_free(plan);
    gguf_close(g);
}

static void refused(const char *path, int code, const char *says) {
    gguf *g = NULL;
    err e = {0};
    int rc = model_file_open(path, 0, &g, &e);
    CHECK_MSG(rc == code && !g && strstr(e.msg, says), "%s: %d, %s", path, rc, e.msg);
    gguf_close(g);
}

static void parts_that_do_not_fit_are_refused(void) {
    gguf *src = NULL;
    char path[128], other[128], plain[128];
    err e = {0};
    CHECK(gguf_open(golden, 0, &src, &e) == 0);
    if (!src) return;
    uint64_t n = gguf_n_tensors(src);
    struct gguf_make_part third = {2, 3, (int32_t)n, n / 3 - 1, n - 1};
    refused(path_of(1, 3, path), ERR_INVALID, "m-00001-of-00003.gguf");
    tokenizer *tok = NULL;
    CHECK(tokenizer_open(path, &tok, &e) == ERR_INVALID && strstr(e.msg, "m-00001-of-00003.gguf"));
    /* the same tensors in two parts */
    CHECK(gguf_make_part(src, path_of(2, 3, path), &third, &e) == 0);
    refused(path_of(0, 3, path), ERR_FORMAT, "occurs twice");
    /* fewer tensors than declared */
    third.begin = n / 3;
    CHECK(gguf_make_part(src, path_of(2, 3, path), &third, &e) == 0);
    refused(path_of(0, 3, path), ERR_FORMAT, "split.tensors.count");
    third.no = 1, third.end = n;
    CHECK(gguf_make_part(src, path_of(2, 3, path), &third, &e) == 0);
    refused(path_of(0, 3, path), ERR_FORMAT, "its keys say part 2 of 3, expected part 3 of 3");
    CHECK(truncate(path_of(2, 3, path), 100) == 0);
    refused(path_of(0, 3, path), ERR_FORMAT, "m-00003-of-00003.gguf");
    unlink(path_of(2, 3, path));
    refused(path_of(0, 3, path), ERR_NOT_FOUND, "m-00003-of-00003.gguf: part 3 of 3 is missing");
    /* the first part under another name */
    snprintf(plain, sizeof plain, "%s/model.gguf", folder);
    CHECK(rename(path_of(0, 3, path), plain) == 0);
    refused(plain, ERR_FORMAT, "*-00001-of-00003.gguf");
    unlink(plain);
    struct gguf_make_part wrong = {.no = 3, .count = 3};
    CHECK(gguf_make_part(src, path_of(0, 3, other), &wrong, &e) == 0);
    refused(other, ERR_FORMAT, "split.no is 3 and split.count is 3");
    unlink(other);
    unlink(path_of(1, 3, path));
    CHECK(rmdir(folder) == 0);
    gguf_close(src);
}

int main(void) {
    if (!mkdtemp(folder)) return 1;
    RUN(parts_are_the_whole);
    RUN(each_part_has_its_mapping);
    RUN(parts_are_quantized_as_the_whole);
    RUN(no_part_is_overwritten);
    RUN(parts_that_do_not_fit_are_refused);
    return check_done();
}
