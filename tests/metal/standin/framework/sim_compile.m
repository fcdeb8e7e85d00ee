// sim_compile.m - compiles MSL source to a shader object with the compiler driver in tools/ and
// caches it in a file. A process that needs what another one compiles waits for it.
#import "tests/metal/standin/framework/sim.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static uint64_t hash_text(uint64_t hash, const char *text) {
    for (; *text; text++)
        hash = (hash ^ (uint8_t)*text) * 1099511628211ULL;
    return hash;
}

static uint64_t hash_file(uint64_t hash, const char *path) {
    unsigned char block[16384];
    size_t n;
    FILE *f = fopen(path, "rb");
    if (!f) return hash;
    while ((n = fread(block, 1, sizeof block, f)) > 0)
        for (size_t i = 0; i < n; i++)
            hash = (hash ^ block[i]) * 1099511628211ULL;
    fclose(f);
    return hash;
}

// Hash of the compiler's own files: a change in one of them recompiles everything.
static uint64_t hash_compiler(uint64_t hash, const char *driver) {
    static const char *const folders[] = {"", "/../msl/include", "/../runtime"};
    const char *slash = strrchr(driver, '/');
    int dir = slash ? (int)(slash - driver) : 0;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        char folder[4096], path[4608];
        struct dirent *entry;
        snprintf(folder, sizeof folder, "%.*s%s", dir, driver, folders[i]);
        DIR *files = opendir(folder);
        if (!files) continue;
        while ((entry = readdir(files))) {
            const char *dot = strrchr(entry->d_name, '.');
            if (dot && strcmp(dot, ".h") != 0 && strcmp(dot, ".py") != 0 &&
                strcmp(dot, ".inc") != 0)
                continue;
            snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
            hash += hash_file(hash_text(1, entry->d_name), path); // in any order
        }
        closedir(files);
    }
    return hash_text(hash, getenv("MSL_CXX") ?: "");
}

// Once per process: the compiler does not change while it runs.
static uint64_t compiler_hash(void) {
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static uint64_t hash;
    pthread_mutex_lock(&mutex);
    if (!hash) hash = hash_compiler(1, getenv("METALSIM_CC") ?: METALSIM_DEFAULT_CC);
    uint64_t result = hash;
    pthread_mutex_unlock(&mutex);
    return result;
}

static NSString *definitions(MTLCompileOptions *options) {
    NSMutableString *text = [NSMutableString string];
    NSDictionary *macros = options.preprocessorMacros;
    for (NSString *name in [macros.allKeys sortedArrayUsingSelector:@selector(compare:)])
        [text appendFormat:@" '-D%@=%@'", name, [macros objectForKey:name]];
    return text;
}

// Returns nil, or the reason why there is no library.
static NSString *run_compiler(NSString *source, NSString *base, NSString *defines) {
    const char *driver = getenv("METALSIM_CC") ?: METALSIM_DEFAULT_CC;
    NSString *own = [base stringByAppendingFormat:@".%d.%p", (int)getpid(), (void *)pthread_self()];
    [source writeToFile:[own stringByAppendingString:@".metal"]
             atomically:YES
               encoding:NSUTF8StringEncoding
                  error:NULL];
    // The translated text is renamed first: it exists whenever the object does.
    NSString *command = [NSString
        stringWithFormat:@"MSL_NAME=program_source '%s' %s '%@.metal' '%@.tmp'%@ 2>'%@.log' && "
                         @"mv '%@.tmp.cpp' '%@.cpp' && mv '%@.tmp' '%@.so'",
                         driver, sim_options()->check ? "check" : "plain", own, own, defines, own,
                         own, base, own, base];
    int rc = system(command.UTF8String);
    NSString *log = [NSString stringWithContentsOfFile:[own stringByAppendingString:@".log"]
                                              encoding:NSUTF8StringEncoding
                                                 error:NULL];
    for (NSString *suffix in @[ @".metal", @".log", @".tmp", @".tmp.cpp" ])
        unlink([own stringByAppendingString:suffix].fileSystemRepresentation);
    if (rc == 0) return nil;
    return log.length ? log : @"the compiler failed";
}

NSString *sim_compile(NSString *source, MTLCompileOptions *options, NSError **error) {
    const char *cache = getenv("METALSIM_CACHE") ?: "/tmp/metalsim-cache";
    MTLLanguageVersion version = options ? options.languageVersion : MTLLanguageVersion3_1;
    unsigned number = (unsigned)(version >> 16) * 100 + (unsigned)(version & 0xFFFF) * 10;
    NSString *defines =
        [definitions(options) stringByAppendingFormat:@" -DMSL_FAST_MATH=%d -D__METAL_VERSION__=%u",
                                                      !options || options.fastMathEnabled, number];
    uint64_t hash = hash_text(14695981039346656037ULL, source.UTF8String);
    hash = hash_text(hash_text(hash, defines.UTF8String), sim_options()->check ? "check" : "plain");
    hash ^= compiler_hash();

    mkdir(cache, 0700);
    NSString *base = [NSString stringWithFormat:@"%s/%016llx", cache, (unsigned long long)hash];
    NSString *object = [base stringByAppendingString:@".so"], *why = nil;
    if (access(object.fileSystemRepresentation, R_OK) != 0) {
        NSString *lock = [base stringByAppendingString:@".lock"];
        int fd = open(lock.fileSystemRepresentation, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
        if (fd >= 0) flock(fd, LOCK_EX); // without the lock both compile, to the same file
        if (access(object.fileSystemRepresentation, R_OK) != 0)
            why = run_compiler(source, base, defines);
        if (fd >= 0) close(fd);
    }
    if (!why) {
        NSString *text = [NSString stringWithContentsOfFile:[base stringByAppendingString:@".cpp"]
                                                   encoding:NSUTF8StringEncoding
                                                      error:NULL];
        why = sim_family_refuses(text ? text.UTF8String : "", version);
    }
    if (!why) return object;
    if (error) *error = sim_error(MTLLibraryErrorDomain, MTLLibraryErrorCompileFailure, why);
    return nil;
}
