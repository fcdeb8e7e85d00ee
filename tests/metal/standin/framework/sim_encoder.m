// sim_encoder.m - compute and blit encoders: checks every rule that can be checked before the GPU
// runs when the command is encoded. One thread at a time per encoder.
#import "tests/metal/standin/framework/sim.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static struct sim_bytes *new_bytes(const void *data, size_t n_bytes) {
    struct sim_bytes *b = calloc(1, sizeof *b);
    uint8_t *pages = mmap(NULL, SIM_SET_BYTES_MAX + SIM_HOST_PAGE, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(pages + SIM_SET_BYTES_MAX, SIM_HOST_PAGE, PROT_NONE);
    memcpy(pages, data, n_bytes);
    *b = (struct sim_bytes){.data = pages, .n_bytes = n_bytes, .n_refs = 1};
    return b;
}

static void release_bytes(struct sim_bytes *b) {
    if (!b || --b->n_refs) return;
    munmap(b->data, SIM_SET_BYTES_MAX + SIM_HOST_PAGE);
    free(b);
}

static const msl_arg_desc *argument_at(const struct sim_command *c, int index) {
    const msl_kernel_desc *kernel = c->pipeline->function->kernel;
    for (uint32_t i = 0; i < kernel->nargs; i++)
        if (kernel->args[i].kind == MSL_A_BUFFER && kernel->args[i].index == index)
            return &kernel->args[i];
    return NULL;
}

bool sim_command_writes(const struct sim_command *c, int index) {
    if (c->type != SIM_DISPATCH) return index == 0;
    const msl_arg_desc *a = argument_at(c, index);
    return a && !a->is_const;
}

// The last command before c in its encoder, after `epoch` barriers, that shares a buffer with c
// which one of them writes; NULL: none.
static const struct sim_command *find_conflict(const SimCommandBuffer *owner,
                                               const struct sim_command *c, unsigned epoch,
                                               const SimBuffer **shared) {
    for (size_t i = owner->n_commands; i-- > 0;) {
        const struct sim_command *before = &owner->commands[i];
        if (before->encoder != c->encoder || before->epoch < epoch) return NULL;
        for (int a = 0; a < MSL_MAX_BUF && before->epoch == epoch; a++)
            for (int b = 0; b < MSL_MAX_BUF; b++) {
                *shared = before->at[a].buffer;
                if (*shared && *shared == c->at[b].buffer && argument_at(before, a) &&
                    argument_at(c, b) &&
                    (sim_command_writes(before, a) || sim_command_writes(c, b)))
                    return before;
            }
    }
    return NULL;
}

static atomic_ulong n_barriers, n_needless;

unsigned long metalsim_barriers(void) {
    return n_barriers;
}

unsigned long metalsim_needless_barriers(void) {
    return n_needless;
}

// A concurrent encoder orders nothing between barriers: two dispatches in one interval may share
// memory only if neither writes it.
static void check_hazards(const SimCommandBuffer *owner, const struct sim_command *c) {
    const SimBuffer *buffer;
    const struct sim_command *last =
        owner->n_commands ? &owner->commands[owner->n_commands - 1] : NULL;
    const struct sim_command *before = find_conflict(owner, c, c->epoch, &buffer);
    if (before)
        sim_violation("%s after %s in a concurrent encoder: both use buffer '%s', one "
                      "writes it, and no memoryBarrierWithScope: is between them",
                      c->pipeline->function->kernel->name, before->pipeline->function->kernel->name,
                      buffer->_label ? buffer->_label.UTF8String : "?");
    if (!c->epoch || (last && last->encoder == c->encoder && last->epoch == c->epoch)) return;
    n_barriers++; // it is the first command after a barrier
    if (!find_conflict(owner, c, c->epoch - 1, &buffer)) n_needless++;
}

// Retains what an encoded command uses until it completes.
static void hold(struct sim_command *command, bool retained) {
    [command->pipeline retain];
    for (int i = 0; i < MSL_MAX_BUF; i++) {
        struct sim_binding *at = &command->at[i];
        if (at->bytes) at->bytes->n_refs++;
        if (!at->buffer) continue;
        if (retained) [at->buffer retain];
        __atomic_fetch_add(&at->buffer->in_flight, 1, __ATOMIC_SEQ_CST);
    }
}

