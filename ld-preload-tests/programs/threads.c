/* Threads that all allocate, launch and free at once; at the end each leaves one block of 1 MiB. */
#include "driver.h"
#include <pthread.h>
enum { THREADS = 8, ROUNDS = 200 };
static CUcontext context;
static __typeof__(&cuMemAlloc_v2) mem_alloc;
static __typeof__(&cuMemFree_v2) mem_free;
static __typeof__(&cuLaunchKernel) launch;
static __typeof__(&cuCtxSetCurrent) set_current;
static CUfunction function;
static void *work(void *arg) {
    CUdeviceptr block;
    void *p = NULL, *args[1] = {&p};
    OK(set_current(context));
    for (int i = 0; i < ROUNDS; i++) {
        char *mine = malloc(64 + i);
        OK(mem_alloc(&block, 1 << 20));
        OK(launch(function, 2, 1, 1, 32, 1, 1, 0, NULL, args, NULL));
        OK(mem_free(block));
        free(mine);
    }
    OK(mem_alloc(&block, 1 << 20));
    return NULL;
}
int main(void) {
    pthread_t id[THREADS];
    context = use_device(0);
    function = load_kernel("nothing");
    mem_alloc = CU(cuMemAlloc_v2);
    mem_free = CU(cuMemFree_v2);
    launch = CU(cuLaunchKernel);
    set_current = CU(cuCtxSetCurrent);
    for (int i = 0; i < THREADS; i++) MUST(!pthread_create(&id[i], NULL, work, NULL));
    for (int i = 0; i < THREADS; i++) pthread_join(id[i], NULL);
    pause_here();
    return 0;
}
