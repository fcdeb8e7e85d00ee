/* chat.c - compiles a template, turns JSON into its values, renders and reports spans.
 *
 * Provenance: what comes from the caller's JSON is untrusted, except a message's "role" when it is
 * one of the fixed words below: those cannot spell a control token by themselves, and templates
 * build control tokens such as "<|user|>" from them. Nor is a control token in mark notation
 * (syntax.h) in a message's content, which chat_write_calls() has put there: the bytes around it
 * occur in no text of a request. */
#include "core/chat/chat.h"

#include "core/base/str.h"
#include "core/chat/chat_int.h"
#include "core/text/utf8.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    RENDER_MEMORY = 64 * 1024 * 1024, /* bytes of values, plus RENDER_FACTOR per output byte */
    RENDER_FACTOR = 16
};

int chat_template_new(const char *source, const char *bos, const char *eos, chat_template **out,
                      err *e) {
    chat_template *t = mem_new(1, sizeof *t);
    *out = NULL;
    if (!t) return err_no_memory(e);
    t->source = mem_strdup(source);
    t->bos = mem_strdup(bos ? bos : "");
    t->eos = mem_strdup(eos ? eos : "");
    bool ok = t->source && t->bos && t->eos;
    int rc = ok ? jinja_template_new(source, &t->jinja, e) : err_no_memory(e);
    if (rc)
        chat_template_free(t);
    else
        *out = t;
    return rc;
}

const char *chat_template_source(const chat_template *t) {
    return t->source;
}

void chat_template_free(chat_template *t) {
    if (!t) return;
    chat_template_free(t->tool_variant);
    jinja_template_free(t->jinja);
    free(t->source);
    free(t->bos);
    free(t->eos);
    free(t);
}

void chat_template_set_tool_variant(chat_template *t, chat_template *variant) {
    chat_template_free(t->tool_variant);
    t->tool_variant = variant;
}

bool chat_template_uses(const chat_template *t, const char *name) {
    return jinja_template_uses(t->jinja, name) ||
           (t->tool_variant && chat_template_uses(t->tool_variant, name));
}

bool chat_template_shows_name(const chat_template *t, const char *role) {
    bool tool = strcmp(role, "tool") == 0 || strcmp(role, "function") == 0;
    enum chat_role r = tool                             ? ROLE_TOOL
                       : strcmp(role, "assistant") == 0 ? ROLE_ASSISTANT
                       : strcmp(role, "system") == 0    ? ROLE_SYSTEM
                       : strcmp(role, "developer") == 0 ? ROLE_SYSTEM
                                                        : ROLE_USER;
    return !t->traits.hides_name[r] ||
           (t->tool_variant && chat_template_shows_name(t->tool_variant, role));
}

static bool is_role_word(const char *text) {
    static const char *const words[] = {"system",    "developer", "user",
                                        "assistant", "tool",      "function"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(text, words[i]) == 0) return true;
    return false;
}

/* A number's text is known only in a tree of chat_json_parse(). */
static jval value_of_number(jctx *c, const cJSON *j) {
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
        if (big) return jbig_make(c, text);
        v = jint(minus ? value : -value);
    }
    v.untrusted = true;
    return v;
}

/* Byte length of a string of the tree; a copy if it holds TEXT_NUL. NULL: no memory. */
static const char *restore_nuls(jctx *c, const char *text, size_t *n) {
    *n = strlen(text);
    if (!text_holds_nul(text)) return text;
    char *restored = jalloc(c, *n + 1);
    if (restored) *n = text_restore_nuls(restored, text);
    return restored;
}

static jval value_of_text(jctx *c, const char *text, bool trusted) {
    size_t n;
    text = restore_nuls(c, text ? text : "", &n);
    return text ? jstr_make(c, text, n, trusted) : jundef_plain();
}

/* Replaces text[0..n) by a copy without the bytes around control tokens, if it has such; returns
 * the copy's n_runs runs, in which control tokens are trusted. NULL: unchanged, or no memory. */
static struct jrun *unmark(jctx *c, const char **text, size_t *n, size_t *n_runs) {
    size_t n_marks = 0, used = 0;
    for (size_t i = 0; i < *n; i++)
        n_marks += (*text)[i] == CHAT_CONTROL_OPEN || (*text)[i] == CHAT_CONTROL_CLOSE;
    if (!n_marks || !jcharge(c, 1 + *n / 64)) return NULL;
    char *plain = jalloc(c, *n);
    struct jrun *runs = jalloc(c, (n_marks + 1) * sizeof *runs);
    if (!plain || !runs) return NULL;
    *n_runs = 0;
    for (size_t i = 0; i < *n; i++) {
        const char b = (*text)[i];
        const bool close = b == CHAT_CONTROL_CLOSE;
        if (b == CHAT_CONTROL_OPEN || close)
            runs[(*n_runs)++] = (struct jrun){.end = used, .trusted = close};
        else
            plain[used++] = b;
    }
    runs[(*n_runs)++] = (struct jrun){.end = used};
    plain[used] = 0; /* there were bytes more */
    *text = plain;
    *n = used;
    return runs;
}

