// sim_object.m - the root class of the stand-in: counts live objects, keeps deallocated ones for a
// while so that a message to one is reported by name, and requires an autorelease pool where an
// object is autoreleased.
#import "tests/metal/standin/framework/sim.h"

#import <objc/runtime.h>

enum { N_ZOMBIES = 4096 };

static struct {
    pthread_mutex_t mutex;
    id objects[N_ZOMBIES];
    Class classes[N_ZOMBIES]; /* the class that each object had */
    unsigned next;
} grave = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static long n_live[METALSIM_N_KINDS]; /* atomic */

const char *metalsim_kind_name(enum metalsim_kind kind) {
    static const char *const names[METALSIM_N_KINDS] = {
        [METALSIM_DEVICE] = "device",
        [METALSIM_QUEUE] = "command queue",
        [METALSIM_BUFFER] = "buffer",
        [METALSIM_LIBRARY] = "library",
        [METALSIM_FUNCTION] = "function",
        [METALSIM_PIPELINE] = "pipeline state",
        [METALSIM_COMMAND_BUFFER] = "command buffer",
        [METALSIM_ENCODER] = "command encoder",
        [METALSIM_COMPILE_OPTIONS] = "compile options",
        [METALSIM_CONSTANTS] = "function constant values",
        [METALSIM_RESIDENCY_SET] = "residency set",
        [METALSIM_BINDING] = "binding",
    };
    return (unsigned)kind < METALSIM_N_KINDS ? names[kind] : "?";
}

long metalsim_live(enum metalsim_kind kind) {
    return __atomic_load_n(&n_live[kind], __ATOMIC_SEQ_CST);
}

long metalsim_live_all(void) {
    long n = 0;
    for (int i = 0; i < METALSIM_N_KINDS; i++)
        n += metalsim_live(i);
    return n;
}

// The class of deallocated objects.
@interface MetalsimZombie : NSObject
@end

static const char *name_of_dead(id object) {
    const char *name = "object";
    pthread_mutex_lock(&grave.mutex);
    for (int i = 0; i < N_ZOMBIES; i++)
        if (grave.objects[i] == object) name = metalsim_kind_name([grave.classes[i] kind]);
    pthread_mutex_unlock(&grave.mutex);
    return name;
}

@implementation MetalsimZombie
- (oneway void)release {
    sim_violation("over-release: release sent to a deallocated %s", name_of_dead(self));
}
- (id)retain {
    sim_violation("use after release: retain sent to a deallocated %s", name_of_dead(self));
    return self;
}
- (id)autorelease {
    sim_violation("over-release: autorelease sent to a deallocated %s", name_of_dead(self));
    return self;
}
- (NSMethodSignature *)methodSignatureForSelector:(SEL)selector {
    (void)selector;
    return [NSMethodSignature signatureWithObjCTypes:"@@:"];
}
- (void)forwardInvocation:(NSInvocation *)invocation {
    sim_violation("use after release: %s sent to a deallocated %s",
                  sel_getName(invocation.selector), name_of_dead(self));
}
@end

// The oldest zombie is freed.
static id bury(id object) {
    pthread_mutex_lock(&grave.mutex);
    unsigned i = grave.next++ % N_ZOMBIES;
    id oldest = grave.objects[i];
    if (oldest) object_setClass(oldest, grave.classes[i]);
    grave.objects[i] = object;
    grave.classes[i] = object_getClass(object);
    object_setClass(object, [MetalsimZombie class]);
    pthread_mutex_unlock(&grave.mutex);
    return oldest;
}

// ---- -[NSObject autorelease] requires a pool: without one the object leaks ----

static id (*autorelease_before)(id, SEL);

static id autorelease_in_pool(id self, SEL selector) {
    if (![NSAutoreleasePool currentPool]) {
        Class class = object_getClass(self);
        bool ours = [class isSubclassOfClass:[MetalsimObject class]];
        sim_violation("%s autoreleased in a thread without a pool: it leaks",
                      ours ? metalsim_kind_name([class kind]) : class_getName(class));
    }
    return autorelease_before(self, selector);
}

void sim_object_init(void) {
    Method method = class_getInstanceMethod([NSObject class], @selector(autorelease));
    autorelease_before = (id(*)(id, SEL))method_getImplementation(method);
    class_replaceMethod([NSObject class], @selector(autorelease), (IMP)autorelease_in_pool,
                        method_getTypeEncoding(method));
}

@implementation MetalsimObject
+ (enum metalsim_kind)kind {
    return METALSIM_N_KINDS;
}
+ (id)allocWithZone:(NSZone *)zone {
    sim_state_init();
    __atomic_fetch_add(&n_live[[self kind]], 1, __ATOMIC_SEQ_CST);
    return [super allocWithZone:zone];
}
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wobjc-missing-super-calls"
- (void)dealloc {
    __atomic_fetch_sub(&n_live[[[self class] kind]], 1, __ATOMIC_SEQ_CST);
    id oldest = bury(self);
    if (oldest) NSDeallocateObject(oldest);
}
#pragma clang diagnostic pop
@end
