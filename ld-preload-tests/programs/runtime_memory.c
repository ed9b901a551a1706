/* Loads the CUDA runtime that the loader finds, takes 3 GiB of GPU memory from the driver, and holds it long enough to be
   seen. The genuine runtime takes none of an emulated driver, which lacks its private tables. */
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <unistd.h>

static void *find(void *library, const char *name) {
    void *found = library ? dlsym(library, name) : NULL;
    if (!found) {
        fprintf(stderr, "%s: %s\n", name, dlerror());
        _exit(2);
    }
    return found;
}

int main(void) {
    void *runtime = dlopen("libcudart.so.13", RTLD_NOW);
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    int version = 0, device = 0;
    void *context = NULL;
    unsigned long long block = 0;
    int (*runtime_version)(int *) = (int (*)(int *))find(runtime, "cudaRuntimeGetVersion");
    int (*init)(unsigned) = (int (*)(unsigned))find(driver, "cuInit");
    int (*retain)(void **, int) = (int (*)(void **, int))find(driver, "cuDevicePrimaryCtxRetain");
    int (*enter)(void *) = (int (*)(void *))find(driver, "cuCtxSetCurrent");
    int (*take)(unsigned long long *, size_t) =
        (int (*)(unsigned long long *, size_t))find(driver, "cuMemAlloc_v2");
    if (runtime_version(&version) || init(0) || retain(&context, device) || enter(context) ||
        take(&block, (size_t)3 << 30)) {
        fprintf(stderr, "no memory with version %d\n", version);
        return 1;
    }
    sleep(1);
    return 0;
}
