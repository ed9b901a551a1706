/* A job of a trace, as far as a GPU can tell: it takes its memory on every GPU it is given, first a part and later
 * all, launches kernels for its time at its rate, and ends with its code. It leaves a line at its beginning and one
 * as the last thing that it does.
 * usage: trace_job MARKS MIB MS KERNELS CODE    KERNELS: launches in 10 ms on each GPU
 * Lines: start|end JOB ATTEMPT PID GPUS */
#include "driver.h"
#include <fcntl.h>
#include <time.h>

enum { MOST_GPUS = 8, REFUSED = 3, ROUND_US = 10000 };

static long long now_ms(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000ll + time.tv_nsec / 1000000;
}

/* One write at the end of the file: lines of several processes do not mix. */
static void mark(const char *file, const char *word) {
    char line[512];
    int length = snprintf(line, sizeof line, "%s %s %s %d %s\n", word, getenv("RADRM_JOB"), getenv("RADRM_ATTEMPT"),
                          (int)getpid(), getenv("CUDA_VISIBLE_DEVICES"));
    int fd = open(file, O_WRONLY | O_APPEND);
    MUST(fd >= 0 && write(fd, line, length) == length);
    close(fd);
}

static CUcontext contexts[MOST_GPUS];
static CUfunction functions[MOST_GPUS];
static int gpus;

/* On every GPU. */
static void take(size_t mib) {
    for (int gpu = 0; gpu < gpus; gpu++) {
        CUdeviceptr address;
        OK(CU(cuCtxSetCurrent)(contexts[gpu]));
        CUresult result = CU(cuMemAlloc_v2)(&address, mib << 20);
        if (result == CUDA_ERROR_OUT_OF_MEMORY) exit(REFUSED);
        OK(result);
    }
}

int main(int argc, char **argv) {
    if (argc != 6) return 46;
    size_t mib = strtoull(argv[2], NULL, 10), first = mib * 6 / 10;
    long long length = atoll(argv[3]), begun = now_ms();
    int kernels = atoi(argv[4]);
    mark(argv[1], "start");
    OK(CU(cuInit)(0));
    OK(CU(cuDeviceGetCount)(&gpus));
    MUST(gpus > 0 && gpus <= MOST_GPUS);
    for (int gpu = 0; gpu < gpus; gpu++) {
        contexts[gpu] = use_device(gpu);
        functions[gpu] = load_kernel("nothing");
    }
    take(first);
    for (int whole = 0, over = 0; !over; usleep(ROUND_US)) {
        long long ran = now_ms() - begun;
        over = ran >= length;
        if (!whole && ran >= length / 4) take(mib - first), whole = 1;
        for (int gpu = 0; gpu < gpus; gpu++) {
            void *p = NULL, *args[1] = {&p};
            OK(CU(cuCtxSetCurrent)(contexts[gpu]));
            for (int i = 0; i < kernels; i++)
                OK(CU(cuLaunchKernel)(functions[gpu], 4, 1, 1, 32, 1, 1, 0, NULL, args, NULL));
            OK(CU(cuCtxSynchronize)());
        }
    }
    mark(argv[1], "end");
    return atoi(argv[5]);
}
