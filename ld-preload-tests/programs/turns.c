/* Programs whose launches may have to wait.
 * usage: turns fill launches|ex|graphs SECONDS [BLOCKS [THREADS]]
 *                                     keeps the GPU busy, two batches of kernels ahead, of one block of 32 threads or of
 *                                     so many of 1024 or THREADS; prints how many were done in that time
 *        turns once                   launches one kernel and prints errno
 *        turns signals                as once; a handler of SIGUSR1 says so
 *        turns capture                captures three launches and a graph, then prints the number of nodes
 *        turns fork                   two children that launch one kernel each
 *        turns threads N              N threads that launch one kernel each
 * All but `fill` pause before the launch. */
#include "driver.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

enum { NODES = 10 };

static CUcontext context;
static CUfunction function;
static unsigned blocks = 1, width = 32;
static void *p, *args[1] = {&p};

static CUresult launch(CUstream stream) {
    return CU(cuLaunchKernel)(function, blocks, 1, 1, width, 1, 1, 0, stream, args, NULL);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static CUgraphExec graph_of(int nodes) {
    CUDA_KERNEL_NODE_PARAMS params = {function, blocks, 1, 1, width, 1, 1, 0, args, NULL, NULL, NULL};
    CUgraph graph;
    CUgraphNode node, before = NULL;
    CUgraphExec exec;
    OK(CU(cuGraphCreate)(&graph, 0));
    for (int i = 0; i < nodes; i++) {
        OK(CU(cuGraphAddKernelNode_v2)(&node, graph, before ? &before : NULL, before != NULL, &params));
        before = node;
    }
    OK(CU(cuGraphInstantiateWithFlags)(&exec, graph, 0));
    return exec;
}

static int fill(const char *way, double seconds) {
    CUgraphExec exec = graph_of(NODES);
    CUevent events[2];
    CUstream stream;
    CUlaunchConfig config = {.gridDimX = blocks, .gridDimY = 1, .gridDimZ = 1, .blockDimX = width, .blockDimY = 1, .blockDimZ = 1};
    OK(CU(cuStreamCreate)(&stream, 1));
    for (int i = 0; i < 2; i++) OK(CU(cuEventCreate)(&events[i], 2));
    config.hStream = stream;
    pause_here();
    long done = 0, batch = 0;
    double end = now() + seconds;
    for (;; batch++) {
        OK(CU(cuEventSynchronize)(events[batch % 2]));
        if (now() >= end) break;
        if (batch > 1) done += NODES;
        if (!strcmp(way, "graphs")) {
            OK(CU(cuGraphLaunch)(exec, stream));
        } else {
            for (int i = 0; i < NODES; i++)
                OK(!strcmp(way, "ex") ? CU(cuLaunchKernelEx)(&config, function, args, NULL) : launch(stream));
        }
        OK(CU(cuEventRecord)(events[batch % 2], stream));
    }
    printf("%ld\n", done);
    return 0;
}

static void handled(int signal) {
    (void)signal;
    if (write(1, "handled\n", 8) != 8) _exit(45);
}

static int once(void) {
    OK(launch(NULL)); /* what is looked up at the first launch may change errno */
    pause_here();
    errno = 77;
    OK(launch(NULL));
    printf("launched, errno %d\n", errno);
    return 0;
}

static int capture(void) {
    CUstream stream;
    CUgraph graph;
    CUgraphExec exec = graph_of(2);
    size_t nodes = 0;
    OK(CU(cuStreamCreate)(&stream, 1));
    pause_here();
    OK(CU(cuStreamBeginCapture_v2)(stream, 0));
    for (int i = 0; i < 3; i++) OK(launch(stream));
    OK(CU(cuGraphLaunch)(exec, stream));
    OK(CU(cuStreamEndCapture)(stream, &graph));
    OK(CU(cuGraphGetNodes)(graph, NULL, &nodes));
    printf("%zu nodes\n", nodes);
    return 0;
}

static int children(void) {
    pause_here();
    for (int i = 0; i < 2; i++)
        if (!fork()) {
            use_device(0);
            function = load_kernel("nothing");
            OK(launch(NULL));
            _exit(7);
        }
    for (int i = 0; i < 2; i++) {
        int status = 0;
        MUST(wait(&status) > 0);
        MUST(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    }
    puts("both launched");
    return 0;
}

static void *one(void *arg) {
    OK(CU(cuCtxSetCurrent)(context));
    OK(launch(NULL));
    return arg;
}

static int threads(int n) {
    pthread_t ids[64];
    pause_here();
    for (int i = 0; i < n; i++) pthread_create(&ids[i], NULL, one, NULL);
    for (int i = 0; i < n; i++) pthread_join(ids[i], NULL);
    puts("all launched");
    return 0;
}

int main(int argc, char **argv) {
    MUST(argc > 1);
    if (!strcmp(argv[1], "fork")) return children();
    context = use_device(0);
    function = load_kernel("nothing");
    if (!strcmp(argv[1], "fill") && argc >= 5) blocks = atoi(argv[4]), width = argc > 5 ? atoi(argv[5]) : 1024;
    if (!strcmp(argv[1], "fill") && argc >= 4) return fill(argv[2], atof(argv[3]));
    if (!strcmp(argv[1], "capture")) return capture();
    if (!strcmp(argv[1], "threads") && argc == 3) return threads(atoi(argv[2]));
    if (!strcmp(argv[1], "signals")) signal(SIGUSR1, handled);
    return once();
}
