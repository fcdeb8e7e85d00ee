/* test_chat_parser.c - the parser's pieces do not depend on how an answer is divided: every case is
 * fed whole, character by character, with every single cut, and with random cuts. */
#include "tests/support/answer_kit.h"
#include "tests/support/rng.h"
#include "tests/unit/check.h"

#include <stdint.h>
#include <stdlib.h>

static const struct chat_syntax devstral = {
    .several = true,
    .call_open = "\xff[TOOL_CALLS]\xfe",
    .arguments_open = "\xff[ARGS]\xfe",
    .trigger = "\xff[TOOL_CALLS]\xfe",
};
static const struct chat_syntax kimi = {
    .several = true,
    .section_open = "\xff<|tool_calls_section_begin|>\xfe",
    .call_open = "\xff<|tool_call_begin|>\xfe"
                 "functions.",
    .arguments_open = ":\xfc\xff<|tool_call_argument_begin|>\xfe",
    .call_close = "\xff<|tool_call_end|>\xfe",
    .section_close = "\xff<|tool_calls_section_end|>\xfe",
    .trigger = "\xff<|tool_calls_section_begin|>\xfe",
    .reasoning_open = "\xe2\x97\x81think\xe2\x96\xb7",
    .reasoning_close = "\xe2\x97\x81/think\xe2\x96\xb7",
};

static const struct chat_syntax lfm2 = {
    .several = true,
    .python = true,
    .section_open = "\xff<|tool_call_start|>\xfe[",
    .arguments_open = "(",
    .call_close = ")",
    .between = ", ",
    .section_close = "] \xff<|tool_call_end|>\xfe",
    .trigger = "\xff<|tool_call_start|>\xfe",
};

static bool may_cut(const char *s, size_t at) {
    bool within = false;
    for (size_t i = 0; i < at; i++)
        within = s[i] == CHAT_CONTROL_OPEN || (within && s[i] != CHAT_CONTROL_CLOSE);
    return !within && ((unsigned char)s[at] & 0xc0) != 0x80;
}

static struct rng random_cuts = {1};

/* Cuts with probability 1 / one_in after each character; one_in 0: only at `only`. */
static void check_cut(const struct chat_parser_config *config, const char *answer, const char *want,
                      bool cut_off, unsigned one_in, size_t only) {
    chat_parser *p = chat_parser_new(config);
    size_t n = strlen(answer), from = 0;
    int last = -1;
    str got;
    str_init(&got, 1 << 20);
    for (size_t i = 1; i <= n; i++) {
        bool cut = one_in ? rng_below(&random_cuts, one_in) == 0 : i == only;
        if (i < n && (!cut || !may_cut(answer, i))) continue;
        CHECK(feed(p, answer + from, i - from, true, &got, &last));
        from = i;
    }
    CHECK(chat_parser_finish(p, cut_off) == 0 && collect(p, &got, &last));
    CHECK_STR(str_cstr(&got), want);
    str_fini(&got);
    chat_parser_free(p);
}

static void check_end(const struct chat_syntax *syntax, enum chat_begin begin, size_t n_names,
                      const char *answer, bool cut_off, const char *want) {
    const struct chat_parser_config config = {
        .syntax = syntax, .begin = begin, .names = names, .n_names = n_names};
    check_cut(&config, answer, want, cut_off, 0, 0);
    check_cut(&config, answer, want, cut_off, 1, 0);
    for (size_t i = 1; i < strlen(answer); i++)
        check_cut(&config, answer, want, cut_off, 0, i);
    for (int i = 0; i < 50; i++)
        check_cut(&config, answer, want, cut_off, 2 + rng_below(&random_cuts, 12), 0);
}

/* The model ended the answer. */
static void check(const struct chat_syntax *syntax, enum chat_begin begin, size_t n_names,
                  const char *answer, const char *want) {
    check_end(syntax, begin, n_names, answer, false, want);
}

/* A limit ended it. */
static void check_limit(const struct chat_syntax *syntax, enum chat_begin begin, const char *answer,
                        const char *want) {
    check_end(syntax, begin, N_NAMES, answer, true, want);
}

#define OPEN   CHAT_BEGIN_OPEN
#define INSIDE CHAT_BEGIN_REASONING
#define TEXT   CHAT_BEGIN_TEXT

