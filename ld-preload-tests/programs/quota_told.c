/* Says what it is told about memory and about who holds it, one line for each step of its arguments:
 *   use:N       the primary context of device N
 *   driver:N    "driver TOTAL FREE DEVICE": cuMemGetInfo, and cuDeviceTotalMem of device N
 *   null        "null TOTAL FREE": cuMemGetInfo with one null pointer, with the other, and with two
 *   alloc:N     N bytes; "granted" or "refused"
 *   share:N     N percent of the total that the driver tells, as JAX and vLLM take it; alike
 *   left:N      N percent of what the driver says is free; alike
 *   memory:N    NVML's device N: "memory TOTAL FREE USED", "memory_v2 TOTAL RESERVED FREE USED", "bar1 TOTAL"
 *   lists:N     every list of processes in every version: "FUNCTION PID:BYTES ..."
 *   long:N      one list with elements of 32 bytes; alike
 *   details:N   the list in detail; alike
 *   odd:N       calls that NVML refuses: "odd CODE ..."
 *   newer:N     memory into a structure of a version that is not known: "newer TOTAL RESERVED FREE USED"
 *   pause
 * NVML is loaded, or with NVML_LINKED linked. */
#include "driver.h"

typedef struct nvml_device *nvmlDevice_t;
struct memory { unsigned long long total, free, used; };
struct memory_v2 { unsigned version; unsigned long long total, reserved, free, used; };
struct process_v1 { unsigned pid; unsigned long long used; };
struct process { unsigned pid; unsigned long long used; unsigned gpu, compute; };
struct detail { unsigned pid; unsigned long long used; unsigned gpu, compute; unsigned long long secret; };
struct details { unsigned version, mode, count; struct detail *list; };

#define FUNCTIONS(F)                                                                               \
    F(nvmlInit_v2, (void))                                                                         \
    F(nvmlDeviceGetHandleByIndex_v2, (unsigned, nvmlDevice_t *))                                   \
    F(nvmlDeviceGetMemoryInfo, (nvmlDevice_t, struct memory *))                                    \
    F(nvmlDeviceGetMemoryInfo_v2, (nvmlDevice_t, struct memory_v2 *))                              \
    F(nvmlDeviceGetBAR1MemoryInfo, (nvmlDevice_t, struct memory *))                                \
    F(nvmlDeviceGetComputeRunningProcesses, (nvmlDevice_t, unsigned *, void *))                    \
    F(nvmlDeviceGetComputeRunningProcesses_v2, (nvmlDevice_t, unsigned *, void *))                 \
    F(nvmlDeviceGetComputeRunningProcesses_v3, (nvmlDevice_t, unsigned *, void *))                 \
    F(nvmlDeviceGetGraphicsRunningProcesses, (nvmlDevice_t, unsigned *, void *))                   \
    F(nvmlDeviceGetGraphicsRunningProcesses_v2, (nvmlDevice_t, unsigned *, void *))                \
    F(nvmlDeviceGetGraphicsRunningProcesses_v3, (nvmlDevice_t, unsigned *, void *))                \
    F(nvmlDeviceGetMPSComputeRunningProcesses, (nvmlDevice_t, unsigned *, void *))                 \
    F(nvmlDeviceGetMPSComputeRunningProcesses_v2, (nvmlDevice_t, unsigned *, void *))              \
    F(nvmlDeviceGetMPSComputeRunningProcesses_v3, (nvmlDevice_t, unsigned *, void *))

#ifdef NVML_LINKED
#define DECLARE(name, args) unsigned name args;
FUNCTIONS(DECLARE)
static void find_nvml(void) {}
#else
#define DECLARE(name, args) static unsigned(*name) args;
FUNCTIONS(DECLARE)
#define FIND(name, args) MUST(name = (__typeof__(name))dlsym(nvml, #name));
static void find_nvml(void) {
    void *nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    MUST(nvml);
    FUNCTIONS(FIND)
}
#endif

