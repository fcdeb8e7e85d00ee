/* template.h - functions that are templates: always inlined into callers that pass constants, loops
 * over register tiles unrolled. Sanitizer builds compile them as plain functions: hundreds of
 * instrumented instances would take minutes to compile without checking more. */
#ifndef INFERD_CPU_TEMPLATE_H
#define INFERD_CPU_TEMPLATE_H

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define CPU_PLAIN_TEMPLATES
#endif
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CPU_PLAIN_TEMPLATES
#endif

#if defined(CPU_PLAIN_TEMPLATES)
#define ALWAYS_INLINE static __attribute__((unused))
#define UNROLL
#elif defined(__clang__)
#define ALWAYS_INLINE static inline __attribute__((always_inline))
#define UNROLL        _Pragma("clang loop unroll(full)")
#else
#define ALWAYS_INLINE static inline __attribute__((always_inline))
#define UNROLL        _Pragma("GCC unroll 16")
#endif

#endif
