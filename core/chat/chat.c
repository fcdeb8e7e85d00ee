/* chat.c - the public face: compiles a template, turns JSON into values, renders, reports spans.
 *
 * Provenance: what comes from the caller's JSON is untrusted, except a message's "role" when it is
 * one of the fixed words below: those cannot spell a control token by themselves, and templates
 * build control tokens such as "<|user|>" from them. */
#include "core/chat/chat.h"

#include "core/base/str.h"
#include "core/chat/chat_int.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    TEMPLATE_MEMORY = 64 * 1024 * 1024, /* bytes of a syntax tree */
    RENDER_MEMORY = 64 * 1024 * 1024,   /* bytes of values, plus RENDER_FACTOR per output byte */
    RENDER_FACTOR = 16
};

const char *chat_fault_name(enum chat_fault fault) {
    static const char *const names[] = {
        [CHAT_FAULT_NONE] = "",
        [CHAT_FAULT_TEMPLATE] = "TemplateError",
        [CHAT_FAULT_TYPE] = "TypeError",
        [CHAT_FAULT_UNDEFINED] = "UndefinedError",
        [CHAT_FAULT_SECURITY] = "SecurityError",
        [CHAT_FAULT_RUNTIME] = "TemplateRuntimeError",
        [CHAT_FAULT_VALUE] = "ValueError",
        [CHAT_FAULT_KEY] = "KeyError",
        [CHAT_FAULT_INDEX] = "IndexError",
        [CHAT_FAULT_ZERO] = "ZeroDivisionError",
        [CHAT_FAULT_OVERFLOW] = "OverflowError",
        [CHAT_FAULT_LIMIT] = "LimitError",
    };
    return names[fault];
}

static jval own_text(struct chat_template *t, const char *text) {
    size_t n = strlen(text);
    char *copy = arena_strndup(t->mem, text, n);
    jstr *s = arena_alloc(t->mem, sizeof *s);
    if (!copy || !s) return jabsent();
    *s = (jstr){.p = copy, .n = n, .n_chars = u8_count(copy, n), .trusted = true};
    return jstr_val(s);
}

int chat_template_new(const char *source, const char *bos, const char *eos, chat_template **out,
                      err *e) {
    *out = NULL;
    struct chat_template *t = mem_new(1, sizeof *t);
    if (!t) return err_no_memory(e);
    int rc = ERR_NOMEM;
    t->mem = arena_new(TEMPLATE_MEMORY);
    if (!t->mem) {
        err_no_memory(e);
        goto fail;
    }
    t->source = arena_strndup(t->mem, source, strlen(source));
    t->bos = own_text(t, bos ? bos : "");
    t->eos = own_text(t, eos ? eos : "");
    if (!t->source || t->bos.kind == J_ABSENT || t->eos.kind == J_ABSENT) {
        err_no_memory(e);
        goto fail;
    }
    rc = jparse(t, source, e);
    if (rc) goto fail;
    *out = t;
    return 0;
fail:
    chat_template_free(t);
    return rc;
}

void chat_template_free(chat_template *t) {
    if (!t) return;
    chat_template_free(t->tool_variant);
    arena_free(t->mem);
    free(t);
}

void chat_template_set_tool_variant(chat_template *t, chat_template *variant) {
    chat_template_free(t->tool_variant);
    t->tool_variant = variant;
}

bool chat_template_uses(const chat_template *t, const char *name) {
    return jsym_find(t, name, strlen(name)) >= 0 ||
           (t->tool_variant && chat_template_uses(t->tool_variant, name));
}

static bool is_role_word(const char *text) {
    static const char *const words[] = {"system",    "developer", "user",
                                        "assistant", "tool",      "function"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(text, words[i]) == 0) return true;
    return false;
}

