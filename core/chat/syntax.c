/* syntax.c - learns how a template writes tool calls and reasoning: renders conversations with
 * calls whose names, arguments and ids are easy to find again, and compares the text before every
 * call, between two calls and after the last. No family is known by name. Runs once per template,
 * before it is shared. */
#include "core/chat/syntax.h"

#include "core/base/str.h"
#include "core/chat/chat_int.h"
#include "core/text/json.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RENDER_BYTES = 1 << 20, RENDER_STEPS = 200000, JSON_BYTES = 2048, MAX_TAG_BYTES = 64 };

/* Words that occur in no template; the names have the same length, and so have the ids. */
#define NAME_1  "inferd_first"
#define NAME_2  "inferd_other"
#define ID_1    "inferdid1" /* some templates ask for nine characters */
#define ID_2    "inferdid2"
#define ONE     "Inferd one"
#define TWO     "Inferd two"
#define USER    "{\"role\":\"user\",\"content\":\"Hello.\"}"
#define ARGS    "{\\\"inferd_key\\\": \\\"inferd_value\\\"}"
#define SPACED  "{\"inferd_key\": \"inferd_value\"}"
#define COMPACT "{\"inferd_key\":\"inferd_value\"}"

#define CALL(id, name)                                                                             \
    "{\"id\":\"" id "\",\"type\":\"function\",\"function\":{\"name\":\"" name                      \
    "\",\"arguments\":\"" ARGS "\"}}"
#define RESULT(id, name)                                                                           \
    ",{\"role\":\"tool\",\"tool_call_id\":\"" id "\",\"name\":\"" name "\",\"content\":\"" TWO "\"}"
#define CALLING(calls) "{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[" calls "]}"
#define TOOL(name)                                                                                 \
    "{\"type\":\"function\",\"function\":{\"name\":\"" name "\",\"description\":\"Nothing.\","     \
    "\"parameters\":{\"type\":\"object\",\"properties\":{\"inferd_key\":{\"type\":\"string\","     \
    "\"description\":\"Nothing.\"}},\"required\":[\"inferd_key\"]}}}"

/* What chat_instruct() asks for. */
static const struct chat_syntax instructed = {
    .takes_system = true,
    .several = true,
    .call_open = "<tool_call>\n{\"name\": \"",
    .arguments_open = "\", \"arguments\": ",
    .call_close = "}\n</tool_call>",
    .between = "\n",
    .trigger = "<tool_call>",
};

struct study {
    const chat_template *t;
    const tokenizer *tok;
    cJSON *tools;
    bool no_memory;
};

/* Adds text[0..n) in mark notation: control tokens are enclosed. */
static void add_marked(const struct study *s, const char *text, size_t n_text, str *out) {
    for (size_t i = 0; i < n_text;) {
        char tag[MAX_TAG_BYTES + 1];
        size_t n = 0;
        if (s->tok && strchr("<[|\xe2\xef", text[i]))
            for (n = n_text - i < MAX_TAG_BYTES ? n_text - i : MAX_TAG_BYTES; n; n--) {
                memcpy(tag, text + i, n);
                tag[n] = 0;
                int32_t id = tokenizer_find(s->tok, tag);
                if (id >= 0 && tokenizer_is_control(s->tok, id)) break;
            }
        if (n) str_add_char(out, CHAT_CONTROL_OPEN);
        str_add_n(out, text + i, n ? n : 1);
        if (n) str_add_char(out, CHAT_CONTROL_CLOSE);
        i += n ? n : 1;
    }
}

/* Renders a conversation into mark notation (control tokens enclosed). NULL: it does not render. */
static char *study_render(struct study *s, const char *messages, bool with_tools, bool prompt) {
    cJSON *list = json_constant(messages);
    struct chat_input in = {
        .messages = list, .tools = with_tools ? s->tools : NULL, .add_generation_prompt = prompt};
    struct chat_output out = {0};
    str marks;
    str_init(&marks, RENDER_BYTES * 2);
    bool ok = list && chat_prompt_within(s->t, &in, RENDER_BYTES, RENDER_STEPS, &out, NULL) == 0;
    if (ok) add_marked(s, out.text, out.n, &marks);
    s->no_memory |= !list || marks.failed;
    cJSON_Delete(list);
    chat_output_fini(&out);
    if (!ok) {
        str_fini(&marks);
        return NULL;
    }
    return str_take(&marks);
}

