/* test_api_tools.c - a request's tools and response formats as parsed, and the answers that their
 * grammar accepts, byte by byte. */
#include "api/generate/api_state.h"
#include "api/generate/chat_body.h"
#include "api/generate/constraint.h"
#include "api/generate/structured.h"
#include "api/generate/tools.h"
#include "api/http/request.h"
#include "core/base/mem.h"
#include "tests/unit/check.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

enum { N_BYTES = 256, TOKEN_END = 256, TOKEN_CALLS, N_VOCAB };

static void token_of(const void *arg, int32_t id, struct grammar_token *out) {
    static char bytes[N_BYTES];
    (void)arg;
    if (id < N_BYTES) {
        bytes[id] = (char)id;
        *out = (struct grammar_token){GRAMMAR_TOKEN_TEXT, &bytes[id], 1};
    } else if (id == TOKEN_END) {
        *out = (struct grammar_token){.kind = GRAMMAR_TOKEN_END};
    } else {
        *out = (struct grammar_token){GRAMMAR_TOKEN_CONTROL, "[TOOL_CALLS]", 12};
    }
}

/* One request, its template and the daemon's state that it needs. */
struct fixture {
    struct api *api;
    struct request r; /* without a deadline */
    struct api_model model;
    chat_template *template;
    cJSON *body;
    struct gen_fields fields;
    struct chat_request q;
};

static int set_up(struct fixture *f, const char *source, const char *body, err *e) {
    memset(f, 0, sizeof *f);
    CHECK(chat_template_new(source, "", "", &f->template, e) == 0);
    CHECK(chat_template_probe(f->template, e) == 0);
    CHECK(chat_template_learn(f->template, NULL, e) == 0);
    f->api = mem_new(1, sizeof *f->api);
    f->api->grammars = grammar_cache_new();
    f->r.api = f->api;
    f->r.work.left = UINT64_MAX;
    f->r.item.lane = WORK_SLOW;
    f->model.chat = f->template;
    CHECK_MSG(json_parse(body, strlen(body), &f->body, e) == 0, "%s: %s", body, e->msg);
    gen_fields_default(&f->fields);
    chat_request_init(&f->q, NULL);
    f->q.model = &f->model;
    int rc = json_read(f->body, &chat_table, "", &f->fields, e);
    if (!rc) rc = chat_tools_read(&f->fields, &f->q, e);
    return rc ? rc : chat_format_read(&f->fields, &f->q, e);
}

static void tear_down(struct fixture *f) {
    chat_request_fini(&f->q);
    cJSON_Delete(f->body);
    chat_template_free(f->template);
    grammar_cache_free(f->api->grammars);
    free(f->api);
}

/* Does g accept the text as a whole? '\x01' represents the control token. */
static bool passes(const grammar *g, const char *text) {
    grammar_vocab *v = NULL;
    grammar_matcher *m = NULL;
    err e = {0};
    uint32_t mask[(N_VOCAB + 31) / 32];
    const struct grammar_vocab_config config = {.n_vocab = N_VOCAB, .token = token_of};
    CHECK_MSG(grammar_vocab_new(&config, &v, &e) == 0 && grammar_matcher_new(g, v, &m, &e) == 0,
              "%s", e.msg);
    bool ok = true;
    for (const char *p = text; *p && ok; p++) {
        int32_t token = *p == '\x01' ? TOKEN_CALLS : (unsigned char)*p;
        grammar_matcher_mask(m, mask);
        bool allowed = mask[token / 32] >> (token % 32) & 1;
        ok = grammar_matcher_accept(m, token);
        CHECK_MSG(ok == allowed, "%s at %d: mask %d, accept %d", text, (int)(p - text), allowed,
                  ok);
    }
    ok = ok && grammar_matcher_may_end(m);
    grammar_matcher_free(m);
    grammar_vocab_free(v);
    return ok;
}

#define PLAIN  "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
#define THINKS PLAIN "{% if add_generation_prompt %}<think></think>{% endif %}"
#define LLAMA                                                                                      \
    "{{ tools | tojson if tools else '' }}{% for m in messages %}<|{{ m.role }}|>"                 \
    "{% if m.tool_calls %}{\"name\": \"{{ m.tool_calls[0].function.name }}\", \"parameters\": "    \
    "{{ m.tool_calls[0].function.arguments | tojson }}}{% else %}{{ m.content }}{% endif %}"       \
    "<|end|>{% endfor %}"
#define TOOLS                                                                                      \
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"add\",\"parameters\":{\"type\":"   \
    "\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}},\"required\":[\"a\"],"               \
    "\"additionalProperties\":false}}},{\"type\":\"function\",\"function\":{\"name\":\"now\"}}]"
