/* Takes memory of every GPU that it can reach, after it has changed which those are, and holds it until a file is there.
 * Prints "GPUS n", a line of each, "granted" or "refused", and "ready".
 * usage: every_gpu VISIBLE MIB FILE; VISIBLE: a value for CUDA_VISIBLE_DEVICES, `keep` leaves it, `unset` removes it */
#include "driver.h"
int main(int count, char **words) {
    int gpus = 0;
    MUST(count == 4);
    if (!strcmp(words[1], "unset")) unsetenv("CUDA_VISIBLE_DEVICES");
    else if (strcmp(words[1], "keep")) setenv("CUDA_VISIBLE_DEVICES", words[1], 1);
    size_t bytes = strtoull(words[2], NULL, 0) << 20;
    if (CU(cuInit)(0) == CUDA_SUCCESS) OK(CU(cuDeviceGetCount)(&gpus));
    printf("GPUS %d\n", gpus);
    for (int at = 0; at < gpus; at++) {
        CUdevice device;
        CUcontext context;
        CUdeviceptr block;
        OK(CU(cuDeviceGet)(&device, at));
        CUresult result = CU(cuDevicePrimaryCtxRetain)(&context, device);
        if (result == CUDA_SUCCESS) {
            OK(CU(cuCtxSetCurrent)(context));
            result = CU(cuMemAlloc_v2)(&block, bytes);
        }
        MUST(result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY);
        puts(result == CUDA_SUCCESS ? "granted" : "refused");
    }
    puts("ready");
    fflush(stdout);
    while (access(words[3], F_OK)) usleep(20000);
    return 0;
}
