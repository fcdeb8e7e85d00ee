// sim_command.m - command buffers and queues. A queue has one GPU thread, which runs committed
// command buffers in order; completed handlers run on that thread before waitUntilCompleted
// returns, as on a Mac.
#import "tests/metal/standin/framework/sim.h"

#include <Block.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// Counts a command buffer as completed.
static void leave_queue(struct sim_queue *q, bool was_committed) {
    pthread_mutex_lock(&q->mutex);
    q->n_open--;
    q->n_committed -= was_committed;
    pthread_cond_broadcast(&q->done);
    pthread_mutex_unlock(&q->mutex);
}

@implementation SimCommandBuffer
@synthesize label = _label;

+ (enum metalsim_kind)kind {
    return METALSIM_COMMAND_BUFFER;
}

- (id)initWithQueue:(SimQueue *)q retainsReferences:(bool)retained {
    if ((self = [super init])) {
        queue = [q retain];
        retains = retained;
    }
    return self;
}

- (id<MTLDevice>)device {
    return queue.device;
}
- (id<MTLCommandQueue>)commandQueue {
    return queue;
}
- (BOOL)retainedReferences {
    return retains;
}

- (MTLCommandBufferStatus)status {
    pthread_mutex_lock(&queue->state->mutex);
    MTLCommandBufferStatus status = _status;
    pthread_mutex_unlock(&queue->state->mutex);
    return status;
}

- (NSError *)error {
    pthread_mutex_lock(&queue->state->mutex);
    NSError *error = [[_error retain] autorelease];
    pthread_mutex_unlock(&queue->state->mutex);
    return error;
}

- (CFTimeInterval)GPUStartTime {
    return start_time;
}
- (CFTimeInterval)GPUEndTime {
    return end_time;
}

- (bool)isCommitted {
    return self.status >= MTLCommandBufferStatusCommitted;
}

- (struct sim_command *)addCommand:(const struct sim_command *)command {
    if (n_commands == cap_commands) {
        cap_commands = cap_commands ? 2 * cap_commands : 16;
        commands = realloc(commands, cap_commands * sizeof *commands);
    }
    commands[n_commands] = *command;
    return &commands[n_commands++];
}

- (SimEncoder *)newEncoder {
    if ([self isCommitted]) {
        sim_violation("encoder requested after commit");
        return nil;
    }
    if (encoder) {
        sim_violation("a second encoder while one is open");
        return nil;
    }
    encoder = [[[SimEncoder alloc] initWithOwner:self number:++n_encoders] autorelease];
    return encoder;
}
- (id<MTLComputeCommandEncoder>)computeCommandEncoder {
    return [self newEncoder];
}
- (id<MTLComputeCommandEncoder>)computeCommandEncoderWithDispatchType:(MTLDispatchType)type {
    SimEncoder *e = [self newEncoder];
    if (e) e->concurrent = type == MTLDispatchTypeConcurrent;
    return e;
}
- (id<MTLBlitCommandEncoder>)blitCommandEncoder {
    return [self newEncoder];
}

- (void)enqueue {
    pthread_mutex_lock(&queue->state->mutex);
    if (_status == MTLCommandBufferStatusNotEnqueued) _status = MTLCommandBufferStatusEnqueued;
    pthread_mutex_unlock(&queue->state->mutex);
}

- (void)addCompletedHandler:(MTLCommandBufferHandler)block {
    if ([self isCommitted]) {
        sim_violation("addCompletedHandler: after commit");
        return;
    }
    if (!handlers) handlers = [NSMutableArray new];
    void *copy = Block_copy(block);
    NSValue *value = [[NSValue alloc] initWithBytes:&copy objCType:@encode(void *)];
    [handlers addObject:value];
    [value release];
}

- (void)guard:(void (*)(SimBuffer *, bool))change {
    if (!sim_guard_level()) return;
    for (size_t i = 0; i < n_commands; i++)
        for (int j = 0; j < MSL_MAX_BUF; j++)
            if (commands[i].at[j].buffer)
                change(commands[i].at[j].buffer, sim_command_writes(&commands[i], j));
}

