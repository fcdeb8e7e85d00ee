// sim_library.m - MTLLibrary, MTLFunction and MTLComputePipelineState, implemented with loaded
// shader objects. Each set of function constants has its own instance of the object, whose static
// initialisers read them.
#import "tests/metal/standin/framework/sim.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

// Threads that every kernel has registers for. Apple guarantees more only to a kernel that asks by
// [[max_total_threads_per_threadgroup]].
enum { UNASKED_THREADS = 384 };

struct image {
    void *address, *lo, *hi;
};

static int find_image(struct dl_phdr_info *info, size_t size, void *out) {
    (void)size;
    struct image *image = out;
    uintptr_t lo = UINTPTR_MAX, hi = 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        if (info->dlpi_phdr[i].p_type != PT_LOAD) continue;
        uintptr_t a = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
        uintptr_t b = a + info->dlpi_phdr[i].p_memsz;
        lo = a < lo ? a : lo;
        hi = b > hi ? b : hi;
    }
    if ((uintptr_t)image->address < lo || (uintptr_t)image->address >= hi) return 0;
    image->lo = (void *)lo;
    image->hi = (void *)hi;
    return 1;
}

static bool copy_file(const char *from, const char *to) {
    char chunk[65536];
    ssize_t n = -1;
    int in = open(from, O_RDONLY), out = open(to, O_WRONLY | O_CREAT | O_EXCL, 0700);
    if (in >= 0 && out >= 0)
        while ((n = read(in, chunk, sizeof chunk)) > 0)
            if (write(out, chunk, (size_t)n) != n) break;
    if (in >= 0) close(in);
    if (out >= 0) close(out);
    return n == 0;
}

// Loads a private instance of the object with these constant values; NULL: failed. It stays loaded,
// because a dispatch in flight may run its code. dlopen returns the existing object for a file that
// it knows, so each instance is a new file.
static void *load_instance(const char *path, const msl_fc_values *values) {
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static int serial;
    char copy[4200];
    pthread_mutex_lock(&mutex);
    snprintf(copy, sizeof copy, "%s.%d.%d", path, (int)getpid(), serial++);
    void *handle = NULL;
    if (copy_file(path, copy)) {
        msl_rt_set_fc(values);
        handle = dlopen(copy, RTLD_NOW | RTLD_LOCAL);
        msl_rt_set_fc(NULL);
        if (!handle) fprintf(stderr, "metalsim: %s\n", dlerror());
    }
    unlink(copy);
    pthread_mutex_unlock(&mutex);
    return handle;
}

static const char *type_name(unsigned type) {
    static const struct {
        MTLDataType type;
        const char *name;
    } names[] = {
        {MTLDataTypeBool, "bool"},     {MTLDataTypeChar, "char"}, {MTLDataTypeUChar, "uchar"},
        {MTLDataTypeShort, "short"},   {MTLDataTypeHalf, "half"}, {MTLDataTypeUShort, "ushort"},
        {MTLDataTypeBFloat, "bfloat"}, {MTLDataTypeLong, "long"}, {MTLDataTypeULong, "ulong"},
        {MTLDataTypeInt, "int"},       {MTLDataTypeUInt, "uint"}, {MTLDataTypeFloat, "float"},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].type == type) return names[i].name;
    return "?";
}

// The type name as a source may spell it.
static const char *declared_type(const char *type) {
    static const char *const aliases[][2] = {
        {"int32_t", "int"},       {"uint32_t", "uint"},   {"int16_t", "short"},
        {"int8_t", "char"},       {"uint16_t", "ushort"}, {"uint8_t", "uchar"},
        {"int64_t", "long"},      {"uint64_t", "ulong"},  {"unsigned", "uint"},
        {"unsigned int", "uint"},
    };
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++)
        if (strcmp(type, aliases[i][0]) == 0) return aliases[i][1];
    return type;
}

@implementation SimFunction
@synthesize label = _label, name = _name;
- (id<MTLDevice>)device {
    return ((SimLibrary *)library).device;
}
+ (enum metalsim_kind)kind {
    return METALSIM_FUNCTION;
}
- (void)dealloc {
    [_label release];
    [_name release];
    [missing release];
    [library release];
    [super dealloc];
}
@end

@implementation SimBinding
@synthesize name = _name;
+ (enum metalsim_kind)kind {
    return METALSIM_BINDING;
}
- (MTLBindingType)type {
    return argument->kind == MSL_A_TG ? MTLBindingTypeThreadgroupMemory : MTLBindingTypeBuffer;
}
- (MTLBindingAccess)access {
    return argument->is_const ? MTLBindingAccessReadOnly : MTLBindingAccessReadWrite;
}
- (NSUInteger)index {
    return (NSUInteger)argument->index;
}
- (void)dealloc {
    [_name release];
    [super dealloc];
}
@end

@implementation MTLComputePipelineReflection
@synthesize bindings;
+ (enum metalsim_kind)kind {
    return METALSIM_BINDING;
}
- (void)dealloc {
    [bindings release];
    [super dealloc];
}
@end

MTLComputePipelineReflection *sim_reflection(const msl_kernel_desc *kernel) {
    NSMutableArray *all = [NSMutableArray new];
    for (uint32_t i = 0; i < kernel->nargs; i++) {
        if (kernel->args[i].kind == MSL_A_BUILTIN) continue;
        SimBinding *b = [[SimBinding new] autorelease];
        b->argument = &kernel->args[i];
        b->_name = [[NSString stringWithUTF8String:kernel->args[i].name] retain];
        [all addObject:b];
    }
    MTLComputePipelineReflection *r = [[MTLComputePipelineReflection new] autorelease];
    r->bindings = all;
    return r;
}

