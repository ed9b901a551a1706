"""Times an allocation with its release below so many frames of Python, and prints nanoseconds of each batch.

usage: bench_stacks.py DEPTH BATCH BATCHES
"""

import ctypes
import sys
import time

cuda = ctypes.CDLL("libcuda.so.1")
device, context, block = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
assert cuda.cuInit(0) == 0
assert cuda.cuDeviceGet(ctypes.byref(device), 0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0
assert cuda.cuCtxSetCurrent(context) == 0
alloc, free, size, at = cuda.cuMemAlloc_v2, cuda.cuMemFree_v2, ctypes.c_size_t(1 << 20), ctypes.byref(block)


def below(depth, batch):
    if depth:
        return below(depth - 1, batch)
    begin = time.perf_counter_ns()
    for _ in range(batch):
        alloc(at, size)
        free(block)
    return (time.perf_counter_ns() - begin) / batch


depth, batch, batches = map(int, sys.argv[1:])
below(depth, batch)
for _ in range(batches):
    print("%.1f" % below(depth, batch))