static void test_text(void) {
    check(&hermes, OPEN, 3, "", "");
    check(&hermes, OPEN, 3, "Hello  there \n", "|T:Hello  there \n");
    check(&hermes, OPEN, 3, " \n x", "|T: \n x");
    check(&hermes, TEXT, 3, "a <tool b <tool_call c", "|T:a <tool b <tool_call c");
    check(&hermes, TEXT, 3, "gr\xc3\xbc\xc3\x9f <\xe2\x82\xac> \n",
          "|T:gr\xc3\xbc\xc3\x9f <\xe2\x82\xac> \n");
    check(&hermes, TEXT, 3, "x\xff<|odd|>\xfe y", "|T:x y"); /* a control token is not text */
    check(&hermes, TEXT, 0, "<tool_call>\n{\"name\": \"add\", \"arguments\": {}}\n</tool_call>",
          "|T:<tool_call>\n{\"name\": \"add\", \"arguments\": {}}\n</tool_call>");
}

static void test_reasoning(void) {
    check(&hermes, OPEN, 0, "<think>\nWhy?\n\n</think>\n\nSo. ", "|R:Why?|T:So. ");
    check(&hermes, OPEN, 3, "\n<think> a </thin </think>b", "|R:a </thin|T:b");
    check(&hermes, INSIDE, 0, "a\nb</think>c", "|R:a\nb|T:c");
    check(&hermes, INSIDE, 0, "cut </thi", "|R:cut </thi");
    check(&hermes, OPEN, 0, "<think></think>\nc", "|T:c");
    check(&hermes, OPEN, 0, "a <think>b</think>", "|T:a <think>b</think>");
    check(&hermes, TEXT, 0, "<think>b</think>", "|T:<think>b</think>");
    check(&mistral, OPEN, 0,
          "\xff[THINK]\xfe"
          "hm\xff[/THINK]\xfe"
          "yes",
          "|R:hm|T:yes");
    check(&mistral, OPEN, 0, "[THINK]hm", "|T:[THINK]hm"); /* text, not a control token */
    check(&kimi, OPEN, 0,
          "\xe2\x97\x81think\xe2\x96\xb7hm\xe2\x97\x81/think\xe2\x96\xb7\xe2\x97\x81",
          "|R:hm|T:\xe2\x97\x81");
    check(&llama, OPEN, 0, "<think>x</think>", "|T:<think>x</think>");
}

static void test_calls(void) {
    static const char one[] = "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": \"}\\\"{\", "
                              "\"b\": [{}, 2]}}\n</tool_call>";
    check(&hermes, OPEN, 3, one, "|C:add|A:{\"a\": \"}\\\"{\", \"b\": [{}, 2]}");
    check(&hermes, TEXT, 3,
          "I ask.\n<tool_call>{\"name\":\"add\",\"arguments\":{}}</tool_call>\n"
          "<tool_call>\n{\"name\": \"a-b\", \"arguments\": {\"x\": 1}}\n</tool_call>\n",
          "|T:I ask.|C:add|A:{}|C:a-b|A:{\"x\": 1}");
    check(&hermes, OPEN, 3,
          "<think>\nCall it.\n</think>\n\n<tool_call>\n{\"name\": \"add\", \"arguments\": "
          "{}}\n</tool_call> Done. ",
          "|R:Call it.|C:add|A:{}|T:Done. ");
    check(&mistral, TEXT, 3,
          "\xff[TOOL_CALLS]\xfe[{\"name\": \"add\", \"arguments\": {\"a\": 1}, \"id\": "
          "\"abc123XYZ\"}, {\"name\": \"a-b\", \"arguments\": {}, \"id\": \"0\"}]",
          "|C:add|A:{\"a\": 1}|C:a-b|A:{}");
    check(&devstral, TEXT, 3,
          "So: \xff[TOOL_CALLS]\xfe"
          "add\xff[ARGS]\xfe{\"a\": 1}\xff[TOOL_CALLS]\xfe"
          "a-b\xff[ARGS]\xfe{}",
          "|T:So:|C:add|A:{\"a\": 1}|C:a-b|A:{}");
    check(
        &kimi, TEXT, 3,
        "\xff<|tool_calls_section_begin|>\xfe\xff<|tool_call_begin|>\xfe"
        "functions.add:0"
        "\xff<|tool_call_argument_begin|>\xfe{}\xff<|tool_call_end|>\xfe\xff<|tool_call_begin|>\xfe"
        "functions.a-b:12\xff<|tool_call_argument_begin|>\xfe{}\xff<|tool_call_end|>\xfe"
        "\xff<|tool_calls_section_end|>\xfe",
        "|C:add|A:{}|C:a-b|A:{}");
    check(&kimi, TEXT, 5,
          "\xff<|tool_calls_section_begin|>\xfe\xff<|tool_call_begin|>\xfe"
          "functions.ns.add:v/2:0\xff<|tool_call_argument_begin|>\xfe{}\xff<|tool_call_end|>\xfe"
          "\xff<|tool_call_begin|>\xfe"
          "functions.add:2:1\xff<|tool_call_argument_begin|>\xfe{}\xff<|tool_call_end|>\xfe"
          "\xff<|tool_call_begin|>\xfe"
          "functions.add:2\xff<|tool_call_argument_begin|>\xfe{}\xff<|tool_call_end|>\xfe"
          "\xff<|tool_calls_section_end|>\xfe",
          "|C:ns.add:v/2|A:{}|C:add:2|A:{}|C:add|A:{}");
    check(&hermes, TEXT, 5,
          "<tool_call>\n{\"name\": \"ns.add:v/2\", \"arguments\": {}}\n</tool_call>",
          "|C:ns.add:v/2|A:{}");
    check(&llama, TEXT, 3, "{\"name\": \"add\", \"parameters\": {\"a\": 1}}",
          "|C:add|A:{\"a\": 1}");
    check(&llama, TEXT, 3, "\xff<|python_tag|>\xfe{\"name\": \"add\", \"parameters\": {}}",
          "|C:add|A:{}");
}

