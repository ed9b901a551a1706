/* Makes the driver calls that its arguments name, one step each, so that a test can say what
 * happens where it says what must come out of it. A step is NAME:ARG:ARG...; a slot is one
 * character that keeps a handle or an address. Every call has to succeed unless the step says so; with an
 * exclamation mark before the step's name it has to be refused for want of memory, and nothing else. */
#include "driver.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

static int refusal;

static void outcome(CUresult result, const char *call, int line) {
    if (result == (refusal ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS)) return;
    fprintf(stderr, "%s:%d: %s%s = %u\n", __FILE__, line, refusal ? "not refused: " : "", call, result);
    _exit(42);
}

#undef OK
#define OK(call) outcome(call, #call, __LINE__)

static unsigned long long slot[256];
static void *host[256];
static CUfunction function;
static CUcontext first_context;

static unsigned long long number(const char *text) {
    char *end;
    unsigned long long value = strtoull(text, &end, 0);
    switch (*end) {
    case 'k': return value << 10;
    case 'm': return value << 20;
    case 'g': return value << 30;
    default: return value;
    }
}

static CUfunction kernel(void) {
    if (!function) function = load_kernel("nothing");
    return function;
}

static CUmemAllocationProp on_device(int device) {
    return (CUmemAllocationProp){.type = 1, .requestedHandleTypes = 1, .location = {1, device}};
}

static CUgraph graph_with_memory(size_t bytes) {
    CUgraph graph;
    CUgraphNode alloc, release;
    CUDA_MEM_ALLOC_NODE_PARAMS params = {.poolProps = {.allocType = 1, .location = {1, 0}}, .bytesize = bytes};
    OK(CU(cuGraphCreate)(&graph, 0));
    OK(CU(cuGraphAddMemAllocNode)(&alloc, graph, NULL, 0, &params));
    OK(CU(cuGraphAddMemFreeNode)(&release, graph, &alloc, 1, params.dptr));
    return graph;
}

static void *in_thread(void *step);

static char **arguments;

/* As setproctitle does: the strings of arguments and environment, which lie one behind the other, become the title. */
static void set_title(const char *title) {
    char *start = arguments[0], *end = start;
    for (char **at = arguments; *at; at++)
        if (*at == end) end += strlen(*at) + 1;
    for (char **at = environ; *at; at++)
        if (*at == end) end += strlen(*at) + 1;
    for (int i = 1; arguments[i]; i++) arguments[i] = strdup(arguments[i]);
    int count = 0;
    while (environ[count]) count++;
    char **moved = calloc(count + 1, sizeof *moved);
    while (count--) moved[count] = strdup(environ[count]);
    environ = moved;
    char copy[256];
    snprintf(copy, sizeof copy, "%s", title);
    memset(start, 0, end - start);
    snprintf(start, end - start, "%s", copy);
}

#define ARG(i) (arg[i] ? arg[i] : (fprintf(stderr, "%s: argument %d is missing\n", arg[0], i), _exit(46), ""))
#define SLOT(i) slot[(unsigned char)*ARG(i)]
#define PTR(i, type) ((type)(uintptr_t)SLOT(i))
#define N(i) number(ARG(i))
#define IS(name) (!strcmp(arg[0], name))