- (void)checkResidency {
    for (size_t i = 0; queue->resident && i < n_commands; i++)
        for (int j = 0; j < MSL_MAX_BUF; j++) {
            SimBuffer *b = commands[i].at[j].buffer;
            if (b && ![queue->resident holds:b])
                sim_violation("a buffer of %lu bytes is not in the queue's residency set",
                              (unsigned long)b->n_bytes);
        }
}

- (void)commit {
    if ([self isCommitted]) {
        sim_violation("commit twice");
        return;
    }
    if (encoder) {
        sim_violation("commit while an encoder is open");
        return;
    }
    [self checkResidency];
    [self guard:sim_guard_lock];
    [self retain]; // until it completes
    struct sim_queue *q = queue->state;
    pthread_mutex_lock(&q->mutex);
    _status = MTLCommandBufferStatusCommitted;
    next = nil;
    if (q->tail)
        q->tail->next = self;
    else
        q->head = self;
    q->tail = self;
    q->n_committed++;
    pthread_cond_signal(&q->work);
    pthread_mutex_unlock(&q->mutex);
}

- (void)waitUntilScheduled {
    if (![self isCommitted]) sim_violation("waitUntilScheduled before commit");
}

- (void)waitUntilCompleted {
    if (![self isCommitted]) {
        sim_violation("waitUntilCompleted before commit");
        return;
    }
    struct sim_queue *q = queue->state;
    pthread_mutex_lock(&q->mutex);
    while (!finished)
        pthread_cond_wait(&q->done, &q->mutex);
    pthread_mutex_unlock(&q->mutex);
}

- (void)releaseCommands {
    for (size_t i = 0; i < n_commands; i++)
        sim_command_fini(&commands[i], retains);
    n_commands = 0;
}

- (void)dealloc {
    [self releaseCommands]; // for one that was never committed
    free(commands);
    if (!finished) leave_queue(queue->state, false);
    for (NSValue *value in handlers)
        Block_release([value pointerValue]);
    [handlers release];
    [_error release];
    [_label release];
    [queue release];
    [super dealloc];
}
@end

// ---- the GPU thread ----

static int run_dispatch(const struct sim_command *c, char *error, size_t error_bytes) {
    const SimFunction *f = c->pipeline->function;
    msl_dispatch d = {.k = f->kernel, .dlbase_lo = f->image_lo, .dlbase_hi = f->image_hi};
    d.path = ((SimLibrary *)f->library)->path.fileSystemRepresentation;
    for (int i = 0; i < MSL_MAX_BUF; i++) {
        const struct sim_binding *at = &c->at[i];
        if (at->bytes) {
            d.buf[i] = at->bytes->data;
            d.buflen[i] = at->bytes->n_bytes;
        } else if (at->buffer) {
            d.buf[i] = (uint8_t *)at->buffer->gpu + at->offset;
            d.buflen[i] = at->buffer->n_bytes - at->offset;
            d.buflabel[i] = at->buffer->_label.UTF8String;
        }
    }
    memcpy(d.tglen, c->tg_bytes, sizeof d.tglen);
    memcpy(d.ntg, c->n_groups, sizeof d.ntg);
    memcpy(d.ntptg, c->n_threads, sizeof d.ntptg);
    memcpy(d.grid, c->grid, sizeof d.grid);
    return msl_rt_run(&d, sim_options(), error, error_bytes);
}

static int run_one(const struct sim_command *c, char *error, size_t error_bytes) {
    if (c->type == SIM_DISPATCH) return run_dispatch(c, error, error_bytes);
    uint8_t *to = (uint8_t *)c->at[0].buffer->gpu + c->at[0].offset;
    if (c->type == SIM_COPY)
        memmove(to, (uint8_t *)c->at[1].buffer->gpu + c->at[1].offset, c->n_bytes);
    else
        memset(to, c->value, c->n_bytes);
    return 0;
}

// Runs the commands; returns the error, autoreleased, or nil. If it must fail, only the first half
// runs. After a failure the queue ignores its command buffers, as macOS may.
static NSError *run_all(SimCommandBuffer *b, struct sim_queue *q) {
    char text[1024];
    if (q->revoked)
        return sim_error(MTLCommandBufferErrorDomain, MTLCommandBufferErrorAccessRevoked,
                         @"Ignored (for causing prior/excessive GPU errors)");
    NSError *fault = sim_fault_of_command();
    q->revoked = fault != nil;
    size_t n = fault ? b->n_commands / 2 : b->n_commands;
    if (sim_delay_ms()) usleep(1000 * sim_delay_ms());
    for (size_t i = 0; i < n; i++)
        if (run_one(&b->commands[i], text, sizeof text))
            return sim_error(MTLCommandBufferErrorDomain, MTLCommandBufferErrorPageFault,
                             [NSString stringWithUTF8String:text]);
    return fault;
}

