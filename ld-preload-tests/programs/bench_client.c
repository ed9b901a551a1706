/* Times driver calls and prints one line per figure: name, live blocks, threads, then for every batch
 * BEFORE:NANOS:AFTER: nanoseconds per call, between those of a round of the yardstick, a loop that is as
 * fast as the core lets it be. It tells batches that had the core to themselves from those that shared it
 * with another thread of the core, which may belong to another tenant.
 * usage: bench_client time THREADS BATCH BATCHES LIVE...     time per call, all calls
 *        bench_client paced BATCH PAIRS                      launches 4 us apart, past the shim and through it in turn:
 *                                                            two lines, in processor time of the thread
 *        bench_client count NAME LIVE CALLS                  only makes the calls (for counting instructions)
 *        bench_client hold                                   holds one block until it is told to end
 *        bench_client launches N                             memory before and after N launches
 *        bench_client start                                  only cuInit */
#include "driver.h"
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

static double clock_of(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}
static double now(void) { return clock_of(CLOCK_MONOTONIC); }

/* Functions as the program sees them, and what they are called with. */
static __typeof__(&cuLaunchKernel) launch;
static __typeof__(&cuLaunchKernelEx) launch_ex;
static __typeof__(&cuMemAlloc_v2) mem_alloc;
static __typeof__(&cuMemFree_v2) mem_free;
static __typeof__(&cuMemAllocAsync) alloc_async;
static __typeof__(&cuMemFreeAsync) free_async;
static __typeof__(&cuMemCreate) mem_create;
static __typeof__(&cuMemRelease) mem_release;
static __typeof__(&cuMemGetInfo_v2) mem_info;
static __typeof__(&cuGraphLaunch) graph_launch;
static CUcontext context;
static CUfunction function;
static CUgraphExec graph1, graph50;
static CUstream stream;

static void do_launch(long n) {
    void *args[1] = {&stream};
    for (long i = 0; i < n; i++) launch(function, 128, 1, 1, 256, 1, 1, 0, stream, args, NULL);
}
/* A program that does something else for about 4 us after each launch: a chain of multiplications, which takes as long
 * whatever the launch leaves in the caches. The same number in every process: to measure it anew in each would add an error
 * larger than what is to be seen. */
enum { PAUSE = 4500 };
static void pause_some(long rounds) {
    unsigned long chain = 1;
    for (long i = 0; i < rounds; i++) {
        chain *= 0x9e3779b97f4a7c15ul;
        __asm__ volatile("" : "+r"(chain));
    }
}
static void do_paced(__typeof__(&cuLaunchKernel) launch, long n) {
    void *args[1] = {&stream};
    for (long i = 0; i < n; i++) {
        launch(function, 128, 1, 1, 256, 1, 1, 0, stream, args, NULL);
        pause_some(PAUSE);
    }
}
static void do_launch_ex(long n) {
    void *args[1] = {&stream};
    CUlaunchConfig config = {128, 1, 1, 256, 1, 1, 0, stream, NULL, 0};
    for (long i = 0; i < n; i++) launch_ex(&config, function, args, NULL);
}
static void do_alloc_free(long n) {
    CUdeviceptr block;
    for (long i = 0; i < n; i++) {
        mem_alloc(&block, 1 << 20);
        mem_free(block);
    }
}
static void do_pool_pair(long n) {
    CUdeviceptr block;
    for (long i = 0; i < n; i++) {
        alloc_async(&block, 1 << 20, stream);
        free_async(block, stream);
    }
}
static void do_create_release(long n) {
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp prop = {.type = 1, .location = {1, 0}};
    for (long i = 0; i < n; i++) {
        mem_create(&handle, 2 << 20, &prop, 0);
        mem_release(handle);
    }
}
static void do_mem_info(long n) {
    size_t free_bytes, total;
    for (long i = 0; i < n; i++) mem_info(&free_bytes, &total);
}
static void do_graph1(long n) {
    for (long i = 0; i < n; i++) graph_launch(graph1, stream);
}
static void do_graph50(long n) {
    for (long i = 0; i < n; i++) graph_launch(graph50, stream);
}