/* A message's content. */
static jval value_of_content(jctx *c, const char *text) {
    size_t n, n_runs;
    text = restore_nuls(c, text ? text : "", &n);
    struct jrun *runs = text ? unmark(c, &text, &n, &n_runs) : NULL;
    if (runs) return jstr_make_runs(c, text, runs, n_runs);
    return text ? jstr_make(c, text, n, false) : jundef_plain();
}

/* depth: of the containers around j. */
static jval value_of_json(jctx *c, const cJSON *j, int depth);

static jval value_of_object(jctx *c, const cJSON *j, bool is_message, int depth) {
    jval out = jdict_make(c, J_DICT, 0);
    for (const cJSON *m = j->child; m && !jinja_failed(c); m = m->next) {
        jval key = value_of_text(c, m->string, false);
        const bool text = is_message && m->string && cJSON_IsString(m) && m->valuestring;
        const bool role = text && strcmp(m->string, "role") == 0 && is_role_word(m->valuestring);
        jval value = role ? value_of_text(c, m->valuestring, true)
                     : text && strcmp(m->string, "content") == 0
                         ? value_of_content(c, m->valuestring)
                         : value_of_json(c, m, depth + 1);
        if (!jinja_failed(c)) jdict_set(c, out.u.dict, key, value);
    }
    return out;
}

static jval value_of_array(jctx *c, const cJSON *j, int depth) {
    jval list = jlist_make(c, J_LIST, 0);
    for (const cJSON *m = j->child; m && !jinja_failed(c); m = m->next)
        jlist_push(c, list.u.list, value_of_json(c, m, depth + 1));
    return list;
}

static jval value_of_json(jctx *c, const cJSON *j, int depth) {
    jval v = jnone();
    if (!jcharge(c, 1)) return v;
    switch (j->type & 0xff) {
    case cJSON_True:
    case cJSON_False:
        v = jbool(cJSON_IsTrue(j));
        break;
    case cJSON_Number:
        return value_of_number(c, j);
    case cJSON_String:
        return value_of_text(c, j->valuestring, false);
    case cJSON_Array:
    case cJSON_Object:
        if (depth >= JINJA_MAX_VALUE_DEPTH)
            return jfail_as(c, JINJA_FAULT_LIMIT, "the input is nested more than %d levels deep",
                            JINJA_MAX_VALUE_DEPTH);
        return cJSON_IsObject(j) ? value_of_object(c, j, false, depth)
                                 : value_of_array(c, j, depth);
    default:
        break;
    }
    v.untrusted = true;
    return v;
}

static jval value_of_messages(jctx *c, const cJSON *messages) {
    if (!messages) return jnone();
    if (!cJSON_IsArray(messages)) return value_of_json(c, messages, 0);
    jval list = jlist_make(c, J_LIST, 0);
    for (const cJSON *m = messages->child; m && !jinja_failed(c); m = m->next) {
        jval message = cJSON_IsObject(m) && jcharge(c, 1) ? value_of_object(c, m, true, 0)
                                                          : value_of_json(c, m, 0);
        jlist_push(c, list.u.list, message);
    }
    return list;
}

static jval value_or_none(jctx *c, const cJSON *j, bool null_is_undefined) {
    if (j) return value_of_json(c, j, 0);
    return null_is_undefined ? jabsent() : jnone();
}

