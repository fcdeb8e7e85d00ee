/* test_standin_runtime.h - the second half of test_standin.cu: streams, graphs, memory, failures,
 * and the faults of kernels that the stand-in must report. */

namespace {

struct step_args {
    uint32_t *x;
    uint32_t add;
    uint32_t pad[100]; /* long arguments: kept as long as the graph */
    uint32_t last;
};

CUDA_KERNEL(32) step(CUDA_ARGS(struct step_args) a) {
    pdl_wait();
    a.x[threadIdx.x] = a.x[threadIdx.x] * 3 + a.add + a.last;
}

void test_graph() {
    device<uint32_t> x(std::vector<uint32_t>(32, 1)), y(32);
    uint32_t *pinned;
    CHECK(!cudaMallocHost((void **)&pinned, 32 * sizeof *pinned));
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(!cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (uint32_t i = 0; i < 3; i++) {
        step_args a = {x.p, i, {}, 10};
        CHECK(!launch(step, a, 1, 32));
        memset(&a, 0x55, sizeof a);
    }
    CHECK(!cudaMemcpyAsync(y.p, x.p, 128, cudaMemcpyDeviceToDevice, stream));
    CHECK(!cudaMemcpyAsync(pinned, y.p, 128, cudaMemcpyDeviceToHost, stream));
    CHECK(!cudaMemsetAsync(y.p, 0, 64, stream));
    CHECK(!cudaStreamEndCapture(stream, &graph));
    CHECK(x.get()[0] == 1); /* nothing ran */
    CHECK(!cudaGraphInstantiate(&exec, graph, 0));
    CHECK(!cudaGraphDestroy(graph));
    uint32_t want = 1;
    for (int i = 0; i < 3; i++) {
        CHECK(!cudaGraphLaunch(exec, stream));
        CHECK(!cudaStreamSynchronize(stream));
        want = ((want * 3 + 10) * 3 + 11) * 3 + 12;
        CHECK(pinned[31] == want && x.get()[7] == want);
        CHECK(y.get()[0] == 0 && y.get()[31] == want);
    }
    CHECK(!cudaGraphExecDestroy(exec));

    /* Waiting for a stream under capture, and allocations during it. */
    CHECK(!cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) ==
          cudaErrorIllegalState);
    CHECK(cudaStreamSynchronize(stream) == cudaErrorStreamCaptureUnsupported);
    CHECK(cudaStreamEndCapture(stream, &graph) == cudaErrorStreamCaptureInvalidated && !graph);
    CHECK(!cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    void *p;
    CHECK(cudaMalloc(&p, 16) == cudaErrorStreamCaptureUnsupported);
    CHECK(cudaStreamEndCapture(stream, &graph) == cudaErrorStreamCaptureInvalidated && !graph);
    CHECK(cudaStreamEndCapture(stream, &graph) == cudaErrorIllegalState);
    CHECK(cudaGetLastError() == cudaErrorIllegalState && cudaGetLastError() == cudaSuccess);
    CHECK(!cudaFreeHost(pinned));
}

void test_late() {
    device<uint32_t> x(std::vector<uint32_t>(32, 1));
    uint32_t *pinned;
    CHECK(!cudaMallocHost((void **)&pinned, 128));
    cudasim_option_set("CUDASIM_LATE", "1");
    for (int i = 0; i < 32; i++)
        pinned[i] = 5;
    CHECK(!cudaMemcpyAsync(x.p, pinned, 128, cudaMemcpyHostToDevice, stream));
    pinned[0] = 6; /* too soon: the copy reads it */
    CHECK(!launch(step, {x.p, 1, {}, 0}, 1, 32));
    CHECK(!cudaMemcpyAsync(pinned, x.p, 128, cudaMemcpyDeviceToHost, stream));
    CHECK(pinned[1] == 5);
    CHECK(cudaStreamQuery(stream) == cudaErrorNotReady && !cudaStreamQuery(stream));
    CHECK(pinned[0] == 19 && pinned[1] == 16);

    /* From pageable memory: read within the call. To it: written when the call returns. */
    uint32_t own[32] = {9};
    CHECK(!cudaMemcpyAsync(x.p, own, 128, cudaMemcpyHostToDevice, stream));
    own[0] = 0;
    CHECK(!cudaMemcpyAsync(own, x.p, 128, cudaMemcpyDeviceToHost, stream));
    CHECK(own[0] == 9);
    cudasim_option_set("CUDASIM_LATE", getenv("CUDASIM_LATE"));
    CHECK(!cudaFreeHost(pinned));
}

void test_events() {
    cudaStream_t other;
    cudaEvent_t event, second;
    device<uint32_t> x(std::vector<uint32_t>(32, 1));
    CHECK(!cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    CHECK(!cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    CHECK(!cudaEventCreateWithFlags(&second, cudaEventDefault));
    CHECK(!cudaEventQuery(event));
    cudasim_option_set("CUDASIM_LATE", "1");
    CHECK(!launch(step, {x.p, 1, {}, 0}, 1, 32));
    CHECK(!cudaEventRecord(event, stream));
    CHECK(!launch(step, {x.p, 100, {}, 0}, 1, 32));
    CHECK(!cudaStreamWaitEvent(other, event, 0));
    CHECK(!launch(step, {x.p, 2, {}, 0}, 1, 32, 0, other));
    CHECK(!cudaEventRecord(second, other));
    CHECK(cudaEventQuery(second) == cudaErrorNotReady);
    CHECK(x.now()[0] == 14); /* (1 * 3 + 1) * 3 + 2: the work after the event has not run */
    CHECK(!cudaEventQuery(second) && !cudaEventSynchronize(second));
    CHECK(!cudaStreamSynchronize(stream) && x.get()[0] == 142);
    float ms;
    CHECK(cudaEventElapsedTime(&ms, event, second) == cudaErrorInvalidResourceHandle);
    CHECK(!cudaEventElapsedTime(&ms, second, second) && ms == 0);
    cudasim_option_set("CUDASIM_LATE", getenv("CUDASIM_LATE"));

    /* Fork and join under capture. */
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(!cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    CHECK(!cudaEventRecord(event, stream) && !cudaStreamWaitEvent(other, event, 0));
    CHECK(!launch(step, {x.p, 7, {}, 0}, 1, 32, 0, other));
    CHECK(!cudaEventRecord(second, other) && !cudaStreamWaitEvent(stream, second, 0));
    CHECK(cudaEventQuery(event) == cudaErrorCapturedEvent);
    CHECK(!cudaStreamEndCapture(stream, &graph) && !cudaGraphInstantiate(&exec, graph, 0));
    CHECK(x.get()[0] == 142 && !cudaGraphLaunch(exec, stream) && !cudaStreamSynchronize(stream));
    CHECK(x.get()[0] == 433);
    CHECK(!cudaGraphExecDestroy(exec) && !cudaGraphDestroy(graph));

    /* A join that is missing, or comes too early. */
    for (int joins = 0; joins < 2; joins++) {
        CHECK(!cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
        CHECK(!cudaEventRecord(event, stream) && !cudaStreamWaitEvent(other, event, 0));
        CHECK(!launch(step, {x.p, 7, {}, 0}, 1, 32, 0, other));
        if (joins)
            CHECK(!cudaEventRecord(second, other) && !cudaStreamWaitEvent(stream, second, 0));
        CHECK(!launch(step, {x.p, 7, {}, 0}, 1, 32, 0, other));
        CHECK(cudaStreamEndCapture(stream, &graph) == cudaErrorStreamCaptureUnjoined && !graph);
        enum cudaStreamCaptureStatus status;
        CHECK(!cudaStreamIsCapturing(other, &status) && status == cudaStreamCaptureStatusNone);
    }
    cudaGetLastError();
    CHECK(!cudaEventDestroy(event) && !cudaEventDestroy(second) && !cudaStreamDestroy(other));
}

/* out[0] = x[0] before pdl_wait(), out[1] = x[0] after it. */
struct early_args {
    uint32_t *x, *out;
};
CUDA_KERNEL(64) early(CUDA_ARGS(struct early_args) a) {
    __shared__ uint32_t kept[64];
    kept[threadIdx.x] = a.x[threadIdx.x]; /* forbidden */
    __syncthreads();
    pdl_wait();
    a.out[threadIdx.x] = kept[63 - threadIdx.x];
    a.out[64 + threadIdx.x] = a.x[63 - threadIdx.x]++;
}

/* A kernel that reads too soon reads the old value. */
void test_early_start() {
    device<uint32_t> x(std::vector<uint32_t>(64, 1)), out(128);
    cudaLaunchAttribute attr;
    attr.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attr.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {1, 64, 0, stream, &attr, 1};
    early_args a = {x.p, out.p};
    void *args[] = {&a};
    cudasim_option_set("CUDASIM_LATE", "1");
    uint32_t n_old = 0;
    for (uint32_t i = 0; i < 9; i++) {
        for (int twice = 0; twice < 2; twice++) {
            cudasim_next_args_bytes(sizeof a);
            CHECK(!cudaLaunchKernelExC(&config, (const void *)early, args));
        }
        std::vector<uint32_t> got = out.get();
        uint32_t want = 2 * i + 2;
        for (int t = 1; t < 64; t++)
            CHECK(got[t] == got[0]);
        CHECK(got[0] == want || got[0] == want - 1);
        n_old += got[0] == want - 1;
        for (int t = 0; t < 64; t++)
            CHECK(got[64 + t] == want);
    }
    CHECK(n_old > 3 && n_old < 9);
    cudasim_option_set("CUDASIM_LATE", getenv("CUDASIM_LATE"));
}

void test_memory() {
    size_t free0, free1, total;
    CHECK(!cudaMemGetInfo(&free0, &total));
    device<uint8_t> x(1000);
    CHECK(!cudaMemGetInfo(&free1, &total) && free0 - free1 == 1000);
    CHECK(x.get()[999] == 0xff && (uintptr_t)x.p % 256 == 0);
    std::vector<uint8_t> h(2000);
    CHECK(cudaMemcpy(x.p, h.data(), 1001, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
    CHECK(cudaMemcpy(h.data(), x.p + 500, 501, cudaMemcpyDeviceToHost) == cudaErrorInvalidValue);
    CHECK(cudaMemcpy(x.p, h.data(), 10, cudaMemcpyDeviceToHost) == cudaErrorInvalidValue);
    CHECK(cudaMemset(h.data(), 0, 10) == cudaErrorInvalidValue);
    CHECK(!cudaMemset(x.p + 1, 3, 998) && x.get()[0] == 0xff && x.get()[998] == 3);
    CHECK(cudaFree(x.p + 1) == cudaErrorInvalidValue && !cudaFree(nullptr));
    void *p;
    CHECK(cudaMalloc(&p, total) == cudaErrorMemoryAllocation && !p);
    CHECK(cudaHostGetDevicePointer(&p, h.data(), 0) == cudaErrorInvalidValue);
    CHECK(!cudaHostRegister(h.data(), h.size(), 0) && !cudaHostGetDevicePointer(&p, h.data(), 0));
    CHECK(cudaHostRegister(h.data(), 1, 0) == cudaErrorHostMemoryAlreadyRegistered);
    CHECK(!cudaHostUnregister(h.data()));
    CHECK(cudaHostUnregister(h.data()) == cudaErrorHostMemoryNotRegistered);
    cudaGetLastError();
}

void test_launch_limits() {
    device<uint32_t> x(std::vector<uint32_t>(32, 1));
    step_args a = {x.p, 0, {}, 0};
    CHECK(launch(step, a, dim3(0, 1, 1), 32) == cudaErrorInvalidConfiguration);
    CHECK(launch(step, a, dim3(1, 65536, 1), 32) == cudaErrorInvalidConfiguration);
    CHECK(launch(step, a, 1, 1025) == cudaErrorInvalidConfiguration);
    CHECK(launch(step, a, 1, dim3(1, 1, 65)) == cudaErrorInvalidConfiguration);
    CHECK(launch(step, a, 1, 0) == cudaErrorInvalidConfiguration);
    CHECK(launch(step, a, 1, 32, 49153) == cudaErrorInvalidValue);
    CHECK(!launch(step, a, 1, 32, 49152));
    const void *fn = (const void *)step;
    auto most = cudaFuncAttributeMaxDynamicSharedMemorySize;
    CHECK(cudaFuncSetAttribute(fn, most, (227 << 10) + 1) == cudaErrorInvalidValue);
    CHECK(!cudaFuncSetAttribute(fn, most, 227 << 10) && !launch(step, a, 1, 32, 227 << 10));
    CHECK(cudaPeekAtLastError() == cudaErrorInvalidValue && cudaGetLastError());
    CHECK(!cudaStreamSynchronize(stream) && x.get()[0] == 9);
    int n;
    CHECK(!cudaOccupancyMaxActiveBlocksPerMultiprocessor(&n, fn, 256, 100 << 10) && n == 2);
}

void test_failures() {
    device<uint32_t> x(std::vector<uint32_t>(32, 1));
    void *p, *q;
    cudasim_option_set("CUDASIM_FAIL", "malloc:2");
    CHECK(!cudaMalloc(&p, 16) && cudaMalloc(&q, 16) == cudaErrorMemoryAllocation);
    CHECK(cudaMalloc(&q, 16) == cudaErrorMemoryAllocation && !cudaFree(p));
    CHECK(!launch(step, {x.p, 0, {}, 0}, 1, 32) && !cudaStreamSynchronize(stream));
    cudasim_option_set("CUDASIM_FAIL", "launch:2");
    CHECK(!launch(step, {x.p, 0, {}, 0}, 1, 32));
    CHECK(launch(step, {x.p, 0, {}, 0}, 1, 32) == cudaErrorIllegalAddress);
    CHECK(cudaMalloc(&q, 16) == cudaErrorIllegalAddress);
    CHECK(cudaStreamSynchronize(stream) == cudaErrorIllegalAddress);
    CHECK(cudaGetLastError() == cudaErrorIllegalAddress && cudaGetLastError() != cudaSuccess);
    cudasim_option_set("CUDASIM_FAIL", "sync:1");
    CHECK(!cudaStreamQuery(stream));
    CHECK(cudaStreamSynchronize(stream) == cudaErrorECCUncorrectable);
    CHECK(cudaStreamQuery(stream) == cudaErrorECCUncorrectable);
    cudasim_option_set("CUDASIM_FAIL", nullptr);
    cudaGetLastError();
    CHECK(!cudaStreamSynchronize(stream) && x.get()[0] == 9);
    int n = -1;
    cudasim_option_set("CUDASIM_DEVICES", "0");
    CHECK(cudaGetDeviceCount(&n) == cudaErrorNoDevice && n == 0);
    cudasim_option_set("CUDASIM_DEVICES", "2");
    CHECK(!cudaGetDeviceCount(&n) && n == 2 && !cudaSetDevice(1));
    CHECK(cudaStreamSynchronize(stream) == cudaErrorInvalidResourceHandle);
    CHECK(!cudaSetDevice(0) && cudaSetDevice(2) == cudaErrorInvalidDevice);
    cudasim_option_set("CUDASIM_DEVICES", getenv("CUDASIM_DEVICES"));
    cudaGetLastError();
}

/* ---- faults ---- */

struct fault_args {
    uint32_t *x;
    uint32_t which;
};

CUDA_KERNEL(64) faulty(CUDA_ARGS(struct fault_args) a) {
    CUDA_SHARED(uint32_t, s);
    uint32_t t = threadIdx.x;
    if (a.which == 0) return; /* no pdl_wait */
    pdl_wait();
    if (a.which == 1 && t < 40) return; /* before a barrier */
    if (a.which == 2 && t % 2) __syncthreads();
    if (a.which == 3 && t % 2) a.x[t] = __shfl_xor_sync(CUDA_ALL, t, 1);
    if (a.which == 4) a.x[t] = t % 2 ? __shfl_xor_sync(CUDA_ALL, t, 1) : __ballot_sync(CUDA_ALL, 1);
    if (a.which == 5) a.x[t] = __shfl_sync(1u << (t + 1) % 32, t, 0);
    if (a.which == 6) s[t * 16] = 1;         /* beyond the launch's shared memory */
    if (a.which == 7 && t % 32 >= 4) return; /* a product without them */
    if (a.which == 7) {
        uint32_t d[4];
        ldmatrix4(d, s);
    }
    if (a.which == 8) a.x[0] = load_stream8((char *)a.x + 4).x;
    if (a.which == 9) async_copy16(s + 1, a.x);
    if (a.which == 10) a.x[-1 - (int)t] = 1;
    __shared__ uint64_t bar[2];
    if (t == 0) mbar_init(&bar[0], 2);
    __syncthreads();
    if (a.which == 11 && t < 3) mbar_arrive(&bar[t / 2]); /* the second one does not exist */
    if (a.which == 12 && t == 0) mbar_wait(&bar[0], 0);   /* no arrival */
    if (a.which == 13 && t == 0) bulk_expect(&bar[0], 16), bulk_copy(s, a.x, 16, &bar[0]);
    if (a.which == 14 && t == 0)
        bulk_copy(s, a.x, 16, &bar[0]), mbar_arrive(&bar[0]), mbar_wait(&bar[0], 0);
    if (a.which == 15 && t == 0) bulk_copy(s, a.x, 8, &bar[0]);
    __syncthreads();
}

template <int which> std::string fault_of() {
    return fault([] {
        device<uint32_t> x(1024 + 1);
        launch(faulty, {x.p, which}, 1, 64, 1024);
    });
}

/* ---- faults that only a build with CUDA_CHECK=1 detects ---- */

CUDA_KERNEL(64) racing(CUDA_ARGS(struct fault_args) a) {
    CUDA_SHARED(uint32_t, s);
    __shared__ uint32_t fixed[65];
    uint32_t t = threadIdx.x, which = a.which;
    if (which == 1) a.x[t] = 1; /* too soon */
    pdl_wait();
    s[t] = t;
    fixed[t] = t;
    if (which == 2) a.x[t] = s[(t + 1) % 64]; /* no barrier */
    if (which == 3) a.x[t] = fixed[t ^ 1];
    if (which == 4) __shfl_sync(CUDA_ALL, t, 0); /* orders no memory */
    if (which == 4) a.x[t] = s[t ^ 1];
    __syncwarp();
    a.x[t] = s[t ^ 1];
    if (which == 5) a.x[t] = s[t ^ 32]; /* another warp */
    __syncthreads();
    a.x[t] = s[63 - t] + fixed[63 - t];
    if (which == 6) s[t] = 1; /* others may still be reading */
    __syncthreads();
    fixed[64] = 7; /* all the same */
    if (which == 7) s[0] = t;
    if (which == 14) s[0] = 7 + t / 63; /* the last one reads another */
    if (which == 8) atomicAdd(&s[0], 1u), a.x[t] = s[0];
    atomicAdd(&s[1], 1u);
    if (which == 9) a.x[1025] = 1;
    if (which == 10) a.x[t] = s[1024 / 4 + t];
    if (which == 11) a.x[t] = *(uint32_t *)stream;
    if (which == 12) async_copy16(&s[4 * (t % 4) + 4], a.x);
    if (which == 13) {
        async_copy16(&s[4 * t], a.x);
        async_wait<0>();
        __syncwarp();
        a.x[t] = s[4 * t ^ 128]; /* the other warp's, without a barrier */
    }
}

template <int which> std::string race_of() {
    return fault([] {
        device<uint32_t> x(1024 + 1);
        launch(racing, {x.p, which}, 3, 64, 1024);
        cudaStreamSynchronize(stream);
    });
}

void test_checks() {
    CHECK_MSG(race_of<0>() == "", "%s", race_of<0>().c_str());
#ifdef CUDASIM_CHECK
    std::string s = race_of<1>();
    CHECK_MSG(has(s, "before pdl_wait") && has(s, "test_standin_runtime.h:"), "%s", s.c_str());
    CHECK(has(race_of<2>(), "a race with a"));
    CHECK(has(race_of<3>(), "a race with a"));
    CHECK(has(race_of<4>(), "a race with a"));
    CHECK(has(race_of<5>(), "a race with a"));
    CHECK(has(race_of<6>(), "a race with a"));
    CHECK(has(race_of<7>(), "a race with a write"));
    CHECK(has(race_of<8>(), "a race with a"));
    CHECK(has(race_of<9>(), "not memory of the device"));
    CHECK(has(race_of<10>(), "outside the dynamic shared memory"));
    CHECK(has(race_of<11>(), "not memory of the device"));
    s = race_of<12>();
    CHECK_MSG(has(s, "a race with a write"), "%s", s.c_str());
    CHECK(has(race_of<14>(), "a race with a write"));
    s = race_of<13>();
    CHECK_MSG(has(s, "a race with a write"), "%s", s.c_str());
#endif
}

/* Written after its end, within the rest of 256 bytes: detected when it is freed. */
CUDA_KERNEL(64) past_end(CUDA_ARGS(struct fault_args) a) {
    pdl_wait();
    a.x[5 + threadIdx.x % 2] = 1;
}

void test_faults() {
    std::string s = fault_of<0>();
    CHECK_MSG(has(s, "without pdl_wait") && has(s, "faulty") && has(s, "block (0, 0, 0)"), "%s",
              s.c_str());
    CHECK(has(fault_of<1>(), "24 threads wait in __syncthreads, 40 have ended"));
    CHECK(has(fault_of<2>(), "divergence"));
    CHECK(has(fault_of<3>(), "divergence"));
    CHECK(has(fault_of<4>(), "divergence"));
    CHECK(has(fault_of<5>(), "lacks the calling lane"));
    s = fault_of<6>();
    CHECK(s == "signal" || has(s, "outside the dynamic shared memory"));
    CHECK(has(fault_of<7>(), "all 32 must be there"));
    CHECK(has(fault_of<8>(), "not aligned"));
    CHECK(has(fault_of<9>(), "not aligned"));
    s = fault_of<10>();
    CHECK(has(s, "bytes before it") || s == "signal" || has(s, "not memory of the device"));
    CHECK(has(fault_of<11>(), "no barrier was made here"));
    CHECK(has(fault_of<12>(), "thread 0 waits at the barrier"));
    CHECK(has(fault_of<13>(), "the block has ended before copies that it began"));
    CHECK(has(fault_of<14>(), "more bytes came than a barrier was told to expect"));
    CHECK(has(fault_of<15>(), "not aligned"));
    CHECK(fault_of<16>() == "");
    s = fault([] {
        device<uint32_t> x(5);
        launch(past_end, {x.p, 0}, 1, 64);
        cudaStreamSynchronize(stream);
    });
    CHECK_MSG(has(s, "written 1 bytes after its end") || s == "signal" ||
                  has(s, "write of 4 bytes"),
              "%s", s.c_str());
}

} // namespace
