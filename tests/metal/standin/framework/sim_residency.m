// sim_residency.m - residency sets. Checks that no two threads use a set at once, that command
// buffers of a queue with a set use no buffer outside of it, and that no buffer ends inside of one.
#import "tests/metal/standin/framework/sim.h"

#include <stdatomic.h>

static atomic_ulong n_requests;

// Live sets, which the array does not retain.
static pthread_mutex_t sets_mutex = PTHREAD_MUTEX_INITIALIZER;
enum { MAX_SETS = 64 };
static SimResidencySet *sets[MAX_SETS];

unsigned long metalsim_residency_requests(void) {
    return atomic_load(&n_requests);
}

@implementation MTLResidencySetDescriptor
@synthesize label, initialCapacity;
- (void)dealloc {
    [label release];
    [super dealloc];
}
@end

@implementation SimResidencySet
+ (enum metalsim_kind)kind {
    return METALSIM_RESIDENCY_SET;
}

- (id)init {
    if ((self = [super init])) {
        pending = [NSMutableSet new];
        pthread_mutex_init(&mutex, NULL);
        pthread_mutex_lock(&sets_mutex);
        int i = 0;
        while (i < MAX_SETS && sets[i])
            i++;
        if (i < MAX_SETS) sets[i] = self;
        pthread_mutex_unlock(&sets_mutex);
        if (i == MAX_SETS) sim_violation("more than %d residency sets", MAX_SETS);
    }
    return self;
}

- (void)enter {
    if (atomic_fetch_add(&n_inside, 1)) sim_violation("two threads use a residency set at once");
}
- (void)leave {
    atomic_fetch_sub(&n_inside, 1);
}

// The addresses alone: a set does not keep its allocations alive here, so that a buffer that was
// not removed before its release shows.
static NSValue *key_of(id allocation) {
    return [NSValue valueWithPointer:allocation];
}

- (void)addAllocation:(id<MTLAllocation>)allocation {
    [self enter];
    pthread_mutex_lock(&mutex);
    [pending addObject:key_of(allocation)];
    pthread_mutex_unlock(&mutex);
    [self leave];
}
- (void)removeAllocation:(id<MTLAllocation>)allocation {
    [self enter];
    if (![self has:allocation]) sim_violation("removeAllocation: it is not in the set");
    pthread_mutex_lock(&mutex);
    [pending removeObject:key_of(allocation)];
    pthread_mutex_unlock(&mutex);
    [self leave];
}
- (void)commit {
    [self enter];
    NSSet *now = [pending copy];
    pthread_mutex_lock(&mutex);
    [committed release];
    committed = now;
    pthread_mutex_unlock(&mutex);
    [self leave];
}
- (void)requestResidency {
    [self enter];
    atomic_fetch_add(&n_requests, 1);
    [self leave];
}
- (void)endResidency {
    [self enter];
    [self leave];
}
- (NSUInteger)allocationCount {
    return pending.count;
}

- (bool)has:(id)allocation {
    pthread_mutex_lock(&mutex);
    bool found = [pending containsObject:key_of(allocation)];
    pthread_mutex_unlock(&mutex);
    return found;
}

- (bool)holds:(id)allocation {
    pthread_mutex_lock(&mutex);
    bool found = [committed containsObject:key_of(allocation)];
    pthread_mutex_unlock(&mutex);
    return found;
}

- (void)dealloc {
    pthread_mutex_lock(&sets_mutex);
    for (int i = 0; i < MAX_SETS; i++)
        if (sets[i] == self) sets[i] = nil;
    pthread_mutex_unlock(&sets_mutex);
    [pending release];
    [committed release];
    pthread_mutex_destroy(&mutex);
    [super dealloc];
}
@end

void sim_residency_ends(id allocation) {
    bool found = false;
    @autoreleasepool {
        pthread_mutex_lock(&sets_mutex);
        for (int i = 0; i < MAX_SETS; i++)
            found |= sets[i] && [sets[i] has:allocation];
        pthread_mutex_unlock(&sets_mutex);
    }
    if (found) sim_violation("a buffer is released while a residency set has it");
}
