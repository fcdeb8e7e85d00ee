/* test_tiktoken.c - vocabularies of Kimi's folders, which have a tiktoken.model and no
 * tokenizer.json: ids of js-tiktoken (tests/data/tokenizer/tiktoken/make.mjs), special tokens, keys
 * of a GGUF file, and files that are refused. */
#include "core/formats/gguf/gguf.h"
#include "core/formats/hf/tokenizer.h"
#include "core/tokenizer/tokenizer_int.h"
#include "tests/support/files.h"
#include "tests/unit/check.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FOLDER "tests/data/tokenizer/tiktoken"

enum { N_RANKS = 1500, MAX_IDS = 1 << 16 };

static cJSON *texts;

static void check_ids(const tokenizer *t, const char *what) {
    const cJSON *item, *id;
    int n = 0;
    cJSON_ArrayForEach(item, texts) {
        const char *text = cJSON_GetObjectItem(item, "text")->valuestring;
        const cJSON *want = cJSON_GetObjectItem(item, "ids");
        int32_t *ids = NULL;
        size_t n_ids = 0, at = 0, n_back = 0;
        char *back = NULL;
        err e = {0};
        CHECK(tokenizer_encode(t, text, strlen(text), 0, MAX_IDS, &ids, &n_ids, &e) == 0);
        bool same = n_ids == (size_t)cJSON_GetArraySize(want);
        cJSON_ArrayForEach(id, want) {
            same = same && ids[at] == id->valueint;
            at++;
        }
        CHECK_MSG(same, "%s: other ids of '%s'", what, text);
        CHECK(tokenizer_decode(t, ids, n_ids, false, &back, &n_back, &e) == 0);
        CHECK(n_back == strlen(text) && memcmp(back, text, n_back) == 0);
        free(back);
        free(ids);
        n++;
    }
    CHECK(n > 60);
}

static void check_special(const tokenizer *t) {
    static const char text[] = "a<|im_end|><|reserved_token_1600|>";
    static const int32_t want[] = {64, N_RANKS + 2, 1600};
    int32_t *ids = NULL;
    size_t n = 0;
    err e = {0};
    CHECK(tokenizer_n_vocab(t) == N_RANKS + 256);
    CHECK(tokenizer_encode(t, text, strlen(text), TOKENIZER_PARSE_SPECIAL, 100, &ids, &n, &e) == 0);
    CHECK(n == 3 && memcmp(ids, want, sizeof want) == 0);
    free(ids);
}

static void test_folder(void) {
    tokenizer *t = NULL;
    err e = {0};
    CHECK_MSG(tokenizer_open(FOLDER, &t, &e) == 0, "%s", e.msg);
    if (!t) return;
    check_ids(t, "folder");
    check_special(t);
    tokenizer_close(t);
}

static void test_gguf(void) {
    char path[] = "/tmp/inferd-test-tiktoken-XXXXXX";
    const int fd = mkstemp(path);
    gguf_writer *w = gguf_writer_new();
    tokenizer *t = NULL;
    err e = {0};
    CHECK(fd >= 0 && w);
    close(fd);
    CHECK_MSG(tokenizer_write_gguf(FOLDER, 0, w, &e) == 0 && gguf_writer_finish(w, path, &e) == 0 &&
                  tokenizer_open(path, &t, &e) == 0,
              "%s", e.msg);
    gguf_writer_free(w);
    if (t) {
        check_ids(t, "file");
        check_special(t);
    }
    tokenizer_close(t);
    unlink(path);
}

/* The vocabulary with one line replaced, or without its end. */
static void check_refused(uint32_t line, const char *by, const char *says) {
    size_t n, n_out = 0;
    char *file = file_read(FOLDER "/tiktoken.model", &n), *out = malloc(n + 4096);
    struct hf_tokenizer *h = NULL;
    err e = {0};
    uint32_t at = 0;
    CHECK(file && out);
    for (char *p = file; p < file + n && (by || at < line); at++) {
        const size_t length = (size_t)(strchr(p, '\n') + 1 - p);
        const char *from = by && at == line ? by : p;
        const size_t n_from = from == p ? length : strlen(by);
        memcpy(out + n_out, from, n_from);
        n_out += n_from;
        p += length;
    }
    const int rc = hf_tokenizer_open_ranks(out, n_out, &h, &e);
    CHECK_MSG(rc == ERR_FORMAT && !h && strstr(e.msg, says), "%s: %d, %s", says, rc, e.msg);
    hf_tokenizer_close(h);
    free(out);
    free(file);
}

static void test_refusals(void) {
    char folder[] = "/tmp/inferd-test-tiktoken-XXXXXX", path[128], longest[2048];
    struct hf_tokenizer *h = NULL;
    tokenizer *t = NULL;
    err e = {0};
    check_refused(3, "IQ\n", "line 4 is not a token");
    check_refused(3, "JA== 4\n", "line 4 has another rank");
    check_refused(3, "JA== 3x\n", "line 4 has another rank");
    check_refused(3, "J*== 3\n", "line 4 has no token");
    check_refused(3, "IQ== 3\n", "has the token of another line");
    check_refused(200, NULL, "has no token for byte");
    check_refused(0, NULL, "has 0 tokens");
    memset(longest, 'A', 1500);
    strcpy(longest + 1500, " 3\n");
    check_refused(3, longest, "too long");
    CHECK(mkdtemp(folder) != NULL);
    size_t n;
    char *file = file_read(FOLDER "/tiktoken.model", &n);
    CHECK(file && file_write(folder, "tiktoken.model", file));
    free(file);
    CHECK(hf_tokenizer_open(folder, &h, &e) == ERR_UNSUPPORTED && !h); /* of another maker */
    CHECK_MSG(strstr(e.msg, "tokenization_kimi"), "%s", e.msg);
    CHECK(tokenizer_open(folder, &t, &e) != 0 && !t);
    snprintf(path, sizeof path, "%s/tiktoken.model", folder);
    unlink(path);
    CHECK(hf_tokenizer_open(folder, &h, &e) == ERR_NOT_FOUND && !h);
    rmdir(folder);
}

int main(void) {
    texts = file_json(FOLDER "/ids.json");
    CHECK(texts != NULL);
    RUN(test_folder);
    RUN(test_gguf);
    RUN(test_refusals);
    cJSON_Delete(texts);
    return check_done();
}
