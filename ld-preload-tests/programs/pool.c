/* The compiled module of a package, as Cython makes it: its debug information names a file of the machine that compiled it. */
#include "driver.h"

#line 40 "/project/pool/memory.pyx"
size_t pool_take(size_t bytes) {
    CUdeviceptr memory;
    use_device(0);
    OK(CU(cuMemAlloc_v2)(&memory, bytes));
    return memory;
}
