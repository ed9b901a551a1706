/* Shares a block with another process: the parent exports, the child (this program again, with the
 * handle as text) opens, closes and opens again. */
#include "driver.h"
#include <sys/wait.h>
int main(int argc, char **argv) {
    CUipcMemHandle handle;
    CUdeviceptr block;
    unsigned char *bytes = (unsigned char *)&handle;
    char text[2 * sizeof handle + 1];
    use_device(0);
    if (argc > 1) {
        for (size_t i = 0; i < sizeof handle; i++) {
            unsigned int byte;
            MUST(sscanf(argv[1] + 2 * i, "%2x", &byte) == 1);
            bytes[i] = byte;
        }
        OK(CU(cuIpcOpenMemHandle_v2)(&block, handle, 1));
        OK(CU(cuIpcCloseMemHandle)(block));
        OK(CU(cuIpcOpenMemHandle_v2)(&block, handle, 1));
        OK(CU(cuMemAlloc_v2)(&block, 1 << 20));
        return 0;
    }
    OK(CU(cuMemAlloc_v2)(&block, 64 << 20));
    OK(CU(cuIpcGetMemHandle)(&handle, block));
    for (size_t i = 0; i < sizeof handle; i++) sprintf(text + 2 * i, "%02x", bytes[i]);
    pid_t child = fork();
    if (!child) {
        execl("/proc/self/exe", argv[0], text, (char *)NULL);
        _exit(53);
    }
    int status = 0;
    MUST(waitpid(child, &status, 0) == child);
    MUST(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return 0;
}
