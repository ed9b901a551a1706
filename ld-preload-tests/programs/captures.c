/* Captures of every mode on every kind of stream, while another thread works or not. Prints what every step
 * answered and what the graphs consist of: the same with and without a shim.
 * usage: captures */
#include "driver.h"
#include <pthread.h>

static CUcontext context;
static CUfunction function;
static CUstream legacy, per_thread = (CUstream)2, blocking, non_blocking, side, aside;
static CUevent fork_event, join_event, own_start, own_end;
static pthread_barrier_t barrier;

static CUresult launch(CUstream stream) {
    void *args[1] = {&context};
    return CU(cuLaunchKernel)(function, 64, 1, 1, 128, 1, 1, 0, stream, args, NULL);
}

/* What another thread does between the beginning and the end of a capture. */
enum work { NOTHING, LAUNCHES, LAUNCHES_LEGACY, OWN_CAPTURE, WORKS };
static const char *work_names[] = {"alone", "launches", "legacy launches", "another capture"};
static enum work work;
static int quit;

static void *other(void *arg) {
    OK(CU(cuCtxSetCurrent)(context));
    for (;;) {
        pthread_barrier_wait(&barrier);
        if (quit) return arg;
        unsigned failed = 0;
        CUgraph graph = NULL;
        switch (work) {
        case LAUNCHES:
            for (int i = 0; i < 50; i++) failed += launch(aside) != CUDA_SUCCESS;
            break;
        case LAUNCHES_LEGACY:
            for (int i = 0; i < 50; i++) failed += launch(legacy) != CUDA_SUCCESS;
            break;
        case OWN_CAPTURE:
            failed += CU(cuStreamBeginCapture_v2)(aside, 1) != CUDA_SUCCESS;
            for (int i = 0; i < 5; i++) failed += launch(aside) != CUDA_SUCCESS;
            failed += CU(cuStreamEndCapture)(aside, &graph) != CUDA_SUCCESS;
            break;
        default:
            break;
        }
        if (work) printf("    other thread: %u failed\n", failed);
        pthread_barrier_wait(&barrier);
    }
}

static void meanwhile(enum work what) {
    work = what;
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
}

static void describe(CUgraph graph) {
    CUgraphNode nodes[64];
    size_t count = 64;
    int types[32] = {0};
    if (!graph) {
        puts("    no graph");
        return;
    }
    OK(CU(cuGraphGetNodes)(graph, nodes, &count));
    for (size_t i = 0; i < count; i++) {
        int type;
        OK(CU(cuGraphNodeGetType)(nodes[i], (void *)&type));
        types[type & 31]++;
    }
    printf("    nodes:");
    for (int t = 0; t < 32; t++)
        if (types[t]) printf(" %dx%d", types[t], t);
    puts("");
}

static void replay(CUgraph graph) {
    CUgraphExec exec;
    float ms = -1;
    if (!graph) return;
    unsigned made = CU(cuGraphInstantiateWithFlags)(&exec, graph, 0);
    printf("    instantiated: %u\n", made);
    if (made) return;
    unsigned failed = 0;
    OK(CU(cuEventRecord)(own_start, non_blocking));
    for (int i = 0; i < 5; i++) failed += CU(cuGraphLaunch)(exec, non_blocking) != CUDA_SUCCESS;
    OK(CU(cuEventRecord)(own_end, non_blocking));
    failed += CU(cuStreamSynchronize)(non_blocking) != CUDA_SUCCESS;
    failed += CU(cuEventQuery)(own_end) != CUDA_SUCCESS;
    OK(CU(cuEventElapsedTime)(&ms, own_start, own_end));
    printf("    replayed: %u failed, %s\n", failed, ms > 0 ? "took time" : "took none");
    OK(CU(cuGraphExecDestroy)(exec));
    OK(CU(cuGraphDestroy)(graph));
}

static void capture(const char *name, CUstream stream, int mode, enum work what) {
    CUgraph graph = NULL;
    int status = 9;
    CUdeviceptr block = 0;
    printf("%s, mode %d, %s\n", name, mode, work_names[what]);
    for (int i = 0; i < 20; i++) OK(launch(stream == legacy ? aside : stream));
    unsigned begun = CU(cuStreamBeginCapture_v2)(stream, mode);
    printf("    begun: %u\n", begun);
    if (begun) return;
    printf("    launches: %u", launch(stream));
    printf(" %u", launch(stream));
    /* To another stream and back, by the program's own events. */
    printf(" %u", CU(cuEventRecord)(fork_event, stream));
    printf(" %u", CU(cuStreamWaitEvent)(side, fork_event, 0));
    printf(" %u", launch(side));
    meanwhile(what);
    printf(" %u", CU(cuEventRecord)(join_event, side));
    printf(" %u", CU(cuStreamWaitEvent)(stream, join_event, 0));
    /* An event that becomes a node because the program wants it to. */
    printf(" %u", CU(cuEventRecordWithFlags)(own_start, stream, 1));
    /* Memory that belongs to the graph. */
    printf(" %u", CU(cuMemAllocAsync)(&block, 1 << 20, stream));
    printf(" %u", launch(stream));
    printf(" %u\n", CU(cuMemFreeAsync)(block, stream));
    unsigned asked = CU(cuStreamIsCapturing)(stream, (void *)&status);
    printf("    capturing: %u %d\n", asked, status);
    printf("    ended: %u\n", CU(cuStreamEndCapture)(stream, &graph));
    describe(graph);
    replay(graph);
    printf("    after: %u %u\n", launch(stream), CU(cuCtxSynchronize)());
}

int main(void) {
    pthread_t thread;
    context = use_device(0);
    function = load_kernel("nothing");
    OK(CU(cuStreamCreate)(&blocking, 0));
    OK(CU(cuStreamCreate)(&non_blocking, 1));
    OK(CU(cuStreamCreate)(&side, 1));
    OK(CU(cuStreamCreate)(&aside, 1));
    OK(CU(cuEventCreate)(&fork_event, 2));
    OK(CU(cuEventCreate)(&join_event, 2));
    OK(CU(cuEventCreate)(&own_start, 0));
    OK(CU(cuEventCreate)(&own_end, 0));
    pthread_barrier_init(&barrier, NULL, 2);
    pthread_create(&thread, NULL, other, NULL);
    const struct {
        const char *name;
        CUstream stream;
    } streams[] = {{"legacy", legacy}, {"per-thread", per_thread}, {"blocking", blocking}, {"non-blocking", non_blocking}};
    for (int s = 0; s < 4; s++)
        for (int mode = 0; mode < 3; mode++)
            for (int w = 0; w < WORKS; w++) capture(streams[s].name, streams[s].stream, mode, w);
    quit = 1;
    pthread_barrier_wait(&barrier);
    pthread_join(thread, NULL);
    return 0;
}
