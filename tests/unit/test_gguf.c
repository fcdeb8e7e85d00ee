/* test_gguf.c - files built byte by byte after the GGUF specification, against the reader; then the
 * writer's output. Damaged files must be refused with the damaged field's name, never crash: run it
 * under ASan, every file lies in a block of exactly its size. */
#include "core/base/mem.h"
#include "core/formats/gguf/gguf_int.h"
#include "tests/support/gguf_make.h"
#include "tests/support/rng.h"
#include "tests/unit/check.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define SHARED "../shared/data/tokenizers/gguf/"

enum { FILE_MAX = 4096, Q8_BYTES = 34 };

struct file {
    uint8_t bytes[FILE_MAX];
    size_t n;
};

static void put(struct file *f, const void *p, size_t n) {
    memcpy(f->bytes + f->n, p, n);
    f->n += n;
}

static void put_u32(struct file *f, uint32_t v) {
    put(f, &v, sizeof v);
}

static void put_u64(struct file *f, uint64_t v) {
    put(f, &v, sizeof v);
}

static void put_str(struct file *f, const char *s) {
    put_u64(f, strlen(s));
    put(f, s, strlen(s));
}

static void put_key(struct file *f, const char *key, uint32_t type) {
    put_str(f, key);
    put_u32(f, type);
}

static void put_array(struct file *f, const char *key, uint32_t elem, uint64_t n) {
    put_key(f, key, GGUF_ARRAY);
    put_u32(f, elem);
    put_u64(f, n);
}

static void put_tensor(struct file *f, const char *name, uint32_t n_dims, const uint64_t *dims,
                       uint32_t type, uint64_t offset) {
    put_str(f, name);
    put_u32(f, n_dims);
    put(f, dims, n_dims * sizeof *dims);
    put_u32(f, type);
    put_u64(f, offset);
}

/* One defect of an otherwise valid file; 0: none. */
struct harm {
    const char *magic, *key2, *name2;
    uint32_t version, value_type, elem_type, str_elem_type, n_dims, tensor_type, alignment;
    uint64_t n_tensors, n_keys, key_len, str_len, array_n, strs_n, in_strs_len, name_len;
    uint64_t dim0, dim1, offset0, offset1;
    uint8_t bool_value;
};

#define OR(value, otherwise) ((value) ? (value) : (otherwise))

/* Nine keys and two tensors: a (4, 2) F32 at 0, b (32) Q8_0 at 32. */
static void make_file(struct file *f, const struct harm *h) {
    uint8_t one = (uint8_t)OR(h->bool_value, 1);
    uint64_t dims_a[4] = {OR(h->dim0, 4), OR(h->dim1, 2), 1, 1}, dims_b[1] = {32};
    f->n = 0;
    put(f, OR(h->magic, "GGUF"), 4);
    put_u32(f, OR(h->version, 3));
    put_u64(f, OR(h->n_tensors, 2));
    put_u64(f, OR(h->n_keys, 5));
    put_u64(f, OR(h->key_len, 5));
    put(f, "k.str", 5);
    put_u32(f, OR(h->value_type, GGUF_STRING));
    put_u64(f, OR(h->str_len, 5));
    put(f, "hello", 5);
    put_key(f, OR(h->key2, "k.bool"), GGUF_BOOL);
    put(f, &one, 1);
    put_array(f, "k.nums", OR(h->elem_type, GGUF_U16), OR(h->array_n, 3));
    put(f, "\1\0\2\0\3\0", 6);
    put_array(f, "k.strs", OR(h->str_elem_type, GGUF_STRING), OR(h->strs_n, 2));
    put_u64(f, OR(h->in_strs_len, 2));
    put(f, "ab", 2);
    put_str(f, "");
    put_key(f, "general.alignment", GGUF_U32);
    put_u32(f, OR(h->alignment, 32));
    put_u64(f, OR(h->name_len, 1));
    put(f, "a", 1);
    put_u32(f, OR(h->n_dims, 2));
    put(f, dims_a, 2 * sizeof dims_a[0]);
    put_u32(f, OR(h->tensor_type, QTYPE_F32));
    put_u64(f, h->offset0);
    put_tensor(f, OR(h->name2, "b"), 1, dims_b, QTYPE_Q8_0, OR(h->offset1, 32));
    while (f->n % 32)
        put(f, "", 1);
    for (int i = 0; i < 32 + Q8_BYTES; i++)
        put(f, &(uint8_t){(uint8_t)i}, 1);
}

