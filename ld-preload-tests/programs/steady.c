/* One kernel again and again. usage: steady BLOCKS THREADS LAUNCHES */
#include "driver.h"

int main(int argc, char **argv) {
    if (argc < 4) return 46;
    CUstream stream;
    void *args[1] = {&stream};
    use_device(0);
    CUfunction function = load_kernel("nothing");
    OK(CU(cuStreamCreate)(&stream, 1));
    for (long i = 0; i < atol(argv[3]); i++)
        OK(CU(cuLaunchKernel)(function, atoi(argv[1]), 1, 1, atoi(argv[2]), 1, 1, 0, stream, args, NULL));
    OK(CU(cuStreamSynchronize)(stream));
    return 0;
}
