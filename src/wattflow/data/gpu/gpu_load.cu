// A load for one GPU, to be measured beside a meter. Built by wattflow.energy.gpu_load:
//
//   nvcc -O3 -arch=native [-DWITH_CUBLAS -lcublas] gpu_load.cu -o gpu_load
//   gpu_load KERNEL SECONDS ROUNDS DUTY SHARE
//
// KERNEL   fma (fp32 arithmetic), gemm (bf16 tensor cores, random data; needs cuBLAS), mem (copies between buffers)
// SECONDS  stop after this long (0: no limit)      ROUNDS  stop after this many rounds of fixed work (0: no limit)
// DUTY     busy share of the time, 0 < DUTY <= 1   SHARE   use this share of the multiprocessors (1: all)
//
// Prints READY after the warm-up and, at the end, one line of JSON: rounds done, seconds, busy seconds.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <thread>
#ifdef WITH_CUBLAS
#include <cublas_v2.h>
#endif

#define CHECK(call)                                                                                      \
    do {                                                                                                 \
        cudaError_t code = (call);                                                                       \
        if (code != cudaSuccess) {                                                                       \
            fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(code));                                \
            exit(1);                                                                                     \
        }                                                                                                \
    } while (0)

// Constant, since MPS shows a client only its share of the multiprocessors: a round must be the same work on any share.
static const int FMA_BLOCKS = 1056;
static const int FMA_STEPS = 4096;
static const int GEMM_SIZE = 4096;
static const size_t COPY_BYTES = size_t(1) << 29;

__global__ void fma_round(float *out, int steps, int repeat) {
    float a = 1.0f - threadIdx.x * 1e-6f, b = 1e-5f * (blockIdx.x + 1);
    float x0 = a, x1 = a + 1, x2 = a + 2, x3 = a + 3, x4 = a + 4, x5 = a + 5, x6 = a + 6, x7 = a + 7;
    for (int r = 0; r < repeat; ++r)
        for (int i = 0; i < steps; ++i) {
            x0 = fmaf(x0, a, b); x1 = fmaf(x1, a, b); x2 = fmaf(x2, a, b); x3 = fmaf(x3, a, b);
            x4 = fmaf(x4, a, b); x5 = fmaf(x5, a, b); x6 = fmaf(x6, a, b); x7 = fmaf(x7, a, b);
        }
    float sum = x0 + x1 + x2 + x3 + x4 + x5 + x6 + x7;
    if (sum == 12345.678f) out[0] = sum;
}

__global__ void copy_round(const float4 *from, float4 *to, size_t count) {
    for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < count; i += size_t(gridDim.x) * blockDim.x)
        to[i] = from[i];
}

__global__ void fill_random(__nv_bfloat16 *data, size_t count, uint32_t seed) {
    for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < count; i += size_t(gridDim.x) * blockDim.x) {
        uint32_t h = uint32_t(i) * 2654435761u ^ seed;
        h ^= h >> 16; h *= 2246822519u; h ^= h >> 13; h *= 3266489917u; h ^= h >> 16;
        data[i] = __float2bfloat16(float(h) * (2.0f / 4294967296.0f) - 1.0f);
    }
}

struct Load {
    const char *kernel;
    double share = 1;
    int sms = 0, multiprocessors = 1;
    float *out = nullptr;
    char *from = nullptr, *to = nullptr;
    __nv_bfloat16 *a = nullptr, *b = nullptr, *c = nullptr;
#ifdef WITH_CUBLAS
    cublasHandle_t blas = nullptr;
#endif

