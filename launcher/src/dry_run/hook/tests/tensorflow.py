"""The figures of TensorFlow's allocator, with stand-ins for it and for the driver."""

import json
import os
import sys
import types

sys.path[:0] = sys.argv[1:]
import radrm_devices
import radrm_frameworks

radrm_devices.uuid = lambda device: "uuid-%d" % device
NOTES = []
ENDS = []
radrm_frameworks.atexit = types.SimpleNamespace(register=ENDS.append)


def note(kind, words, number=0):
    NOTES.append((kind, words))


def run(gpus, is_used=True, kept="JAX,TensorFlow", error=None):
    """What a program leaves behind that used so many GPUs, whose arrays took 3 GiB on the first and 4 on the second."""
    NOTES.clear()
    os.environ["RADRM_DRY_RUN_NO_PREALLOCATION"] = kept
    sys.last_value = error
    context = types.ModuleType("tensorflow.python.eager.context")
    context._context = types.SimpleNamespace(_initialized=is_used)
    sys.modules[context.__name__] = context
    peaks = {"/device:GPU:%d" % number: {"current": 1, "peak": (3 + number) << 30} for number in range(gpus)}
    module = types.SimpleNamespace(
        __version__="2.21.0",
        config=types.SimpleNamespace(
            list_logical_devices=lambda kind: [types.SimpleNamespace(name=name) for name in peaks],
            experimental=types.SimpleNamespace(get_memory_info=peaks.__getitem__),
        ),
    )
    radrm_frameworks.tensorflow(note)(module)
    ENDS.pop()()
    return [json.loads(words) for kind, words in NOTES if kind == "framework"]


[figures] = run(2)
assert (figures["framework"], figures["version"], figures["final"]) == ("TensorFlow", "2.21.0", True)
assert [(own["uuid"], own["allocated"]) for own in figures["devices"]] == [("uuid-0", 3 << 30), ("uuid-1", 4 << 30)]
assert any("without TF_FORCE_GPU_ALLOW_GROWTH=true it takes almost all" in words for _, words in NOTES)

# A program that wants growth, or none, itself.
run(1, kept="JAX")
assert not any("ALLOW_GROWTH" in words for _, words in NOTES), NOTES

# Its own refusal is one.
class ResourceExhaustedError(Exception):
    pass


[figures] = run(1, error=ResourceExhaustedError("OOM when allocating tensor with shape[8,1]"))
assert figures["devices"][0]["out_of_memory"] == 1

assert run(1, is_used=False) == [] and not NOTES, "it was imported only"
assert run(0) == [] and NOTES[0][0] == "withhold", "it computed on the processor"