#define C(token) "\xff<|" token "|>\xfe"

static void test_harmony(void) {
    check(&harmony, OPEN, 3,
          C("channel") "analysis" C("message") "Hm. " C("end")
              C("start") "assistant" C("channel") "final" C("message") "Hello.\n",
          "|R:Hm. |T:Hello.\n");
    check(&harmony, OPEN, 3,
          C("channel") "analysis" C("message") "Hm" C("end")
              C("start") "assistant" C("channel") "commentary to=functions.add " C(
                  "constrain") "json" C("message") "{\"a\": 1}" C("call"),
          "|R:Hm|C:add|A:{\"a\": 1}");
    check(&harmony, OPEN, 3, " to=functions.a-b" C("channel") "commentary json" C("message") "{}",
          "|C:a-b|A:{}");
    check(&harmony, OPEN, 5, " to=functions.ns.add:v/2" C("channel") "commentary" C("message") "{}",
          "|C:ns.add:v/2|A:{}");
    check(&harmony, OPEN, 3,
          C("channel") "commentary" C("message") "I ask." C("end")
              C("start") "assistant"
                         " to=functions.none" C("channel") "commentary" C("message") "{}",
          "|T:I ask.{}"); /* an unknown tool's arguments are text */
    check(&harmony, OPEN, 3, "no header", "|T:no header");
    check(&harmony, OPEN, 0, "", "");
    check(&harmony, TEXT, 3, "goes on" C("end"), "|T:goes on");
}

#define PY(calls) C("tool_call_start") "[" calls "]" C("tool_call_end")

#define TEN(x)  x x x x x x x x x x
#define NESTS   TEN(TEN("[")) TEN(TEN("["))
#define UNNESTS TEN(TEN("]")) TEN(TEN("]"))

