"""Prints what NVML says of GPU 0, as JSON."""

import json

import pynvml as nvml

nvml.nvmlInit()
gpu = nvml.nvmlDeviceGetHandleByIndex(0)


def text(value):
    return value.decode() if isinstance(value, bytes) else value


def asked(function, *arguments):
    """An answer, or the reason why there is none."""
    try:
        return function(*arguments)
    except nvml.NVMLError as error:
        return str(error)


memory = nvml.nvmlDeviceGetMemoryInfo(gpu)
cuda = nvml.nvmlSystemGetCudaDriverVersion()
facts = {
    "gpu": text(nvml.nvmlDeviceGetName(gpu)),
    "gpus": nvml.nvmlDeviceGetCount(),
    "driver": text(nvml.nvmlSystemGetDriverVersion()),
    "cuda_driver": "%d.%d" % (cuda // 1000, cuda % 1000 // 10),
    "memory_mib": memory.total >> 20,
    "used_mib_before": memory.used >> 20,
    "compute_capability": "%d.%d" % tuple(nvml.nvmlDeviceGetCudaComputeCapability(gpu)),
    "compute_mode": asked(nvml.nvmlDeviceGetComputeMode, gpu),
    "persistence": asked(nvml.nvmlDeviceGetPersistenceMode, gpu),
    "sm_clock_mhz": asked(nvml.nvmlDeviceGetClockInfo, gpu, nvml.NVML_CLOCK_SM),
    "max_sm_clock_mhz": asked(nvml.nvmlDeviceGetMaxClockInfo, gpu, nvml.NVML_CLOCK_SM),
    "power_limit_mw": asked(nvml.nvmlDeviceGetPowerManagementLimit, gpu),
}
try:
    facts["gpm"] = bool(nvml.nvmlGpmQueryDeviceSupport(gpu).isSupportedDevice)
except (AttributeError, nvml.NVMLError) as error:
    facts["gpm"] = str(error)
print(json.dumps(facts))
