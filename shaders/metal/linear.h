/* linear.h - what both families of backend_linear share: the constants of a pipeline, which weight
 * a tile is of, what becomes of a product. */
#ifndef INFERD_METAL_LINEAR_H
#define INFERD_METAL_LINEAR_H

#include "shaders/metal/product.h"

constant uint TYPE [[function_constant(0)]];      /* enum qtype of the weights */
constant uint TYPE_UP [[function_constant(1)]];   /* of a pair's second; else TYPE */
constant uint N_WEIGHTS [[function_constant(2)]]; /* 1 to 3, a pair is 1 */
constant uint ACT [[function_constant(3)]];       /* not NONE: the weights are a pair */
constant uint BIAS [[function_constant(4)]];      /* bit i: weight i has one */
constant uint EDGE [[function_constant(5)]];      /* n_in is no multiple of 8 */
constant uint SCALED [[function_constant(6)]];    /* 1: y_scale; 2: and cap */
constant uint ROWS [[function_constant(7)]];      /* of x in a pass or tile */
constant uint WIDTH [[function_constant(8)]];     /* weight rows of a lane */

/* One threadgroup's part of an op. */
struct linear_tile {
    device const uchar *w[2]; /* the weight; a pair's second */
    device const float *bias[2];
    device float *y;
    uint n_out, at; /* tile of the weight */
    bool has_bias;  /* a pair has it in BIAS */
};

static inline linear_tile linear_pick(constant kargs_linear &a, uint tile, device const uchar *w0,
                                      device const uchar *w1, device const uchar *w2,
                                      device const float *b0, device const float *b1,
                                      device const float *b2, device float *y0, device float *y1,
                                      device float *y2) {
    linear_tile t = {{w0, w1}, {b0, b1}, y0, a.n_out[0], tile, (BIAS & 1) != 0};
    if (N_WEIGHTS > 1 && t.at >= a.n_tiles[0]) {
        t = {{w1, w1}, {b1, b1}, y1, a.n_out[1], tile - a.n_tiles[0], (BIAS & 2) != 0};
        if (N_WEIGHTS > 2 && t.at >= a.n_tiles[1])
            t = {{w2, w2}, {b2, b2}, y2, a.n_out[2], t.at - a.n_tiles[1], (BIAS & 4) != 0};
    }
    return t;
}

/* The value that is written for a product, or a pair of them. */
static inline float linear_finish(constant kargs_linear &a, thread const linear_tile &t, uint out,
                                  float v, float up) {
    if (ACT != PRODUCT_ACT_NONE) {
        if (BIAS & 1) v += t.bias[0][out];
        if (BIAS & 2) up += t.bias[1][out];
        return product_act(ACT, v, up);
    }
    if (BIAS && t.has_bias) v += t.bias[0][out];
    if (SCALED & 2) return a.cap * precise::tanh(v * a.y_over_cap);
    return SCALED & 1 ? v * a.y_scale : v;
}

#endif