/* ---- marks ---- */

/* Length of the tag that begins at p: a control token, or <...> without white space. 0: none. */
static size_t tag_at(const char *p) {
    if (*p == CHAT_CONTROL_OPEN) {
        const char *end = strchr(p, (unsigned char)CHAT_CONTROL_CLOSE);
        return end ? (size_t)(end - p) + 1 : 0;
    }
    if (*p != '<' && *p != '[') return 0;
    size_t n = strcspn(p + 1, "<>[]{}\"' \n\t") + 1;
    return n > 1 && p[n] == (*p == '<' ? '>' : ']') ? n + 1 : 0;
}

/* Start of the tag that contains offset at; at itself if there is none. */
static size_t tag_begin(const char *text, size_t at) {
    for (size_t i = at > CHAT_MARK_BYTES ? at - CHAT_MARK_BYTES : 0; i < at;) {
        size_t n = tag_at(text + i);
        if (n && i + n > at) return i;
        i += n ? n : 1;
    }
    return at;
}

static size_t tag_end(const char *text, size_t at) {
    size_t begin = tag_begin(text, at);
    return begin == at ? at : begin + tag_at(text + begin);
}

/* Copies text[from..to) into mark; trim: without surrounding white space. false: too long. */
static bool put_mark(char mark[CHAT_MARK_BYTES], const char *text, size_t from, size_t to,
                     bool trim) {
    while (trim && from < to && chat_is_space(text[from]))
        from++;
    while (trim && to > from && chat_is_space(text[to - 1]))
        to--;
    if (to - from >= CHAT_MARK_BYTES) return false;
    memcpy(mark, text + from, to - from);
    mark[to - from] = 0;
    return true;
}

static size_t common_prefix(const char *a, const char *b) {
    size_t n = 0;
    while (a[n] && a[n] == b[n])
        n++;
    return tag_begin(a, n);
}

/* Replaces every id by its placeholder, in place. */
static void replace_ids(char *text) {
    for (char *at = text; (at = strstr(at, "inferdid")) != NULL; at++) {
        if (at[8] != '1' && at[8] != '2') continue;
        *at = CHAT_HOLE_ID;
        memmove(at + 1, at + 9, strlen(at + 9) + 1);
    }
}

/* Puts placeholders into a (n) where it has the number of the first call and b that of the second.
 * false: they differ otherwise. */
static bool replace_index(char *a, const char *b, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (a[i] == b[i]) continue;
        if (a[i] != '0' || b[i] != '1') return false;
        a[i] = CHAT_HOLE_INDEX;
    }
    return true;
}

/* ---- calls ---- */

struct place {
    size_t name, name_end, args, args_end;
};

static bool find_call(const char *text, size_t from, const char *name, struct place *out) {
    const char *at = strstr(text + from, name);
    if (!at) return false;
    out->name = (size_t)(at - text);
    out->name_end = out->name + strlen(name);
    const char *spaced = strstr(at, SPACED), *compact = strstr(at, COMPACT);
    const char *args = spaced ? spaced : compact;
    if (!args) return false;
    out->args = (size_t)(args - text);
    out->args_end = out->args + strlen(spaced ? SPACED : COMPACT);
    return true;
}

/* Is p[0..n) one of the tags in text? */
static bool has_tag(const char *text, const char *p, size_t n) {
    size_t k;
    for (; *text; text += k ? k : 1) {
        k = tag_at(text);
        if (k && k == n && memcmp(text, p, n) == 0) return true;
    }
    return false;
}

/* End of the assistant's turn with calls, after the last call: an end token, a tag that ends turns
 * without calls, or else the end of the last tag before the call's result. */
static size_t turn_end(const struct study *s, const char *text, size_t from, const char *plain) {
    const char *result = strstr(text + from, TWO);
    size_t limit = result ? (size_t)(result - text) : strlen(text), last = from, n;
    const char *said = strstr(plain, ONE), *tail = said ? said + strlen(ONE) : "";
    for (size_t i = from; i < limit; i += n ? n : 1) {
        n = tag_at(text + i);
        if (n && has_tag(tail, text + i, n)) return i;
        if (text[i] == CHAT_CONTROL_OPEN && n > 2) {
            char name[MAX_TAG_BYTES + 2];
            snprintf(name, sizeof name, "%.*s", (int)n - 2, text + i + 1);
            if (tokenizer_is_eog(s->tok, tokenizer_find(s->tok, name))) return i;
        }
        if (n) last = i + n;
    }
    return result ? last : limit;
}

