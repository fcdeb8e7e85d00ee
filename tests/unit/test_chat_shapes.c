/* test_chat_shapes.c - chat_prompt changes clients' messages into the shapes that the template
 * accepts, and nothing else. * tests/data/chat/normalised.tsv says, for every golden case, which
 * changes of the messages explain the prompt; its script determined that with Jinja2. This test
 * applies these changes with code of its own and renders as strictly as transformers does; cases
 * without a line must give their golden text unchanged. */
#include "chat_golden.h"

struct counts {
    int as_they_came, lenient, changed, refused;
    char *table; /* normalised.tsv */
};

/* The changes of a case ("empty,object"), "" for none. Valid until the next call. */
static const char *changes_of(const char *table, const char *name, const char *case_name) {
    static char found[64];
    char key[400];
    int n = snprintf(key, sizeof key, "\n%s\t%s\t", name, case_name);
    const char *line = strstr(table, key);
    found[0] = '\0';
    if (line) snprintf(found, sizeof found, "%.*s", (int)strcspn(line + n, "\n"), line + n);
    return found;
}

static void replace(cJSON *object, const char *name, cJSON *value) {
    if (cJSON_HasObjectItem(object, name))
        cJSON_ReplaceItemInObjectCaseSensitive(object, name, value);
    else
        cJSON_AddItemToObject(object, name, value);
}

static void change_call(cJSON *call, const char *changes) {
    cJSON *f = cJSON_GetObjectItem(call, "function"), *a = cJSON_GetObjectItem(f, "arguments");
    if (cJSON_IsString(a) && strstr(changes, "object")) {
        replace(f, "arguments", cJSON_Parse(a->valuestring));
    } else if (cJSON_IsObject(a) && strstr(changes, "text")) {
        str s; /* the arguments of all cases are texts */
        str_init(&s, MAX_BYTES);
        str_add_char(&s, '{');
        for (const cJSON *m = a->child; m; m = m->next) {
            CHECK(cJSON_IsString(m));
            str_addf(&s, "\"%s\": \"%s\"%s", m->string, text_of(a, m->string), m->next ? ", " : "");
        }
        str_add_char(&s, '}');
        replace(f, "arguments", cJSON_CreateString(str_cstr(&s)));
        str_fini(&s);
    }
}

static void change_content(cJSON *m, const char *changes) {
    const cJSON *content = cJSON_GetObjectItem(m, "content"), *part;
    if (cJSON_IsArray(content) && strstr(changes, "join")) {
        str s;
        str_init(&s, MAX_BYTES);
        cJSON_ArrayForEach(part, content)
            str_addf(&s, "%s%s", text_of(part, "text"), part->next ? "\n" : "");
        replace(m, "content", cJSON_CreateString(str_cstr(&s)));
        str_fini(&s);
    } else if (cJSON_IsString(content) && strstr(changes, "wrap")) {
        cJSON *parts = cJSON_CreateArray(), *one = cJSON_CreateObject();
        cJSON_AddStringToObject(one, "type", "text");
        cJSON_AddStringToObject(one, "text", content->valuestring);
        cJSON_AddItemToArray(parts, one);
        replace(m, "content", parts);
    }
}

static bool has_system_role(const cJSON *m) {
    return strcmp(text_of(m, "role"), "system") == 0 ||
           strcmp(text_of(m, "role"), "developer") == 0;
}

static bool has_user_role(const cJSON *m) {
    return strcmp(text_of(m, "role"), "user") == 0;
}

/* All contents of the cases with system messages are texts, or joined before. */
static void fold(cJSON *messages, bool first_too) {
    int i = first_too ? 0 : 1;
    while (i < cJSON_GetArraySize(messages)) {
        cJSON *m = cJSON_GetArrayItem(messages, i), *after = cJSON_GetArrayItem(messages, i + 1);
        cJSON *before = i ? cJSON_GetArrayItem(messages, i - 1) : NULL;
        bool forward = after && (has_system_role(after) ||
                                 (has_user_role(after) && !(before && has_system_role(before))));
        bool back = before && (has_user_role(before) || has_system_role(before));
        if (!has_system_role(m)) {
            i++;
        } else if (!forward && !back) {
            replace(m, "role", cJSON_CreateString("user"));
        } else {
            const cJSON *first = forward ? m : before, *second = forward ? after : m;
            const char *a = text_of(first, "content"), *b = text_of(second, "content");
            str s;
            str_init(&s, MAX_BYTES);
            str_addf(&s, "%s%s%s", a, *a && *b ? "\n\n" : "", b);
            replace(forward ? after : before, "content", cJSON_CreateString(str_cstr(&s)));
            str_fini(&s);
            cJSON_DeleteItemFromArray(messages, i);
        }
    }
}

