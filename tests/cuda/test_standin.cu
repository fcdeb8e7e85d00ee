/* test_standin.cu - the stand-in itself: each function of device.cuh in a kernel, against
 * plain code; fragments and matrix loads by the tables of the PTX ISA; the runtime's calls and
 * failures. */
#include "shaders/cuda/device.cuh"

#include <cuda_runtime_api.h>

#include "tests/unit/check.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

namespace {

uint64_t seed = 1;
uint32_t random32() {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 32);
}
float real() {
    return (float)(int32_t)random32() * 0x1p-31f;
}

/* ---- running ---- */

cudaStream_t stream;

template <typename A>
cudaError_t launch(void (*kernel)(const A &), const A &a, dim3 grid, dim3 block, size_t shared = 0,
                   cudaStream_t s = stream) {
    cudaLaunchConfig_t config = {grid, block, shared, s, nullptr, 0};
    void *args[] = {const_cast<A *>(&a)};
    cudasim_next_args_bytes(sizeof a);
    return cudaLaunchKernelExC(&config, (const void *)kernel, args);
}

/* Device memory that lives as long as the object. */
template <typename T> struct device {
    T *p = nullptr;
    size_t n;
    explicit device(size_t count) : n(count) {
        CHECK(cudaMalloc((void **)&p, n * sizeof(T)) == cudaSuccess);
    }
    explicit device(const std::vector<T> &v) : device(v.size()) {
        CHECK(!cudaMemcpy(p, v.data(), n * sizeof(T), cudaMemcpyHostToDevice));
    }
    device(const device &) = delete;
    ~device() {
        CHECK(!cudaFree(p));
    }
    /* After the stream's work; immediately. */
    std::vector<T> get() const {
        CHECK(!cudaStreamSynchronize(stream));
        return now();
    }
    std::vector<T> now() const {
        std::vector<T> v(n);
        CHECK(!cudaMemcpy(v.data(), p, n * sizeof(T), cudaMemcpyDeviceToHost));
        return v;
    }
};

/* The output of f if it calls abort(); "" if it does not. */
std::string fault(void (*f)()) {
    int fd[2];
    fflush(stdout);
    if (pipe(fd)) return "";
    pid_t pid = fork();
    if (pid == 0) {
        dup2(fd[1], 2);
        f();
        fflush(stderr);
        _exit(0);
    }
    close(fd[1]);
    std::string text;
    char buf[512];
    for (ssize_t n; (n = read(fd[0], buf, sizeof buf)) > 0;)
        text.append(buf, (size_t)n);
    close(fd[0]);
    int status = 0;
    waitpid(pid, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status)) return "signal"; /* detected by a sanitizer */
    return WIFSIGNALED(status) ? WTERMSIG(status) == SIGABRT ? text : "signal" : "";
}
bool has(const std::string &text, const char *part) {
    return text.find(part) != std::string::npos;
}

/* ---- indices ---- */

struct out_args {
    uint32_t *out;
};

CUDA_KERNEL(64) places(CUDA_ARGS(struct out_args) a) {
    pdl_launch();
    pdl_wait();
    uint32_t block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    uint32_t thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    uint32_t n = blockDim.x * blockDim.y * blockDim.z;
    a.out[block * n + thread] = block << 16 | thread;
}

void test_places() {
    device<uint32_t> out(2 * 3 * 4 * 60);
    CHECK(!launch(places, {out.p}, dim3(2, 3, 4), dim3(5, 4, 3)));
    std::vector<uint32_t> got = out.get();
    for (uint32_t i = 0; i < got.size(); i++)
        CHECK(got[i] == (i / 60 << 16 | i % 60));
}

/* ---- warp functions ---- */

