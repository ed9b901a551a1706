/* Allocates and frees multiples of 2 MiB without end under a quota, holding up to so many of them, so that it can be
 * killed at any moment. Being refused is not an error; anything else but success is.
 * usage: quota_storm MOST */
#include "driver.h"
int main(int argc, char **argv) {
    int most = argc > 1 ? atoi(argv[1]) : 8, held = 0;
    static struct { CUdeviceptr at; int units; } block[64];
    unsigned seed = (unsigned)getpid();
    use_device(0);
    __typeof__(&cuMemAlloc_v2) mem_alloc = CU(cuMemAlloc_v2);
    __typeof__(&cuMemFree_v2) mem_free = CU(cuMemFree_v2);
    printf("ready %d\n", (int)getpid());
    fflush(stdout);
    for (;;) {
        seed = seed * 1103515245 + 12345;
        int at = (seed >> 8) % 64, units = (seed >> 16) % 4 + 1;
        if (block[at].at) {
            OK(mem_free(block[at].at));
            held -= block[at].units;
            block[at].at = 0;
        } else if (held + units <= most) {
            CUresult result = mem_alloc(&block[at].at, (size_t)units << 21);
            MUST(result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY);
            if (result == CUDA_SUCCESS) {
                block[at].units = units;
                held += units;
            } else {
                block[at].at = 0;
            }
        }
    }
}
