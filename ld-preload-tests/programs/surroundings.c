/* Prints what a guest must leave alone, at three moments: umask, signal dispositions, blocked
 * signals, open files, threads, limits, directory, environment, errno. The output must be the same
 * with and without a shim. */
#include "driver.h"
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
extern char **environ;
static void tell(const char *when) {
    mode_t mask = umask(0);
    umask(mask);
    printf("%s: umask %o\n", when, mask);
    for (int s = 1; s < 65; s++) {
        struct sigaction action;
        if (!sigaction(s, NULL, &action) && action.sa_handler != SIG_DFL)
            printf("%s: signal %d has a handler\n", when, s);
    }
    sigset_t blocked;
    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    for (int s = 1; s < 65; s++)
        if (sigismember(&blocked, s)) printf("%s: signal %d is blocked\n", when, s);
    int files = 0;
    DIR *directory = opendir("/proc/self/fd");
    for (struct dirent *e; (e = readdir(directory));) {
        char path[300], target[300] = "";
        snprintf(path, sizeof path, "/proc/self/fd/%s", e->d_name);
        if (readlink(path, target, sizeof target - 1) > 0) files++;
    }
    closedir(directory);
    printf("%s: %d open files\n", when, files);
    int threads = 0;
    directory = opendir("/proc/self/task");
    for (struct dirent *e; (e = readdir(directory));) threads += e->d_name[0] != '.';
    closedir(directory);
    printf("%s: %d threads\n", when, threads);
    struct rlimit limit;
    for (int r = 0; r < 16; r++)
        if (!getrlimit(r, &limit)) printf("%s: limit %d %lld\n", when, r, (long long)limit.rlim_cur);
    char here[4096];
    printf("%s: in %s\n", when, getcwd(here, sizeof here));
    for (char **e = environ; *e; e++)
        if (strncmp(*e, "LD_PRELOAD=", 11) && strncmp(*e, "RADRM_SEGMENT=", 14)) printf("%s: %s\n", when, *e);
}
int main(void) {
    CUdeviceptr block;
    void *p = NULL, *args[1] = {&p};
    tell("start");
    use_device(0);
    CUfunction function = load_kernel("nothing");
    tell("context");
    errno = 77;
    OK(CU(cuMemAlloc_v2)(&block, 1 << 20));
    printf("errno %d\n", errno);
    errno = 78;
    OK(CU(cuLaunchKernel)(function, 1, 1, 1, 32, 1, 1, 0, NULL, args, NULL));
    printf("errno %d\n", errno);
    errno = 79;
    for (int i = 0; i < 2000; i++) OK(CU(cuMemAlloc_v2)(&block, 4096));
    printf("errno %d\n", errno);
    errno = 80;
    OK(CU(cuMemFree_v2)(block));
    printf("errno %d\n", errno);
    tell("end");
    return 0;
}
