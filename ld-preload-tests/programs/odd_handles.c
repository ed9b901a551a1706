/* Launches functions whose handles are values that tables of handles may use as marks, and of which no driver
 * gives out one. Prints how many launches it made.
 * usage: odd_handles ROUNDS */
#include "driver.h"

#include <stdint.h>

static long launched;

static void launch(uint64_t handle) {
    CUfunction function = (CUfunction)(uintptr_t)handle;
    CUlaunchConfig config = {.gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1};
    OK(CU(cuLaunchKernel)(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    OK(CU(cuLaunchKernelEx)(&config, function, NULL, NULL));
    OK(CU(cuLaunchCooperativeKernel)(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL));
    launched += 3;
}

int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) : 1;
    use_device(0);
    for (long round = 0; round < rounds; round++) {
        /* Handles that differ from 0 only in the byte into which a size class is mixed: all meet one place, which the
         * first of them, mixed to 0 by the class of a single thread, finds empty. */
        for (uint64_t n = 0; n < 256; n++) launch((n + 2) << 56);
        for (uint64_t handle = 0; handle < 64; handle++) launch(handle);
        launch(UINT64_MAX);
    }
    printf("%ld\n", launched);
    return 0;
}
