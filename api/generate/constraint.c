/* constraint.c - one grammar for a whole chat answer: optional reasoning, then calls in the syntax
 * of the model's family or the requested format. Runs on pool threads. */
#include "api/generate/constraint.h"
#include "api/generate/api_state.h"
#include "api/generate/keywords.h"
#include "api/generate/tools.h"
#include "api/http/json.h"
#include "api/http/request.h"

#include "core/text/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_MAX_BYTES = 64 << 20, MARK_NODES = 16 };

struct making {
    struct request *r;
    const struct chat_request *q;
    const struct chat_syntax *syntax;
    enum chat_begin begin;
    bool lead, draft_integers;
    grammar_builder *b;
    const cJSON *fault; /* the first tool whose grammar cannot be made */
};

static grammar_node text_node(struct making *m, const char *text) {
    return grammar_text(m->b, text, strlen(text));
}

static grammar_node optional_node(struct making *m, grammar_node node) {
    return grammar_repeat(m->b, node, 0, 1);
}

static grammar_node seq_node(struct making *m, grammar_node a, grammar_node b) {
    return grammar_seq(m->b, (grammar_node[]){a, b}, 2);
}

static grammar_node either_node(struct making *m, grammar_node a, grammar_node b) {
    return grammar_alt(m->b, (grammar_node[]){a, b}, 2);
}

/* ---- marks of a syntax ---- */

static bool is_special(char c) {
    return c == CHAT_CONTROL_OPEN || c == CHAT_HOLE_ID || c == CHAT_HOLE_INDEX;
}

static grammar_node mark_node(struct making *m, const char *mark) {
    grammar_node nodes[MARK_NODES];
    size_t n = 0;
    while (*mark && n < MARK_NODES) {
        size_t k = 0;
        if (*mark == CHAT_CONTROL_OPEN) {
            char name[CHAT_MARK_BYTES];
            while (mark[k] && mark[k] != CHAT_CONTROL_CLOSE)
                k++;
            snprintf(name, sizeof name, "%.*s", (int)k - 1, mark + 1);
            k += mark[k] != '\0';
            nodes[n++] = grammar_control(m->b, name);
        } else if (is_special(*mark)) {
            k = 1;
            nodes[n++] =
                grammar_regex(m->b, *mark == CHAT_HOLE_ID ? "[a-zA-Z0-9]{9}" : "0|[1-9][0-9]?");
        } else {
            while (mark[k] && !is_special(mark[k]))
                k++;
            nodes[n++] = grammar_text(m->b, mark, k);
        }
        mark += k;
    }
    return grammar_seq(m->b, nodes, n);
}

/* Any text without the mark, then the mark. */
static grammar_node until_node(struct making *m, const char *mark) {
    char stop[CHAT_MARK_BYTES];
    size_t n = 0;
    /* Grammars have no byte for the end of a control token. */
    for (; *mark && *mark != CHAT_CONTROL_CLOSE; mark++)
        stop[n++] = *mark;
    stop[n] = '\0';
    const char *stops[] = {stop};
    return grammar_until(m->b, stops, 1);
}

/* Any text that does not begin with this (ASCII) text. */
static grammar_node other_node(struct making *m, const char *text) {
    size_t n = strlen(text), k = 0;
    grammar_node nodes[2 * CHAT_MARK_BYTES];
    grammar_node any = grammar_until(m->b, NULL, 0);
    for (size_t i = 0; i < n; i++) {
        char pattern[16];
        grammar_node before = grammar_text(m->b, text, i);
        snprintf(pattern, sizeof pattern, "[^\\x%02x]", (unsigned char)text[i]);
        nodes[k++] = before;
        nodes[k++] =
            grammar_seq(m->b, (grammar_node[]){before, grammar_regex(m->b, pattern), any}, 3);
    }
    return grammar_alt(m->b, nodes, k);
}

/* ---- calls ---- */

/* A function's parameters as the schema of an object; the caller deletes it. NULL: out of
 * memory. */