static void set_globals(jctx *c, const struct chat_template *t, const struct chat_input *in) {
    jinja_set(c, "bos_token",
              in->bos ? value_of_text(c, in->bos, true)
                      : jstr_make(c, t->bos, strlen(t->bos), true));
    jinja_set(c, "eos_token",
              in->eos ? value_of_text(c, in->eos, true)
                      : jstr_make(c, t->eos, strlen(t->eos), true));
    jinja_set(c, "add_generation_prompt", jbool(in->add_generation_prompt));
    jinja_set(c, "messages", value_of_messages(c, in->messages));
    jinja_set(c, "tools", value_or_none(c, in->tools, in->null_is_undefined));
    jinja_set(c, "documents", value_or_none(c, in->documents, in->null_is_undefined));
    for (const cJSON *m = in->extra ? in->extra->child : NULL; m && !jinja_failed(c); m = m->next)
        if (m->string && jinja_template_uses(t->jinja, m->string))
            jinja_set(c, m->string, value_of_json(c, m, 0));
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

/* Cuts text after the last occurrence of the final message's text, as transformers does: with the
 * white space at that text's end if the template kept it, without it if the template stripped it.
 * The search is charged: a text of one repeated letter makes it long. */
static int cut_after_final(jctx *c, const cJSON *messages, struct jinja_text *out,
                           const char **why) {
    const char *text = final_text(messages), *p = out->p;
    if (!text) {
        *why = "the final message has no text to continue";
        return ERR_INVALID;
    }
    size_t n, n_runs, at = out->n;
    text = restore_nuls(c, text, &n);
    if (!text) return ERR_NOMEM;
    unmark(c, &text, &n, &n_runs);
    for (; chat_is_space(*text); n--)
        text++;
    size_t kept = n;
    while (n && chat_is_space(text[n - 1]))
        n--;
    for (bool found = false; !found; at -= !found) {
        found = n == 0;
        if (n && n <= out->n - at && p[at] == text[0]) {
            if (!jcharge(c, 1 + n / 64)) return ERR_INVALID;
            found = memcmp(p + at, text, n) == 0;
        }
        if (!found && at == 0) {
            *why = "the chat template changes the final message, so it cannot be continued";
            return ERR_INVALID;
        }
    }
    bool whole = kept <= out->n - at && memcmp(p + at, text, kept) == 0;
    out->n = at + (whole ? kept : n);
    while (out->n_runs && (out->n_runs > 1 ? out->runs[out->n_runs - 2].end : 0) >= out->n)
        out->n_runs--;
    return 0;
}

/* Copies the text to the heap, with its spans. */
static int copy_output(const struct jinja_text *text, struct chat_output *out, err *e) {
    out->text = mem_strndup(text->p, text->n);
    out->spans = mem_new(text->n_runs, sizeof *out->spans);
    if (!out->text || !out->spans) {
        chat_output_fini(out);
        return err_no_memory(e);
    }
    out->n = text->n;
    out->n_spans = text->n_runs;
    for (size_t i = 0; i < text->n_runs; i++) {
        out->spans[i].start = i ? text->runs[i - 1].end : 0;
        out->spans[i].end = i + 1 == text->n_runs ? text->n : text->runs[i].end;
        out->spans[i].trusted = text->runs[i].trusted;
    }
    return 0;
}

int chat_render(const chat_template *t, const struct chat_input *in, size_t max_bytes,
                struct chat_output *out, err *e) {
    return chat_render_within(t, in, max_bytes, JINJA_MAX_STEPS, out, e);
}

int chat_render_within(const chat_template *t, const struct chat_input *in, size_t max_bytes,
                       uint64_t max_steps, struct chat_output *out, err *e) {
    memset(out, 0, sizeof *out);
    uint64_t limit = 1024ull * 1024 * 1024, wanted;
    if (mem_mul(max_bytes, RENDER_FACTOR, &wanted) && mem_add(wanted, RENDER_MEMORY, &wanted) &&
        wanted < limit)
        limit = wanted;
    struct jinja_options options = {.max_memory = limit,
                                    .max_bytes = max_bytes,
                                    .max_steps = max_steps,
                                    .work = in->work,
                                    .now = in->now,
                                    .allow_mutation = in->allow_mutation};
    jctx *c = jinja_begin(t->jinja, &options, &out->failure);
    if (!c) return err_no_memory(e);
    if (!jinja_failed(c)) set_globals(c, t, in);
    jinja_run(c);
    struct jinja_text text = jinja_output(c);
    int rc = 0;
    const char *why = NULL;
    if (!jinja_failed(c) && in->continue_final_message)
        rc = cut_after_final(c, in->messages, &text, &why);
    if (jinja_failed(c)) rc = jinja_status(c, e);
    if (in->work && in->work->reason) rc = work_error(in->work->reason, e);
    if (why) {
        out->failure.fault = JINJA_FAULT_VALUE;
        snprintf(out->failure.text, sizeof out->failure.text, "%s", why);
        err_set_param(e, rc, "messages", "%s", why);
    }
    if (!rc) rc = copy_output(&text, out, e);
    jinja_end(c);
    return rc;
}

void chat_output_fini(struct chat_output *out) {
    free(out->text);
    free(out->spans);
    memset(out, 0, sizeof *out);
}

/* Renders again only if that may help: with undefined instead of none, and with mutation allowed if
 * the sandbox refused it. */
int chat_render_lenient(const chat_template *t, const struct chat_input *in, size_t max_bytes,
                        uint64_t max_steps, struct chat_output *out, err *e) {
    struct chat_input own = *in;
    struct jinja_failure first;
    err why = {0};
    bool may_undefine = !in->tools || !in->documents;
    own.null_is_undefined = own.allow_mutation = false;
    int rc = chat_render_within(t, &own, max_bytes, max_steps, out, &why);
    if (!rc) return 0;
    first = out->failure;
    if (first.fault == JINJA_FAULT_SECURITY) {
        own.allow_mutation = true;
        if (!chat_render_within(t, &own, max_bytes, max_steps, out, NULL)) return 0;
    }
    if (may_undefine && first.fault != JINJA_FAULT_LIMIT) {
        own.null_is_undefined = true;
        bool again = chat_render_within(t, &own, max_bytes, max_steps, out, NULL) != 0;
        if (again && !own.allow_mutation && out->failure.fault == JINJA_FAULT_SECURITY) {
            own.allow_mutation = true;
            again = chat_render_within(t, &own, max_bytes, max_steps, out, NULL) != 0;
        }
        if (!again) return 0;
    }
    if (in->work && in->work->reason) return work_error(in->work->reason, e);
    out->failure = first;
    if (e) *e = why;
    return rc;
}
