/* A mixed workload that also takes the time of every launch itself: the sum of each kernel's durations is
 * printed at the end, as the truth that estimates are held against.
 * usage: timed SEED LAUNCHES [graphs]
 * Line: kernel, launches, nanoseconds. */
#include "draw.h"
#include "driver.h"

enum { KERNELS = 8, SHAPES = 4, OWN_EVENTS = 256, NODES = 3 };

static struct {
    CUfunction function;
    unsigned blocks[SHAPES], threads[SHAPES];
    unsigned weight;
    double ns;
    long launches;
} kernels[KERNELS];

static struct {
    CUevent start, end;
    int kernel;
} out[OWN_EVENTS];
static int outstanding;

static void collect(void) {
    OK(CU(cuCtxSynchronize)());
    for (int i = 0; i < outstanding; i++) {
        float ms;
        OK(CU(cuEventElapsedTime)(&ms, out[i].start, out[i].end));
        kernels[out[i].kernel].ns += ms * 1e6;
    }
    outstanding = 0;
}

static void launch(int k, int shape, unsigned blocks, CUstream stream) {
    if (outstanding == OWN_EVENTS) collect();
    out[outstanding].kernel = k;
    OK(CU(cuEventRecord)(out[outstanding].start, stream));
    OK(CU(cuLaunchKernel)(kernels[k].function, blocks, 1, 1, kernels[k].threads[shape], 1, 1, 0,
                          stream, (void *[]){&state}, NULL));
    OK(CU(cuEventRecord)(out[outstanding].end, stream));
    kernels[k].launches++;
    outstanding++;
}

int main(int argc, char **argv) {
    if (argc < 3) return 46;
    state = strtoull(argv[1], NULL, 10);
    long launches = atol(argv[2]);
    int graphs = argc > 3;
    CUmodule module;
    CUstream streams[3] = {NULL};
    char ptx[8192];
    int at = snprintf(ptx, sizeof ptx, ".version 6.0\n.target sm_50\n.address_size 64\n");
    use_device(0);
    for (int k = 0; k < KERNELS; k++)
        at += snprintf(ptx + at, sizeof ptx - at, ".visible .entry kernel%d(.param .u64 p)\n{\n\tret;\n}\n", k);
    OK(CU(cuModuleLoadData)(&module, ptx));
    unsigned sum = 0;
    for (int k = 0; k < KERNELS; k++) {
        char name[16];
        snprintf(name, sizeof name, "kernel%d", k);
        OK(CU(cuModuleGetFunction)(&kernels[k].function, module, name));
        for (int s = 0; s < SHAPES; s++) {
            kernels[k].blocks[s] = 1 + draw(1u << (4 + draw(14)));
            kernels[k].threads[s] = 32u << draw(5);
        }
        /* From a few launches to most of them. */
        kernels[k].weight = 1u << draw(10);
        sum += kernels[k].weight;
    }
    OK(CU(cuStreamCreate)(&streams[1], 1));
    OK(CU(cuStreamCreate)(&streams[2], 0));
    for (int i = 0; i < OWN_EVENTS; i++) {
        OK(CU(cuEventCreate)(&out[i].start, 0));
        OK(CU(cuEventCreate)(&out[i].end, 0));
    }
    CUgraphExec exec = NULL;
    int nodes[NODES];
    double node_ns[NODES] = {0};
    long replays = 0;
    for (long i = 0; i < launches; i++) {
        unsigned pick = draw(sum);
        int k = 0;
        for (; pick >= kernels[k].weight; k++) pick -= kernels[k].weight;
        /* Shapes alternate with a period, as the steps of a training loop do. */
        int shape = i / 7 % 3 ? draw(SHAPES) : 0;
        unsigned blocks = kernels[k].blocks[shape];
        /* Of every other kernel no two launches are alike, so that a sample can be wrong. */
        if (k & 1) blocks = blocks / 2 + 1 + draw(blocks);
        launch(k, shape, blocks, streams[draw(3)]);
        if (graphs && !exec && i == launches / 4) {
            CUgraph graph;
            collect();
            for (int n = 0; n < NODES; n++) nodes[n] = draw(KERNELS);
            /* One launch of each node alone tells what it takes. */
            for (int n = 0; n < NODES; n++) {
                double before = kernels[nodes[n]].ns;
                launch(nodes[n], 0, kernels[nodes[n]].blocks[0], streams[1]);
                collect();
                node_ns[n] = kernels[nodes[n]].ns - before;
            }
            OK(CU(cuStreamBeginCapture_v2)(streams[1], 0));
            for (int n = 0; n < NODES; n++)
                OK(CU(cuLaunchKernel)(kernels[nodes[n]].function, kernels[nodes[n]].blocks[0], 1, 1,
                                      kernels[nodes[n]].threads[0], 1, 1, 0, streams[1], (void *[]){&state}, NULL));
            OK(CU(cuStreamEndCapture)(streams[1], &graph));
            size_t in_graph = 0;
            OK(CU(cuGraphGetNodes)(graph, NULL, &in_graph));
            MUST(in_graph == NODES);
            OK(CU(cuGraphInstantiateWithFlags)(&exec, graph, 0));
        }
        if (exec && draw(4) == 0) {
            OK(CU(cuGraphLaunch)(exec, streams[2]));
            replays++;
        }
    }
    collect();
    for (int n = 0; n < NODES; n++) {
        if (!exec) break;
        kernels[nodes[n]].ns += node_ns[n] * replays;
    }
    for (int k = 0; k < KERNELS; k++) printf("kernel%d %ld %.0f\n", k, kernels[k].launches, kernels[k].ns);
    return 0;
}
