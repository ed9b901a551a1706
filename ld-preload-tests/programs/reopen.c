/* Opens the driver, uses it and closes it, again and again: no pointer may go stale. */
#include "driver.h"
int main(void) {
    CUcontext context;
    CUdeviceptr block, first = 0;
    for (int i = 0; i < 50; i++) {
        void *cuda = dlopen("libcuda.so.1", RTLD_NOW);
        MUST(cuda);
        __typeof__(&cuMemAlloc_v2) alloc = (__typeof__(&cuMemAlloc_v2))dlsym(cuda, "cuMemAlloc_v2");
        OK(((__typeof__(&cuInit))dlsym(cuda, "cuInit"))(0));
        OK(((__typeof__(&cuDevicePrimaryCtxRetain))dlsym(cuda, "cuDevicePrimaryCtxRetain"))(&context, 0));
        OK(((__typeof__(&cuCtxSetCurrent))dlsym(cuda, "cuCtxSetCurrent"))(context));
        OK(alloc(&block, 1 << 20));
        if (!first) first = block;
        MUST(!dlclose(cuda));
    }
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW);
    OK(((__typeof__(&cuMemFree_v2))dlsym(cuda, "cuMemFree_v2"))(block));
    pause_here();
    return 0;
}
