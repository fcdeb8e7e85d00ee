/* test_safetensors.c - the reader of one .safetensors file: its lists, and all kinds of invalid
 * headers. */
#include "core/formats/hf/safetensors.h"
#include "tests/unit/check.h"

#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

/* A file in memory: a header and n_data bytes 0, 1, 2 ... after it. */
struct file {
    uint8_t *bytes;
    uint64_t n;
};

static struct file make_file(const char *header, uint64_t n_data) {
    uint64_t n = strlen(header);
    struct file f = {malloc(8 + n + n_data), 8 + n + n_data};
    if (!f.bytes) abort();
    memcpy(f.bytes, &n, 8);
    memcpy(f.bytes + 8, header, n);
    for (uint64_t i = 0; i < n_data; i++)
        f.bytes[8 + n + i] = (uint8_t)i;
    return f;
}

static int open_header(const char *header, uint64_t n_data, safetensors **out, struct file *f,
                       err *e) {
    *f = make_file(header, n_data);
    return safetensors_open_memory(f->bytes, f->n, "test", out, e);
}

static gguf_str str_of(const char *s) {
    gguf_str v = {s, strlen(s)};
    return v;
}

static void tensors_are_listed(void) {
    static const char header[] =
        " {\"__metadata__\":{\"format\":\"pt\",\"a\\\"\":\"\\u00e9\"},"
        "\"b.weight\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[4,16]},"
        "\"a\":{\"shape\":[],\"data_offsets\":[0,4],\"dtype\":\"F32\",\"extra\":[1,{\"x\":null}]},"
        "\"empty\":{\"dtype\":\"F32\",\"shape\":[0,7],\"data_offsets\":[4,4]},"
        "\"q\":{\"dtype\":\"U8\",\"shape\":[1,1,1,3],\"data_offsets\":[16,19]},"
        "\"n\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[19,27]},"
        "\"o\":{\"dtype\":\"U64\",\"shape\":[0],\"data_offsets\":[27,27]}}  ";
    struct file f;
    safetensors *s = NULL;
    err e = {0};
    CHECK_MSG(open_header(header, 30, &s, &f, &e) == 0, "%s", e.msg);
    if (s) {
        CHECK(safetensors_n(s) == 6 && safetensors_bytes(s) == f.n);
        const struct safetensor *t = safetensors_at(s, 0);
        CHECK(t->type == ST_BF16 && t->n_dims == 2 && t->dims[0] == 2 && t->dims[1] == 3);
        CHECK(t->n_elems == 6 && t->bytes == 12 && t->data[0] == 4 && t->data[11] == 15);
        CHECK(safetensors_find(s, str_of("b.weight")) == t);
        t = safetensors_find(s, str_of("a"));
        CHECK(t && t->type == ST_F32 && t->n_dims == 0 && t->n_elems == 1 && t->bytes == 4);
        t = safetensors_find(s, str_of("empty"));
        CHECK(t && t->n_elems == 0 && t->bytes == 0);
        t = safetensors_find(s, str_of("q"));
        CHECK(t && t->type == ST_U8 && t->n_dims == 4 && t->bytes == 3);
        t = safetensors_find(s, str_of("n"));
        CHECK(t && t->type == ST_I64 && t->n_elems == 1 && t->bytes == 8);
        t = safetensors_find(s, str_of("o"));
        CHECK(t && t->type == ST_OTHER && strcmp(t->type_name, "U64") == 0);
        CHECK(!safetensors_find(s, str_of("b")) && !safetensors_at(s, 6));
    }
    safetensors_close(s);
    free(f.bytes);
}

/* One tensor "x" with the given members, over 16 bytes of data. */
struct bad {
    const char *header, *says;
    int code;
};

static const struct bad bads[] = {
    {"{\"x\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[4,20]}}",
     "not a range of the 16 bytes", ERR_FORMAT},
    {"{\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[8,4]}}",
     "not a range of the 16 bytes", ERR_FORMAT},
    {"{\"x\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,16]}}",
     "expected those of 3 elements", ERR_FORMAT},
    {"{\"x\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}",
     "too many elements", ERR_FORMAT},
    {"{\"x\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904],\"data_offsets\":[0,0]}}",
     "expected those of", ERR_FORMAT},
    {"{\"x\":{\"dtype\":\"F32\",\"shape\":[18446744073709551616],\"data_offsets\":[0,0]}}",
     "a dimension", ERR_FORMAT},
    {"{\"x\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", "a dimension",
     ERR_FORMAT},
    {"{\"x\":{\"dtype\":\"F32\",\"shape\":[1.0],\"data_offsets\":[0,4]}}", "a dimension",
     ERR_FORMAT},
    {"{\"x\":{\"dtype\":\"F32\",\"shape\":[1e0],\"data_offsets\":[0,4]}}", "a dimension",
     ERR_FORMAT},
    {"{\"x\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]}}",
     "more than 8", ERR_FORMAT},
    {"{\"x\":{\"dtype\":\"Q9\",\"shape\":[4],\"data_offsets\":[0,16]}}", "dtype 'Q9'",
     ERR_UNSUPPORTED},
    {"{\"x\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,1]}}", "expected those of",
     ERR_FORMAT},
    {"{\"x\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0]}}", "two offsets", ERR_FORMAT},
    {"{\"x\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16,16]}}", "two offsets",
     ERR_FORMAT},
    {"{\"x\":{\"dtype\":\"F32\",\"shape\":[4]}}", "dtype, shape and data_offsets", ERR_FORMAT},
    {"{\"x\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}",
     "each member once", ERR_FORMAT},
    {"{\"x\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
     "\"y\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]}}",
     "overlap", ERR_FORMAT},
    {"{\"x\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
     "\"x\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,16]}}",
     "the same name", ERR_FORMAT},
    {"{\"\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}", "a name has 0 bytes",
     ERR_FORMAT},
    {"{\"x\\u0041\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}", "without escapes",
     ERR_FORMAT},
    {"{\"x\":7}", "an object", ERR_FORMAT},
    {"[]", "an object", ERR_FORMAT},
    {"", "an object", ERR_FORMAT},
    {"{\"x\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}} {}", "header's end",
     ERR_FORMAT},
    {"{\"x\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}", "an object", ERR_FORMAT},
    {"{\"__metadata__\":{\"a\":[}}", "metadata", ERR_FORMAT},
};

