/* test_chat_syntax.c - the learned marks of calls and reasoning, and tools for templates without
 * tool support. In marks "{ID}" and "{N}" stand for the placeholders. */
#include "core/chat/syntax.h"
#include "tests/support/gguf_make.h"
#include "tests/unit/chat_golden.h"

#include <unistd.h>

static void shown(const char *mark, str *out) {
    for (; *mark; mark++) {
        if (*mark == CHAT_HOLE_ID)
            str_add(out, "{ID}");
        else if (*mark == CHAT_HOLE_INDEX)
            str_add(out, "{N}");
        else
            str_add_char(out, *mark);
    }
}

static const tokenizer *vocabulary; /* NULL: all is text */

static chat_template *learnt(const char *source) {
    chat_template *t = NULL;
    err e = {0};
    int rc = chat_template_new(source, "<BOS>", "<EOS>", &t, &e);
    if (!rc) rc = chat_template_probe(t, &e);
    if (!rc) rc = chat_template_learn(t, vocabulary, &e);
    CHECK_MSG(rc == 0, "%s", e.msg);
    return t;
}

/* native: section, call, arguments, close, between, section's end; NULL: instructed. */
static void check_syntax(const char *name, const char *source, const char *native,
                         const char *reasoning) {
    chat_template *t = learnt(source);
    const struct chat_syntax *x = chat_template_syntax(t);
    str got;
    str_init(&got, 4096);
    const char *const marks[] = {x->section_open, x->call_open, x->arguments_open,
                                 x->call_close,   x->between,   x->section_close};
    for (int i = 0; i < 6; i++) {
        if (i) str_add_char(&got, '~');
        shown(marks[i], &got);
    }
    CHECK_MSG(x->native == (native != NULL), "%s: native %d", name, x->native);
    if (native) CHECK_MSG(strcmp(str_cstr(&got), native) == 0, "%s: %s", name, str_cstr(&got));
    str_clear(&got);
    if (*x->reasoning_open) {
        shown(x->reasoning_open, &got);
        str_add_char(&got, '~');
        shown(x->reasoning_close, &got);
    }
    CHECK_MSG(strcmp(str_cstr(&got), reasoning) == 0, "%s: %s", name, str_cstr(&got));
    str_fini(&got);
    chat_template_free(t);
}

#define HERMES "~<tool_call>\n{\"name\": \"~\", \"arguments\": ~}\n</tool_call>~\n~"
#define LLAMA  "~{\"name\": \"~\", \"parameters\": ~}~~"
#define THINK  "<think>~</think>"
#define KIMI                                                                                       \
    "<|tool_calls_section_begin|>~<|tool_call_begin|>functions.~:{N}<|tool_call_argument_begin|>~" \
    "<|tool_call_end|>~~<|tool_calls_section_end|>"

