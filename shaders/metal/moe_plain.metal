// moe_plain.metal - the kernel of moe_matrix.metal on plain fma (tile.h).
#define TILE_PLAIN
#define moe_matrix moe_plain
#include "shaders/metal/moe_matrix.metal"
