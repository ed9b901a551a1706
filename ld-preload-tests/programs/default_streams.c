/* Default streams by all their names, each with a kernel of its own: first those of two threads, then the legacy
 * streams of two contexts, both times from two threads side by side. Every launch is waited for. */
#include "driver.h"
#include <pthread.h>
enum { ROUNDS = 25 };
static const char ptx[] = ".version 6.0\n.target sm_50\n.address_size 64\n"
                          ".visible .entry thread0()\n{\n\tret;\n}\n.visible .entry thread1()\n{\n\tret;\n}\n"
                          ".visible .entry legacy0()\n{\n\tret;\n}\n.visible .entry legacy1()\n{\n\tret;\n}\n";
static __typeof__(&cuLaunchKernel) launch, launch_by_thread;
static __typeof__(&cuStreamSynchronize) wait_for;
static __typeof__(&cuCtxSetCurrent) set_current;

/* A kernel, its context, and the stream's handle in all entry points; its name in one of them is NULL. */
struct work {
    CUfunction kernel;
    CUcontext context;
    uintptr_t stream;
    __typeof__(&cuLaunchKernel) *by_null;
};

static void *work(void *arg) {
    struct work *work = arg;
    OK(set_current(work->context));
    for (int i = 0; i < ROUNDS; i++) {
        __typeof__(&cuLaunchKernel) by = i & 1 ? *work->by_null : i & 2 ? launch : launch_by_thread;
        OK(by(work->kernel, 4, 1, 1, 32, 1, 1, 0, i & 1 ? NULL : (CUstream)work->stream, NULL, NULL));
        OK(wait_for((CUstream)work->stream));
    }
    return NULL;
}

int main(void) {
    pthread_t id[2];
    CUdevice device;
    CUmodule modules[2];
    CUcontext first = use_device(0), second;
    OK(CU(cuDeviceGet)(&device, 0));
    OK(CU(cuModuleLoadData)(&modules[0], ptx));
    OK(CU(cuCtxCreate_v2)(&second, 0, device));
    OK(CU(cuModuleLoadData)(&modules[1], ptx));
    struct work all[] = {
        {.context = first, .stream = 2, .by_null = &launch_by_thread},
        {.context = first, .stream = 2, .by_null = &launch_by_thread},
        {.context = first, .stream = 1, .by_null = &launch},
        {.context = second, .stream = 1, .by_null = &launch},
    };
    OK(CU(cuModuleGetFunction)(&all[0].kernel, modules[0], "thread0"));
    OK(CU(cuModuleGetFunction)(&all[1].kernel, modules[0], "thread1"));
    OK(CU(cuModuleGetFunction)(&all[2].kernel, modules[0], "legacy0"));
    OK(CU(cuModuleGetFunction)(&all[3].kernel, modules[1], "legacy1"));
    launch = CU(cuLaunchKernel);
    launch_by_thread = CU(cuLaunchKernel_ptsz);
    wait_for = CU(cuStreamSynchronize);
    set_current = CU(cuCtxSetCurrent);
    for (int pair = 0; pair < 4; pair += 2) {
        for (int i = 0; i < 2; i++) MUST(!pthread_create(&id[i], NULL, work, &all[pair + i]));
        for (int i = 0; i < 2; i++) pthread_join(id[i], NULL);
    }
    return 0;
}
