/* Takes memory of a device by a driver that it loads itself from a file, past the shim.
 * usage: evades dlopen|dlmopen|second LIBRARY: with `second` it uses the shim's driver too */
#include "driver.h"
int main(int argc, char **argv) {
    if (argc < 3) return 44;
    int second = !strcmp(argv[1], "second");
    if (second) use_device(0);
    void *own = strcmp(argv[1], "dlmopen") ? dlopen(argv[2], RTLD_NOW | RTLD_LOCAL)
                                           : dlmopen(LM_ID_NEWLM, argv[2], RTLD_NOW);
    if (!own) fprintf(stderr, "%s\n", dlerror());
    MUST(own);
#define OWN(name) ((__typeof__(&name))dlsym(own, #name))
    CUdevice device;
    CUcontext context;
    CUdeviceptr block;
    OK(OWN(cuInit)(0));
    OK(OWN(cuDeviceGet)(&device, 0));
    OK(OWN(cuDevicePrimaryCtxRetain)(&context, device));
    OK(OWN(cuCtxSetCurrent)(context));
    /* What is not measured of a context may explain some of what a second driver takes. */
    OK(OWN(cuMemAlloc_v2)(&block, (second ? 500ul : 50ul) << 20));
    pause_here();
    return 0;
}
