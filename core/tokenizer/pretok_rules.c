/* pretok_rules.c - the names of tokenizer.ggml.pre in GGUF files: for each, the split patterns of
 * that model's tokenizer.json. Names as published files use them. Constant. */
#include "core/formats/hf/tokenizer.h"
#include "core/text/utf8.h"
#include "core/tokenizer/pretok.h"
#include "core/tokenizer/scan.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define FOLDED   "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define WORD     "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
#define OTHERS   "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*"
#define LINES    "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define LLAMA3   FOLDED WORD "|\\p{N}{1,3}" OTHERS LINES
#define QWEN2    FOLDED WORD "|\\p{N}" OTHERS LINES
#define GPT2     "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define ANY_LINE "[^\\n]+|[\\n]+"
#define QWEN35                                                                                     \
    FOLDED "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}"                                         \
           "| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*" LINES
#define JAIS2                                                                                      \
    FOLDED WORD "|\\p{N}{1,3}" OTHERS                                                              \
                "|\\s*[\\r\\n]+|\\s{512}(?!\\S)|\\s{256}(?!\\S)|\\s{128}(?!\\S)"                   \
                "|\\s{64}(?!\\S)|\\s{32}(?!\\S)|\\s{16}(?!\\S)|\\s{8}(?!\\S)|\\s{4}(?!\\S)"        \
                "|\\s{1,2}(?!\\S)|\\s{1}"

/* Words that are split where upper case follows lower case. */
#define LEAD        "[^\\r\\n\\p{L}\\p{N}]?"
#define UPPER       "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER       "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED(tail) LEAD UPPER "*" LOWER "+" tail "|" LEAD UPPER "+" LOWER "*" tail
#define SLASHED     "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" LINES
#define TEKKEN      CASED("") "|\\p{N}" SLASHED
#define GPT4O       CASED(FOLDED "?") "|\\p{N}{1,3}" SLASHED
#define YOUTU_SCRIPTS                                                                              \
    "[\\x{ac00}-\\x{d7a3}\\x{3131}-\\x{318e}]+"                                                    \
    "|[\\x{ff01}\\x{2026}\\x{201c}\\x{201d}\\x{2018}\\x{2019}\\x{2014}\\x{ff1a}\\x{ff1b}"          \
    "\\x{ff0c}\\x{3001}-\\x{303f}\\x{fe30}-\\x{fe4f}]+|[\\x{3105}-\\x{312f}]+"                     \
    "|[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}]+"
#define YOUTU CASED(FOLDED "?") "|\\p{N}" SLASHED

/* DeepSeek. The first alphabet lists the cased letters of Unicode. */
#define CASED_LETTERS                                                                              \
    "A-Za-z\\x{b5}\\x{c0}-\\x{d6}\\x{d8}-\\x{f6}\\x{f8}-\\x{1ba}\\x{1bc}-\\x{1bf}\\x{1c4}-"        \
    "\\x{293}\\x{295}-\\x{2af}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37b}-\\x{37d}\\x{37f}"          \
    "\\x{386}\\x{388}-\\x{38a}\\x{38c}\\x{38e}-\\x{3a1}\\x{3a3}-\\x{3f5}\\x{3f7}-\\x{481}"         \
    "\\x{48a}-\\x{52f}\\x{531}-\\x{556}\\x{10a0}-\\x{10c5}\\x{13a0}-\\x{13f5}\\x{13f8}-"           \
    "\\x{13fd}\\x{1c90}-\\x{1cba}\\x{1cbd}-\\x{1cbf}\\x{1d00}-\\x{1d2b}\\x{1d6b}-\\x{1d77}"        \
    "\\x{1d79}-\\x{1d9a}\\x{1e00}-\\x{1f15}\\x{1f18}-\\x{1f1d}\\x{1f20}-\\x{1f45}\\x{1f48}-"       \
    "\\x{1f4d}\\x{1f50}-\\x{1f57}\\x{1f59}\\x{1f5b}\\x{1f5d}\\x{1f5f}-\\x{1f7d}\\x{1f80}-"         \
    "\\x{1fb4}\\x{1fb6}-\\x{1fbc}\\x{1fbe}\\x{1fc2}-\\x{1fc4}\\x{1fc6}-\\x{1fcc}\\x{1fd0}-"        \
    "\\x{1fd3}\\x{1fd6}-\\x{1fdb}\\x{1fe0}-\\x{1fec}\\x{1ff2}-\\x{1ff4}\\x{1ff6}-\\x{1ffc}"        \
    "\\x{2102}\\x{2107}\\x{210a}-\\x{2113}\\x{2115}\\x{2119}-\\x{211d}\\x{2124}\\x{2126}"          \
    "\\x{2128}\\x{212a}-\\x{212d}\\x{212f}-\\x{2134}\\x{2139}\\x{213c}-\\x{213f}\\x{2145}-"        \
    "\\x{2149}\\x{214e}\\x{2183}\\x{2184}\\x{2c00}-\\x{2c7b}\\x{2c7e}-\\x{2ce4}\\x{2ceb}-"         \
    "\\x{2cee}\\x{2cf2}\\x{2cf3}\\x{a640}-\\x{a66d}\\x{a680}-\\x{a69b}\\x{a722}-\\x{a76f}"         \
    "\\x{a771}-\\x{a787}\\x{a78b}-\\x{a78e}\\x{ab70}-\\x{abbf}\\x{fb00}-\\x{fb06}\\x{fb13}-"       \
    "\\x{fb17}\\x{ff21}-\\x{ff3a}\\x{ff41}-\\x{ff5a}\\x{10400}-\\x{1044f}\\x{104b0}-\\x{104d3}"    \
    "\\x{104d8}-\\x{104fb}\\x{10c80}-\\x{10cb2}\\x{10cc0}-\\x{10cf2}\\x{118a0}-\\x{118df}"         \
    "\\x{1e900}-\\x{1e943}"
