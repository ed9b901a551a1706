/* Keeps the GPU busy for some time, by launches one by one or by launches of a graph only, and prints how many of its
 * kernels were done.
 * usage: shares launches|graphs SECONDS */
#include "driver.h"
#include <time.h>

enum { BLOCKS = 200000, NODES = 10 };

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
    pause_here();
    long done = 0;
    for (double end = now() + atof(argv[2]); now() < end; done += NODES) {
        if (graphs) {
            OK(CU(cuGraphLaunch)(exec, NULL));
        } else {
            for (int i = 0; i < NODES; i++)
                OK(CU(cuLaunchKernel)(function, BLOCKS, 1, 1, 256, 1, 1, 0, NULL, args, NULL));
        }
        OK(CU(cuCtxSynchronize)());
    }
    printf("%ld\n", done);
    return 0;
}
