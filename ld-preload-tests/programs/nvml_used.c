/* Prints, for GPU N, used bytes of the device and of each process, as NVML says. usage: nvml_used N */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
struct process { unsigned int pid; unsigned long long used; unsigned int gpu, compute; };
struct memory { unsigned long long total, free, used; };
#define GET(name) (name = (__typeof__(name))dlsym(nvml, #name))
int main(int argc, char **argv) {
    void *nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW), *device;
    int (*nvmlInit_v2)(void), (*nvmlDeviceGetHandleByIndex_v2)(unsigned, void **);
    int (*nvmlDeviceGetMemoryInfo)(void *, struct memory *);
    int (*nvmlDeviceGetComputeRunningProcesses_v3)(void *, unsigned *, struct process *);
    if (!nvml || !GET(nvmlInit_v2) || !GET(nvmlDeviceGetHandleByIndex_v2) || !GET(nvmlDeviceGetMemoryInfo) ||
        !GET(nvmlDeviceGetComputeRunningProcesses_v3))
        return 41;
    struct memory memory;
    static struct process list[512];
    unsigned count = 512;
    if (nvmlInit_v2() || nvmlDeviceGetHandleByIndex_v2(argc > 1 ? atoi(argv[1]) : 0, &device)) return 42;
    if (nvmlDeviceGetMemoryInfo(device, &memory)) return 43;
    if (nvmlDeviceGetComputeRunningProcesses_v3(device, &count, list)) return 44;
    printf("device %llu\n", memory.used);
    for (unsigned i = 0; i < count; i++) printf("process %u %llu\n", list[i].pid, list[i].used);
    return 0;
}