static cJSON *schema_of(const cJSON *function) {
    const cJSON *parameters = cJSON_GetObjectItemCaseSensitive(function, "parameters");
    if (cJSON_IsObject(parameters)) {
        cJSON *copy = cJSON_Duplicate(parameters, true);
        bool typed = cJSON_HasObjectItem(parameters, "type");
        if (copy && (typed || cJSON_AddStringToObject(copy, "type", "object"))) return copy;
        cJSON_Delete(copy);
        return NULL;
    }
    return json_constant("{\"type\":\"object\",\"properties\":{},\"additionalProperties\":false}");
}

/* A function's arguments, as JSON; where calls are Python's or have bare objects, and the schema
 * fits as keywords, which are in the schema's order, so that without "strict" JSON is an
 * alternative. */
static grammar_node arguments_node(struct making *m, const struct grammar_schema *schema) {
    const char *quote = m->syntax->quote;
    struct keywords_form form = {.bare = *quote != 0};
    if (!(m->syntax->python || form.bare) || !keywords_fit(schema->schema))
        return grammar_json(m->b, schema);
    if (form.bare) {
        form.quote = mark_node(m, quote);
        form.text = until_node(m, quote);
    }
    grammar_node keywords = keywords_node(m->b, &form, schema);
    return schema->in_order ? keywords : either_node(m, keywords, grammar_json(m->b, schema));
}

/* One of the functions: its name, the mark before the arguments, the arguments. */
static grammar_node functions_node(struct making *m, cJSON **schemas, grammar_node open) {
    grammar_node nodes[CHAT_MAX_TOOLS];
    size_t n = 0, i = 0;
    for (const cJSON *v = m->q->tools.list->child; v && i < CHAT_MAX_TOOLS; v = v->next, i++) {
        const cJSON *f = cJSON_GetObjectItemCaseSensitive(v, "function");
        const cJSON *name = cJSON_GetObjectItemCaseSensitive(f, "name");
        if (!chat_tools_allow(&m->q->tools, name->valuestring)) continue;
        bool strict = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(f, "strict"));
        const struct grammar_schema schema = {
            .schema = schemas[i], .in_order = strict, .draft_integers = m->draft_integers};
        grammar_node called = text_node(m, name->valuestring);
        grammar_node arguments = arguments_node(m, &schema);
        if (!m->fault && arguments < 0) m->fault = v;
        nodes[n++] = grammar_seq(m->b, (grammar_node[]){called, open, arguments}, 3);
    }
    return grammar_alt(m->b, nodes, n);
}

/* All calls of an answer. */
static grammar_node calls_node(struct making *m, cJSON **schemas) {
    const struct chat_syntax *x = m->syntax;
    const struct chat_tools *t = &m->q->tools;
    bool several = x->several && t->parallel && t->choice != CHAT_TOOLS_NAMED;
    grammar_node call = grammar_rule(m->b), open = mark_node(m, x->arguments_open);
    grammar_rule_set(
        m->b, call,
        grammar_seq(m->b,
                    (grammar_node[]){mark_node(m, x->call_open), functions_node(m, schemas, open),
                                     mark_node(m, x->call_close)},
                    3));
    grammar_node more = seq_node(m, mark_node(m, x->between), call);
    return grammar_seq(
        m->b,
        (grammar_node[]){mark_node(m, x->section_open), call,
                         grammar_repeat(m->b, more, 0, several ? GRAMMAR_UNLIMITED : 0),
                         mark_node(m, x->section_close)},
        4);
}

static bool must_call(const struct chat_tools *t) {
    return t->choice == CHAT_TOOLS_REQUIRED || t->choice == CHAT_TOOLS_NAMED;
}

