"""Records the operators of one optimizer step, by the trace of operators that PyTorch has for that (ExecutionTraceObserver).

The trace has the names, shapes, types and devices of all operators, those of the backward pass included; radrm-run works out what
they compute. The second step is recorded, unless something was evaluated in it. Steps after it are timed without the trace.
"""

import json
import os
import sys
import threading
import time

import radrm_imports

# Steps whose time is taken.
TIMED = 8
# Files of Python's own in which a thread that waits has its innermost frame.
WAITING = {"threading.py", "queue.py", "selectors.py", "socket.py", "ssl.py", "connection.py", "thread.py"}


def _is_alone():
    """The trace may not begin or end while another thread is in an operator: PyTorch would crash."""
    frames = sys._current_frames()
    # A frame that knows itself would keep the program's variables, and so its tensors, until garbage is collected.
    frames.pop(threading.get_ident(), None)
    files = {os.path.basename(frame.f_code.co_filename) for frame in frames.values()}
    del frames
    return files <= WAITING


def _is_soon_alone():
    for _ in range(100):
        if _is_alone():
            return True
        time.sleep(0.001)
    return False


class _Quiet:
    """PyTorch reports on standard error that the trace is on or off, which is no output of the program."""

    def __enter__(self):
        self.saved = os.dup(2)
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 2)
        os.close(nowhere)

    def __exit__(self, *_):
        os.dup2(self.saved, 2)
        os.close(self.saved)


class Recorder:
    """The trace of one step of one process."""

    def __init__(self, torch, note, folder):
        self.torch = torch
        self.note = note
        self.folder = folder
        self.path = None
        self.is_done = False
        self.timed = 0
        self.began = None
        self.opaque = {"graphs": 0, "streams": 0}
        self.seen = dict(self.opaque)
        self.owner = os.getpid()
        self.replaced = []
        self.calls = torch._C._profiler

    def install(self):
        """Counts what a trace of operators does not show."""
        graph = getattr(self.torch.cuda, "CUDAGraph", None)
        if graph is not None and hasattr(graph, "replay"):
            self.count(graph, "replay", "graphs")
        self.count(self.torch.cuda, "set_stream", "streams")
        os.register_at_fork(after_in_child=self.forget)
        self.make_way(sys.modules.get("torch.profiler.profiler"))
        # A compiler would trace them; of what it compiles the trace shows nothing anyway.
        radrm_imports.before_compiled(self.restore)

    def make_way(self, module):
        """There is one trace of operators in a process: the program's own ends this one."""
        original = getattr(module, "_add_execution_trace_observer", None)
        if original is None:
            return

        def add(path):
            self.abandon()
            self.is_done = True
            return original(path)

        module._add_execution_trace_observer = add

    def count(self, owner, name, what):
        original = getattr(owner, name)

        def call(*arguments, **keywords):
            self.opaque[what] += 1
            return original(*arguments, **keywords)

        call.__wrapped__, call.__doc__ = original, original.__doc__
        setattr(owner, name, call)
        self.replaced.append((owner, name, call, original))

    def restore(self):
        while self.replaced:
            owner, name, call, original = self.replaced.pop()
            # What the program has put there since then stays.
            if vars(owner).get(name) is call:
                setattr(owner, name, original)

    def forget(self):
        """A forked child has the trace of its parent, which is not its own."""
        if self.path is not None:
            self.path = None
            self.is_done = True
            self.timed = TIMED
            with _Quiet():
                self.calls._disable_execution_trace_observer()

    def step_made(self, count, is_plain):
        """Called after each step of the program. `is_plain`: nothing was evaluated since the step before it."""
        wall, processor = time.perf_counter(), time.process_time()
        if self.path is not None:
            path = self.end()
            if path is not None and is_plain:
                self.report(path, count)
            elif path is not None:
                os.unlink(path)
                self.missing("something was evaluated in the step that was recorded")
        elif self.is_done and self.began and is_plain and self.timed < TIMED:
            self.timed += 1
            took = min(wall - self.began[0], processor - self.began[1])
            self.note("host-time", "", int(took * 1e9))
        if not self.is_done:
            self.begin()
        self.seen = dict(self.opaque)
        self.began = time.perf_counter(), time.process_time()

    def begin(self):
        """Begins the trace, once in a process: this is called within the optimizer's own record, and PyTorch crashes at its end
        if that began under an earlier trace."""
        self.is_done = True
        path = os.path.join(self.folder, "work.%d" % os.getpid())
        with _Quiet():
            if not _is_alone():
                return self.missing("several threads of the program compute")
            if not self.calls._add_execution_trace_observer(path):
                return self.missing("the program traces its operators itself")
            self.calls._enable_execution_trace_observer()
        self.path = path

    def end(self):
        """Ends the trace; None if it cannot be ended without harm."""
        path, self.path = self.path, None
        with _Quiet():
            if not _is_soon_alone():
                self.missing("several threads of the program compute")
                os.unlink(path)
                return None
            self.calls._disable_execution_trace_observer()
            self.calls._remove_execution_trace_observer()
        return path

    def abandon(self):
        """At the end of the process: a step that did not end is none."""
        if self.path is not None and self.owner == os.getpid():
            path = self.end()
            if path is not None:
                os.unlink(path)

    def missing(self, why):
        self.note("no-work", why)

    def report(self, path, count):
        dynamo = sys.modules.get("torch._dynamo.utils")
        compiled = dynamo is not None and sum(dynamo.counters["frames"].values()) > 0
        facts = {
            "trace": os.path.basename(path),
            "step": count,
            "tf32_products": self.flag("_get_cublas_allow_tf32"),
            "tf32_convolutions": self.flag("_get_cudnn_allow_tf32"),
            "compiled": compiled,
            "graphs": self.opaque["graphs"] > self.seen["graphs"],
            "streams": self.opaque["streams"] > self.seen["streams"],
        }
        self.note("work", json.dumps(facts), self.torch.cuda.current_device())

    def flag(self, name):
        try:
            return bool(getattr(self.torch._C, name)())
        except Exception:
            return False


def install(torch, note, folder):
    """The recorder of this process; None where this PyTorch has no such trace."""
    names = ("_add", "_remove", "_enable", "_disable")
    if not all(hasattr(torch._C._profiler, name + "_execution_trace_observer") for name in names):
        note("no-work", "PyTorch %s has no trace of its operators" % torch.__version__)
        return None
    recorder = Recorder(torch, note, folder)
    recorder.install()
    return recorder
