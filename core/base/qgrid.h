/* qgrid.h - grids of the IQ types, private to core/base. A point has eight coordinates of two bits
 * (IQ1, IQ2) or four of four bits (IQ3), the first in the lowest bits. IQ1: coordinate + 1; the
 * others: the index of its magnitude in 8, 25, 43 (IQ2), 4, 12, .., 52, 62 (IQ3_XXS), 1, 3, .., 15
 * (IQ3_S). */
#ifndef INFERD_BASE_QGRID_H
#define INFERD_BASE_QGRID_H

#include <stdint.h>

extern const uint16_t qgrid_iq2_xxs[256], qgrid_iq2_xs[512], qgrid_iq2_s[1024], qgrid_iq1[2048];
extern const uint16_t qgrid_iq3_xxs[256], qgrid_iq3_s[512];

#endif
