/* A signal handler on a stack of its own of SIZE bytes gets 1 MiB of device memory. Prints what the call returned.
 * usage: signal_stack SIZE */
#include <signal.h>

#include "driver.h"
static volatile int result = -1;
static void handler(int number) {
    CUdeviceptr block;
    (void)number;
    result = CU(cuMemAlloc_v2)(&block, 1 << 20);
}
int main(int argc, char **argv) {
    MUST(argc == 2);
    stack_t own = {.ss_size = (size_t)atol(argv[1])};
    /* A driver may need more than a small one has: what lies below belongs to nothing. */
    char *room = malloc(own.ss_size + (64 << 10));
    MUST(room);
    own.ss_sp = room + (64 << 10);
    MUST(!sigaltstack(&own, NULL));
    use_device(0);
    CUdeviceptr block;
    OK(CU(cuMemAlloc_v2)(&block, 1 << 20));
    OK(CU(cuMemFree_v2)(block));
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
    MUST(!sigaction(SIGUSR1, &action, NULL));
    MUST(!raise(SIGUSR1));
    printf("%d\n", result);
    return 0;
}
