/* Opens a library that is linked with libcuda with RTLD_DEEPBIND: its calls pass by any preload.
 * usage: deepbind LIBRARY */
#include "driver.h"
int main(int argc, char **argv) {
    CUdeviceptr block;
    use_device(0);
    OK(CU(cuMemAlloc_v2)(&block, 1 << 20));
    void *hidden = dlopen(argv[1], RTLD_NOW | RTLD_DEEPBIND);
    MUST(hidden);
    unsigned long long (*take)(size_t) = (unsigned long long (*)(size_t))dlsym(hidden, "take");
    MUST(take && take(100 << 20));
    pause_here();
    return 0;
}
