/* jinja/ops.c - operators and slices; Python's rules. */
#include "core/chat/jinja/builtin_int.h"

#include <math.h>
#include <string.h>

static jval repeat_sequence(jctx *c, jval v, int64_t times) {
    if (times < 0) times = 0;
    if (v.kind == J_STR) {
        jsb b;
        jsb_init(&b, c);
        b.markup = v.u.s->markup;
        for (int64_t i = 0; i < times && v.u.s->n && jcharge(c, 1); i++)
            jsb_str(&b, v.u.s);
        return jsb_done(&b);
    }
    jval out = jlist_make(c, v.kind, 0);
    for (int64_t i = 0; i < times && v.u.list->n && !c->failed; i++)
        for (size_t k = 0; k < v.u.list->n && !c->failed; k++)
            jlist_push(c, out.u.list, v.u.list->v[k]);
    return out;
}

static jval add_sequences(jctx *c, jval a, jval b) {
    if (a.kind == J_STR) {
        bool markup = a.u.s->markup || b.u.s->markup;
        if (!markup && !a.u.s->n) return b;
        if (!markup && !b.u.s->n) return a;
        jsb text;
        jsb_init(&text, c);
        text.markup = markup;
        (markup ? jsb_escaped : jsb_str)(&text, a.u.s);
        (markup ? jsb_escaped : jsb_str)(&text, b.u.s);
        return jsb_done(&text);
    }
    jval out = jlist_make(c, a.kind, a.u.list->n + b.u.list->n);
    for (size_t i = 0; i < a.u.list->n && !c->failed; i++)
        jlist_push(c, out.u.list, a.u.list->v[i]);
    for (size_t i = 0; i < b.u.list->n && !c->failed; i++)
        jlist_push(c, out.u.list, b.u.list->v[i]);
    return out;
}

static const char *op_text(enum jop op) {
    static const char *const text[] = {[OP_ADD] = "+",
                                       [OP_SUB] = "-",
                                       [OP_MUL] = "*",
                                       [OP_DIV] = "/",
                                       [OP_FLOORDIV] = "//",
                                       [OP_MOD] = "%",
                                       [OP_POW] = "** or pow()",
                                       [OP_LT] = "<",
                                       [OP_LE] = "<=",
                                       [OP_GT] = ">",
                                       [OP_GE] = ">="};
    return text[op];
}

static jval fail_operands(jctx *c, enum jop op, jval a, jval b) {
    if (a.kind == J_UNDEF) return jfail_undef(c, a);
    if (b.kind == J_UNDEF) return jfail_undef(c, b);
    if (op == OP_ADD && (a.kind == J_STR || a.kind == J_LIST || a.kind == J_TUPLE))
        return jfail(c, "can only concatenate %s (not \"%s\") to %s", jtype_name(a), jtype_name(b),
                     jtype_name(a));
    return jfail(c, "unsupported operand type(s) for %s: '%s' and '%s'", op_text(op), jtype_name(a),
                 jtype_name(b));
}

static jval int_power(jctx *c, int64_t base, int64_t exponent) {
    if (exponent < 0) {
        if (base == 0)
            return jfail_as(c, JINJA_FAULT_ZERO, "0.0 cannot be raised to a negative power");
        return jfloat(pow((double)base, (double)exponent));
    }
    int64_t result = 1;
    while (exponent > 0) {
        if ((exponent & 1) && __builtin_mul_overflow(result, base, &result))
            return jfail_as(c, JINJA_FAULT_LIMIT, "an integer is too large");
        exponent >>= 1;
        if (exponent && __builtin_mul_overflow(base, base, &base))
            return jfail_as(c, JINJA_FAULT_LIMIT, "an integer is too large");
    }
    return jint(result);
}

static jval int_op(jctx *c, enum jop op, int64_t a, int64_t b) {
    int64_t r = 0;
    bool overflow = false;
    switch (op) {
    case OP_ADD:
        overflow = __builtin_add_overflow(a, b, &r);
        break;
    case OP_SUB:
        overflow = __builtin_sub_overflow(a, b, &r);
        break;
    case OP_MUL:
        overflow = __builtin_mul_overflow(a, b, &r);
        break;
    case OP_POW:
        return int_power(c, a, b);
    default:
        if (b == 0) return jfail_as(c, JINJA_FAULT_ZERO, "division by zero");
        if (op == OP_DIV) return jfloat((double)a / (double)b);
        if (b == -1) {
            overflow = op == OP_FLOORDIV && __builtin_sub_overflow(0, a, &r);
            break;
        }
        r = a / b;
        if (op == OP_FLOORDIV)
            r -= a % b != 0 && (a < 0) != (b < 0);
        else
            r = a % b + (a % b != 0 && (a < 0) != (b < 0) ? b : 0);
    }
    return overflow ? jfail_as(c, JINJA_FAULT_LIMIT, "an integer is too large") : jint(r);
}

static jval float_op(jctx *c, enum jop op, double a, double b) {
    switch (op) {
    case OP_ADD:
        return jfloat(a + b);
    case OP_SUB:
        return jfloat(a - b);
    case OP_MUL:
        return jfloat(a * b);
    case OP_POW:
        if (a == 0 && b < 0)
            return jfail_as(c, JINJA_FAULT_ZERO, "0.0 cannot be raised to a negative power");
        return jfloat(pow(a, b));
    default:
        if (b == 0) return jfail_as(c, JINJA_FAULT_ZERO, "float division by zero");
        if (op == OP_DIV) return jfloat(a / b);
        if (op == OP_FLOORDIV) return jfloat(floor(a / b));
        double r = fmod(a, b);
        return jfloat(r != 0 && (r < 0) != (b < 0) ? r + b : r);
    }
}

