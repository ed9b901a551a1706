/* Calls the driver by linked symbols; see deepbind.c. */
#include "cuda_api.h"
unsigned long long take(size_t bytes) {
    CUdeviceptr block = 0;
    return cuMemAlloc_v2(&block, bytes) == CUDA_SUCCESS ? block : 0;
}
