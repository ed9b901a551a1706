/* Launches many kernels of different names, each loaded from a module of its own that is then unloaded or kept.
 * usage: many_kernels KERNELS keep|drop
 * Prints resident KiB after a tenth of the kernels, and at the end. */
#include "driver.h"

static long resident_kib(void) {
    long size, resident;
    FILE *file = fopen("/proc/self/statm", "r");
    MUST(file && fscanf(file, "%ld %ld", &size, &resident) == 2);
    fclose(file);
    return resident * 4;
}

int main(int argc, char **argv) {
    if (argc < 3) return 46;
    long kernels = atol(argv[1]);
    int drop = !strcmp(argv[2], "drop");
    CUmodule module;
    CUfunction function;
    CUstream stream;
    void *args[1] = {&stream};
    use_device(0);
    OK(CU(cuStreamCreate)(&stream, 1));
    for (long k = 0; k < kernels; k++) {
        char name[48], ptx[256];
        snprintf(name, sizeof name, "kernel_number_%ld", k);
        snprintf(ptx, sizeof ptx,
                 ".version 6.0\n.target sm_50\n.address_size 64\n.visible .entry %s(.param .u64 p)\n{\n\tret;\n}\n", name);
        OK(CU(cuModuleLoadData)(&module, ptx));
        OK(CU(cuModuleGetFunction)(&function, module, name));
        for (int i = 0; i < 3; i++) OK(CU(cuLaunchKernel)(function, 1 + k % 100, 1, 1, 64, 1, 1, 0, stream, args, NULL));
        if (k == kernels / 10) printf("%ld ", resident_kib());
        if (drop) {
            OK(CU(cuStreamSynchronize)(stream));
            OK(CU(cuModuleUnload)(module));
        }
    }
    printf("%ld\n", resident_kib());
    return 0;
}