/* Opens a copy that ends where the file ends. */
static int open_copy(const uint8_t *bytes, size_t n, int flags, gguf **g, void **copy, err *e) {
    *copy = malloc(n ? n : 1);
    memcpy(*copy, bytes, n);
    int rc = gguf_open_memory(*copy, n, "test.gguf", flags, g, e);
    if (rc) {
        free(*copy);
        *copy = NULL;
    }
    return rc;
}

static bool str_is(gguf_str s, const char *want) {
    return s.len == strlen(want) && memcmp(s.data, want, s.len) == 0;
}

static void a_good_file_is_read(void) {
    for (uint32_t version = 2; version <= 3; version++) {
        struct file f;
        gguf *g;
        void *copy;
        err e = {0};
        bool b = false;
        uint64_t n = 0;
        gguf_str s = {0};
        enum gguf_type elem = GGUF_F64;
        make_file(&f, &(struct harm){.version = version});
        if (open_copy(f.bytes, f.n, 0, &g, &copy, &e)) {
            CHECK_MSG(false, "%s", e.msg);
            return;
        }
        CHECK(g->version == version && gguf_file_bytes(g) == f.n && gguf_mapping(g) == copy);
        CHECK_STR(gguf_path(g), "test.gguf");
        CHECK(gguf_get_str(g, "k.str", &s, &e) == 0 && str_is(s, "hello"));
        CHECK(gguf_get_bool(g, "k.bool", &b, &e) == 0 && b);
        CHECK(gguf_get_array(g, "k.nums", &elem, &n, &e) == 0 && elem == GGUF_U16 && n == 3);
        CHECK(gguf_array_i64(g, "k.nums", 2) == 3 && gguf_array_f64(g, "k.nums", 1) == 2);
        CHECK(gguf_array_i64(g, "k.nums", 3) == 0 && gguf_array_i64(g, "k.strs", 0) == 0);
        CHECK(str_is(gguf_array_str(g, "k.strs", 0), "ab"));
        CHECK(str_is(gguf_array_str(g, "k.strs", 1), ""));
        CHECK(gguf_array_str(g, "k.strs", 2).len == 0 && gguf_array_str(g, "k.nums", 0).len == 0);
        CHECK(gguf_array_str(g, "none", 0).len == 0 && gguf_has(g, "k.str") && !gguf_has(g, "k."));
        CHECK(gguf_n_tensors(g) == 2 && !gguf_tensor_at(g, 2) && !gguf_tensor_find(g, "c"));
        const gguf_tensor *a = gguf_tensor_find(g, "a"), *q = gguf_tensor_at(g, 1);
        CHECK(a && a == gguf_tensor_at(g, 0) && a->type == QTYPE_F32 && a->n_dims == 2);
        CHECK(a && a->dims[0] == 4 && a->dims[1] == 2 && a->dims[2] == 1 && a->dims[3] == 1);
        CHECK(a && a->n_elems == 8 && a->bytes == 32 && *(const uint8_t *)a->data == 0);
        CHECK(str_is(q->name, "b") && q->type == QTYPE_Q8_0 && q->bytes == Q8_BYTES);
        CHECK(*(const uint8_t *)q->data == 32 && q->n_dims == 1 && q->n_elems == 32);
        gguf_close(g);
        free(copy);
    }
}

