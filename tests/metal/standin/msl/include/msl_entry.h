/* msl_entry.h - used by the code that tools/mslc.py writes: function constants, entries and their
 * arguments. */
#ifndef MSL_ENTRY_H
#define MSL_ENTRY_H
#include "msl_vec.h"

namespace msl {
/* Threadgroup variables, registered when the object is loaded: one instance of this per
 * variable. */
static const msl_tg_var *tg_vars;
template <class F, F function, unsigned bytes, unsigned ordinal> struct tg_static {
    static bool add() {
        static msl_tg_var v;
        v.owner = (const void *)function;
        v.bytes = bytes;
        v.next = tg_vars;
        tg_vars = &v;
        return true;
    }
    static const bool once;
};
template <class F, F function, unsigned bytes, unsigned ordinal>
const bool tg_static<F, function, bytes, ordinal>::once = add();
template <class T> inline T fc(unsigned i) {
    T v = T();
    const msl_fc_values *f = msl_rt_fc();
    if (f->set[i]) __builtin_memcpy(&v, &f->val[i], sizeof v);
    return v;
}
inline bool fc_set(unsigned i) {
    return msl_rt_fc()->set[i];
}
template <class T> struct tv { typedef T type; };
#define MSL_TG(T, name, dims)                                                                      \
    typedef T msl_tg_##name dims;                                                                  \
    msl_tg_##name &name =                                                                          \
        *(msl_tg_##name *)msl_rt_tgvar(sizeof(msl_tg_##name), alignof(msl_tg_##name), __LINE__)
#define is_function_constant_defined(n) msl_fcdef_##n
template <class A> struct par;
template <class T> struct par<T *> {
    typedef T obj;
    static constexpr bool ref = false;
    static T *get(void *p) {
        return (T *)p;
    }
};
template <class T> struct par<T &> {
    typedef T obj;
    static constexpr bool ref = true;
    static T &get(void *p) {
        return *(T *)p;
    }
};
template <class T> struct cst { static constexpr bool v = false; };
template <class T> struct cst<const T> { static constexpr bool v = true; };
template <class T> struct size { static constexpr unsigned v = sizeof(T); };
template <> struct size<void> { static constexpr unsigned v = 1; };
template <> struct size<const void> { static constexpr unsigned v = 1; };
template <class F> struct fn;
template <class... A> struct fn<void (*)(A...)> {
    template <int I, class H, class... R> struct at : at<I - 1, R...> {};
    template <class H, class... R> struct at<0, H, R...> { typedef H type; };
    template <int I> using arg = typename at<I, A...>::type;
};
template <class A> struct bi {
    static A get(const uint32_t *u) {
        return (A)u[0];
    }
};
template <class T, int N> struct bi<metal::vec<T, N>> {
    static metal::vec<T, N> get(const uint32_t *u) {
        metal::vec<T, N> r;
        for (int i = 0; i < N; i++)
            r[i] = (T)u[i];
        return r;
    }
};
struct u3 {
    uint32_t v[3];
};
static inline u3 tpig(const msl_launch *L) {
    const msl_threadpos *p = msl_rt_pos();
    u3 r;
    for (int i = 0; i < 3; i++)
        r.v[i] = L->tgpig[i] * L->dntptg[i] + p->tpitg[i];
    return r;
}
} // namespace msl
#pragma clang diagnostic ignored "-Wunknown-attributes"
#endif