/* cJSON keeps a number's text only where chat_json_keep_numbers() put it. */
static jval from_number(jctx *c, const cJSON *j) {
    const char *text = j->valuestring;
    double d = j->valuedouble;
    jval v;
    if (text ? strpbrk(text, ".eE") != NULL : d != floor(d) || fabs(d) > 9007199254740992.0) {
        v = jfloat(d);
    } else if (!text) {
        v = jint((int64_t)d);
    } else {
        int64_t value = 0;
        bool big = false, minus = *text == '-';
        for (const char *p = text + minus; *p && !big; p++)
            big = __builtin_mul_overflow(value, 10, &value) ||
                  __builtin_sub_overflow(value, *p - '0', &value);
        big = big || (!minus && value == INT64_MIN);
        v = jint(minus || big ? value : -value);
        if (big) {
            v.kind = J_BIG;
            v.u.s = jstr_new(c, text, strlen(text), false);
        }
    }
    v.untrusted = true;
    return v;
}

static jval from_json(jctx *c, const cJSON *j, bool is_message);

/* A string of the tree with its length; a copy where it holds TEXT_NUL. NULL: no memory. */
static const char *plain_text(jctx *c, const char *text, size_t *n) {
    *n = strlen(text);
    if (!text_holds_nul(text)) return text;
    char *restored = jalloc(c, *n + 1);
    if (restored) *n = text_restore_nuls(restored, text);
    return restored;
}

static jval from_text(jctx *c, const char *text, bool trusted) {
    size_t n;
    text = plain_text(c, text ? text : "", &n);
    const jstr *s = text ? jstr_new(c, text, n, trusted) : NULL;
    return s ? jstr_val(s) : jundef_plain();
}

static jval from_object(jctx *c, const cJSON *j, bool is_message) {
    jval out = jdict_make(c, J_DICT, 0);
    for (const cJSON *m = j->child; m && !c->failed; m = m->next) {
        jval key = from_text(c, m->string, false);
        bool role = is_message && m->string && strcmp(m->string, "role") == 0 &&
                    cJSON_IsString(m) && m->valuestring && is_role_word(m->valuestring);
        jval value = role ? from_text(c, m->valuestring, true) : from_json(c, m, false);
        if (!c->failed) jdict_set(c, out.u.dict, key, value);
    }
    return out;
}

static jval from_json(jctx *c, const cJSON *j, bool is_message) {
    jval v = jnone();
    if (!jcharge(c, 1)) return v;
    switch (j->type & 0xff) {
    case cJSON_True:
    case cJSON_False:
        v = jbool(cJSON_IsTrue(j));
        v.untrusted = true;
        return v;
    case cJSON_Number:
        return from_number(c, j);
    case cJSON_String:
        return from_text(c, j->valuestring, false);
    case cJSON_Array:
    case cJSON_Object:
        if (c->value_depth >= J_MAX_VALUE_DEPTH)
            return jfail_as(c, CHAT_FAULT_LIMIT, "the input is nested too deep");
        c->value_depth++;
        if (cJSON_IsObject(j)) {
            v = from_object(c, j, is_message);
        } else {
            v = jlist_make(c, J_LIST, 0);
            for (const cJSON *m = j->child; m && !c->failed; m = m->next)
                jlist_push(c, v.u.list, from_json(c, m, false));
        }
        c->value_depth--;
        return v;
    default:
        v.untrusted = true;
        return v;
    }
}

static jval from_messages(jctx *c, const cJSON *messages) {
    if (!cJSON_IsArray(messages)) return messages ? from_json(c, messages, false) : jnone();
    jval list = jlist_make(c, J_LIST, 0);
    for (const cJSON *m = messages->child; m && !c->failed; m = m->next)
        jlist_push(c, list.u.list, from_json(c, m, true));
    return list;
}

static jval optional(jctx *c, const cJSON *j, bool undefined) {
    if (j) return from_json(c, j, false);
    return undefined ? jabsent() : jnone();
}