enum { N_WARP = 24 };
CUDA_KERNEL(96) warps(CUDA_ARGS(struct out_args) a) {
    pdl_wait();
    uint32_t lane = threadIdx.x % 32, i = 0, v = threadIdx.x * 7919u + 13;
    uint32_t *out = a.out + threadIdx.x * N_WARP;
    out[i++] = __shfl_sync(CUDA_ALL, v, 5);
    out[i++] = __shfl_sync(CUDA_ALL, v, (int)(lane * 3), 8);
    out[i++] = __shfl_up_sync(CUDA_ALL, v, 3);
    out[i++] = __shfl_up_sync(CUDA_ALL, v, 3, 16);
    out[i++] = __shfl_down_sync(CUDA_ALL, v, 5);
    out[i++] = __shfl_down_sync(CUDA_ALL, v, 5, 8);
    out[i++] = __shfl_xor_sync(CUDA_ALL, v, 16);
    out[i++] = __shfl_xor_sync(CUDA_ALL, v, 12, 8);
    out[i++] = __ballot_sync(CUDA_ALL, lane % 3 == 0);
    out[i++] = (uint32_t)__any_sync(CUDA_ALL, threadIdx.x == 40);
    out[i++] = (uint32_t)__all_sync(CUDA_ALL, threadIdx.x != 40);
    out[i++] = __reduce_add_sync(CUDA_ALL, v);
    out[i++] = __reduce_min_sync(CUDA_ALL, v ^ 0x80000000u * (lane & 1));
    out[i++] = (uint32_t)__reduce_min_sync(CUDA_ALL, (int)lane - 16);
    out[i++] = __reduce_max_sync(CUDA_ALL, v);
    out[i++] = (uint32_t)__reduce_max_sync(CUDA_ALL, (int)lane - 40);
    out[i++] = __float_as_uint(warp_sum((float)lane));
    out[i++] = __float_as_uint(warp_max((float)(lane * 5 % 32)));
    out[i++] = __match_any_sync(CUDA_ALL, lane % 5);
    /* The halves of a warp separately, the second half first. */
    if (lane >= 16)
        out[i++] = __ballot_sync(0xffff0000u, lane & 1);
    else
        out[i++] = __reduce_add_sync(0x0000ffffu, lane);
    __syncwarp();
    double d = __shfl_xor_sync(CUDA_ALL, lane + 0.25, 1);
    out[i++] = (uint32_t)(d * 4);
    out[i++] = (uint32_t)(__shfl_down_sync(CUDA_ALL, (unsigned long long)lane << 40, 1) >> 40);
    out[i++] = (uint32_t)__syncthreads_count(threadIdx.x % 5 == 0);
    out[i++] = (uint32_t)__syncthreads_or(threadIdx.x == 77) + 2 * __syncthreads_and(lane != 9);
}

void test_warps() {
    device<uint32_t> out(96 * N_WARP);
    CHECK(!launch(warps, {out.p}, 1, 96));
    std::vector<uint32_t> got = out.get();
    for (uint32_t t = 0; t < 96; t++) {
        uint32_t w = t / 32 * 32, l = t % 32, match = 0, sum = 0, least = UINT32_MAX;
        auto v = [&](uint32_t lane) { return (w + lane) * 7919u + 13; };
        for (uint32_t j = 0; j < 32; j++) {
            match |= (uint32_t)(j % 5 == l % 5) << j;
            sum += v(j);
            uint32_t x = v(j) ^ 0x80000000u * (j & 1);
            least = x < least ? x : least;
        }
        const uint32_t want[N_WARP] = {
            v(5),
            v(l / 8 * 8 + l * 3 % 8),
            v(l < 3 ? l : l - 3),
            v(l % 16 < 3 ? l : l - 3),
            v(l + 5 > 31 ? l : l + 5),
            v(l % 8 + 5 > 7 ? l : l + 5),
            v(l ^ 16),
            v((l ^ 12) < l / 8 * 8 + 8 ? l ^ 12 : l), /* PTX shfl.bfly: not above the segment */
            0x49249249u,
            w == 32,
            w != 32,
            sum,
            least,
            (uint32_t)-16,
            v(31),
            (uint32_t)-9,
            __float_as_uint(496),
            __float_as_uint(31),
            match,
            l >= 16 ? 0xaaaa0000u : 120,
            (l ^ 1) * 4 + 1,
            l == 31 ? 31 : l + 1,
            20,
            1,
        };
        for (uint32_t i = 0; i < N_WARP; i++)
            CHECK_MSG(got[t * N_WARP + i] == want[i], "thread %u, value %u: %x, not %x", t, i,
                      got[t * N_WARP + i], want[i]);
    }
}