static const struct {
    const char *name;
    void (*run)(long);
    int at_every_live;
} benches[] = {
    {"launch", do_launch, 0},
    {"launchEx", do_launch_ex, 0},
    {"alloc+free", do_alloc_free, 1},
    {"pool pair", do_pool_pair, 1},
    {"create+release", do_create_release, 1},
    {"memGetInfo", do_mem_info, 0},
    {"graph of 1", do_graph1, 0},
    {"graph of 50", do_graph50, 0},
};
enum { BENCHES = sizeof benches / sizeof *benches };

static CUgraphExec graph_of(int nodes) {
    CUgraph graph;
    CUgraphExec exec;
    void *args[1] = {&stream};
    CUDA_KERNEL_NODE_PARAMS params = {function, 128, 1, 1, 256, 1, 1, 0, args, NULL, NULL, NULL};
    OK(CU(cuGraphCreate)(&graph, 0));
    for (int i = 0; i < nodes; i++) {
        CUgraphNode node;
        OK(CU(cuGraphAddKernelNode_v2)(&node, graph, NULL, 0, &params));
    }
    OK(CU(cuGraphInstantiateWithFlags)(&exec, graph, 0));
    return exec;
}

static void prepare(void) {
    context = use_device(0);
    function = load_kernel("nothing");
    OK(CU(cuStreamCreate)(&stream, 1));
    launch = CU(cuLaunchKernel);
    launch_ex = CU(cuLaunchKernelEx);
    mem_alloc = CU(cuMemAlloc_v2);
    mem_free = CU(cuMemFree_v2);
    alloc_async = CU(cuMemAllocAsync);
    free_async = CU(cuMemFreeAsync);
    mem_create = CU(cuMemCreate);
    mem_release = CU(cuMemRelease);
    mem_info = CU(cuMemGetInfo_v2);
    graph_launch = CU(cuGraphLaunch);
    graph1 = graph_of(1);
    graph50 = graph_of(50);
}

static void fill(long *have, long want) {
    for (; *have < want; ++*have) {
        CUdeviceptr block;
        OK(mem_alloc(&block, 1 << 20));
    }
}

/* Rounds of the yardstick: some microseconds. */
enum { ROUNDS = 5000 };

/* Independent additions: bound by how many instructions the core takes in. Nanoseconds per round. */
static double yardstick(void) {
    unsigned long a = 0, b = 0, c = 0, d = 0, e = 0, f = 0;
    double start = now();
    for (int i = 0; i < ROUNDS; i++) {
        a++, b++, c++, d++, e++, f++;
        __asm__ volatile("" : "+r"(a), "+r"(b), "+r"(c), "+r"(d), "+r"(e), "+r"(f));
        a++, b++, c++, d++, e++, f++;
        __asm__ volatile("" : "+r"(a), "+r"(b), "+r"(c), "+r"(d), "+r"(e), "+r"(f));
    }
    return (now() - start) / ROUNDS;
}

struct sample {
    double before, nanos, after;
};
struct worker {
    int bench, batches;
    long batch;
    struct sample *samples;
};
static pthread_barrier_t barrier;

static void *work(void *arg) {
    struct worker *worker = arg;
    OK(CU(cuCtxSetCurrent)(context));
    benches[worker->bench].run(worker->batch / 8 + 1);
    for (int b = 0; b < worker->batches; b++) {
        struct sample *sample = &worker->samples[b];
        pthread_barrier_wait(&barrier);
        sample->before = yardstick();
        double start = now();
        benches[worker->bench].run(worker->batch);
        sample->nanos = (now() - start) / worker->batch;
        sample->after = yardstick();
    }
    return NULL;
}

static void print_samples(const struct sample *samples, int n) {
    for (int i = 0; i < n; i++) printf("\t%.4f:%.3f:%.4f", samples[i].before, samples[i].nanos, samples[i].after);
}

static void measure(int bench, int threads, long batch, int batches) {
    struct worker workers[16];
    pthread_t ids[16];
    if (!strcmp(benches[bench].name, "graph of 50")) batch = batch / 8 + 1;
    pthread_barrier_init(&barrier, NULL, threads);
    for (int t = 0; t < threads; t++) {
        workers[t] = (struct worker){bench, batches, batch, calloc(batches, sizeof(struct sample))};
        if (t) pthread_create(&ids[t], NULL, work, &workers[t]);
    }
    work(&workers[0]);
    for (int t = 1; t < threads; t++) pthread_join(ids[t], NULL);
    for (int t = 0; t < threads; t++) {
        print_samples(workers[t].samples, batches);
        free(workers[t].samples);
    }
    pthread_barrier_destroy(&barrier);
}