#define BODY(members) "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]," members "}"
#define CALL(name, arguments)                                                                      \
    "<tool_call>\n{\"name\": \"" name "\", \"arguments\": " arguments "}\n</tool_call>"

/* lets: accepted texts; stops: rejected ones. Both end with NULL. */
static void check(const char *source, enum chat_begin begin, const char *body,
                  const char *const *lets, const char *const *stops) {
    struct fixture f;
    err e = {0};
    grammar *g = NULL, *again = NULL;
    /* chat_table links to tables that need a model; they are not checked here. */
    int rc = set_up(&f, source, body, &e);
    if (!rc) rc = chat_constraint_make(&f.r, &f.q, begin, false, &g, &e);
    CHECK_MSG(rc == 0 && g, "%s: %s", body, e.msg);
    if (!rc) {
        for (; *lets; lets++)
            CHECK_MSG(passes(g, *lets), "%s does not let through %s", body, *lets);
        for (; *stops; stops++)
            CHECK_MSG(!passes(g, *stops), "%s lets through %s", body, *stops);
        CHECK(chat_constraint_make(&f.r, &f.q, begin, false, &again, &e) == 0);
        CHECK(again == g); /* from the cache */
    }
    grammar_release(again);
    grammar_release(g);
    tear_down(&f);
}

#define LIST(...)                                                                                  \
    (const char *const[]) {                                                                        \
        __VA_ARGS__, NULL                                                                          \
    }

static void auto_binds_from_the_mark_on(void) {
    check(PLAIN, CHAT_BEGIN_TEXT, BODY("\"model\":\"m\"," TOOLS),
          LIST("", "Any text <tool_", "Text\n" CALL("add", "{\"a\": 12}"),
               CALL("now", "{}") "\n" CALL("add", "{\"a\":1}")),
          LIST("<tool_call>", "<tool_call>x", CALL("sub", "{}"), CALL("now", "{\"x\": 1}"),
               CALL("add", "{\"a\": \"1\"}"), CALL("add", "{}"), CALL("now", "{}") "text"));
    check(PLAIN, CHAT_BEGIN_TEXT, BODY("\"model\":\"m\",\"parallel_tool_calls\":false," TOOLS),
          LIST(CALL("now", "{}")), LIST(CALL("now", "{}") "\n" CALL("now", "{}")));
}

static void required_and_named_are_calls(void) {
    check(PLAIN, CHAT_BEGIN_TEXT, BODY("\"model\":\"m\",\"tool_choice\":\"required\"," TOOLS),
          LIST(CALL("now", "{}"), CALL("now", "{}") "\n" CALL("now", "{}")),
          LIST("", "text", " " CALL("now", "{}")));
    check(PLAIN, CHAT_BEGIN_TEXT,
          BODY("\"model\":\"m\",\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":"
               "\"now\"}}," TOOLS),
          LIST(CALL("now", "{}")),
          LIST("", CALL("add", "{\"a\": 1}"), CALL("now", "{}") "\n" CALL("now", "{}")));
}

static void reasoning_comes_before(void) {
    static const char body[] = BODY("\"model\":\"m\",\"guided_regex\":\"[ab]+\"");
    check(THINKS, CHAT_BEGIN_OPEN, body,
          LIST("ab", "<think>so\n</think>\n\nab", "<think></think>b"),
          LIST("", "c", "<think>ab", "<think></think>"));
    check(THINKS, CHAT_BEGIN_REASONING, body, LIST("so</think>ab", "</think>\na"), LIST("ab"));
    check(THINKS, CHAT_BEGIN_TEXT, body, LIST("ab"), LIST("<think></think>a", "so</think>ab"));
}

static void a_call_without_a_mark_is_the_whole_answer(void) {
    check(LLAMA, CHAT_BEGIN_TEXT, BODY("\"model\":\"m\"," TOOLS),
          LIST("", "text {\"name\": 1}", "{\"nam", "{}", "{\"n\": 1}",
               "{\"name\": \"add\", \"parameters\": {\"a\": 1}}"),
          LIST("{\"name", "{\"name\": \"add\"}", "{\"name\": \"sub\", \"parameters\": {}}"));
}

static void a_schema_or_a_call(void) {
    check(PLAIN, CHAT_BEGIN_TEXT,
          BODY("\"model\":\"m\",\"response_format\":{\"type\":\"json_object\"}," TOOLS),
          LIST("{\"x\": 1}", CALL("now", "{}")), LIST("", "text", "[]"));
}

