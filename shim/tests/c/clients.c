/* One program per hazard, chosen by the first argument. */
#include "client.h"
#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>

/* Every launch entry point once, `n` times each; the arguments must reach the driver. */
static void launches(int n) {
    for (int i = 0; i < n; i++) {
        struct config c = {2, 3, 4, 5, 6, 7, 8};
        struct many two[2] = {{function("multi"), 2, 1, 1, 32, 1, 1, 9, 0, 0}, {function("multi"), 2, 1, 1, 32, 1, 1, 9, 0, 0}};
        unsigned long before = fake_sum();
        static H f[8];
        static const char *names[] = {"plain", "plain_ptsz", "coop", "coop_ptsz", "ex", "nested", "old", "fails"};
        for (int k = 0; k < 8 && !f[k]; k++) f[k] = function(names[k]);
        OK(cuLaunchKernel(f[0], 2, 3, 4, 5, 6, 7, 8, (H)100, (H *)200, (H *)300));
        if (fake_sum() - before != 635) exit(43);
        OK(cuLaunchKernel_ptsz(f[1], 2, 3, 4, 5, 6, 7, 8, (H)100, (H *)200, NULL));
        OK(cuLaunchCooperativeKernel(f[2], 2, 3, 4, 5, 6, 7, 8, (H)100, (H *)200));
        OK(cuLaunchCooperativeKernel_ptsz(f[3], 2, 3, 4, 5, 6, 7, 8, (H)100, (H *)200));
        if (fake_sum() - before != 635 + 3 * 335) exit(44);
        OK(cuLaunchKernelEx(&c, f[4], NULL, NULL));
        OK(cuLaunchKernelEx_ptsz(&c, f[5], NULL, NULL));
        OK(cuFuncSetBlockShape(f[6], 4, 4, 4));
        OK(cuLaunch(f[6]));
        OK(cuLaunchGrid(f[6], 3, 3));
        OK(cuLaunchGridAsync(f[6], 2, 5, NULL));
        if (cuLaunchKernel(f[7], 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL) != 719) exit(45);
        if (cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL) != 400) exit(46);
        if (n == 1) OK(cuLaunchCooperativeKernelMultiDevice(two, 2, 0));
    }
}

static void launch(H f, H stream) { OK(cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL)); }

/* The same handles under other names after an unload. */
static void reuse(void) {
    for (int i = 0; i < 50; i++) {
        char name[16];
        snprintf(name, sizeof name, "round%d", i % 5);
        H f = function(name);
        for (int k = 0; k <= i % 5; k++) launch(f, NULL);
        OK(cuModuleUnload(module));
        module = NULL;
    }
}

static void kernels(void) {
    H library, kernel, f;
    OK(cuLibraryLoadData(&library, "", 0, 0, 0, 0, 0, 0));
    OK(cuLibraryGetKernel(&kernel, library, "as_kernel"));
    launch(kernel, NULL);
    OK(cuKernelGetFunction(&f, kernel));
    launch(f, NULL);
}

static void names(void) {
    char name[1500];
    memset(name, 'n', sizeof name - 1), name[sizeof name - 1] = 0;
    launch(function(name), NULL);
    launch(function(""), NULL);
}

static int stream;
static void *other_thread(void *f) { return launch(f, NULL), NULL; }
static void captures(void) {
    H graph, f = function("captured"), unseen = function("unseen");
    pthread_t thread;
    launch(f, &stream);
    OK(cuStreamBeginCapture_v2(&stream, 0));
    for (int i = 0; i < 10; i++) launch(f, &stream);
    for (int i = 0; i < 3; i++) launch(f, NULL);
    pthread_create(&thread, NULL, other_thread, unseen), pthread_join(thread, NULL);
    OK(cuStreamEndCapture(&stream, &graph));
    if (cuStreamEndCapture(&stream, &graph) != 903) exit(43);
    launch(f, &stream);
    if (fake_broken()) exit(44);
}