static void change(cJSON *messages, const char *changes) {
    cJSON *m, *call;
    const char *called = "";
    cJSON_ArrayForEach(m, messages) {
        const cJSON *content = cJSON_GetObjectItem(m, "content");
        cJSON_ArrayForEach(call, cJSON_GetObjectItem(m, "tool_calls")) {
            change_call(call, changes);
            called = text_of(cJSON_GetObjectItem(call, "function"), "name");
        }
        if (cJSON_HasObjectItem(m, "tool_calls")) {
            if (cJSON_IsNull(content) && strstr(changes, "empty"))
                replace(m, "content", cJSON_CreateString(""));
            else if (cJSON_IsString(content) && !*content->valuestring && strstr(changes, "null"))
                replace(m, "content", cJSON_CreateNull());
        }
        change_content(m, changes);
        if (strcmp(text_of(m, "role"), "developer") == 0 && strstr(changes, "system"))
            replace(m, "role", cJSON_CreateString("system"));
        if (strcmp(text_of(m, "role"), "tool") == 0 && strstr(changes, "name"))
            replace(m, "name", cJSON_CreateString(called));
    }
    if (strstr(changes, "late") || strstr(changes, "fold")) fold(messages, strstr(changes, "fold"));
}

/* Strictly; if that fails, with undefined tools, mutation, or both. */
static int render_plain(const chat_template *t, struct chat_input in, struct chat_output *out) {
    int rc = -1;
    for (int way = 0; way < 4 && rc; way++) {
        in.null_is_undefined = way & 1;
        in.allow_mutation = way & 2;
        rc = chat_render(t, &in, MAX_BYTES, out, NULL);
    }
    return rc;
}

static bool same_text(const struct chat_output *a, const struct chat_output *b) {
    return a->text && b->text && a->n == b->n && memcmp(a->text, b->text, a->n) == 0;
}

/* The prompt must be the golden text; without one, the lenient golden or the same failure. */
static bool as_golden(const char *dir, const char *name, const char *case_name,
                      const struct chat_output *out, struct counts *counts) {
    static const char *const exts[] = {".txt", ".undef.txt", ".mutable.txt"};
    struct golden error = golden_read(dir, name, case_name, ".error");
    bool ok = false;
    for (size_t i = 0; i < 3 && !ok; i++) {
        struct golden want = golden_read(dir, name, case_name, exts[i]);
        ok = want.text && out->text && strcmp(want.text, out->text) == 0;
        if (ok) *(i ? &counts->lenient : &counts->as_they_came) += 1;
        if (i == 0 && want.text) i = 3; /* strict first */
        golden_free(&want);
    }
    if (!ok && error.error && !out->text) {
        /* Only the template's own refusals, and missing variables of the caller. */
        ok = golden_failure(error.error, &out->failure) &&
             (out->failure.fault == JINJA_FAULT_TEMPLATE ||
              out->failure.fault == JINJA_FAULT_UNDEFINED);
        counts->refused += ok;
    }
    golden_free(&error);
    return ok;
}

