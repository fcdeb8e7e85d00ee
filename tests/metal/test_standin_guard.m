// test_standin_guard.m - METALSIM_GUARD: host accesses to a buffer that the GPU still uses. Each
// case is a process of its own, because the guard ends it.
#include "tests/metal/standin_case.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { EXIT_EARLY = 86 };

static const char *const source =
    "kernel void k(device const float *a [[buffer(0)]], device float *b [[buffer(1)]]) {\n"
    "    b[0] = a[0] + 1; }";

// What a child process does between commit and wait.
static void touch(const char *what, volatile float *read_by_gpu, volatile float *written_by_gpu) {
    if (strcmp(what, "read-result") == 0)
        printf("%f\n", (double)*written_by_gpu);
    else if (strcmp(what, "write-result") == 0)
        *written_by_gpu = 1;
    else if (strcmp(what, "read-input") == 0)
        printf("%f\n", (double)*read_by_gpu);
    else if (strcmp(what, "write-input") == 0)
        *read_by_gpu = 5;
}

static int child(const char *what) {
    device = MTLCreateSystemDefaultDevice();
    queue = [device newCommandQueue];
    int rc;
    @autoreleasepool {
        id<MTLBuffer> a = [[device newBufferWithLength:64 options:0] autorelease];
        id<MTLBuffer> b = [[device newBufferWithLength:64 options:0] autorelease];
        volatile float *in = a.contents, *out = b.contents;
        *in = 41;
        id<MTLCommandBuffer> commands = [queue commandBuffer];
        id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
        [encoder setComputePipelineState:pipeline_of(source, NULL)];
        [encoder setBuffer:a offset:0 atIndex:0];
        [encoder setBuffer:b offset:0 atIndex:1];
        [encoder dispatchThreadgroups:MTLSizeMake(1, 1, 1)
                threadsPerThreadgroup:MTLSizeMake(1, 1, 1)];
        [encoder endEncoding];
        [commands commit];
        touch(what, in, out);
        [commands waitUntilCompleted];
        rc = *out == 42 ? 0 : 1; // the host may access both again
        *in = 1;
        *out = 1;
    }
    [queue release];
    [device release];
    return rc;
}

// Exit status of a child with that environment.
static int run_child(const char *what, const char *level) {
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        setenv("METALSIM_GUARD", level, 1);
        setenv("METALSIM_DELAY_MS", "100", 1);
        setenv("METALSIM_MODE", "plain", 1);
        execl("/proc/self/exe", "test_standin_guard", what, (char *)NULL);
        _exit(127);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void results_before_completion(void) {
    CHECK(run_child("nothing", "1") == 0);
    CHECK(run_child("read-result", "1") == EXIT_EARLY);
    CHECK(run_child("write-result", "1") == EXIT_EARLY);
}

static void inputs_before_completion(void) {
    CHECK(run_child("read-input", "1") == 0);
    CHECK(run_child("read-input", "2") == 0);
    CHECK(run_child("write-input", "2") == EXIT_EARLY);
    CHECK(run_child("read-result", "2") == EXIT_EARLY);
}

static void without_the_guard(void) {
    CHECK(run_child("read-result", "0") == 0);
    CHECK(run_child("write-input", "0") == 1); // the GPU saw the new value
}

int main(int argc, char **argv) {
    if (argc > 1) return child(argv[1]);
    RUN(results_before_completion);
    RUN(inputs_before_completion);
    RUN(without_the_guard);
    return check_done();
}
