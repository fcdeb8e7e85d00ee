/* probe.c - finds out what shapes of messages a template takes, by rendering conversations whose
 * texts are easily found again in the prompt.
 *
 * A shape counts as taken when the render succeeds and the prompt holds every text, not as the dump
 * of a list or of a JSON text within a JSON text. Where no shape is taken nothing is concluded.
 * Runs once for each template, before it is shared. */
#include "core/base/str.h"
#include "core/chat/chat.h"
#include "core/chat/chat_int.h"
#include "core/text/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PROBE_STEPS = 200000, PROBE_BYTES = 1 << 20, JSON_BYTES = 2048 };

/* Words that no template holds. */
#define ONE      "Inferd one"
#define TWO      "Inferd two"
#define CALLED   "inferd_function"
#define KEY      "inferd_key"
#define VALUE    "inferd_value"
#define ID       "call00001" /* some templates ask for nine characters */
#define STRANGER "narrators" /* a role nobody knows, as long as "developer" */

#define USER        "{\"role\":\"user\",\"content\":\"Hello.\"}"
#define TEXT        "\"" ONE "\""
#define PARTS       "[{\"type\":\"text\",\"text\":\"" ONE "\"},{\"type\":\"text\",\"text\":\"" TWO "\"}]"
#define OBJECT      "{\"" KEY "\":\"" VALUE "\"}"
#define OBJECT_TEXT "\"{\\\"" KEY "\\\": \\\"" VALUE "\\\"}\""
#define CALLS(arguments)                                                                           \
    "\"tool_calls\":[{\"id\":\"" ID "\",\"type\":\"function\",\"function\":{\"name\":\"" CALLED    \
    "\",\"arguments\":" arguments "}}]"

