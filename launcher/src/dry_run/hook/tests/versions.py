"""What versions of PyTorch have not in common, with stand-ins of their modules: 2.4 has less than the newest, and some have it elsewhere."""

import json
import os
import sys
import tempfile
import types

sys.path[:0] = sys.argv[1:]
FOLDER = tempfile.TemporaryDirectory()
os.environ["RADRM_TENSORS"] = FOLDER.name
os.environ["RADRM_DRY_RUN_RANKS"] = "0"
import radrm_devices
import radrm_imports
import radrm_peaks
import radrm_ranks
import radrm_tensors
import radrm_work

# A device's UUID: PyTorch 2.4 has none, and the driver is asked.
radrm_devices.uuid = lambda device: "by the driver"


def with_properties(**properties):
    return types.SimpleNamespace(cuda=types.SimpleNamespace(get_device_properties=lambda device: types.SimpleNamespace(**properties)))


assert radrm_devices.of_torch(with_properties(name="T4"), 0) == "by the driver"
assert radrm_devices.of_torch(with_properties(uuid="362c"), 0) == "362c"


# The allocator's figures: by one interface, the other, or both.
def stats_of(device):
    return {"allocated_bytes": {"all": {"peak": 7}}, "reserved_bytes": {"all": {"peak": 9}}}


for interfaces in ((0,), (1,), (0, 1)):
    names = [radrm_peaks.Peaks.INTERFACES[at] for at in interfaces]
    resets = []
    own = {}
    for stats, reset in names:
        own.update({stats: stats_of, reset: resets.append})
    core = types.SimpleNamespace(**own)
    peaks = radrm_peaks.Peaks(types.SimpleNamespace(_C=core))
    assert peaks.read(0)[0] == [7, 9], interfaces
    getattr(core, names[-1][1])(0)
    assert resets == [0], "the program's own reset is made once"

# A trace of operators is younger than 2.4's earliest ones.
notes = []
without = types.SimpleNamespace(__version__="2.4.1", _C=types.SimpleNamespace(_profiler=types.SimpleNamespace()))
assert radrm_work.install(without, lambda *words: notes.append(words), FOLDER.name) is None
assert notes == [("no-work", "PyTorch 2.4.1 has no trace of its operators")], notes


# The history of the allocator: without it, and with one that knows less.
def figures():
    with open(os.path.join(FOLDER.name, "%d.json" % os.getpid())) as file:
        return json.load(file)


memory = types.SimpleNamespace()
torch = types.SimpleNamespace(__version__="2.0.0", cuda=types.SimpleNamespace(memory=memory))
radrm_tensors.watch(torch)
assert figures()["missing"] == "this version keeps no history of its allocator"
CALLS = []


def record(enabled="all", context="all", stacks="all", max_entries=1):
    CALLS.append(enabled)


def snapshot(*arguments):
    if arguments:
        raise TypeError("takes no arguments")
    return {"segments": [], "device_traces": []}


memory._record_memory_history, memory._snapshot = record, snapshot
core = types.SimpleNamespace(_cuda_memorySnapshot=snapshot, _cuda_memoryStats=stats_of, _cuda_resetPeakMemoryStats=id)
torch._C = core
radrm_peaks._PEAKS.clear()
recorder = radrm_tensors.Recorder(torch)
recorder.clear()
assert CALLS == [None, "all"], "a history that cannot begin anew is ended first"
assert recorder.snapshot(False)["segments"] == [], "one that always has its history"


# Process groups: before they were registered backends, --ranks ends with a sentence and not in the middle of the program.
class Backend:
    _plugins = {}
    backend_capability = backend_type_map = {}


model = radrm_ranks.Model.__new__(radrm_ranks.Model)
model.dist = types.SimpleNamespace(Backend=Backend, ProcessGroup=type("ProcessGroup", (), {}))
try:
    model.replace_backends()
except AttributeError as error:
    assert str(error) == "NCCL is no registered backend", error
else:
    raise AssertionError("it is not known that nothing can be wrapped")
model.replace_split()
assert not hasattr(model.dist.ProcessGroup, "split_group")

# Where they are registered at once, nothing has to be asked for.
made = []
Backend._plugins = {"NCCL": types.SimpleNamespace(extended_api=True, creator_fn=len)}
Backend.backend_capability = Backend.backend_type_map = {"nccl": ["cuda"]}
Backend.register_backend = lambda name, function, **keywords: made.append((name, keywords["devices"]))
model.replace_backends()
assert made == [("nccl", ["cuda"])], made