static void set_globals(jctx *c, const struct chat_input *in) {
    const struct chat_template *t = c->tmpl;
    for (size_t i = 0; i < t->n_syms; i++)
        c->globals[i] = jabsent();
    for (const struct jbuiltin *b = jglobals; b->name; b++) {
        int sym = jsym_find(t, b->name, strlen(b->name));
        jval v = {.kind = J_FUNC};
        v.u.func = b;
        if (sym >= 0) c->globals[sym] = v;
    }
    c->globals[SYM_BOS_TOKEN] = in->bos ? from_text(c, in->bos, true) : t->bos;
    c->globals[SYM_EOS_TOKEN] = in->eos ? from_text(c, in->eos, true) : t->eos;
    c->globals[SYM_ADD_GENERATION_PROMPT] = jbool(in->add_generation_prompt);
    c->globals[SYM_MESSAGES] = from_messages(c, in->messages);
    c->globals[SYM_TOOLS] = optional(c, in->tools, in->null_is_undefined);
    c->globals[SYM_DOCUMENTS] = optional(c, in->documents, in->null_is_undefined);
    for (const cJSON *m = in->extra ? in->extra->child : NULL; m && !c->failed; m = m->next) {
        int sym = m->string ? jsym_find(t, m->string, strlen(m->string)) : -1;
        if (sym >= 0) c->globals[sym] = from_json(c, m, false);
    }
}

static bool is_space(char ch) {
    return ch == ' ' || (ch >= 9 && ch <= 13);
}

/* Text of the last message: its content or the last text part of it. NULL if there is none. */
static const char *final_text(const cJSON *messages) {
    const cJSON *last = cJSON_GetArrayItem(messages, cJSON_GetArraySize(messages) - 1);
    const cJSON *content = cJSON_GetObjectItemCaseSensitive(last, "content");
    if (cJSON_IsString(content)) return content->valuestring;
    const char *text = NULL;
    for (const cJSON *part = cJSON_IsArray(content) ? content->child : NULL; part;
         part = part->next) {
        const cJSON *one = cJSON_GetObjectItemCaseSensitive(part, "text");
        if (cJSON_IsString(one)) text = one->valuestring;
    }
    return text;
}

/* Cuts b behind the last place where the final message's text stands, as transformers does: with
 * the white space at the text's end when the template kept it, without when it stripped it. The
 * search spends steps: texts of one letter make it long. */
static int cut_after_final(jsb *b, const cJSON *messages, const char **why) {
    const char *text = final_text(messages), *p = b->p ? b->p : ""; /* nothing was written yet */
    if (!text) {
        *why = "the final message has no text to continue";
        return ERR_INVALID;
    }
    size_t n, at = b->n;
    text = plain_text(b->c, text, &n);
    if (!text) return b->c->e->code;
    for (; is_space(*text); n--)
        text++;
    size_t kept = n;
    while (n && is_space(text[n - 1]))
        n--;
    for (bool found = false; !found; at -= !found) {
        found = n == 0;
        if (n && n <= b->n - at && p[at] == text[0]) {
            if (!jcharge(b->c, 1 + n / 64)) return b->c->e->code;
            found = memcmp(p + at, text, n) == 0;
        }
        if (!found && at == 0) {
            *why = "the chat template changes the final message: it cannot be continued";
            return ERR_INVALID;
        }
    }
    bool whole = kept <= b->n - at && memcmp(p + at, text, kept) == 0;
    b->n = at + (whole ? kept : n);
    while (b->n_runs && (b->n_runs > 1 ? b->runs[b->n_runs - 2].end : 0) >= b->n)
        b->n_runs--;
    if (b->n_runs) b->runs[b->n_runs - 1].end = b->n;
    return 0;
}

