/* sim.h - shared by the files of the stand-in framework; included only in this folder.
 *
 *  sim_state.m: options, violations, errors
 *  sim_object.m: the root class; counts live objects, reports messages to deallocated ones
 *  sim_family.m: GPU families and limits; sim_fault.m: injected failures
 *  sim_buffer.m: buffers; sim_guard.m: the host's view of them while the GPU works
 *  sim_library.m: source, shader object, functions, pipelines; sim_compile.m: runs the compiler
 *  sim_encoder.m: commands, which it checks and records
 *  sim_command.m: command buffers, queues, one GPU thread per queue
 *  sim_residency.m: residency sets
 *  sim_device.m: the device */
#ifndef METALSIM_SIM_H
#define METALSIM_SIM_H

#import <Metal/Metal.h>

#include "tests/metal/standin/framework/metalsim.h"
#include "tests/metal/standin/runtime/msl_rt.h"

#include <pthread.h>
#include <stdbool.h>

enum {
    SIM_MAC_PAGE = 16384, /* of Apple silicon; Intel Macs have smaller pages */
    SIM_HOST_PAGE = 4096,
    SIM_SET_BYTES_MAX = 4096
};

/* ---- sim_state.m ---- */

/* Reads the environment. Called when the first device is created. */
void sim_state_init(void);
const msl_opts *sim_options(void);
int sim_guard_level(void);
bool sim_poison(void);
unsigned sim_delay_ms(void);
void sim_violation(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Autoreleased. */
NSError *sim_error(NSString *domain, NSInteger code, NSString *text);
double sim_now(void);

/* ---- sim_family.m ---- */

struct sim_family {
    const char *name, *gpu;
    MTLGPUFamily family; /* the highest that it supports */
    uint64_t max_buffer_bytes, working_set_bytes;
    bool unified_memory;
    uint32_t constant_align;         /* of offsets of arguments in the constant address space */
    uint32_t max_constant_arguments; /* of one kernel */
};
void sim_family_init(void);
const struct sim_family *sim_family(void);
bool sim_supports_family(MTLGPUFamily family);
uint64_t sim_max_buffer_bytes(void);
uint64_t sim_working_set_bytes(void);
uint32_t sim_max_threads(void);
uint32_t sim_simd_width(void);
/* Why a preprocessed source cannot be compiled, or nil. Autoreleased. */
NSString *sim_family_refuses(const char *text, MTLLanguageVersion version);

/* ---- sim_fault.m ---- */

enum sim_fault {
    SIM_FAULT_COMMAND,
    SIM_FAULT_BUFFER,
    SIM_FAULT_LIBRARY,
    SIM_FAULT_PIPELINE,
    SIM_FAULT_QUEUE,
    SIM_FAULT_DEVICE,
    SIM_FAULT_RESIDENCY,
    SIM_N_FAULTS
};
void sim_fault_init(void);
/* Counts one object of this kind; returns whether it must fail. */
bool sim_fault(enum sim_fault place);
/* The same for a command buffer: returns the error that it must end in, or nil. Autoreleased. */
NSError *sim_fault_of_command(void);

/* ---- sim_object.m ---- */

void sim_object_init(void);

/* A message to a deallocated object of this class is a violation, not a crash: the last few
 * thousand objects are kept as zombies. */
@interface MetalsimObject ()
+ (enum metalsim_kind)kind;
@end

/* ---- sim_buffer.m ---- */

@interface SimBuffer : MetalsimObject <MTLBuffer> {
  @public
    void *host, *gpu; /* equal, or under METALSIM_GUARD two mappings of one memory */
    size_t n_bytes, n_mapped;
    bool own;      /* host and gpu are this object's mappings */
    int in_flight; /* commands that use it and have not completed; atomic */
    id<MTLDevice> _device;
    NSString *_label;
    MTLResourceOptions options;
    void (^deallocator)(void *, NSUInteger);
}
- (id)initWithLength:(size_t)length
             options:(MTLResourceOptions)options
              device:(id<MTLDevice>)device;
- (id)initWithMemory:(void *)memory
              length:(size_t)length
             options:(MTLResourceOptions)options
         deallocator:(void (^)(void *, NSUInteger))deallocator
              device:(id<MTLDevice>)device;
@end
size_t sim_buffer_allocated(void);

/* ---- sim_guard.m: between commit and completion ---- */

void sim_guard_init(void);
void sim_guard_lock(SimBuffer *buffer, bool gpu_writes);
void sim_guard_unlock(SimBuffer *buffer, bool gpu_writes);

/* ---- sim_library.m ---- */

@interface SimFunction : MetalsimObject <MTLFunction> {
  @public
    const msl_kernel_desc *kernel;
    void *image_lo, *image_hi; /* of the loaded shader object */
    id library;
    NSString *_label, *_name, *missing; /* missing: names of constants without a value, or nil */
}
@end

@interface SimBinding : MetalsimObject <MTLBinding> {
  @public
    NSString *_name;
    const msl_arg_desc *argument;
}
@end

/* The buffers and threadgroup memory of a kernel, as a compiler that keeps all of them reports. */
MTLComputePipelineReflection *sim_reflection(const msl_kernel_desc *kernel);

@interface SimPipeline : MetalsimObject <MTLComputePipelineState> {
  @public
    SimFunction *function;
}
@end

@interface SimLibrary : MetalsimObject <MTLLibrary> {
  @public
    NSString *path, *_label;
    void *handle;
    const msl_kernel_desc *kernels;
    unsigned n_kernels;
    const msl_fc_desc *constants;
    unsigned n_constants;
    id<MTLDevice> _device;
}
- (id)initWithPath:(NSString *)path device:(id<MTLDevice>)device;
@end

/* ---- sim_compile.m ---- */

/* Path of the shader object for this source, from the cache or newly compiled; nil with *error.
 * Autoreleased. */
NSString *sim_compile(NSString *source, MTLCompileOptions *options, NSError **error);

/* ---- sim_encoder.m ---- */

/* A copy of setBytes: data with a guard page after it; shared by later commands of the encoder. */
struct sim_bytes {
    uint8_t *data;
    size_t n_bytes;
    int n_refs; /* used by one thread at a time: the encoder's, then the GPU's */
};

struct sim_binding {
    SimBuffer *buffer;
    size_t offset;
    struct sim_bytes *bytes; /* instead of buffer */
};

enum sim_command_type { SIM_DISPATCH, SIM_COPY, SIM_FILL };

struct sim_command {
    enum sim_command_type type;
    SimPipeline *pipeline;
    struct sim_binding at[MSL_MAX_BUF]; /* copy and fill: 0 is the destination, 1 the source */
    uint32_t tg_bytes[MSL_MAX_TG];
    uint32_t n_groups[3], n_threads[3], grid[3]; /* grid: of dispatchThreads:, else 0 */
    size_t n_bytes;                              /* of a copy or fill */
    uint8_t value;
    unsigned encoder; /* index in the command buffer */
    unsigned epoch;   /* barriers before the command in its encoder */
};

@class SimCommandBuffer, SimQueue;

@interface SimEncoder : MetalsimObject <MTLComputeCommandEncoder, MTLBlitCommandEncoder> {
  @public
    SimCommandBuffer *owner; /* retained till endEncoding */
    struct sim_command state;
    bool ended, concurrent;
    id<MTLDevice> _device;
    NSString *_label;
}
- (id)initWithOwner:(SimCommandBuffer *)owner number:(unsigned)number;
@end

/* Whether the kernel may write through the binding at an index. */
bool sim_command_writes(const struct sim_command *command, int index);

/* Releases what a command holds. */
void sim_command_fini(struct sim_command *command, bool retained);

/* ---- sim_command.m ---- */

@interface SimCommandBuffer : MetalsimObject <MTLCommandBuffer> {
  @public
    SimQueue *queue;
    struct sim_command *commands;
    size_t n_commands, cap_commands;
    SimEncoder *encoder; /* the open encoder; not retained */
    unsigned n_encoders;
    NSMutableArray *handlers;
    NSString *_label;
    bool retains;
    double start_time, end_time;
    /* guarded by the queue's mutex once committed */
    MTLCommandBufferStatus _status;
    NSError *_error;
    bool finished;
    SimCommandBuffer *next;
}
- (id)initWithQueue:(SimQueue *)queue retainsReferences:(bool)retains;
- (struct sim_command *)addCommand:(const struct sim_command *)command;
@end

/* Outlives the queue object; the GPU thread frees it. */
struct sim_queue {
    pthread_mutex_t mutex;
    pthread_cond_t work, done;
    SimCommandBuffer *head, *tail;
    unsigned n_open, max_open; /* created and not completed; limit */
    unsigned n_committed;      /* of the open ones */
    bool stop;
    bool revoked; /* a command buffer failed: later ones are ignored */
};

@interface SimResidencySet : MetalsimObject <MTLResidencySet> {
    NSMutableSet *pending; // under the mutex, as committed
    NSSet *committed;
    pthread_mutex_t mutex;
    _Atomic int n_inside;
}
- (bool)has:(id)allocation;
- (bool)holds:(id)allocation; // once committed
@end

// Reports an allocation that ends while a set has it.
void sim_residency_ends(id allocation);

@interface SimQueue : MetalsimObject <MTLCommandQueue> {
  @public
    SimResidencySet *resident; // nil: none
    NSString *_label;
    struct sim_queue *state;
    id<MTLDevice> _device;
}
- (id)initWithDevice:(id<MTLDevice>)device maxCommandBuffers:(NSUInteger)count;
@end

#endif
