/* test_api_chat.c - fields of a chat request reach the template, errors of the template reach the
 * client: over sockets, one engine with a tiny model and several templates. */
#include "api_server.h"

/* Puts its input into an error. */
static const char telling[] =
    "{% set given = [enable_thinking, documents, add_generation_prompt, reasoning_effort] %}\n"
    "{{ raise_exception(given | tojson) }}";

static const char strict[] = "{% for m in messages %}{{ m.role }}\n{{ m.lost.member }}{% endfor %}";

static chat_template *compiled(const char *source) {
    chat_template *t = NULL;
    err e = {0};
    CHECK_MSG(chat_template_new(source, "", "", &t, &e) == 0 && chat_template_probe(t, &e) == 0,
              "%s", e.msg);
    return t;
}

/* Posts body to the model; the caller deletes. */
static cJSON *ask(const char *to, const char *members, int status) {
    struct answer a;
    str body;
    str_init(&body, 1 << 20);
    str_addf(&body, "{\"model\":\"%s\",\"max_tokens\":1,%s}", to, members);
    client_post("/v1/chat/completions", str_cstr(&body), &a);
    CHECK_MSG(a.status == status && a.complete, "%s: %d %s", str_cstr(&body), a.status,
              str_cstr(&a.body));
    cJSON *v = cJSON_Parse(str_cstr(&a.body));
    CHECK(v != NULL);
    answer_fini(&a);
    str_fini(&body);
    return v;
}

static int prompt_tokens(const char *members) {
    cJSON *v = ask("tiny", members, 200);
    int n = int_at(v, "usage.prompt_tokens");
    cJSON_Delete(v);
    return n;
}

static void refused(const char *to, const char *members, const char *param, const char *text) {
    cJSON *v = ask(to, members, 400);
    CHECK_STR(text_at(v, "error.param"), param);
    CHECK_MSG(strstr(text_at(v, "error.message"), text) != NULL, "%s: %s", members,
              text_at(v, "error.message"));
    cJSON_Delete(v);
}

#define HI "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"

static void fields_reach_the_template(void) {
    refused("telling",
            HI
            ",\"chat_template_kwargs\":{\"enable_thinking\":false},\"reasoning_effort\":\"high\","
            "\"documents\":[{\"n\":1.0,\"text\":\"x\"}]",
            "messages",
            "The chat template refuses the messages (line 2): [false, [{\"n\": 1.0, \"text\": "
            "\"x\"}], true, \"high\"]");
    refused("telling",
            HI ",\"chat_template_kwargs\":{\"enable_thinking\":[],\"reasoning_effort\":\"low\"},"
               "\"reasoning_effort\":\"high\",\"documents\":[],\"add_generation_prompt\":false",
            "messages", "(line 2): [[], [], false, \"low\"]");
    refused("telling",
            HI ",\"chat_template_kwargs\":{\"enable_thinking\":1},\"reasoning_effort\":\"low\","
               "\"continue_final_message\":true",
            "messages", "(line 2): [1, null, false, \"low\"]");
}

static void failures_reach_the_client(void) {
    refused("strict", HI, "messages",
            "The chat template fails on the messages (line 2): 'dict object' has no attribute "
            "'lost'");
    refused("none", HI, "model", "has no chat template: use /v1/completions");
}

static void wrong_fields_are_named(void) {
    str many;
    str_init(&many, 1 << 20);
    str_add(&many, HI ",\"chat_template_kwargs\":{");
    for (int i = 0; i < 65; i++)
        str_addf(&many, "%s\"k%d\":0", i ? "," : "", i);
    str_add_char(&many, '}');
    refused("tiny", str_cstr(&many), "chat_template_kwargs", "at most 64");
    str_fini(&many);
    refused("tiny", HI ",\"chat_template_kwargs\":[]", "chat_template_kwargs", "an object");
    refused("tiny", HI ",\"chat_template_kwargs\":{\"messages\":[]}", "chat_template_kwargs",
            "'messages' cannot be set");
    refused("tiny", HI ",\"documents\":{}", "documents", "an array");
    refused("tiny", HI ",\"documents\":[{},\"x\"]", "documents[1]", "an object");
    cJSON_Delete(ask("tiny", HI ",\"reasoning_effort\":\"low\"", 200)); /* ignored */
    refused("telling", HI ",\"reasoning_effort\":\"a very long word for an effort of thoughts\"",
            "reasoning_effort", "too long");
    refused("tiny", HI ",\"continue_final_message\":true,\"add_generation_prompt\":true",
            "continue_final_message", "set only one");
    refused("tiny", HI ",\"continue_final_message\":1", "continue_final_message", "a boolean");
}

/* The tiny template adds strings: <|role|>, content, <|end|>, and <|assistant|> at the end. */
static void prompts_end_as_requested(void) {
#define TWO_TURNS                                                                                  \
    "\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":"     \
    "\"b\"}]"
    int whole = prompt_tokens(TWO_TURNS);
    CHECK(prompt_tokens(TWO_TURNS ",\"add_generation_prompt\":true") == whole);
    CHECK(prompt_tokens(TWO_TURNS ",\"add_generation_prompt\":null") == whole);
    CHECK(prompt_tokens(TWO_TURNS ",\"add_generation_prompt\":false") == whole - 1);
    CHECK(prompt_tokens(TWO_TURNS ",\"continue_final_message\":true") == whole - 2);
    CHECK(prompt_tokens(TWO_TURNS ",\"continue_final_message\":true,\"add_generation_prompt\":"
                                  "false") == whole - 2);
}

static void messages_get_the_form_of_the_template(void) {
    int n = prompt_tokens("\"messages\":[{\"role\":\"user\",\"content\":\"a\\nb\"}]");
    CHECK(prompt_tokens("\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\","
                        "\"text\":\"a\"},{\"type\":\"text\",\"text\":\"b\"}]}]") == n);
    n = prompt_tokens("\"messages\":[{\"role\":\"system\",\"content\":\"a\"}]");
    CHECK(prompt_tokens("\"messages\":[{\"role\":\"developer\",\"content\":\"a\"}]") == n);
    CHECK(prompt_tokens("\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":"
                        "\"assistant\",\"content\":\"b\",\"tool_calls\":[{\"id\":\"c\",\"type\":"
                        "\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]}]") > n);
}

int main(void) {
    if (!set_up()) return 1;
    struct api_config c = base_config();
    start_server(&c);
    chat_template *tell = compiled(telling), *fail = compiled(strict);
    const struct api_model models[] = {{"tiny", NULL, 0, en, chat, 0, NULL, 0},
                                       {"telling", NULL, 0, en, tell, 0, NULL, 0},
                                       {"strict", NULL, 0, en, fail, 0, NULL, 0},
                                       {"none", NULL, 0, en, NULL, 0, NULL, 0}};
    err e = {0};
    CHECK(api_set_models(server, models, sizeof models / sizeof *models, &e) == 0);
    RUN(fields_reach_the_template);
    RUN(failures_reach_the_client);
    RUN(wrong_fields_are_named);
    RUN(prompts_end_as_requested);
    RUN(messages_get_the_form_of_the_template);
    stop_server();
    chat_template_free(tell);
    chat_template_free(fail);
    return tear_down();
}