static void lies_are_refused(void) {
    for (size_t i = 0; i < sizeof bads / sizeof bads[0]; i++) {
        struct file f;
        safetensors *s = NULL;
        err e = {0};
        int rc = open_header(bads[i].header, 16, &s, &f, &e);
        CHECK_MSG(rc == bads[i].code && !s, "%s: %d, %s", bads[i].header, rc, e.msg);
        CHECK_MSG(strstr(e.msg, bads[i].says) && strstr(e.msg, "test: offset "), "%s: %s",
                  bads[i].header, e.msg);
        safetensors_close(s);
        free(f.bytes);
    }
}

static void every_cut_is_refused(void) {
    static const char header[] =
        "{\"x\":{\"dtype\":\"F16\",\"shape\":[2,4],\"data_offsets\":[0,16]}}";
    struct file f = make_file(header, 16);
    for (uint64_t n = 0; n < f.n; n++) {
        safetensors *s = NULL;
        err e = {0};
        uint8_t *copy = malloc(n ? n : 1); /* so that a sanitizer detects a read beyond it */
        if (!copy) abort();
        memcpy(copy, f.bytes, n);
        int rc = safetensors_open_memory(copy, n, "test", &s, &e);
        CHECK_MSG(rc == ERR_FORMAT && !s, "%d bytes: %d", (int)n, rc);
        free(copy);
    }
    uint64_t lengths[] = {UINT64_MAX, UINT64_MAX - 7, f.n - 7, SAFETENSORS_HEADER_MAX_BYTES + 1};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        safetensors *s = NULL;
        err e = {0};
        memcpy(f.bytes, &lengths[i], 8);
        CHECK(safetensors_open_memory(f.bytes, f.n, "test", &s, &e) == ERR_FORMAT && !s);
    }
    free(f.bytes);
}

/* As many tensors as the largest models have: a header of several megabytes. */
static void large_headers_are_read(void) {
    enum { N = 60000 };
    size_t room = (size_t)N * 128, used = 1;
    char *header = malloc(room);
    if (!header) abort();
    header[0] = '{';
    for (uint64_t i = 0; i < N; i++)
        used +=
            (size_t)snprintf(header + used, room - used,
                             "%s\"model.layers.%d.mlp.experts.%d.w.weight\":{\"dtype\":\"U8\","
                             "\"shape\":[1,1],\"data_offsets\":[%d,%d]}",
                             i ? "," : "", (int)(i / 1000), (int)(i % 1000), (int)i, (int)i + 1);
    snprintf(header + used, room - used, "}");
    struct file f;
    safetensors *s = NULL;
    err e = {0};
    CHECK_MSG(open_header(header, N, &s, &f, &e) == 0, "%s", e.msg);
    CHECK(s && safetensors_n(s) == N);
    const struct safetensor *t =
        s ? safetensors_find(s, str_of("model.layers.59.mlp.experts.999.w.weight")) : NULL;
    CHECK(t && t->data[0] == (uint8_t)(N - 1));
    safetensors_close(s);
    free(f.bytes);
    free(header);
}

static void files_are_mapped(void) {
    char path[] = "/tmp/inferd-safetensors-XXXXXX";
    int fd = mkstemp(path);
    static const char header[] =
        "{\"x\":{\"dtype\":\"F16\",\"shape\":[8],\"data_offsets\":[0,16]}}";
    struct file f = make_file(header, 16);
    safetensors *s = NULL;
    err e = {0};
    CHECK(fd >= 0 && write(fd, f.bytes, f.n) == (ssize_t)f.n);
    close(fd);
    CHECK_MSG(safetensors_open(path, &s, &e) == 0, "%s", e.msg);
    if (s) {
        safetensors_drop_pages(s);
        CHECK(safetensors_at(s, 0)->data[15] == 15);
        CHECK_STR(safetensors_path(s), path);
    }
    safetensors_close(s);
    CHECK(truncate(path, 0) == 0 && safetensors_open(path, &s, &e) == ERR_FORMAT && !s);
    unlink(path);
    CHECK(safetensors_open(path, &s, &e) == ERR_IO && !s);
    CHECK(safetensors_open("/tmp", &s, &e) == ERR_IO && !s);
    free(f.bytes);
}

int main(void) {
    RUN(tensors_are_listed);
    RUN(lies_are_refused);
    RUN(every_cut_is_refused);
    RUN(large_headers_are_read);
    RUN(files_are_mapped);
    return check_done();
}
