/* An inference loop and data loaders, for tests of jobs beside each other.
 * usage: serve KERNELS PERIOD_MS SECONDS [bare]
 *     a request every PERIOD_MS (the next at once if it is late): a range "request" around KERNELS launches and the wait
 *     for them; `bare` marks nothing. Prints for each the time of its begin and what it took, both us. */
#include "driver.h"
#include <errno.h>
#include <time.h>

static long long now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000LL + t.tv_nsec / 1000;
}

static void until(long long us) {
    struct timespec t = {us / 1000000, us % 1000000 * 1000};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR) {
    }
}

int main(int argc, char **argv) {
    MUST(argc >= 4);
    int kernels = atoi(argv[1]);
    long long period = (long long)(atof(argv[2]) * 1000), end = now_us() + (long long)(atof(argv[3]) * 1e6);
    void (*push)(const char *) = (void (*)(const char *))dlsym(RTLD_DEFAULT, "radrm_push");
    void (*pop)(void) = (void (*)(void))dlsym(RTLD_DEFAULT, "radrm_pop");
    if (argc > 4) push = NULL;
    use_device(0);
    CUfunction function = load_kernel("nothing");
    CUstream stream;
    void *p = NULL, *args[1] = {&p};
    OK(CU(cuStreamCreate)(&stream, 1));
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (long long next = now_us(); next < end;) {
        until(next);
        long long begun = now_us();
        if (push) push("request");
        for (int i = 0; i < kernels; i++)
            OK(CU(cuLaunchKernel)(function, 132, 1, 1, 1024, 1, 1, 0, stream, args, NULL));
        OK(CU(cuStreamSynchronize)(stream));
        if (push) pop();
        long long done = now_us();
        printf("%lld %lld\n", begun, done - begun);
        next += period;
        if (next < done) next = done;
    }
    return 0;
}