static void test_python(void) {
    check(&lfm2, TEXT, 3, PY("add(a=1, b=\"x\")"), "|C:add|A:{\"a\":1,\"b\":\"x\"}");
    check(&lfm2, TEXT, 3, PY("add(), a-b(c = 'd')") " Done.",
          "|C:add|A:{}|C:a-b|A:{\"c\":\"d\"}|T:Done.");
    check(&lfm2, TEXT, 3,
          "So.\n" PY("add(a=[1, [], {}, {'k': [None, True, False,], \"l\" : 'm'}, ], )"),
          "|T:So.|C:add|A:{\"a\":[1,[],{},{\"k\":[null,true,false],\"l\":\"m\"}]}");
    check(&lfm2, TEXT, 3, PY("add(a=-1.5e+3, b=.5, c=1., d=007, e=1_000, f=+2, g=0, h=null)"),
          "|C:add|A:{\"a\":-1.5e+3,\"b\":0.5,\"c\":1.0,\"d\":7,\"e\":1000,\"f\":2,\"g\":0,"
          "\"h\":null}");
    check(&lfm2, TEXT, 3, PY("add(a='it\\'s \"so\"', b=\"a\\n\\t\\\\\\d)]\", c='', d=\"\")"),
          "|C:add|A:{\"a\":\"it's \\\"so\\\"\",\"b\":\"a\\n\\u0009\\\\\\\\d)]\",\"c\":\"\","
          "\"d\":\"\"}");
    check(&lfm2, TEXT, 3, PY("add(a='\\x41\\u20ac\\U0001f600\\101\\0z', b='gr\xc3\xbc\xc3\x9f')"),
          "|C:add|A:{\"a\":\"A\\u20ac\\ud83d\\ude00A\\u0000z\",\"b\":\"gr\xc3\xbc\xc3\x9f\"}");
    check(&lfm2, TEXT, 3, PY("add(a='''x\n'y' ''z''', b=\"\"\"\"\"\")"),
          "|C:add|A:{\"a\":\"x\\n'y' ''z\",\"b\":\"\"}");
    /* JSON, as a constrained answer has it; white space before the closing tag. */
    check(&lfm2, TEXT, 3,
          C("tool_call_start") "[add({\"a\": [1, \")\"]}), a-b(c=1)] " C("tool_call_end"),
          "|C:add|A:{\"a\": [1, \")\"]}|C:a-b|A:{\"c\":1}");
    /* As deep as grammars allow, and a long number. */
    char deep[2048], json[2048];
    const int n = 200, digits = 900;
    snprintf(deep, sizeof deep, PY("add(a=%.*s%0*d%.*s)"), n, NESTS, digits, 0, n, UNNESTS);
    snprintf(json, sizeof json, "|C:add|A:{\"a\":%.*s0%.*s}", n, NESTS, n, UNNESTS);
    check(&lfm2, TEXT, 3, deep, json);
    /* No call: an unknown name, a positional argument, not directly a parenthesis. */
    check(&lfm2, TEXT, 3, PY("none(a=1)"), "|T:[none(a=1)]");
    check(&lfm2, TEXT, 3, PY("add(1)"), "|T:[add(1)]");
    check(&lfm2, TEXT, 3, PY("add(),a-b ( )") " Done.", "|C:add|A:{}|T:,a-b ( )] Done.");
    /* What is not a literal: the arguments stay incomplete. */
    check(&lfm2, TEXT, 3, PY("add(a=f(1))"), "|C:add|A:{\"a\":|T:(1))]");
    check(&lfm2, TEXT, 3, PY("add(a=1]"), "|C:add|A:{\"a\":1|T:]]");
    check(&lfm2, TEXT, 5, PY("ns.add:v/2(a={'k': (None,)})"),
          "|C:ns.add:v/2|A:{\"a\":{\"k\":|T:(None,)})]");
    check_limit(&lfm2, TEXT, C("tool_call_start") "[add(a", "");
    check_limit(&lfm2, TEXT, C("tool_call_start") "[add(a=['x", "|C:add|A:{\"a\":[\"x");
    check_limit(&lfm2, TEXT, C("tool_call_start") "[add(a=12", "|C:add|A:{\"a\":");
}

#define Q "\xff<|\"|>\xfe"
#define BARE(call)                                                                                 \
    "\xff<|tool_call>\xfe"                                                                         \
    "call:" call "\xff<tool_call|>\xfe"

