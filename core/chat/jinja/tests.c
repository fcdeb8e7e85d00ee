/* jinja/tests.c - the tests: names that may follow `is`. */
#include "core/chat/jinja/builtin_int.h"

static jval bind_answer(jctx *c, struct jargs *a, const char *name, bool yes) {
    jval none[1];
    return jbind(c, name, "", 0, a, none) ? jbool(yes) : jundef_plain();
}

static jval t_defined(jctx *c, jval v, struct jargs *a) {
    return bind_answer(c, a, "defined", v.kind != J_UNDEF);
}

static jval t_undefined(jctx *c, jval v, struct jargs *a) {
    return bind_answer(c, a, "undefined", v.kind == J_UNDEF);
}

static jval t_none(jctx *c, jval v, struct jargs *a) {
    return bind_answer(c, a, "none", v.kind == J_NONE);
}

static jval t_boolean(jctx *c, jval v, struct jargs *a) {
    return bind_answer(c, a, "boolean", v.kind == J_BOOL);
}

static jval t_true(jctx *c, jval v, struct jargs *a) {
    return bind_answer(c, a, "true", v.kind == J_BOOL && v.u.b);
}

static jval t_false(jctx *c, jval v, struct jargs *a) {
    return bind_answer(c, a, "false", v.kind == J_BOOL && !v.u.b);
}

static jval t_integer(jctx *c, jval v, struct jargs *a) {
    return bind_answer(c, a, "integer", v.kind == J_INT || v.kind == J_BIG);
}

static jval t_float(jctx *c, jval v, struct jargs *a) {
    return bind_answer(c, a, "float", v.kind == J_FLOAT);
}

static jval t_number(jctx *c, jval v, struct jargs *a) {
    return bind_answer(c, a, "number", jis_number(v));
}

static jval t_string(jctx *c, jval v, struct jargs *a) {
    return bind_answer(c, a, "string", v.kind == J_STR);
}

static jval t_mapping(jctx *c, jval v, struct jargs *a) {
    return bind_answer(c, a, "mapping", v.kind == J_DICT);
}

static jval t_sequence(jctx *c, jval v, struct jargs *a) {
    return bind_answer(c, a, "sequence",
                       v.kind == J_STR || v.kind == J_LIST || v.kind == J_TUPLE ||
                           v.kind == J_DICT || v.kind == J_UNDEF);
}

static jval t_iterable(jctx *c, jval v, struct jargs *a) {
    return bind_answer(c, a, "iterable",
                       v.kind == J_STR || v.kind == J_LIST || v.kind == J_TUPLE ||
                           v.kind == J_DICT || v.kind == J_GEN || v.kind == J_UNDEF ||
                           v.kind == J_LOOP);
}

static jval t_callable(jctx *c, jval v, struct jargs *a) {
    return bind_answer(c, a, "callable",
                       v.kind == J_FUNC || v.kind == J_METHOD || v.kind == J_MACRO ||
                           v.kind == J_LOOP || v.kind == J_UNDEF);
}

/* odd, even, divisibleby: v % by == rest? */
static jval test_divisible(jctx *c, jval v, int64_t by, int rest) {
    if (v.kind == J_UNDEF) return jfail_undef(c, v);
    if (!jis_number(v)) return jfail(c, "a number is needed, not '%s'", jtype_name(v));
    jval got = jop_binary(c, OP_MOD, v, jint(by));
    return jbool(!c->failed && jnumber(got) == rest);
}

static jval t_odd(jctx *c, jval v, struct jargs *a) {
    jval none[1];
    return jbind(c, "odd", "", 0, a, none) ? test_divisible(c, v, 2, 1) : jundef_plain();
}

static jval t_even(jctx *c, jval v, struct jargs *a) {
    jval none[1];
    return jbind(c, "even", "", 0, a, none) ? test_divisible(c, v, 2, 0) : jundef_plain();
}

static jval t_divisibleby(jctx *c, jval v, struct jargs *a) {
    jval num;
    int64_t by;
    if (!jbind(c, "divisibleby", "num", 1, a, &num) || !jarg_int(c, num, 1, &by))
        return jundef_plain();
    return test_divisible(c, v, by, 0);
}