/* Hands the text over: a copy on the heap with its spans. */
static int take_output(const jsb *b, struct chat_output *out, err *e) {
    out->text = mem_strndup(b->p ? b->p : "", b->n);
    out->spans = mem_new(b->n_runs, sizeof *out->spans);
    if (!out->text || !out->spans) {
        chat_output_fini(out);
        return err_no_memory(e);
    }
    out->n = b->n;
    out->n_spans = b->n_runs;
    for (size_t i = 0; i < b->n_runs; i++) {
        out->spans[i].start = i ? b->runs[i - 1].end : 0;
        out->spans[i].end = b->runs[i].end;
        out->spans[i].trusted = b->runs[i].trusted;
    }
    return 0;
}

int chat_render(const chat_template *t, const struct chat_input *in, size_t max_bytes,
                struct chat_output *out, err *e) {
    return jrender(t, in, max_bytes, J_MAX_STEPS, out, e);
}

int jrender(const chat_template *t, const struct chat_input *in, size_t max_bytes,
            uint64_t max_steps, struct chat_output *out, err *e) {
    memset(out, 0, sizeof *out);
    uint64_t limit = 1024ull * 1024 * 1024, wanted;
    if (mem_mul(max_bytes, RENDER_FACTOR, &wanted) && mem_add(wanted, RENDER_MEMORY, &wanted) &&
        wanted < limit)
        limit = wanted;
    err own = {0};
    jctx c = {.mem = arena_new(limit),
              .e = &own,
              .failure = &out->failure,
              .line = 1,
              .now = in->now,
              .max_steps = max_steps,
              .work = in->work,
              .tmpl = t,
              .allow_mutation = in->allow_mutation};
    jsb b;
    if (!c.mem) return err_no_memory(e);
    jsb_init(&b, &c);
    b.max = max_bytes;
    c.out = &b;
    c.globals = jalloc(&c, (uint64_t)t->n_syms * sizeof *c.globals);
    if (c.globals) set_globals(&c, in);
    if (!c.failed) jexec(&c, t->root);
    int rc = 0;
    const char *why = NULL;
    if (!c.failed && in->continue_final_message) rc = cut_after_final(&b, in->messages, &why);
    if (c.failed) rc = err_set(e, own.code, "%s", own.msg);
    if (in->work && in->work->reason) rc = work_error(in->work->reason, e);
    if (why) {
        out->failure.fault = CHAT_FAULT_VALUE;
        snprintf(out->failure.text, sizeof out->failure.text, "%s", why);
        err_set_param(e, rc, "messages", "%s", why);
    }
    if (!rc) rc = take_output(&b, out, e);
    arena_free(c.mem);
    return rc;
}

void chat_output_fini(struct chat_output *out) {
    free(out->text);
    free(out->spans);
    memset(out, 0, sizeof *out);
}

/* Runs again only where it may help: a template that could not have its way with null is given
 * nothing at all, one that the sandbox stopped may change lists. */
int jrender_lenient(const chat_template *t, const struct chat_input *in, size_t max_bytes,
                    uint64_t max_steps, struct chat_output *out, err *e) {
    struct chat_input own = *in;
    struct chat_failure first;
    err why = {0};
    bool may_undefine = !in->tools || !in->documents;
    own.null_is_undefined = own.allow_mutation = false;
    int rc = jrender(t, &own, max_bytes, max_steps, out, &why);
    if (!rc) return 0;
    first = out->failure;
    if (first.fault == CHAT_FAULT_SECURITY) {
        own.allow_mutation = true;
        if (!jrender(t, &own, max_bytes, max_steps, out, NULL)) return 0;
    }
    if (may_undefine && first.fault != CHAT_FAULT_LIMIT) {
        own.null_is_undefined = true;
        bool again = jrender(t, &own, max_bytes, max_steps, out, NULL) != 0;
        if (again && !own.allow_mutation && out->failure.fault == CHAT_FAULT_SECURITY) {
            own.allow_mutation = true;
            again = jrender(t, &own, max_bytes, max_steps, out, NULL) != 0;
        }
        if (!again) return 0;
    }
    if (in->work && in->work->reason) return work_error(in->work->reason, e);
    out->failure = first;
    if (e) *e = why;
    return rc;
}
