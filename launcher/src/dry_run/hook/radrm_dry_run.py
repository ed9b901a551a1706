"""Reads the figures of PyTorch's allocator while a program runs, and stops it after so many steps.

Nothing of the program is changed: PyTorch's public hooks report when a forward pass begins and
when an optimizer has made a step. Figures are written as lines of a file that radrm-run names.
"""

import atexit
import importlib
import json
import os
import resource
import sys
import threading
import time

import radrm_choices
import radrm_devices
import radrm_ends
import radrm_graphs
import radrm_growth
import radrm_imports
import radrm_passes
import radrm_peaks
import radrm_phases
import radrm_waits
import radrm_work

_NOTES = os.environ.get("RADRM_DRY_RUN_NOTES")
_STEPS = int(os.environ.get("RADRM_DRY_RUN_STEPS") or 0)
_END = int(os.environ.get("RADRM_DRY_RUN_END") or 0)
_SHORT_EPOCHS = os.environ.get("RADRM_DRY_RUN_SHORT_EPOCHS") == "1"
_FAKE_DATA = os.environ.get("RADRM_DRY_RUN_FAKE_DATA") == "1"
_HOST_VALUES = os.environ.get("RADRM_DRY_RUN_HOST_VALUES") == "1"


def note(kind, words, number=0):
    """Appends one line; one write, so that lines of several processes do not mix."""
    if not _NOTES:
        return
    line = "%s\t%d\t%d\t%s\n" % (kind, os.getpid(), number, words.replace("\t", " ").replace("\n", " "))
    try:
        file = os.open(_NOTES, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    except OSError:
        return
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)


def _requested(stats):
    """Bytes that tensors asked for: what is allocated also depends on the blocks that were free."""
    return stats.get("requested_bytes", stats["allocated_bytes"])


# The step after which a program with fixed shapes takes no more.
SETTLED = 3
# Of what is reserved: so much more is one small segment, for which each bound has room.
NOISE = 0.005