/* ---- 16-bit floats ---- */

/* The half nearest to v, found by trying all; ties to the even one. */
uint32_t nearest_f16(double v) {
    uint32_t best = 0;
    double gap = INFINITY;
    for (uint32_t h = 0; h < 0x7c00; h++) {
        double x = h < 1024 ? h * 0x1p-24 : (1024 + h % 1024) * ldexp(1, (int)(h / 1024) - 25);
        double d = fabs(x - fabs(v));
        if (d < gap || (d == gap && h % 2 == 0)) best = h, gap = d;
    }
    if (fabs(v) >= 65520) best = 0x7c00;
    return best | (std::signbit(v) ? 0x8000 : 0);
}

void test_halves() {
    for (uint32_t h = 0; h < 65536; h++) {
        float x = unpack_f16(h).x, y = unpack_f16(h << 16).y;
        bool nan = (h & 0x7c00) == 0x7c00 && (h & 1023);
        if (nan) {
            CHECK(x != x && y != y && (pack_f16(x, 0) & 0x7fff) == 0x7fff);
            continue;
        }
        CHECK(memcmp(&x, &y, 4) == 0 && pack_f16(x, 0) == h && pack_f16(0, x) == h << 16);
        float b = unpack_bf16(h).x;
        if (b == b) CHECK(pack_bf16(b, b) == (h | h << 16));
    }
    CHECK(unpack_f16(0x3c01).x == 1 + 0x1p-10f && unpack_f16(1).x == 0x1p-24f);
    CHECK(unpack_f16(0xfc00).x == -INFINITY && unpack_bf16(0xc049).x == -3.140625f);
    for (int i = 0; i < 300; i++) {
        float v = ldexpf(real(), (int)(random32() % 44) - 26);
        CHECK_MSG(pack_f16(v, 0) == nearest_f16(v), "%a", v);
        uint32_t a = random32() & 0xbfff, b = random32() & 0xbfff, c = random32() & 0xbfff;
        float x = unpack_f16(a).x, y = unpack_f16(b).x, z = unpack_f16(c).x;
        /* Exact in a long double: 64 bits. */
        long double exact = (long double)x * y + z;
        if (fabsl(exact) > 1e-3 && fabsl(exact) < 60000)
            CHECK(fma_f16x2(a, b, c) >> 16 == 0 || fma_f16x2(a, b, c) < 65536);
        CHECK_MSG((fma_f16x2(a, b, c) & 0xffff) == nearest_f16((double)exact), "%a * %a + %a", x, y,
                  z);
        CHECK((mul_f16x2(a << 16, b << 16) >> 16) == nearest_f16((double)x * y));
        CHECK((sub_f16x2(a, b) & 0xffff) == nearest_f16((double)x - y));
    }
    /* 1 + 2^-11 is a tie; 2^-30 beyond it decides, which only a single rounding preserves. */
    uint32_t tie = fma_f16x2(pack_f16(0x1p-6f, 0), pack_f16(0x1p-5f, 0), pack_f16(1, 0));
    CHECK((tie & 0xffff) == 0x3c00);
    CHECK(pack_bf16(1 + 0x1p-8f, 1 + 0x1p-8f + 0x1p-20f) == (0x3f80u | 0x3f81u << 16));
    CHECK(pack_bf16(1 + 3 * 0x1p-8f, -INFINITY) == (0x3f82u | 0xff80u << 16));
    CHECK((and_or<0x00f000f0u, 0x64006400u>(0x12345678u) == 0x64306470u));
    CHECK(pick_bytes(0x33221100u, 0x77665544u, 0x7052) == 0x77005522u);
    CHECK(pick_bytes(0x00008000u, 0, 0x9910) == 0xffff8000u);
}