@implementation SimPipeline
+ (enum metalsim_kind)kind {
    return METALSIM_PIPELINE;
}
- (id<MTLDevice>)device {
    return function.device;
}
- (NSString *)label {
    return function.name;
}
- (NSUInteger)maxTotalThreadsPerThreadgroup {
    uint32_t own = function->kernel->max_threads, most = sim_max_threads();
    if (!own) own = UNASKED_THREADS;
    return own < most ? own : most;
}
- (NSUInteger)threadExecutionWidth {
    return sim_simd_width();
}
- (NSUInteger)staticThreadgroupMemoryLength {
    return msl_rt_static_tg_bytes(function->kernel);
}
- (void)dealloc {
    [function release];
    [super dealloc];
}
@end

@implementation SimLibrary
@synthesize label = _label, device = _device;

+ (enum metalsim_kind)kind {
    return METALSIM_LIBRARY;
}

- (id)initWithPath:(NSString *)file device:(id<MTLDevice>)device {
    if (!(self = [super init])) return nil;
    path = [file copy];
    _device = [device retain];
    handle = load_instance(path.fileSystemRepresentation, NULL);
    if (!handle) {
        [self release];
        return nil;
    }
    kernels = dlsym(handle, "msl_kernels");
    n_kernels = *(unsigned *)dlsym(handle, "msl_nkernels");
    constants = dlsym(handle, "msl_fcs");
    n_constants = *(unsigned *)dlsym(handle, "msl_nfcs");
    return self;
}

- (NSArray *)functionNames {
    NSMutableArray *names = [NSMutableArray array];
    for (unsigned i = 0; i < n_kernels; i++)
        [names addObject:[NSString stringWithUTF8String:kernels[i].name]];
    return names;
}

// Names of the constants that a kernel reaches and that have no value; nil: none.
- (NSString *)missingIn:(const msl_kernel_desc *)kernel values:(const msl_fc_values *)values {
    NSMutableArray *names = [NSMutableArray array];
    for (unsigned i = 0; i < kernel->nfc; i++) {
        if (values && values->set[kernel->fc[i]]) continue;
        for (unsigned c = 0; c < n_constants; c++)
            if (constants[c].index == kernel->fc[i])
                [names addObject:[NSString stringWithUTF8String:constants[c].name]];
    }
    return names.count ? [names componentsJoinedByString:@", "] : nil;
}

- (SimFunction *)newFunction:(NSString *)name
                          of:(void *)instance
                      values:(const msl_fc_values *)values {
    const msl_kernel_desc *all = dlsym(instance, "msl_kernels");
    for (unsigned i = 0; i < n_kernels; i++) {
        if (strcmp(all[i].name, name.UTF8String) != 0) continue;
        struct image image = {.address = (void *)all};
        dl_iterate_phdr(find_image, &image);
        SimFunction *f = [SimFunction new];
        f->kernel = &all[i];
        f->_name = [name copy];
        f->library = [self retain];
        f->image_lo = image.lo;
        f->image_hi = image.hi;
        f->missing = [[self missingIn:&all[i] values:values] retain];
        return f;
    }
    return nil;
}

- (id<MTLFunction>)newFunctionWithName:(NSString *)name {
    return [self newFunction:name of:handle values:NULL];
}

// Merges values given by name into those given by index; false: a value has another type than its
// declaration.
- (bool)resolve:(MTLFunctionConstantValues *)given
           into:(msl_fc_values *)values
          error:(NSError **)error {
    *values = *given->values;
    for (unsigned c = 0; c < n_constants; c++) {
        unsigned index = constants[c].index;
        NSArray *pair =
            [given->named objectForKey:[NSString stringWithUTF8String:constants[c].name]];
        if (pair) {
            values->set[index] = 1;
            values->type[index] = (uint8_t)[[pair objectAtIndex:0] unsignedIntValue];
            values->val[index] = [[pair objectAtIndex:1] unsignedLongLongValue];
        }
        if (!values->set[index] ||
            strcmp(declared_type(constants[c].type), type_name(values->type[index])) == 0)
            continue;
        if (error)
            *error = sim_error(
                MTLLibraryErrorDomain, MTLLibraryErrorCompileFailure,
                [NSString stringWithFormat:@"function constant '%s' (index %u) is declared %s, "
                                           @"the value given is %s",
                                           constants[c].name, index, constants[c].type,
                                           type_name(values->type[index])]);
        return false;
    }
    return true;
}

- (id<MTLFunction>)newFunctionWithName:(NSString *)name
                        constantValues:(MTLFunctionConstantValues *)given
                                 error:(NSError **)error {
    msl_fc_values values;
    if (![self resolve:given into:&values error:error]) return nil;
    void *instance = load_instance(path.fileSystemRepresentation, &values);
    NSInteger code = MTLLibraryErrorInternal;
    NSString *text = @"the shader object cannot be loaded";
    if (instance) {
        SimFunction *f = [self newFunction:name of:instance values:&values];
        if (f && !f->missing) return f;
        code = f ? MTLLibraryErrorCompileFailure : MTLLibraryErrorFunctionNotFound;
        text =
            f ? [NSString stringWithFormat:@"function '%@': no value for function constant(s) %@",
                                           name, f->missing]
              : [NSString stringWithFormat:@"function '%@' not found", name];
        [f release];
    }
    if (error) *error = sim_error(MTLLibraryErrorDomain, code, text);
    return nil;
}

- (void)dealloc {
    [path release];
    [_label release];
    [_device release];
    [super dealloc];
}
@end
