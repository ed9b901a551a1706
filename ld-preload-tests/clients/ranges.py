"""Ranges of NVIDIA's package nvtx around allocations of known sizes."""

import ctypes

import nvtx

cuda = ctypes.CDLL("libcuda.so.1")


def held(mib):
    block = ctypes.c_uint64()
    assert cuda.cuMemAlloc_v2(ctypes.byref(block), ctypes.c_size_t(mib << 20)) == 0
    return block


@nvtx.annotate("train_step", color="blue")
def step():
    assert cuda.cuMemFree_v2(held(32)) == 0


context = ctypes.c_void_p()
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
with nvtx.annotate("load", domain="io", category="disk"):
    kept = held(16)
across = nvtx.start_range("across")
for _ in range(5):
    step()
nvtx.end_range(across)
nvtx.mark("saved")
