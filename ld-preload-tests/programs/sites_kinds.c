/* Asks in known lines for memory whose line is not plain: before refused requests, outside of the device total, for graphs. Prints
 * "WHAT LINE BYTES" for each. The argument says which. */
#include "driver.h"
#include <pthread.h>
#include <sys/wait.h>

#define SITE __attribute__((noinline, noclone))
/* Keeps a call from being the last thing that its function does. */
#define HERE __asm__ volatile("" ::: "memory")
#define PAGES(n) ((size_t)(n) << 21)
#define SAY(what, bytes) printf("%s %d %zu\n", what, __LINE__, (size_t)(bytes))
#define TOO_MUCH ((size_t)1 << 45)

static SITE void refused_early(void) {
    CUdeviceptr memory;
    for (volatile int i = 0; i < 2; i++) { MUST(CU(cuMemAlloc_v2)(&memory, TOO_MUCH) == CUDA_ERROR_OUT_OF_MEMORY); if (!i) SAY("early", TOO_MUCH); }
    HERE;
}

static SITE void refused_late(void) {
    CUdeviceptr memory;
    for (volatile int i = 0; i < 5; i++) { MUST(CU(cuMemAlloc_v2)(&memory, TOO_MUCH + 1) == CUDA_ERROR_OUT_OF_MEMORY); if (!i) SAY("late", TOO_MUCH + 1); }
    HERE;
}

/* What is held differs between the two refusals, and the peak is at neither. */
static SITE void refusals(void) {
    CUdeviceptr first, second, peak;
    OK(CU(cuMemAlloc_v2)(&first, PAGES(50))); SAY("first", PAGES(50));
    refused_early();
    OK(CU(cuMemFree_v2)(first));
    OK(CU(cuMemAlloc_v2)(&peak, PAGES(90)));
    OK(CU(cuMemFree_v2)(peak));
    OK(CU(cuMemAlloc_v2)(&second, PAGES(20))); SAY("second", PAGES(20));
    refused_late();
    HERE;
}

static SITE void outside(void) {
    CUdeviceptr device, managed, gone;
    void *pinned;
    OK(CU(cuMemAllocManaged)(&managed, PAGES(7), 1)); SAY("managed", PAGES(7));
    OK(CU(cuMemHostAlloc)(&pinned, PAGES(3), 0)); SAY("pinned", PAGES(3));
    OK(CU(cuMemAllocManaged)(&gone, PAGES(2), 1));
    OK(CU(cuMemFree_v2)(gone));
    OK(CU(cuMemAlloc_v2)(&device, PAGES(5))); SAY("device", PAGES(5));
    HERE;
}

static SITE void graphs(void) {
    CUgraph graph;
    CUgraphNode node;
    CUgraphExec exec;
    CUDA_MEM_ALLOC_NODE_PARAMS how = {.poolProps = {.allocType = 1, .location = {1, 0}}, .bytesize = PAGES(6)};
    size_t reserved = 0;
    OK(CU(cuGraphCreate)(&graph, 0));
    OK(CU(cuGraphAddMemAllocNode)(&node, graph, NULL, 0, &how));
    OK(CU(cuGraphInstantiateWithFlags)(&exec, graph, 0));
    OK(CU(cuGraphLaunch)(exec, NULL)); int line = __LINE__;
    OK(CU(cuDeviceGetGraphMemAttribute)(0, 2, &reserved));
    printf("graph %d %zu\n", line, reserved);
    HERE;
}

/* Two processes that hold memory at the same time for so long that both are read. */
static SITE void held_long(size_t pages) {
    CUdeviceptr memory;
    use_device(0);
    OK(CU(cuMemAlloc_v2)(&memory, PAGES(pages))); SAY("held", PAGES(pages));
    fflush(stdout);
    usleep(2500000);
}

static void job(void) {
    pid_t child = fork();
    if (!child) {
        held_long(4);
        exit(0);
    }
    held_long(9);
    int status;
    MUST(waitpid(child, &status, 0) == child && status == 0);
}

int main(int argc, char **argv) {
    MUST(argc == 2);
    if (!strcmp(argv[1], "job")) return job(), 0;
    use_device(0);
    if (!strcmp(argv[1], "refusals")) refusals();
    else if (!strcmp(argv[1], "outside")) outside();
    else if (!strcmp(argv[1], "graphs")) graphs();
    else return 44;
    return 0;
}
