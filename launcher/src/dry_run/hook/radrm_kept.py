"""Which line made the value that a program keeps of each step.

What a step left behind is known from PyTorch's history. Most of it may only hang on the value that is kept: a loss holds the
tensors that its graph saved. So the value is looked for among the tensors that the program's own objects refer to.
"""

import gc
import sys
import types

import radrm_lines

EVENTS = 1 << 17
# Nodes of a graph that are looked at for one tensor, and tensors whose graphs are.
NODES = 1 << 14
TENSORS = 1 << 8
# Objects that refer to no tensor of a step, or only to their own module's names.
PASSED_OVER = (type, types.FunctionType, types.BuiltinFunctionType, types.CodeType, types.ModuleType)


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
        for trace, end in zip(self.traces(), self.ends):
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


def address(tensor):
    tensor = getattr(tensor, "_local_tensor", tensor)
    try:
        return tensor.untyped_storage().data_ptr() if tensor.is_cuda else 0
    except (RuntimeError, NotImplementedError, AttributeError, ValueError):
        return 0


def _locals():
    """Values of variables of the functions that run now, which are no objects of the collector's."""
    for frame in sys._current_frames().values():
        while frame is not None:
            if radrm_lines.is_of_program(frame.f_code.co_filename):
                yield from frame.f_locals.values()
            frame = frame.f_back


def referred(tensors, is_wanted):
    """Those of the tensors that Python's objects refer to: PyTorch keeps the objects of others as long as a graph has them."""
    wanted = {id(tensor): tensor for tensor in tensors if is_wanted(tensor)}
    found = {id(value) for value in _locals() if id(value) in wanted}
    for owner in gc.get_objects():
        # The lists of this search refer to all of them.
        if owner is tensors or owner is wanted or id(owner) in wanted:
            continue
        if issubclass(type(owner), (*PASSED_OVER, types.FrameType)):
            continue
        found.update(id(part) for part in gc.get_referents(owner) if id(part) in wanted)
    return [wanted[number] for number in found]


def _newer(node, boundary):
    """Nodes of a graph that are not older than the boundary, and whether there are older ones."""
    newer, is_older, waiting = set(), False, [node]
    while waiting and len(newer) < NODES:
        node = waiting.pop()
        if node is None or node in newer:
            continue
        if node._sequence_nr() < boundary:
            is_older = True
            continue
        newer.add(node)
        waiting.extend(before for before, _ in node.next_functions)
    return newer, is_older


def _chained(torch, tensors, boundary):
    """Tensors whose graphs reach into earlier steps, without those that only reach there through another."""
    graphs = []
    for tensor in tensors[:TENSORS]:
        newer, is_older = _newer(tensor.grad_fn, boundary)
        if is_older:
            graphs.append((tensor, newer))
    nodes = {tensor.grad_fn for tensor, _ in graphs}
    return [tensor for tensor, newer in graphs if not (nodes & newer) - {tensor.grad_fn}]


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
    if boundary is not None:
        held = referred(tensors, lambda own: own.grad_fn is not None)
        chained = [address(own) for own in _chained(torch, held, boundary)]
        chained = [all_live[at] for at in chained if at in all_live]
        if chained:
            return max(chained, key=lambda block: block[0])
    by_line = {}
    for size, line, _ in left.values():
        by_line[line] = by_line.get(line, 0) + size
    most = max(by_line, key=by_line.get, default=None)
    return next((block for block in left.values() if block[1] == most), None)