/* Text, optionally followed by calls. */
static grammar_node text_or_calls_node(struct making *m, cJSON **schemas) {
    if (m->syntax->harmony) {
        /* Between mark and arguments the header has several forms. */
        grammar_node open =
            seq_node(m, until_node(m, "\xff<|message|>\xfe"), grammar_control(m->b, "<|message|>"));
        grammar_node call = functions_node(m, schemas, open);
        return seq_node(m, until_node(m, m->syntax->trigger),
                        optional_node(m, seq_node(m, text_node(m, m->syntax->trigger), call)));
    }
    grammar_node calls = calls_node(m, schemas);
    if (m->syntax->at_start) return either_node(m, calls, other_node(m, m->syntax->trigger));
    return seq_node(m, until_node(m, m->syntax->trigger), optional_node(m, calls));
}

/* ---- the form ---- */

static grammar_node form_node(struct making *m, const cJSON *object) {
    const struct chat_format *f = &m->q->format;
    struct grammar_schema schema = {
        .schema = f->value, .in_order = f->strict, .draft_integers = m->draft_integers};
    if (f->kind == CHAT_FORMAT_REGEX) return grammar_regex(m->b, f->text);
    if (f->kind == CHAT_FORMAT_GBNF) return grammar_gbnf(m->b, f->text, strlen(f->text));
    if (f->kind == CHAT_FORMAT_OBJECT) schema.schema = object;
    if (f->kind != CHAT_FORMAT_CHOICE) return grammar_json(m->b, &schema);
    int n = cJSON_GetArraySize(f->value), i = 0;
    const char **texts = malloc((size_t)n * sizeof *texts);
    if (!texts) return -1;
    for (const cJSON *v = f->value->child; v; v = v->next)
        texts[i++] = v->valuestring;
    grammar_node node = grammar_choice(m->b, texts, (size_t)n);
    free(texts);
    return node;
}

static grammar_node format_node(struct making *m, const cJSON *object) {
    grammar_node form = form_node(m, object);
    if (m->begin == CHAT_BEGIN_TEXT || !m->syntax->harmony) return form;
    return seq_node(m,
                    mark_node(m, "\xff<|channel|>\xfe"
                                 "final\xff<|message|>\xfe"),
                    form);
}

/* ---- all of it ---- */

/* Puts the optional reasoning before node. */
static grammar_node after_reasoning_node(struct making *m, grammar_node node) {
    const struct chat_syntax *x = m->syntax;
    grammar_node first = node; /* as the start of the answer */
    if (m->lead) first = seq_node(m, optional_node(m, text_node(m, " ")), node);
    if (m->begin == CHAT_BEGIN_TEXT || !*x->reasoning_open) return first;
    grammar_node lines = x->harmony ? mark_node(m, "\xff<|start|>\xfe"
                                                   "assistant")
                                    : grammar_repeat(m->b, text_node(m, "\n"), 0, 2);
    grammar_node thought =
        grammar_seq(m->b,
                    (grammar_node[]){until_node(m, x->reasoning_close),
                                     mark_node(m, x->reasoning_close), lines, node},
                    4);
    if (m->begin == CHAT_BEGIN_REASONING) return thought;
    thought = seq_node(m, mark_node(m, x->reasoning_open), thought);
    if (m->lead) thought = seq_node(m, optional_node(m, text_node(m, " ")), thought);
    return either_node(m, first, thought);
}

static bool has_calls(const struct chat_tools *t) {
    return t->list && t->list->child && t->choice != CHAT_TOOLS_NONE;
}

/* The format comes first: if it cannot be made, no tool is blamed. */
static grammar_node form_or_calls_node(struct making *m, cJSON **schemas, const cJSON *object) {
    grammar_node form = format_node(m, object);
    return form < 0 ? form : either_node(m, form, calls_node(m, schemas));
}

static grammar_node root_node(struct making *m, cJSON **schemas, const cJSON *object) {
    bool calls = has_calls(&m->q->tools), text = m->q->format.kind == CHAT_FORMAT_TEXT;
    grammar_node node;
    if (!calls)
        node = format_node(m, object);
    else if (must_call(&m->q->tools))
        node = calls_node(m, schemas);
    else if (text)
        node = text_or_calls_node(m, schemas);
    else
        node = form_or_calls_node(m, schemas, object);
    return after_reasoning_node(m, node);
}