#define IDEOGRAPHS        "[\\x{4e00}-\\x{9fa5}\\x{800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]+"
#define ASCII_PUNCTUATION "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~]"
#define DEEPSEEK3                                                                                  \
    ASCII_PUNCTUATION "[A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"                      \
                      "| ?[\\p{P}\\p{S}]+[\\r\\n]*" LINES
#define AFMOE_SCRIPTS                                                                              \
    "[\\x{4e00}-\\x{9fff}\\x{3400}-\\x{4dbf}\\x{f900}-\\x{faff}\\x{3040}-\\x{309f}"                \
    "\\x{30a0}-\\x{30ff}\\x{ff65}-\\x{ff9f}\\x{2f00}-\\x{2fdf}\\x{0e40}-\\x{0e7f}"                 \
    "\\x{0e80}-\\x{0eff}\\x{1780}-\\x{17ff}\\x{1000}-\\x{109f}\\x{aa60}-\\x{aa7f}"                 \
    "\\x{a9e0}-\\x{a9ff}\\x{ac00}-\\x{d7af}\\x{1100}-\\x{11ff}]+"

#define LLAMA3_RULE(name)                                                                          \
    {                                                                                              \
        name, true, true, false, {                                                                 \
            LLAMA3                                                                                 \
        }                                                                                          \
    }
#define PLAIN(name, pattern)                                                                       \
    {                                                                                              \
        name, false, false, false, {                                                               \
            pattern                                                                                \
        }                                                                                          \
    }
#define DIGITS_GPT2(name)                                                                          \
    {                                                                                              \
        name, false, false, false, {                                                               \
            "\\p{N}", GPT2                                                                         \
        }                                                                                          \
    }

