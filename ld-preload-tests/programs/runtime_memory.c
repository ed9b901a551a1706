/* Takes 3 GiB of GPU memory through the CUDA runtime that the loader finds, and holds it long enough to be seen. */
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <unistd.h>

int main(void) {
    void *runtime = dlopen("libcudart.so.13", RTLD_NOW);
    if (!runtime) {
        fprintf(stderr, "%s\n", dlerror());
        return 2;
    }
    int (*take)(void **, size_t) = (int (*)(void **, size_t))dlsym(runtime, "cudaMalloc");
    int (*give_back)(void *) = (int (*)(void *))dlsym(runtime, "cudaFree");
    void *block = NULL;
    int result = take ? take(&block, (size_t)3 << 30) : -1;
    if (result) {
        fprintf(stderr, "cudaMalloc: %d\n", result);
        return 1;
    }
    sleep(1);
    return give_back ? give_back(block) : 1;
}
