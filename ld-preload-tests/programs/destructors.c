/* Thread-local destructors that call the driver: by pthread key and by C11 tss, in 20 threads. */
#include "driver.h"
#include <pthread.h>
#include <threads.h>
static pthread_key_t key;
static tss_t tss;
static CUcontext context;
static void release(void *block) { OK(CU(cuMemFree_v2)((CUdeviceptr)(uintptr_t)block)); }
static void again(void *arg) {
    CUdeviceptr block;
    OK(CU(cuMemAlloc_v2)(&block, 1 << 20));
    OK(CU(cuMemFree_v2)(block));
}
static void *work(void *arg) {
    CUdeviceptr block;
    OK(CU(cuCtxSetCurrent)(context));
    OK(CU(cuMemAlloc_v2)(&block, 2 << 20));
    pthread_setspecific(key, (void *)(uintptr_t)block);
    tss_set(tss, &key);
    return NULL;
}
int main(void) {
    context = use_device(0);
    pthread_key_create(&key, release);
    tss_create(&tss, again);
    for (int i = 0; i < 20; i++) {
        pthread_t id;
        pthread_create(&id, NULL, work, NULL);
        pthread_join(id, NULL);
    }
    pause_here();
    return 0;
}
