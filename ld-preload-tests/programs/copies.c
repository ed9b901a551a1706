/* One copy or memset of every way; sizes are powers of two, so that sums tell which were counted. */
#include "driver.h"

/* CUDA_MEMCPY2D */
struct side {
    size_t x, y;
    unsigned type;
    void *host;
    CUdeviceptr device;
    void *array;
    size_t pitch;
};
struct rows {
    struct side from, to;
    size_t width, height;
};

int main(void) {
    use_device(0);
    CUdeviceptr a, b;
    CUstream stream;
    CUgraph graph;
    static char host[1 << 20];
    OK(CU(cuMemAlloc_v2)(&a, 1 << 20));
    OK(CU(cuMemAlloc_v2)(&b, 1 << 20));
    OK(CU(cuStreamCreate)(&stream, 1));
    OK(CU(cuMemcpyHtoD_v2)(a, host, 1));
    OK(CU(cuMemcpyHtoDAsync_v2)(a, host, 2, stream));
    OK(CU(cuMemcpyHtoDAsync_v2_ptsz)(a, host, 4, stream));
    OK(CU(cuMemcpyDtoH_v2)(host, a, 8));
    OK(CU(cuMemcpyDtoHAsync_v2)(host, a, 16, stream));
    OK(CU(cuMemcpyDtoD_v2)(b, a, 32));
    OK(CU(cuMemcpyDtoDAsync_v2)(b, a, 64, stream));
    OK(CU(cuMemcpy)(b, a, 128));
    OK(CU(cuMemcpyAsync)(b, a, 256, stream));
    struct rows rows = {.from = {.type = 1, .host = host, .pitch = 64}, .to = {.type = 2, .device = a, .pitch = 64},
                        .width = 64, .height = 8};
    OK(CU(cuMemcpy2D_v2)((void *)&rows));
    OK(CU(cuMemsetD8_v2)(a, 0, 1));
    OK(CU(cuMemsetD16_v2)(a, 0, 1));
    OK(CU(cuMemsetD32_v2)(a, 0, 1));
    OK(CU(cuMemsetD32Async)(a, 0, 2, stream));
    OK(CU(cuMemsetD2D8_v2)(a, 64, 0, 4, 4));
    /* Recorded, not done. */
    OK(CU(cuStreamBeginCapture_v2)(stream, 0));
    OK(CU(cuMemcpyHtoDAsync_v2)(a, host, 1 << 19, stream));
    OK(CU(cuMemsetD8Async)(a, 0, 1 << 19, stream));
    OK(CU(cuStreamEndCapture)(stream, &graph));
    /* Refused. */
    MUST(CU(cuMemcpyHtoD_v2)(0, host, 1 << 18) != CUDA_SUCCESS);
    OK(CU(cuStreamSynchronize)(stream));
    return 0;
}
