"""Takes a process off its GPUs through the driver's checkpoint interface and puts it back, with the time of each
step. usage: checkpoint.py PID. Prints a line of JSON."""

import ctypes
import json
import sys
import time

pid = int(sys.argv[1])
cuda = ctypes.CDLL("libcuda.so.1")
NAMES = {0: "running", 1: "locked", 2: "checkpointed", 3: "failed"}
said = {}


def say():
    print(json.dumps(said), flush=True)


def stop(reason, missing=False):
    said["missing" if missing else "error"] = reason
    say()
    sys.exit(0 if missing else 1)


def error_name(result):
    text = ctypes.c_char_p()
    cuda.cuGetErrorName(result, ctypes.byref(text))
    return (text.value or b"error %d" % result).decode()


def state():
    value = ctypes.c_int(-1)
    result = cuda.cuCheckpointProcessGetState(pid, ctypes.byref(value))
    return NAMES.get(value.value, str(value.value)) if result == 0 else error_name(result)


def used_mib():
    """Memory of the GPU in use by anybody; None where NVML does not tell."""
    try:
        import pynvml as nvml

        nvml.nvmlInit()
        return nvml.nvmlDeviceGetMemoryInfo(nvml.nvmlDeviceGetHandleByIndex(0)).used / (1 << 20)
    except Exception:
        return None


if cuda.cuInit(0):
    stop("the driver does not start", missing=True)
if not hasattr(cuda, "cuCheckpointProcessLock"):
    stop("this driver has no checkpoint interface", missing=True)


def perform(name, function, *arguments):
    start = time.monotonic()
    result = function(pid, *arguments)
    said[name + "_seconds"] = time.monotonic() - start
    if result:
        # Whatever happened, it must not stay locked: it would hang.
        reached = state()
        if reached == "locked":
            cuda.cuCheckpointProcessUnlock(pid, None)
        if error_name(result) in ("CUDA_ERROR_NOT_SUPPORTED", "CUDA_ERROR_STUB_LIBRARY"):
            stop("%s: %s" % (name, error_name(result)), missing=True)
        stop("%s: %s, the process is %s" % (name, error_name(result), reached))
    said["after_" + name] = state()


class LockArgs(ctypes.Structure):
    """CUcheckpointLockArgs: at most so long; 0 is without end."""
    _fields_ = [("timeoutMs", ctypes.c_uint), ("reserved0", ctypes.c_uint), ("reserved1", ctypes.c_uint64 * 7)]


said["before"] = state()
lock = LockArgs(timeoutMs=5000)
before = used_mib()
perform("lock", cuda.cuCheckpointProcessLock, ctypes.byref(lock))
perform("checkpoint", cuda.cuCheckpointProcessCheckpoint, None)
between = used_mib()
if before is not None and between is not None:
    said["freed_mib"] = before - between
perform("restore", cuda.cuCheckpointProcessRestore, None)
perform("unlock", cuda.cuCheckpointProcessUnlock, None)
say()
