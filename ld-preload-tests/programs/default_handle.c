/* Reaches the driver through RTLD_DEFAULT and through the program's own handle. */
#include "driver.h"
int main(void) {
    MUST(dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL));
    void *self = dlopen(NULL, RTLD_NOW);
    CUdeviceptr block;
    use_device(0);
    OK(((__typeof__(&cuMemAlloc_v2))dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"))(&block, 1 << 20));
    OK(((__typeof__(&cuMemAlloc_v2))dlsym(self, "cuMemAlloc_v2"))(&block, 2 << 20));
    pause_here();
    return 0;
}
