"""Looks at the machine through pynvml, holding nothing."""

import pynvml

pynvml.nvmlInit()
print("driver", pynvml.nvmlSystemGetDriverVersion())
for i in range(pynvml.nvmlDeviceGetCount()):
    device = pynvml.nvmlDeviceGetHandleByIndex(i)
    memory = pynvml.nvmlDeviceGetMemoryInfo(device)
    assert memory.total == memory.free + memory.used or memory.total >= memory.used
    print("gpu", i, pynvml.nvmlDeviceGetName(device), pynvml.nvmlDeviceGetUUID(device), memory.total, memory.used)
    for process in pynvml.nvmlDeviceGetComputeRunningProcesses(device):
        print("process", i, process.pid, process.usedGpuMemory)
pynvml.nvmlShutdown()