void sim_command_fini(struct sim_command *command, bool retained) {
    for (int i = 0; i < MSL_MAX_BUF; i++) {
        struct sim_binding *at = &command->at[i];
        release_bytes(at->bytes);
        if (!at->buffer) continue;
        __atomic_fetch_sub(&at->buffer->in_flight, 1, __ATOMIC_SEQ_CST);
        if (retained) [at->buffer release];
    }
    [command->pipeline release];
    memset(command, 0, sizeof *command);
}

// Required alignment of an offset: that of the type, up to 16; in the constant address space that
// of the GPU.
static uint32_t offset_align(const msl_arg_desc *a) {
    uint32_t own = a->size & -a->size;
    own = own > 16 ? 16 : own ? own : 1;
    uint32_t least = a->is_const & 2 ? sim_family()->constant_align : 1;
    return own > least ? own : least;
}

// Checks that the binding of a kernel argument fits the argument.
static bool check_argument(const struct sim_command *c, const msl_kernel_desc *kernel,
                           const msl_arg_desc *a) {
    if (a->kind == MSL_A_TG) {
        if (!c->tg_bytes[a->index]) {
            sim_violation("%s: no length set for threadgroup(%d) '%s'", kernel->name, a->index,
                          a->name);
            return false;
        }
        return true;
    }
    if (a->kind != MSL_A_BUFFER) return true;
    const struct sim_binding *at = &c->at[a->index];
    size_t have = at->bytes    ? at->bytes->n_bytes
                  : at->buffer ? at->buffer->n_bytes - at->offset
                               : 0;
    if (!have)
        sim_violation("%s: nothing bound at buffer(%d) '%s'", kernel->name, a->index, a->name);
    else if (have < a->size)
        sim_violation("%s: buffer(%d) '%s' needs %u bytes, %zu are bound", kernel->name, a->index,
                      a->name, a->size, have);
    else if (at->bytes && !a->is_const)
        sim_violation("%s: setBytes data bound to writable buffer(%d) '%s'", kernel->name, a->index,
                      a->name);
    else if (at->bytes && a->is_ref && have != a->size)
        sim_violation("%s: buffer(%d) '%s' is %u bytes, setBytes: gave %zu: the struct differs",
                      kernel->name, a->index, a->name, a->size, have);
    else if (at->buffer && at->offset % offset_align(a))
        sim_violation("%s: buffer(%d) '%s' is bound at offset %zu, which must be a multiple of %u",
                      kernel->name, a->index, a->name, at->offset, offset_align(a));
    else
        return true;
    return false;
}

// Checks that the device accepts a dispatch with these threads per threadgroup.
static bool check_dispatch(const struct sim_command *c, MTLSize groups, MTLSize threads) {
    if (!c->pipeline) {
        sim_violation("dispatch without a pipeline state");
        return false;
    }
    const msl_kernel_desc *kernel = c->pipeline->function->kernel;
    NSUInteger n = threads.width * threads.height * threads.depth;
    NSUInteger limit = c->pipeline.maxTotalThreadsPerThreadgroup;
    if (!n || !(groups.width * groups.height * groups.depth)) {
        sim_violation("%s: dispatch of an empty grid", kernel->name);
        return false;
    }
    if (n > limit) {
        sim_violation("%s: %lu threads per threadgroup, the limit is %lu", kernel->name,
                      (unsigned long)n, (unsigned long)limit);
        return false;
    }
    uint32_t total = 0;
    for (int i = 0; i < MSL_MAX_TG; i++)
        total += c->tg_bytes[i];
    if (total > MSL_TG_BYTES) {
        sim_violation("%s: %u bytes of threadgroup memory, the limit is %u", kernel->name, total,
                      MSL_TG_BYTES);
        return false;
    }
    uint32_t n_constant = 0;
    for (uint32_t i = 0; i < kernel->nargs; i++)
        n_constant += (kernel->args[i].is_const & 2) != 0;
    if (n_constant > sim_family()->max_constant_arguments) {
        sim_violation("%s: %u arguments in the constant address space, this GPU takes %u",
                      kernel->name, n_constant, sim_family()->max_constant_arguments);
        return false;
    }
    for (uint32_t i = 0; i < kernel->nargs; i++)
        if (!check_argument(c, kernel, &kernel->args[i])) return false;
    return true;
}

