"""Looks at GPU 0 through pynvml as a monitor does, and says what it is told. It uses no CUDA."""

import pynvml

pynvml.nvmlInit()
device = pynvml.nvmlDeviceGetHandleByIndex(0)
one = pynvml.nvmlDeviceGetMemoryInfo(device)
two = pynvml.nvmlDeviceGetMemoryInfo(device, version=pynvml.nvmlMemory_v2)
assert one.total == one.free + one.used, one
assert two.total == two.free + two.used + two.reserved, two
print("memory", one.total, one.free, one.used)
print("memory_v2", two.total, two.reserved, two.free, two.used)
for ask in (
    pynvml.nvmlDeviceGetComputeRunningProcesses,
    pynvml.nvmlDeviceGetComputeRunningProcesses_v2,
    pynvml.nvmlDeviceGetGraphicsRunningProcesses,
    pynvml.nvmlDeviceGetMPSComputeRunningProcesses,
):
    print(ask.__name__, *(process.pid for process in ask(device)))
pynvml.nvmlShutdown()
