/* Threads that take and give back memory of all families at random, each its own and each other's:
 * a block may be freed by another thread than the one that took it. usage: mixed_threads SEED */
#include "driver.h"
#include <pthread.h>
#include <stdatomic.h>
enum { THREADS = 6, ROUNDS = 3000, SHARED = 64 };
static CUcontext context;
static _Atomic unsigned long long plain[SHARED], ordered[SHARED], handles[SHARED], arrays[SHARED];
static unsigned seed;
static CUresult (*mem_alloc)(CUdeviceptr *, size_t), (*mem_free)(CUdeviceptr), (*mem_release)(CUmemGenericAllocationHandle);
static __typeof__(&cuMemAllocAsync) alloc_async;
static __typeof__(&cuMemFreeAsync) free_async;
static __typeof__(&cuMemCreate) mem_create;
static __typeof__(&cuArrayCreate_v2) array_create;
static __typeof__(&cuArrayDestroy) array_destroy;
static __typeof__(&cuCtxSetCurrent) set_current;
static __typeof__(&cuCtxSynchronize) synchronize;

static void *work(void *arg) {
    unsigned random = seed * 7919 + (unsigned)(uintptr_t)arg * 104729 + 1;
    CUmemAllocationProp prop = {.type = 1, .location = {1, 0}};
    OK(set_current(context));
    for (int i = 0; i < ROUNDS; i++) {
        random = random * 1103515245 + 12345;
        int at = (random >> 8) % SHARED;
        size_t bytes = ((random >> 14) % 3000 + 1) << 8;
        unsigned long long old;
        switch ((random >> 28) % 5) {
        case 0: {
            CUdeviceptr block;
            OK(mem_alloc(&block, bytes));
            if ((old = atomic_exchange(&plain[at], block))) OK(mem_free(old));
            break;
        }
        case 1: {
            CUdeviceptr block;
            OK(alloc_async(&block, bytes, NULL));
            if ((old = atomic_exchange(&ordered[at], block))) OK(free_async(old, NULL));
            break;
        }
        case 2: {
            CUmemGenericAllocationHandle handle;
            OK(mem_create(&handle, ((random >> 14) % 4 + 1) << 21, &prop, 0));
            if ((old = atomic_exchange(&handles[at], handle))) OK(mem_release(old));
            break;
        }
        case 3: {
            CUarray array;
            CUDA_ARRAY_DESCRIPTOR d = {(random >> 14) % 200 + 1, 16, CU_ARRAY_FLOAT, 1};
            OK(array_create(&array, &d));
            if ((old = atomic_exchange(&arrays[at], (uintptr_t)array))) OK(array_destroy((CUarray)(uintptr_t)old));
            break;
        }
        default:
            if (random >> 27 & 1) OK(synchronize());
        }
    }
    return NULL;
}
int main(int argc, char **argv) {
    pthread_t id[THREADS];
    seed = argc > 1 ? atoi(argv[1]) : 1;
    context = use_device(0);
    mem_alloc = CU(cuMemAlloc_v2);
    mem_free = CU(cuMemFree_v2);
    mem_release = CU(cuMemRelease);
    alloc_async = CU(cuMemAllocAsync);
    free_async = CU(cuMemFreeAsync);
    mem_create = CU(cuMemCreate);
    array_create = CU(cuArrayCreate_v2);
    array_destroy = CU(cuArrayDestroy);
    set_current = CU(cuCtxSetCurrent);
    synchronize = CU(cuCtxSynchronize);
    for (long i = 0; i < THREADS; i++) MUST(!pthread_create(&id[i], NULL, work, (void *)i));
    for (int i = 0; i < THREADS; i++) pthread_join(id[i], NULL);
    OK(synchronize());
    return 0;
}
