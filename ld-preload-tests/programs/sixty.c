/* Two processes, or two threads of each of two processes, ask for the same share of the GPU at the same
 * moment, round after round.
 * usage: sixty ROUNDS BYTES */
#include "driver.h"
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

struct shared {
    _Atomic unsigned arrived[2], granted, interrupted;
    unsigned long both, one, none, undisturbed;
};

/* How often this thread has lost its processor. */
static long switches(void) {
    struct rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_nvcsw + usage.ru_nivcsw;
}

/* Both are here. */
static void meet(struct shared *shared, int who, unsigned round) {
    shared->arrived[who] = round;
    for (int spins = 0; shared->arrived[!who] < round; spins++)
        if (spins > 2000) sched_yield();
}

static void rounds(struct shared *shared, int who, unsigned rounds, size_t bytes) {
    use_device(0);
    __typeof__(&cuMemAlloc_v2) mem_alloc = CU(cuMemAlloc_v2);
    __typeof__(&cuMemFree_v2) mem_free = CU(cuMemFree_v2);
    unsigned at = 0;
    for (unsigned round = 0; round < rounds; round++) {
        CUdeviceptr block = 0;
        meet(shared, who, ++at);
        long before = switches();
        CUresult result = mem_alloc(&block, bytes);
        if (switches() != before) shared->interrupted++;
        MUST(result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY);
        if (result == CUDA_SUCCESS) shared->granted++;
        meet(shared, who, ++at);
        if (who == 0) {
            unsigned granted = shared->granted;
            *(granted == 2 ? &shared->both : granted ? &shared->one : &shared->none) += 1;
            if (granted == 0 && shared->interrupted == 0) shared->undisturbed++;
            shared->granted = shared->interrupted = 0;
        }
        if (result == CUDA_SUCCESS) OK(mem_free(block));
        meet(shared, who, ++at);
    }
}

int main(int argc, char **argv) {
    if (argc < 3) return 44;
    struct shared *shared = mmap(NULL, sizeof *shared, 3, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t child = fork();
    rounds(shared, child == 0, (unsigned)atol(argv[1]), (size_t)atoll(argv[2]));
    if (child == 0) _exit(0);
    int status;
    MUST(waitpid(child, &status, 0) == child && status == 0);
    printf("%lu %lu %lu %lu\n", shared->both, shared->one, shared->none, shared->undisturbed);
    return 0;
}