static void set_size(uint32_t out[3], MTLSize size) {
    out[0] = (uint32_t)size.width;
    out[1] = (uint32_t)size.height;
    out[2] = (uint32_t)size.depth;
}

@implementation SimEncoder
@synthesize label = _label, device = _device;

+ (enum metalsim_kind)kind {
    return METALSIM_ENCODER;
}

- (id)initWithOwner:(SimCommandBuffer *)commandBuffer number:(unsigned)number {
    if ((self = [super init])) {
        owner = [commandBuffer retain];
        _device = [commandBuffer.device retain];
        state.encoder = number;
    }
    return self;
}

- (bool)isOpen {
    if (ended) sim_violation("command encoded after endEncoding");
    return !ended;
}

- (void)setComputePipelineState:(id<MTLComputePipelineState>)pipeline {
    if (![self isOpen]) return;
    if (!pipeline) {
        sim_violation("setComputePipelineState: nil");
        return;
    }
    [(SimPipeline *)pipeline retain];
    [state.pipeline release];
    state.pipeline = (SimPipeline *)pipeline;
}

- (void)setBuffer:(id<MTLBuffer>)buffer offset:(NSUInteger)offset atIndex:(NSUInteger)index {
    if (![self isOpen]) return;
    if (index >= MSL_MAX_BUF) {
        sim_violation("setBuffer:offset:atIndex: index %lu, the limit is %d", (unsigned long)index,
                      MSL_MAX_BUF - 1);
        return;
    }
    if (buffer && offset >= buffer.length) {
        sim_violation(
            "setBuffer:offset:atIndex:%lu offset %lu is not inside the buffer of %lu bytes",
            (unsigned long)index, (unsigned long)offset, (unsigned long)buffer.length);
        return;
    }
    struct sim_binding *at = &state.at[index];
    release_bytes(at->bytes);
    *at = (struct sim_binding){.buffer = (SimBuffer *)buffer, .offset = offset};
}

- (void)setBufferOffset:(NSUInteger)offset atIndex:(NSUInteger)index {
    if (index < MSL_MAX_BUF && !state.at[index].buffer) {
        sim_violation("setBufferOffset:atIndex:%lu without a buffer there", (unsigned long)index);
        return;
    }
    [self setBuffer:index < MSL_MAX_BUF ? state.at[index].buffer : nil offset:offset atIndex:index];
}

- (void)setBytes:(const void *)data length:(NSUInteger)length atIndex:(NSUInteger)index {
    if (![self isOpen]) return;
    if (index >= MSL_MAX_BUF) {
        sim_violation("setBytes:length:atIndex: index %lu, the limit is %d", (unsigned long)index,
                      MSL_MAX_BUF - 1);
        return;
    }
    if (length > SIM_SET_BYTES_MAX || !length) {
        sim_violation("setBytes:length:atIndex:%lu length %lu must be 1..%d", (unsigned long)index,
                      (unsigned long)length, SIM_SET_BYTES_MAX);
        return;
    }
    struct sim_binding *at = &state.at[index];
    release_bytes(at->bytes);
    *at = (struct sim_binding){.bytes = new_bytes(data, length)};
}

- (void)setThreadgroupMemoryLength:(NSUInteger)length atIndex:(NSUInteger)index {
    if (![self isOpen]) return;
    if (index >= MSL_MAX_TG)
        sim_violation("setThreadgroupMemoryLength:atIndex:%lu, the limit is %d",
                      (unsigned long)index, MSL_MAX_TG - 1);
    else if (length % 16)
        sim_violation("setThreadgroupMemoryLength: %lu is not a multiple of 16",
                      (unsigned long)length);
    else
        state.tg_bytes[index] = (uint32_t)length;
}

