/* chips.h - memory bandwidth of Apple's chips, which bounds a decode step: it reads all weights. */
#ifndef INFERD_DAEMON_COMMANDS_CHIPS_H
#define INFERD_DAEMON_COMMANDS_CHIPS_H

#include <stdbool.h>
#include <stdint.h>

struct chip {
    const char *name;   /* as the system names it */
    uint32_t gpu_cores; /* of the variant, at least */
    double gb_per_s;    /* 10^9 bytes */
};

const struct chip *chips_at(uint32_t i); /* NULL after the last */
/* True if this machine's chip has that name. (The system does not name the variant.) */
bool chips_is_here(const struct chip *chip);

#endif
