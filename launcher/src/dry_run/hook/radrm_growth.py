"""Whether what a program keeps grows with each optimizer step, and which line made what it keeps.

After each step of a training with fixed shapes as much is allocated as after the step before. Where it is more by the same
amount again and again, the program keeps something of each step. Two further steps show what that is.
"""

import radrm_kept

# Steps that show it: two equal differences, where the first step has made the optimizer's states.
SHOWN = 3
# The least growth of a step, bytes, and how much two of them may differ.
LEAST = 1 << 20
SAME = 0.01
MIB = 1 << 20


def growth(amounts):
    """Bytes a step by which the last amounts grow; 0 if they do not."""
    last = amounts[-SHOWN:]
    steps = [after - before for before, after in zip(last, last[1:])]
    if len(steps) < SHOWN - 1 or min(steps) < LEAST or max(steps) - min(steps) > SAME * max(steps):
        return 0
    return sum(steps) // len(steps)


class Growth:
    """The growth of one process's devices together."""

    def __init__(self, torch):
        self.torch = torch
        self.amounts = []
        self.by_step = 0
        self.line = None
        self.watch = None
        # Number of the next node of a graph when the first of the two steps had ended.
        self.boundary = None
        self.is_marked = self.is_over = False

    def step(self, allocated):
        """Called after each step with what is allocated."""
        self.amounts.append(allocated)
        self.by_step = growth(self.amounts)
        if self.is_over:
            return
        if self.watch is None:
            if self.by_step:
                self.watch = radrm_kept.watch(self.torch)
                self.is_over = self.watch is None
        elif not self.is_marked:
            self.is_marked = True
            self.watch.mark()
            self.boundary = radrm_kept.sequence(self.torch)
        else:
            self.is_over = True
            try:
                self.find()
            except Exception:
                # A tensor of a kind of its own: the growth is known, its line is not.
                self.line = None
            self.watch.end()

    def find(self):
        left, all_live = self.watch.read()
        found = radrm_kept.value(self.torch, left, all_live, self.boundary)
        if found:
            _, self.line, origin = found
            self.watch.charge(origin)

    def is_looking(self):
        """Whether the line is not known before the next step."""
        return self.watch is not None and not self.is_over

    def remark(self):
        """A sentence; None if nothing grows."""
        if not self.by_step:
            return None
        what = ": the program keeps what %s makes" % self.line if self.line else ": the program keeps something of each"
        return "no bound: memory grows by %.1f MiB with each step%s" % (self.by_step / MIB, what)