/* ---- matrices: the tables of the PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point
 * type" and "ldmatrix" ---- */

struct mma_args {
    const uint16_t *a, *b; /* (16, 16), (16, 8) row-major */
    float *d;              /* (16, 8) */
    uint32_t bf16;
};

CUDA_KERNEL(32) mma(CUDA_ARGS(struct mma_args) x) {
    pdl_wait();
    uint32_t group = threadIdx.x >> 2, in_group = threadIdx.x % 4, a[4] = {0}, b[2] = {0};
    float d[4];
    /* a's i-th of 8, b's i-th of 4, d's i-th of 4 elements, as the ISA numbers them */
    for (uint32_t i = 0; i < 8; i++) {
        uint32_t row = i < 2 || (i >= 4 && i < 6) ? group : group + 8;
        uint32_t col = in_group * 2 + (i & 1) + (i >= 4 ? 8 : 0);
        a[i / 2] |= (uint32_t)x.a[row * 16 + col] << 16 * (i & 1);
    }
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t row = in_group * 2 + (i & 1) + (i >= 2 ? 8 : 0);
        b[i / 2] |= (uint32_t)x.b[row * 8 + group] << 16 * (i & 1);
        d[i] = x.d[(i < 2 ? group : group + 8) * 8 + in_group * 2 + (i & 1)];
    }
    if (x.bf16)
        mma_bf16(d, a, b);
    else
        mma_f16(d, a, b);
    for (uint32_t i = 0; i < 4; i++)
        x.d[(i < 2 ? group : group + 8) * 8 + in_group * 2 + (i & 1)] = d[i];
}

void test_mma() {
    for (uint32_t bf16 = 0; bf16 < 2; bf16++) {
        std::vector<uint16_t> a(256), b(128);
        std::vector<float> d(128);
        for (auto &v : a)
            v = (uint16_t)(bf16 ? pack_bf16(real(), 0) : pack_f16(real(), 0));
        for (auto &v : b)
            v = (uint16_t)(bf16 ? pack_bf16(real(), 0) : pack_f16(real(), 0));
        for (auto &v : d)
            v = real();
        device<uint16_t> da(a), db(b);
        device<float> dd(d);
        CHECK(!launch(mma, {da.p, db.p, dd.p, bf16}, 1, 32));
        std::vector<float> got = dd.get();
        for (uint32_t r = 0; r < 16; r++)
            for (uint32_t c = 0; c < 8; c++) {
                double sum = d[r * 8 + c];
                for (uint32_t k = 0; k < 16; k++) {
                    uint32_t x = a[r * 16 + k], y = b[k * 8 + c];
                    sum += bf16 ? (double)unpack_bf16(x).x * unpack_bf16(y).x
                                : (double)unpack_f16(x).x * unpack_f16(y).x;
                }
                CHECK_MSG(fabs(got[r * 8 + c] - sum) <= 1e-7 * (1 + fabs(sum)), "%u %u", r, c);
            }
    }
}

CUDA_KERNEL(32) matrices(CUDA_ARGS(struct out_args) a) {
    CUDA_SHARED(uint16_t, m); /* (32 rows, 24): 8 used of each */
    pdl_wait();
    for (uint32_t i = 0; i < 8; i++)
        m[threadIdx.x * 24 + i] = (uint16_t)(threadIdx.x << 8 | i);
    __syncwarp();
    uint32_t d[4], t[4];
    ldmatrix4(d, m + threadIdx.x * 24);
    ldmatrix4_trans(t, m + threadIdx.x * 24);
    for (uint32_t i = 0; i < 4; i++) {
        a.out[threadIdx.x * 8 + i] = d[i];
        a.out[threadIdx.x * 8 + 4 + i] = t[i];
    }
}

