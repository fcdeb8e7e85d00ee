/* device_main.h - main of the tests of one device ("cuda", "metal"): they run if the device opens;
 * otherwise the program reports that it skips them. */
#ifndef INFERD_TESTS_DEVICE_MAIN_H
#define INFERD_TESTS_DEVICE_MAIN_H

#include "tests/support/be.h"
#include "tests/unit/check.h"

/* Reads the arguments (be_args) and calls `tests`, which RUNs each test, if the device opens. */
static inline int device_main(int argc, char **argv, const char *device, void (*tests)(void)) {
    const struct backend_config config = {.n_threads = 1, .max_rows = 1, .max_cols = 64};
    be_args(argc, argv);
    backend *be = be_open_config(config, device);
    if (be) {
        backend_close(be);
        tests();
    } else {
        SKIP(device, "no such device, a build without it, or another one was selected");
    }
    return check_done();
}

/* main of a build whose backend cannot be tested; prints why. */
#define DEVICE_MAIN_SKIPS(device, why)                                                             \
    int main(void) {                                                                               \
        SKIP(device, why);                                                                         \
        return check_done();                                                                       \
    }

#endif
