/* A small NVML in the place of the emulated one, for what that one does not do: a device that keeps memory
 * for itself, elements of lists as long as those of driver 535 in its first releases, lists in detail, a
 * structure newer than all that are known. Compiled with OLD it lacks what older drivers lack.
 * The device's UUID is FAKE_UUID, the processes on it are FAKE_PIDS ("12,34"); each holds 3 bytes. */
#include <stdlib.h>
#include <string.h>

#define MIB (1ull << 20)
struct memory { unsigned long long total, free, used; };
struct memory_v2 { unsigned version; unsigned long long total, reserved, free, used; };
struct element { unsigned pid; unsigned long long used; unsigned gpu, compute; unsigned long long secret; };
struct details { unsigned version, mode, count; struct element *list; };

unsigned nvmlInit_v2(void) { return 0; }

unsigned nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    *device = &((char *)device)[index + 1];
    return 0;
}

unsigned nvmlDeviceGetUUID(void *device, char *text, unsigned room) {
    const char *uuid = getenv("FAKE_UUID");
    if (!uuid) return 3;
    if (strlen(uuid) >= room) return 7;
    strcpy(text, uuid);
    return 0;
}

unsigned nvmlDeviceGetMemoryInfo(void *device, struct memory *out) {
    *out = (struct memory){1000 * MIB, 700 * MIB, 300 * MIB};
    return 0;
}

unsigned nvmlDeviceGetBAR1MemoryInfo(void *device, struct memory *out) {
    *out = (struct memory){1 << 30, 1 << 30, 0};
    return 0;
}

static unsigned list(unsigned *count, void *out, size_t size) {
    char text[256];
    unsigned found = 0, room = *count;
    strncpy(text, getenv("FAKE_PIDS") ?: "", sizeof text - 1);
    for (char *pid = strtok(text, ","); pid; pid = strtok(NULL, ",")) {
        struct element element = {atoi(pid), 3, ~0u, ~0u, 9};
        if (found++ < room) memcpy((char *)out + (found - 1) * size, &element, size);
    }
    *count = found;
    return found > room ? 7 : 0;
}

static unsigned none(unsigned *count) {
    *count = 0;
    return 0;
}

#define LISTS(version, size)                                                                       \
    unsigned nvmlDeviceGetComputeRunningProcesses##version(void *d, unsigned *n, void *out) { return list(n, out, size); } \
    unsigned nvmlDeviceGetGraphicsRunningProcesses##version(void *d, unsigned *n, void *out) { return none(n); } \
    unsigned nvmlDeviceGetMPSComputeRunningProcesses##version(void *d, unsigned *n, void *out) { return none(n); }

LISTS(, 16)
LISTS(_v2, 24)
#ifndef OLD
LISTS(_v3, 32)

unsigned nvmlDeviceGetMemoryInfo_v2(void *device, struct memory_v2 *out) {
    *out = (struct memory_v2){out->version, 1000 * MIB, 100 * MIB, 700 * MIB, 200 * MIB};
    return 0;
}

unsigned nvmlDeviceGetRunningProcessDetailList(void *device, struct details *out) {
    if (!out) return 2;
    if (out->version != (sizeof *out | 1 << 24)) {
        out->count = 99;
        return 0;
    }
    return out->mode ? none(&out->count) : list(&out->count, out->list, 32);
}
#endif
