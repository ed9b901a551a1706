/* Keeps BYTES of device memory with a pattern in it. While it can reach the driver it counts up in the file
 * tick.JOB.N of $PLACE; when stop.JOB is there it ends, with 0 if the pattern is still there. Arguments behind
 * BYTES: `managed` takes managed memory first, `event` gives an event to other processes, `deaf` ignores
 * SIGTERM, `twice` goes on in a child as well. */
#include "driver.h"
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

#define PART (1 << 20)

static char *file(const char *name, int number) {
    static char path[4096];
    int used = snprintf(path, sizeof path, "%s/%s.%s", getenv("PLACE"), name, getenv("RADRM_JOB"));
    if (number >= 0) snprintf(path + used, sizeof path - used, ".%d", number);
    return path;
}

static void count(int to, unsigned long long ticks) {
    char text[32];
    int used = snprintf(text, sizeof text, "%20llu\n", ticks);
    MUST(pwrite(to, text, used, 0) == used);
}

int main(int argc, char **argv) {
    char *end;
    unsigned long long bytes = strtoull(argv[1], &end, 0) << 20;
    int number = 0, managed = 0, event = 0;
    MUST(!strcmp(end, "m") && bytes >= 4 * PART);
    for (int i = 2; i < argc; i++) {
        if (!strcmp(argv[i], "managed")) managed = 1;
        else if (!strcmp(argv[i], "event")) event = 1;
        else if (!strcmp(argv[i], "deaf")) signal(SIGTERM, SIG_IGN);
        else if (!strcmp(argv[i], "twice")) number = fork() == 0;
        else return 44;
    }
    use_device(0);
    CUdeviceptr memory;
    if (managed) OK(CU(cuMemAllocManaged)(&memory, PART, 1));
    if (event) {
        CUevent shared;
        CUipcEventHandle handle;
        OK(CU(cuEventCreate)(&shared, 6));
        OK(CU(cuIpcGetEventHandle)(&handle, shared));
    }
    OK(CU(cuMemAlloc_v2)(&memory, bytes));
    CUdeviceptr at[3] = {memory, memory + bytes / 2, memory + bytes - PART};
    for (int i = 0; i < 3; i++) OK(CU(cuMemsetD8_v2)(at[i], 17 + i + 3 * number, PART));
    int ticks = open(file("tick", number), O_WRONLY | O_CREAT, 0666);
    MUST(ticks >= 0);
    for (unsigned long long tick = 1; access(file("stop", -1), F_OK); tick++) {
        OK(CU(cuMemsetD8_v2)(memory + PART, (unsigned char)tick, 1));
        OK(CU(cuCtxSynchronize)());
        count(ticks, tick);
        usleep(10000);
    }
    static unsigned char back[PART];
    for (int i = 0; i < 3; i++) {
        OK(CU(cuMemcpyDtoH_v2)(back, at[i], PART));
        for (int byte = 0; byte < PART; byte++)
            if (back[byte] != 17 + i + 3 * number) return 9;
    }
    int status;
    while (wait(&status) > 0)
        if (status) return 8;
    return 0;
}
