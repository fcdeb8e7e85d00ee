// sim_compile.m - MSL source to a shader object, by the compiler driver in tools/, kept in a cache
// of files. Two processes that compile the same source at once end with the same file.
#import "tests/metal/standin/framework/sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static uint64_t hash_text(uint64_t hash, const char *text) {
    for (; *text; text++)
        hash = (hash ^ (uint8_t)*text) * 1099511628211ULL;
    return hash;
}

// What the compiler's own files say: a change of one of them compiles everything anew.
static uint64_t hash_compiler(uint64_t hash, const char *driver) {
    static const char *const files[] = {"", "/mslc.py", "/../msl/include/msl_shim.h"};
    const char *slash = strrchr(driver, '/');
    int dir = slash ? (int)(slash - driver) : 0;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char path[4096], text[64];
        struct stat st;
        if (i == 0)
            snprintf(path, sizeof path, "%s", driver);
        else
            snprintf(path, sizeof path, "%.*s%s", dir, driver, files[i]);
        if (stat(path, &st) != 0) continue;
        snprintf(text, sizeof text, "%lld.%ld", (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
        hash = hash_text(hash, text);
    }
    return hash;
}

static NSString *definitions(MTLCompileOptions *options) {
    NSMutableString *text = [NSMutableString string];
    NSDictionary *macros = options.preprocessorMacros;
    for (NSString *name in [macros.allKeys sortedArrayUsingSelector:@selector(compare:)])
        [text appendFormat:@" '-D%@=%@'", name, [macros objectForKey:name]];
    return text;
}

NSString *sim_compile(NSString *source, MTLCompileOptions *options, NSError **error) {
    const char *cache = getenv("METALSIM_CACHE") ?: "/tmp/metalsim-cache";
    const char *driver = getenv("METALSIM_CC") ?: METALSIM_DEFAULT_CC;
    const char *mode = sim_options()->check ? "check" : "plain";
    NSString *defines = definitions(options);
    uint64_t hash = hash_text(14695981039346656037ULL, source.UTF8String);
    hash = hash_text(hash_text(hash, defines.UTF8String), mode);
    hash = hash_compiler(hash, driver);

    mkdir(cache, 0700);
    NSString *base = [NSString stringWithFormat:@"%s/%016llx", cache, (unsigned long long)hash];
    NSString *object = [base stringByAppendingString:@".so"];
    if (access(object.fileSystemRepresentation, R_OK) == 0) return object;
    NSString *own = [base stringByAppendingFormat:@".%d.%p", (int)getpid(), (void *)pthread_self()];
    [source writeToFile:[own stringByAppendingString:@".metal"]
             atomically:YES
               encoding:NSUTF8StringEncoding
                  error:NULL];
    NSString *command = [NSString
        stringWithFormat:@"MSL_NAME=program_source '%s' %s '%@.metal' '%@.tmp'%@ 2>'%@.log' && "
                         @"mv '%@.tmp' '%@'",
                         driver, mode, own, own, defines, own, own, object];
    int rc = system(command.UTF8String);
    NSString *log = [NSString stringWithContentsOfFile:[own stringByAppendingString:@".log"]
                                              encoding:NSUTF8StringEncoding
                                                 error:NULL];
    for (NSString *suffix in @[ @".metal", @".log", @".tmp", @".tmp.cpp" ])
        unlink([own stringByAppendingString:suffix].fileSystemRepresentation);
    if (rc == 0) return object;
    if (error)
        *error = sim_error(MTLLibraryErrorDomain, MTLLibraryErrorCompileFailure,
                           log.length ? log : @"the compiler failed");
    return nil;
}
