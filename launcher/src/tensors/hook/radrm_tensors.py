"""Records what held the memory of PyTorch's allocator at its peak: by line, by module and by what it is.

PyTorch's allocator keeps the history of its last events, with the Python frames of each request. Where a peak was higher
than any before, the history is read and replayed up to it. While the steps of a training repeat, the recording rests. Nothing of
the program is changed: hooks that PyTorch has for that purpose label the requests of modules and optimizers. Whatever fails
here ends the recording, and not the program.
"""

import atexit
import collections
import importlib
import json
import os
import threading
import time
import weakref

import radrm_backward
import radrm_ends
import radrm_holders
import radrm_imports
import radrm_jax
import radrm_modules
import radrm_peaks
import radrm_refusal
import radrm_repeats
import radrm_replay

FOLDER = os.environ.get("RADRM_TENSORS")
# The recorder of this process, once PyTorch has been loaded.
RECORDER = None

# Events that PyTorch keeps. A request is three of them, of which the first has frames.
EVENTS = 1 << 17
# From so many events on the history is read or begun anew, so that none is lost.
MANY_EVENTS = EVENTS // 2
# Passes through a model between two looks at how much history there is.
PASSES = 16
# Ends of steps that are kept: the peak is in one of the last ones.
STEP_ENDS = 1 << 6
# Bytes by which a step that repeats leaves something behind.
LEAK = 1 << 20
# Share of the run's time that reading the history may take before the end.
SHARE = 0.02
# Stands before the number of a moment, at the parameter whose memory marks it in the history.
MARK = "radrm moment "
# Remarks.
RESTED = "the recording rested in %d of %d steps, which asked for the same memory as recorded ones"
POOLS = "CUDA graphs: %d private pools hold %.0f MiB at the end, of which %.0f MiB are allocated"
MISSED = "the peak was in a step that was not recorded: the figures are of the highest moment that was"


def write(figures):
    """Replaces this process's file: one that is killed leaves a whole one."""
    path = os.path.join(FOLDER, "%d.json" % os.getpid())
    try:
        file = os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(file, "w") as out:
            json.dump(figures, out, separators=(",", ":"))
        os.rename(path + ".new", path)
    except OSError:
        pass


def write_missing(framework, why):
    """Why nothing but the driver's allocations is known."""
    write({"framework": framework, "missing": why})