    void prepare() {
        cudaDeviceProp about;
        CHECK(cudaGetDeviceProperties(&about, 0));
        multiprocessors = about.multiProcessorCount;
        if (share < 1) sms = int(share * multiprocessors + 0.5) > 1 ? int(share * multiprocessors + 0.5) : 1;
        if (!strcmp(kernel, "fma")) {
            CHECK(cudaMalloc(&out, sizeof(float)));
            if (sms) CHECK(cudaFuncSetAttribute(fma_round, cudaFuncAttributeMaxDynamicSharedMemorySize, 128 * 1024));
        } else if (!strcmp(kernel, "mem")) {
            CHECK(cudaMalloc(&from, COPY_BYTES));
            CHECK(cudaMalloc(&to, COPY_BYTES));
            CHECK(cudaMemset(from, 37, COPY_BYTES));
        } else if (!strcmp(kernel, "gemm")) {
#ifdef WITH_CUBLAS
            size_t count = size_t(GEMM_SIZE) * GEMM_SIZE;
            CHECK(cudaMalloc(&a, count * 2));
            CHECK(cudaMalloc(&b, count * 2));
            CHECK(cudaMalloc(&c, count * 2));
            fill_random<<<1024, 256>>>(a, count, 1u);
            fill_random<<<1024, 256>>>(b, count, 2u);
            if (cublasCreate(&blas) != CUBLAS_STATUS_SUCCESS) {
                fprintf(stderr, "cublasCreate failed\n");
                exit(1);
            }
            if (sms) cublasSetSmCountTarget(blas, sms);
#else
            fprintf(stderr, "built without cuBLAS: no gemm\n");
            exit(3);
#endif
        } else {
            fprintf(stderr, "no kernel named %s\n", kernel);
            exit(2);
        }
        CHECK(cudaDeviceSynchronize());
    }

    // One round is the same work whatever the share of the device that does it.
    void round() {
        if (kernel[0] == 'f') {
            if (sms) {
                // 128 KiB of shared memory: one block to a multiprocessor, so the grid is the number of them in use.
                int repeat = (FMA_BLOCKS + sms - 1) / sms;
                fma_round<<<sms, 1024, 128 * 1024>>>(out, FMA_STEPS / 4, repeat);
            } else {
                fma_round<<<FMA_BLOCKS, 256>>>(out, FMA_STEPS, 1);
            }
            CHECK(cudaGetLastError());
        } else if (kernel[0] == 'm') {
            copy_round<<<sms ? sms : multiprocessors * 8, 1024>>>((const float4 *)from, (float4 *)to, COPY_BYTES / 16);
            CHECK(cudaGetLastError());
        } else {
#ifdef WITH_CUBLAS
            float one = 1.0f, zero = 0.0f;
            cublasStatus_t status = cublasGemmEx(blas, CUBLAS_OP_N, CUBLAS_OP_N, GEMM_SIZE, GEMM_SIZE, GEMM_SIZE, &one, a,
                                                 CUDA_R_16BF, GEMM_SIZE, b, CUDA_R_16BF, GEMM_SIZE, &zero, c, CUDA_R_16BF,
                                                 GEMM_SIZE, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
            if (status != CUBLAS_STATUS_SUCCESS) {
                fprintf(stderr, "cublasGemmEx: %d\n", int(status));
                exit(1);
            }
#endif
        }
    }
};

using Clock = std::chrono::steady_clock;
static double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

int main(int argc, char **argv) {
    if (argc != 6) {
        fprintf(stderr, "usage: gpu_load KERNEL SECONDS ROUNDS DUTY SHARE\n");
        return 2;
    }
    Load load;
    load.kernel = argv[1];
    double seconds = atof(argv[2]), duty = atof(argv[4]);
    long limit = atol(argv[3]);
    load.share = atof(argv[5]);
    load.prepare();
    load.round();
    CHECK(cudaDeviceSynchronize());
    Clock::time_point start = Clock::now();
    long tried = 0;
    for (; since(start) < 0.2; ++tried) {
        load.round();
        CHECK(cudaDeviceSynchronize());
    }
    double round_s = since(start) / tried;
    long batch = long(0.005 / round_s);
    if (batch < 1) batch = 1;
    printf("READY\n");
    fflush(stdout);

    start = Clock::now();
    double busy_s = 0;
    long rounds = 0;
    while ((seconds <= 0 || since(start) < seconds) && (limit <= 0 || rounds < limit)) {
        long now = limit > 0 && limit - rounds < batch ? limit - rounds : batch;
        Clock::time_point begin = Clock::now();
        for (long i = 0; i < now; ++i) load.round();
        CHECK(cudaDeviceSynchronize());
        double took_s = since(begin);
        busy_s += took_s;
        rounds += now;
        if (duty < 1) std::this_thread::sleep_for(std::chrono::duration<double>(took_s * (1 / duty - 1)));
    }
    printf("{\"rounds\": %ld, \"seconds\": %.6f, \"busy_s\": %.6f, \"round_s\": %.9f}\n", rounds, since(start), busy_s, round_s);
    return 0;
}
