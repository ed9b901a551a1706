/* What calls cost on the host, in nanoseconds, medians over batches: one JSON object.
 * Batches are short enough that the GPU's queue does not fill up, and the GPU is waited for between them.
 * usage: costs BATCHES */
#include "driver.h"
#include <time.h>

enum { MOST = 4096 };

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int count) {
    qsort(values, count, sizeof *values, by_size);
    return values[count / 2];
}

/* Times `calls` runs of a statement, `batches` times, and prints the median per call. */
#define MEASURE(name, calls, statement)                                                                    \
    do {                                                                                                   \
        double taken[MOST];                                                                                \
        for (int batch_ = 0; batch_ < batches; batch_++) {                                                 \
            OK(CU(cuCtxSynchronize)());                                                                    \
            double start_ = now();                                                                         \
            for (int i = 0; i < (calls); i++) { statement; }                                               \
            taken[batch_] = (now() - start_) / (calls);                                                    \
        }                                                                                                  \
        OK(CU(cuCtxSynchronize)());                                                                        \
        printf("%s\"%s\": %.1f", comma, name, median(taken, batches));                                     \
        comma = ", ";                                                                                      \
    } while (0)

int main(int argc, char **argv) {
    int batches = argc > 1 ? atoi(argv[1]) : 100;
    const char *comma = "{";
    CUstream stream;
    CUevent events[64], timed[2];
    CUdeviceptr block;
    CUgraph graph;
    CUgraphExec exec;
    size_t available, total;
    if (batches < 1 || batches > MOST) return 2;
    use_device(0);
    CUfunction function = load_kernel("nothing");
    void *arguments[1] = {&block};
    OK(CU(cuStreamCreate)(&stream, 1));
    for (int i = 0; i < 64; i++) OK(CU(cuEventCreate)(&events[i], i % 2 ? 0 : 2));
    for (int i = 0; i < 2; i++) OK(CU(cuEventCreate)(&timed[i], 0));
    __typeof__(&cuLaunchKernel) launch = CU(cuLaunchKernel);
    __typeof__(&cuEventRecord) record = CU(cuEventRecord);
    __typeof__(&cuEventQuery) query = CU(cuEventQuery);
    __typeof__(&cuMemAlloc_v2) mem_alloc = CU(cuMemAlloc_v2);
    __typeof__(&cuMemFree_v2) mem_free = CU(cuMemFree_v2);
    __typeof__(&cuMemAllocAsync) alloc_async = CU(cuMemAllocAsync);
    __typeof__(&cuMemFreeAsync) free_async = CU(cuMemFreeAsync);
    __typeof__(&cuMemGetInfo_v2) mem_info = CU(cuMemGetInfo_v2);
    __typeof__(&cuGraphLaunch) graph_launch = CU(cuGraphLaunch);

    /* Warm: the first launches load code. */
    for (int i = 0; i < 200; i++) OK(launch(function, 1, 1, 1, 32, 1, 1, 0, stream, arguments, NULL));
    MEASURE("launch", 200, OK(launch(function, 1, 1, 1, 32, 1, 1, 0, stream, arguments, NULL)));
    MEASURE("event record", 64, OK(record(events[i & ~1], stream)));
    MEASURE("timed event record", 64, OK(record(events[i | 1], stream)));
    OK(CU(cuCtxSynchronize)());
    MEASURE("event query", 64, OK(query(events[i])));
    MEASURE("alloc+free of 1 MiB", 20, OK(mem_alloc(&block, 1 << 20)); OK(mem_free(block)));
    MEASURE("pool alloc+free of 1 MiB", 50, OK(alloc_async(&block, 1 << 20, stream)); OK(free_async(block, stream)));
    MEASURE("memory info", 20, OK(mem_info(&available, &total)));
    OK(CU(cuStreamBeginCapture_v2)(stream, 1));
    for (int i = 0; i < 50; i++) OK(launch(function, 1, 1, 1, 32, 1, 1, 0, stream, arguments, NULL));
    OK(CU(cuStreamEndCapture)(stream, &graph));
    OK(CU(cuGraphInstantiateWithFlags)(&exec, graph, 0));
    for (int i = 0; i < 3; i++) OK(graph_launch(exec, stream));
    MEASURE("graph of 50", 10, OK(graph_launch(exec, stream)));

    /* What two events beside each other say has passed between them, at least and mostly. */
    double between[MOST], least = 1e9;
    for (int i = 0; i < batches; i++) {
        float ms = 0;
        OK(record(timed[0], stream));
        OK(record(timed[1], stream));
        OK(CU(cuStreamSynchronize)(stream));
        OK(CU(cuEventElapsedTime)(&ms, timed[0], timed[1]));
        between[i] = ms * 1e6;
        if (between[i] < least) least = between[i];
    }
    printf(", \"between two events\": %.1f, \"between two events, least\": %.1f}\n", median(between, batches), least);
    return 0;
}
