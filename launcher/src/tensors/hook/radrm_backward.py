"""Which blocks belong to a backward pass, and where the program began it.

The threads of a backward pass ask for memory without Python frames, or with those of what the pass calls: functions and
hooks that the program gave PyTorch, and checkpoints that compute again what they did not keep.
"""

import bisect
import collections

# Passes that are kept until the history is read. Neighbours from one line count as one.
PASSES = 1 << 12

# What a block is by its frames. FORWARD: the label of its thread says more.
FORWARD, BACKWARD, AGAIN_IN_MODULE, AGAIN = "forward", "backward", "again in a module", "again"

# Functions of PyTorch by which a place is known, each with the end of its file.
_ENGINE = ("_engine_run_backward", "torch/autograd/graph.py")
_MODULE = ("_call_impl", "torch/nn/modules/module.py")
_CHECKPOINT = "torch/utils/checkpoint.py"
# Outermost functions of Python's own threads. Those of a backward pass begin with a function of PyTorch or a hook.
_OUTERMOST = ("<module>", "_bootstrap", "_run_module_as_main")


def place(frames):
    """What a block is by its frames, innermost first, and whether a thread of a backward pass asked for it."""
    if not frames:
        return BACKWARD, True
    is_within = frames[-1][1] not in _OUTERMOST
    for file, name, _ in frames:
        if name == _ENGINE[0] and file.endswith(_ENGINE[1]):
            return BACKWARD, is_within
        if name == _MODULE[0] and file.endswith(_MODULE[1]):
            return AGAIN_IN_MODULE if is_within else FORWARD, is_within
        if file.endswith(_CHECKPOINT):
            return AGAIN if is_within else FORWARD, is_within
    return BACKWARD if is_within else FORWARD, is_within


class Timeline:
    """Which pass ran at each request of one device."""

    def __init__(self, passes):
        """`passes`: number of the first request, number of the first after it or None, and stack of each."""
        changes = []
        for begin, end, stack in passes:
            changes.append((begin, 1, stack))
            if end is not None:
                changes.append((end, 0, stack))
        changes.sort(key=lambda change: change[:2])
        self.starts, self.stacks = [], []
        running = collections.Counter()
        for at, begins, stack in changes:
            running[stack] += 1 if begins else -1
            if not running[stack]:
                del running[stack]
            self.starts.append(at)
            # Passes of several lines at once share their threads: which of them asked is not known.
            self.stacks.append(next(iter(running)) if len(running) == 1 else () if running else None)

    def at(self, request):
        """Stack that began the pass, () if that is not known, None if no pass ran."""
        at = bisect.bisect_right(self.starts, request) - 1
        return self.stacks[at] if at >= 0 else None


class Passes:
    """The backward passes since the history was begun. `count` gives the number of requests so far of each device."""

    def __init__(self, count):
        self.count = count
        self.base = {}
        # First requests, first ones after it or None while it runs, and stack.
        self.passes = collections.deque(maxlen=PASSES)
        self.stacks = {}

    def clear(self):
        """The history begins anew. What runs goes on."""
        self.base = self.count()
        self.passes = collections.deque((own for own in self.passes if own[1] is None), maxlen=PASSES)
        self.stacks.clear()

    def begin(self, stack):
        """A pass begins; what is returned ends it."""
        stack = self.stacks.setdefault(stack, stack)
        last = self.passes[-1] if self.passes else None
        if last and last[1] is not None and last[2] == stack:
            last[1] = None
            return last
        own = [self.count(), None, stack]
        self.passes.append(own)
        return own

    def end(self, own):
        own[1] = self.count()

    def of(self, device, requests):
        """The passes of a device by its requests since the history was begun; None if there were not so many."""
        base = self.base.get(device, 0)
        if self.count().get(device, 0) - base != requests:
            return None
        ends = ((begin.get(device, 0), end and end.get(device, 0), stack) for begin, end, stack in self.passes)
        return Timeline([(begin - base, None if end is None else end - base, stack) for begin, end, stack in ends])
