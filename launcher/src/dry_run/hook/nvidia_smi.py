#!/usr/bin/env -S python3 -S -E
"""Stands in for nvidia-smi: what programs ask it, answered by the emulated NVML.

`nvidia-smi -L`, `--query-gpu=FIELDS --format=csv[,noheader][,nounits]`, `-i NUMBERS`, and a short table without options.
"""

import ctypes
import sys

NVML = ctypes.CDLL("libnvidia-ml.so.1")
MIB = 1 << 20
NOT_THERE = "[N/A]"


class Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class Pci(ctypes.Structure):
    _fields_ = [
        ("legacy", ctypes.c_char * 16),
        *((name, ctypes.c_uint) for name in ("domain", "bus", "device", "id", "system")),
        ("bus_id", ctypes.c_char * 32),
    ]


class Rates(ctypes.Structure):
    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


def text(function, *before):
    """A text of NVML's; not there where the call fails."""
    out = ctypes.create_string_buffer(96)
    return out.value.decode() if getattr(NVML, function)(*before, out, 96) == 0 else NOT_THERE


def filled(function, kind, *before):
    """What a call fills; None where it fails."""
    out = kind()
    return out if getattr(NVML, function)(*before, ctypes.byref(out)) == 0 else None


def number(function, *before):
    out = filled(function, ctypes.c_uint, *before)
    return None if out is None else out.value


def compute_capability(gpu):
    major, minor = ctypes.c_int(), ctypes.c_int()
    failed = NVML.nvmlDeviceGetCudaComputeCapability(gpu, ctypes.byref(major), ctypes.byref(minor))
    return NOT_THERE if failed else "%d.%d" % (major.value, minor.value)


def memory(which):
    def of(gpu, index):
        found = filled("nvmlDeviceGetMemoryInfo", Memory, gpu)
        return None if found is None else getattr(found, which) // MIB

    return of


def utilization(which):
    def of(gpu, index):
        found = filled("nvmlDeviceGetUtilizationRates", Rates, gpu)
        return None if found is None else getattr(found, which)

    return of


def bus_id(gpu, index):
    found = filled("nvmlDeviceGetPciInfo_v3", Pci, gpu)
    return None if found is None else found.bus_id.decode()


def power(function):
    def of(gpu, index):
        found = number(function, gpu)
        return None if found is None else "%.2f" % (found / 1000)

    return of


# By field: its function, and its unit.
FIELDS = {
    "index": (lambda gpu, index: index, ""),
    "count": (lambda gpu, index: number("nvmlDeviceGetCount_v2"), ""),
    "name": (lambda gpu, index: text("nvmlDeviceGetName", gpu), ""),
    "uuid": (lambda gpu, index: text("nvmlDeviceGetUUID", gpu), ""),
    "driver_version": (lambda gpu, index: text("nvmlSystemGetDriverVersion"), ""),
    "compute_cap": (lambda gpu, index: compute_capability(gpu), ""),
    "pci.bus_id": (bus_id, ""),
    "memory.total": (memory("total"), "MiB"),
    "memory.used": (memory("used"), "MiB"),
    "memory.free": (memory("free"), "MiB"),
    "utilization.gpu": (utilization("gpu"), "%"),
    "utilization.memory": (utilization("memory"), "%"),
    "temperature.gpu": (lambda gpu, index: number("nvmlDeviceGetTemperature", gpu, 0), ""),
    "power.draw": (power("nvmlDeviceGetPowerUsage"), "W"),
    "power.limit": (power("nvmlDeviceGetEnforcedPowerLimit"), "W"),
}
ALIASES = {"gpu_name": "name", "gpu_uuid": "uuid", "gpu_bus_id": "pci.bus_id"}


def value(field, gpu, index, has_units):
    function, unit = FIELDS.get(ALIASES.get(field, field), (lambda *_: None, ""))
    found = function(gpu, index)
    if found is None:
        return NOT_THERE
    return "%s %s" % (found, unit) if unit and has_units else str(found)


def title(field, has_units):
    unit = FIELDS.get(ALIASES.get(field, field), (None, ""))[1]
    return "%s [%s]" % (field, unit) if unit and has_units else field


def options(arguments):
    """Options with their values, by `--name=value`, `--name value` and `-i value`."""
    found, rest = {}, list(arguments)
    while rest:
        name, is_joined, content = rest.pop(0).partition("=")
        if not is_joined and rest and not rest[0].startswith("-"):
            content = rest.pop(0)
        found[{"-i": "--id"}.get(name, name)] = content
    return found


def main():
    if NVML.nvmlInit_v2() != 0:
        print("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.")
        return 9
    asked = options(sys.argv[1:])
    gpus = []
    for index in range(number("nvmlDeviceGetCount_v2") or 0):
        gpu = ctypes.c_void_p()
        if NVML.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(gpu)) == 0:
            gpus.append((index, gpu))
    if asked.get("--id"):
        wanted = asked["--id"].split(",")
        gpus = [(index, gpu) for index, gpu in gpus if str(index) in wanted or text("nvmlDeviceGetUUID", gpu) in wanted]
    if "-L" in asked or "--list-gpus" in asked:
        for index, gpu in gpus:
            print("GPU %d: %s (UUID: %s)" % (index, text("nvmlDeviceGetName", gpu), text("nvmlDeviceGetUUID", gpu)))
        return 0
    form = asked.get("--format", "csv").split(",")
    fields = asked.get("--query-gpu", "index,name,memory.used,memory.total,utilization.gpu")
    fields = [field.strip() for field in fields.split(",")]
    has_units = "nounits" not in form
    if "noheader" not in form:
        print(", ".join(title(field, has_units) for field in fields))
    for index, gpu in gpus:
        print(", ".join(value(field, gpu, index, has_units) for field in fields))
    return 0


sys.exit(main())
