"""Takes device memory in blocks until it was refused twice, a moment apart, then says what it holds, as JSON."""

import ctypes
import json
import sys
import time

BLOCK = 64 << 20
cuda = ctypes.CDLL("libcuda.so.1")
context, device = ctypes.c_void_p(), ctypes.c_int()
for result in (cuda.cuInit(0), cuda.cuDeviceGet(ctypes.byref(device), 0),
               cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device), cuda.cuCtxSetCurrent(context)):
    if result:
        sys.exit("the driver answered %d" % result)
print("ready", flush=True)
sys.stdin.readline()
held, refused = 0, None
for attempt in range(2):
    while True:
        block = ctypes.c_uint64()
        result = cuda.cuMemAlloc_v2(ctypes.byref(block), ctypes.c_size_t(BLOCK))
        if result:
            refused = result
            break
        held += BLOCK
    time.sleep(0.5)
print(json.dumps({"held": held, "block": BLOCK, "refused": refused}), flush=True)
sys.stdin.readline()
