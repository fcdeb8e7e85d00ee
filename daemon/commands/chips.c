/* chips.c - the table, and the name of this machine's chip. Owns nothing; any thread.
 *
 * Sources: Apple's announcements and technical specifications: newsroom of 2020-11-10 (M1, whose
 * LPDDR4X-4266 on 128 bits is 68.25 GB/s), 2021-10-18 (M1 Pro, M1 Max), 2022-03-08 (M1 Ultra),
 * 2022-06-06 (M2), 2023-01-17 (M2 Pro, M2 Max), 2023-06-05 (M2 Ultra), 2023-10-30 (M3, M3 Pro, M3
 * Max), 2024-05-07 (M4), 2024-10-30 (M4 Pro, M4 Max), 2025-03-05 (M3 Ultra), 2025-10-15 (M5),
 * 2026-03-03 (M5 Pro, M5 Max), and the specifications of the MacBook Pro for variants by GPU cores.
 *
 * A GPU core issues an operation for 128 lanes each cycle. Clocks of M1 and M2 are those that
 * philipturner/metal-benchmarks measured, the others the highest that powermetrics lists: of M3 in
 * philipturner/applegpuinfo#15, of M3 Max in its #4, of M4 Pro in eclecticlight.co of 2025-01-22
 * ("M4 Pro full on"), of M5 Max in feedback-assistant/reports#830; of M4 and M5 those of
 * hmc-tech.com (apple-10-core-m4, apple-8-core-m5-fl), the lowest that is published. M4 Max has M4
 * Pro's, Ultra chips have Max's, M3 Pro and M5 Pro the lowest of their family. Cores are those of
 * the smallest variant with that memory: of M5, which Apple announced with 10, the 8 of the same
 * hmc-tech.com. So ALU bounds are rather too long than too short. None was measured here. */
#include "daemon/commands/chips.h"

#include <stddef.h>
#include <string.h>
#ifdef __APPLE__
#include <sys/sysctl.h>
#endif

static const struct chip table[] = {
    {"Apple M1", 0, 68.25, 7, 1.278},     {"Apple M1 Pro", 0, 200, 14, 1.296},
    {"Apple M1 Max", 0, 400, 24, 1.296},  {"Apple M1 Ultra", 0, 800, 48, 1.296},
    {"Apple M2", 0, 100, 8, 1.398},       {"Apple M2 Pro", 0, 200, 16, 1.398},
    {"Apple M2 Max", 0, 400, 30, 1.398},  {"Apple M2 Ultra", 0, 800, 60, 1.398},
    {"Apple M3", 0, 100, 8, 1.338},       {"Apple M3 Pro", 0, 150, 14, 1.338},
    {"Apple M3 Max", 0, 300, 30, 1.38},   {"Apple M3 Max", 40, 400, 40, 1.38},
    {"Apple M3 Ultra", 0, 819, 60, 1.38}, {"Apple M4", 0, 120, 8, 1.47},
    {"Apple M4 Pro", 0, 273, 16, 1.578},  {"Apple M4 Max", 0, 410, 32, 1.578},
    {"Apple M4 Max", 40, 546, 40, 1.578}, {"Apple M5", 0, 153, 8, 1.578},
    {"Apple M5 Pro", 0, 307, 16, 1.578},  {"Apple M5 Max", 0, 460, 32, 1.62},
    {"Apple M5 Max", 40, 614, 40, 1.62},
};

const struct chip *chips_at(uint32_t i) {
    return i < sizeof table / sizeof table[0] ? &table[i] : NULL;
}

bool chips_is_here(const struct chip *chip) {
#ifdef __APPLE__
    char name[64] = "";
    size_t n = sizeof name - 1;
    return sysctlbyname("machdep.cpu.brand_string", name, &n, NULL, 0) == 0 &&
           strcmp(name, chip->name) == 0;
#else
    (void)chip;
    return false;
#endif
}