static int finish_grammar(struct making *m, grammar_node root, grammar **out, err *e) {
    int rc = grammar_finish(m->b, root, out, e);
    grammar_builder_free(m->b);
    m->b = NULL;
    return rc;
}

static int begin_grammar(struct making *m, err *e) {
    m->b = grammar_builder_new();
    if (!m->b) return err_no_memory(e);
    m->draft_integers = m->r->api->live.draft_integers;
    grammar_builder_limit(m->b, &m->r->work);
    return 0;
}

/* Turns the failure e into the client's error; of a schema it names the place. */
static int blame_field(const char *param, const char *name, err *e) {
    err why = *e;
    if (why.code == ERR_NOMEM || why.code == ERR_CANCELLED || why.code == ERR_DEADLINE)
        return why.code;
    int code = why.code == ERR_TOO_LONG || why.code == ERR_WORK ? ERR_INVALID : why.code;
    if (why.code == ERR_WORK)
        snprintf(why.msg, sizeof why.msg,
                 "compiling it exceeds the work limit: use tighter bounds for repetitions and "
                 "lengths, or fewer alternatives and look-aheads.");
    return err_set_param(e, code, param, "Invalid value for '%s'%s%.64s%s: %.300s", param,
                         name ? " of function '" : "", name ? name : "", name ? "'" : "", why.msg);
}

/* Blames the part that cannot be made. If only all parts together are too much, it is the part that
 * exceeded the limit. */
static int blame_part(const struct making *m, err *e) {
    int i = 0;
    const struct chat_request *q = m->q;
    const cJSON *v = m->fault ? q->tools.list->child : NULL;
    for (; v && v != m->fault; v = v->next)
        i++;
    if (!v) {
        bool form = q->format.kind != CHAT_FORMAT_TEXT;
        return blame_field(form ? q->param_format : q->param_tools, NULL, e);
    }
    const cJSON *f = cJSON_GetObjectItemCaseSensitive(v, "function");
    char path[JSON_PATH_BYTES];
    json_path(path, "%s[%d]%s.%s", q->param_tools, i, q->param_function, q->param_schema);
    return blame_field(path, cJSON_GetObjectItemCaseSensitive(f, "name")->valuestring, e);
}

/* Checks that the arguments are objects. */
static int check_types(const struct chat_request *q, cJSON **schemas, err *e) {
    int i = 0;
    for (const cJSON *v = q->tools.list ? q->tools.list->child : NULL; v && i < CHAT_MAX_TOOLS;
         v = v->next, i++) {
        const cJSON *type = cJSON_GetObjectItemCaseSensitive(schemas[i], "type");
        if (cJSON_IsString(type) && strcmp(type->valuestring, "object") == 0) continue;
        char path[JSON_PATH_BYTES];
        json_path(path, "%s[%d]%s.%s", q->param_tools, i, q->param_function, q->param_schema);
        return err_set_param(
            e, ERR_INVALID, path,
            "Invalid value for '%s': #/type must be \"object\", because arguments are an object.",
            path);
    }
    return 0;
}

static int make_grammar(struct making *m, cJSON **schemas, grammar **out, err *e) {
    cJSON *object = json_constant("{\"type\":\"object\"}");
    int rc = object ? begin_grammar(m, e) : err_no_memory(e);
    if (!rc) {
        rc = finish_grammar(m, root_node(m, schemas, object), out, e);
        if (rc) rc = blame_part(m, e);
    }
    cJSON_Delete(object);
    return rc;
}

/* ---- the key ---- */

/* Writes v with all digits of its numbers. */
static void add_value(str *out, const cJSON *v) {
    if (cJSON_IsString(v)) {
        json_add_cstr(out, v->valuestring);
    } else if (cJSON_IsNumber(v)) {
        if (v->valuestring)
            str_add(out, v->valuestring);
        else
            str_addf(out, "%.17g", v->valuedouble);
    } else if (!cJSON_IsArray(v) && !cJSON_IsObject(v)) {
        str_add_char(out, cJSON_IsTrue(v) ? 't' : cJSON_IsFalse(v) ? 'f' : 'n');
    } else {
        str_add_char(out, cJSON_IsArray(v) ? '[' : '{');
        for (const cJSON *child = v->child; child; child = child->next) {
            if (cJSON_IsObject(v)) json_add_cstr(out, child->string);
            add_value(out, child);
            str_add_char(out, ',');
        }
        str_add_char(out, '}');
    }
}

