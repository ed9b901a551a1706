/* Frees what was never allocated, frees twice, and gives sizes and handles that are no good. At the
 * end 1 MiB is held. */
#include "driver.h"
int main(void) {
    CUdeviceptr block, held;
    size_t pitch;
    CUmemoryPool pool;
    CUmemAllocationProp prop = {.type = 1, .location = {1, 0}};
    CUmemGenericAllocationHandle handle = 0;
    CUmemAllocationProp nowhere = {.type = 1, .location = {1, 99}};
    CUarray array;
    CUDA_ARRAY_DESCRIPTOR nothing = {0, 0, CU_ARRAY_FLOAT, 4};
    use_device(0);
    OK(CU(cuMemAlloc_v2)(&held, 1 << 20));
    for (int i = 0; i < 3; i++) {
        OK(CU(cuMemAlloc_v2)(&block, 1000));
        OK(CU(cuMemFree_v2)(block));
        MUST(CU(cuMemFree_v2)(block) != CUDA_SUCCESS);
        MUST(CU(cuMemFree_v2)(0x123456789000) != CUDA_SUCCESS);
        MUST(CU(cuMemFree_v2)(held + 512) != CUDA_SUCCESS);
        CU(cuMemFree_v2)(0);
        MUST(CU(cuMemFreeAsync)(0x123456789000, NULL) != CUDA_SUCCESS);
        MUST(CU(cuMemAlloc_v2)(&block, 0) != CUDA_SUCCESS);
        MUST(CU(cuMemAlloc_v2)(NULL, 100) != CUDA_SUCCESS);
        MUST(CU(cuMemAlloc_v2)(&block, (size_t)-1) != CUDA_SUCCESS);
        MUST(CU(cuMemAlloc_v2)(&block, (size_t)1 << 63) != CUDA_SUCCESS);
        MUST(CU(cuMemAllocPitch_v2)(&block, &pitch, (size_t)1 << 40, (size_t)1 << 40, 4) != CUDA_SUCCESS);
        MUST(CU(cuMemRelease)(0x77777777) != CUDA_SUCCESS);
        MUST(CU(cuMemCreate)(&handle, 2 << 20, &nowhere, 0) != CUDA_SUCCESS);
        MUST(CU(cuMemCreate)(&handle, 1000, &prop, 0) != CUDA_SUCCESS);
        MUST(CU(cuArrayCreate_v2)(&array, &nothing) != CUDA_SUCCESS);
        MUST(CU(cuMemFreeHost)((void *)0x1000) != CUDA_SUCCESS);
        MUST(CU(cuMemHostUnregister)((void *)0x1000) != CUDA_SUCCESS);
        OK(CU(cuDeviceGetDefaultMemPool)(&pool, 0));
        OK(CU(cuMemAllocAsync)(&block, 1 << 20, NULL));
        OK(CU(cuMemFreeAsync)(block, NULL));
        MUST(CU(cuMemFreeAsync)(block, NULL) != CUDA_SUCCESS);
        OK(CU(cuCtxSynchronize)());
        OK(CU(cuMemPoolTrimTo)(pool, 0));
    }
    return 0;
}
