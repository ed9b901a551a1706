/* Ranges and marks of NVTX around allocations of known sizes. usage: ranges WHAT [N] */
#include "driver.h"
#include "nvtx.h"
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

#define MIB(n) ((size_t)(n) << 20)
static CUcontext context;

static CUdeviceptr hold(size_t mib) {
    CUdeviceptr block;
    OK(CU(cuMemAlloc_v2)(&block, MIB(mib)));
    return block;
}
static void release(CUdeviceptr block) { OK(CU(cuMemFree_v2)(block)); }

/* outer: begins with 10 MiB, 110 MiB at most, ends with 30; inner: 10, 60, 10; late: 30, 30, 30 */
static void nested(void) {
    CUdeviceptr kept = hold(10), block, other;
    nvtxRangePushA("outer");
    nvtxRangePushA("inner");
    release(hold(50));
    MUST(nvtxRangePop() == 1);
    block = hold(100);
    release(block);
    other = hold(20);
    nvtxRangePushA("late");
    MUST(nvtxRangePop() == 1);
    nvtxMarkA("half way");
    MUST(nvtxRangePop() == 0);
    release(other);
    release(kept);
}

/* The first call of the driver comes inside a range. */
static void before(void) {
    nvtxRangePushA("over");
    nvtxRangePop();
    nvtxRangePushA("load");
    nvtxRangePushA("first");
    context = use_device(0);
    release(hold(5));
    nvtxRangePop();
    release(hold(7));
    nvtxRangePop();
}

static pthread_barrier_t barrier;
static void *thread(void *number) {
    size_t mib = (size_t)number;
    OK(CU(cuCtxSetCurrent)(context));
    char name[64];
    snprintf(name, sizeof name, "thread of %zu", mib);
    nvtxRangePushA("together");
    nvtxRangePushA(name);
    pthread_barrier_wait(&barrier);
    CUdeviceptr block = hold(mib);
    pthread_barrier_wait(&barrier);
    release(block);
    pthread_barrier_wait(&barrier);
    nvtxRangePop();
    nvtxRangePop();
    return NULL;
}

static void *ends(void *id) {
    nvtxRangeEnd(*(nvtxRangeId_t *)id);
    return NULL;
}

/* Domains nest among themselves only. */
static void domains(void) {
    nvtxDomainHandle_t io = nvtxDomainCreateA("io");
    nvtxDomainNameCategoryA(io, 7, "disk");
    nvtxEventAttributes_t read = {0};
    read.version = NVTX_VERSION, read.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE, read.category = 7;
    read.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
    read.message.registered = nvtxDomainRegisterStringA(io, "read");
    nvtxRangePushA("default");
    CUdeviceptr block = hold(40);
    nvtxDomainRangePushEx(io, &read);
    release(block);
    nvtxRangePop();
    release(hold(30));
    nvtxDomainRangePop(io);
    read.messageType = NVTX_MESSAGE_TYPE_UNICODE, read.message.unicode = L"\u00fcber";
    nvtxDomainRangePushEx(NULL, &read);
    nvtxDomainRangePop(NULL);
}

static void many(long n) {
    struct timespec from, to;
    nvtxRangePushA("all");
    clock_gettime(CLOCK_MONOTONIC, &from);
    for (long i = 0; i < n; i++) {
        nvtxRangePushA("one of many");
        nvtxRangePop();
    }
    clock_gettime(CLOCK_MONOTONIC, &to);
    printf("%.1f ns\n", ((to.tv_sec - from.tv_sec) * 1e9 + (to.tv_nsec - from.tv_nsec)) / (n ? n : 1));
    nvtxRangePop();
}

int main(int argc, char **argv) {
    MUST(argc >= 2);
    const char *what = argv[1];
    long n = argc > 2 ? atol(argv[2]) : 0;
    if (!strcmp(what, "before")) {
        before();
        return 0;
    }
    context = use_device(0);
    if (!strcmp(what, "nested")) {
        nested();
    } else if (!strcmp(what, "domains")) {
        domains();
    } else if (!strcmp(what, "many")) {
        many(n);
    } else if (!strcmp(what, "names")) {
        char name[64];
        for (long i = 0; i < n; i++) {
            snprintf(name, sizeof name, "layer %ld of many", i);
            nvtxRangePushA(name);
            nvtxRangePop();
        }
    } else if (!strcmp(what, "steps")) {
        char name[64];
        for (long i = 0; i < n; i++) {
            snprintf(name, sizeof name, "step %ld", i);
            nvtxRangePushA(name);
            usleep(2000);
            nvtxRangePop();
        }
    } else if (!strcmp(what, "threads")) {
        pthread_t threads[4];
        pthread_barrier_init(&barrier, NULL, 4);
        for (size_t i = 0; i < 4; i++) pthread_create(&threads[i], NULL, thread, (void *)(i + 1));
        for (size_t i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    } else if (!strcmp(what, "apart")) {
        nvtxRangeId_t ids[300];
        pthread_t other;
        for (int i = 0; i < 300; i++) ids[i] = nvtxRangeStartA(i ? "request" : "first request");
        release(hold(64));
        for (int i = 299; i > 0; i--) nvtxRangeEnd(ids[i]);
        nvtxRangeEnd(ids[7]);
        pthread_create(&other, NULL, ends, &ids[0]);
        pthread_join(other, NULL);
    } else if (!strcmp(what, "deep")) {
        for (long i = 0; i < n; i++) nvtxRangePushA("deep");
        for (long i = 0; i < n; i++) MUST(nvtxRangePop() == n - 1 - i);
        nvtxRangePushA("after");
        nvtxRangePop();
    } else if (!strcmp(what, "unbalanced")) {
        MUST(nvtxRangePop() < 0);
        nvtxRangePushA("kept");
        MUST(nvtxRangePop() == 0);
        MUST(nvtxRangePop() < 0);
    } else if (!strcmp(what, "odd")) {
        char *name = malloc(65537);
        memset(name, 'x', 65536);
        name[65536] = 0;
        nvtxRangePushA(name);
        nvtxRangePop();
        nvtxMarkA("\033[31mred\a\r\n<script>alert(1)</script>");
        nvtxMarkA("bad \xff\xfe utf-8");
        nvtxMarkA("\xe2\x80\xae" "reversed");
        nvtxMarkA("");
        nvtxMarkA(NULL);
    } else if (!strcmp(what, "fork")) {
        nvtxRangePushA("around");
        CUdeviceptr kept = hold(8);
        nvtxRangeId_t id = nvtxRangeStartA("of the parent");
        fflush(stdout);
        pid_t child = fork();
        if (!child) {
            nvtxRangePushA("in the child");
            nvtxRangePop();
            nvtxRangeEnd(id);
            nvtxRangePop();
            _exit(0);
        }
        int status;
        MUST(waitpid(child, &status, 0) == child && status == 0);
        nvtxRangeEnd(id);
        MUST(nvtxRangePop() == 0);
        release(kept);
    } else if (!strcmp(what, "killed")) {
        nvtxRangePushA("step 7");
        hold(3);
        nvtxRangePushA("backward");
        kill(getpid(), SIGKILL);
    } else {
        return 46;
    }
    return 0;
}