static const char tools_json[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"inferd_other\",\"description\":\"Nothing.\","
    "\"parameters\":{\"type\":\"object\",\"properties\":{\"q\":{\"type\":\"string\","
    "\"description\":\"Nothing.\"}},\"required\":[\"q\"]}}}]";

struct probe {
    const chat_template *t;
    cJSON *tools;
    struct chat_output out; /* of the last render */
    bool no_memory;
};

/* Renders; the text stays in p->out until the next time. */
static bool probe_render(struct probe *p, const char *messages, bool with_tools) {
    cJSON *list = json_constant(messages);
    struct chat_input in = {.messages = list, .tools = with_tools ? p->tools : NULL};
    err e = {0};
    chat_output_fini(&p->out);
    p->no_memory |= !list;
    int rc = list ? chat_render_lenient(p->t, &in, PROBE_BYTES, PROBE_STEPS, &p->out, &e) : -1;
    cJSON_Delete(list);
    return rc == 0;
}

static bool holds(const struct probe *p, const char *text) {
    return p->out.text && strstr(p->out.text, text);
}

static unsigned count(const struct probe *p, const char *word) {
    unsigned n = 0;
    for (const char *at = p->out.text; at && (at = strstr(at, word)); at += strlen(word))
        n++;
    return n;
}

/* ---- calls ---- */

enum content { CONTENT_EMPTY, CONTENT_NULL, CONTENT_ABSENT, CONTENT_COUNT };

/* 0: it fails, 1: it renders, 2: and shows the call as it should be. *n_nulls: words for nothing
 * that the prompt holds. */
static int score_call(struct probe *p, bool as_text, enum content content, unsigned *n_nulls) {
    static const char *const contents[] = {"\"content\":\"\",", "\"content\":null,", ""};
    char json[JSON_BYTES];
    snprintf(json, sizeof json,
             "[" USER ",{\"role\":\"assistant\",%s%s},{\"role\":\"tool\",\"tool_call_id\":\"" ID
             "\",\"name\":\"" CALLED "\",\"content\":" TEXT "}]",
             contents[content], as_text ? CALLS(OBJECT_TEXT) : CALLS(OBJECT));
    bool renders = probe_render(p, json, true);
    bool shown = holds(p, CALLED) && holds(p, KEY) && holds(p, VALUE) &&
                 !holds(p, as_text ? "\\\"" KEY "\\\"" : "'" KEY "': '" VALUE "'");
    *n_nulls = count(p, "None") + count(p, "null");
    return renders + (renders && shown);
}

static void probe_calls(struct probe *p, struct chat_traits *traits) {
    int scores[2][CONTENT_COUNT], best[2] = {0, 0};
    for (int as_text = 0; as_text < 2; as_text++) {
        unsigned nulls[CONTENT_COUNT];
        for (int c = 0; c < CONTENT_COUNT; c++) {
            int score = score_call(p, as_text, (enum content)c, &nulls[c]);
            /* The word for the missing content itself: "" shows that it is not the template's. */
            if (c && score && scores[as_text][CONTENT_EMPTY] && nulls[c] > nulls[CONTENT_EMPTY])
                score--;
            scores[as_text][c] = score;
            if (score > best[as_text]) best[as_text] = score;
        }
    }
    traits->arguments_to_object = best[0] > best[1];
    traits->arguments_to_text = best[1] > best[0];
    const int *content = scores[best[1] > best[0]];
    const int empty = content[CONTENT_EMPTY], null = content[CONTENT_NULL];
    const int absent = content[CONTENT_ABSENT];
    traits->null_to_empty = empty > null;
    traits->empty_to_null = null > empty;
    traits->absent_to_null = null > absent && null >= empty;
    traits->absent_to_empty = empty > absent && empty > null;
}

/* ---- content and roles ---- */

/* A conversation in which role has this content. The call has the shapes that were found; named:
 * its result has its name. */
static void with_content(const struct chat_traits *traits, enum chat_role role, const char *content,
                         bool named, char json[JSON_BYTES]) {
    static const char *const forms[ROLE_COUNT] = {
        [ROLE_SYSTEM] = "[{\"role\":\"system\",\"content\":%s}," USER "]",
        [ROLE_USER] = "[{\"role\":\"user\",\"content\":%s}]",
        [ROLE_ASSISTANT] = "[" USER ",{\"role\":\"assistant\",\"content\":%s}," USER "]",
        [ROLE_TOOL] = "[" USER ",{\"role\":\"assistant\",\"content\":%s,%s},"
                      "{\"role\":\"tool\",\"tool_call_id\":\"" ID "\"%s,\"content\":%s}]"};
    if (role == ROLE_TOOL)
        snprintf(json, JSON_BYTES, forms[role], traits->empty_to_null ? "null" : "\"\"",
                 traits->arguments_to_text ? CALLS(OBJECT_TEXT) : CALLS(OBJECT),
                 named ? ",\"name\":\"" CALLED "\"" : "", content);
    else
        snprintf(json, JSON_BYTES, forms[role], content);
}

static void probe_parts(struct probe *p, struct chat_traits *traits, enum chat_role role) {
    char json[JSON_BYTES];
    bool tool = role == ROLE_TOOL;
    with_content(traits, role, TEXT, true, json);
    bool text = probe_render(p, json, tool) && holds(p, ONE);
    unsigned words = count(p, "\"text\"") + count(p, "'text'");
    with_content(traits, role, PARTS, true, json);
    bool parts = probe_render(p, json, tool) && holds(p, ONE) && holds(p, TWO) &&
                 count(p, "\"text\"") + count(p, "'text'") <= words;
    traits->join_parts[role] = text && !parts;
    traits->wrap_text[role] = parts && !text;
}

static bool takes_first_role(struct probe *p, const struct chat_traits *traits, const char *role,
                             char **copy) {
    char json[JSON_BYTES];
    snprintf(json, sizeof json, "[{\"role\":\"%s\",\"content\":%s}," USER "]", role,
             traits->wrap_text[ROLE_SYSTEM] ? PARTS : TEXT);
    bool ok = probe_render(p, json, false) && holds(p, ONE);
    *copy = ok ? mem_strndup(p->out.text, p->out.n) : NULL;
    return ok;
}

static void probe_developer(struct probe *p, struct chat_traits *traits) {
    static const char known[] = "developer", unknown[] = STRANGER;
    char *as_system, *as_developer, *as_stranger;
    bool system = takes_first_role(p, traits, "system", &as_system);
    bool developer = takes_first_role(p, traits, known, &as_developer);
    bool stranger = takes_first_role(p, traits, unknown, &as_stranger);
    traits->refuses_developer = system && !developer;
    char *at = as_stranger;
    while (at && (at = strstr(at, unknown)) != NULL)
        memcpy(at, known, sizeof known - 1);
    traits->copies_developer = system && developer && stranger && as_developer && as_stranger &&
                               strcmp(as_developer, as_stranger) == 0;
    free(as_system);
    free(as_developer);
    free(as_stranger);
}

static void probe_tool_name(struct probe *p, struct chat_traits *traits) {
    char json[JSON_BYTES];
    const char *content = traits->wrap_text[ROLE_TOOL] ? PARTS : TEXT;
    with_content(traits, ROLE_TOOL, content, true, json);
    bool named = probe_render(p, json, true) && holds(p, ONE);
    unsigned nulls = count(p, "None");
    with_content(traits, ROLE_TOOL, content, false, json);
    bool nameless = probe_render(p, json, true) && holds(p, ONE) && count(p, "None") <= nulls;
    traits->tool_needs_name = named && !nameless;
}

/* Some templates refuse ids that are not like their maker's. */
static void probe_ids(struct probe *p, struct chat_traits *traits) {
    char json[JSON_BYTES], *at;
    const char *content = traits->wrap_text[ROLE_TOOL] ? PARTS : TEXT;
    with_content(traits, ROLE_TOOL, content, true, json);
    bool nine = probe_render(p, json, true) && holds(p, ONE);
    for (at = json; (at = strstr(at, ID)) != NULL; at++)
        memcpy(at, "call_0001", sizeof ID - 1); /* an underscore, as in everybody else's ids */
    traits->ids_of_nine = nine && !(probe_render(p, json, true) && holds(p, ONE));
    if (traits->ids_of_nine || !nine) return;
    char longer[JSON_BYTES] = "";
    size_t n = 0;
    for (const char *c = json; *c && n + 32 < sizeof longer; c++) {
        bool id = strncmp(c, "call_0001", sizeof ID - 1) == 0;
        n += (size_t)snprintf(longer + n, sizeof longer - n, "%s%c", id ? "0123456789abcdef" : "",
                              *c);
    }
    traits->ids_of_nine = !(probe_render(p, longer, true) && holds(p, ONE));
}

int chat_template_probe(chat_template *t, err *e) {
    struct probe p = {.t = t, .tools = json_constant(tools_json)};
    struct chat_traits traits = {0};
    p.no_memory = !p.tools;
    probe_calls(&p, &traits);
    for (int role = 0; role < ROLE_COUNT; role++)
        probe_parts(&p, &traits, (enum chat_role)role);
    probe_developer(&p, &traits);
    probe_tool_name(&p, &traits);
    probe_ids(&p, &traits);
    chat_output_fini(&p.out);
    cJSON_Delete(p.tools);
    if (p.no_memory) return err_set(e, ERR_NOMEM, "no memory to try the chat template");
    t->traits = traits;
    return t->tool_variant ? chat_template_probe(t->tool_variant, e) : 0;
}
