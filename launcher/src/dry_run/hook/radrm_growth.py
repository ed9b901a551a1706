"""Whether what a program keeps grows with each optimizer step, and which line asked for it.

After each step of a training with fixed shapes as much is allocated as after the step before. Where it is more by the same
amount again and again, the program keeps something of each step. PyTorch's history of two further steps says which
line asked for what is still there.
"""

import radrm_lines

# Steps that show it: two equal differences, where the first step has made the optimizer's states.
SHOWN = 3
# The least growth of a step, bytes, and how much two of them may differ.
LEAST = 1 << 20
SAME = 0.01
EVENTS = 1 << 17
MIB = 1 << 20


def growth(amounts):
    """Bytes a step by which the last amounts grow; 0 if they do not."""
    last = amounts[-SHOWN:]
    steps = [after - before for before, after in zip(last, last[1:])]
    if len(steps) < SHOWN - 1 or min(steps) < LEAST or max(steps) - min(steps) > SAME * max(steps):
        return 0
    return sum(steps) // len(steps)


class Growth:
    """The growth of one process's first device that grows."""

    def __init__(self, torch):
        self.torch = torch
        self.amounts = []
        self.by_step = 0
        self.line = None
        # When the history was begun, and what was there a step later: length of the history and addresses.
        self.began = None
        self.kept = None

    def step(self, allocated):
        """Called after each step with what is allocated."""
        self.amounts.append(allocated)
        self.by_step = growth(self.amounts)
        if self.line is not None:
            return
        if self.began is None:
            memory = self.torch._C
            if self.by_step and not getattr(memory, "_cuda_isHistoryEnabled", lambda: True)():
                self.began = len(self.amounts)
                self.torch.cuda.memory._record_memory_history("all", context="alloc", stacks="python", max_entries=EVENTS)
        elif self.kept is None:
            self.kept = self.events()
        else:
            self.line = self.culprit()
            self.torch.cuda.memory._record_memory_history(None)

    def events(self):
        return [len(trace) for trace in self.torch.cuda.memory._snapshot()["device_traces"]]

    def culprit(self):
        """The line that asked for most of what the step before the last one left behind."""
        by_line = {}
        for trace, end in zip(self.torch.cuda.memory._snapshot()["device_traces"], self.kept):
            there = {}
            for number, event in enumerate(trace):
                if event["action"] == "alloc" and number < end:
                    there[event["addr"]] = event
                elif event["action"] in ("free_completed", "alloc"):
                    there.pop(event["addr"], None)
            for event in there.values():
                found = radrm_lines.line(event.get("frames", ()))
                if found:
                    by_line[found] = by_line.get(found, 0) + event["size"]
        return max(by_line, key=by_line.get, default="")

    def remark(self):
        """A sentence; None if nothing grows."""
        if not self.by_step:
            return None
        where = ", allocated in %s" % self.line if self.line else ""
        return "no bound: memory that the program keeps grows by %.1f MiB with each step%s" % (self.by_step / MIB, where)
