/* An NVML with one GPU. What it says of memory comes from FAKE_NVML_USED; with
 * FAKE_NVML_HANG its memory call never returns. Structures as in nvml.h. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct { unsigned version; unsigned long long total, reserved, free, used; } memory_t;
typedef struct { unsigned gpu, memory; } utilization_t;
typedef struct { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; } process_t;

static unsigned long long used(void) { const char *text = getenv("FAKE_NVML_USED"); return text ? strtoull(text, 0, 10) : 0; }

int nvmlInit_v2(void) { return 0; }
int nvmlInitWithFlags(unsigned flags) { (void)flags; return 0; }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int result) { (void)result; return "an error"; }
int nvmlSystemGetDriverVersion(char *text, unsigned length) { strncpy(text, "570.86.15", length); return 0; }
int nvmlSystemGetCudaDriverVersion_v2(int *version) { *version = 12080; return 0; }
int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
    if (strcmp(uuid, "GPU-07070707-0707-0707-0707-070707070707")) return 6; /* not found */
    *device = (void *)1;
    return 0;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char *id, void **device) { (void)id; (void)device; return 6; }
int nvmlDeviceGetMemoryInfo_v2(void *device, memory_t *memory) {
    (void)device;
    if (getenv("FAKE_NVML_HANG")) for (;;) pause();
    memory->total = 1ull << 40; memory->used = used() + 1000; memory->free = memory->total - memory->used;
    return 0;
}
int nvmlDeviceGetUtilizationRates(void *device, utilization_t *u) { (void)device; u->gpu = 40; u->memory = 20; return 0; }
int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatt) { (void)device; *milliwatt = 300000; return 0; }
int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *celsius) { (void)device; (void)sensor; *celsius = 55; return 0; }
int nvmlDeviceGetIndex(void *device, unsigned *index) { (void)device; *index = 2; return 0; }
int nvmlDeviceGetClockInfo(void *device, int kind, unsigned *mhz) { (void)device; *mhz = kind == 1 ? 1500 : 2600; return 0; }
int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *millijoule) {
    static unsigned long long now = 1000000;
    (void)device;
    *millijoule = now += 30;
    return 0;
}

/* The performance monitor: there with FAKE_NVML_GPM. Tensor cores are not told. */
typedef struct { unsigned version, supported; } support_t;
typedef struct { unsigned id, result; double value; const char *texts[3]; } metric_t;
typedef struct { unsigned version, count; void *first, *second; metric_t metrics[]; } metrics_t;
int nvmlGpmQueryDeviceSupport(void *device, support_t *support) {
    (void)device;
    support->supported = getenv("FAKE_NVML_GPM") != 0;
    return 0;
}
int nvmlGpmSampleAlloc(void **sample) { *sample = malloc(1); return 0; }
int nvmlGpmSampleFree(void *sample) { free(sample); return 0; }
int nvmlGpmSampleGet(void *device, void *sample) { (void)device; (void)sample; return 0; }
int nvmlGpmMetricsGet(metrics_t *get) {
    for (unsigned i = 0; i < get->count; i++) {
        metric_t *metric = &get->metrics[i];
        metric->result = metric->id == 5 ? 3 /* not supported */ : 0;
        metric->value = metric->id; /* the metric's number in its unit */
        metric->texts[0] = metric->texts[1] = metric->texts[2] = "";
    }
    return 0;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, process_t *list) {
    (void)device;
    if (*count < 2) { *count = 2; return 7; /* insufficient size */ }
    *count = 2;
    list[0] = (process_t){ (unsigned)getpid(), used(), ~0u, ~0u };
    list[1] = (process_t){ 1, 1000, ~0u, ~0u };
    return 0;
}