static void step(const char *text) {
    char copy[256], *arg[8] = {0}, *rest = copy;
    refusal = *text == '!';
    text += refusal;
    snprintf(copy, sizeof copy, "%s", text);
    for (int i = 0; i < 8 && rest; i++) arg[i] = strsep(&rest, ":");

    if (IS("init")) OK(CU(cuInit)(0));
    else if (IS("use")) first_context = use_device(N(1));
    else if (IS("primary")) {
        CUcontext context;
        OK(CU(cuDevicePrimaryCtxRetain)(&context, N(1)));
    } else if (IS("current")) OK(CU(cuCtxSetCurrent)(first_context));
    else if (IS("context")) {
        CUcontext context;
        OK(CU(cuCtxCreate_v2)(&context, 0, N(2)));
        SLOT(1) = (uintptr_t)context;
    } else if (IS("green")) {
        CUdevResource all;
        CUdevResourceDesc part;
        CUcontext context;
        OK(CU(cuDeviceGetDevResource)(N(2), &all, 1));
        OK(CU(cuDevResourceGenerateDesc)(&part, &all, 1));
        OK(CU(cuGreenCtxCreate)((CUgreenCtx *)&SLOT(1), part, N(2), 1));
        OK(CU(cuCtxFromGreenCtx)(&context, PTR(1, CUgreenCtx)));
        OK(CU(cuCtxSetCurrent)(context));
    } else if (IS("greengone")) OK(CU(cuGreenCtxDestroy)(PTR(1, CUgreenCtx)));
    else if (IS("destroy")) OK(CU(cuCtxDestroy_v2)(PTR(1, CUcontext)));
    else if (IS("reset")) OK(CU(cuDevicePrimaryCtxReset_v2)(N(1)));
    else if (IS("alloc")) OK(CU(cuMemAlloc_v2)(&SLOT(1), N(2)));
    else if (IS("sms")) {
        int sms;
        OK(CU(cuDeviceGetAttribute)(&sms, 16, N(1)));
        printf("sms %d\n", sms);
        fflush(stdout);
    }
    else if (IS("free")) OK(CU(cuMemFree_v2)(SLOT(1)));
    else if (IS("pitch")) {
        size_t pitch;
        OK(CU(cuMemAllocPitch_v2)(&SLOT(1), &pitch, N(2), N(3), 4));
        MUST(pitch >= N(2));
    } else if (IS("managed")) OK(CU(cuMemAllocManaged)(&SLOT(1), N(2), 1));
    else if (IS("hostalloc")) OK(CU(cuMemHostAlloc)(&host[(unsigned char)*ARG(1)], N(2), 0));
    else if (IS("allochost")) OK(CU(cuMemAllocHost_v2)(&host[(unsigned char)*ARG(1)], N(2)));
    else if (IS("freehost")) OK(CU(cuMemFreeHost)(host[(unsigned char)*ARG(1)]));
    else if (IS("register")) {
        void **p = &host[(unsigned char)*ARG(1)];
        MUST(!posix_memalign(p, 4096, N(2)));
        OK(CU(cuMemHostRegister_v2)(*p, N(2), 0));
    } else if (IS("unregister")) OK(CU(cuMemHostUnregister)(host[(unsigned char)*ARG(1)]));
    else if (IS("array")) {
        CUarray array;
        CUDA_ARRAY_DESCRIPTOR d = {N(2), N(3), CU_ARRAY_FLOAT, 4};
        OK(CU(cuArrayCreate_v2)(&array, &d));
        SLOT(1) = (uintptr_t)array;
    } else if (IS("array3d")) {
        CUarray array;
        CUDA_ARRAY3D_DESCRIPTOR d = {N(2), N(3), N(4), CU_ARRAY_UNSIGNED_INT8, 1, 0};
        OK(CU(cuArray3DCreate_v2)(&array, &d));
        SLOT(1) = (uintptr_t)array;
    } else if (IS("freearray")) OK(CU(cuArrayDestroy)(PTR(1, CUarray)));
    else if (IS("mipmap")) {
        CUmipmappedArray array;
        CUDA_ARRAY3D_DESCRIPTOR d = {N(2), N(3), 0, CU_ARRAY_FLOAT, 1, 0};
        OK(CU(cuMipmappedArrayCreate)(&array, &d, N(4)));
        SLOT(1) = (uintptr_t)array;
    } else if (IS("freemipmap")) OK(CU(cuMipmappedArrayDestroy)(PTR(1, CUmipmappedArray)));
    else if (IS("create")) {
        CUmemAllocationProp prop = on_device(N(3));
        OK(CU(cuMemCreate)(&SLOT(1), N(2), &prop, 0));
    } else if (IS("createhost")) {
        CUmemAllocationProp prop = {.type = 1, .location = {2, 0}};
        OK(CU(cuMemCreate)(&SLOT(1), N(2), &prop, 0));
    } else if (IS("release")) OK(CU(cuMemRelease)(SLOT(1)));
    else if (IS("reserve")) OK(CU(cuMemAddressReserve)(&SLOT(1), N(2), 0, 0, 0));
    else if (IS("unreserve")) OK(CU(cuMemAddressFree)(SLOT(1), N(2)));
    else if (IS("map")) OK(CU(cuMemMap)(SLOT(1), N(3), 0, SLOT(2), 0));
    else if (IS("unmap")) OK(CU(cuMemUnmap)(SLOT(1), N(2)));
    else if (IS("retain")) OK(CU(cuMemRetainAllocationHandle)(&SLOT(1), (void *)(uintptr_t)SLOT(2)));
    else if (IS("export")) {
        int fd = -1;
        OK(CU(cuMemExportToShareableHandle)(&fd, SLOT(2), 1, 0));
        SLOT(1) = fd;
    } else if (IS("import")) OK(CU(cuMemImportFromShareableHandle)(&SLOT(1), (void *)(uintptr_t)SLOT(2), 1));
    else if (IS("async")) OK(CU(cuMemAllocAsync)(&SLOT(1), N(2), NULL));
    else if (IS("asyncpt")) OK(CU(cuMemAllocAsync_ptsz)(&SLOT(1), N(2), NULL));
    else if (IS("freeasync")) OK(CU(cuMemFreeAsync)(SLOT(1), NULL));
    else if (IS("freeasyncpt")) OK(CU(cuMemFreeAsync_ptsz)(SLOT(1), NULL));
    else if (IS("pool")) {
        CUmemoryPool pool;
        CUmemPoolProps props = {.allocType = 1, .location = {1, N(2)}};
        OK(CU(cuMemPoolCreate)(&pool, &props));
        SLOT(1) = (uintptr_t)pool;
    } else if (IS("defaultpool")) {
        CUmemoryPool pool;
        OK(CU(cuDeviceGetDefaultMemPool)(&pool, N(2)));
        SLOT(1) = (uintptr_t)pool;
    } else if (IS("keep")) {
        unsigned long long bytes = N(2);
        OK(CU(cuMemPoolSetAttribute)(PTR(1, CUmemoryPool), CU_POOL_RELEASE_THRESHOLD, &bytes));
    } else if (IS("frompool")) OK(CU(cuMemAllocFromPoolAsync)(&SLOT(1), N(3), PTR(2, CUmemoryPool), NULL));
    else if (IS("trim")) OK(CU(cuMemPoolTrimTo)(PTR(1, CUmemoryPool), N(2)));
    else if (IS("freepool")) OK(CU(cuMemPoolDestroy)(PTR(1, CUmemoryPool)));
    else if (IS("sync")) OK(CU(cuCtxSynchronize)());
    else if (IS("syncstream")) OK(CU(cuStreamSynchronize)(NULL));
    else if (IS("memgraph")) {
        CUgraphExec exec;
        OK(CU(cuGraphInstantiateWithFlags)(&exec, graph_with_memory(N(2)), 0));
        SLOT(1) = (uintptr_t)exec;
    } else if (IS("kernelgraph")) {
        CUgraph graph;
        CUgraphExec exec;
        void *p = NULL, *args[1] = {&p};
        CUDA_KERNEL_NODE_PARAMS params = {kernel(), 4, 1, 1, 32, 1, 1, 0, args, NULL, NULL, NULL};
        OK(CU(cuGraphCreate)(&graph, 0));
        for (unsigned long long i = 0; i < N(2); i++) {
            CUgraphNode node;
            OK(CU(cuGraphAddKernelNode_v2)(&node, graph, NULL, 0, &params));
        }
        OK(CU(cuGraphInstantiateWithFlags)(&exec, graph, 0));
        SLOT(1) = (uintptr_t)exec;
    } else if (IS("launchgraph")) OK(CU(cuGraphLaunch)(PTR(1, CUgraphExec), NULL));
    else if (IS("freegraph")) OK(CU(cuGraphExecDestroy)(PTR(1, CUgraphExec)));
    else if (IS("trimgraphs")) OK(CU(cuDeviceGraphMemTrim)(N(1)));
    else if (IS("capture")) {
        CUstream stream;
        OK(CU(cuStreamCreate)(&stream, 1));
        OK(CU(cuStreamBeginCapture_v2)(stream, 0));
        SLOT(1) = (uintptr_t)stream;
    } else if (IS("launchin")) {
        void *p = NULL, *args[1] = {&p};
        for (unsigned long long i = 0; i < N(2); i++)
            OK(CU(cuLaunchKernel)(kernel(), 4, 1, 1, 32, 1, 1, 0, PTR(1, CUstream), args, NULL));
    } else if (IS("asyncin")) OK(CU(cuMemAllocAsync)(&SLOT(2), N(3), PTR(1, CUstream)));
    else if (IS("freeasyncin")) OK(CU(cuMemFreeAsync)(SLOT(2), PTR(1, CUstream)));
    else if (IS("endcapture")) {
        CUgraph graph;
        CUgraphExec exec;
        OK(CU(cuStreamEndCapture)(PTR(1, CUstream), &graph));
        MUST(graph);
        OK(CU(cuGraphInstantiateWithFlags)(&exec, graph, 0));
        SLOT(1) = (uintptr_t)exec;
    } else if (IS("load")) kernel();
    else if (IS("launch")) {
        void *p = NULL, *args[1] = {&p};
        for (unsigned long long i = 0; i < N(1); i++)
            OK(CU(cuLaunchKernel)(kernel(), 4, 2, 1, 32, 2, 1, 64, NULL, args, NULL));
    } else if (IS("launchpt")) {
        void *p = NULL, *args[1] = {&p};
        for (unsigned long long i = 0; i < N(1); i++)
            OK(CU(cuLaunchKernel_ptsz)(kernel(), 4, 2, 1, 32, 2, 1, 64, NULL, args, NULL));
    } else if (IS("launchex")) {
        void *p = NULL, *args[1] = {&p};
        CUlaunchConfig config = {4, 2, 1, 32, 2, 1, 64, NULL, NULL, 0};
        for (unsigned long long i = 0; i < N(1); i++) OK(CU(cuLaunchKernelEx)(&config, kernel(), args, NULL));
    } else if (IS("cooperative")) {
        void *p = NULL, *args[1] = {&p};
        for (unsigned long long i = 0; i < N(1); i++)
            OK(CU(cuLaunchCooperativeKernel)(kernel(), 4, 2, 1, 32, 2, 1, 64, NULL, args));
    } else if (IS("toomuch")) MUST(CU(cuMemAlloc_v2)(&SLOT(1), N(2)) == CUDA_ERROR_OUT_OF_MEMORY);
    else if (IS("toomuchcreate")) {
        CUmemAllocationProp prop = on_device(0);
        MUST(CU(cuMemCreate)(&SLOT(1), N(2), &prop, 0) == CUDA_ERROR_OUT_OF_MEMORY);
    } else if (IS("toomuchasync")) MUST(CU(cuMemAllocAsync)(&SLOT(1), N(2), NULL) == CUDA_ERROR_OUT_OF_MEMORY);
    else if (IS("infonull")) {
        size_t total = 0;
        CUresult result = CU(cuMemGetInfo_v2)(NULL, &total);
        printf("infonull %u %zu\n", result, total);
    } else if (IS("info")) {
        size_t free_bytes, total;
        OK(CU(cuMemGetInfo_v2)(&free_bytes, &total));
        printf("info %zu %zu\n", free_bytes, total);
    } else if (IS("peer")) {
        int can = 0;
        CUcontext other;
        OK(CU(cuDeviceCanAccessPeer)(&can, 0, 1));
        OK(CU(cuDevicePrimaryCtxRetain)(&other, 1));
        if (can) OK(CU(cuCtxEnablePeerAccess)(other, 0));
        printf("peer %d\n", can);
    } else if (IS("uuid")) {
        CUuuid uuid;
        OK(CU(cuDeviceGetUuid_v2)(&uuid, N(1)));
        printf("uuid ");
        for (int i = 0; i < 16; i++) printf("%02x", uuid.bytes[i]);
        printf("\n");
    } else if (IS("thread")) {
        /* the rest of the text is a step with '.' for ':' that runs in a thread of its own, with no
         * context current */
        pthread_t id;
        MUST(!pthread_create(&id, NULL, in_thread, (void *)(text + strlen("thread:"))));
        pthread_join(id, NULL);
    } else if (IS("sleep")) usleep(N(1) * 1000);
    else if (IS("mark")) {
        /* of the preloaded library */
        void (*mark)(const char *) = (void (*)(const char *))dlsym(RTLD_DEFAULT, "radrm_mark");
        MUST(mark);
        mark(ARG(1));
    } else if (IS("clearenv")) clearenv();
    else if (IS("lookup")) MUST(dlsym(RTLD_DEFAULT, "strlen"));
    else if (IS("unsetall")) while (*environ) MUST(!unsetenv(strndup(*environ, strcspn(*environ, "="))));
    else if (IS("unset")) unsetenv(ARG(1));
    else if (IS("set")) setenv(ARG(1), ARG(2), 1);
    else if (IS("title")) set_title(ARG(1));
    else if (IS("sees")) { /* free and total bytes, by every call of the driver */
        size_t free = 1, total = 1, of_device = 1;
        OK(CU(cuMemGetInfo_v2)(&free, &total));
        OK(CU(cuDeviceTotalMem_v2)(&of_device, 0));
        if (free != N(1) || total != N(2) || of_device != N(2)) {
            fprintf(stderr, "saw %zu of %zu free, of the device %zu\n", free, total, of_device);
            _exit(47);
        }
    } else if (IS("pause")) pause_here();
    else if (IS("exit")) exit(N(1));
    else if (IS("kill")) raise(SIGKILL);
    else {
        fprintf(stderr, "unknown step %s\n", text);
        _exit(46);
    }
}

static void *in_thread(void *text) {
    char copy[256];
    snprintf(copy, sizeof copy, "%s", (const char *)text);
    for (char *c = copy; *c; c++)
        if (*c == '.') *c = ':';
    step(copy);
    return NULL;
}

int main(int argc, char **argv) {
    arguments = argv;
    for (int i = 1; i < argc; i++) {
        /* `100x:STEP` makes a step 100 times; `fork:N` goes on in N children, `exec` in another program */
        char *times = strstr(argv[i], "x:");
        char *end;
        unsigned long count = strtoul(argv[i], &end, 10);
        if (times && end == times && count) {
            while (count--) step(times + 2);
        } else if (!strncmp(argv[i], "fork:", 5)) {
            int children = atoi(argv[i] + 5), status, wrong = 0;
            while (children-- > 0)
                if (fork() == 0) goto next;
            while (wait(&status) > 0) wrong |= status;
            fflush(stdout);
            return wrong ? 45 : 0;
        next:;
        } else if (!strcmp(argv[i], "exec")) {
            argv[i] = argv[0];
            execv("/proc/self/exe", argv + i);
            return 47;
        } else {
            step(argv[i]);
        }
    }
    fflush(stdout);
    return 0;
}
