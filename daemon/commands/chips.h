/* chips.h - memory bandwidth of Apple's chips, which bounds a decode step: it reads all weights;
 * and how fast their GPUs compute, so that one can see that nothing else does. */
#ifndef INFERD_DAEMON_COMMANDS_CHIPS_H
#define INFERD_DAEMON_COMMANDS_CHIPS_H

#include <stdbool.h>
#include <stdint.h>

struct chip {
    const char *name;   /* as the system names it */
    uint32_t gpu_cores; /* of the variant, at least */
    double gb_per_s;    /* 10^9 bytes */
    uint32_t n_cores;   /* of the smallest variant's GPU */
    double ghz;         /* of the GPU */
};

/* Lanes of a GPU core; what a dispatch costs that waits for the one before it: assumed, not
 * measured on a Mac. */
enum { CHIPS_CORE_LANES = 128, CHIPS_DISPATCH_US = 3 };

const struct chip *chips_at(uint32_t i); /* NULL after the last */
/* True if this machine's chip has that name. (The system does not name the variant.) */
bool chips_is_here(const struct chip *chip);

#endif