/* Splits the text between two calls (gap) into the end of one, a separator and the beginning of the
 * next. before: text before the first call; after: text after the last. */
static bool split_gap(struct chat_syntax *out, char *before, const char *gap, const char *after) {
    size_t n_gap = strlen(gap), n_before = strlen(before), n = 0;
    while (n < n_gap && n < n_before) {
        char a = before[n_before - 1 - n], b = gap[n_gap - 1 - n];
        if (a != b && !(a == '0' && b == '1')) break;
        n++;
    }
    n = n_gap - tag_end(gap, n_gap - n);
    if (n && !replace_index(before + n_before - n, gap + n_gap - n, n)) return false;
    size_t n_close = common_prefix(after, gap);
    if (n_close > n_gap - n) n_close = tag_begin(gap, n_gap - n);
    return n && put_mark(out->section_open, before, 0, n_before - n, false) &&
           put_mark(out->call_open, before, n_before - n, n_before, false) &&
           put_mark(out->call_close, after, 0, n_close, false) &&
           put_mark(out->section_close, after, n_close, strlen(after), false) &&
           put_mark(out->between, gap, n_close, n_gap - n, false);
}

static bool learn_separators(struct study *s, struct chat_syntax *out, char *before, char *middle,
                             const char *after) {
    char *two = study_render(s,
                             "[" USER "," CALLING(CALL(ID_1, NAME_1) "," CALL(ID_2, NAME_2))
                                 RESULT(ID_1, NAME_1) RESULT(ID_2, NAME_2) "]",
                             true, false);
    struct place a, b;
    bool ok = two != NULL;
    if (ok) {
        replace_ids(two);
        /* The names also occur in the list of tools: the first call has the last occurrence of its
         * name before its arguments. */
        const char *args = strstr(two, SPACED);
        if (!args) args = strstr(two, COMPACT);
        size_t from = 0;
        for (const char *at = two; args && (at = strstr(at, NAME_1)) && at < args; at++)
            from = (size_t)(at - two);
        ok = args && find_call(two, from, NAME_1, &a) && find_call(two, a.args_end, NAME_2, &b);
    }
    if (ok) {
        size_t n = b.args - b.name_end;
        ok = n == strlen(middle) && replace_index(middle, two + b.name_end, n);
        two[b.name] = 0;
        ok = ok && split_gap(out, before, two + a.args_end, after);
    }
    free(two);
    return ok;
}

/* The trigger is the first tag of the text that opens a call, or all of that text. */
static void set_trigger(struct chat_syntax *out) {
    char all[2 * CHAT_MARK_BYTES];
    snprintf(all, sizeof all, "%s%s", out->section_open, out->call_open);
    size_t skip = strspn(all, " \n\t\r"), n = tag_at(all + skip);
    out->at_start = n == 0 && all[skip] != '<';
    if (!n) n = strcspn(all + skip, "\xfd\xfc");
    if (out->at_start) /* ends after the name of the member that holds the function's name */
        while (n && strchr("\": ", all[skip + n - 1]))
            n--;
    put_mark(out->trigger, all, skip, skip + n, false);
}

/* one, plain: the same conversation with a call, and with a text instead; both with tools. */
static bool learn_call(struct study *s, struct chat_syntax *out, char *one, const char *plain) {
    struct place at;
    char before[CHAT_MARK_BYTES], middle[CHAT_MARK_BYTES], after[CHAT_MARK_BYTES];
    replace_ids(one);
    size_t from = common_prefix(one, plain);
    if (!find_call(one, from, NAME_1, &at)) return false;
    if (!put_mark(before, one, from, at.name, true) ||
        !put_mark(middle, one, at.name_end, at.args, false) ||
        !put_mark(after, one, at.args_end, turn_end(s, one, at.args_end, plain), true))
        return false;
    const char *thought = *out->reasoning_close ? strstr(before, out->reasoning_close) : NULL;
    if (thought) {
        thought += strlen(out->reasoning_close);
        memmove(before, thought, strlen(thought) + 1);
        put_mark(before, before, 0, strlen(before), true);
    }
    /* A brace that is not part of the arguments: they are not plain JSON. */
    if (!*before || !*middle || chat_is_name_char(*middle) || middle[strlen(middle) - 1] == '{')
        return false;
    out->several = learn_separators(s, out, before, middle, after);
    if (!out->several) {
        *out->section_open = *out->between = *out->section_close = 0;
        memcpy(out->call_open, before, sizeof before);
        memcpy(out->call_close, after, sizeof after);
    }
    memcpy(out->arguments_open, middle, sizeof middle);
    set_trigger(out);
    return *out->trigger != 0;
}