- (void)dispatch:(MTLSize)groups threads:(MTLSize)threads grid:(MTLSize)grid {
    if (![self isOpen] || !check_dispatch(&state, groups, threads)) return;
    if (concurrent) check_hazards(owner, &state);
    struct sim_command *c = [owner addCommand:&state];
    set_size(c->n_groups, groups);
    set_size(c->n_threads, threads);
    set_size(c->grid, grid);
    hold(c, owner->retains);
}

- (void)dispatchThreadgroups:(MTLSize)groups threadsPerThreadgroup:(MTLSize)threads {
    [self dispatch:groups threads:threads grid:MTLSizeMake(0, 0, 0)];
}

- (void)dispatchThreads:(MTLSize)n threadsPerThreadgroup:(MTLSize)t {
    if (!t.width || !t.height || !t.depth) {
        sim_violation("dispatchThreads: empty threadgroup");
        return;
    }
    MTLSize groups =
        MTLSizeMake((n.width + t.width - 1) / t.width, (n.height + t.height - 1) / t.height,
                    (n.depth + t.depth - 1) / t.depth);
    [self dispatch:groups threads:t grid:n];
}

- (void)memoryBarrierWithScope:(MTLBarrierScope)scope {
    if ([self isOpen] && scope & MTLBarrierScopeBuffers) state.epoch++;
}

// Checks that a range of a blit lies in its buffer.
static bool check_range(const SimBuffer *buffer, NSUInteger offset, NSUInteger size) {
    if (!buffer)
        sim_violation("blit without a buffer");
    else if (size > buffer->n_bytes || offset > buffer->n_bytes - size)
        sim_violation("blit outside the buffer: %lu bytes at %lu of %zu", (unsigned long)size,
                      (unsigned long)offset, buffer->n_bytes);
    else if (!size)
        sim_violation("blit of no bytes");
    else if (offset % 4 || size % 4)
        sim_violation("blit of %lu bytes at %lu: on macOS both must be multiples of 4",
                      (unsigned long)size, (unsigned long)offset);
    else
        return true;
    return false;
}

- (void)copyFromBuffer:(id<MTLBuffer>)source
          sourceOffset:(NSUInteger)sourceOffset
              toBuffer:(id<MTLBuffer>)destination
     destinationOffset:(NSUInteger)destinationOffset
                  size:(NSUInteger)size {
    SimBuffer *from = (SimBuffer *)source, *to = (SimBuffer *)destination;
    if (![self isOpen] || !check_range(from, sourceOffset, size) ||
        !check_range(to, destinationOffset, size))
        return;
    if (from == to && sourceOffset < destinationOffset + size &&
        destinationOffset < sourceOffset + size) {
        sim_violation("copyFromBuffer: the ranges of %lu bytes at %lu and %lu overlap",
                      (unsigned long)size, (unsigned long)sourceOffset,
                      (unsigned long)destinationOffset);
        return;
    }
    struct sim_command c = {.type = SIM_COPY,
                            .n_bytes = size,
                            .at = {{.buffer = to, .offset = destinationOffset},
                                   {.buffer = from, .offset = sourceOffset}}};
    hold([owner addCommand:&c], owner -> retains);
}

- (void)fillBuffer:(id<MTLBuffer>)buffer range:(NSRange)range value:(uint8_t)value {
    if (![self isOpen] || !check_range((SimBuffer *)buffer, range.location, range.length)) return;
    struct sim_command c = {.type = SIM_FILL,
                            .n_bytes = range.length,
                            .value = value,
                            .at = {{.buffer = (SimBuffer *)buffer, .offset = range.location}}};
    hold([owner addCommand:&c], owner -> retains);
}

- (void)pushDebugGroup:(NSString *)name {
    (void)name;
}
- (void)popDebugGroup {
}

- (void)leave {
    ended = true;
    owner->encoder = nil;
    [owner release];
    owner = nil;
}

- (void)endEncoding {
    if (ended)
        sim_violation("endEncoding twice");
    else
        [self leave];
}

- (void)dealloc {
    if (!ended) {
        sim_violation("encoder released without endEncoding");
        [self leave];
    }
    for (int i = 0; i < MSL_MAX_BUF; i++)
        release_bytes(state.at[i].bytes);
    [state.pipeline release];
    [_label release];
    [_device release];
    [super dealloc];
}
@end
