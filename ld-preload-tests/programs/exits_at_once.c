/* One of many processes that start at once: takes ARG MiB and ends. */
#include "driver.h"
int main(int argc, char **argv) {
    CUdeviceptr block;
    use_device(0);
    OK(CU(cuMemAlloc_v2)(&block, (size_t)atol(argv[1]) << 20));
    return 0;
}