/* Sets what calls in Python's form have between the marks of their list. */
static void set_python(struct chat_syntax *out) {
    *out->call_open = 0;
    strcpy(out->arguments_open, "(");
    strcpy(out->call_close, ")");
    strcpy(out->between, ", ");
    out->several = out->python = true;
    set_trigger(out);
}

/* Calls as in Python, `[name(key="value"), name(key="value")]`: LFM2. The list has tags around it.
 * one, plain: as for learn_call. */
static bool learn_python(const struct study *s, struct chat_syntax *out, const char *one,
                         const char *plain) {
    static const char *const calls[] = {NAME_1 "(inferd_key=\"inferd_value\")",
                                        NAME_1 "(inferd_key='inferd_value')"};
    size_t from = common_prefix(one, plain), n = strlen(calls[0]);
    const char *at = strstr(one + from, calls[0]);
    if (!at) at = strstr(one + from, calls[1]);
    if (!at) return false;
    size_t begin = (size_t)(at - one), end = begin + n;
    char close[CHAT_MARK_BYTES];
    if (!put_mark(out->section_open, one, from, begin, true) ||
        !put_mark(close, one, end, turn_end(s, one, end, plain), true) || *close != ']')
        return false;
    /* Models may write white space before the closing tag. */
    int k = snprintf(out->section_close, CHAT_MARK_BYTES, "] %s", close + 1);
    if (k >= CHAT_MARK_BYTES) return false;
    set_python(out);
    return *out->trigger && !out->at_start; /* a list without a tag cannot be told from text */
}

/* Calls with bare objects, `name{key:<|"|>value<|"|>}`: Gemma 4. Each has tags around it. one,
 * plain: as for learn_call. */
static bool learn_bare(struct study *s, struct chat_syntax *out, const char *one,
                       const char *plain) {
    static const char begin[] = NAME_1 "{inferd_key:", said[] = "inferd_value";
    const size_t from = common_prefix(one, plain);
    const char *name = strstr(one + from, begin);
    const char *open = name ? name + strlen(begin) : "", *value = strstr(open, said);
    const char *close = value ? value + strlen(said) : "";
    const size_t n = value ? (size_t)(value - open) : 0;
    if (!n || *open == '"' || strncmp(close, open, n) != 0 || close[n] != '}') return false;
    const size_t end = (size_t)(close - one) + n + 1;
    if (!put_mark(out->quote, open, 0, n, false) ||
        !put_mark(out->call_open, one, from, (size_t)(name - one), true) ||
        !put_mark(out->call_close, one, end, end + tag_at(one + end), false) || !*out->call_close)
        return false;
    char *two = study_render(s,
                             "[" USER "," CALLING(CALL(ID_1, NAME_1) "," CALL(ID_2, NAME_2))
                                 RESULT(ID_1, NAME_1) RESULT(ID_2, NAME_2) "]",
                             true, false);
    char gap[2 * CHAT_MARK_BYTES];
    snprintf(gap, sizeof gap, "%s%s", out->call_close, out->call_open);
    out->several = two && strstr(two, gap);
    free(two);
    *out->section_open = *out->arguments_open = *out->between = *out->section_close = 0;
    set_trigger(out);
    return *out->trigger && !out->at_start; /* without a tag it cannot be told from text */
}

/* Calls that the template does not show, in the form that belongs to control tokens of the
 * vocabulary: LFM2's, whose models write a list of Python calls. one, plain: as for learn_call. */
static bool learn_unshown(const struct study *s, struct chat_syntax *out, const char *one,
                          const char *plain) {
    static const char *const tags[] = {"<|tool_call_start|>", "<|tool_call_end|>"};
    for (int i = 0; i < 2; i++) {
        const int32_t id = s->tok ? tokenizer_find(s->tok, tags[i]) : -1;
        if (id < 0 || !tokenizer_is_control(s->tok, id)) return false;
    }
    const size_t from = common_prefix(one, plain);
    const bool shown = strstr(one + from, "inferd_value");
    if (shown || !strstr(one, TWO) || !strstr(plain, ONE) || s->t->traits.wrap_text[ROLE_ASSISTANT])
        return false;
    snprintf(out->section_open, CHAT_MARK_BYTES, "\xff%s\xfe[", tags[0]);
    snprintf(out->section_close, CHAT_MARK_BYTES, "] \xff%s\xfe", tags[1]);
    set_python(out);
    out->in_text = true;
    return true;
}