class _Watch:
    """What is known of one process's run."""

    def __init__(self, torch):
        self.torch = torch
        self.owner = os.getpid()
        self.phase = "load"
        self.seen = radrm_phases.Phases(torch, _STEPS, _SHORT_EPOCHS)
        self.growth = radrm_growth.Growth(torch)
        self.passes = radrm_passes.Passes(torch, self.allocated, self.may_look, lambda: bool(self.seen.optimizers))
        self.seen.begins_evaluation = self.passes.begin
        self.choices = radrm_choices.Choices(torch)
        self.last = None
        # What was reserved after the last step from the third on, and what it grew from and to in steps like those before.
        self.settled = None
        self.grown = None
        self.blind = False
        self.peaks = radrm_peaks.of(torch)

    def count(self):
        """Steps of the optimizer that made the largest number."""
        return self.seen.count()

    def stats(self):
        return [self.peaks.stats(device) for device in range(self.torch.cuda.device_count())]

    def allocated(self):
        """Bytes that tensors of all devices asked for and hold now."""
        return sum(_requested(own)["all"]["current"] for own in self.stats() if own)

    def may_look(self):
        """Whether the history of PyTorch's allocator is this process's and not read for the growth of steps."""
        return self.is_on() and not self.blind and not self.growth.is_looking()

    def step_made(self, is_other):
        """Called after a step of the program; more than a step of the training may have come before it."""
        if self.blind or not self.torch.cuda.is_initialized():
            return
        self.growth.step(self.allocated())
        self.choices.see(self.seen.optimizers, self.count())
        stats = self.stats()
        reserved = sum(own["reserved_bytes"]["all"]["current"] for own in stats if own)
        if self.count() < SETTLED:
            return
        if self.settled is not None and reserved > self.settled * (1 + NOISE) and not is_other:
            self.grown = (self.grown[0] if self.grown else self.settled, reserved)
        self.settled = max(reserved, self.settled or 0)

    def enter(self, phase):
        """Ends the phase before it."""
        if self.record():
            self.peaks.next_phase()
        self.phase = phase

    def figures(self):
        cuda = self.torch.cuda
        devices = []
        for device in range(cuda.device_count()):
            seen, stats = self.peaks.read(device)
            # A device whose first request was refused holds nothing either, and is not one that was never used.
            if seen[1] == 0 and stats["num_ooms"] == 0:
                continue
            devices.append(
                {
                    "device": device,
                    "uuid": radrm_devices.of_torch(self.torch, device),
                    "allocated": seen[0],
                    "reserved": seen[1],
                    "retries": stats["num_alloc_retries"],
                    "out_of_memory": stats["num_ooms"],
                }
            )
        return devices

    def is_on(self):
        """Whether the figures are those of this process: a forked child has its parent's until it uses CUDA itself."""
        return self.owner == os.getpid()

    def begin(self):
        """Called when CUDA has been initialised: from here on a process without last figures ended before them."""
        self.owner = os.getpid()
        self.write([], False)
        radrm_ends.at_end_of_fork(self.end)
        observe = getattr(self.torch._C, "_cuda_attach_out_of_memory_observer", None)
        # Other allocators have no observers.
        if observe and self.torch.cuda.get_allocator_backend() == "native":
            observe(self.harmless(self.ran_out))

    def ran_out(self, device, request, *amounts):
        """Called when memory did not suffice, because of which the program may end without exit handlers."""
        if self.is_on():
            self.record()
            self.by_own_limit(device, request)

    def by_own_limit(self, device, request):
        """Notes a refusal by the part of the card that the program allowed itself (`set_per_process_memory_fraction`)."""
        part = getattr(self.torch.cuda, "get_per_process_memory_fraction", lambda device: 1.0)(device)
        free, total = self.torch.cuda.mem_get_info(device)
        if part < 1.0 and free >= request:
            sizes = request / (1 << 30), part * total / (1 << 30)
            note("remark", "PyTorch refused %.2f GiB at its own limit of %.1f GiB" % sizes)

    def harmless(self, function):
        """PyTorch would fail where a function that it calls fails."""

        def call(*arguments):
            try:
                function(*arguments)
            except Exception as error:
                note("remark", "figures of PyTorch's allocator are incomplete: %s" % str(error).split(chr(10))[0])

        return call

    def record(self, final=False):
        """Writes down the figures of the phase so far; false if there are none."""
        if not self.torch.cuda.is_initialized():
            return False
        if self.blind:
            if final:
                self.write([], final)
            return False
        try:
            devices = self.figures()
        except RuntimeError as error:
            self.blind = True
            note("remark", "PyTorch's allocator reports no figures: %s" % str(error).split(chr(10))[0])
            return self.record(final)
        if final:
            self.no_bound()
            self.harmless(self.note_choices)()
        if (self.phase, devices) != self.last:
            self.last = (self.phase, devices)
            self.write(devices, final)
        return True

    def end(self):
        """Writes down the last figures."""
        if self.is_on():
            self.last = None
            self.record(final=True)
            _let_autograd_rest()

    def write(self, devices, final):
        figures = {
            "framework": "PyTorch",
            "phase": self.phase,
            "final": final,
            "steps": self.count(),
            "version": self.torch.__version__,
            "allocator": self.torch.cuda.get_allocator_backend(),
            "devices": devices,
            "resident": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        }
        note("framework", json.dumps(figures))

    def note_choices(self):
        """Notes what the choices of a training take of its peak."""
        if self.count():
            for remark in self.choices.remarks(sum(self.peaks.highest.values())):
                note("remark", remark)

    def no_bound(self):
        """Notes what of the program makes its need on a GPU larger than any figure of a dry run."""
        if self.torch.backends.cudnn.benchmark:
            note("remark", "no bound: torch.backends.cudnn.benchmark is on, and what cuDNN tries takes other workspaces")
        grows = self.growth.remark() or self.passes.remark()
        for remark in filter(None, (grows, self.passes.filled())):
            note("remark", remark)
        idle = self.seen.idle()
        if idle and self.count():
            note("remark", "no bound: %d of %d optimizers made no or one step only" % (len(idle), len(self.seen.optimizers)))
        if not grows and self.grown:
            sizes = self.grown[0] >> 20, self.grown[1] >> 20, SETTLED, self.count()
            note("remark", "no bound: reserved memory grew from %d to %d MiB between steps %d and %d, as with changing shapes" % sizes)


def _busy_autograd_threads():
    busy = 0
    for thread in os.listdir("/proc/self/task"):
        try:
            with open("/proc/self/task/%s/stat" % thread) as file:
                name, state = file.read().rsplit(")", 1)
        except OSError:
            continue
        busy += "pt_autograd" in name and state.split()[0] != "S"
    return busy


def _let_autograd_rest():
    """Waits until PyTorch's backward threads have nothing more to release.

    They release the graph after the backward pass has returned, and for that they need the interpreter: if it is
    being shut down by then, the process is aborted. A GPU gives them time; here the program is at its end at once.
    """
    quiet = 0
    for _ in range(200):
        time.sleep(0.005)
        quiet = 0 if _busy_autograd_threads() else quiet + 1
        if quiet == 3:
            return