static void every_number_type_is_read(void) {
    struct file f = {.n = 0};
    gguf *g;
    void *copy;
    err e = {0};
    put(&f, "GGUF", 4);
    put_u32(&f, 3);
    put_u64(&f, 0);
    put_u64(&f, 12);
    put_key(&f, "u8", GGUF_U8), put(&f, &(uint8_t){200}, 1);
    put_key(&f, "i8", GGUF_I8), put(&f, &(int8_t){-100}, 1);
    put_key(&f, "u16", GGUF_U16), put(&f, &(uint16_t){60000}, 2);
    put_key(&f, "i16", GGUF_I16), put(&f, &(int16_t){-30000}, 2);
    put_key(&f, "u32", GGUF_U32), put(&f, &(uint32_t){4000000000}, 4);
    put_key(&f, "i32", GGUF_I32), put(&f, &(int32_t){-2000000000}, 4);
    put_key(&f, "u64", GGUF_U64), put(&f, &(uint64_t){UINT64_MAX}, 8);
    put_key(&f, "i64", GGUF_I64), put(&f, &(int64_t){INT64_MIN}, 8);
    put_key(&f, "f32", GGUF_F32), put(&f, &(float){1.5f}, 4);
    put_key(&f, "f64", GGUF_F64), put(&f, &(double){-2.25}, 8);
    put_key(&f, "no", GGUF_BOOL), put(&f, &(uint8_t){0}, 1);
    put_array(&f, "bools", GGUF_BOOL, 2), put(&f, "\1\0", 2);
    if (open_copy(f.bytes, f.n, 0, &g, &copy, &e)) {
        CHECK_MSG(false, "%s", e.msg);
        return;
    }
    static const struct {
        const char *key;
        bool as_u64;
        uint64_t u;
    } want[] = {
        {"u8", true, 200},         {"i8", false, 0},  {"u16", true, 60000},      {"i16", false, 0},
        {"u32", true, 4000000000}, {"i32", false, 0}, {"u64", true, UINT64_MAX}, {"i64", false, 0},
        {"f32", false, 0},         {"no", false, 0},  {"bools", false, 0},
    };
    for (size_t k = 0; k < sizeof want / sizeof want[0]; k++) {
        uint64_t u = 0;
        int rc = gguf_get_u64(g, want[k].key, &u, &e);
        CHECK_MSG(rc == (want[k].as_u64 ? 0 : ERR_FORMAT) && u == want[k].u, "%s", want[k].key);
    }
    double d = 0;
    bool b = true;
    gguf_str s;
    CHECK(gguf_get_f64(g, "f32", &d, &e) == 0 && d == 1.5);
    CHECK(gguf_get_f64(g, "f64", &d, &e) == 0 && d == -2.25);
    CHECK(gguf_get_f64(g, "u8", &d, &e) == ERR_FORMAT && strstr(e.msg, "'u8'"));
    CHECK(gguf_get_bool(g, "no", &b, &e) == 0 && !b);
    CHECK(gguf_get_bool(g, "u8", &b, &e) == ERR_FORMAT);
    CHECK(gguf_get_str(g, "nothing", &s, &e) == ERR_NOT_FOUND && strstr(e.msg, "'nothing'"));
    CHECK(gguf_array_i64(g, "bools", 0) == 1 && gguf_array_i64(g, "bools", 1) == 0);
    CHECK(gguf_array_i64(g, "u8", 0) == 0);
    gguf_close(g);
    free(copy);
}

static void every_prefix_is_refused(void) {
    struct file f;
    make_file(&f, &(struct harm){0});
    for (size_t n = 0; n < f.n; n++) {
        gguf *g = NULL;
        void *copy;
        err e = {0};
        int rc = open_copy(f.bytes, n, 0, &g, &copy, &e);
        CHECK_MSG(rc == ERR_FORMAT && !g, "%zu bytes: %d", n, rc);
        CHECK_MSG(strstr(e.msg, "test.gguf: offset "), "%s", e.msg);
        gguf_close(g);
        free(copy);
    }
}

/* Reads all of an accepted file, under ASan. */
static uint64_t read_all(const gguf *g) {
    uint64_t sum = 0;
    for (uint64_t i = 0; i < gguf_n_tensors(g); i++) {
        const gguf_tensor *t = gguf_tensor_at(g, i);
        for (uint64_t k = 0; t->data && k < t->bytes; k++)
            sum += ((const uint8_t *)t->data)[k];
    }
    for (uint64_t i = 0; i < 2; i++)
        sum += gguf_array_str(g, "k.strs", i).len + (uint64_t)gguf_array_i64(g, "k.nums", i);
    return sum;
}