static nvmlDevice_t device(int number) {
    nvmlDevice_t device;
    find_nvml();
    MUST(nvmlInit_v2() == 0);
    MUST(nvmlDeviceGetHandleByIndex_v2(number, &device) == 0);
    return device;
}

enum { MOST = 64, GUARD = 0x5a };

static int untouched(const void *at, size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        if (((const unsigned char *)at)[i] != GUARD) return 0;
    return 1;
}

static void memory(nvmlDevice_t device) {
    struct memory one, window;
    struct memory_v2 two;
    memset(&one, GUARD, sizeof one);
    memset(&two, GUARD, sizeof two);
    two.version = sizeof two | 2 << 24;
    unsigned code = nvmlDeviceGetMemoryInfo(device, &one);
    if (!code) printf("memory %llu %llu %llu\n", one.total, one.free, one.used);
    else MUST(printf("memory error %u\n", code) && untouched(&one, sizeof one));
    code = nvmlDeviceGetMemoryInfo_v2(device, &two);
    if (!code) printf("memory_v2 %llu %llu %llu %llu\n", two.total, two.reserved, two.free, two.used);
    else MUST(printf("memory_v2 error %u\n", code) && untouched(&two.total, 4 * sizeof two.total));
    MUST(nvmlDeviceGetBAR1MemoryInfo(device, &window) == 0);
    printf("bar1 %llu\n", window.total);
}

/* Asks by NVML's protocol: how many, then into a list of that length, then into one that is too short. */
static void list(const char *name, unsigned (*ask)(nvmlDevice_t, unsigned *, void *), nvmlDevice_t device,
                 size_t size) {
    unsigned char room[(MOST + 1) * sizeof(struct detail)];
    unsigned count = 0, again;
    unsigned code = ask(device, &count, NULL);
    MUST(code == (count ? 7 : 0) && count <= MOST);
    memset(room, GUARD, sizeof room);
    again = count;
    MUST(ask(device, &again, room) == 0 && again == count);
    MUST(untouched(room + count * size, sizeof room - count * size));
    printf("%s", name);
    for (unsigned i = 0; i < count; i++) {
        struct process_v1 *process = (struct process_v1 *)(room + i * size);
        printf(" %u:%llu", process->pid, process->used);
        if (size >= sizeof(struct process)) MUST(((struct process *)process)->compute == ~0u);
        if (size == sizeof(struct detail)) MUST(((struct detail *)process)->secret == 9);
    }
    printf("\n");
    if (count > 0) {
        memset(room, GUARD, sizeof room);
        again = count - 1;
        MUST(ask(device, &again, room) == 7 && again == count);
        MUST(untouched(room + (count - 1) * size, sizeof room - (count - 1) * size));
    }
    again = MOST;
    MUST(ask(device, &again, room) == 0 && again == count);
}

static unsigned details(nvmlDevice_t device, unsigned *count, void *out) {
    void *nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    unsigned (*ask)(nvmlDevice_t, struct details *) =
        (__typeof__(ask))dlsym(nvml, "nvmlDeviceGetRunningProcessDetailList");
    struct details all = {sizeof all | 1 << 24, 0, *count, out}, newer = {sizeof all | 2 << 24, 0, 7, out};
    MUST(ask && ask(device, NULL) == 2 && ask(device, &newer) == 0 && newer.count == 99);
    unsigned code = ask(device, &all);
    MUST(all.list == out && all.mode == 0);
    *count = all.count;
    all = (struct details){sizeof all | 1 << 24, 1, 0, NULL};
    MUST(ask(device, &all) == 0 && all.count == 0);
    return code;
}