static void finish(SimCommandBuffer *b, struct sim_queue *q) {
    b->start_time = sim_now();
    NSError *error = [run_all(b, q) retain];
    b->end_time = sim_now();
    [b guard:sim_guard_unlock];
    [b releaseCommands];
    pthread_mutex_lock(&q->mutex);
    b->_error = error;
    b->_status = error ? MTLCommandBufferStatusError : MTLCommandBufferStatusCompleted;
    pthread_mutex_unlock(&q->mutex);
    for (NSValue *value in b->handlers)
        ((MTLCommandBufferHandler)[value pointerValue])(b);
    pthread_mutex_lock(&q->mutex);
    b->finished = true;
    pthread_mutex_unlock(&q->mutex);
    leave_queue(q, true);
}

static void *gpu_thread(void *arg) {
    struct sim_queue *q = arg;
    for (;;) {
        pthread_mutex_lock(&q->mutex);
        while (!q->head && !q->stop)
            pthread_cond_wait(&q->work, &q->mutex);
        SimCommandBuffer *b = q->head;
        if (b) {
            q->head = b->next;
            if (!q->head) q->tail = nil;
            b->_status = MTLCommandBufferStatusScheduled;
        }
        pthread_mutex_unlock(&q->mutex);
        if (!b) break;
        NSAutoreleasePool *pool = [NSAutoreleasePool new];
        finish(b, q);
        [b release]; // may release the queue object, never its state
        [pool release];
    }
    pthread_cond_destroy(&q->work);
    pthread_cond_destroy(&q->done);
    pthread_mutex_destroy(&q->mutex);
    free(q);
    return NULL;
}

@implementation SimQueue
@synthesize label = _label, device = _device;

+ (enum metalsim_kind)kind {
    return METALSIM_QUEUE;
}

- (id)initWithDevice:(id<MTLDevice>)device maxCommandBuffers:(NSUInteger)count {
    if (!(self = [super init])) return nil;
    _device = [device retain];
    state = calloc(1, sizeof *state);
    state->max_open = (unsigned)count;
    pthread_mutex_init(&state->mutex, NULL);
    pthread_cond_init(&state->work, NULL);
    pthread_cond_init(&state->done, NULL);
    pthread_t thread;
    pthread_create(&thread, NULL, gpu_thread, state);
    pthread_detach(thread);
    return self;
}

// Waits while too many are open, unless none is committed: that wait would never end.
- (SimCommandBuffer *)make:(bool)retained {
    bool stuck = false;
    pthread_mutex_lock(&state->mutex);
    while (state->n_open >= state->max_open && !stuck) {
        stuck = !state->n_committed;
        if (!stuck) pthread_cond_wait(&state->done, &state->mutex);
    }
    state->n_open++;
    pthread_mutex_unlock(&state->mutex);
    if (stuck)
        sim_violation("commandBuffer: %u command buffers are open and none is committed: the call "
                      "would never return",
                      state->max_open);
    return [[[SimCommandBuffer alloc] initWithQueue:self retainsReferences:retained] autorelease];
}
- (void)addResidencySet:(id<MTLResidencySet>)set {
    [set retain];
    [resident release];
    resident = (SimResidencySet *)set;
}
- (void)removeResidencySet:(id<MTLResidencySet>)set {
    if (resident != (SimResidencySet *)set) sim_violation("removeResidencySet: it was not added");
    [resident release];
    resident = nil;
}
- (id<MTLCommandBuffer>)commandBuffer {
    return [self make:true];
}
- (id<MTLCommandBuffer>)commandBufferWithUnretainedReferences {
    return [self make:false];
}

- (void)dealloc {
    pthread_mutex_lock(&state->mutex);
    state->stop = true;
    pthread_cond_signal(&state->work);
    pthread_mutex_unlock(&state->mutex);
    [_label release];
    [_device release];
    [resident release];
    [super dealloc];
}
@end