static void add_key(const struct making *m, str *key) {
    const struct chat_request *q = m->q;
    const struct chat_format *f = &q->format;
    str_addf(key, "%llu %p %d %d %d %d %d %d\n", (unsigned long long)q->model->serial,
             (const void *)m->syntax, (int)m->begin, m->lead, (int)q->tools.choice,
             q->tools.parallel, (int)f->kind, f->strict);
    /* Failures are cached too, and they name the fields. */
    str_addf(key, "%s %s %s %s\n", q->param_tools, q->param_function, q->param_schema,
             q->param_format);
    if (has_calls(&q->tools)) {
        add_value(key, q->tools.list);
        if (q->tools.choice == CHAT_TOOLS_NAMED) str_add(key, q->tools.name);
        if (q->tools.allowed) add_value(key, q->tools.allowed);
    }
    str_add_char(key, '\n');
    if (f->value) add_value(key, f->value);
    if (f->text) json_add_cstr(key, f->text);
}

static int make_with_schemas(struct making *m, grammar **out, err *e) {
    cJSON *schemas[CHAT_MAX_TOOLS] = {0};
    const struct chat_request *q = m->q;
    size_t n = 0;
    int rc = 0;
    for (const cJSON *v = has_calls(&q->tools) ? q->tools.list->child : NULL; v && !rc;
         v = v->next) {
        schemas[n] = schema_of(cJSON_GetObjectItemCaseSensitive(v, "function"));
        if (!schemas[n++]) rc = err_no_memory(e);
    }
    if (!rc && n) rc = check_types(q, schemas, e);
    if (!rc) rc = make_grammar(m, schemas, out, e);
    for (size_t i = 0; i < n; i++)
        cJSON_Delete(schemas[i]);
    return rc;
}

/* Would it fail again? Not if only the quick lane's budget was too small, the client left, or
 * memory was short. */
static bool fails_always(const struct request *r, int rc) {
    if (rc == ERR_NOMEM) return false;
    return !r->work.reason || (r->work.reason == ERR_WORK && r->item.lane == WORK_SLOW);
}

int chat_constraint_make(struct request *r, const struct chat_request *q, enum chat_begin begin_at,
                         bool lead, grammar **out, err *e) {
    struct making m = {.r = r,
                       .q = q,
                       .syntax = q->model->chat ? chat_template_syntax(q->model->chat) : NULL,
                       .begin = begin_at,
                       .lead = lead};
    *out = NULL;
    if (!has_calls(&q->tools) && q->format.kind == CHAT_FORMAT_TEXT) return 0;
    str key;
    str_init(&key, KEY_MAX_BYTES);
    add_key(&m, &key);
    if (key.failed) {
        str_fini(&key);
        return err_no_memory(e);
    }
    struct grammar_claim claim = {.key = str_cstr(&key)};
    int rc = 0;
    err why = {0};
    switch (grammar_cache_begin(r->api->grammars, &claim,
                                r->item.lane == WORK_SLOW ? &r->work : NULL, out, &why)) {
    case GRAMMAR_FOUND:
        break;
    case GRAMMAR_FAILED:
        rc = why.code;
        break;
    case GRAMMAR_BUSY: /* only the slow lane waits for it */
        if (!r->work.reason) work_spend(&r->work, UINT64_MAX);
        rc = work_error(r->work.reason, &why);
        break;
    case GRAMMAR_MINE:
        rc = make_with_schemas(&m, out, &why);
        grammar_cache_end(r->api->grammars, &claim, *out, rc && fails_always(r, rc) ? &why : NULL);
    }
    str_fini(&key);
    if (rc && e) *e = why;
    return rc;
}
