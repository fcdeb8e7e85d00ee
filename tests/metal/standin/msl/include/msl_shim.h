/* msl_shim.h - the Metal Shading Language as executable C++ (clang >= 14), included by
 * <metal_stdlib> and its siblings. Every type and function has the name and the meaning that the
 * MSL specification gives it; the execution model is implemented by runtime/. */
#ifndef MSL_SHIM_H
#define MSL_SHIM_H
#include "msl_atomic.h"
#include "msl_entry.h"
#include "msl_math.h"
#include "msl_matrix.h"
#include "msl_simd.h"
#endif