static struct params work(H f, unsigned blocks) {
    return (struct params){.f = f, .gx = blocks, .gy = 1, .gz = 1, .bx = 10, .by = 1, .bz = 1, .shared = 2 * blocks};
}
static H node(H graph, H f, unsigned blocks) {
    H n;
    struct params p = work(f, blocks);
    OK(cuGraphAddKernelNode_v2(&n, graph, 0, 0, &p));
    return n;
}
static void graphs(long updates) {
    H main_graph, child, exec, a = function("a"), b = function("b"), n, child_node, empty;
    OK(cuGraphCreate(&main_graph, 0)), OK(cuGraphCreate(&child, 0));
    node(child, b, 7);
    n = node(main_graph, a, 1), node(main_graph, a, 2), node(main_graph, b, 3);
    OK(cuGraphAddChildGraphNode(&child_node, main_graph, 0, 0, child));
    OK(cuGraphAddEmptyNode(&empty, main_graph, 0, 0));
    OK(cuGraphInstantiateWithFlags(&exec, main_graph, 0));
    OK(cuGraphLaunch(exec, NULL)); /* a 2 launches, 3 blocks; b 2, 10 */
    struct params p = work(b, 100);
    OK(cuGraphExecKernelNodeSetParams_v2(exec, n, &p));
    OK(cuGraphLaunch(exec, NULL)); /* a 1, 2; b 3, 110 */
    OK(cuGraphNodeSetEnabled(exec, n, 0));
    OK(cuGraphLaunch(exec, NULL)); /* a 1, 2; b 2, 10 */
    H other_child;
    OK(cuGraphCreate(&other_child, 0)), node(other_child, a, 50);
    OK(cuGraphExecChildGraphNodeSetParams(exec, child_node, other_child));
    OK(cuGraphLaunch(exec, NULL)); /* a 2, 52; b 1, 3 */
    struct { int kind, reserved[3]; struct params p; char rest[200]; } any = {0, {0}, work(a, 1000), {0}};
    OK(cuGraphNodeSetEnabled(exec, n, 1));
    OK(cuGraphExecNodeSetParams(exec, n, &any));
    OK(cuGraphLaunch(exec, NULL)); /* a 3, 1052; b 1, 3 */
    OK(cuGraphLaunch(exec, (H)&stream));
    OK(cuStreamBeginCapture_v2(&stream, 0));
    OK(cuGraphLaunch(exec, (H)&stream)); /* nothing */
    OK(cuStreamEndCapture(&stream, &empty));
    struct rusage before, after;
    for (long i = 0; i < updates; i++) {
        if (i == updates / 10) getrusage(RUSAGE_SELF, &before);
        OK(cuGraphExecUpdate_v2(exec, main_graph, NULL));
        if (i % 100 == 0) {
            H again;
            OK(cuGraphInstantiateWithFlags(&again, main_graph, 0));
            OK(cuGraphExecDestroy(again));
        }
    }
    getrusage(RUSAGE_SELF, &after);
    if (updates && after.ru_maxrss > before.ru_maxrss + 256) fprintf(stderr, "grew by %ld KiB\n", after.ru_maxrss - before.ru_maxrss), exit(43);
    OK(cuGraphExecUpdate_v2(exec, main_graph, NULL));
    OK(cuGraphLaunch(exec, NULL)); /* a 2, 3; b 2, 10 */
    OK(cuGraphExecDestroy(exec));
}

static void forked(void) {
    H f = function("parent"), g = function("child");
    for (int i = 0; i < 5; i++) launch(f, NULL);
    pid_t pid = fork();
    if (!pid) {
        for (int i = 0; i < 3; i++) launch(g, NULL);
        _exit(0);
    }
    int status;
    waitpid(pid, &status, 0);
    if (status) exit(43);
    launch(f, NULL);
}

static void contexts(void) {
    H c[3], primary;
    for (int i = 0; i < 3; i++) OK(cuCtxCreate_v2(&c[i], 0, 0));
    OK(cuDevicePrimaryCtxRetain(&primary, 0)), OK(cuDevicePrimaryCtxRetain(&primary, 0));
    OK(cuCtxDestroy_v2(c[1]));
    OK(cuDevicePrimaryCtxRelease_v2(0));
}

static void *many_launches(void *f) {
    for (int i = 0; i < 1000; i++) launch(f, NULL);
    return NULL;
}
static void threads(void) {
    H f = function("from_threads");
    for (int round = 0; round < 3; round++) {
        pthread_t t[100];
        for (int i = 0; i < 100; i++) pthread_create(&t[i], NULL, many_launches, f);
        for (int i = 0; i < 100; i++) pthread_join(t[i], NULL);
    }
}

static int cleanups;
static void clean_up(void *by) { cleanups += *(int *)by; }
static void *leaves(void *stream) {
    int one = 1;
    pthread_cleanup_push(clean_up, &one);
    cuStreamSynchronize(stream);
    pthread_cleanup_pop(0);
    return NULL;
}
/* Threads end inside the driver; their own frames are cleaned up, and the others go on. */
static void left(void) {
    H f = function("after_threads_left");
    for (long i = 1; i <= 5; i++) {
        pthread_t t;
        void *result = NULL;
        launch(f, NULL);
        pthread_create(&t, NULL, leaves, (void *)i);
        pthread_join(t, &result);
        if (result != (void *)i || cleanups != i) exit(47);
    }
    launch(f, NULL);
}

int main(int argc, char **argv) {
    OK(cuInit(0));
    const char *what = argv[1];
    long n = argc > 2 ? atol(argv[2]) : 1;
    if (!strcmp(what, "launches")) launches((int)n);
    else if (!strcmp(what, "reuse")) reuse();
    else if (!strcmp(what, "kernels")) kernels();
    else if (!strcmp(what, "names")) names();
    else if (!strcmp(what, "captures")) captures();
    else if (!strcmp(what, "graphs")) graphs(n);
    else if (!strcmp(what, "forked")) forked();
    else if (!strcmp(what, "contexts")) contexts();
    else if (!strcmp(what, "threads")) threads();
    else if (!strcmp(what, "left")) left();
    else return 2;
    return 0;
}
