"""Reads the figures of the allocators of JAX, TensorFlow and CuPy, and reports where one of them did not use the GPU.

A program that falls back to the processor, or fails, must not be reported to need no GPU memory.
"""

import atexit
import ctypes
import glob
import json
import os
import re
import resource
import sys

import radrm_devices


def _refused():
    """1 if the program ended because a pool refused memory at its own limit, of which the driver sees nothing."""
    error = getattr(sys, "last_value", None)
    return int(error is not None and ("RESOURCE_EXHAUSTED" in str(error) or type(error).__name__ == "ResourceExhaustedError"))


def _note_growth(note, framework, variable, share):
    """Notes that a pool took memory as it was needed only because the dry run asked it to."""
    if framework in os.environ.get("RADRM_DRY_RUN_NO_PREALLOCATION", "").split(","):
        note("remark", "%s took memory as it needed it; without %s it takes %s of a card at once" % (framework, variable, share))


def _request():
    """What the pool refused, as it says it."""
    found = re.search(r"(?:trying to allocate|allocating) ([0-9.]+ ?[A-Za-z]+)", str(getattr(sys, "last_value", "")))
    return found[1] if found else "a request"


def _report(note, framework, version, allocator, devices, limit=0):
    refused = _refused()
    if refused and limit:
        note("remark", "%s refused %s at its own limit of %.1f GiB" % (framework, _request(), limit / (1 << 30)))
    figures = {
        "framework": framework,
        "phase": "end",
        "final": True,
        "steps": 0,
        "version": version,
        "allocator": allocator,
        "devices": [
            {"device": number, "uuid": radrm_devices.uuid(number), "allocated": used, "reserved": held, "retries": 0, "out_of_memory": refused}
            for number, used, held in devices
        ],
        "resident": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }
    note("framework", json.dumps(figures))


def _load_genuine(stem):
    """Loads a library from its wheel: programs that are linked to it find it by its name from then on.

    On a machine with CUDA they would find it there; the stand-in has no compiler.
    """
    for folder in sys.path:
        for path in glob.glob(os.path.join(folder or ".", "nvidia", "*", "lib", stem + ".so.*")):
            try:
                ctypes.CDLL(path)
            except OSError:
                continue


def jax_hardware(note):
    """JAX checks for device files before it calls the driver. An emulated GPU has none."""

    def change(module):
        module.has_visible_nvidia_gpu = lambda: True

    return change


def jax_plugin(note):
    """Called when JAX's CUDA plugin has been loaded."""

    def watch(module):
        owner = os.getpid()

        def end():
            bridge = sys.modules.get("jax._src.xla_bridge")
            if os.getpid() != owner or bridge is None:
                return
            asked = os.environ.get("JAX_PLATFORMS", "")
            if not bridge._backends or (asked and "cuda" not in asked and "gpu" not in asked):
                return
            client = bridge._backends.get("cuda")
            if client is None:
                why = str(bridge._backend_errors.get("cuda", "no reason given")).split("\n")[0]
                note("withhold", "JAX computed on the processor, because its CUDA plugin did not start: " + why)
                return
            devices, limit = [], 0
            for device in client.local_devices():
                stats = device.memory_stats() or {}
                limit = stats.get("bytes_limit", limit)
                used = stats.get("peak_bytes_in_use", 0)
                devices.append((device.local_hardware_id, used, max(used, stats.get("peak_pool_bytes", 0))))
            version = sys.modules["jax"].__version__
            _report(note, "JAX", version, os.environ.get("XLA_PYTHON_CLIENT_ALLOCATOR", "BFC"), devices, limit)
            note("remark", "XLA timed its kernels on the emulated GPU: on a real one it may choose others, with other workspaces")
            _note_growth(note, "JAX", "XLA_PYTHON_CLIENT_PREALLOCATE=false", "75 %")

        # After JAX's own, which ends its clients: what is registered last is called first.
        import jax._src.xla_bridge

        atexit.register(end)

    return watch


def tensorflow(note):
    """Called when TensorFlow has been loaded."""

    def watch(module):
        owner = os.getpid()

        def end():
            context = getattr(sys.modules.get("tensorflow.python.eager.context"), "_context", None)
            # To ask a program's TensorFlow that has used no device would start them.
            if os.getpid() != owner or not getattr(context, "_initialized", False):
                return
            devices = []
            for number, device in enumerate(module.config.list_logical_devices("GPU")):
                used = module.config.experimental.get_memory_info(device.name)["peak"]
                devices.append((number, used, used))
            if not devices:
                return note("withhold", "TensorFlow computed on the processor, because it found no GPU")
            _report(note, "TensorFlow", module.__version__, "BFC", devices)
            _note_growth(note, "TensorFlow", "TF_FORCE_GPU_ALLOW_GROWTH=true", "almost all")

        atexit.register(end)

    return watch


def cupy(note):
    """Called when CuPy has been loaded."""

    def watch(module):
        runtime = sys.modules["cupy_backends.cuda.api.runtime"]
        try:
            runtime.getDeviceCount()
        except Exception:
            with open(runtime.__file__, "rb") as file:
                linked = b"libcudart.so." not in file.read()
            note(
                "withhold",
                "CuPy %s has the CUDA runtime linked into it, which does not start on an emulated GPU (up to CuPy 12 "
                "the wheels load the shared one)" % module.__version__
                if linked
                else "CuPy %s found no GPU" % module.__version__,
            )
            return
        peaks = {}
        owner = os.getpid()

        class Watch(module.cuda.memory_hook.MemoryHook):
            """Sums what the pool has handed out."""

            name = "radrm"

            def malloc_postprocess(self, device_id, size, mem_size, mem_ptr, pmem_id):
                own = peaks.setdefault(device_id, [0, 0])
                own[0] += mem_size
                own[1] = max(own)

            def free_postprocess(self, device_id, mem_size, mem_ptr, pmem_id):
                peaks.setdefault(device_id, [0, 0])[0] -= mem_size

        Watch().__enter__()

        def end():
            if os.getpid() == owner and peaks:
                held = module.get_default_memory_pool()
                devices = []
                for number, (_, used) in peaks.items():
                    with module.cuda.Device(number):
                        devices.append((number, used, max(used, held.total_bytes())))
                _report(note, "CuPy", module.__version__, "memory pool", devices)

        atexit.register(end)

    return watch


def calls(note):
    """What is to be called when a module of that name has been loaded."""
    return {
        "cupy": cupy(note),
        "jax._src.hardware_utils": jax_hardware(note),
        "jax_plugins.xla_cuda12": jax_plugin(note),
        "jax_plugins.xla_cuda13": jax_plugin(note),
        "tensorflow": tensorflow(note),
    }


def before():
    """What is to be called before a module of that name is loaded."""
    return {"cupy": lambda: _load_genuine("libnvrtc")}