/* Batches in turn through the shim and past it, by the driver's own function: what disturbs one disturbs the other. Time
 * is the thread's own on the processor, so that programs that come between do not count. */
static void measure_pairs(long batch, int pairs) {
    void *(*own)(const char *) = (void *(*)(const char *))dlsym(driver_library(), "radrm_instant_own");
    MUST(own && pairs >= 1);
    __typeof__(&cuLaunchKernel) ways[2] = {(__typeof__(&cuLaunchKernel))own("cuLaunchKernel"), launch};
    struct sample *samples[2] = {calloc(pairs, sizeof(struct sample)), calloc(pairs, sizeof(struct sample))};
    MUST(ways[0] && ways[1]);
    do_paced(ways[0], 1000);
    do_paced(ways[1], 10000);
    for (int p = 0; p < pairs; p++) {
        double before = yardstick();
        for (int turn = 0; turn < 2; turn++) {
            int way = (p + turn) & 1;
            double start = clock_of(CLOCK_THREAD_CPUTIME_ID);
            do_paced(ways[way], batch);
            double nanos = (clock_of(CLOCK_THREAD_CPUTIME_ID) - start) / batch, after = yardstick();
            samples[way][p] = (struct sample){before, nanos, after};
            before = after;
        }
    }
    for (int way = 0; way < 2; way++) {
        printf("%s\t1\t1", way ? "through" : "past");
        print_samples(samples[way], pairs);
        putchar('\n');
        free(samples[way]);
    }
}

static long resident_kib(void) {
    long size, resident;
    FILE *file = fopen("/proc/self/statm", "r");
    MUST(file && fscanf(file, "%ld %ld", &size, &resident) == 2);
    fclose(file);
    return resident * 4;
}

int main(int argc, char **argv) {
    if (argc == 2 && !strcmp(argv[1], "clock")) {
        printf("%.0f\n", now());
        return 0;
    }
    if (argc >= 2 && !strcmp(argv[1], "start")) {
        OK(CU(cuInit)(0));
        return 0;
    }
    if (argc == 2 && !strcmp(argv[1], "hold")) {
        long have = 0;
        prepare();
        fill(&have, 1);
        pause_here();
        return 0;
    }
    if (argc == 3 && !strcmp(argv[1], "launches")) {
        prepare();
        do_launch(100000);
        long before = resident_kib();
        do_launch(atol(argv[2]));
        printf("%ld %ld\n", before, resident_kib());
        return 0;
    }
    if (argc == 5 && !strcmp(argv[1], "count")) {
        long have = 0;
        prepare();
        fill(&have, atol(argv[3]));
        for (int i = 0; i < BENCHES; i++)
            if (!strcmp(benches[i].name, argv[2])) {
                benches[i].run(atol(argv[4]));
                return 0;
            }
        return 45;
    }
    if (argc == 4 && !strcmp(argv[1], "paced")) {
        prepare();
        measure_pairs(atol(argv[2]), atoi(argv[3]));
        fflush(stdout);
        return 0;
    }
    if (argc < 6 || strcmp(argv[1], "time")) return 46;
    int threads = atoi(argv[2]), batches = atoi(argv[4]);
    long batch = atol(argv[3]), have = 0;
    const char *only = getenv("ONLY"); /* one of the calls */
    MUST(threads >= 1 && threads <= 16 && batches >= 1 && batch >= 1);
    prepare();
    for (int l = 5; l < argc; l++) {
        long live = atol(argv[l]);
        fill(&have, live);
        for (int i = 0; i < BENCHES; i++)
            if ((l == 5 || benches[i].at_every_live) && (!only || !strcmp(only, benches[i].name))) {
                printf("%s\t%ld\t%d", benches[i].name, live, threads);
                measure(i, threads, batch, batches);
                putchar('\n');
            }
    }
    fflush(stdout);
    return 0;
}
