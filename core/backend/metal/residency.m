/* residency.m - keeps the model's memory wired. macOS unwires what no command buffer has used for
 * about a second, and the next step then waits while gigabytes are wired again. A residency set
 * (macOS 15) holds every buffer; a thread asks for its residency again and again until the device
 * has had nothing to do for the time that the configuration allows. Owns the set and the thread. */
#include "core/backend/metal/metal_int.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/mem.h"

#include <pthread.h>
#include <stdlib.h>

#if defined(__MAC_OS_X_VERSION_MAX_ALLOWED) && __MAC_OS_X_VERSION_MAX_ALLOWED >= 150000

enum { ASK_MS = 500 }; /* less than the time after which macOS unwires */

struct metal_residency {
    id<MTLResidencySet> set API_AVAILABLE(macos(15.0));
    uint64_t keep_ns;
    pthread_t thread;
    pthread_mutex_t mutex; /* the set is not thread-safe */
    pthread_cond_t wake;
    /* Under the mutex: */
    uint64_t used_ns; /* when the last command buffer was committed */
    bool changed;     /* buffers were added or removed since the set's last commit */
    bool stopping;
};

/* Under the mutex. */
static void commit_changes(struct metal_residency *r) API_AVAILABLE(macos(15.0)) {
    if (r->changed) [r->set commit];
    r->changed = false;
}

static void *keep_resident(void *arg) API_AVAILABLE(macos(15.0)) {
    struct metal_residency *r = arg;
    pthread_mutex_lock(&r->mutex);
    while (!r->stopping) {
        if (clock_now_ns() - r->used_ns > r->keep_ns) {
            pthread_cond_wait(&r->wake, &r->mutex);
            continue;
        }
        @autoreleasepool {
            commit_changes(r);
            [r->set requestResidency];
        }
        clock_cond_wait(&r->wake, &r->mutex, clock_now_ns() + ASK_MS * UINT64_C(1000000));
    }
    pthread_mutex_unlock(&r->mutex);
    return NULL;
}

static int start_set(struct metal_backend *m, struct metal_residency *r, err *e)
    API_AVAILABLE(macos(15.0)) {
    NSError *error = nil;
    MTLResidencySetDescriptor *how = [[MTLResidencySetDescriptor new] autorelease];
    r->set = [m->device newResidencySetWithDescriptor:how error:&error];
    if (!r->set)
        return err_set(e, ERR_DEVICE, "%s",
                       error ? [[error localizedDescription] UTF8String] : "no reason given");
    [m->queue addResidencySet:r->set];
    pthread_mutex_init(&r->mutex, NULL);
    clock_cond_init(&r->wake);
    r->used_ns = clock_now_ns();
    if (pthread_create(&r->thread, NULL, keep_resident, r) == 0) return 0;
    pthread_cond_destroy(&r->wake);
    pthread_mutex_destroy(&r->mutex);
    [m->queue removeResidencySet:r->set];
    [r->set release];
    return err_set(e, ERR_IO, "its thread cannot start");
}

void metal_residency_open(struct metal_backend *m, uint32_t keep_s) {
    err e;
    if (!keep_s) return;
    if (@available(macOS 15.0, *)) {
        struct metal_residency *r = mem_new(1, sizeof *r);
        if (!r) return;
        r->keep_ns = keep_s * UINT64_C(1000000000);
        if (start_set(m, r, &e) == 0) {
            m->residency = r;
            return;
        }
        free(r);
        log_warn("metal: no residency set: %s; macOS may unwire an idle model's memory", e.msg);
    } else {
        log_info("metal: macOS before 15 unwires an idle model's memory: the first step after a "
                 "pause takes longer");
    }
}

void metal_residency_close(struct metal_backend *m) {
    struct metal_residency *r = m->residency;
    if (!r) return;
    if (@available(macOS 15.0, *)) {
        pthread_mutex_lock(&r->mutex);
        r->stopping = true;
        pthread_cond_signal(&r->wake);
        pthread_mutex_unlock(&r->mutex);
        pthread_join(r->thread, NULL);
        @autoreleasepool {
            [m->queue removeResidencySet:r->set];
            [r->set endResidency];
            [r->set release];
        }
        pthread_cond_destroy(&r->wake);
        pthread_mutex_destroy(&r->mutex);
    }
    free(r);
    m->residency = NULL;
}

static void change(struct metal_backend *m, id<MTLBuffer> buffer, bool adds) {
    struct metal_residency *r = m->residency;
    if (!r || !buffer) return;
    if (@available(macOS 15.0, *)) {
        pthread_mutex_lock(&r->mutex);
        @autoreleasepool {
            if (adds)
                [r->set addAllocation:buffer];
            else
                [r->set removeAllocation:buffer];
        }
        r->changed = true;
        pthread_mutex_unlock(&r->mutex);
    }
}

void metal_residency_add(struct metal_backend *m, id<MTLBuffer> buffer) {
    change(m, buffer, true);
}

void metal_residency_remove(struct metal_backend *m, id<MTLBuffer> buffer) {
    change(m, buffer, false);
}

void metal_residency_use(struct metal_backend *m) {
    struct metal_residency *r = m->residency;
    if (!r) return;
    if (@available(macOS 15.0, *)) {
        pthread_mutex_lock(&r->mutex);
        uint64_t now = clock_now_ns();
        bool idle = now - r->used_ns > r->keep_ns;
        r->used_ns = now;
        commit_changes(r);
        if (idle) pthread_cond_signal(&r->wake);
        pthread_mutex_unlock(&r->mutex);
    }
}

void metal_residency_requeue(struct metal_backend *m) {
    struct metal_residency *r = m->residency;
    if (!r) return;
    if (@available(macOS 15.0, *)) [m->queue addResidencySet:r->set];
}

#else /* an SDK without residency sets */

void metal_residency_open(struct metal_backend *m, uint32_t keep_s) {
    (void)m;
    if (keep_s)
        log_info("metal: this program was built with an SDK before macOS 15: the first step after "
                 "a pause takes longer, because macOS unwires an idle model's memory");
}
void metal_residency_close(struct metal_backend *m) {
    (void)m;
}
void metal_residency_add(struct metal_backend *m, id<MTLBuffer> buffer) {
    (void)m, (void)buffer;
}
void metal_residency_remove(struct metal_backend *m, id<MTLBuffer> buffer) {
    (void)m, (void)buffer;
}
void metal_residency_use(struct metal_backend *m) {
    (void)m;
}
void metal_residency_requeue(struct metal_backend *m) {
    (void)m;
}

#endif
