"""Holds memory through cuda.bindings and asks pynvml what this process holds."""

import os

import pynvml
from cuda.bindings import driver


def ok(result):
    """The values of a call that must succeed."""
    status, *values = result
    assert status == type(status)(0), status
    return values[0] if len(values) == 1 else tuple(values)


ok(driver.cuInit(0))
context = ok(driver.cuDevicePrimaryCtxRetain(ok(driver.cuDeviceGet(0))))
ok(driver.cuCtxSetCurrent(context))
block = ok(driver.cuMemAlloc(512 << 20))
pynvml.nvmlInit()
device = pynvml.nvmlDeviceGetHandleByIndex(0)
mine = [p.usedGpuMemory for p in pynvml.nvmlDeviceGetComputeRunningProcesses(device) if p.pid == os.getpid()]
assert len(mine) == 1 and mine[0] >= 512 << 20, mine
print("nvml says", mine[0])
