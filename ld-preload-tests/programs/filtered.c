/* Gets 1 MiB of device memory before and twice after it forbids itself system calls: each of CALLS (process_vm_readv, process_vm_writev, gettid,
 * pread64) ends it at once. With `first` the filter is there before CUDA is initialised; with `thread` a new thread makes the later calls.
 * usage: filtered now|first|thread CALL..., or filtered run CALL PROGRAM ARGUMENT... for another program under the filter */
#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "driver.h"
static void forbid(int count, char **calls) {
    struct sock_filter steps[16];
    unsigned short len = 0;
    steps[len++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (int i = 0; i < count; i++) {
        unsigned number = !strcmp(calls[i], "gettid")              ? SYS_gettid
                          : !strcmp(calls[i], "pread64")           ? SYS_pread64
                          : !strcmp(calls[i], "process_vm_writev") ? SYS_process_vm_writev
                                                                   : SYS_process_vm_readv;
        steps[len++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1);
        steps[len++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    }
    steps[len++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {.len = len, .filter = steps};
    MUST(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    MUST(!prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
}
static CUdeviceptr blocks[3];
static CUcontext context;
static void *later(void *unused) {
    (void)unused;
    OK(CU(cuCtxSetCurrent)(context));
    OK(CU(cuMemAlloc_v2)(&blocks[1], 1 << 20));
    OK(CU(cuMemAlloc_v2)(&blocks[2], 1 << 20));
    OK(CU(cuMemFree_v2)(blocks[1]));
    return NULL;
}
int main(int argc, char **argv) {
    MUST(argc > 2);
    if (!strcmp(argv[1], "run")) {
        forbid(1, argv + 2);
        execv(argv[3], argv + 3);
        return 127;
    }
    int first = !strcmp(argv[1], "first");
    if (first) forbid(argc - 2, argv + 2);
    use_device(0);
    OK(CU(cuMemAlloc_v2)(&blocks[0], 1 << 20));
    if (!first) forbid(argc - 2, argv + 2);
    OK(CU(cuCtxGetCurrent)(&context));
    if (strcmp(argv[1], "thread")) later(NULL);
    else {
        /* glibc itself asks for nothing that is forbidden here. */
        pthread_t thread;
        MUST(!pthread_create(&thread, NULL, later, NULL));
        MUST(!pthread_join(thread, NULL));
    }
    printf("2 MiB\n");
    return 0;
}