static void invalid_schemas_are_named(void) {
    struct fixture f;
    err e = {0};
    grammar *g = NULL;
    CHECK(set_up(&f, PLAIN,
                 BODY("\"model\":\"m\",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":"
                      "\"a\"}},{\"type\":\"function\",\"function\":{\"name\":\"b\",\"parameters\":"
                      "{\"properties\":{\"x\":{\"minimum\":\"1\"}}}}}]"),
                 &e) == 0);
    CHECK(chat_constraint_make(&f.r, &f.q, CHAT_BEGIN_TEXT, false, &g, &e) == ERR_INVALID && !g);
    CHECK_STR(e.param, "tools[1].function.parameters");
    CHECK_MSG(strstr(e.msg, "#/properties/x/minimum") && strstr(e.msg, "'b'"), "%s", e.msg);
    tear_down(&f);
}

static grammar *one_text(const char *text) {
    grammar_builder *b = grammar_builder_new();
    grammar *g = NULL;
    CHECK(grammar_finish(b, grammar_text(b, text, strlen(text)), &g, NULL) == 0);
    grammar_builder_free(b);
    return g;
}

/* The cache is bounded and keeps the most recently used grammars. */
/* Each one compiles; all together would take minutes. */
static void tools_are_bounded_together(void) {
    struct fixture f;
    err e = {0};
    grammar *g = NULL;
    str body;
    str_init(&body, 1 << 20);
    str_add(&body,
            "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"tools\":[");
    for (int i = 0; i < CHAT_MAX_TOOLS; i++)
        str_addf(&body,
                 "%s{\"type\":\"function\",\"function\":{\"name\":\"f%d\",\"parameters\":{\"type\":"
                 "\"object\",\"properties\":{\"a\":{\"type\":\"integer\",\"multipleOf\":%d}}}}}",
                 i ? "," : "", i, 20011 + i);
    str_add(&body, "]}");
    CHECK(set_up(&f, PLAIN, str_cstr(&body), &e) == 0);
    CHECK(chat_constraint_make(&f.r, &f.q, CHAT_BEGIN_TEXT, false, &g, &e) == ERR_INVALID);
    CHECK_MSG(strncmp(e.param, "tools[", 6) == 0 && strstr(e.param, "].function.parameters"), "%s",
              e.param);
    CHECK_MSG(strstr(e.msg, "of function 'f") && strstr(e.msg, "#"), "%s", e.msg);
    grammar_release(g);
    str_fini(&body);
    tear_down(&f);
}

static grammar *find_made(grammar_cache *c, const char *key) {
    struct grammar_claim claim = {.key = key};
    grammar *g;
    if (grammar_cache_begin(c, &claim, NULL, &g, NULL) == GRAMMAR_MINE)
        grammar_cache_end(c, &claim, NULL, NULL);
    return g;
}

static void make(grammar_cache *c, const char *key, const grammar *g) {
    struct grammar_claim claim = {.key = key};
    grammar *found;
    CHECK(grammar_cache_begin(c, &claim, NULL, &found, NULL) == GRAMMAR_MINE && !found);
    grammar_cache_end(c, &claim, g, NULL);
}

static void cache_evicts_the_oldest(void) {
    grammar_cache *c = grammar_cache_new();
    grammar *first = one_text("x");
    make(c, "first", first);
    for (int i = 0; i < 200; i++) {
        char key[32];
        grammar *g = one_text("y"), *kept;
        snprintf(key, sizeof key, "key %d", i);
        make(c, key, g);
        kept = find_made(c, key);
        CHECK(kept == g);
        grammar_release(kept);
        grammar_release(g);
        kept = find_made(c, "first");
        CHECK(kept == first);
        grammar_release(kept);
    }
    CHECK(find_made(c, "key 0") == NULL && find_made(c, "none") == NULL);
    grammar_release(first);
    grammar_cache_free(c);
}

struct second {
    grammar_cache *cache;
    struct work work;
    grammar *got;
    enum grammar_found found;
    err e;
};

static void *ask_second(void *arg) {
    struct second *s = arg;
    struct grammar_claim claim = {.key = "key"};
    s->found = grammar_cache_begin(s->cache, &claim, &s->work, &s->got, &s->e);
    if (s->found == GRAMMAR_MINE) grammar_cache_end(s->cache, &claim, NULL, NULL);
    return NULL;
}