static void test_bare_objects(void) {
    const struct chat_syntax *x = &bare_objects;
    check(x, TEXT, 3, BARE("add{a:1,b:" Q "x" Q "}"), "|C:add|A:{\"a\":1,\"b\":\"x\"}");
    check(x, TEXT, 3, "So.\n" BARE("add{}") BARE("a-b{c:" Q "d" Q "}") " Done.",
          "|T:So.|C:add|A:{}|C:a-b|A:{\"c\":\"d\"}|T:Done.");
    check(x, TEXT, 3, BARE("add{a:[1,[],{},{k:[None,true,False],l:" Q Q "}],b:-1.5e3}"),
          "|C:add|A:{\"a\":[1,[],{},{\"k\":[null,true,false],\"l\":\"\"}],\"b\":-1.5e3}");
    /* Strings have no escapes; other control tokens in them are dropped. */
    check(x, TEXT, 3, BARE("add{a:" Q "\"}\\n{<|\"|>'\n\xff<eos>\xfe]" Q "}"),
          "|C:add|A:{\"a\":\"\\\"}\\\\n{<|\\\"|>'\\n]\"}");
    /* JSON, as a constrained answer has it. */
    check(x, TEXT, 3, BARE("add{\"a\": [1, \"}\\u00e4\\n\"], \"b\": {\"c\": null}}"),
          "|C:add|A:{\"a\":[1,\"}\\u00e4\\n\"],\"b\":{\"c\":null}}");
    check(x, TEXT, 3, BARE("add{a b.c$:1," Q "d" Q ":2}"), "|C:add|A:{\"a b.c$\":1,\"d\":2}");
    check(x, OPEN, 3,
          "\xff<|channel>\xfe"
          "thought\nWhy?\n\xff<channel|>\xfe" BARE("add{a:1}"),
          "|R:Why?|C:add|A:{\"a\":1}");
    /* No call: an unknown name, no brace. */
    check(x, TEXT, 3, BARE("none{a:1}"), "|T:call:none{a:1}");
    check(x, TEXT, 3, BARE("add(a=1)"), "|T:call:add(a=1)");
    /* What is no value: the arguments stay incomplete. */
    check(x, TEXT, 3, BARE("add{a:Rome}"), "|C:add|A:{\"a\":|T:}");
    check(x, TEXT, 3, BARE("add{a:1]"), "|C:add|A:{\"a\":1|T:]");
    check_limit(x, TEXT,
                "\xff<|tool_call>\xfe"
                "call:add",
                "");
    check_limit(x, TEXT,
                "\xff<|tool_call>\xfe"
                "call:add{a:[" Q "x",
                "|C:add|A:{\"a\":[\"x");
    /* The marks are text where they are no control tokens. */
    struct chat_syntax text = *x;
    strcpy(text.quote, "<|\"|>");
    check(&text, TEXT, 3, BARE("add{a:<|\"|>x<|\"<|\"|>,b:2}"),
          "|C:add|A:{\"a\":\"x<|\\\"\",\"b\":2}");
    check_limit(&text, TEXT,
                "\xff<|tool_call>\xfe"
                "call:add{a:<|\"|>x<|\"",
                "|C:add|A:{\"a\":\"x");
}

static void test_no_calls(void) {
    static const char *const answers[] = {
        "<tool_call>\n{\"name\": \"unknown\", \"arguments\": {}}\n</tool_call>",
        "<tool_call>\n{\"name\": \"add\", \"arguments\": 1}\n</tool_call>",
        "a\n<tool_call>\n<tool_call> b",
        "<tool_call>\n{\"name\": \"ad",
        "<tool_call>\n{\"name\": \"add\", \"argu",
        "<tool_call>\n{\"name\": \"add\"}",
    };
    char want[200];
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        snprintf(want, sizeof want, "|T:%s", answers[i]);
        check(&hermes, TEXT, 3, answers[i], want);
    }
    check(&hermes, TEXT, 3,
          "<tool_call><tool_call>{\"name\": \"add\", \"arguments\": {}}</tool_call>",
          "|T:<tool_call>|C:add|A:{}");
    check(&llama, TEXT, 3, "So {\"name\": \"add\", \"parameters\": {}}",
          "|T:So {\"name\": \"add\", \"parameters\": {}}");
    check(&llama, TEXT, 3, "{\"name\": \"Ann\", \"parameters\": {}}",
          "|T:{\"name\": \"Ann\", \"parameters\": {}}");
}