void test_matrices() {
    device<uint32_t> out(256);
    CHECK(!launch(matrices, {out.p}, 1, 32, 32 * 48));
    std::vector<uint32_t> got = out.get();
    for (uint32_t l = 0; l < 32; l++)
        for (uint32_t i = 0; i < 4; i++) { /* rows 8i + 0..7 are matrix i */
            uint32_t row = 8 * i + l / 4, col = l % 4 * 2, first = 8 * i + l % 4 * 2;
            CHECK(got[l * 8 + i] == ((row << 8 | col) | (row << 8 | (col + 1)) << 16));
            CHECK(got[l * 8 + 4 + i] == ((first << 8 | l / 4) | ((first + 1) << 8 | l / 4) << 16));
        }
}

/* ---- shared memory, barriers, asynchronous copies, atomics ---- */

struct copy_args {
    const uint4 *in;
    uint4 *out; /* (3, blockDim.x) */
    uint32_t *counters;
    float *sum;
};

CUDA_KERNEL(128) copies(CUDA_ARGS(struct copy_args) a) {
    CUDA_SHARED(uint4, s); /* (2, blockDim.x) */
    __shared__ uint32_t order[128];
    uint32_t n = blockDim.x, t = threadIdx.x;
    async_copy16(&s[t], &a.in[t]);
    async_commit();
    pdl_wait();
    async_copy16(&s[n + t], &a.in[n + t]);
    async_commit();
    a.out[t] = s[t]; /* too early */
    if (order[t] != UINT32_MAX) atomicExch(&a.counters[3], 1000u);
    async_wait<1>();
    __syncthreads();
    a.out[n + t] = s[n - 1 - t];
    a.out[2 * n + t] = s[n + t]; /* too early again */
    async_wait<0>();
    order[t] = s[n + t].x;
    __syncthreads();
    a.out[3 * n + t] = load_stream16(&a.in[t]);
    a.out[3 * n + t].x = order[n - 1 - t];
    uint2 two = load_stream8((const uint2 *)a.in + t);
    atomicAdd(&a.counters[0], two.x);
    atomicMax(&a.counters[1], s[t].y);
    atomicMin(&a.counters[2], s[t].y);
    uint32_t old = atomicAdd(&a.counters[3], 1u);
    if (old == n - 1) a.counters[4] = atomicExch(&a.counters[5], 77);
    atomicCAS(&a.counters[6], t, t + 1);
    atomicAdd(a.sum, 0.5f);
}

void test_copies() {
    enum { N = 128 };
    std::vector<uint4> in(2 * N);
    for (auto &v : in)
        v = {random32(), random32(), random32(), random32()};
    device<uint4> din(in), out(4 * N);
    device<uint32_t> counters(std::vector<uint32_t>{0, 0, UINT32_MAX, 0, 0, 5, 0});
    device<float> sum(std::vector<float>{0});
    CHECK(!launch(copies, {din.p, out.p, counters.p, sum.p}, 1, N, 2 * N * 16));
    struct cudaFuncAttributes attr;
    CHECK(!cudaFuncGetAttributes(&attr, (const void *)copies) && attr.sharedSizeBytes == 512);
    CHECK(attr.maxDynamicSharedSizeBytes == (48 << 10) - 512);
    std::vector<uint4> got = out.get();
    std::vector<uint32_t> c = counters.get();
    const uint32_t *words = (const uint32_t *)in.data();
    uint32_t total = 0, most = 0, least = UINT32_MAX;
    for (uint32_t i = 0; i < N; i++) {
        CHECK(got[i].x == UINT32_MAX && got[i].w == UINT32_MAX);
        CHECK(memcmp(&got[N + i], &in[N - 1 - i], 16) == 0);
        CHECK(got[2 * N + i].x == UINT32_MAX);
        CHECK(got[3 * N + i].x == in[2 * N - 1 - i].x && got[3 * N + i].w == in[i].w);
        total += words[2 * i];
        most = in[i].y > most ? in[i].y : most;
        least = in[i].y < least ? in[i].y : least;
    }
    CHECK(c[0] == total && c[1] == most && c[2] == least && c[3] == N && c[4] == 5 && c[5] == 77);
    if (!getenv("CUDASIM_SHUFFLE")) CHECK(c[6] == N);
    CHECK(sum.get()[0] == N / 2);
}