/* A thread that waits for another one's compilation gets the same result. */
static void second_request_waits(void) {
    enum { MADE, FAILED, GIVEN_UP, CANCELLED, N_WAYS };
    static const enum grammar_found wanted[] = {GRAMMAR_FOUND, GRAMMAR_FAILED, GRAMMAR_MINE,
                                                GRAMMAR_BUSY};
    for (int way = 0; way < N_WAYS; way++) {
        grammar_cache *c = grammar_cache_new();
        grammar *g = one_text("x"), *found;
        struct grammar_claim claim = {.key = "key"}, again = {.key = "key"};
        atomic_bool cancelled = false;
        err why = {0};
        struct second s = {.cache = c, .work = {.left = UINT64_MAX, .cancelled = &cancelled}};
        pthread_t thread;
        CHECK(grammar_cache_begin(c, &claim, NULL, &found, NULL) == GRAMMAR_MINE);
        CHECK(grammar_cache_begin(c, &again, NULL, &found, NULL) == GRAMMAR_BUSY);
        CHECK(pthread_create(&thread, NULL, ask_second, &s) == 0);
        nanosleep(&(struct timespec){0, 5000000}, NULL); /* it usually waits after this time */
        err_set_param(&why, ERR_INVALID, "tools", "too much");
        if (way == CANCELLED) {
            atomic_store(&cancelled, true);
            pthread_join(thread, NULL);
            grammar_cache_end(c, &claim, NULL, NULL);
        } else {
            grammar_cache_end(c, &claim, way == MADE ? g : NULL, way == FAILED ? &why : NULL);
            pthread_join(thread, NULL);
        }
        CHECK_MSG(s.found == wanted[way], "%d: %d", way, s.found);
        CHECK(s.got == (way == MADE ? g : NULL));
        if (way == FAILED) CHECK(strcmp(s.e.msg, "too much") == 0 && s.e.code == ERR_INVALID);
        grammar_release(s.got);
        grammar_release(g);
        grammar_cache_free(c);
    }
}

/* Six look-aheads: an automaton of millions of states. */
#define HEAVY "(?=.*a.{12})(?=.*b.{12})(?=.*c.{10})(?=.*d.{9})(?=.*e.{9})(?=.*f.{9}).*"

/* An exceeded budget is an error that names the field, and is cached; that of the quick lane is not
 * the request's fault and is not cached. */
static void expensive_grammars_are_refused_once(void) {
    struct fixture f;
    err e = {0}, again = {0};
    grammar *g = NULL;
    CHECK(set_up(&f, PLAIN, BODY("\"model\":\"m\",\"guided_regex\":\"" HEAVY "\""), &e) == 0);
    f.r.item.lane = WORK_QUICK;
    f.r.work = (struct work){.left = 1 << 16};
    CHECK(chat_constraint_make(&f.r, &f.q, CHAT_BEGIN_TEXT, false, &g, &e) && !g);
    CHECK(f.r.work.reason == ERR_WORK);
    f.r.item.lane = WORK_SLOW;
    f.r.work = (struct work){.left = 1 << 20};
    CHECK(chat_constraint_make(&f.r, &f.q, CHAT_BEGIN_TEXT, false, &g, &e) == ERR_INVALID && !g);
    CHECK(f.r.work.reason == ERR_WORK && work_left(&f.r.work) == 0);
    CHECK_STR(e.param, f.q.param_format);
    CHECK_MSG(strstr(e.msg, "exceeds the work limit"), "%s", e.msg);
    f.r.item.lane = WORK_QUICK;
    f.r.work = (struct work){.left = 1 << 16};
    CHECK(chat_constraint_make(&f.r, &f.q, CHAT_BEGIN_TEXT, false, &g, &again) == ERR_INVALID);
    CHECK_STR(again.msg, e.msg);
    CHECK_STR(again.param, e.param);
    CHECK(!f.r.work.reason && work_left(&f.r.work) == 1 << 16); /* it cost nothing */
    tear_down(&f);
}

static void templates_do_not_see_strict(void) {
    struct fixture f;
    err e = {0};
    cJSON *shown = NULL;
    CHECK(set_up(&f, PLAIN,
                 BODY("\"model\":\"m\",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":"
                      "\"a\",\"strict\":true}}]"),
                 &e) == 0);
    CHECK(chat_tools_shown(&f.q.tools, &shown, &e) == 0);
    char *text = cJSON_PrintUnformatted(shown);
    CHECK_STR(text, "[{\"type\":\"function\",\"function\":{\"name\":\"a\"}}]");
    cJSON_free(text);
    cJSON_Delete(shown);
    f.q.tools.choice = CHAT_TOOLS_NONE;
    CHECK(chat_tools_shown(&f.q.tools, &shown, &e) == 0 && !shown);
    tear_down(&f);
}

int main(void) {
    RUN(auto_binds_from_the_mark_on);
    RUN(required_and_named_are_calls);
    RUN(reasoning_comes_before);
    RUN(a_call_without_a_mark_is_the_whole_answer);
    RUN(a_schema_or_a_call);
    RUN(invalid_schemas_are_named);
    RUN(tools_are_bounded_together);
    RUN(cache_evicts_the_oldest);
    RUN(second_request_waits);
    RUN(expensive_grammars_are_refused_once);
    RUN(templates_do_not_see_strict);
    return check_done();
}
