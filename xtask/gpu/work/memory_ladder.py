"""Takes memory of each family in steps through the driver, and prints after each what it has asked for and what
NVML says, as JSON. usage: memory_ladder.py SCALE"""

import ctypes
import json
import os
import sys
import time

import pynvml as nvml

SCALE = int(sys.argv[1])
MIB = 1 << 20
cuda = ctypes.CDLL("libcuda.so.1")
nvml.nvmlInit()
u64, size, pointer = ctypes.c_uint64, ctypes.c_size_t, ctypes.c_void_p


def ok(result):
    if result:
        sys.exit("the driver answered %d" % result)


def made(kind, function, *arguments):
    value = kind()
    ok(function(ctypes.byref(value), *arguments))
    return value


ok(cuda.cuInit(0))
device = made(ctypes.c_int, cuda.cuDeviceGet, 0)
context = made(pointer, cuda.cuDevicePrimaryCtxRetain, device)
ok(cuda.cuCtxSetCurrent(context))
uuid = (ctypes.c_ubyte * 16)()
ok(cuda.cuDeviceGetUuid_v2(uuid, device))
digits = bytes(uuid).hex()
name = "GPU-" + "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
gpu = nvml.nvmlDeviceGetHandleByUUID(name.encode())
asked = 0


def by_nvml():
    for process in nvml.nvmlDeviceGetComputeRunningProcesses(gpu):
        if process.pid == os.getpid() and process.usedGpuMemory is not None:
            return process.usedGpuMemory / MIB
    return None


def rung(what, more, seconds=0.35):
    global asked
    asked += more
    # So that who looks a few times a second sees each.
    time.sleep(seconds)
    print(json.dumps({
        "rung": what, "grown_mib": more // MIB, "asked_mib": asked // MIB, "nvml_mib": by_nvml(),
        "used_mib": nvml.nvmlDeviceGetMemoryInfo(gpu).used / MIB,
    }), flush=True)


rung("context", 0)
plain = []
for mib in (64, 128, 256, 512):
    plain.append(made(u64, cuda.cuMemAlloc_v2, size(mib * SCALE * MIB)))
    rung("cuMemAlloc", mib * SCALE * MIB)

# A pool keeps what it has: it grows by what is asked for, and shrinks when it is told to.
stream = made(pointer, cuda.cuStreamCreate, 1)
pool = made(pointer, cuda.cuDeviceGetDefaultMemPool, device)
keep = u64(2**64 - 1)
ok(cuda.cuMemPoolSetAttribute(pool, 4, ctypes.byref(keep)))
handed = made(u64, cuda.cuMemAllocAsync, size(256 * SCALE * MIB), stream)
ok(cuda.cuStreamSynchronize(stream))
rung("cuMemAllocAsync", 256 * SCALE * MIB)


class Location(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]


class Properties(ctypes.Structure):
    """CUmemAllocationProp."""
    _fields_ = [("type", ctypes.c_int), ("handles", ctypes.c_int), ("location", Location), ("win32", pointer),
                ("flags", ctypes.c_ubyte * 8)]


properties = Properties(type=1, location=Location(1, device.value))
granularity = made(size, cuda.cuMemGetAllocationGranularity, ctypes.byref(properties), 0).value
mapped = 128 * SCALE * MIB // granularity * granularity
handle = made(u64, cuda.cuMemCreate, size(mapped), ctypes.byref(properties), u64(0))
address = made(u64, cuda.cuMemAddressReserve, size(mapped), size(0), u64(0), u64(0))
ok(cuda.cuMemMap(address, size(mapped), size(0), handle, u64(0)))
# The top: a reader that reads at all must see it.
rung("cuMemCreate", mapped, 2)

ok(cuda.cuMemUnmap(address, size(mapped)))
ok(cuda.cuMemRelease(handle))
ok(cuda.cuMemAddressFree(address, size(mapped)))
rung("cuMemRelease", -mapped)
ok(cuda.cuMemFreeAsync(handed, stream))
ok(cuda.cuStreamSynchronize(stream))
rung("cuMemFreeAsync, kept by the pool", 0)
ok(cuda.cuMemPoolTrimTo(pool, size(0)))
rung("cuMemPoolTrimTo", -256 * SCALE * MIB)
for block, mib in zip(plain, (64, 128, 256, 512)):
    ok(cuda.cuMemFree_v2(block))
    asked -= mib * SCALE * MIB
rung("cuMemFree of all", 0)
