/* Allocates and frees without end or for N rounds, keeping up to 64 blocks, so that it can be killed
 * at any moment; with SECONDS, spread over so much time.
 * usage: storm ROUNDS(0 = without end) [KEEP [SECONDS]] */
#include "driver.h"
#include <time.h>
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}
int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) : 0;
    int keep = argc > 2 ? atoi(argv[2]) : 64;
    double seconds = argc > 3 ? atof(argv[3]) : 0, start = now();
    static CUdeviceptr block[65536];
    unsigned seed = getpid();
    use_device(0);
    __typeof__(&cuMemAlloc_v2) mem_alloc = CU(cuMemAlloc_v2);
    __typeof__(&cuMemFree_v2) mem_free = CU(cuMemFree_v2);
    printf("ready %d\n", (int)getpid());
    fflush(stdout);
    for (long i = 0; !rounds || i < rounds; i++) {
        seed = seed * 1103515245 + 12345;
        int at = (seed >> 8) % keep;
        if (block[at]) OK(mem_free(block[at]));
        OK(mem_alloc(&block[at], (size_t)((seed >> 16) % 1024 + 1) << 10));
        if (seconds > 0 && i % 64 == 0)
            while (now() - start < seconds * i / rounds) usleep(1000);
    }
    if (rounds) pause_here();
    return 0;
}