def _watch(torch):
    watch = _Watch(torch)
    waits = radrm_waits.Waits(_stop_waiting)
    work = radrm_work.install(torch, note, os.path.dirname(_NOTES)) if _NOTES else None
    undo = []

    def first_pass():
        """Ends the phase, and everything of it that the program could notice."""
        while undo:
            undo.pop()()
        if torch.cuda.is_initialized() and watch.phase == "load":
            watch.enter("first step")

    def forward(module, arguments):
        if torch.cuda.is_initialized():
            first_pass()

    def step(optimizer, arguments, keywords):
        # PyTorch calls it in the middle of the program.
        watch.harmless(after_step)(optimizer)
        if watch.seen.is_enough() and not watch.growth.is_looking():
            note("remark", "stopped after %d optimizer steps%s, as asked" % (watch.count(), watch.seen.seen()))
            raise SystemExit(0)

    def after_step(optimizer):
        waits.forget()
        watch.harmless(watch.passes.rest)()
        is_plain = not watch.seen.is_evaluating
        is_new, is_other = watch.seen.made(optimizer)
        if not watch.is_on():
            return
        if is_new:
            watch.harmless(watch.step_made)(is_other)
            if work and torch.cuda.is_initialized():
                recorded(work.step_made)(watch.count(), is_plain)
        if watch.phase == "steady":
            watch.record()
        elif torch.cuda.is_initialized():
            if watch.phase == "load":
                # No module was called: what came before the step cannot be separated from it.
                watch.phase = "first step"
            watch.enter("steady")

    def recorded(function):
        def call(*arguments):
            try:
                function(*arguments)
            except Exception as error:
                note("no-work", "its operators could not be traced: %s" % str(error).split(chr(10))[0])

        return call

    watch.seen.install()
    watch.passes.begin()
    for before in (radrm_imports.before_compiled, radrm_imports.before_traced):
        before(watch.harmless(watch.passes.stop))
    undo.append(torch.nn.modules.module.register_module_forward_pre_hook(watch.harmless(forward)).remove)
    radrm_imports.before_compiled(first_pass)
    import radrm_facts

    # First: the functions of the host's models are taken back earlier.
    radrm_facts.install(torch, waits)
    if not _HOST_VALUES:
        import radrm_host_models

        undo.append(radrm_host_models.install(torch))
    # The package hides its module of that name.
    importlib.import_module("torch.optim.optimizer").register_optimizer_step_post_hook(step)

    atexit.register(watch.end)
    _ENDS.append(watch.end)
    if work:
        atexit.register(recorded(work.abandon))
        _ENDS.append(recorded(work.abandon))
    if torch.backends.cuda.is_built():
        torch.cuda._lazy_call(watch.harmless(watch.begin))

    radrm_graphs.install(torch)

    import radrm_files

    radrm_files.torch_saves(torch)

    import radrm_objects

    radrm_objects.install(torch, note)

    import radrm_ranks

    radrm_ranks.install(torch, note)


# What writes last figures where a program is stopped in the middle.
_ENDS = []


# The exit code of `timeout`, which is that of a program that was stopped.
_STOPPED = 124


def _leave():
    """Ends the process from any of its threads."""
    for call in [*_ENDS, sys.stdout.flush, sys.stderr.flush]:
        try:
            call()
        except Exception:
            continue
    os._exit(_STOPPED)


def _stop_at(end):
    """Stops the program when its time is up, wherever it is."""

    def wait():
        time.sleep(max(0, end - time.monotonic()))
        note("remark", "stopped when its time was up, as asked")
        _leave()

    threading.Thread(target=wait, name="radrm-timeout", daemon=True).start()


def _stop_waiting(place):
    """Stops the program in a loop that would never end."""
    note("remark", "stopped in %s: its loop waits for a value of the GPU, which a dry run does not compute" % place)
    if threading.current_thread() is not threading.main_thread():
        _leave()
    raise SystemExit(_STOPPED)


def install():
    if _END:
        _stop_at(_END)
    import radrm_files
    import radrm_frameworks

    calls = {"torch": _watch, **radrm_frameworks.calls(note), **radrm_files.calls(note)}
    if _FAKE_DATA:
        import radrm_fake_data

        calls.update(radrm_fake_data.CALLS)
    radrm_imports.report_failures_to(lambda name, error: note("remark", "%s cannot be watched: %s" % (name, error)))
    for name, call in calls.items():
        radrm_imports.after(name, call)
    for name, call in radrm_frameworks.before().items():
        radrm_imports.before(name, call)

    import radrm_values

    radrm_values.install()