static void odd(nvmlDevice_t device) {
    struct memory_v2 two;
    struct process room[1];
    unsigned count = 1;
    memset(&two, GUARD, sizeof two);
    printf("odd %u %u", nvmlDeviceGetMemoryInfo(device, NULL), nvmlDeviceGetMemoryInfo_v2(device, NULL));
    printf(" %u %d", nvmlDeviceGetMemoryInfo_v2(device, &two), untouched(&two, sizeof two));
    printf(" %u", nvmlDeviceGetComputeRunningProcesses_v3(device, NULL, room));
    printf(" %u", nvmlDeviceGetComputeRunningProcesses_v3(device, NULL, NULL));
    printf(" %u", nvmlDeviceGetComputeRunningProcesses_v3(device, &count, NULL));
    printf(" %u", nvmlDeviceGetComputeRunningProcesses_v3((nvmlDevice_t)(uintptr_t)12345, &count, room));
    printf(" %u %u\n", nvmlDeviceGetMemoryInfo((nvmlDevice_t)(uintptr_t)12345, (struct memory *)room), count);
}

static void take(size_t bytes) {
    CUdeviceptr block;
    CUresult result = CU(cuMemAlloc_v2)(&block, bytes);
    MUST(result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY);
    printf("%s\n", result ? "refused" : "granted");
}

int main(int argc, char **argv) {
    (void)argc;
    while (*++argv) {
        char *colon = strchr(*argv, ':');
        unsigned long long n = colon ? strtoull(colon + 1, NULL, 0) : 0;
        size_t free = 0, total = 0, whole = 0;
        if (colon) *colon = 0;
        if (!strcmp(*argv, "use")) use_device(n);
        else if (!strcmp(*argv, "driver")) {
            OK(CU(cuMemGetInfo_v2)(&free, &total));
            OK(CU(cuDeviceTotalMem_v2)(&whole, n));
            printf("driver %zu %zu %zu\n", total, free, whole);
        } else if (!strcmp(*argv, "null")) {
            CUresult one = CU(cuMemGetInfo_v2)(NULL, &total), other = CU(cuMemGetInfo_v2)(&free, NULL);
            printf("null %u %zu %u %zu %u\n", one, total, other, free, CU(cuMemGetInfo_v2)(NULL, NULL));
        } else if (!strcmp(*argv, "alloc")) take(n);
        else if (!strcmp(*argv, "share") || !strcmp(*argv, "left")) {
            OK(CU(cuMemGetInfo_v2)(&free, &total));
            take((**argv == 's' ? total : free) / 100 * n);
        } else if (!strcmp(*argv, "memory")) memory(device(n));
        else if (!strcmp(*argv, "odd")) odd(device(n));
        else if (!strcmp(*argv, "details")) list("details", details, device(n), sizeof(struct detail));
        else if (!strcmp(*argv, "long")) {
            nvmlDevice_t of = device(n);
            list("long", nvmlDeviceGetComputeRunningProcesses_v3, of, sizeof(struct detail));
        } else if (!strcmp(*argv, "newer")) {
            nvmlDevice_t of = device(n);
            struct memory_v2 info[2] = {{.version = sizeof info | 3 << 24}};
            MUST(nvmlDeviceGetMemoryInfo_v2(of, info) == 0);
            printf("newer %llu %llu %llu %llu\n", info->total, info->reserved, info->free, info->used);
        }
        else if (!strcmp(*argv, "lists")) {
            nvmlDevice_t of = device(n);
#define LIST(name, type) list(#name, name, of, sizeof(type));
            LIST(nvmlDeviceGetComputeRunningProcesses, struct process_v1)
            LIST(nvmlDeviceGetComputeRunningProcesses_v2, struct process)
            LIST(nvmlDeviceGetComputeRunningProcesses_v3, struct process)
            LIST(nvmlDeviceGetGraphicsRunningProcesses, struct process_v1)
            LIST(nvmlDeviceGetGraphicsRunningProcesses_v2, struct process)
            LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, struct process)
            LIST(nvmlDeviceGetMPSComputeRunningProcesses, struct process_v1)
            LIST(nvmlDeviceGetMPSComputeRunningProcesses_v2, struct process)
            LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, struct process)
        } else if (!strcmp(*argv, "pause")) pause_here();
        else return 45;
        fflush(stdout);
    }
    return 0;
}