static void check_template(const char *dir, const char *name, chat_template *t, const cJSON *cases,
                           void *arg) {
    struct counts *counts = arg;
    const cJSON *one;
    err e = {0};
    CHECK_MSG(chat_template_probe(t, &e) == 0, "%s: %s", name, e.msg);
    cJSON_ArrayForEach(one, cases) {
        const char *case_name = text_of(one, "name");
        const char *changes = changes_of(counts->table, name, case_name);
        struct chat_input in = golden_input(one);
        struct chat_output out, plain = {0};
        int rc = chat_prompt(t, &in, MAX_BYTES, &out, &e);
        bool ok;
        if (*changes) {
            cJSON *messages = cJSON_Duplicate(in.messages, true);
            change(messages, changes);
            in.messages = messages;
            if (render_plain(t, in, &plain)) /* it refuses other messages, too */
                ok = rc && strcmp(out.failure.text, plain.failure.text) == 0;
            else
                ok = rc == 0 && same_text(&out, &plain) && spans_cover(&out);
            counts->changed += ok;
            cJSON_Delete(messages);
        } else {
            ok = as_golden(dir, name, case_name, &out, counts);
        }
        CHECK_MSG(ok, "%s/%s (%s): %s\n--- got\n%s\n--- want\n%s", name, case_name, changes,
                  rc ? e.msg : "", rc ? "" : out.text, plain.text ? plain.text : "the golden");
        chat_output_fini(&out);
        chat_output_fini(&plain);
    }
}

static void run_suite(const char *dir) {
    char *table = file_read(LOCAL "/normalised.tsv", NULL);
    struct counts counts = {0};
    CHECK(table != NULL);
    if (!table) return;
    str lines; /* each line with a newline before it */
    str_init(&lines, MAX_BYTES);
    str_addf(&lines, "\n%s", table);
    free(table);
    counts.table = str_take(&lines);
    int n = golden_walk(dir, check_template, &counts);
    printf(
        "     %s: %d templates: %d prompts as transformers', %d lenient, %d of changed messages, "
        "%d refused\n",
        dir, n, counts.as_they_came, counts.lenient, counts.changed, counts.refused);
    CHECK(counts.as_they_came > 100 && counts.lenient > 5 && counts.changed > 20);
    free(counts.table);
}

static void test_golden_cases(void) {
    run_suite(LOCAL);
}

static void test_golden_cases_shared(void) {
    run_suite(SHARED);
}

/* ---- single shapes */

/* Prompt of source and messages; the caller frees. NULL: failed, with the reason in e. */
static char *prompt(const char *source, const char *messages, const char *tools, err *e) {
    chat_template *t = NULL;
    cJSON *m = cJSON_Parse(messages), *list = tools ? cJSON_Parse(tools) : NULL;
    struct chat_output out = {0};
    struct chat_input in = {.messages = m, .tools = list};
    memset(e, 0, sizeof *e);
    int rc = chat_template_new(source, "", "", &t, e);
    if (!rc) rc = chat_template_probe(t, e);
    if (!rc) rc = chat_prompt(t, &in, MAX_BYTES, &out, e);
    char *text = rc ? NULL : mem_strdup(out.text);
    chat_output_fini(&out);
    chat_template_free(t);
    cJSON_Delete(m);
    cJSON_Delete(list);
    return text;
}

static const char joins[] = "{% for m in messages %}{{ m.role + ':' + m.content }}"
                            "{% for c in m.tool_calls or [] %}"
                            "<{{ c.function.name }}{% for k, v in c.function.arguments.items() %}"
                            " {{ k }}={{ v | tojson }}{% endfor %}>{% endfor %};{% endfor %}";