/* Is the trigger an end-of-generation token? Then it never reaches the parser. */
static bool ends_answer(const struct study *s, const struct chat_syntax *x) {
    char name[CHAT_MARK_BYTES];
    if (x->trigger[0] != CHAT_CONTROL_OPEN) return false;
    snprintf(name, sizeof name, "%.*s", (int)strlen(x->trigger) - 2, x->trigger + 1);
    return tokenizer_is_eog(s->tok, tokenizer_find(s->tok, name));
}

static void learn_calls(struct study *s, struct chat_syntax *out) {
    struct chat_syntax found = *out;
    char *bare = study_render(s, "[" USER "]", false, true);
    char *shown = study_render(s, "[" USER "]", true, true);
    char *one = study_render(s, "[" USER "," CALLING(CALL(ID_1, NAME_1)) RESULT(ID_1, NAME_1) "]",
                             true, false);
    char *plain =
        study_render(s, "[" USER ",{\"role\":\"assistant\",\"content\":\"" ONE "\"}]", true, false);
    bool knows = bare && shown && !strstr(bare, NAME_1) && strstr(shown, NAME_1);
    bool learnt = knows && one && plain &&
                  (learn_call(s, &found, one, plain) || learn_python(s, &found, one, plain) ||
                   learn_bare(s, &found, one, plain) || learn_unshown(s, &found, one, plain));
    if (learnt && !ends_answer(s, &found)) {
        *out = found;
        out->native = true;
    }
    free(bare);
    free(shown);
    free(one);
    free(plain);
}

/* ---- reasoning ---- */

/* Known marks of vocabularies and templates. */
static const struct {
    const char *open, *close;
} known[] = {
    {"<think>", "</think>"},
    {"[THINK]", "[/THINK]"},
    {"\xe2\x97\x81think\xe2\x96\xb7", "\xe2\x97\x81/think\xe2\x96\xb7"},
    {"<seed:think>", "</seed:think>"},
    {"<|START_THINKING|>", "<|END_THINKING|>"},
    {"<|inner_prefix|>", "<|inner_suffix|>"},
    {"<|channel>thought", "<channel|>"},
};

static void set_known_mark(const struct study *s, char mark[CHAT_MARK_BYTES], const char *text) {
    str marked;
    str_init(&marked, CHAT_MARK_BYTES);
    add_marked(s, text, strlen(text), &marked);
    put_mark(mark, str_cstr(&marked), 0, marked.len, false);
    str_fini(&marked);
}

/* Learns the marks from the tags around a thought, if the template shows it. */
static bool learn_shown_reasoning(struct study *s, struct chat_syntax *out, const char *member) {
    char json[JSON_BYTES];
    snprintf(json, sizeof json,
             "[" USER ",{\"role\":\"assistant\",\"content\":\"" ONE "\",\"%s\":\"" TWO "\"}]",
             member);
    char *with = study_render(s, json, false, false);
    char *plain = study_render(s, "[" USER ",{\"role\":\"assistant\",\"content\":\"" ONE "\"}]",
                               false, false);
    const char *thought = with ? strstr(with, TWO) : NULL;
    const char *said = thought ? strstr(thought, ONE) : NULL;
    bool ok = said && plain;
    if (ok) {
        size_t from = common_prefix(with, plain), end = (size_t)(thought - with);
        size_t after = end + strlen(TWO);
        /* The tag right before it, even if the plain answer has an empty thought. */
        while (after < strlen(with) && chat_is_space(with[after]))
            after++;
        size_t n = tag_at(with + after), open = from < end ? from : end;
        if (from >= end || !put_mark(out->reasoning_open, with, open, end, true) ||
            !*out->reasoning_open) {
            while (end && chat_is_space(with[end - 1]))
                end--;
            open = end ? tag_begin(with, end - 1) : 0;
            put_mark(out->reasoning_open, with, open, end, true);
        }
        ok = n && *out->reasoning_open &&
             put_mark(out->reasoning_close, with, after, after + n, false);
        if (!ok) *out->reasoning_open = *out->reasoning_close = 0;
    }
    free(with);
    free(plain);
    return ok;
}

