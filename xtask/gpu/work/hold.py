"""As torch_hold.py, through the driver alone. usage: hold.py MIB"""

import ctypes
import json
import os
import sys

mib = int(sys.argv[1])
cuda = ctypes.CDLL("libcuda.so.1")


def ok(result):
    if result:
        sys.exit("the driver answered %d" % result)


context, device, block = ctypes.c_void_p(), ctypes.c_int(), ctypes.c_uint64()
ok(cuda.cuInit(0))
ok(cuda.cuDeviceGet(ctypes.byref(device), 0))
ok(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
ok(cuda.cuCtxSetCurrent(context))
ok(cuda.cuMemAlloc_v2(ctypes.byref(block), ctypes.c_size_t(mib << 20)))
content = bytes(range(256)) * 16
ok(cuda.cuMemcpyHtoD_v2(block, content, ctypes.c_size_t(len(content))))


def read():
    back = ctypes.create_string_buffer(len(content))
    ok(cuda.cuMemcpyDtoH_v2(back, block, ctypes.c_size_t(len(content))))
    return back.raw


before = read()
print(json.dumps({"pid": os.getpid(), "mib": mib}), flush=True)
sys.stdin.readline()
same = read() == before
computes = cuda.cuMemsetD8_v2(block, ctypes.c_ubyte(0), ctypes.c_size_t(4096)) == 0
print(json.dumps({"same": same, "computes": computes}), flush=True)