static void try_damaged(const struct file *f, int *n_refused) {
    for (int flags = 0; flags <= GGUF_OPEN_VOCAB_ONLY; flags++) {
        gguf *g = NULL;
        void *copy;
        err e = {0};
        int rc = open_copy(f->bytes, f->n, flags, &g, &copy, &e);
        CHECK(rc == 0 || rc == ERR_FORMAT || rc == ERR_UNSUPPORTED);
        CHECK((rc == 0) == (g != NULL));
        if (g) read_all(g);
        *n_refused += rc != 0;
        gguf_close(g);
        free(copy);
    }
}

static void flipped_bits_are_survived(void) {
    struct file good, f;
    struct rng random = {1};
    int n_refused = 0;
    make_file(&good, &(struct harm){0});
    for (size_t bit = 0; bit < good.n * 8; bit++) {
        f = good;
        f.bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        try_damaged(&f, &n_refused);
    }
    for (int round = 0; round < 5000; round++) {
        f = good;
        for (int k = 0; k < 4; k++) {
            uint32_t at = rng_below(&random, (uint32_t)good.n);
            f.bytes[at] = (uint8_t)rng_next(&random);
        }
        try_damaged(&f, &n_refused);
    }
    CHECK(n_refused > 5000);
}

static void harm_is_named(void) {
    static const struct {
        const char *what; /* part of the message */
        int code;
        struct harm harm;
    } cases[] = {
        {"offset 0: magic: not a GGUF", ERR_FORMAT, {.magic = "GGML"}},
        {"offset 4: version: GGUF version 1", ERR_UNSUPPORTED, {.version = 1}},
        {"offset 4: version: GGUF version 4", ERR_UNSUPPORTED, {.version = 4}},
        {"offset 4: version: big-endian", ERR_UNSUPPORTED, {.version = 0x03000000}},
        {"offset 8: tensor count: 18446744073709551615", ERR_FORMAT, {.n_tensors = UINT64_MAX}},
        {"offset 8: tensor count: 1000", ERR_FORMAT, {.n_tensors = 1000}},
        {"offset 16: key count: 9223372036854775808", ERR_FORMAT, {.n_keys = 1ull << 63}},
        {"offset 16: key count: 1000", ERR_FORMAT, {.n_keys = 1000}},
        {"offset 24: key 0: length is 65536", ERR_FORMAT, {.key_len = 65536}},
        {"offset 24: key 0: length is 18446744073709551615", ERR_FORMAT, {.key_len = UINT64_MAX}},
        {"key 'k.str': unknown value type 13", ERR_FORMAT, {.value_type = 13}},
        {"key 'k.str': length is 18446744073709551608", ERR_FORMAT, {.str_len = UINT64_MAX - 7}},
        {"key 'k.bool': bool is 2", ERR_FORMAT, {.bool_value = 2}},
        {"key: 'k.str' occurs twice", ERR_FORMAT, {.key2 = "k.str"}},
        {"key 'k.nums': arrays of arrays", ERR_UNSUPPORTED, {.elem_type = GGUF_ARRAY}},
        {"key 'k.nums': array of unknown type 99", ERR_FORMAT, {.elem_type = 99}},
        {"key 'k.nums': 9223372036854775809 elements of u16",
         ERR_FORMAT,
         {.array_n = (1ull << 63) + 1}},
        {"key 'k.strs': 2305843009213693952 strings", ERR_FORMAT, {.strs_n = 1ull << 61}},
        {"key 'k.strs': length is 4294967296", ERR_FORMAT, {.in_strs_len = 1ull << 32}},
        {"general.alignment: 24 is not a power of two from 8 to 1048576",
         ERR_FORMAT,
         {.alignment = 24}},
        {"general.alignment: 4 is not a power of two from 8 to", ERR_FORMAT, {.alignment = 4}},
        {"general.alignment: 2147483648", ERR_FORMAT, {.alignment = 1u << 31}},
        {"tensor 0: length is 70000", ERR_FORMAT, {.name_len = 70000}},
        {"tensor 'a': 5 dimensions", ERR_FORMAT, {.n_dims = 5}},
        {"tensor 'a': dimension 1 is 4611686018427387904", ERR_FORMAT, {.dim1 = 1ull << 62}},
        {"tensor 'a': dimension 0 is 18446744073709551615", ERR_FORMAT, {.dim0 = UINT64_MAX}},
        {"tensor 'a': 9223372036854775800 bytes of data",
         ERR_FORMAT,
         {.dim0 = 1152921504606846975}},
        {"tensor 'a': 80 bytes of data at data offset 0 exceed",
         ERR_FORMAT,
         {.dim0 = 20, .dim1 = 1}},
        {"tensor 'a': tensor type 15 is not supported", ERR_UNSUPPORTED, {.tensor_type = 15}},
        {"tensor 'a': tensor type 60 is not supported", ERR_UNSUPPORTED, {.tensor_type = 60}},
        {"tensor 'a': tensor type 4294967295", ERR_UNSUPPORTED, {.tensor_type = UINT32_MAX}},
        {"tensor 'a': rows of 4 elements do not fit type Q8_0",
         ERR_FORMAT,
         {.tensor_type = QTYPE_Q8_0}},
        {"tensor 'b': data offset 36 is not a multiple of the alignment 32",
         ERR_FORMAT,
         {.offset1 = 36}},
        {"tensor 'b': 34 bytes of data at data offset 64", ERR_FORMAT, {.offset1 = 64}},
        {"tensor 'b': 34 bytes of data at data offset 18446744073709551584",
         ERR_FORMAT,
         {.offset1 = UINT64_MAX - 31}},
        {"tensor 'b': its data overlaps that of 'a'", ERR_FORMAT, {.dim0 = 5}},
        {"tensor: 'a' occurs twice", ERR_FORMAT, {.name2 = "a"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct file f;
        gguf *g = NULL;
        void *copy;
        err e = {0};
        make_file(&f, &cases[i].harm);
        int rc = open_copy(f.bytes, f.n, 0, &g, &copy, &e);
        CHECK_MSG(rc == cases[i].code && strstr(e.msg, cases[i].what), "want \"%s\", got %d \"%s\"",
                  cases[i].what, rc, e.msg);
        gguf_close(g);
        free(copy);
    }
}

static void a_vocabulary_may_have_tensors_of_any_type(void) {
    struct file f;
    gguf *g;
    void *copy;
    err e = {0};
    make_file(&f, &(struct harm){.tensor_type = 15});
    if (open_copy(f.bytes, f.n, GGUF_OPEN_VOCAB_ONLY, &g, &copy, &e)) {
        CHECK_MSG(false, "%s", e.msg);
        return;
    }
    const gguf_tensor *t = gguf_tensor_find(g, "a");
    CHECK(t && t->type == 15 && t->n_elems == 8 && !t->data && t->bytes == 0);
    gguf_close(g);
    free(copy);
}

static void long_paths_and_odd_names_are_shown(void) {
    struct file f;
    gguf *g = NULL;
    err e = {0};
    char path[1000];
    memset(path, 'p', sizeof path - 1);
    path[sizeof path - 1] = '\0';
    make_file(&f, &(struct harm){.name2 = "a\n\x1b[31m\xff"});
    CHECK(gguf_open_memory(f.bytes, f.n - 20, path, 0, &g, &e) == ERR_FORMAT);
    CHECK(strncmp(e.msg, "...ppp", 6) == 0 && strstr(e.msg, ": offset "));
    CHECK_MSG(strstr(e.msg, "'a??[31m?'"), "%s", e.msg);
}

/* A new folder below /tmp; removed at the end. */
static char folder[64];

static const char *in_folder(const char *name) {
    static char paths[4][160];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static void places_that_are_no_file_are_refused(void) {
    gguf *g = NULL;
    err e = {0};
    const char *fifo = in_folder("fifo"), *empty = in_folder("empty");
    CHECK(gguf_open(in_folder("none"), 0, &g, &e) == ERR_IO && strstr(e.msg, "none"));
    CHECK(gguf_open(folder, 0, &g, &e) == ERR_IO && !g);
    CHECK(mkfifo(fifo, 0600) == 0 && gguf_open(fifo, 0, &g, &e) == ERR_IO && !g);
    FILE *f = fopen(empty, "wb");
    CHECK(f && fclose(f) == 0 && gguf_open(empty, 0, &g, &e) == ERR_FORMAT && !g);
    CHECK_MSG(strstr(e.msg, "offset 0: magic"), "%s", e.msg);
}

static size_t read_file(const char *path, uint8_t **bytes) {
    struct stat st;
    FILE *f = fopen(path, "rb");
    *bytes = NULL;
    if (!f || fstat(fileno(f), &st)) return 0;
    *bytes = malloc((size_t)st.st_size);
    size_t n = fread(*bytes, 1, (size_t)st.st_size, f);
    fclose(f);
    return n;
}

static void the_same_seed_gives_the_same_file(void) {
    uint8_t *a, *b;
    err e = {0};
    struct tiny_llama config = {.seed = 7, .weight_type = QTYPE_Q8_0, .tied = true};
    const char *path = in_folder("one.gguf"), *again = in_folder("two.gguf");
    CHECK_MSG(gguf_make_tiny_llama(path, &config, &e) == 0, "%s", e.msg);
    CHECK_MSG(gguf_make_tiny_llama(again, &config, &e) == 0, "%s", e.msg);
    size_t n = read_file(path, &a), m = read_file(again, &b);
    CHECK(n > 20000 && n == m && memcmp(a, b, n) == 0);
    free(b);
    config.seed++;
    CHECK(gguf_make_tiny_llama(again, &config, &e) == 0);
    m = read_file(again, &b);
    CHECK(n == m && memcmp(a, b, n) != 0);
    free(a);
    free(b);
    config.n_vocab = 10;
    CHECK(gguf_make_tiny_llama(again, &config, &e) == ERR_INVALID);
    CHECK(access(in_folder("two.gguf.tmp"), F_OK) != 0);
}

static void a_retyped_file_has_the_same_numbers(void) {
    gguf *a = NULL, *b = NULL;
    err e = {0};
    struct tiny_llama config = {.seed = 3, .weight_type = QTYPE_Q8_0};
    const char *path = in_folder("q8.gguf"), *f32 = in_folder("f32.gguf");
    CHECK_MSG(gguf_make_tiny_llama(path, &config, &e) == 0, "%s", e.msg);
    CHECK_MSG(gguf_make_retype(path, f32, QTYPE_F32, &e) == 0, "%s", e.msg);
    CHECK_MSG(gguf_open(path, 0, &a, &e) == 0, "%s", e.msg);
    CHECK_MSG(gguf_open(f32, 0, &b, &e) == 0, "%s", e.msg);
    CHECK(a && b && gguf_n_tensors(a) == 3 + 2 * 9 && gguf_n_tensors(a) == gguf_n_tensors(b));
    for (uint64_t i = 0; a && b && i < gguf_n_tensors(a); i++) {
        const gguf_tensor *s = gguf_tensor_at(a, i), *d = gguf_tensor_at(b, i);
        CHECK(s->type == (s->n_dims == 2 ? QTYPE_Q8_0 : QTYPE_F32) && d->type == QTYPE_F32);
        CHECK(s->n_elems == d->n_elems && s->name.len == d->name.len);
        CHECK((uintptr_t)s->data % 32 == 0 && (uintptr_t)d->data % 32 == 0);
        float *values = mem_new(s->n_elems, sizeof *values);
        qtype_decode(s->type, s->data, values, s->n_elems);
        CHECK(memcmp(values, d->data, s->n_elems * sizeof *values) == 0);
        free(values);
    }
    /* Every key but the file type is the same, byte for byte. */
    for (uint64_t i = 0; a && b && i < gguf_n_keys(a); i++) {
        const struct gguf_kv *k = gguf_key_at(a, i), *other = gguf_key_at(b, i + 1);
        CHECK(other && k->type == other->type && k->value_bytes == other->value_bytes &&
              k->key.len == other->key.len && !memcmp(k->key.data, other->key.data, k->key.len) &&
              !memcmp(k->value, other->value, k->value_bytes));
    }
    gguf_close(a);
    gguf_close(b);
}

static void the_writer_refuses_what_cannot_be_read_back(void) {
    err e = {0};
    float values[4] = {1, 2, 3, 4};
    gguf_writer *w = gguf_writer_new();
    gguf_tensor t = {.name = {"t", 1},
                     .type = QTYPE_F32,
                     .n_dims = 1,
                     .dims = {4, 1, 1, 1},
                     .n_elems = 4,
                     .data = values,
                     .bytes = sizeof values};
    CHECK(gguf_writer_set_u32(w, "general.alignment", 64, &e) == 0);
    CHECK(gguf_writer_set_str(w, "general.alignment", "x", &e) == ERR_EXISTS);
    CHECK(gguf_writer_add_tensor(w, &t, &e) == 0);
    CHECK(gguf_writer_add_tensor(w, &t, &e) == ERR_EXISTS);
    t.name.data = "u";
    t.bytes--;
    CHECK(gguf_writer_add_tensor(w, &t, &e) == ERR_INVALID);
    t.bytes++;
    CHECK(gguf_writer_add_tensor(w, &t, &e) == 0);
    t.name.data = "v";
    t.type = 16;
    CHECK(gguf_writer_add_tensor(w, &t, &e) == ERR_INVALID);
    t.n_dims = 0;
    CHECK(gguf_writer_add_tensor(w, &t, &e) == ERR_INVALID);
    CHECK(gguf_writer_finish(w, in_folder("none/x.gguf"), &e) == ERR_IO);
    CHECK(gguf_writer_finish(w, in_folder("w.gguf"), &e) == 0);
    gguf *g = NULL;
    CHECK_MSG(gguf_open(in_folder("w.gguf"), 0, &g, &e) == 0, "%s", e.msg);
    const gguf_tensor *u = g ? gguf_tensor_find(g, "u") : NULL;
    CHECK(u && (uintptr_t)u->data % 64 == 0 && !memcmp(u->data, values, sizeof values));
    gguf_close(g);
    gguf_writer_free(w);
    gguf_writer_free(NULL);
}

/* Published models: the sizes of their vocabularies are public knowledge. */
static void real_files_are_read(void) {
    static const struct {
        const char *name;
        uint64_t n_tokens;
    } files[] = {{"llama-spm", 32000}, {"phi-3", 32064}, {"gpt-2", 50257}, {"starcoder", 49152}};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        char path[128];
        gguf *g = NULL;
        err e = {0};
        enum gguf_type elem = GGUF_U8;
        uint64_t n = 0;
        snprintf(path, sizeof path, SHARED "ggml-vocab-%s.gguf", files[i].name);
        CHECK_MSG(gguf_open(path, 0, &g, &e) == 0, "%s", e.msg);
        if (!g) continue;
        CHECK(gguf_get_array(g, "tokenizer.ggml.tokens", &elem, &n, &e) == 0);
        CHECK_MSG(elem == GGUF_STRING && n == files[i].n_tokens, "%s: %llu", files[i].name,
                  (unsigned long long)n);
        CHECK(gguf_array_str(g, "tokenizer.ggml.tokens", n - 1).len > 0);
        gguf_close(g);
    }
}

static void remove_folder(void) {
    static const char *const names[] = {"fifo",    "empty",    "one.gguf", "two.gguf",
                                        "q8.gguf", "f32.gguf", "w.gguf"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        unlink(in_folder(names[i]));
    CHECK(rmdir(folder) == 0);
}

int main(void) {
    snprintf(folder, sizeof folder, "/tmp/inferd-gguf-XXXXXX");
    if (!mkdtemp(folder)) return 1;
    RUN(a_good_file_is_read);
    RUN(every_number_type_is_read);
    RUN(every_prefix_is_refused);
    RUN(flipped_bits_are_survived);
    RUN(harm_is_named);
    RUN(a_vocabulary_may_have_tensors_of_any_type);
    RUN(long_paths_and_odd_names_are_shown);
    RUN(places_that_are_no_file_are_refused);
    RUN(the_same_seed_gives_the_same_file);
    RUN(a_retyped_file_has_the_same_numbers);
    RUN(the_writer_refuses_what_cannot_be_read_back);
    if (access(SHARED "ggml-vocab-gpt-2.gguf", R_OK) == 0)
        RUN(real_files_are_read);
    else
        SKIP("real_files_are_read", "no shared data at " SHARED);
    RUN(remove_folder);
    return check_done();
}
