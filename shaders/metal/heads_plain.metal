// heads_plain.metal - the kernel of heads_matrix.metal on plain fma (tile.h).
#define TILE_PLAIN
#define heads_matrix heads_plain
#include "shaders/metal/heads_matrix.metal"
