/* A small program that uses two GPUs the way a training does: weights, a stream-ordered pool for
 * activations, pinned buffers for the input, a graph-free launch loop, one request that is too
 * large, and a second process that evaluates on the other GPU. It knows nothing of RADRM.
 *
 * It finds the driver as most frameworks do, by dlopen, so that neither headers nor an import
 * library of CUDA are needed to compile it. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

typedef int CUresult, CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct ctx *CUcontext;
typedef struct mod *CUmodule;
typedef struct func *CUfunction;
typedef struct stream *CUstream;

static CUresult (*Init)(unsigned);
static CUresult (*DeviceGet)(CUdevice *, int);
static CUresult (*DeviceGetCount)(int *);
static CUresult (*PrimaryCtxRetain)(CUcontext *, CUdevice);
static CUresult (*PrimaryCtxRelease)(CUdevice);
static CUresult (*CtxSetCurrent)(CUcontext);
static CUresult (*CtxSynchronize)(void);
static CUresult (*MemAlloc)(CUdeviceptr *, size_t);
static CUresult (*MemFree)(CUdeviceptr);
static CUresult (*MemAllocAsync)(CUdeviceptr *, size_t, CUstream);
static CUresult (*MemFreeAsync)(CUdeviceptr, CUstream);
static CUresult (*MemHostAlloc)(void **, size_t, unsigned);
static CUresult (*MemFreeHost)(void *);
static CUresult (*MemcpyHtoDAsync)(CUdeviceptr, const void *, size_t, CUstream);
static CUresult (*StreamCreate)(CUstream *, unsigned);
static CUresult (*StreamSynchronize)(CUstream);
static CUresult (*ModuleLoadData)(CUmodule *, const void *);
static CUresult (*ModuleGetFunction)(CUfunction *, CUmodule, const char *);
static CUresult (*LaunchKernel)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                                CUstream, void **, void **);
static CUresult (*GetErrorName)(CUresult, const char **);

static const char PTX[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .entry forward_matmul(.param .u64 x, .param .u64 w)\n{\n\t.shared .align 4 .b8 tile[16384];\n\tret;\n}\n"
    ".visible .entry backward_matmul(.param .u64 x, .param .u64 w)\n{\n\tret;\n}\n"
    ".visible .entry adam_step(.param .u64 w, .param .u64 g)\n{\n\tret;\n}\n";

static void bind(void *library, void *slot, const char *name) {
    void *address = dlsym(library, name);
    if (!address) {
        fprintf(stderr, "train: the driver has no %s\n", name);
        exit(1);
    }
    *(void **)slot = address;
}

static void load_driver(void) {
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW);
    if (!cuda) {
        fprintf(stderr, "train: %s\n", dlerror());
        exit(1);
    }
    bind(cuda, &Init, "cuInit");
    bind(cuda, &DeviceGet, "cuDeviceGet");
    bind(cuda, &DeviceGetCount, "cuDeviceGetCount");
    bind(cuda, &PrimaryCtxRetain, "cuDevicePrimaryCtxRetain");
    bind(cuda, &PrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2");
    bind(cuda, &CtxSetCurrent, "cuCtxSetCurrent");
    bind(cuda, &CtxSynchronize, "cuCtxSynchronize");
    bind(cuda, &MemAlloc, "cuMemAlloc_v2");
    bind(cuda, &MemFree, "cuMemFree_v2");
    bind(cuda, &MemAllocAsync, "cuMemAllocAsync");
    bind(cuda, &MemFreeAsync, "cuMemFreeAsync");
    bind(cuda, &MemHostAlloc, "cuMemHostAlloc");
    bind(cuda, &MemFreeHost, "cuMemFreeHost");
    bind(cuda, &MemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2");
    bind(cuda, &StreamCreate, "cuStreamCreate");
    bind(cuda, &StreamSynchronize, "cuStreamSynchronize");
    bind(cuda, &ModuleLoadData, "cuModuleLoadData");
    bind(cuda, &ModuleGetFunction, "cuModuleGetFunction");
    bind(cuda, &LaunchKernel, "cuLaunchKernel");
    bind(cuda, &GetErrorName, "cuGetErrorName");
}

static void must(CUresult result, const char *what) {
    if (result == 0) return;
    const char *name = "?";
    GetErrorName(result, &name);
    fprintf(stderr, "train: %s: %s\n", what, name);
    exit(1);
}

static void use_device(int ordinal) {
    CUdevice device;
    CUcontext context;
    must(DeviceGet(&device, ordinal), "cuDeviceGet");
    must(PrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
    must(CtxSetCurrent(context), "cuCtxSetCurrent");
}

#define MIB ((size_t)1 << 20)
#define LAYERS 12
#define STEPS 40

static void train(void) {
    use_device(0);
    CUstream stream;
    CUmodule module;
    CUfunction forward, backward, adam;
    must(StreamCreate(&stream, 1), "cuStreamCreate");
    must(ModuleLoadData(&module, PTX), "cuModuleLoadData");
    must(ModuleGetFunction(&forward, module, "forward_matmul"), "cuModuleGetFunction");
    must(ModuleGetFunction(&backward, module, "backward_matmul"), "cuModuleGetFunction");
    must(ModuleGetFunction(&adam, module, "adam_step"), "cuModuleGetFunction");

    CUdeviceptr weights[LAYERS], gradients[LAYERS], moments[LAYERS], batch;
    void *input;
    for (int layer = 0; layer < LAYERS; layer++) {
        must(MemAlloc(&weights[layer], 96 * MIB), "weights");
        must(MemAlloc(&gradients[layer], 96 * MIB), "gradients");
        must(MemAlloc(&moments[layer], 192 * MIB), "moments");
    }
    must(MemAlloc(&batch, 64 * MIB), "batch");
    must(MemHostAlloc(&input, 64 * MIB, 0), "input");

    /* What does not fit: a framework would now try a smaller batch. */
    CUdeviceptr large;
    if (MemAlloc(&large, 200 * 1024 * MIB) != 0) puts("train: a batch of 200 GiB does not fit, taking a smaller one");

    for (int step = 0; step < STEPS; step++) {
        CUdeviceptr activations[LAYERS];
        void *arguments[] = {&batch, &weights[0]};
        must(MemcpyHtoDAsync(batch, input, 64 * MIB, stream), "copy");
        for (int layer = 0; layer < LAYERS; layer++) {
            must(MemAllocAsync(&activations[layer], (128 + 16 * (size_t)layer) * MIB, stream), "activations");
            must(LaunchKernel(forward, 1024, 1, 1, 256, 1, 1, 0, stream, arguments, NULL), "forward");
        }
        for (int layer = LAYERS - 1; layer >= 0; layer--) {
            must(LaunchKernel(backward, 1024, 2, 1, 256, 1, 1, 32768, stream, arguments, NULL), "backward");
            must(MemFreeAsync(activations[layer], stream), "activations");
        }
        must(LaunchKernel(adam, 4096, 1, 1, 512, 1, 1, 0, stream, arguments, NULL), "adam");
        must(StreamSynchronize(stream), "cuStreamSynchronize");
        usleep(20000);
        if (step % 10 == 9) printf("train: step %d of %d\n", step + 1, STEPS);
    }
    must(CtxSynchronize(), "cuCtxSynchronize");
    must(MemFree(batch), "free");
    must(MemFreeHost(input), "free");
}

static void evaluate(int devices) {
    use_device(devices > 1 ? 1 : 0);
    CUdeviceptr weights, blocks[8];
    must(MemAlloc(&weights, 1152 * MIB), "weights");
    for (int round = 0; round < 4; round++) {
        for (int block = 0; block < 8; block++) must(MemAlloc(&blocks[block], 256 * MIB), "block");
        usleep(120000);
        for (int block = 0; block < 8; block++) must(MemFree(blocks[block]), "block");
        usleep(60000);
    }
    puts("evaluate: done");
}

int main(void) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    load_driver();
    pid_t child = fork();
    if (child == 0) {
        int devices = 0;
        must(Init(0), "cuInit");
        must(DeviceGetCount(&devices), "cuDeviceGetCount");
        evaluate(devices);
        return 0;
    }
    must(Init(0), "cuInit");
    train();
    int status = 0;
    waitpid(child, &status, 0);
    return status == 0 ? 0 : 1;
}
