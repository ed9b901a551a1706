/* A mixed load in real time: kernels of many shapes and lengths, alone, with gaps, on two streams, in graphs, beside
 * copies. What runs side by side fits on the GPU together.
 * usage: sm_load SEED SECONDS
 * Prints "ready", and the work begins. */
#include "draw.h"
#include "driver.h"
#include <time.h>

enum { KERNELS = 8, SHAPES = 3, AHEAD = KERNELS * SHAPES };

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static CUfunction kernels[KERNELS];
/* Blocks and threads of each kernel's shapes: of those that run alone, and of those that run side by side. */
static unsigned shapes[2][KERNELS][SHAPES][2];

static void draw_shapes(void) {
    static const unsigned blocks[] = {8, 21, 40, 60, 99, 132, 200, 330, 1000, 5000};
    for (int small = 0; small < 2; small++)
        for (int k = 0; k < KERNELS; k++)
            for (int s = 0; s < SHAPES; s++) {
                shapes[small][k][s][0] = blocks[draw(small ? 4 : 10)];
                shapes[small][k][s][1] = 32u << draw(6);
            }
}

static void launch(int small, int which, CUstream stream) {
    void *args[1] = {&state};
    int k = which % KERNELS;
    unsigned *shape = shapes[small][k][which / KERNELS % SHAPES];
    OK(CU(cuLaunchKernel)(kernels[k], shape[0], 1, 1, shape[1], 1, 1, 0, stream, args, NULL));
}

int main(int argc, char **argv) {
    if (argc < 3) return 46;
    state = strtoull(argv[1], NULL, 10);
    CUmodule module;
    CUstream streams[2];
    CUgraph graph;
    CUgraphExec exec;
    CUdeviceptr memory;
    char ptx[8192], *host = calloc(1, 1 << 20);
    int at = snprintf(ptx, sizeof ptx, ".version 6.0\n.target sm_50\n.address_size 64\n");
    draw_shapes();
    use_device(0);
    for (int k = 0; k < KERNELS; k++)
        at += snprintf(ptx + at, sizeof ptx - at, ".visible .entry kernel%d(.param .u64 p)\n{\n\tret;\n}\n", k);
    OK(CU(cuModuleLoadData)(&module, ptx));
    for (int k = 0; k < KERNELS; k++) {
        char name[16];
        snprintf(name, sizeof name, "kernel%d", k);
        OK(CU(cuModuleGetFunction)(&kernels[k], module, name));
    }
    for (int i = 0; i < 2; i++) OK(CU(cuStreamCreate)(&streams[i], 1));
    OK(CU(cuMemAlloc_v2)(&memory, 1 << 20));
    OK(CU(cuStreamBeginCapture_v2)(streams[0], 0));
    /* One of each: kernels in graphs are taken to fill a GPU as the same kernels do elsewhere. */
    for (int n = 0; n < AHEAD; n++) launch(0, n, streams[0]);
    OK(CU(cuStreamEndCapture)(streams[0], &graph));
    OK(CU(cuGraphInstantiateWithFlags)(&exec, graph, 0));
    puts("ready");
    fflush(stdout);
    double end = now() + atof(argv[2]);
    while (now() < end) {
        /* One way of working for a while, so that times of the run differ. */
        int way = draw(5);
        unsigned pause = draw(4) * 1500;
        for (double until = now() + 0.1 + 0.001 * draw(200); now() < until;) {
            for (int i = 0; i < AHEAD; i++) {
                if (way == 0) launch(1, draw(AHEAD), streams[i % 2]);
                else if (way == 1 && i == 0) OK(CU(cuGraphLaunch)(exec, streams[0]));
                else if (way == 2 && i % 8 == 0) OK(CU(cuMemcpyHtoDAsync_v2)(memory, host, 1 << 20, streams[1]));
                else if (way != 1) launch(0, draw(AHEAD), streams[0]);
            }
            OK(CU(cuCtxSynchronize)());
            if (pause) usleep(pause);
        }
    }
    return 0;
}