jval jop_binary(jctx *c, enum jop op, jval a, jval b) {
    if (jis_number(a) && jis_number(b)) {
        bool floats = a.kind == J_FLOAT || b.kind == J_FLOAT || a.kind == J_BIG || b.kind == J_BIG;
        int64_t x = a.kind == J_BOOL ? a.u.b : a.u.i, y = b.kind == J_BOOL ? b.u.b : b.u.i;
        jval v = floats ? float_op(c, op, jnumber(a), jnumber(b)) : int_op(c, op, x, y);
        v.untrusted = a.untrusted || b.untrusted;
        return v;
    }
    bool seq_a = a.kind == J_STR || a.kind == J_LIST || a.kind == J_TUPLE;
    bool seq_b = b.kind == J_STR || b.kind == J_LIST || b.kind == J_TUPLE;
    if (op == OP_ADD && seq_a && a.kind == b.kind) return add_sequences(c, a, b);
    if (op == OP_MUL && seq_a && (b.kind == J_INT || b.kind == J_BOOL))
        return repeat_sequence(c, a, b.kind == J_INT ? b.u.i : b.u.b);
    if (op == OP_MUL && seq_b && (a.kind == J_INT || a.kind == J_BOOL))
        return repeat_sequence(c, b, a.kind == J_INT ? a.u.i : a.u.b);
    if (op == OP_MOD && a.kind == J_STR) return jformat_percent(c, a.u.s, b);
    return fail_operands(c, op, a, b);
}

bool jop_compare(jctx *c, enum jop op, jval a, jval b) {
    switch (op) {
    case OP_EQ:
        return jequal(c, a, b);
    case OP_NE:
        return !jequal(c, a, b) && !c->failed;
    case OP_IN:
        return jcontains(c, b, a);
    case OP_NOT_IN:
        return !jcontains(c, b, a) && !c->failed;
    default:
        break;
    }
    bool ordered = (jis_number(a) && jis_number(b)) ||
                   (a.kind == b.kind && (a.kind == J_STR || a.kind == J_LIST || a.kind == J_TUPLE));
    if (!ordered) {
        if (a.kind == J_UNDEF || b.kind == J_UNDEF)
            jfail_undef(c, a.kind == J_UNDEF ? a : b);
        else
            jfail(c, "'%s' not supported between instances of '%s' and '%s'", op_text(op),
                  jtype_name(a), jtype_name(b));
        return false;
    }
    int order = jorder(c, a, b);
    if (c->failed || order == 2) return false; /* 2: not a number */
    return op == OP_LT   ? order < 0
           : op == OP_LE ? order <= 0
           : op == OP_GT ? order > 0
                         : order >= 0;
}

/* A slice bound as Python reads it: fallback when absent, clamped into [low, high]. */
static int64_t slice_bound(jctx *c, jval v, int64_t fallback, int64_t n, int64_t low,
                           int64_t high) {
    if (v.kind == J_NONE) return fallback;
    if (v.kind != J_INT && v.kind != J_BOOL) {
        if (v.kind == J_UNDEF)
            jfail_undef(c, v);
        else
            jfail(c, "slice indices must be integers or None");
        return fallback;
    }
    int64_t i = v.kind == J_INT ? v.u.i : v.u.b;
    if (i < 0) i = i < -n ? low : i + n;
    return i < low ? low : i > high ? high : i;
}

jval jslice(jctx *c, jval object, jval from, jval to, jval step_value) {
    if (c->failed) return jundef_plain();
    if (object.kind == J_UNDEF) return jfail_undef(c, object);
    if (object.kind != J_STR && object.kind != J_LIST && object.kind != J_TUPLE)
        return jfail(c, "'%s' object cannot be sliced", jtype_name(object));
    int64_t n = object.kind == J_STR ? (int64_t)object.u.s->n_chars : (int64_t)object.u.list->n;
    int64_t step = 1;
    if (step_value.kind != J_NONE && !jarg_int(c, step_value, 1, &step)) return jundef_plain();
    if (step == 0) return jfail_as(c, JINJA_FAULT_VALUE, "slice step cannot be zero");
    bool back = step < 0;
    int64_t low = back ? -1 : 0, high = back ? n - 1 : n;
    int64_t start = slice_bound(c, from, back ? high : low, n, low, high);
    int64_t stop = slice_bound(c, to, back ? low : high, n, low, high);
    if (c->failed) return jundef_plain();
    if (step > n + 1) step = n + 1;
    if (step < -n - 1) step = -n - 1;
    if (object.kind == J_STR && step == 1) {
        if (stop < start) stop = start;
        jcharge(c, (uint64_t)stop / 64);
        size_t at = jstr_offset(object.u.s, (size_t)start);
        return jstr_slice(c, object.u.s, at, jstr_offset(object.u.s, (size_t)stop));
    }
    jval *items;
    size_t n_items;
    if (!jiterate(c, object, &items, &n_items)) return jundef_plain();
    jval out = jlist_make(c, object.kind == J_TUPLE ? J_TUPLE : J_LIST, 0);
    for (int64_t i = start; (back ? i > stop : i < stop) && !c->failed; i += step)
        jlist_push(c, out.u.list, items[i]);
    if (object.kind != J_STR || c->failed) return out;
    jsb b;
    jsb_init(&b, c);
    for (size_t i = 0; i < out.u.list->n; i++)
        jsb_str(&b, out.u.list->v[i].u.s);
    return jsb_done(&b);
}
