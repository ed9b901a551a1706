/* fork in all the ways that programs use it.
 * usage: forks before N       N children fork before the driver is touched; each allocates child+1 MiB
 *        forks after N        N children fork from a parent that uses the driver; they only end
 *        forks server N       a fork server: a child forks N grandchildren that allocate
 *        forks threads N      N forks while other threads allocate and launch
 *        forks vfork N        N times vfork + exec of `true` */
#include "driver.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
static atomic_int stop;
static CUcontext context;
static CUfunction function;

static void hold(long mib) {
    CUdeviceptr block;
    use_device(0);
    OK(CU(cuMemAlloc_v2)(&block, mib << 20));
}
static void collect(long n) {
    for (long i = 0; i < n; i++) {
        int status = 0;
        MUST(wait(&status) > 0);
        if (!WIFEXITED(status) || WEXITSTATUS(status)) {
            fprintf(stderr, "a child ended with %x\n", status);
            _exit(50);
        }
    }
}
static void *work(void *arg) {
    CUdeviceptr block;
    void *p = NULL, *args[1] = {&p};
    OK(CU(cuCtxSetCurrent)(context));
    __typeof__(&cuMemAlloc_v2) mem_alloc = CU(cuMemAlloc_v2);
    __typeof__(&cuMemFree_v2) mem_free = CU(cuMemFree_v2);
    __typeof__(&cuLaunchKernel) launch = CU(cuLaunchKernel);
    while (!atomic_load(&stop)) {
        OK(mem_alloc(&block, 1 << 20));
        OK(launch(function, 2, 1, 1, 32, 1, 1, 0, NULL, args, NULL));
        OK(mem_free(block));
    }
    return NULL;
}
int main(int argc, char **argv) {
    MUST(argc == 3);
    long n = atol(argv[2]);
    if (!strcmp(argv[1], "before")) {
        for (long i = 0; i < n; i++)
            if (!fork()) {
                hold(i + 1);
                exit(0);
            }
        collect(n);
    } else if (!strcmp(argv[1], "after")) {
        hold(1);
        for (long i = 0; i < n; i++) {
            pid_t child = fork();
            if (!child) {
                /* the driver says no in such a child; it must say so, not hang or crash */
                CUdeviceptr block = 0;
                CUresult result = CU(cuMemAlloc_v2)(&block, 64 << 20);
                exit(result == CUDA_SUCCESS ? 51 : 0);
            }
            MUST(child > 0);
        }
        collect(n);
        hold(2);
    } else if (!strcmp(argv[1], "server")) {
        if (!fork()) {
            for (long i = 0; i < n; i++)
                if (!fork()) {
                    hold(i + 1);
                    exit(0);
                }
            collect(n);
            exit(0);
        }
        collect(1);
        hold(1);
    } else if (!strcmp(argv[1], "threads")) {
        pthread_t id[3];
        context = use_device(0);
        function = load_kernel("nothing");
        for (int i = 0; i < 3; i++) pthread_create(&id[i], NULL, work, NULL);
        for (long i = 0; i < n; i++) {
            pid_t child = fork();
            if (!child) {
                if (i % 3 == 0) _exit(0);
                if (i % 3 == 1) execlp("true", "true", (char *)NULL);
                setenv("CHILD", "1", 1);
                unsetenv("LD_PRELOAD");
                execlp("true", "true", (char *)NULL);
            }
            collect(1);
        }
        atomic_store(&stop, 1);
        for (int i = 0; i < 3; i++) pthread_join(id[i], NULL);
    } else if (!strcmp(argv[1], "vfork")) {
        hold(1);
        for (long i = 0; i < n; i++) {
            pid_t child = vfork();
            if (!child) {
                execlp("true", "true", (char *)NULL);
                _exit(52);
            }
            collect(1);
        }
        hold(1);
    } else {
        return 46;
    }
    pause_here();
    return 0;
}
