/* test_chat_builtin.c - the built-in formats against golden renderings of other templates for the
 * same formats, and against their makers' examples. */
#include "chat_golden.h"

/* Prompt of the built-in format; the caller frees. NULL with the reason in e. */
static char *prompt(const char *format, struct chat_input in, err *e) {
    const char *source = chat_builtin_source(format);
    chat_template *t = NULL;
    struct chat_output out = {0};
    memset(e, 0, sizeof *e);
    CHECK_MSG(source != NULL, "%s", format);
    int rc = source ? chat_template_new(source, "<s>", "</s>", &t, e) : -1;
    if (!rc) rc = chat_template_probe(t, e);
    if (!rc) rc = chat_prompt(t, &in, MAX_BYTES, &out, e);
    char *text = rc ? NULL : mem_strdup(out.text);
    chat_output_fini(&out);
    chat_template_free(t);
    return text;
}

static void test_like_goldens(void) {
    static const struct {
        const char *format, *dir, *template, *cases; /* cases that the two formats share */
    } rows[] = {
        {"chatml", LOCAL, "own-chatml",
         "system_user_gen multi_turn_gen unicode special_tokens_in_content whitespace "
         "two_users_in_a_row"},
        {"zephyr", LOCAL, "own-zephyr", "unicode special_tokens_in_content"},
        {"llama2", LOCAL, "own-llama2",
         "system_user_gen multi_turn_gen unicode special_tokens_in_content whitespace"},
        {"gemma", LOCAL, "own-turns", "documents"},
        {"phi3", LOCAL, "microsoft-Phi-3.5-mini-instruct",
         "system_user_gen multi_turn_gen unicode special_tokens_in_content whitespace "
         "two_users_in_a_row"},
        {"mistral-tekken", LOCAL, "mistralai-Mistral-Nemo-Instruct-2407", "system_user_gen"},
        {"mistral-tekken", SHARED, "mistralai-Mistral-Nemo-Instruct-2407",
         "system_user_gen user_only_gen multi_turn_nogen"},
        {"gemma", SHARED, "google-gemma-2-2b-it", "user_only_gen multi_turn_nogen"},
        {"chatml", SHARED, "Qwen-Qwen2.5-7B-Instruct", "system_user_gen multi_turn_gen"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *text = read_in(rows[i].dir, ".", "cases", ".json");
        cJSON *all = NULL;
        const cJSON *one;
        int n_equal = 0, n_wanted = 1;
        if (!text) {
            SKIP(rows[i].template, "no " SHARED);
            continue;
        }
        CHECK(chat_json_parse(text, strlen(text), &all, NULL) == 0);
        for (const char *p = rows[i].cases; (p = strchr(p, ' ')); p++)
            n_wanted++;
        cJSON_ArrayForEach(one, cJSON_GetObjectItem(all, "cases")) {
            const char *name = text_of(one, "name"), *at = strstr(rows[i].cases, name);
            if (!at || (at[strlen(name)] != ' ' && at[strlen(name)])) continue;
            struct chat_input in = golden_input(one);
            struct golden want = golden_read(rows[i].dir, rows[i].template, name, ".txt");
            err e;
            char *got = prompt(rows[i].format, in, &e);
            bool same = got && want.text && strcmp(got, want.text) == 0;
            CHECK_MSG(same, "%s %s: %s\n--- got\n%s\n--- want\n%s", rows[i].format, name, e.msg,
                      got ? got : "", want.text ? want.text : "");
            n_equal += same;
            golden_free(&want);
            free(got);
        }
        CHECK_MSG(n_equal == n_wanted, "%s: %d of %d", rows[i].template, n_equal, n_wanted);
        cJSON_Delete(all);
        free(text);
    }
}

#define TURNS                                                                                      \
    "[{\"role\":\"system\",\"content\":\"Sys.\"},{\"role\":\"user\",\"content\":\"Hi\"},"          \
    "{\"role\":\"assistant\",\"content\":\"Yes?\"},{\"role\":\"user\",\"content\":\"Bye\"}]"

static void test_examples(void) {
    static const struct {
        const char *format, *want;
    } rows[] = {
        {"llama3", "<s><|start_header_id|>system<|end_header_id|>\n\nSys.<|eot_id|>"
                   "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
                   "<|start_header_id|>assistant<|end_header_id|>\n\nYes?<|eot_id|>"
                   "<|start_header_id|>user<|end_header_id|>\n\nBye<|eot_id|>"
                   "<|start_header_id|>assistant<|end_header_id|>\n\n"},
        {"chatml", "<|im_start|>system\nSys.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
                   "<|im_start|>assistant\nYes?<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n"
                   "<|im_start|>assistant\n"},
        {"gemma", "<s><start_of_turn>user\nSys.\n\nHi<end_of_turn>\n<start_of_turn>model\n"
                  "Yes?<end_of_turn>\n<start_of_turn>user\nBye<end_of_turn>\n"
                  "<start_of_turn>model\n"},
        {"phi3", "<|system|>\nSys.<|end|>\n<|user|>\nHi<|end|>\n<|assistant|>\nYes?<|end|>\n"
                 "<|user|>\nBye<|end|>\n<|assistant|>\n"},
        {"zephyr", "<|system|>\nSys.</s>\n<|user|>\nHi</s>\n<|assistant|>\nYes?</s>\n"
                   "<|user|>\nBye</s>\n<|assistant|>\n"},
        {"mistral", "<s>[INST] Sys.\n\nHi[/INST] Yes?</s>[INST] Bye[/INST]"},
        {"mistral-tekken", "<s>[INST]Sys.\n\nHi[/INST]Yes?</s>[INST]Bye[/INST]"},
        {"llama2",
         "<s>[INST] <<SYS>>\nSys.\n<</SYS>>\n\nHi [/INST] Yes? </s><s>[INST] Bye [/INST]"},
        {"vicuna", "<s>Sys. USER: Hi ASSISTANT: Yes?</s>USER: Bye ASSISTANT:"},
        {"alpaca", "<s>Sys.\n\n### Instruction:\nHi\n\n### Response:\nYes?</s>\n\n"
                   "### Instruction:\nBye\n\n### Response:\n"},
    };
    cJSON *m = cJSON_Parse(TURNS);
    size_t n = 0;
    for (; n < sizeof rows / sizeof *rows; n++) {
        err e;
        char *got = prompt(rows[n].format,
                           (struct chat_input){.messages = m, .add_generation_prompt = true}, &e);
        CHECK_MSG(got != NULL, "%s: %s", rows[n].format, e.msg);
        CHECK_STR(got ? got : "", rows[n].want);
        free(got);
    }
    CHECK(chat_builtin_name((int)n) == NULL && chat_builtin_name((int)n - 1) != NULL);
    CHECK(chat_builtin_source("none") == NULL && chat_builtin_name(-1) == NULL);
    cJSON_Delete(m);
}

/* None supports tools: they must be refused, not ignored. */
static void test_tools_are_refused(void) {
    cJSON *m = cJSON_Parse("[{\"role\":\"user\",\"content\":\"a\"},"
                           "{\"role\":\"tool\",\"tool_call_id\":\"1\",\"content\":\"b\"}]");
    const char *name;
    for (int i = 0; (name = chat_builtin_name(i)); i++) {
        err e;
        char *got = prompt(name, (struct chat_input){.messages = m}, &e);
        CHECK_MSG(!got && strstr(e.msg, "does not support tools"), "%s: %s", name, e.msg);
        free(got);
    }
    cJSON_Delete(m);
}

int main(void) {
    RUN(test_like_goldens);
    RUN(test_examples);
    RUN(test_tools_are_refused);
    return check_done();
}
