/* Keeps the GPU busy for some time, by launches one by one or by launches of a graph only, and prints how many of its
 * kernels were done. With `rate` it prints how many of them a second of the GPU's time does: what the host takes between
 * batches is not a part of that, which on a loaded machine brings unequal shares closer together. Of the batches the median
 * counts, since one whose launches were interrupted is longer than the GPU worked for it.
 * usage: shares launches|graphs SECONDS [rate] */
#include "driver.h"
#include <time.h>

enum { BLOCKS = 200000, NODES = 10, BATCHES = 1 << 16 };

static float took[BATCHES];

static int by_length(const void *a, const void *b) {
    return (*(const float *)a > *(const float *)b) - (*(const float *)a < *(const float *)b);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

int main(int argc, char **argv) {
    if (argc < 3) return 44;
    int graphs = !strcmp(argv[1], "graphs");
    use_device(0);
    CUfunction function = load_kernel("nothing");
    void *p = NULL, *args[1] = {&p};
    CUDA_KERNEL_NODE_PARAMS params = {function, BLOCKS, 1, 1, 256, 1, 1, 0, args, NULL, NULL, NULL};
    CUgraph graph;
    CUgraphNode node, before = NULL;
    CUgraphExec exec;
    OK(CU(cuGraphCreate)(&graph, 0));
    for (int i = 0; i < NODES; i++) {
        OK(CU(cuGraphAddKernelNode_v2)(&node, graph, before ? &before : NULL, before != NULL, &params));
        before = node;
    }
    OK(CU(cuGraphInstantiateWithFlags)(&exec, graph, 0));
    CUevent begun, ended;
    OK(CU(cuEventCreate)(&begun, 0));
    OK(CU(cuEventCreate)(&ended, 0));
    pause_here();
    int batches = 0;
    for (double end = now() + atof(argv[2]); now() < end && batches < BATCHES; batches++) {
        OK(CU(cuEventRecord)(begun, NULL));
        if (graphs) {
            OK(CU(cuGraphLaunch)(exec, NULL));
        } else {
            for (int i = 0; i < NODES; i++)
                OK(CU(cuLaunchKernel)(function, BLOCKS, 1, 1, 256, 1, 1, 0, NULL, args, NULL));
        }
        OK(CU(cuEventRecord)(ended, NULL));
        OK(CU(cuCtxSynchronize)());
        OK(CU(cuEventElapsedTime)(&took[batches], begun, ended));
    }
    if (argc < 4) return printf("%d\n", batches * NODES), 0;
    MUST(batches > 0);
    qsort(took, batches, sizeof *took, by_length);
    printf("%f\n", NODES * 1000.0 / took[batches / 2]);
    return 0;
}
