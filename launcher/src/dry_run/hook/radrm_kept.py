"""Which line made the value that a program keeps of each step.

What a step left behind is known from PyTorch's history. Most of it may only hang on the value that is kept: a loss holds the
tensors that its graph saved. So the value is looked for among the tensors that the program's own objects refer to.
"""

import gc
import sys

import radrm_graphs
import radrm_lines
from radrm_graphs import address, referred

EVENTS = 1 << 17


class History:
    """PyTorch's history of two steps, begun for this purpose."""

    def __init__(self, torch):
        self.torch = torch
        self.ends = None
        torch.cuda.memory._record_memory_history("all", context="alloc", stacks="python", max_entries=EVENTS)

    def traces(self):
        return self.torch.cuda.memory._snapshot()["device_traces"]

    def mark(self):
        """The first of the two steps has ended."""
        self.ends = [len(trace) for trace in self.traces()]

    def read(self):
        """Blocks that the first step left behind, and all that were handed out since, by address: size, line."""
        left, all_live = {}, {}
        traces = self.traces()
        if any(len(trace) >= EVENTS for trace in traces):
            # The history does not reach back to its beginning.
            return left, all_live
        for trace, end in zip(traces, self.ends):
            there = {}
            for number, event in enumerate(trace):
                if event["action"] == "alloc":
                    there[event["addr"]] = number, event
                elif event["action"] == "free_completed":
                    there.pop(event["addr"], None)
            for address, (number, event) in there.items():
                all_live[address] = event["size"], radrm_lines.line(event.get("frames", ())), event
                if number < end:
                    left[address] = all_live[address]
        return left, all_live

    def end(self):
        self.torch.cuda.memory._record_memory_history(None)

    def charge(self, event):
        """Nothing is recorded by line."""


class Recorded:
    """The same from the recorder of tensors, which has the history to itself."""

    def __init__(self, recorder):
        self.recorder = recorder
        self.before = self.live()
        self.after = None

    def live(self):
        return {block.address: block for block in self.recorder.live()}

    def mark(self):
        self.after = self.live()

    def read(self):
        now = self.live()

        def of(block):
            frames = [*(block.event.get("frames") or ()), *map(radrm_lines.frame, block.backward or ())]
            return block.size, radrm_lines.line(frames), block

        def is_same(blocks, address, block):
            return address in blocks and blocks[address].event is block.event

        all_live = {address: of(block) for address, block in now.items()}
        left = {
            address: all_live[address]
            for address, block in self.after.items()
            if is_same(now, address, block) and not is_same(self.before, address, block)
        }
        return left, all_live

    def end(self):
        """The recorder goes on."""

    def charge(self, block):
        """What hangs on the value counts for its line."""
        self.recorder.kept_by(block)


def watch(torch):
    """What shows the next two steps; None where the program has the history to itself."""
    recorder = getattr(sys.modules.get("radrm_tensors"), "RECORDER", None)
    if recorder is not None and recorder.is_on():
        return Recorded(recorder)
    if getattr(torch._C, "_cuda_isHistoryEnabled", lambda: True)():
        return None
    return History(torch)


def sequence(torch):
    """Number that the next node of this thread's graphs has; None where nodes have none."""
    with torch.enable_grad():
        node = (torch.zeros((), requires_grad=True, device="cpu") * 1).grad_fn
    number = getattr(node, "_sequence_nr", None)
    return number() if number else None


def value(torch, left, all_live, boundary):
    """Block of the value that is kept of each step, or the one of the line that left most behind."""
    tensors = [own for own in gc.get_objects() if issubclass(type(own), torch.Tensor) and address(own)]
    roots = {}
    for tensor in referred(tensors, lambda own: address(own) in left):
        at = address(tensor)
        roots[at] = roots.get(at, False) or tensor.grad_fn is not None
    if roots:
        hanging = sum(size for at, (size, *_) in left.items() if at not in roots)
        return left[max(roots, key=lambda at: left[at][0] + hanging * roots[at])]
    graphs = radrm_graphs.Graphs(torch)
    if boundary is not None:
        held = referred(tensors, lambda own: own.grad_fn is not None)
        chained = [address(own) for own in graphs.chained(held, boundary)]
        chained = [all_live[at] for at in chained if at in all_live]
        if chained:
            return max(chained, key=lambda block: block[0])
    held = [left[at] for at in graphs.held(left)]
    if held:
        return max(held, key=lambda block: block[0])
    by_line = {}
    for size, line, _ in left.values():
        by_line[line] = by_line.get(line, 0) + size
    most = max(by_line, key=by_line.get, default=None)
    return next((block for block in left.values() if block[1] == most), None)
