// sim_fault.m - injected failures: of the Nth command buffer, buffer, library or pipeline of the
// process. Any thread.
#import "tests/metal/standin/framework/sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const places[SIM_N_FAULTS] = {
    [SIM_FAULT_COMMAND] = "command",     [SIM_FAULT_BUFFER] = "buffer",
    [SIM_FAULT_LIBRARY] = "library",     [SIM_FAULT_PIPELINE] = "pipeline",
    [SIM_FAULT_QUEUE] = "queue",         [SIM_FAULT_DEVICE] = "nodevice",
    [SIM_FAULT_RESIDENCY] = "residency",
};

static const struct fault_kind {
    const char *name;
    NSInteger code;
    const char *text;
} kinds[] = {
    {"internal", MTLCommandBufferErrorInternal, "Internal Error"},
    {"timeout", MTLCommandBufferErrorTimeout, "Caused GPU Timeout Error"},
    {"pagefault", MTLCommandBufferErrorPageFault, "Caused GPU Address Fault Error"},
    {"oom", MTLCommandBufferErrorOutOfMemory, "Insufficient Memory"},
    {"revoked", MTLCommandBufferErrorAccessRevoked, "Impacting Interactivity"},
    {"denied", MTLCommandBufferErrorNotPermitted, "Insufficient Permission"},
    {"resource", MTLCommandBufferErrorInvalidResource, "Invalid Resource"},
    {"memoryless", MTLCommandBufferErrorMemoryless, "Insufficient Memoryless Storage"},
    {"stack", MTLCommandBufferErrorStackOverflow, "Stack Overflow"},
    {"lost", MTLCommandBufferErrorDeviceRemoved, "the device was lost"},
};

enum { N_KINDS = sizeof kinds / sizeof *kinds };

static struct {
    pthread_mutex_t mutex;
    struct {
        uint64_t at, n;                // number of the one that fails, 0: none; created so far
        const struct fault_kind *kind; // of a command buffer
    } of[SIM_N_FAULTS];
    bool lost;
} faults = {.mutex = PTHREAD_MUTEX_INITIALIZER};

// Parses "place=N", "command=N:kind" or "nodevice"; false: malformed.
static bool read_fault(char *text) {
    char *number = strchr(text, '=');
    if (number) *number++ = 0;
    int place = 0;
    while (place < SIM_N_FAULTS && strcmp(places[place], text) != 0)
        place++;
    if (place == SIM_N_FAULTS || !number != (place == SIM_FAULT_DEVICE)) return false;
    faults.of[place].at = 1;
    if (!number) return true;
    char *end;
    faults.of[place].at = strtoull(number, &end, 10);
    if (place != SIM_FAULT_COMMAND) return !*end;
    for (int i = 0; i < N_KINDS; i++)
        if (*end == ':' && strcmp(end + 1, kinds[i].name) == 0) {
            faults.of[place].kind = &kinds[i];
            return true;
        }
    return false;
}

static int set_faults(const char *spec) {
    char text[256], *rest = text, *one;
    bool ok = true;
    snprintf(text, sizeof text, "%s", spec ? spec : "");
    pthread_mutex_lock(&faults.mutex);
    memset(faults.of, 0, sizeof faults.of);
    faults.lost = false;
    while (ok && (one = strsep(&rest, ",")))
        ok = !*one || read_fault(one);
    if (!ok) memset(faults.of, 0, sizeof faults.of);
    pthread_mutex_unlock(&faults.mutex);
    return ok ? 0 : -1;
}

int metalsim_set_faults(const char *spec) {
    sim_state_init();
    return set_faults(spec);
}

void sim_fault_init(void) {
    const char *spec = getenv("METALSIM_FAIL");
    if (spec && set_faults(spec) != 0)
        sim_violation("METALSIM_FAIL=%s: want PLACE=N, command=N:KIND or nodevice", spec);
}

bool sim_fault(enum sim_fault place) {
    pthread_mutex_lock(&faults.mutex);
    bool now = ++faults.of[place].n == faults.of[place].at ||
               (place == SIM_FAULT_DEVICE && faults.of[place].at);
    pthread_mutex_unlock(&faults.mutex);
    return now;
}

NSError *sim_fault_of_command(void) {
    const struct fault_kind *kind = NULL;
    pthread_mutex_lock(&faults.mutex);
    bool was_lost = faults.lost;
    if (++faults.of[SIM_FAULT_COMMAND].n == faults.of[SIM_FAULT_COMMAND].at)
        kind = faults.of[SIM_FAULT_COMMAND].kind;
    if (kind && kind->code == MTLCommandBufferErrorDeviceRemoved) faults.lost = true;
    pthread_mutex_unlock(&faults.mutex);
    if (was_lost)
        return sim_error(MTLCommandBufferErrorDomain, MTLCommandBufferErrorAccessRevoked,
                         @"Ignored (for causing prior/excessive GPU errors)");
    if (!kind) return nil;
    return sim_error(MTLCommandBufferErrorDomain, kind->code,
                     [NSString stringWithFormat:@"%s (injected)", kind->text]);
}
