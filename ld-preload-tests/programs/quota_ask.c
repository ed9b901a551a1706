/* Asks for memory when it is told to: a line with a number of bytes on standard input is answered by "granted" or
 * "refused" and what was granted is freed again; "keep BYTES" keeps it. With "step" it stops itself before the
 * next request, so that a debugger can walk through it.
 * usage: quota_ask */
#include "driver.h"
#include <signal.h>
#include <sys/ptrace.h>
int main(void) {
    char line[64];
    use_device(0);
    __typeof__(&cuMemAlloc_v2) mem_alloc = CU(cuMemAlloc_v2);
    __typeof__(&cuMemFree_v2) mem_free = CU(cuMemFree_v2);
    CUdeviceptr block;
    /* Nothing is done for the first time when it counts. */
    if (mem_alloc(&block, 1 << 21) == CUDA_SUCCESS) OK(mem_free(block));
    printf("ready %d\n", (int)getpid());
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        int keep = !strncmp(line, "keep ", 5), stepped = !strncmp(line, "step ", 5);
        size_t bytes = strtoull(line + (keep || stepped ? 5 : 0), NULL, 0);
        if (stepped) {
            MUST(ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0);
            raise(SIGSTOP);
        }
        CUresult result = mem_alloc(&block, bytes);
        MUST(result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY);
        if (result == CUDA_SUCCESS && !keep) OK(mem_free(block));
        if (stepped) raise(SIGSTOP);
        puts(result == CUDA_SUCCESS ? "granted" : "refused");
        fflush(stdout);
    }
    return 0;
}