static void test_shared_templates(void) {
    static const struct {
        const char *name, *native, *reasoning;
    } rows[] = {
        {"Apertus-8B-Instruct", "<|tools_prefix|>[~{\"~\": ~}~, ~]<|tools_suffix|>",
         "<|inner_prefix|>~<|inner_suffix|>"},
        {"Bielik-11B-v3.0-Instruct", HERMES, THINK},
        {"Cohere2MoE",
         "<|START_ACTION|>[~\n    {\"tool_call_id\": \"{N}\", \"tool_name\": \"~\", "
         "\"parameters\": ~}~,~\n]<|END_ACTION|>",
         "<|START_THINKING|>~<|END_THINKING|>"},
        {"GLM-4.6", NULL, THINK},
        {"Kimi-K2-Instruct", KIMI, ""},
        {"MiniMax-M1", "<tool_calls>~\n{\"name\": \"~\", \"arguments\": ~}~~\n</tool_calls>", ""},
        {"MiniMax-M2", NULL, THINK},
        {"Mistral-Small-3.2-24B-Instruct-2506", "~[TOOL_CALLS]~[CALL_ID]{ID}[ARGS]~~~", ""},
        {"mistralai-Mistral-Nemo-Instruct-2407",
         "[TOOL_CALLS][~{\"name\": \"~\", \"arguments\": ~, \"id\": \"{ID}\"}~, ~]", ""},
        {"unsloth-mistral-Devstral-Small-2507", "~[TOOL_CALLS]~[ARGS]~~~", ""},
        {"NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use", HERMES, ""},
        {"NousResearch-Hermes-3-Llama-3.1-8B-tool_use", HERMES, ""},
        {"Qwen-QwQ-32B", HERMES, THINK},
        {"Qwen-Qwen2.5-7B-Instruct", HERMES, ""},
        {"Qwen-Qwen3-0.6B", HERMES, THINK},
        {"ibm-granite-granite-4.0", HERMES, ""},
        {"deepseek-ai-DeepSeek-R1-Distill-Llama-8B", NULL, THINK},
        {"google-gemma-2-2b-it", NULL, ""},
        {"google-gemma-4-31B-it", "~<|tool_call>call:~~<tool_call|>~~",
         "<|channel>thought~<channel|>"},
        {"LFM2-8B-A1B", NULL, ""}, /* shows tools, but no calls: test_unshown_calls */
        {"LFM2.5-Instruct", NULL, THINK},
        {"meta-llama-Llama-3.1-8B-Instruct", LLAMA, ""},
        {"meta-llama-Llama-3.3-70B-Instruct", LLAMA, ""},
        {"microsoft-Phi-3.5-mini-instruct", NULL, ""},
        {"moonshotai-Kimi-K2", KIMI, ""},
        {"unsloth-Apriel-1.5",
         "<tool_calls>[~{\"name\": \"~\", \"arguments\": ~, \"id\": \"{ID}\"}~, ~]</tool_calls>",
         ""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *source = read_in(SHARED, "templates", rows[i].name, ".jinja");
        CHECK_MSG(source != NULL, "%s", rows[i].name);
        if (source) check_syntax(rows[i].name, source, rows[i].native, rows[i].reasoning);
        free(source);
    }
}

#define TURNS_BEFORE                                                                               \
    "{{ tools | tojson }}{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% for c in "       \
    "m.tool_calls or [] %}"
#define TURNS_AFTER                                                                                \
    "{% endfor %}{{ eos_token }}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif "  \
    "%}"
#define F "c.function."

#define LISTED(open, close)                                                                        \
    "{{ tools | tojson }}{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% if "             \
    "m.tool_calls %}" open "[{% for c in m.tool_calls %}{{ " F "name }}({% for k, v in " F         \
    "arguments.items() %}{{ k }}={{ v | tojson }}{{ ', ' if not loop.last }}{% endfor %})"         \
    "{{ ', ' if not loop.last }}{% endfor %}]" close "{% endif %}{{ eos_token }}{% endfor %}"

static void test_forms(void) {
    check_syntax("tags",
                 TURNS_BEFORE "<call>{{ " F "name }}:{{ " F "arguments }}</call>" TURNS_AFTER,
                 "~<call>~:~</call>~~", "");
    check_syntax("array",
                 "{{ tools | tojson }}{% for m in messages %}<|{{ m.role }}|>{{ m.content }}"
                 "{% if m.tool_calls %}CALLS [{% for c in m.tool_calls %}{\"f\": \"{{ " F
                 "name }}\", \"a\": {{ " F "arguments }}}{{ ', ' if not loop.last }}{% endfor %}]"
                 "{% endif %}{{ eos_token }}{% endfor %}",
                 "CALLS [~{\"f\": \"~\", \"a\": ~}~, ~]", "");
    /* Calls as in Python: in a list with tags (LFM2), and without. */
    check_syntax("python", LISTED("<|tool_call_start|>", "<|tool_call_end|>"),
                 "<|tool_call_start|>[~~(~)~, ~] <|tool_call_end|>", "");
    check_syntax("python, no tags", LISTED("", ""), NULL, "");
    /* Not as JSON; without the tools; with an extra brace. */
    check_syntax("no JSON",
                 TURNS_BEFORE "<call>{{ " F "name }}{% for k, v in " F
                              "arguments.items() %}{{ k }}={{ v }}{% endfor %}" TURNS_AFTER,
                 NULL, "");
    check_syntax("no tools",
                 "{% for m in messages %}{{ m.role }}{{ m.content }}{% for c in "
                 "m.tool_calls or [] %}<call>{{ " F "name }}:{{ " F "arguments }}" TURNS_AFTER,
                 NULL, "");
    check_syntax("brace",
                 TURNS_BEFORE "<c>{{ " F "name }}{{ '{' ~ " F "arguments ~ '}' }}" TURNS_AFTER,
                 NULL, "");
    check_syntax("plain", "{% for m in messages %}{{ m.content }}{% endfor %}", NULL, "");
    check_syntax("empty", "", NULL, "");
}

static void test_reasoning_member(void) {
    static const char *const members[] = {"reasoning_content", "reasoning", "thinking"};
    char source[256];
    for (size_t i = 0; i < 3; i++) {
        snprintf(source, sizeof source,
                 "{%% for m in messages %%}<|{{ m.role }}|>{%% if m.%s %%}<why>{{ m.%s }}</why>"
                 "{%% endif %%}{{ m.content }}{%% endfor %%}",
                 members[i], members[i]);
        check_syntax(members[i], source, NULL, "<why>~</why>");
        chat_template *t = learnt(source);
        CHECK_STR(chat_template_syntax(t)->reasoning_member, members[i]);
        chat_template_free(t);
    }
}

static void test_begin(void) {
    static const struct chat_syntax x = {.reasoning_open = "\xff[THINK]\xfe",
                                         .reasoning_close = "\xff[/THINK]\xfe"},
                                    none = {0};
    CHECK(chat_syntax_begin(&x, "a[THINK]\n", 9) == CHAT_BEGIN_REASONING);
    CHECK(chat_syntax_begin(&x, "a[THINK]b[/THINK]\n\n", 19) == CHAT_BEGIN_TEXT);
    CHECK(chat_syntax_begin(&x, "[THINK]b", 8) == CHAT_BEGIN_OPEN);
    CHECK(chat_syntax_begin(&x, "", 0) == CHAT_BEGIN_OPEN);
    CHECK(chat_syntax_begin(&none, "a", 1) == CHAT_BEGIN_TEXT);
}

static void check_instructed(const char *source, const char *messages, const char *want) {
    chat_template *t = learnt(source);
    cJSON *list = cJSON_Parse(messages);
    cJSON *tools = cJSON_Parse("[{\"type\":\"function\",\"function\":{\"name\":\"add\"}}]");
    struct chat_output out = {0};
    err e = {0};
    CHECK(list && chat_instruct(t, list, tools, &e) == 0);
    CHECK_MSG(chat_prompt(t, &(struct chat_input){.messages = list}, MAX_BYTES, &out, &e) == 0,
              "%s", e.msg);
    CHECK_STR(out.text, want);
    chat_output_fini(&out);
    cJSON_Delete(list);
    cJSON_Delete(tools);
    chat_template_free(t);
}

#define LIST                                                                                       \
    "You may call these functions:\n<tools>\n{\"name\":\"add\"}\n</tools>\n\nTo call a function, " \
    "answer with its name and its arguments in this form, once for each call:\n<tool_call>\n"      \
    "{\"name\": \"NAME\", \"arguments\": {\"ARGUMENT\": VALUE}}\n</tool_call>"
#define PLAIN "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
#define NO_SYSTEM                                                                                  \
    "{% if messages[0].role == 'system' %}{{ raise_exception('no') }}{% endif %}" PLAIN

static void test_instruct(void) {
    check_instructed(PLAIN, "[{\"role\":\"user\",\"content\":\"Hi\"}]", "[system]" LIST "[user]Hi");
    check_instructed(PLAIN,
                     "[{\"role\":\"system\",\"content\":\"Be.\"},{\"role\":\"user\",\"content\":"
                     "\"Hi\"}]",
                     "[system]Be.\n\n" LIST "[user]Hi");
    check_instructed(NO_SYSTEM, "[{\"role\":\"user\",\"content\":\"Hi\"}]", "[user]" LIST "\n\nHi");
    check_instructed(
        PLAIN,
        "[{\"role\":\"user\",\"content\":\"Hi\"},{\"role\":\"assistant\",\"content\":\"So\","
        "\"tool_calls\":[{\"id\":\"1\",\"type\":\"function\",\"function\":{\"name\":\"add\","
        "\"arguments\":\"{\\\"a\\\": 1}\"}},{\"id\":\"2\",\"type\":\"function\",\"function\":{"
        "\"name\":\"add\",\"arguments\":\"\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"1\","
        "\"content\":\"A\"},{\"role\":\"tool\",\"tool_call_id\":\"2\",\"content\":[{\"type\":"
        "\"text\",\"text\":\"B\"}]},{\"role\":\"user\",\"content\":\"Well?\"}]",
        "[system]" LIST "[user]Hi[assistant]So\n<tool_call>\n{\"name\": \"add\", \"arguments\": "
        "{\"a\": 1}}\n</tool_call>\n<tool_call>\n{\"name\": \"add\", \"arguments\": {}}\n"
        "</tool_call>[user]<tool_response>\nA\n</tool_response>\n<tool_response>\nB\n"
        "</tool_response>[user]Well?");
}

/* ---- calls that a template does not show: LFM2 ---- */

/* A vocabulary of LFM2's control tokens; calls: also those around calls. */
static tokenizer *lfm2_vocabulary(bool calls) {
    enum { CONTROL = 3, UNKNOWN = 2 };
    const struct gguf_make_token tokens[] = {{"<unk>", 0, UNKNOWN},
                                             {"<s>", 0, CONTROL},
                                             {"</s>", 0, CONTROL},
                                             {"<|im_start|>", 0, CONTROL},
                                             {"<|im_end|>", 0, CONTROL},
                                             {"<|tool_list_start|>", 0, CONTROL},
                                             {"<|tool_list_end|>", 0, CONTROL},
                                             {"<|tool_response_start|>", 0, CONTROL},
                                             {"<|tool_response_end|>", 0, CONTROL},
                                             {"<|tool_call_start|>", 0, calls ? CONTROL : 1},
                                             {"<|tool_call_end|>", 0, calls ? CONTROL : 1}};
    char path[] = "/tmp/inferd-lfm2-XXXXXX";
    tokenizer *t = NULL;
    err e = {0};
    const int fd = mkstemp(path);
    CHECK(fd >= 0);
    close(fd);
    int rc = gguf_make_vocab(path,
                             &(struct gguf_make_vocab){.tokens = tokens,
                                                       .n_tokens = sizeof tokens / sizeof *tokens,
                                                       .with_bytes = true},
                             &e);
    if (!rc) rc = tokenizer_open(path, &t, &e);
    CHECK_MSG(rc == 0, "%s", e.msg);
    unlink(path);
    return t;
}

/* What a template makes of messages with calls; the caller frees it. trusted: what the template
 * wrote, "|" for each run of other text. */
static char *render_calls(const chat_template *t, const char *messages, const char *tools,
                          bool carry_on, str *trusted) {
    const struct chat_syntax *x = chat_template_syntax(t);
    cJSON *list = NULL, *functions = NULL;
    struct chat_output out = {0};
    err e = {0};
    CHECK(chat_json_parse(messages, strlen(messages), &list, &e) == 0 &&
          chat_json_parse(tools, strlen(tools), &functions, &e) == 0);
    CHECK(chat_write_calls(x, list, &e) == 0);
    const struct chat_input in = {.messages = list,
                                  .tools = functions,
                                  .add_generation_prompt = !carry_on,
                                  .continue_final_message = carry_on};
    CHECK_MSG(chat_prompt(t, &in, MAX_BYTES, &out, &e) == 0, "%s", e.msg);
    CHECK(spans_cover(&out));
    for (size_t i = 0; trusted && i < out.n_spans; i++) {
        const struct chat_span *s = &out.spans[i];
        if (s->trusted)
            str_add_n(trusted, out.text + s->start, s->end - s->start);
        else
            str_add_char(trusted, '|');
    }
    char *text = mem_strndup(out.text ? out.text : "", out.n);
    chat_output_fini(&out);
    cJSON_Delete(list), cJSON_Delete(functions);
    return text;
}

#define STATUS                                                                                     \
    "{\"name\": \"get_candidate_status\", \"description\": \"Retrieves the current status of a "   \
    "candidate in the recruitment process\", \"parameters\": {\"type\": \"object\", "              \
    "\"properties\": {\"candidate_id\": {\"type\": \"string\", \"description\": \"Unique "         \
    "identifier for the candidate\"}}, \"required\": [\"candidate_id\"]}}"
#define INTERVIEW                                                                                  \
    "{\"candidate_id\": \"12345\", \"status\": \"Interview Scheduled\", \"position\": "            \
    "\"Clinical Research Associate\", \"date\": \"2023-11-20\"}"
#define ASK "{\"role\":\"user\",\"content\":\"What is the current status of candidate ID 12345?\"}"
#define ASKED                                                                                      \
    "<|im_start|>user\nWhat is the current status of candidate ID 12345?<|im_end|>\n"              \
    "<|im_start|>assistant\n"
#define CALLED(name, arguments)                                                                    \
    "{\"id\":\"1\",\"type\":\"function\",\"function\":{\"name\":\"" name                           \
    "\",\"arguments\":" arguments "}}"

/* The conversation of Liquid AI's model cards (LFM2-8B-A1B, LFM2.5-1.2B-Instruct). */
static void check_card(const char *name, const char *list_open, const char *list_close,
                       const char *open, const char *close) {
    static const char messages[] =
        "[" ASK ",{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[" CALLED(
            "get_candidate_status",
            "\"{\\\"candidate_id\\\":\\\"12345\\\"}\"") "]},{\"role\":\"tool\",\"tool_call_id\":"
                                                        "\"1\",\"content\":%s}]";
    char all[4096], want[4096];
    cJSON *quoted = cJSON_CreateString(INTERVIEW);
    char *result = cJSON_PrintUnformatted(quoted);
    snprintf(all, sizeof all, messages, result);
    snprintf(want, sizeof want,
             "<BOS><|im_start|>system\nList of tools: %s[" STATUS "]%s<|im_end|>\n" ASKED
             "<|tool_call_start|>[get_candidate_status(candidate_id=\"12345\")]<|tool_call_end|>"
             "<|im_end|>\n<|im_start|>tool\n%s" INTERVIEW "%s<|im_end|>\n<|im_start|>assistant\n",
             list_open, list_close, open, close);
    char *source = read_in(SHARED, "templates", name, ".jinja");
    CHECK_MSG(source != NULL, "%s", name);
    chat_template *t = learnt(source ? source : "");
    char *got = render_calls(t, all, "[" STATUS "]", false, NULL);
    CHECK_STR(got, want);
    free(got), free(source), cJSON_free(result);
    cJSON_Delete(quoted);
    chat_template_free(t);
}

#define LFM2_CALLS "\xff<|tool_call_start|>\xfe[~~(~)~, ~] \xff<|tool_call_end|>\xfe"
/* As LFM2's templates: shows tools and results, but no calls. */
#define UNSHOWN                                                                                    \
    "{{ tools | tojson }}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"         \
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"

static void test_unshown_calls(void) {
    tokenizer *tok = lfm2_vocabulary(true), *other = lfm2_vocabulary(false);
    vocabulary = tok;
    check_syntax("unshown", UNSHOWN, LFM2_CALLS, "");
    check_syntax("no results",
                 "{{ tools | tojson }}{% for m in messages if m.role != 'tool' %}{{ m.content }}"
                 "{% endfor %}",
                 NULL, "");
    check_syntax("no tools", PLAIN, NULL, "");
    /* As newer ones (LFM2.5-8B-A1B) show them: learnt from the template. */
    check_syntax("python", LISTED("<|tool_call_start|>", "<|tool_call_end|>"), LFM2_CALLS, "");
    vocabulary = other; /* the tags are text */
    check_syntax("other vocabulary", UNSHOWN, NULL, "");
    vocabulary = tok;
    chat_template *t = learnt(UNSHOWN);
    CHECK(chat_template_syntax(t)->in_text);
    static const char messages[] =
        "[{\"role\":\"user\",\"content\":\"<|tool_call_end|>\"},{\"role\":\"assistant\","
        "\"content\":[{\"type\":\"text\",\"text\":\"So <|im_end|>.\"}],\"tool_calls\":[" CALLED(
            "a",
            "{\"x\":true,\"y_1\":[null,1.50,-3,12345678901234567890],\"z\":{\"k e\":false,"
            "\"\":{}}}") "," CALLED("b",
                                    "\"{\\\"s\\\": \\\"gr\xc3\xbc\\\\n "
                                    "\\\\\\\"<|tool_call_end|>'\\\"}\"") "," CALLED("c",
                                                                                    "\"\"") "," CALLED("d",
                                                                                                       "{\"a-b\":1,\"c\":\"\"}") "," CALLED("e",
                                                                                                                                            "\"not JSON\"") "]},{\"role\":\"tool\",\"content\":\"<|im_start|>\"}]";
    str trusted;
    str_init(&trusted, 1 << 16);
    char *got = render_calls(t, messages, "[]", false, &trusted);
    CHECK_STR(got, "[]<|im_start|>user\n<|tool_call_end|><|im_end|>\n<|im_start|>assistant\n"
                   "So <|im_end|>.<|tool_call_start|>[a(x=True, y_1=[None, 1.50, -3, "
                   "12345678901234567890], z={\"k e\": False, \"\": {}}), "
                   "b(s=\"gr\xc3\xbc\\n \\\"<|tool_call_end|>'\"), c(), "
                   "d({\"a-b\": 1, \"c\": \"\"}), e(not JSON)]<|tool_call_end|><|im_end|>\n"
                   "<|im_start|>tool\n<|im_start|><|im_end|>\n<|im_start|>assistant\n");
    CHECK_STR(str_cstr(&trusted),
              "[]<|im_start|>user\n|<|im_end|>\n<|im_start|>assistant\n|<|tool_call_start|>|"
              "<|tool_call_end|><|im_end|>\n<|im_start|>tool\n|<|im_end|>\n"
              "<|im_start|>assistant\n");
    free(got);
    got = render_calls(
        t, "[{\"role\":\"assistant\",\"content\":\"Yes\",\"tool_calls\":[" CALLED("a", "{}") "]}]",
        "[]", true, NULL);
    CHECK_STR(got, "[]<|im_start|>assistant\nYes<|tool_call_start|>[a()]<|tool_call_end|>");
    free(got);
    chat_template_free(t);
    str_fini(&trusted);
    if (access(SHARED "/templates", R_OK) == 0) {
        static const char *const names[] = {"LFM2-8B-A1B", "LFM2.5-Instruct"};
        for (int i = 0; i < 2; i++) {
            char *source = read_in(SHARED, "templates", names[i], ".jinja");
            if (source) check_syntax(names[i], source, LFM2_CALLS, i ? THINK : "");
            free(source);
        }
        check_card(names[0], "<|tool_list_start|>", "<|tool_list_end|>", "<|tool_response_start|>",
                   "<|tool_response_end|>");
        check_card(names[1], "", "", "", "");
    }
    vocabulary = NULL;
    tokenizer_close(tok), tokenizer_close(other);
}

/* A template that only loops must be abandoned after a bounded time. */
static void test_bounded(void) {
    check_syntax("loop",
                 "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
                 NULL, "");
}

int main(void) {
    RUN(test_forms);
    RUN(test_reasoning_member);
    RUN(test_begin);
    RUN(test_instruct);
    RUN(test_unshown_calls);
    RUN(test_bounded);
    if (access(SHARED "/templates", R_OK) == 0)
        RUN(test_shared_templates);
    else
        SKIP("test_shared_templates", "no " SHARED);
    return check_done();
}