class Recorder:
    """The recorder of this process."""

    def __init__(self, torch):
        self.torch = torch
        self.framework = "PyTorch %s" % torch.__version__
        self.record = torch.cuda.memory._record_memory_history
        self.peaks = radrm_peaks.of(torch)
        self.owner = None
        self.modules = None
        self.annotate = None
        self.optimizers = {}
        # By device: the allocator's layout, and what held the highest peak so far.
        self.devices = {}
        self.results = {}
        self.peaks_held = {}
        # The highest peak at the last reading, which may have been in a step that was not recorded.
        self.seen = {}
        self.remarks = []
        self.passes = radrm_backward.Passes(self.requests)
        self.steps = radrm_repeats.Steps()
        self.is_resting = self.has_rested = False
        self.ended_steps = self.rested_steps = 0
        self.switching = threading.RLock()
        self.backward_pass = getattr(torch._C, "_current_graph_task_id", lambda: -1)
        # By moment: where gradients lay, and what lay where of a model, until the history is read.
        self.moments = 0
        self.gradients = {}
        self.models = {}
        self.events_then = 0
        self.started = time.perf_counter()
        self.spent = 0.0
        # Passes that belong to no step of an optimizer.
        self.lone_passes = 0
        # Why the last refused request was refused.
        self.refusal = []
        # Bytes that tensors had after the last step that was compared.
        self.kept = 0
        # Requests by device at the end of the first step and of the last ones.
        self.first_end = {}
        self.step_ends = collections.deque(maxlen=STEP_ENDS)
        self.origin = None
        self.undo = []

    def is_on(self):
        return self.owner == os.getpid()

    def begin(self):
        """Called when CUDA has been initialised, before the first request."""
        torch = self.torch
        self.owner = os.getpid()
        backend = torch.cuda.get_allocator_backend()
        if backend != "native":
            return self.stop("PyTorch's allocator is %s, which keeps no history" % backend)
        self.clear()
        self.go_on_from(self.snapshot())
        # Until figures replace it.
        write_missing(self.framework, radrm_ends.ENDED)
        if hasattr(torch._C, "_cuda_setMemoryMetadata"):
            self.annotate = getattr(torch._C, "_cuda_annotateMemory", None)
            label = torch._C._cuda_setMemoryMetadata
            self.modules = radrm_modules.Modules(torch, label, self.mark_model, self.place, self.passed, self.failed)
            self.undo.append(self.modules.stop)
            radrm_imports.before_compiled(self.guarded(self.compiled))
        else:
            self.remarks.append("modules of activations are not known: PyTorch %s labels no requests" % torch.__version__)
        observe = getattr(torch._C, "_cuda_attach_out_of_memory_observer", None)
        if observe:
            observe(self.guarded(lambda device, requested, total, free: self.refused(device, requested)))
        # The package hides its module of that name.
        optimizer = importlib.import_module("torch.optim.optimizer")
        before, after = self.guarded(self.before_step), self.guarded(self.after_step)
        self.undo.append(optimizer.register_optimizer_step_pre_hook(before).remove)
        self.undo.append(optimizer.register_optimizer_step_post_hook(after).remove)
        end = self.guarded(self.finish)
        atexit.register(end)
        radrm_ends.at_end_of_fork(end)
        os.register_at_fork(after_in_child=self.forget)

    def stop(self, why):
        """The program goes on without the recorder."""
        is_own, self.owner = self.is_on(), None
        while self.undo:
            self.undo.pop()()
        if self.results and is_own:
            self.remarks.append("recorded until %s" % why)
            self.write()
        elif is_own:
            write_missing(self.framework, why)

    def forget(self):
        """In a forked child, which is not a process of its own for the GPU."""
        self.owner = None
        if self.modules:
            self.modules.stop()

    def failed(self, error):
        self.stop("the recorder failed: %s: %s" % (type(error).__name__, error))

    def guarded(self, function):
        """A hook that does the program no harm."""

        def hook(*arguments, **keywords):
            if self.is_on():
                try:
                    function(*arguments, **keywords)
                except Exception as error:
                    self.failed(error)

        return hook

    def write(self, is_last=True):
        remarks = [*self.remarks, *self.refusal]
        if self.rested_steps:
            remarks.append(RESTED % (self.rested_steps, self.ended_steps))
        if self.is_peak_missed():
            remarks.append(MISSED)
        if not is_last:
            remarks.append(radrm_ends.NOT_LAST)
        write({"framework": self.framework, "remarks": remarks, "devices": list(self.results.values())})

    # What the program does.

    def compiled(self):
        if self.modules and not self.modules.is_stopped:
            self.modules.stop()
            self.remarks.append("modules are not known from the first call of compiled code on")

    def before_backward(self, original):
        """A backward pass runs in threads of its own, whose requests have no Python frames of the program."""

        def begins(running):
            # A pass in a pass is part of it.
            if self.backward_pass() == -1:
                self.place("backward")
                self.await_call()
                if not self.is_resting:
                    running.append(self.passes.begin(radrm_holders.program_stack()))
                    if self.modules:
                        self.modules.backward()

        begin, end = self.guarded(begins), self.guarded(self.passes.end)

        def run(*arguments, **keywords):
            running = []
            begin(running)
            try:
                return original(*arguments, **keywords)
            finally:
                for own in running:
                    end(own)

        return run

    def before_step(self, optimizer, arguments, keywords):
        self.optimizers[id(optimizer)] = weakref.ref(optimizer)
        if self.is_resting:
            return
        if self.modules:
            self.modules.step()
        if self.annotate:
            self.mark_gradients(optimizer)

    def mark_gradients(self, optimizer):
        """Gradients may be gone when the history is read: their addresses are kept, and the moment is marked in it."""
        gradients, mark = {}, 0
        for parameter in radrm_holders.parameters_of(optimizer):
            address = radrm_holders.pointer(parameter.grad) if parameter.grad is not None else 0
            if address:
                gradients[address] = id(parameter)
                mark = mark or radrm_holders.pointer(parameter)
        if mark:
            self.mark([mark])
            self.gradients[self.moments] = gradients

    def mark_model(self, module, number, prefix):
        """A model may be gone when the history is read: what lies where is kept from its first call."""
        if not (self.annotate and self.is_on()):
            return
        roles, marks = {}, {}
        for tensor, role, owner in radrm_holders.of_model(module, number, prefix):
            address = radrm_holders.pointer(tensor)
            if address:
                roles[address] = (role, owner)
                marks.setdefault(tensor.device, address)
        if marks:
            self.mark(marks.values())
            self.models[self.moments] = roles

    def mark(self, addresses):
        """Marks this moment in the histories of the devices that have these addresses."""
        self.moments += 1
        for address in addresses:
            self.annotate(address, "%s%d" % (MARK, self.moments))

    def after_step(self, optimizer, arguments, keywords):
        self.ended_steps += 1
        self.rested_steps += self.is_resting
        counts = self.counts(self.devices)
        is_known = self.steps.end(counts)
        if self.is_resting:
            if not is_known or self.is_grown():
                self.wake()
        else:
            if self.modules:
                self.modules.outside()
            self.check()
            # Blocks that a step left behind lie where those of a later one would be taken to lie.
            keeps_more = self.keeps_more()
            if self.steps.repeat() and not keeps_more:
                self.rest()
        ends = {number: requests for number, (requests, _) in counts.items()}
        self.first_end = self.first_end or ends
        self.step_ends.append(ends)
        # One that begins while it rests is recorded in part at most.
        self.steps.begin(counts, not self.is_resting)
        self.await_call()

    # The recording rests while steps repeat.

    def counts(self, devices):
        """Requests and bytes since the start, of those devices that are in use."""
        counts = {}
        for number in devices:
            _, stats = self.peaks.read(number)
            requests = stats["allocation"]["all"]["allocated"]
            if requests:
                asked = stats.get("requested_bytes", stats["allocated_bytes"])
                counts[number] = requests, asked["all"]["allocated"]
        return counts

    def keeps_more(self):
        """Whether the program keeps more than after the step before."""
        before, self.kept = self.kept, 0
        for number in self.devices:
            stats = self.peaks.stats(number)
            self.kept += stats.get("requested_bytes", stats["allocated_bytes"])["all"]["current"]
        return self.kept - before >= LEAK

    def place(self, place):
        """The program comes to a place by which a step is known."""
        if not self.ended_steps or self.steps.is_long():
            return
        # While it rests, another device is seen at the end of the step.
        devices = self.steps.start if self.is_resting else self.devices
        if not self.steps.passes(place, self.counts(devices)) and self.is_resting:
            self.wake()

    def await_call(self):
        """The next call of a model is a place by which the step is known."""
        if self.modules:
            self.modules.await_call()

    def rest(self):
        """Nothing is recorded any more until a step differs."""
        # Elsewhere a call of a model could not be seen.
        if not self.modules or self.modules.is_stopped:
            return
        with self.switching:
            if self.has_grown() or self.is_peak_missed():
                self.look()
            self.record(None)
            self.modules.rest()
            self.is_resting = self.has_rested = True

    def wake(self):
        with self.switching:
            if self.is_resting:
                self.is_resting = False
                self.modules.wake()
                self.go_on_from(self.snapshot(False))

    def is_peak_missed(self):
        """Whether what is known of a device is less than its peak."""
        return any(self.known(number) < peak for number, peak in self.seen.items())

    def finish(self):
        """At the end of the process. A program that records the history itself would find this look in it."""
        if self.is_on():
            self.find_private_pools()
        self.end()

    def end(self):
        if self.has_grown():
            self.look()
        self.find_workspaces()
        if self.results:
            self.write()
        else:
            write_missing(self.framework, "no tensor was on a GPU")

    def find_private_pools(self):
        """Segments of CUDA graphs serve no other request, so they are neither in use nor cached for the program."""
        segments = [segment for segment in self.snapshot(False)["segments"] if any(segment.get("segment_pool_id", ()))]
        held, used = (sum(segment[name] for segment in segments) for name in ("total_size", "allocated_size"))
        if held:
            pools = len({tuple(segment["segment_pool_id"]) for segment in segments})
            self.remarks.append(POOLS % (pools, held / (1 << 20), used / (1 << 20)))

    def find_workspaces(self):
        """At the end PyTorch is asked to free its workspaces: those blocks that are gone then were some."""
        give_back = getattr(self.torch._C, "_cuda_clearCublasWorkspaces", None)
        if give_back is None or not any(held.candidates for held in self.peaks_held.values()):
            return
        if threading.active_count() > 1 or self.backward_pass() != -1:
            # Another thread may use them at this moment.
            return
        self.look()
        give_back()
        after = self.snapshot(False)["segments"]
        blocks = (block for segment in after for block in segment["blocks"])
        kept = {block["address"] for block in blocks if block["state"] == "active_allocated"}
        for number, held in self.peaks_held.items():
            gone = {id(own.event) for at, own in self.devices[number].live.items() if at not in kept}
            held.settle(lambda block: id(block.event) in gone)
            self.put(number, held.packed())

    # What a program keeps of each step.

    def live(self):
        """All blocks that are handed out now."""
        with self.switching:
            self.look()
        return [block for device in self.devices.values() for block in device.live.values()]

    def kept_by(self, block):
        """The program keeps a value of each step, of which this is the block of one: those of earlier steps hang on it."""
        self.origin = block

    def hanging(self, number, device):
        """The block of the value that is kept of each step, and which requests of a device were those of steps before the one
        with the peak; None if nothing is kept."""
        ends = [ends[number] for ends in self.step_ends if number in ends]
        last = max((end for end in ends if end <= device.request_at_peak), default=0)
        return self.origin and (self.origin, self.first_end.get(number, last), last)

    # When the history is read.

    def has_grown(self):
        """Whether the peak of a device is higher than the one that is known."""
        for number in self.devices:
            self.peaks.read(number)
        return self.is_grown()

    def is_grown(self):
        """The same of the figures that were read last."""
        return any(peak > self.seen.get(number, 0) for number, peak in self.peaks.highest.items())

    def highest(self, number):
        self.peaks.read(number)
        return self.peaks.highest[number]

    def known(self, number):
        return self.results[number]["allocated"] if number in self.results else 0

    def requests(self):
        """Requests since the start, by device."""
        return {number: self.peaks.stats(number)["allocation"]["all"]["allocated"] for number in self.devices}

    def events(self):
        """Events of the device that had most, since the start."""
        counts = [self.peaks.stats(number)["allocation"]["all"] for number in self.devices]
        return max((count["allocated"] + 2 * count["freed"] for count in counts), default=0)

    def passed(self):
        """Called after each pass through a model. Inference and evaluation have no steps after which the history is read."""
        if self.is_resting or self.optimizers and self.torch.is_grad_enabled():
            return
        self.lone_passes += 1
        if self.lone_passes % PASSES == 0 and self.is_on():
            self.check()

    def check(self):
        """Reads the history if a peak was higher than any before; later, if that took much of the time so far."""
        grew, many = self.has_grown(), self.events() - self.events_then > MANY_EVENTS
        if grew and (many or self.spent < SHARE * (time.perf_counter() - self.started)):
            self.look()
        elif many:
            self.go_on_from(self.snapshot(False))

    def snapshot(self, with_history=True):
        if not with_history:
            try:
                return self.torch._C._cuda_memorySnapshot((0, 0, False))
            except (TypeError, RuntimeError):
                pass
        return self.torch.cuda.memory._snapshot()

    def clear(self):
        """Begins to record, or begins anew."""
        options = {"context": "alloc", "stacks": "python", "max_entries": EVENTS}
        try:
            self.record("all", clear_history=True, **options)
        except TypeError:
            self.record(None)
            self.record("all", **options)

    def go_on_from(self, snapshot):
        """Forgets the history: what comes is replayed from the layout of now."""
        settings = snapshot.get("allocator_settings", {})
        by_device = {number: [] for number in range(self.torch.cuda.device_count())}
        for segment in snapshot["segments"]:
            by_device[segment["device"]].append(segment)
        for number, segments in by_device.items():
            known = self.devices[number].live if number in self.devices else {}
            self.devices[number] = radrm_replay.Device.of_segments(segments, settings, known, self.has_rested)
        self.clear()
        self.passes.clear()
        self.gradients.clear()
        self.models.clear()
        self.events_then = self.events()

    def refused(self, device, requested):
        """Called when memory did not suffice."""
        self.look()
        segments = [segment for segment in self.snapshot()["segments"] if segment["device"] == device]
        self.refusal = [radrm_refusal.explain(segments, requested)]

    def look(self):
        """Replays the history; where a peak is higher than any before, writes down what held it."""
        began = time.perf_counter()
        if self.is_resting:
            self.wake()
        highest = {number: self.highest(number) for number in self.devices}
        snapshot = self.snapshot()
        models = self.modules.models() if self.modules else {}
        optimizers = [optimizer for optimizer in (reference() for reference in self.optimizers.values()) if optimizer]
        objects = radrm_holders.Objects(self.torch, models, optimizers)
        for number, device in self.devices.items():
            is_whole = self.replay(number, device, snapshot, objects)
            self.seen[number] = highest[number]
            if highest[number] <= self.known(number):
                continue
            # Of a peak that was not recorded the highest one that was stands for it.
            if is_whole and (device.peak == highest[number] or self.has_rested and device.peak > self.known(number)):
                names = self.modules.names() if self.modules else {}
                held = radrm_holders.Peak(self.torch, number, device, names, self.hanging(number, device))
                self.peaks_held[number] = held
                result = held.packed()
            elif self.has_rested and number in self.results:
                result = self.results[number]
            else:
                self.peaks_held.pop(number, None)
                result = radrm_holders.unknown(self.torch, number, highest[number])
            self.put(number, result)
        self.go_on_from(snapshot)
        self.spent += time.perf_counter() - began
        if self.results:
            self.write(False)

    def put(self, number, result):
        """What is known of a device."""
        if result["allocated"] < self.seen[number]:
            result["moment"], result["peak"] = "largest_read", self.seen[number]
        self.results[number] = result

    def replay(self, number, device, snapshot, objects):
        """Brings a device's layout up to date; false if the history does not lead to it."""
        traces = snapshot["device_traces"]
        history = traces[number] if number < len(traces) else []
        device.settle(snapshot.get("allocator_settings", {}))
        requests = sum(entry["action"] == "alloc" for entry in history)
        device.timeline = self.passes.of(number, requests)
        device.first = self.passes.base.get(number, 0)
        for entry in history:
            device.apply(entry)
            if entry["action"] == "annotate" and entry["user_metadata"].startswith(MARK):
                moment = int(entry["user_metadata"][len(MARK):])
                device.assign(objects.gradients(self.gradients.get(moment, {})))
                roles = self.models.get(moment, {})
                device.assign({at: (role, self.modules.outermost(owner)) for at, (role, owner) in roles.items()})
        device.assign(objects.roles)
        segments = [segment for segment in snapshot["segments"] if segment["device"] == number]
        return len(history) < EVENTS and device.unknown == 0 and device.agrees_with(segments)


def watch(torch):
    """Called when PyTorch has been loaded."""
    memory = torch.cuda.memory
    if not (hasattr(memory, "_record_memory_history") and hasattr(memory, "_snapshot")):
        return write_missing("PyTorch %s" % torch.__version__, "this version keeps no history of its allocator")
    global RECORDER
    recorder = RECORDER = Recorder(torch)

    def record(*arguments, **keywords):
        """The program's own use of the history ends ours."""
        recorder.guarded(recorder.end)()
        recorder.guarded(recorder.stop)("the program recorded the allocator's history itself")
        return recorder.record(*arguments, **keywords)

    memory._record_memory_history = record
    if hasattr(torch.autograd, "_engine_run_backward"):
        torch.autograd._engine_run_backward = recorder.before_backward(torch.autograd._engine_run_backward)

    def begin():
        try:
            recorder.begin()
        except Exception as error:
            recorder.stop("the history cannot be switched on: %s" % error)

    if torch.backends.cuda.is_built():
        torch.cuda._lazy_call(begin)


def install():
    radrm_imports.after("torch", watch)
    radrm_jax.install(write, write_missing)
