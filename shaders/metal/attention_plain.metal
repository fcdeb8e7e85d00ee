// attention_plain.metal - the kernel of attention_matrix.metal on plain fma (tile.h).
#define TILE_PLAIN
#define attention_prefill attention_prefill_plain
#include "shaders/metal/attention_matrix.metal"
