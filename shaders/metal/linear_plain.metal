// linear_plain.metal - the kernel of linear_matrix.metal on plain fma (tile.h).
#define TILE_PLAIN
#define linear_matrix linear_plain
#include "shaders/metal/linear_matrix.metal"
