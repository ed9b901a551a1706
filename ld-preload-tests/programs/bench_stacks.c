/* Times an allocation with its release below so many frames of C, and prints nanoseconds of each batch.
 * usage: bench_stacks DEPTH BATCH BATCHES */
#include "driver.h"
#include <time.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static __typeof__(&cuMemAlloc_v2) mem_alloc;
static __typeof__(&cuMemFree_v2) mem_free;

static __attribute__((noinline, noclone)) void below(int depth, long batch) {
    /* As much as frames of real programs have. */
    volatile char room[96];
    room[0] = (char)depth;
    if (depth) {
        below(depth - 1, batch);
        room[1] = room[0];
        return;
    }
    CUdeviceptr block;
    for (long i = 0; i < batch; i++) {
        OK(mem_alloc(&block, 1 << 20));
        OK(mem_free(block));
    }
    room[1] = room[0];
}

int main(int argc, char **argv) {
    MUST(argc == 4);
    int depth = atoi(argv[1]);
    long batch = atol(argv[2]), batches = atol(argv[3]);
    use_device(0);
    mem_alloc = CU(cuMemAlloc_v2);
    mem_free = CU(cuMemFree_v2);
    below(depth, batch);
    for (long i = 0; i < batches; i++) {
        double begin = now();
        below(depth, batch);
        printf("%.1f\n", (now() - begin) / batch);
    }
    return 0;
}
