/* jinja/args.c - looks up built-in names and binds arguments to parameters. */
#include "core/chat/jinja/builtin_int.h"

#include <string.h>

const struct jbuiltin *jbuiltin_find(const struct jbuiltin *table, const char *p, size_t n) {
    for (; table->name; table++)
        if (strncmp(table->name, p, n) == 0 && table->name[n] == '\0') return table;
    return NULL;
}

/* Index of a name in the list of names, -1 if it is not there. */
static int name_index(const char *names, const jstr *name) {
    int i = 0;
    for (const char *p = names; *p; i++) {
        size_t n = strcspn(p, " ");
        if (n == name->n && memcmp(p, name->p, n) == 0) return i;
        p += n + (p[n] == ' ');
    }
    return -1;
}

bool jbind(jctx *c, const char *what, const char *names, size_t n_required, struct jargs *a,
           jval *out) {
    size_t n = *names ? 1 : 0;
    for (const char *p = names; *p; p++)
        n += *p == ' ';
    for (size_t i = 0; i < n; i++)
        out[i] = jabsent();
    if (a->n_pos > n) {
        jfail(c, "%s takes at most %zu argument(s), %zu given", what, n, a->n_pos);
        return false;
    }
    for (size_t i = 0; i < a->n_pos; i++)
        out[i] = a->pos[i];
    for (size_t i = 0; i < a->n_kw; i++) {
        int at = name_index(names, a->kw_names[i]);
        if (at < 0 || out[at].kind != J_ABSENT) {
            jfail(c, "%s got %s keyword argument '%.*s'", what,
                  at < 0 ? "an unexpected" : "two values for",
                  a->kw_names[i]->n > 60 ? 60 : (int)a->kw_names[i]->n, a->kw_names[i]->p);
            return false;
        }
        out[at] = a->kw[i];
    }
    for (size_t i = 0; i < n_required; i++)
        if (out[i].kind == J_ABSENT) {
            jfail(c, "%s takes at least %zu argument(s)", what, n_required);
            return false;
        }
    return !c->failed;
}

bool jarg_int(jctx *c, jval v, int64_t fallback, int64_t *out) {
    *out = fallback;
    if (v.kind == J_ABSENT) return true;
    if (v.kind == J_INT)
        *out = v.u.i;
    else if (v.kind == J_BOOL)
        *out = v.u.b;
    else if (v.kind == J_UNDEF)
        jfail_undef(c, v);
    else
        jfail(c, "'%s' object cannot be interpreted as an integer", jtype_name(v));
    return !c->failed;
}

const jstr *jarg_str(jctx *c, jval v) {
    if (v.kind == J_STR) return v.u.s;
    if (v.kind == J_UNDEF)
        jfail_undef(c, v);
    else
        jfail(c, "must be str, not %s", jtype_name(v));
    return NULL;
}
