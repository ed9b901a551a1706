/* Asks for driver functions, by RTLD_NEXT too, where no libcuda is loaded, and where it is loaded for all. Prints what
 * is found; the output must be the same with and without a shim. */
#include "driver.h"
static void tell(const char *where) {
    void *self = dlopen(NULL, RTLD_NOW);
    const char *names[] = {"cuInit", "cuMemAlloc_v2", "cuLaunchKernel", "cuGetProcAddress_v2", "nvmlInit_v2",
                           "nvmlDeviceGetMemoryInfo"};
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
        printf("%s %s: default %d, program %d, next %d, version %d\n", where, names[i],
               !!dlsym(RTLD_DEFAULT, names[i]), !!dlsym(self, names[i]), !!dlsym(RTLD_NEXT, names[i]),
               !!dlvsym(RTLD_NEXT, names[i], "GLIBC_2.34"));
}
int main(void) {
    tell("before");
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    printf("library %d\n", !!cuda);
    tell("after");
    return 0;
}
