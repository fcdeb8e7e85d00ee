// sim_state.m - options and reports of the stand-in. Any thread may report; the test's thread sets
// options before it starts work.
#import "tests/metal/standin/framework/sim.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

NSString *const MTLLibraryErrorDomain = @"MTLLibraryErrorDomain";
NSString *const MTLCommandBufferErrorDomain = @"MTLCommandBufferErrorDomain";

// The framework is a process-wide service, like the real one, and so is its state.
static struct {
    metalsim_handler handler;
    msl_opts options;
    int guard_level;
    bool poison;
    unsigned delay_ms;
} state = {.options = {.workers = 1, .check = 1, .seed = 1}};
static pthread_once_t init_once = PTHREAD_ONCE_INIT;

static uint64_t env_number(const char *name, uint64_t otherwise) {
    const char *text = getenv(name);
    return text && *text ? strtoull(text, NULL, 0) : otherwise;
}

static void set_matrix(const char *order) {
    static const char *const orders[] = {"chain", "tree", "halves"};
    int i = 0;
    while (order && i < 3 && strcmp(order, orders[i]) != 0)
        i++;
    if (i == 3)
        sim_violation("METALSIM_MATRIX=%s: want chain, tree or halves", order);
    else
        state.options.sum_tree = i;
}

static void set_halves(const char *kind) {
    state.options.flush_halves = kind && strcmp(kind, "flush") == 0;
    if (kind && !state.options.flush_halves && strcmp(kind, "ieee") != 0)
        sim_violation("METALSIM_HALVES=%s: want ieee or flush", kind);
}

static void init(void) {
    msl_opts *o = &state.options;
    const char *mode = getenv("METALSIM_MODE");
    if (mode && strcmp(mode, "plain") != 0 && strcmp(mode, "check") != 0)
        sim_violation("METALSIM_MODE=%s: want plain or check", mode);
    if (mode) o->check = strcmp(mode, "check") == 0;
    o->workers = (int)env_number("METALSIM_WORKERS", (uint64_t)o->workers);
    o->shuffle = (int)env_number("METALSIM_SHUFFLE", (uint64_t)o->shuffle);
    o->seed = env_number("METALSIM_SEED", o->seed);
    if (!o->workers) o->workers = (int)sysconf(_SC_NPROCESSORS_ONLN);
    set_matrix(getenv("METALSIM_MATRIX"));
    set_halves(getenv("METALSIM_HALVES"));
    o->noise = env_number("METALSIM_NOISE", 0);
    state.guard_level = (int)env_number("METALSIM_GUARD", 0);
    state.poison = env_number("METALSIM_POISON", 0) != 0;
    state.delay_ms = (unsigned)env_number("METALSIM_DELAY_MS", 0);
    if (state.guard_level) sim_guard_init();
    sim_object_init();
    sim_family_init();
    sim_fault_init();
}

void sim_state_init(void) {
    pthread_once(&init_once, init);
}

void metalsim_set_options(int check, int workers, int shuffle, uint64_t seed) {
    sim_state_init();
    if (!workers) workers = (int)sysconf(_SC_NPROCESSORS_ONLN);
    state.options.check = check;
    state.options.workers = workers;
    state.options.shuffle = shuffle;
    state.options.seed = seed;
}

void metalsim_set_matrix(const char *order) {
    sim_state_init();
    set_matrix(order);
}

void metalsim_set_halves(const char *kind) {
    sim_state_init();
    set_halves(kind);
}

const msl_opts *sim_options(void) {
    return &state.options;
}

int sim_guard_level(void) {
    return state.guard_level;
}

unsigned sim_delay_ms(void) {
    return state.delay_ms;
}

void metalsim_set_delay_ms(unsigned ms) {
    sim_state_init();
    state.delay_ms = ms;
}

bool sim_poison(void) {
    return state.poison;
}

metalsim_handler metalsim_set_violation_handler(metalsim_handler handler) {
    metalsim_handler before = state.handler;
    state.handler = handler;
    return before;
}

void sim_violation(const char *format, ...) {
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (state.handler) {
        state.handler(text);
        return;
    }
    fprintf(stderr, "metalsim: API violation: %s\n", text);
    abort();
}

NSError *sim_error(NSString *domain, NSInteger code, NSString *text) {
    return [NSError errorWithDomain:domain code:code userInfo:@{NSLocalizedDescriptionKey : text}];
}

double sim_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
