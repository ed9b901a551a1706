"""Records what held the memory of JAX's allocator, at the largest of the moments at which it was read.

JAX keeps no history of its allocator, but can list the arrays of a moment with the Python stacks that made them. A thread reads
every few milliseconds how much is in use; where that is more than at any moment before, the arrays are listed. What is
held at the peak inside a compiled program is not seen so, and is not said to be. Whatever fails here ends the recording, and not
the program.
"""

import _thread
import atexit
import os
import sys
import time

import radrm_ends
import radrm_imports
import radrm_pprof
import radrm_replay
import radrm_rows

# Seconds between two readings.
PAUSE = 0.01
# Share of the run's time that listing arrays may take before the end.
SHARE = 0.02

ARRAYS = "arrays"
PLUGINS = ("jax_plugins.xla_cuda12", "jax_plugins.xla_cuda13")


class Recorder:
    """The recorder of this process. `write` is called with the figures, `missing` with a reason."""

    def __init__(self, write, missing):
        self.write_figures = write
        self.missing = missing
        self.owner = os.getpid()
        self.results = {}
        self.has_failed = False
        self.readings = 0
        self.started = time.perf_counter()
        self.spent = 0.0
        # Held while the thread may go on.
        self.goes_on = _thread.allocate_lock()
        self.goes_on.acquire()
        self.is_running = _thread.allocate_lock()

    def framework(self):
        return "JAX %s" % getattr(sys.modules.get("jax"), "__version__", "of an unknown version")

    def client(self):
        """JAX's side of the GPUs, once the program has used it."""
        bridge = sys.modules.get("jax._src.xla_bridge")
        return bridge._backends.get("cuda") if bridge else None

    # The thread.

    def begin(self):
        self.is_running.acquire()
        # The module `threading` would list it among the program's threads.
        _thread.start_new_thread(self.run, ())

    def run(self):
        try:
            while not self.goes_on.acquire(timeout=PAUSE):
                client = self.client()
                if client is not None:
                    self.read(client)
        except Exception as error:
            self.failed(error)
        finally:
            self.is_running.release()

    def failed(self, error):
        self.has_failed = True
        why = "the recorder failed: %s: %s" % (type(error).__name__, error)
        if self.results:
            self.write([why])
        else:
            self.missing(self.framework(), why)

    def end(self):
        """Called when the program ends, before JAX's own arrays go."""
        if os.getpid() != self.owner:
            return
        self.goes_on.release()
        self.is_running.acquire()
        try:
            client = self.client()
            if client is not None and not self.has_failed:
                self.read(client, True)
                if not self.results:
                    self.missing(self.framework(), "no array was on a GPU")
        except Exception as error:
            self.failed(error)

    # What is read.

    def read(self, client, is_end=False):
        """Lists the arrays if more is in use than at any moment before."""
        if not self.readings:
            # Until figures replace it.
            self.missing(self.framework(), radrm_ends.ENDED)
        began = time.perf_counter()
        if not is_end and self.spent > SHARE * (began - self.started):
            return
        self.readings += 1
        devices = {str(device): device for device in client.local_devices()}
        in_use = {name: self.in_use(device) for name, device in devices.items()}
        known = {name: self.results[name]["allocated"] if name in self.results else 0 for name in devices}
        # An allocator without figures is read once, at the end.
        more = [name for name in devices if (is_end if in_use[name] is None else in_use[name] > known[name])]
        if more:
            self.list(client, devices, in_use, more, is_end)
        elif is_end and self.results:
            self.write()
        self.spent += time.perf_counter() - began

    def in_use(self, device):
        return (device.memory_stats() or {}).get("bytes_in_use")

    def list(self, client, devices, in_use, more, is_end):
        import radrm_devices

        rows = {name: {} for name in devices}
        for stack, values, labels in radrm_pprof.read(client.heap_profile()):
            of = rows.get(labels.get("device"))
            # The code of compiled programs is none of the allocator's.
            if of is None or labels.get("kind") != "buffer":
                continue
            row = of.setdefault((ARRAYS, None, stack[: radrm_rows.FRAMES], radrm_replay.OWN), [0, 0])
            row[0] += values.get("space", 0)
            row[1] += values.get("allocations", 0)
        for name in more:
            stats = devices[name].memory_stats() or {}
            listed = sum(size for size, _ in rows[name].values())
            # What was freed while the arrays were listed.
            used = max(listed, min(filter(None, (in_use[name], stats.get("bytes_in_use"))), default=listed))
            if not used:
                continue
            self.results[name] = radrm_rows.packed(
                radrm_devices.uuid(devices[name].local_hardware_id),
                used,
                max(used, stats.get("pool_bytes") or 0),
                radrm_rows.largest(rows[name]),
                {},
            )
            self.results[name]["moment"] = "end" if is_end else "largest_read"
        self.write([] if is_end else [radrm_ends.NOT_LAST])

    def write(self, remarks=()):
        client = self.client()
        for device in client.local_devices() if client is not None else ():
            if str(device) in self.results:
                self.results[str(device)]["peak"] = (device.memory_stats() or {}).get("peak_bytes_in_use")
        known = (
            "JAX keeps no history of its allocator: %d moments were read, what was held in between is not known; "
            "unknown is what JAX does not list, such as temporaries of programs that ran, and what its allocator rounds up"
        )
        self.write_figures(
            {
                "framework": self.framework(),
                "remarks": [known % self.readings, *remarks],
                "devices": list(self.results.values()),
            }
        )


def install(write, missing):
    def watch(module):
        # JAX's own function at the end takes the arrays away: what is registered last is called first.
        import jax._src.xla_bridge

        recorder = Recorder(write, missing)
        recorder.begin()
        atexit.register(recorder.end)

    for plugin in PLUGINS:
        radrm_imports.after(plugin, watch)