/* An answer that ends early: no part of a mark is text, no argument is lost. */
static void test_cut_off(void) {
    check(&hermes, TEXT, 3, "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": [1, \"x",
          "|C:add|A:{\"a\": [1, \"x");
    check(&hermes, TEXT, 3, "<tool_call>\n{\"name\": \"add\", \"arguments\": {}}\n</tool",
          "|C:add|A:{}");
    check(&hermes, TEXT, 3, "<tool_call>\n{\"name\": \"add\", \"arguments\": {}", "|C:add|A:{}");
    check(&mistral, TEXT, 3,
          "\xff[TOOL_CALLS]\xfe[{\"name\": \"add\", \"arguments\": {}, \"id\": \"ab",
          "|C:add|A:{}");
    /* A call without arguments is not a call. */
    check(&hermes, TEXT, 3, "<tool_call>\n{\"name\": \"add\", \"arguments\": ",
          "|T:<tool_call>\n{\"name\": \"add\", \"arguments\": ");
    check(&mistral, TEXT, 3,
          "\xff[TOOL_CALLS]\xfe[{\"name\": \"add\", \"arguments\": {}}, {\"name\": \"add\", "
          "\"arguments\": ",
          "|C:add|A:{}|T:}, {\"name\": \"add\", \"arguments\": ");
    check(&harmony, OPEN, 3, " to=functions.add" C("channel") "commentary json" C("message"), "");
    check(&llama, TEXT, 3,
          "{\"name\": \"add\", \"parameters\": ", "|T:{\"name\": \"add\", \"parameters\": ");
    /* Anything beyond the mark is text. */
    check(&hermes, TEXT, 3,
          "<tool_call>\n{\"name\": \"add\", \"arguments\": {}, \"id\": 1}\n</tool_call>",
          "|C:add|A:{}|T:, \"id\": 1}\n</tool_call>");
}

/* A limit cuts the answer: incomplete marks are dropped; text that cannot be a mark is kept. */
static void test_limit(void) {
    check_limit(&hermes, TEXT, "So <tool_c", "|T:So");
    check_limit(&hermes, TEXT, "So <tool_x", "|T:So <tool_x");
    check_limit(&hermes, TEXT, "So \n", "|T:So \n");
    check_limit(&hermes, TEXT, "<tool_call>\n{\"name\": \"ad", "");
    check_limit(&hermes, TEXT, "<tool_call>\n{\"name\": \"nobody\"",
                "|T:<tool_call>\n{\"name\": \"nobody\"");
    check_limit(&hermes, TEXT, "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": \"<",
                "|C:add|A:{\"a\": \"<");
    check_limit(&hermes, TEXT,
                "<tool_call>\n{\"name\": \"add\", \"arguments\": {}}\n</tool_call>\n<tool_call>\n{",
                "|C:add|A:{}");
    check_limit(&hermes, OPEN, " <thi", "");
    check_limit(&hermes, OPEN, " \n", "|T: \n");
    check_limit(&hermes, INSIDE, "Why\n</th", "|R:Why");
    check_limit(&hermes, INSIDE, "Why\n", "|R:Why\n");
    check_limit(&llama, TEXT, "{\"name\": \"add\", \"par", "");
    check_limit(&llama, TEXT, "{\"name\": 1", "|T:{\"name\": 1");
    check_limit(
        &mistral, TEXT,
        "\xff[TOOL_CALLS]\xfe[{\"name\": \"add\", \"arguments\": {}, \"id\": \"abc123XYZ\"}, {",
        "|C:add|A:{}");
    check_limit(&harmony, OPEN, C("channel") "comm", "");
    check_limit(&harmony, OPEN, " to=func", "");
    check_limit(&harmony, OPEN, " to=functions.add" C("channel") "commentary json" C("message"),
                "");
    check_limit(&harmony, OPEN,
                C("channel") "analysis" C("message") "Hm." C("end")
                    C("start") "assistant" C("channel") "fin",
                "|R:Hm.");
    check_limit(&harmony, OPEN, "no header", "|T:no header");
}

static void test_state(void) {
    chat_parser *p = chat_parser_new(&(struct chat_parser_config){
        .syntax = &hermes, .begin = OPEN, .names = names, .n_names = 3});
    CHECK(chat_parser_state(p) == CHAT_PIECE_TEXT);
    CHECK(!chat_parser_text(p, "<think>", 7) && chat_parser_state(p) == CHAT_PIECE_REASONING);
    CHECK(!chat_parser_text(p, "</think>", 8) && chat_parser_state(p) == CHAT_PIECE_TEXT);
    static const char call[] = "<tool_call>{\"name\": \"add\", \"arguments\": {";
    CHECK(!chat_parser_text(p, call, sizeof call - 1));
    CHECK(chat_parser_state(p) == CHAT_PIECE_ARGUMENTS);
    chat_parser_free(p);
    chat_parser_free(NULL);
}

int main(void) {
    RUN(test_text);
    RUN(test_reasoning);
    RUN(test_calls);
    RUN(test_harmony);
    RUN(test_python);
    RUN(test_bare_objects);
    RUN(test_no_calls);
    RUN(test_cut_off);
    RUN(test_limit);
    RUN(test_state);
    return check_done();
}
