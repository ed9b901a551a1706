// A program against the CUDA runtime: every way to launch, several ways to allocate, streams, events, graphs,
// errors. Prints results that do not depend on the run, and how much it launched and allocated at its most.
#include <cstdio>
#include <cstdlib>
#include <cooperative_groups.h>
#include <cuda_runtime.h>
#include <thread>
#include <vector>

static unsigned long launched, held, most;

#define OK(call)                                                                                         \
    do {                                                                                                 \
        cudaError_t result_ = (call);                                                                    \
        if (result_ != cudaSuccess) {                                                                    \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(result_));  \
            exit(42);                                                                                    \
        }                                                                                                \
    } while (0)

__global__ void radrm_check_add(float *x, int n, float by) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] += by;
}

template <int FACTOR> __global__ void radrm_check_scale(float *x, int n) {
    extern __shared__ float tile[];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    tile[threadIdx.x] = i < n ? x[i] * FACTOR : 0;
    __syncthreads();
    if (i < n) x[i] = tile[threadIdx.x];
}

__global__ void radrm_check_together(float *x, int n) {
    auto grid = cooperative_groups::this_grid();
    for (int i = grid.thread_rank(); i < n; i += grid.size()) x[i] += 1;
    grid.sync();
    if (grid.thread_rank() == 0) x[0] = x[n - 1];
}

static float *take(size_t elements) {
    float *block;
    OK(cudaMalloc(&block, elements * sizeof(float)));
    held += elements * sizeof(float);
    if (held > most) most = held;
    return block;
}

static void give(float *block, size_t elements) {
    OK(cudaFree(block));
    held -= elements * sizeof(float);
}

static double sum(const float *device, int n) {
    std::vector<float> host(n);
    OK(cudaMemcpy(host.data(), device, n * sizeof(float), cudaMemcpyDeviceToHost));
    double total = 0;
    for (float v : host) total += v;
    return total;
}

int main() {
    const int n = 1 << 20;
    cudaDeviceProp properties;
    OK(cudaGetDeviceProperties(&properties, 0));
    printf("%s, %d multiprocessors\n", properties.name, properties.multiProcessorCount);
    float *x = take(n);
    OK(cudaMemset(x, 0, n * sizeof(float)));

    // The three ways to launch.
    radrm_check_add<<<n / 256, 256>>>(x, n, 1);
    launched++;
    float by = 2;
    int count = n;
    void *arguments[] = {&x, &count, &by};
    OK(cudaLaunchKernel((const void *)radrm_check_add, dim3(n / 128), dim3(128), arguments, 0, 0));
    launched++;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(n / 256);
    config.blockDim = dim3(256);
    config.dynamicSmemBytes = 256 * sizeof(float);
    OK(cudaLaunchKernelEx(&config, radrm_check_scale<3>, x, count));
    launched++;
    printf("sum %.0f\n", sum(x, n));
    int fits = 0;
    OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&fits, radrm_check_together, 256, 0));
    void *together[] = {&x, &count};
    OK(cudaLaunchCooperativeKernel((const void *)radrm_check_together, dim3(properties.multiProcessorCount),
                                   dim3(256), together, 0, 0));
    launched++;
    printf("together %.0f, %d fit\n", sum(x, n), fits);
    cudaFuncAttributes attributes;
    OK(cudaFuncGetAttributes(&attributes, radrm_check_add));
    printf("attributes %d threads, %zu shared\n", attributes.maxThreadsPerBlock, attributes.sharedSizeBytes);

    // Memory of other kinds.
    void *pitched;
    size_t pitch;
    OK(cudaMallocPitch(&pitched, &pitch, 1000, 10));
    OK(cudaMemset2D(pitched, pitch, 1, 1000, 10));
    OK(cudaFree(pitched));
    float *pooled;
    cudaStream_t stream;
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    OK(cudaMallocAsync(&pooled, n * sizeof(float), stream));
    OK(cudaMemsetAsync(pooled, 0, n * sizeof(float), stream));
    radrm_check_add<<<n / 256, 256, 0, stream>>>(pooled, n, 4);
    launched++;
    OK(cudaStreamSynchronize(stream));
    printf("pooled %.0f\n", sum(pooled, n));
    OK(cudaFreeAsync(pooled, stream));
    float *pinned;
    OK(cudaMallocHost(&pinned, n * sizeof(float)));
    for (int i = 0; i < n; i++) pinned[i] = 1;
    float *more = take(n);
    OK(cudaMemcpyAsync(more, pinned, n * sizeof(float), cudaMemcpyHostToDevice, stream));
    OK(cudaStreamSynchronize(stream));
    printf("copied %.0f\n", sum(more, n));
    OK(cudaFreeHost(pinned));

    // A graph by capture, launched several times.
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    OK(cudaMemsetAsync(more, 0, n * sizeof(float), stream));
    for (int i = 0; i < 5; i++) radrm_check_add<<<n / 256, 256, 0, stream>>>(more, n, 1);
    OK(cudaStreamEndCapture(stream, &graph));
    OK(cudaGraphInstantiate(&exec, graph, 0));
    size_t nodes = 0;
    OK(cudaGraphGetNodes(graph, nullptr, &nodes));
    for (int i = 0; i < 10; i++) OK(cudaGraphLaunch(exec, stream));
    OK(cudaStreamSynchronize(stream));
    printf("graph of %zu nodes: %.0f\n", nodes, sum(more, n));
    OK(cudaGraphExecDestroy(exec));
    OK(cudaGraphDestroy(graph));

    // Threads, each on its stream.
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; t++)
        threads.emplace_back([=] {
            cudaStream_t own;
            OK(cudaStreamCreate(&own));
            for (int i = 0; i < 25; i++) radrm_check_add<<<n / 1024, 256, 0, own>>>(x + t * (n / 4), n / 4, 1);
            OK(cudaStreamSynchronize(own));
            OK(cudaStreamDestroy(own));
        });
    for (auto &thread : threads) thread.join();
    launched += 100;
    printf("threads %.0f\n", sum(x, n));
    cudaEvent_t from, to;
    OK(cudaEventCreate(&from));
    OK(cudaEventCreate(&to));
    OK(cudaEventRecord(from, stream));
    radrm_check_add<<<n / 256, 256, 0, stream>>>(x, n, 0);
    launched++;
    OK(cudaEventRecord(to, stream));
    OK(cudaEventSynchronize(to));
    float ms = -1;
    OK(cudaEventElapsedTime(&ms, from, to));
    printf("timed %s\n", ms > 0 ? "yes" : "no");

    // Requests that fail, and that leave everything else as it was.
    void *none = nullptr;
    cudaError_t refused = cudaMalloc(&none, (size_t)1 << 50);
    cudaError_t last = cudaGetLastError();
    printf("refused %s %s %s\n", cudaGetErrorName(refused), cudaGetErrorName(last), none ? "set" : "unset");
    radrm_check_add<<<1, 2048>>>(x, n, 1);
    printf("wrong %s\n", cudaGetErrorName(cudaGetLastError()));
    printf("after %.0f\n", sum(x, n));
    give(more, n);
    give(x, n);
    OK(cudaStreamDestroy(stream));
    printf("launched %lu allocated %lu\n", launched, most);
    return 0;
}