static void test_shapes(void) {
    static const struct {
        const char *messages, *want;
    } rows[] = {
#define CALL(content, arguments)                                                                   \
    "[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\"," content                      \
    "\"tool_calls\":[{\"id\":\"1\",\"type\":\"function\",\"function\":{\"name\":\"f\","            \
    "\"arguments\":" arguments "}}]}]"
        {CALL("\"content\":null,", "{\"a\":1}"), "user:q;assistant:<f a=1>;"},
        {CALL("", "{\"a\":1}"), "user:q;assistant:<f a=1>;"},
        {CALL("\"content\":\"x\",", "{\"a\":1}"), "user:q;assistant:x<f a=1>;"},
        {CALL("\"content\":null,", "\"{\\\"a\\\":[1.0,null]}\""),
         "user:q;assistant:<f a=[1.0, null]>;"},
        {CALL("\"content\":null,", "\"\""), "user:q;assistant:<f>;"},
        {CALL("\"content\":null,", "\"{}  \""), "user:q;assistant:<f>;"},
        {"[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},\"b\"]}]",
         "user:a\nb;"},
        {"[{\"role\":\"user\",\"content\":[]}]", "user:;"},
        {"[{\"role\":\"developer\",\"content\":\"d\"}]", "developer:d;"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        err e;
        char *got = prompt(joins, rows[i].messages, NULL, &e);
        CHECK_MSG(got && strcmp(got, rows[i].want) == 0, "%s: %s%s, want %s", rows[i].messages,
                  got ? got : "", e.msg, rows[i].want);
        free(got);
    }
}

/* Messages that cannot be changed stay as they are, or are refused. */
static void test_no_shape(void) {
    err e;
    char *got = prompt(joins, CALL("\"content\":\"\",", "\"{broken\""), NULL, &e);
    CHECK_MSG(!got && strstr(e.msg, "items"), "%s", e.msg);
    got = prompt(joins, CALL("\"content\":\"\",", "\"[1]\""), NULL, &e);
    CHECK_MSG(!got && strstr(e.msg, "items"), "%s", e.msg);
    got = prompt(joins, "[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}]", NULL, &e);
    CHECK_MSG(!got && e.code == ERR_UNSUPPORTED && strstr(e.msg, "content[0] (image_url)"), "%s",
              e.msg);
    got = prompt("{{ raise_exception('Never.') }}", "[]", NULL, &e);
    CHECK(!got);
    CHECK_STR(e.msg, "Never.");
}

/* A template that shows a result's function gets it from the latest call with the result's id. */
static void test_result_names(void) {
    static const char shows[] =
        "{% for m in messages %}{{ m.content }}{% if m.role == 'tool' %}{{ '=' + m.name }};"
        "{% endif %}{% endfor %}";
#define CALLED(id, name)                                                                           \
    "{\"id\":\"" id "\",\"type\":\"function\",\"function\":{\"name\":\"" name                      \
    "\",\"arguments\":{}}}"
#define ASKS(calls)      "{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[" calls "]}"
#define RESULT(id, text) "{\"role\":\"tool\",\"tool_call_id\":\"" id "\",\"content\":\"" text "\"}"
    err e;
    char *got =
        prompt(shows,
               "[" ASKS(CALLED("1", "f") "," CALLED("2", "g")) "," RESULT("2", "a") "," ASKS(CALLED(
                   "2", "x") "," CALLED("2", "h")) "," RESULT("2", "b") "," RESULT("1", "c") "]",
               NULL, &e);
    CHECK_MSG(got && strcmp(got, "a=g;b=h;c=f;") == 0, "%s%s", got ? got : "", e.msg);
    free(got);
    got = prompt(shows, "[" RESULT("1", "a") "," ASKS(CALLED("1", "f")) "]", NULL, &e);
    CHECK_MSG(!got && strstr(e.msg, "name"), "%s", e.msg); /* the call comes too late */
}

static void test_developer(void) {
    static const struct {
        const char *source, *strict, *as_system;
    } rows[] = {
        {"{% for m in messages %}{{ m.role }}={{ m.content }};{% endfor %}", "developer=x;",
         "system=x;"},
        {"{% for m in messages %}{% if m.role == 'developer' %}D{% endif %}{{ m.role }}="
         "{{ m.content }};{% endfor %}",
         "Ddeveloper=x;", "Ddeveloper=x;"},
        {"{% for m in messages %}{% if m.role != 'developer' %}{{ m.role }}={{ m.content }};"
         "{% endif %}{% endfor %}",
         "system=x;", "system=x;"},
    };
    cJSON *m = cJSON_Parse("[{\"role\":\"developer\",\"content\":\"x\"}]");
    for (size_t i = 0; i < 2 * sizeof rows / sizeof *rows; i++) {
        chat_template *t = NULL;
        struct chat_output out;
        struct chat_input in = {.messages = m, .developer_as_system = i % 2};
        CHECK(chat_template_new(rows[i / 2].source, "", "", &t, NULL) == 0);
        CHECK(chat_template_probe(t, NULL) == 0);
        CHECK(chat_prompt(t, &in, MAX_BYTES, &out, NULL) == 0);
        CHECK_STR(out.text, i % 2 ? rows[i / 2].as_system : rows[i / 2].strict);
        chat_output_fini(&out);
        chat_template_free(t);
    }
    cJSON_Delete(m);
}

/* A system message that the template refuses or drops where it is joins its neighbours. */
static void test_system_anywhere(void) {
#define LOOP "{% for m in messages %}{{ m.role[0] }}={{ m.content }};{% endfor %}"
#define ALTERNATE                                                                                  \
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"                 \
    "{{ raise_exception('roles must alternate') }}{% endif %}{{ m.role[0] }}={{ m.content }};"     \
    "{% endfor %}"
#define FIRST_ONLY                                                                                 \
    "{% if messages[0].role == 'system' %}s={{ messages[0].content }};"                            \
    "{% set messages = messages[1:] %}{% endif %}{% for m in messages %}"                          \
    "{% if m.role == 'system' %}{{ raise_exception('System message must be first') }}{% endif %}"  \
    "{{ m.role[0] }}={{ m.content }};{% endfor %}"
#define DROPS                                                                                      \
    "{% for m in messages %}{% if m.role != 'system' or loop.first %}{{ m.role[0] }}="             \
    "{{ m.content }};{% endif %}{% endfor %}"
    static const struct {
        const char *source, *roles, *want; /* roles: of messages whose contents count from 1 */
    } rows[] = {
        {LOOP, "susausa", "s=1;u=2;s=3;a=4;u=5;s=6;a=7;"},
        {FIRST_ONLY, "sua", "s=1;u=2;a=3;"},
        {FIRST_ONLY, "ssdua", "s=1\n\n2\n\n3;u=4;a=5;"},
        {FIRST_ONLY, "suasu", "s=1;u=2;a=3;u=4\n\n5;"},
        {FIRST_ONLY, "suassu", "s=1;u=2;a=3;u=4\n\n5\n\n6;"},
        {FIRST_ONLY, "usa", "u=1\n\n2;a=3;"},
        {FIRST_ONLY, "uatsa", "u=1;a=2;t=3;u=4;a=5;"},
        {FIRST_ONLY, "uats", "u=1;a=2;t=3;u=4;"},
        {DROPS, "suasu", "s=1;u=2;a=3;u=4\n\n5;"},
        {ALTERNATE, "suasu", "u=1\n\n2;a=3;u=4\n\n5;"},
        {ALTERNATE, "ssua", "u=1\n\n2\n\n3;a=4;"},
        {ALTERNATE, "sd", "u=1\n\n2;"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        chat_template *t = NULL;
        struct chat_output out;
        cJSON *list = cJSON_CreateArray();
        for (const char *r = rows[i].roles; *r; r++) {
            cJSON *m = cJSON_CreateObject();
            char text[16];
            snprintf(text, sizeof text, "%d", (int)(r - rows[i].roles) + 1);
            cJSON_AddItemToArray(list, m);
            cJSON_AddStringToObject(m, "role",
                                    *r == 's'   ? "system"
                                    : *r == 'd' ? "developer"
                                    : *r == 'u' ? "user"
                                    : *r == 'a' ? "assistant"
                                                : "tool");
            cJSON_AddStringToObject(m, "content", text);
        }
        struct chat_input in = {.messages = list, .developer_as_system = true};
        err e = {0};
        CHECK(chat_template_new(rows[i].source, "", "", &t, NULL) == 0);
        CHECK(chat_template_probe(t, NULL) == 0);
        CHECK_MSG(chat_prompt(t, &in, MAX_BYTES, &out, &e) == 0, "%s: %s", rows[i].roles, e.msg);
        CHECK_STR(out.text, rows[i].want);
        chat_output_fini(&out);
        chat_template_free(t);
        cJSON_Delete(list);
    }
}

/* The cost of joining a run of system messages must not grow with the square of their number. */
static void test_many_systems(void) {
    enum { N = 120000 };
    static const char text[] = "a system message of some bytes";
    chat_template *t = NULL;
    struct chat_output out;
    cJSON *list = cJSON_CreateArray();
    for (int i = 0; i < N; i++) {
        cJSON *m = cJSON_CreateObject();
        cJSON_AddItemToArray(list, m);
        cJSON_AddStringToObject(m, "role", i == N - 1 ? "user" : "system");
        cJSON_AddStringToObject(m, "content", text);
    }
    CHECK(chat_template_new(FIRST_ONLY, "", "", &t, NULL) == 0);
    CHECK(chat_template_probe(t, NULL) == 0);
    CHECK(chat_prompt(t, &(struct chat_input){.messages = list}, 8 << 20, &out, NULL) == 0);
    size_t joined = (N - 1) * (strlen(text) + 2) - 2;
    CHECK(out.text && strlen(out.text) == joined + strlen("s=;u=;") + strlen(text));
    chat_output_fini(&out);
    chat_template_free(t);
    cJSON_Delete(list);
}

static void test_tool_variant(void) {
    chat_template *t = NULL, *with_tools = NULL;
    cJSON *tools = cJSON_Parse("[{}]"), *none = cJSON_Parse("[]");
    CHECK(chat_template_new("plain{{ a }}", "", "", &t, NULL) == 0);
    CHECK(chat_template_new("tools {{ tools | length }}{{ b }}", "", "", &with_tools, NULL) == 0);
    chat_template_set_tool_variant(t, with_tools);
    CHECK(chat_template_probe(t, NULL) == 0);
    CHECK(chat_template_uses(t, "a") && chat_template_uses(t, "b") && !chat_template_uses(t, "c"));
    const struct {
        const cJSON *tools;
        const char *want;
    } rows[] = {{NULL, "plain"}, {none, "plain"}, {tools, "tools 1"}};
    for (size_t i = 0; i < 3; i++) {
        struct chat_output out;
        CHECK(chat_prompt(t, &(struct chat_input){.tools = rows[i].tools}, MAX_BYTES, &out, NULL) ==
              0);
        CHECK_STR(out.text, rows[i].want);
        chat_output_fini(&out);
    }
    chat_template_free(t);
    cJSON_Delete(tools);
    cJSON_Delete(none);
}

/* A template that only loops must be abandoned after a bounded time, in every probe. */
static void test_probes_are_bounded(void) {
    chat_template *t = NULL;
    CHECK(chat_template_new("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}"
                            "{% endfor %}",
                            "", "", &t, NULL) == 0);
    CHECK(chat_template_probe(t, NULL) == 0);
    chat_template_free(t);
}

/* A refusal of the caller's budget ends the render with its error, without another attempt. */
static void test_work_refuses(void) {
    static const char *const sources[] = {
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{{ 'ab' * 9999999 }}", "{{ range(99999) | list | map('string') | join | length }}",
        "{% set l = [] %}{{ l.append(1) }}{% for i in range(99999) %}{{ l.append(i) }}{% endfor "
        "%}"};
    atomic_bool yes = true;
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
        struct work works[] = {{.left = 5000},
                               {.left = UINT64_MAX, .deadline_ns = 1},
                               {.left = UINT64_MAX, .cancelled = &yes}};
        const int codes[] = {ERR_WORK, ERR_DEADLINE, ERR_CANCELLED};
        chat_template *t = NULL;
        CHECK(chat_template_new(sources[i], "", "", &t, NULL) == 0);
        for (int k = 0; k < 3; k++) {
            struct chat_input in = {.work = &works[k]};
            struct chat_output out;
            err e = {0};
            int rc = chat_prompt(t, &in, MAX_BYTES, &out, &e);
            CHECK_MSG(rc == codes[k] && e.code == rc && e.msg[0] && !out.text, "%s: %d %s",
                      sources[i], rc, e.msg);
            chat_output_fini(&out);
        }
        chat_template_free(t);
    }
    struct work enough = {.left = 1000};
    chat_template *t = NULL;
    struct chat_output out;
    CHECK(chat_template_new("{{ 'ab' * 3 }}", "", "", &t, NULL) == 0);
    CHECK(chat_prompt(t, &(struct chat_input){.work = &enough}, MAX_BYTES, &out, NULL) == 0);
    CHECK(strcmp(out.text, "ababab") == 0 && work_left(&enough) < 1000);
    chat_output_fini(&out);
    chat_template_free(t);
}

int main(void) {
    RUN(test_golden_cases);
    RUN(test_shapes);
    RUN(test_no_shape);
    RUN(test_result_names);
    RUN(test_developer);
    RUN(test_system_anywhere);
    RUN(test_many_systems);
    RUN(test_tool_variant);
    RUN(test_probes_are_bounded);
    RUN(test_work_refuses);
    DIR *d = opendir(SHARED);
    if (d) {
        closedir(d);
        RUN(test_golden_cases_shared);
    } else {
        SKIP("test_golden_cases_shared", "no " SHARED);
    }
    return check_done();
}
