/* vector_types.h - CUDA's small vector types, for C and C++, with the alignments that CUDA gives
 * them. */
#ifndef CUDASIM_VECTOR_TYPES_H
#define CUDASIM_VECTOR_TYPES_H

#define CUDASIM_VECTORS(name, type, a2, a4)                                                        \
    struct name##2 {                                                                               \
        type x, y;                                                                                 \
    }                                                                                              \
    __attribute__((aligned(a2)));                                                                  \
    struct name##3 {                                                                               \
        type x, y, z;                                                                              \
    };                                                                                             \
    struct name##4 {                                                                               \
        type x, y, z, w;                                                                           \
    }                                                                                              \
    __attribute__((aligned(a4)));                                                                  \
    typedef struct name##2 name##2;                                                                \
    typedef struct name##3 name##3;                                                                \
    typedef struct name##4 name##4;

CUDASIM_VECTORS(char, signed char, 2, 4)
CUDASIM_VECTORS(uchar, unsigned char, 2, 4)
CUDASIM_VECTORS(short, short, 4, 8)
CUDASIM_VECTORS(ushort, unsigned short, 4, 8)
CUDASIM_VECTORS(int, int, 8, 16)
CUDASIM_VECTORS(uint, unsigned int, 8, 16)
CUDASIM_VECTORS(float, float, 8, 16)

typedef struct double2 {
    double x, y;
} __attribute__((aligned(16))) double2;

#ifdef __cplusplus
struct dim3 {
    unsigned int x, y, z;
    constexpr dim3(unsigned int a = 1, unsigned int b = 1, unsigned int c = 1) : x(a), y(b), z(c) {}
    constexpr operator uint3() const {
        return uint3{x, y, z};
    }
};
#else
typedef struct dim3 {
    unsigned int x, y, z;
} dim3;
#endif

#endif