/* ---- barriers in shared memory, and the copies that arrive at one ---- */

enum {
    RING_STAGES = 2,
    RING_CHUNKS = 7,
    RING_ROWS = 40 /* of the matrix, of 3 groups of 64 halves */
};
struct ring_args {
    struct cuda_tensor_map map;
    const uint32_t *in; /* (RING_CHUNKS, 256) */
    uint32_t *out;      /* (RING_CHUNKS, 256), then values that arrived too early */
    uint16_t *boxes;    /* (2, 2, 16, 64) */
};

/* Warp 1 copies chunks to a ring, one piece by lane 0's bulk copy and one by small copies of all
 * lanes; warp 0 reads them. */
CUDA_KERNEL(64) ring(CUDA_ARGS(struct ring_args) a) {
    CUDA_SHARED(uint32_t, s); /* (RING_STAGES, 256), then a box */
    __shared__ uint64_t full[RING_STAGES], empty[RING_STAGES], there;
    uint32_t lane = threadIdx.x % 32, *box = s + RING_STAGES * 256;
    if (threadIdx.x == 0) {
        for (int i = 0; i < RING_STAGES; i++) {
            mbar_init(&full[i], 32);
            mbar_init(&empty[i], 1);
        }
        mbar_init(&there, 1);
        mbar_fence();
    }
    __syncthreads();
    pdl_wait();
    for (uint32_t c = 0; c < RING_CHUNKS; c++) {
        uint32_t *stage = s + c % RING_STAGES * 256, parity = c / RING_STAGES % 2;
        if (threadIdx.x / 32) {
            if (c >= RING_STAGES) mbar_wait(&empty[c % RING_STAGES], parity ^ 1);
            if (lane == 0) bulk_expect(&full[c % RING_STAGES], 512);
            __syncwarp();
            bulk_copy(stage, a.in + c * 256, 512, &full[c % RING_STAGES]);
            async_copy16_if(stage + 128 + 4 * lane, a.in + c * 256 + 128 + 4 * lane, lane < 31);
            __syncwarp(); /* lane 0 has started its copy */
            if (lane == 3) a.out[RING_CHUNKS * 256 + c] = stage[3];
            async_arrive(&full[c % RING_STAGES]);
        } else {
            mbar_wait(&full[c % RING_STAGES], parity);
            for (uint32_t i = lane; i < 256; i += 32)
                a.out[c * 256 + i] = stage[i];
            __syncwarp();
            if (lane == 0) mbar_arrive(&empty[c % RING_STAGES]);
        }
    }
    for (uint32_t c = 0; c < 2; c++) {
        if (threadIdx.x == 0) bulk_expect(&there, 4096);
        __syncthreads();
        if (threadIdx.x < 32) tensor_copy(box, a.map, 7 + 16 * c, 2 * c, &there);
        if (threadIdx.x == 0) mbar_arrive(&there);
        mbar_wait(&there, c);
        for (uint32_t i = threadIdx.x; i < 2048; i += 64) {
            uint32_t z = i / 1024, r = i / 64 % 16, col = i % 64;
            uint32_t at = z * 2048 + r * 128 + (col / 8 ^ r % 8) * 16 + col % 8 * 2;
            a.boxes[c * 2048 + i] =
                *reinterpret_cast<const uint16_t *>(reinterpret_cast<const char *>(box) + at);
        }
        __syncthreads();
    }
}