static const struct pretok_rule rules[] = {
    {"default",
     false,
     false,
     false,
     {"[\\p{P}\\$\\+<=>\\^~\\|]+", GPT2, "\\p{N}+", "[0-9][0-9][0-9]"}},
    LLAMA3_RULE("llama-bpe"),
    LLAMA3_RULE("llama3"),
    LLAMA3_RULE("llama-v3"),
    LLAMA3_RULE("falcon3"),
    LLAMA3_RULE("falcon-h1"),
    LLAMA3_RULE("pixtral"),
    LLAMA3_RULE("midm-2.0"),
    LLAMA3_RULE("lfm2"),
    LLAMA3_RULE("jina-v5-nano"),
    PLAIN("dbrx", LLAMA3),
    PLAIN("smaug-bpe", LLAMA3),
    PLAIN("glm4", LLAMA3),
    PLAIN("chatglm-bpe", LLAMA3),
    PLAIN("jais-2", JAIS2),
    {"minicpm5", true, false, false, {"\\p{N}{1,3}", FOLDED WORD "|\\p{N}+" OTHERS LINES}},
    PLAIN("qwen2", QWEN2),
    PLAIN("deepseek-r1-qwen", QWEN2),
    PLAIN("kormo", QWEN2),
    PLAIN("f2llmv2", QWEN2),
    PLAIN("megrez", QWEN2),
    PLAIN("stablelm2", QWEN2),
    PLAIN("hunyuan", QWEN2),
    PLAIN("solar-open", QWEN2),
    PLAIN("grok-2", QWEN2),
    PLAIN("qwen35", QWEN35),
    {"laguna", false, false, false, {ANY_LINE, QWEN2}},
    PLAIN("gpt-2", GPT2),
    PLAIN("gpt2", GPT2),
    PLAIN("phi-2", GPT2),
    PLAIN("jina-es", GPT2),
    PLAIN("jina-de", GPT2),
    PLAIN("jina-v1-en", GPT2),
    PLAIN("jina-v2-es", GPT2),
    PLAIN("jina-v2-de", GPT2),
    PLAIN("jina-v2-code", GPT2),
    PLAIN("roberta-bpe", GPT2),
    PLAIN("gigachat", GPT2),
    PLAIN("a.x-4.0", GPT2),
    PLAIN("mellum", GPT2),
    PLAIN("modern-bert", GPT2),
    PLAIN("mpt", GPT2),
    PLAIN("olmo", GPT2),
    PLAIN("jais", GPT2),
    PLAIN("trillion", GPT2),
    PLAIN("granite-docling", GPT2),
    PLAIN("exaone4", GPT2),
    DIGITS_GPT2("starcoder"),
    DIGITS_GPT2("refact"),
    DIGITS_GPT2("command-r"),
    DIGITS_GPT2("smollm"),
    DIGITS_GPT2("codeshell"),
    DIGITS_GPT2("exaone"),
    DIGITS_GPT2("minerva-7b"),
    DIGITS_GPT2("mellum2"),
    {"falcon", false, false, false, {"[\\p{P}\\$\\+<=>\\^~\\|`]+", GPT2, "[0-9][0-9][0-9]"}},
    {"deepseek-llm",
     false,
     false,
     false,
     {"[\\r\\n]", "\\s?[" CASED_LETTERS "]+",
      "\\s?[!-/:-~\\x{ff01}-\\x{ff0f}\\x{ff1a}-\\x{ff5e}\\x{2018}-\\x{201f}\\x{3000}-\\x{3002}]+",
      "\\s+$", IDEOGRAPHS, "\\p{N}+"}},
    {"deepseek-coder",
     false,
     false,
     false,
     {"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", IDEOGRAPHS, "\\p{N}"}},
#define DEEPSEEK3_RULE(name)                                                                       \
    {                                                                                              \
        name, false, false, false, {                                                               \
            "\\p{N}{1,3}", "[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}]+",         \
                DEEPSEEK3                                                                          \
        }                                                                                          \
    }
    DEEPSEEK3_RULE("deepseek-v3"),
    DEEPSEEK3_RULE("hunyuan-dense"),
    DEEPSEEK3_RULE("joyai-llm"),
    {"youtu", true, false, false, {YOUTU_SCRIPTS, YOUTU}},
#define BLOOM " ?[^(\\s|.,!?\\x{2026}\\x{3002}\\x{ff0c}\\x{3001}\\x{964}\\x{6d4}\\x{60c})]+"
    PLAIN("bloom", BLOOM),
    PLAIN("poro-chat", BLOOM),
    PLAIN("gpt3-finnish", BLOOM),
    {"viking", false, false, false, {BLOOM, "\\p{N}"}},
    {"tekken", true, true, false, {TEKKEN}},
    {"chameleon",
     false,
     true,
     false,
     {"<sentinel:[0-9]+>", "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z", "([\\t\\n]|    |  )", "\\p{N}",
      "[\\p{P}!-/:-@\\[-`{-~]", GPT2}},
    PLAIN("gpt-4o", GPT4O),
    PLAIN("llama4", GPT4O),
    PLAIN("kanana2", GPT4O),
    PLAIN("talkie", GPT4O),
    PLAIN("minimax-m2", GPT4O),
    {"granite-embed-multi-97m", true, false, false, {GPT4O}},
    {"tiny_aya", false, false, false, {"\\d{1,3}(?=(?:\\d{3})*\\b)", GPT4O}},
    {"cohere2moe", false, false, false, {"\\d{1,3}(?=(?:\\d{3})*\\b)", GPT4O}},
    PLAIN("kimi-k2", HF_KIMI_WORDS),
    {"superbpe", false, false, false, {"\\p{N}+", "(?=(\\d{3})+(?!\\d))"}},
#define BAILING                                                                                    \
    "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}"                                  \
    "| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"
    PLAIN("bailingmoe", BAILING),
    PLAIN("bailingmoe2", BAILING),
    PLAIN("llada-moe", BAILING),
    PLAIN("seed-coder", FOLDED WORD "|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\\r\\n]+" LINES),
    {"afmoe", false, false, false, {"\\p{N}+", "(?=(\\d{3})+(?!\\d))", AFMOE_SCRIPTS, DEEPSEEK3}},
    PLAIN("exaone-moe", FOLDED "|[^\\r\\n\\p{L}\\p{N}]?(?:\\p{L}\\p{M}*+(?: \\p{L}\\p{M}*+)*+)++"
                               "|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]?|\\s*[\\r\\n]"
                               "|\\s+(?!\\S)|\\s+"),
    {"gemma4", false, true, true, {ANY_LINE}},
    {"granite-embed-multi-311m", false, true, true, {ANY_LINE}},
    {"sarvam-moe", false, false, true, {ANY_LINE}},
};