static jval compare_with(jctx *c, jval v, struct jargs *a, enum jop op) {
    jval other;
    if (!jbind(c, "a comparing test", "other", 1, a, &other)) return jundef_plain();
    return jbool(jop_compare(c, op, v, other));
}

static jval t_eq(jctx *c, jval v, struct jargs *a) {
    return compare_with(c, v, a, OP_EQ);
}

static jval t_ne(jctx *c, jval v, struct jargs *a) {
    return compare_with(c, v, a, OP_NE);
}

static jval t_lt(jctx *c, jval v, struct jargs *a) {
    return compare_with(c, v, a, OP_LT);
}

static jval t_le(jctx *c, jval v, struct jargs *a) {
    return compare_with(c, v, a, OP_LE);
}

static jval t_gt(jctx *c, jval v, struct jargs *a) {
    return compare_with(c, v, a, OP_GT);
}

static jval t_ge(jctx *c, jval v, struct jargs *a) {
    return compare_with(c, v, a, OP_GE);
}

static jval t_in(jctx *c, jval v, struct jargs *a) {
    return compare_with(c, v, a, OP_IN);
}

/* The same object: scalars by value and type, containers by identity. */
static jval t_sameas(jctx *c, jval v, struct jargs *a) {
    jval other;
    if (!jbind(c, "sameas", "other", 1, a, &other)) return jundef_plain();
    if (v.kind != other.kind) return jbool(false);
    if (v.kind == J_LIST || v.kind == J_TUPLE) return jbool(v.u.list == other.u.list);
    if (v.kind == J_DICT) return jbool(v.u.dict == other.u.dict);
    return jbool(jequal(c, v, other));
}

static jval test_by_method(jctx *c, jval v, struct jargs *a, const char *method) {
    jval none[1];
    if (!jbind(c, "lower or upper", "", 0, a, none)) return jundef_plain();
    const jstr *s = jto_str(c, v);
    if (!s) return jundef_plain();
    return jbuiltin_find(jstr_methods, method, 7)->fn(c, jstr_val(s), a);
}

static jval t_lower(jctx *c, jval v, struct jargs *a) {
    return test_by_method(c, v, a, "islower");
}

static jval t_upper(jctx *c, jval v, struct jargs *a) {
    return test_by_method(c, v, a, "isupper");
}

static jval t_filter(jctx *c, jval v, struct jargs *a) {
    return bind_answer(c, a, "filter", v.kind == J_STR && jfilter_find(v.u.s));
}

static jval t_test(jctx *c, jval v, struct jargs *a) {
    return bind_answer(c, a, "test", v.kind == J_STR && jbuiltin_find(jtests, v.u.s->p, v.u.s->n));
}

const struct jbuiltin jtests[] = {{"defined", t_defined, false},
                                  {"undefined", t_undefined, false},
                                  {"none", t_none, false},
                                  {"boolean", t_boolean, false},
                                  {"true", t_true, false},
                                  {"false", t_false, false},
                                  {"integer", t_integer, false},
                                  {"float", t_float, false},
                                  {"number", t_number, false},
                                  {"string", t_string, false},
                                  {"mapping", t_mapping, false},
                                  {"sequence", t_sequence, false},
                                  {"iterable", t_iterable, false},
                                  {"callable", t_callable, false},
                                  {"odd", t_odd, false},
                                  {"even", t_even, false},
                                  {"divisibleby", t_divisibleby, false},
                                  {"eq", t_eq, false},
                                  {"equalto", t_eq, false},
                                  {"==", t_eq, false},
                                  {"ne", t_ne, false},
                                  {"!=", t_ne, false},
                                  {"lt", t_lt, false},
                                  {"lessthan", t_lt, false},
                                  {"<", t_lt, false},
                                  {"le", t_le, false},
                                  {"<=", t_le, false},
                                  {"gt", t_gt, false},
                                  {"greaterthan", t_gt, false},
                                  {">", t_gt, false},
                                  {"ge", t_ge, false},
                                  {">=", t_ge, false},
                                  {"in", t_in, false},
                                  {"sameas", t_sameas, false},
                                  {"lower", t_lower, false},
                                  {"upper", t_upper, false},
                                  {"filter", t_filter, false},
                                  {"test", t_test, false},
                                  {NULL, NULL, false}};
