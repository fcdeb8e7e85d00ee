/* tokenizer_bench.h - `test_tokenizer bench [FAMILY]`: processor time of encoding, as a Markdown
 * table: MB/s on 1 MB of prose and on texts without word boundaries. Not a test: asserts nothing.
 * Families beyond the shared vocabularies use cl100k's tokens: splitting dominates their cost, not
 * the tokens. */
#ifndef INFERD_TESTS_TOKENIZER_BENCH_H
#define INFERD_TESTS_TOKENIZER_BENCH_H

#include "core/base/mem.h"
#include "core/tokenizer/tokenizer_int.h"
#include "tests/support/rng.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BENCH_SHARED "../shared/data/"
#define BENCH_CL100K BENCH_SHARED "tokenizers/hf/cl100k_base"

enum { BENCH_MB = 1000000, BENCH_EQUAL = 100000, BENCH_MIN_MS = 60 };

static const struct {
    const char *name, *path;
    const char *rule; /* splits as this name of tokenizer.ggml.pre; NULL: the file's own rule */
} bench_families[] = {
    {"llama 2 (SentencePiece)", BENCH_SHARED "tokenizers/sentencepiece/llama2", NULL},
    {"mistral v3 (SentencePiece)", BENCH_SHARED "tokenizers/sentencepiece/mistral-v3", NULL},
    {"phi-3 (tokenizer.json, marks)", BENCH_SHARED "tokenizers/hf/phi-3-mini", NULL},
    {"demo (SentencePiece)", "registry/demo/tokenizer.model", NULL},
    {"gpt-2", BENCH_SHARED "tokenizers/gguf/ggml-vocab-gpt-2.gguf", NULL},
    {"starcoder", BENCH_SHARED "tokenizers/gguf/ggml-vocab-starcoder.gguf", NULL},
    {"deepseek-llm", BENCH_SHARED "tokenizers/gguf/ggml-vocab-deepseek-llm.gguf", NULL},
    {"qwen2, qwen3 (NFC)", BENCH_SHARED "tokenizers/hf/qwen3", NULL},
    {"llama 3, gpt-4", BENCH_CL100K, "llama-bpe"},
    {"gpt-4o, gpt-oss", BENCH_CL100K, "gpt-4o"},
    {"tekken", BENCH_CL100K, "tekken"},
    {"deepseek-v3", BENCH_CL100K, "deepseek-v3"},
    {"kimi-k2", BENCH_CL100K, "kimi-k2"},
    {"command-r", BENCH_CL100K, "command-r"},
    {"falcon", BENCH_CL100K, "falcon"},
    {"bloom", BENCH_CL100K, "bloom"},
};

/* A text that repeats one unit; NULL: prose, or random letters. */
static const struct {
    const char *name, *unit;
    size_t n;
} bench_texts[] = {
    {"prose", NULL, BENCH_MB},
    {"100,000 a", "a", BENCH_EQUAL},
    {"letters", NULL, BENCH_MB},
    {"spaces", " ", BENCH_MB},
    {"line ends", "\n", BENCH_MB},
    {"space, line end", " \n", BENCH_MB},
    {"digits", "7", BENCH_MB},
    {"CJK", "\xe4\xb8\xad", BENCH_MB},
    {"emoji", "\xf0\x9f\x98\x80", BENCH_MB},
    {"marks", "a\xcc\x81", BENCH_MB},
    {"punctuation", "!", BENCH_MB},
    {"bytes", "\xff", BENCH_MB},
};
enum { BENCH_N_TEXTS = sizeof bench_texts / sizeof bench_texts[0] };

static char *bench_text(size_t which, size_t *n) {
    *n = bench_texts[which].n;
    char *text = mem_new((uint64_t)*n, 1);
    const char *unit = bench_texts[which].unit;
    size_t len = unit ? strlen(unit) : 0;
    struct rng rng = {3};
    if (!text) return NULL;
    if (unit) {
        *n -= *n % len;
        for (size_t i = 0; i < *n; i++)
            text[i] = unit[i % len];
    } else if (which == 0) {
        FILE *f = fopen(BENCH_SHARED "longtext/moby-dick.txt", "rb");
        *n = f ? fread(text, 1, *n, f) : 0;
        if (f) fclose(f);
    } else {
        for (size_t i = 0; i < *n; i++) {
            text[i] = (char)('a' + rng_below(&rng, 26));
        }
    }
    return text;
}

static double bench_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* MB/s; a slow text is encoded once. */
static double bench_rate(const tokenizer *t, const char *text, size_t n) {
    double from = bench_seconds(), spent = 0;
    size_t rounds = 0;
    while (spent * 1e3 < BENCH_MIN_MS) {
        int32_t *ids = NULL;
        size_t n_ids;
        if (tokenizer_encode(t, text, n, 0, n + 16, &ids, &n_ids, NULL)) return 0;
        free(ids);
        rounds++;
        spent = bench_seconds() - from;
    }
    return (double)rounds * (double)n / 1e6 / spent;
}

static tokenizer *bench_open(size_t family, err *e) {
    const char *name = bench_families[family].rule;
    struct vocab v;
    tokenizer *t = NULL;
    if (vocab_read(bench_families[family].path, &v, e)) return NULL;
    if (name) {
        const struct pretok_rule *rule = pretok_find_rule(name, strlen(name));
        pretok_free(v.rules.pretok);
        v.rules.pretok = pretok_new(v.rules.flags);
        if (pretok_add_rule(v.rules.pretok, rule, e)) {
            vocab_fini(&v);
            return NULL;
        }
    }
    tokenizer_build(&v, &t, e);
    return t;
}

static int tokenizer_bench(const char *only) {
    char *texts[BENCH_N_TEXTS];
    size_t sizes[BENCH_N_TEXTS];
    printf("| MB/s |");
    for (size_t i = 0; i < BENCH_N_TEXTS; i++) {
        texts[i] = bench_text(i, &sizes[i]);
        printf(" %s |", bench_texts[i].name);
    }
    printf("\n|---|");
    for (size_t i = 0; i < BENCH_N_TEXTS; i++)
        printf("---:|");
    printf("\n");
    for (size_t f = 0; f < sizeof bench_families / sizeof bench_families[0]; f++) {
        err e = {0};
        if (only && !strstr(bench_families[f].name, only)) continue;
        tokenizer *t = bench_open(f, &e);
        printf("| %s |", bench_families[f].name);
        for (size_t i = 0; i < BENCH_N_TEXTS && t; i++) {
            if (texts[i] && sizes[i])
                printf(" %.3g |", bench_rate(t, texts[i], sizes[i]));
            else
                printf(" - |");
            fflush(stdout);
        }
        printf("%s\n", t ? "" : e.msg);
        tokenizer_close(t);
    }
    for (size_t i = 0; i < BENCH_N_TEXTS; i++)
        free(texts[i]);
    return 0;
}

#endif
