/* probe.c - determines which shapes of messages a template takes, by rendering conversations whose
 * texts are easy to find again in the prompt.
 *
 * The template takes a shape if the render succeeds and the prompt contains every text, and not as
 * the dump of a list or as JSON within a JSON string. If it takes no shape, nothing is concluded.
 * Runs once per template, before it is shared. */
#include "core/base/str.h"
#include "core/chat/chat.h"
#include "core/chat/chat_int.h"
#include "core/text/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PROBE_STEPS = 200000, PROBE_BYTES = 1 << 20, JSON_BYTES = 2048 };

/* Words that occur in no template. */
#define ONE      "Inferd one"
#define TWO      "Inferd two"
#define CALLED   "inferd_function"
#define KEY      "inferd_key"
#define VALUE    "inferd_value"
#define ID       "call00001" /* some templates ask for nine characters */
#define NAMED    "inferd_name"
#define STRANGER "narrators" /* an unknown role of the length of "developer" */

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

/* Renders into p->out. */
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

static bool output_has(const struct probe *p, const char *text) {
    return p->out.text && strstr(p->out.text, text);
}

static unsigned count_word(const struct probe *p, const char *word) {
    unsigned n = 0;
    for (const char *at = p->out.text; at && (at = strstr(at, word)); at += strlen(word))
        n++;
    return n;
}

/* ---- calls ---- */

enum content { CONTENT_EMPTY, CONTENT_NULL, CONTENT_ABSENT, CONTENT_COUNT };

/* 0: the render fails, 1: it succeeds, 2: and shows the call correctly. *n_nulls: occurrences of
 * "None" and "null" in the prompt. */
static int score_call(struct probe *p, bool as_text, enum content content, unsigned *n_nulls) {
    static const char *const contents[] = {"\"content\":\"\",", "\"content\":null,", ""};
    char json[JSON_BYTES];
    snprintf(json, sizeof json,
             "[" USER ",{\"role\":\"assistant\",%s%s},{\"role\":\"tool\",\"tool_call_id\":\"" ID
             "\",\"name\":\"" CALLED "\",\"content\":" TEXT "}]",
             contents[content], as_text ? CALLS(OBJECT_TEXT) : CALLS(OBJECT));
    bool renders = probe_render(p, json, true);
    bool shown = output_has(p, CALLED) && output_has(p, KEY) && output_has(p, VALUE) &&
                 !output_has(p, as_text ? "\\\"" KEY "\\\"" : "'" KEY "': '" VALUE "'") &&
                 !output_has(p, "{{\"" KEY); /* the template adds braces of its own */
    *n_nulls = count_word(p, "None") + count_word(p, "null");
    return renders + (renders && shown);
}

