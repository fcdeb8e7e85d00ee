/* chips.h - memory bandwidth of Apple's chips: what bounds a decode step, which reads all weights.
 */
#ifndef INFERD_DAEMON_COMMANDS_CHIPS_H
#define INFERD_DAEMON_COMMANDS_CHIPS_H

#include <stdbool.h>
#include <stdint.h>

struct chip {
    const char *name;   /* as the system names it */
    uint32_t gpu_cores; /* of the variant, at least */
    double gb_per_s;    /* 10^9 bytes */
};

const struct chip *chips_at(uint32_t i); /* NULL: there are no more */
/* Is this machine one of that name? (The system does not say which variant.) */
bool chips_is_here(const struct chip *chip);

#endif