static void learn_reasoning(struct study *s, struct chat_syntax *out) {
    static const char *const members[] = {"reasoning_content", "reasoning", "thinking"};
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        if (!learn_shown_reasoning(s, out, members[i])) continue;
        out->reasoning_member = members[i];
        return;
    }
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        bool has = s->tok && tokenizer_find(s->tok, known[i].open) >= 0 &&
                   tokenizer_find(s->tok, known[i].close) >= 0;
        if (!has && !strstr(s->t->source, known[i].close)) continue;
        set_known_mark(s, out->reasoning_open, known[i].open);
        set_known_mark(s, out->reasoning_close, known[i].close);
        return;
    }
}

/* The form of gpt-oss, whose calls have no fixed position for their name. */
static bool learn_harmony(const struct study *s, struct chat_syntax *out) {
    int32_t id = s->tok ? tokenizer_find(s->tok, "<|channel|>") : -1;
    if (id < 0 || !tokenizer_is_control(s->tok, id)) return false;
    if (!strstr(s->t->source, "<|channel|>") || !strstr(s->t->source, "commentary")) return false;
    *out = (struct chat_syntax){
        .native = true,
        .takes_system = out->takes_system,
        .harmony = true,
        .call_open = "\xff<|channel|>\xfe"
                     "commentary to=functions.",
        .trigger = "to=functions.",
        .reasoning_open = "\xff<|channel|>\xfe"
                          "analysis\xff<|message|>\xfe",
        .reasoning_close = "\xff<|end|>\xfe",
        .reasoning_member = "thinking",
    };
    id = tokenizer_find(s->tok, "<|constrain|>");
    bool has = id >= 0 && tokenizer_is_control(s->tok, id);
    snprintf(out->arguments_open, CHAT_MARK_BYTES, " %sjson\xff<|message|>\xfe",
             has ? "\xff<|constrain|>\xfe" : "");
    return true;
}

int chat_template_learn(chat_template *t, const tokenizer *tok, err *e) {
    struct study s = {
        .t = t, .tok = tok, .tools = json_constant("[" TOOL(NAME_1) "," TOOL(NAME_2) "]")};
    chat_template *variant = t->tool_variant;
    t->syntax = instructed;
    t->tool_variant = NULL; /* it is learned separately */
    s.no_memory = !s.tools;
    char *system =
        study_render(&s, "[{\"role\":\"system\",\"content\":\"" ONE "\"}," USER "]", false, true);
    t->syntax.takes_system = system && strstr(system, ONE);
    free(system);
    if (!learn_harmony(&s, &t->syntax)) {
        learn_reasoning(&s, &t->syntax);
        learn_calls(&s, &t->syntax);
    }
    t->tool_variant = variant;
    cJSON_Delete(s.tools);
    if (s.no_memory) return err_no_memory(e);
    return variant ? chat_template_learn(variant, tok, e) : 0;
}

const struct chat_syntax *chat_template_syntax(const chat_template *t) {
    if (t->tool_variant) return chat_template_syntax(t->tool_variant);
    return t->syntax.trigger[0] ? &t->syntax : &instructed;
}

/* Copies a mark without the bytes around control tokens, as it occurs in a prompt. */
static size_t bare_mark(const char *mark, char bare[CHAT_MARK_BYTES]) {
    size_t n = 0;
    for (; *mark; mark++)
        if (*mark != CHAT_CONTROL_OPEN && *mark != CHAT_CONTROL_CLOSE) bare[n++] = *mark;
    bare[n] = 0;
    return n;
}

enum chat_begin chat_syntax_begin(const struct chat_syntax *s, const char *prompt, size_t n) {
    char open[CHAT_MARK_BYTES], close[CHAT_MARK_BYTES];
    size_t n_open = bare_mark(s->reasoning_open, open);
    size_t n_close = bare_mark(s->reasoning_close, close);
    while (n && chat_is_space(prompt[n - 1]))
        n--;
    if (!n_open) return CHAT_BEGIN_TEXT;
    if (n >= n_open && memcmp(prompt + n - n_open, open, n_open) == 0) return CHAT_BEGIN_REASONING;
    if (n >= n_close && memcmp(prompt + n - n_close, close, n_close) == 0) return CHAT_BEGIN_TEXT;
    return CHAT_BEGIN_OPEN;
}