static void probe_calls(struct probe *p, struct chat_traits *traits) {
    int scores[2][CONTENT_COUNT], best[2] = {0, 0};
    for (int as_text = 0; as_text < 2; as_text++) {
        unsigned nulls[CONTENT_COUNT];
        for (int c = 0; c < CONTENT_COUNT; c++) {
            int score = score_call(p, as_text, (enum content)c, &nulls[c]);
            /* The content itself was printed as None or null: the prompt with "" has fewer. */
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

/* A conversation in which role has this content. Calls have the shapes found so far; named: the
 * result has the tool's name. */
static void write_conversation(const struct chat_traits *traits, enum chat_role role,
                               const char *content, bool named, char json[JSON_BYTES]) {
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
    write_conversation(traits, role, TEXT, true, json);
    bool text = probe_render(p, json, tool) && output_has(p, ONE);
    unsigned words = count_word(p, "\"text\"") + count_word(p, "'text'");
    write_conversation(traits, role, PARTS, true, json);
    bool parts = probe_render(p, json, tool) && output_has(p, ONE) && output_has(p, TWO) &&
                 count_word(p, "\"text\"") + count_word(p, "'text'") <= words;
    traits->join_parts[role] = text && !parts;
    traits->wrap_text[role] = parts && !text;
}

static bool takes_first_role(struct probe *p, const struct chat_traits *traits, const char *role,
                             char **copy) {
    char json[JSON_BYTES];
    snprintf(json, sizeof json, "[{\"role\":\"%s\",\"content\":%s}," USER "]", role,
             traits->wrap_text[ROLE_SYSTEM] ? PARTS : TEXT);
    bool ok = probe_render(p, json, false) && output_has(p, ONE);
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

/* Where may a system message be: first, before the second turn? */
static void probe_system(struct probe *p, struct chat_traits *traits) {
    bool wrap = traits->wrap_text[ROLE_SYSTEM];
    char first[256], late[256], json[JSON_BYTES];
    snprintf(first, sizeof first, "{\"role\":\"system\",\"content\":%s},",
             wrap ? "[{\"type\":\"text\",\"text\":" TEXT "}]" : TEXT);
    snprintf(late, sizeof late, "{\"role\":\"system\",\"content\":%s},",
             wrap ? "[{\"type\":\"text\",\"text\":\"" TWO "\"}]" : "\"" TWO "\"");
    const char *const turns = USER ",{\"role\":\"assistant\",\"content\":\"Yes.\"},";
    snprintf(json, sizeof json, "[%s" USER "]", turns);
    if (!probe_render(p, json, false)) return; /* it refuses more than that */
    snprintf(json, sizeof json, "[%s%s" USER "]", first, turns);
    traits->refuses_system = !probe_render(p, json, false) || !output_has(p, ONE);
    snprintf(json, sizeof json, "[%s%s%s" USER "]", first, turns, late);
    traits->refuses_late_system =
        !probe_render(p, json, false) || !output_has(p, ONE) || !output_has(p, TWO);
}

static void probe_tool_name(struct probe *p, struct chat_traits *traits) {
    char json[JSON_BYTES];
    const char *content = traits->wrap_text[ROLE_TOOL] ? PARTS : TEXT;
    write_conversation(traits, ROLE_TOOL, content, true, json);
    bool named = probe_render(p, json, true) && output_has(p, ONE);
    unsigned nulls = count_word(p, "None");
    write_conversation(traits, ROLE_TOOL, content, false, json);
    bool nameless =
        probe_render(p, json, true) && output_has(p, ONE) && count_word(p, "None") <= nulls;
    traits->tool_needs_name = named && !nameless;
}

/* The template hides the names of a role if it renders a message that has one, without it. Results
 * of tools get their name from the call anyway (normalise.c), so theirs is another one here. */
static void probe_names(struct probe *p, struct chat_traits *traits) {
    static const char *const forms[ROLE_COUNT] = {
        [ROLE_SYSTEM] = "[{\"role\":\"system\",\"name\":\"" NAMED "\",\"content\":%s}," USER "]",
        [ROLE_USER] = "[{\"role\":\"user\",\"name\":\"" NAMED "\",\"content\":%s}]",
        [ROLE_ASSISTANT] =
            "[" USER ",{\"role\":\"assistant\",\"name\":\"" NAMED "\",\"content\":%s}," USER "]",
        [ROLE_TOOL] = "[" USER ",{\"role\":\"assistant\",\"content\":%s,%s},{\"role\":\"tool\","
                      "\"tool_call_id\":\"" ID "\",\"name\":\"" NAMED "\",\"content\":%s}]"};
    for (int role = 0; role < ROLE_COUNT; role++) {
        char json[JSON_BYTES];
        const char *content = traits->wrap_text[role] ? PARTS : TEXT;
        if (role == ROLE_TOOL)
            snprintf(json, sizeof json, forms[role], traits->empty_to_null ? "null" : "\"\"",
                     traits->arguments_to_text ? CALLS(OBJECT_TEXT) : CALLS(OBJECT), content);
        else
            snprintf(json, sizeof json, forms[role], content);
        traits->hides_name[role] =
            probe_render(p, json, role == ROLE_TOOL) && output_has(p, ONE) && !output_has(p, NAMED);
    }
}

/* Some templates only accept ids of nine letters and digits. */
static void probe_ids(struct probe *p, struct chat_traits *traits) {
    char json[JSON_BYTES], *at;
    const char *content = traits->wrap_text[ROLE_TOOL] ? PARTS : TEXT;
    write_conversation(traits, ROLE_TOOL, content, true, json);
    bool nine = probe_render(p, json, true) && output_has(p, ONE);
    for (at = json; (at = strstr(at, ID)) != NULL; at++)
        memcpy(at, "call_0001", sizeof ID - 1); /* with an underscore, as common ids have */
    traits->ids_of_nine = nine && !(probe_render(p, json, true) && output_has(p, ONE));
    if (traits->ids_of_nine || !nine) return;
    char longer[JSON_BYTES] = "";
    size_t n = 0;
    for (const char *c = json; *c && n + 32 < sizeof longer; c++) {
        bool id = strncmp(c, "call_0001", sizeof ID - 1) == 0;
        n += (size_t)snprintf(longer + n, sizeof longer - n, "%s%c", id ? "0123456789abcdef" : "",
                              *c);
    }
    traits->ids_of_nine = !(probe_render(p, longer, true) && output_has(p, ONE));
}

int chat_template_probe(chat_template *t, err *e) {
    struct probe p = {.t = t, .tools = json_constant(tools_json)};
    struct chat_traits traits = {0};
    p.no_memory = !p.tools;
    probe_calls(&p, &traits);
    for (int role = 0; role < ROLE_COUNT; role++)
        probe_parts(&p, &traits, (enum chat_role)role);
    probe_developer(&p, &traits);
    probe_system(&p, &traits);
    probe_tool_name(&p, &traits);
    probe_names(&p, &traits);
    probe_ids(&p, &traits);
    chat_output_fini(&p.out);
    cJSON_Delete(p.tools);
    if (p.no_memory) return err_no_memory(e);
    t->traits = traits;
    return t->tool_variant ? chat_template_probe(t->tool_variant, e) : 0;
}
