/* Takes MIB of device memory in parts of a quarter, and ends well if it gets all of it; ends with 1 at the first
 * refusal, as a training program does.
 * usage: needs MIB */
#include "driver.h"
int main(int argc, char **argv) {
    MUST(argc == 2);
    size_t part = (strtoull(argv[1], NULL, 0) << 20) / 4;
    use_device(0);
    __typeof__(&cuMemAlloc_v2) mem_alloc = CU(cuMemAlloc_v2);
    CUdeviceptr block;
    for (int i = 0; i < 4; i++) {
        CUresult result = mem_alloc(&block, part);
        if (result != CUDA_SUCCESS) {
            puts("out of memory");
            return 1;
        }
    }
    puts("ends well");
    return 0;
}
