/* id.c - random ids. Owns nothing. */
#include "api/http/id.h"

#include "core/base/clock.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

void id_new(char *dst, const char *prefix) {
    unsigned char bytes[12];
    if (getentropy(bytes, sizeof bytes)) {
        /* Ids only have to differ: without entropy, the time and an address make them differ. */
        uint64_t now = clock_now_ns();
        uint32_t address = (uint32_t)(uintptr_t)dst;
        memcpy(bytes, &now, 8);
        memcpy(bytes + 8, &address, 4);
    }
    size_t n = (size_t)snprintf(dst, 24, "%s", prefix);
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(dst + n + 2 * i, 3, "%02x", bytes[i]);
}