const struct pretok_rule *pretok_find_rule(const char *name, size_t n) {
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
        if (strlen(rules[i].name) == n && memcmp(rules[i].name, name, n) == 0) return &rules[i];
    return NULL;
}

/* The next character of a pattern, which may be written as \x{h}, \uhhhh, \r or \n. */
static uint32_t next_unit(const char **pattern) {
    const char *p = *pattern;
    unsigned len;
    char *end = NULL;
    unsigned long c = 0;
    if (p[0] == '\\' && p[1] == 'x' && p[2] == '{') {
        c = strtoul(p + 3, &end, 16);
        if (*end++ != '}') c = 0;
    } else if (p[0] == '\\' && p[1] == 'u' && strlen(p) >= 6) {
        char digits[5] = {p[2], p[3], p[4], p[5], 0};
        c = strtoul(digits, &end, 16);
        if (*end) c = 0;
        end = (char *)(uintptr_t)p + 6;
    } else if (p[0] == '\\' && (p[1] == 'r' || p[1] == 'n')) {
        *pattern = p + 2;
        return p[1] == 'r' ? '\r' : '\n';
    }
    if (c >= 0x80) {
        *pattern = end;
        return (uint32_t)c;
    }
    uint32_t unit = utf8_decode_valid(p, &len);
    *pattern = p + len;
    /* A row's possessive quantifier stands for the file's greedy one: same matches, less time. */
    if ((unit == '*' || unit == '+' || unit == '?') && p[1] == '+') ++*pattern;
    return unit;
}

static bool same_pattern(const char *a, const char *b) {
    struct scan x = scan_of_pattern(a), y = scan_of_pattern(b);
    if (x.kind != SCAN_NONE && x.kind == y.kind)
        return x.max_digits == y.max_digits && x.marks == y.marks && x.cascade == y.cascade &&
               x.slash == y.slash && x.han == y.han && x.contractions == y.contractions &&
               x.ascii_fold == y.ascii_fold;
    while (*a && *b)
        if (next_unit(&a) != next_unit(&b)) return false;
    return !*a && !*b;
}

const struct pretok_rule *pretok_match_rule(const struct pretok_rule *after,
                                            const char *const *patterns, unsigned n) {
    for (const struct pretok_rule *r = after ? after + 1 : rules;
         r < rules + sizeof rules / sizeof rules[0]; r++) {
        unsigned k = 0;
        while (k < n && r->patterns[k] && same_pattern(r->patterns[k], patterns[k]))
            k++;
        if (k == n && n && !r->patterns[k] && !r->marks_spaces) return r;
    }
    return NULL;
}