void test_ring() {
    std::vector<uint32_t> in(RING_CHUNKS * 256);
    std::vector<uint16_t> matrix(RING_ROWS * 192);
    for (auto &v : in)
        v = random32() >> 1;
    for (auto &v : matrix)
        v = (uint16_t)random32();
    device<uint32_t> din(in), out(RING_CHUNKS * 257);
    device<uint16_t> dm(matrix), boxes(2 * 2048);
    struct ring_args a = {
        {{(uint64_t)(uintptr_t)dm.p, 384, RING_ROWS, 3, 16, 2}}, din.p, out.p, boxes.p};
    CHECK(!launch(ring, a, 1, 64, RING_STAGES * 1024 + 4096));
    std::vector<uint32_t> got = out.get();
    for (uint32_t i = 0; i < RING_CHUNKS * 256; i++)
        CHECK(got[i] == (i % 256 < 252 ? in[i] : 0));
    for (uint32_t c = 0; c < RING_CHUNKS; c++)
        CHECK(got[RING_CHUNKS * 256 + c] == UINT32_MAX);
    std::vector<uint16_t> box = boxes.get();
    for (uint32_t i = 0; i < 2 * 2048; i++) {
        uint32_t c = i / 2048, group = 2 * c + i / 1024 % 2, row = 7 + 16 * c + i / 64 % 16;
        uint16_t want = group < 3 ? matrix[row * 192 + group * 64 + i % 64] : 0;
        CHECK(box[i] == want);
    }
}

struct sum_args {
    const float *x;
    float *y;
    uint32_t n;
};

/* y[block] = the sum of n values of x; threads without values are between those that have some. */
template <int threads> CUDA_KERNEL(threads) sums(CUDA_ARGS(struct sum_args) a) {
    CUDA_SHARED(float, part);
    pdl_wait();
    float v = 0;
    for (uint32_t i = threadIdx.x; i < a.n; i += threads)
        v += a.x[(uint64_t)blockIdx.x * a.n + i];
    v = warp_sum(v);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
    __syncthreads();
    if (threadIdx.x < 32) {
        v = warp_sum(threadIdx.x < threads / 32 ? part[threadIdx.x] : 0);
        if (threadIdx.x == 0) a.y[blockIdx.x] = v;
    }
}

void test_sums() {
    enum { ROWS = 37, N = 1000 };
    std::vector<float> x(ROWS * N);
    for (auto &v : x)
        v = (float)(random32() % 1000);
    device<float> dx(x), dy(ROWS);
    CHECK(!launch(sums<256>, {dx.p, dy.p, N}, ROWS, 256, 32));
    std::vector<float> y = dy.get();
    for (uint32_t r = 0; r < ROWS; r++) {
        double want = 0;
        for (uint32_t i = 0; i < N; i++)
            want += x[r * N + i];
        CHECK(y[r] == want);
    }
}
} // namespace

#include "tests/cuda/test_standin_runtime.h"

int main() {
    CHECK(!cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    RUN(test_places);
    RUN(test_warps);
    RUN(test_halves);
    RUN(test_mma);
    RUN(test_matrices);
    RUN(test_copies);
    RUN(test_ring);
    RUN(test_sums);
    RUN(test_graph);
    RUN(test_late);
    RUN(test_events);
    RUN(test_early_start);
    RUN(test_memory);
    RUN(test_launch_limits);
    RUN(test_failures);
    RUN(test_faults);
    RUN(test_checks);
    CHECK(!cudaStreamDestroy(stream));
    struct cudasim_counts c;
    cudasim_counts_get(&c);
    CHECK(!c.device_bytes && !c.host_bytes && !c.streams && !c.events && !c.graphs);
    return check_done() || check_failures;
}
