/* Leaves driver calls by siglongjmp out of a signal handler, many times; after that 1,000 launches
 * must all be seen. Meant for a driver without locks. */
#include "driver.h"
#include <setjmp.h>
#include <signal.h>
#include <sys/time.h>
static sigjmp_buf back;
static volatile sig_atomic_t armed;
static void jump(int signal) {
    if (armed) {
        armed = 0;
        siglongjmp(back, 1);
    }
}
int main(void) {
    void *p = NULL, *args[1] = {&p};
    CUdeviceptr block;
    static volatile int jumps, launched;
    use_device(0);
    CUfunction function = load_kernel("nothing"), other = load_kernel("other");
    signal(SIGALRM, jump);
    struct itimerval every = {{0, 300}, {0, 300}};
    setitimer(ITIMER_REAL, &every, NULL);
    if (sigsetjmp(back, 1)) jumps++;
    while (jumps < 2000 || launched <= 1000) {
        armed = 1;
        CU(cuMemAlloc_v2)(&block, 4096);
        launched += CU(cuLaunchKernel)(other, 2, 1, 1, 32, 1, 1, 0, NULL, args, NULL) == 0;
        CU(cuMemFree_v2)(block);
    }
    struct itimerval never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &never, NULL);
    armed = 0;
    for (int i = 0; i < 1000; i++) OK(CU(cuLaunchKernel)(function, 2, 1, 1, 32, 1, 1, 0, NULL, args, NULL));
    pause_here();
    return 0;
}
