"""Whether what a program keeps grows with each call of its model, where no step of an optimizer shows it: inference, evaluation.

Before each call of an outermost module so much is allocated as before the call before it, or it rises and falls: with the
lengths of batches, with the cache of a generation. What a program keeps never goes again, so the least that is held from some
call on rises. Further calls show then what it is, and which line made it, as further steps do in a training (`radrm_growth`).
"""

import contextlib
import sys

import radrm_kept
import radrm_lines
from radrm_growth import LEAST, MIB

# Calls after which it is looked for growth, and again after twice as many; and how often.
FIRST = 8
LOOKS = 8
# Calls whose blocks are looked at: of a larger part PyTorch's history would not reach.
STRIDE = 16
# Modules that are kept apart: a program may make some in each pass.
MODULES = 1 << 16


def rises(amounts):
    """Whether the least that is held from some call on rises in each quarter of the calls."""
    quarter = len(amounts) // 4
    if not quarter:
        return False
    lowest, least = [], amounts[-1]
    for amount in reversed(amounts):
        least = min(least, amount)
        lowest.append(least)
    lowest.reverse()
    marks = [lowest[number * quarter] for number in range(4)] + [lowest[-1]]
    return all(after - before >= LEAST for before, after in zip(marks, marks[1:]))


def caller():
    """The line of the program that called the model."""
    frames, frame = [], sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        frames.append(radrm_lines.frame((code.co_filename, code.co_name, frame.f_lineno)))
        frame = frame.f_back
    return radrm_lines.line(frames)


class Passes:
    """The calls of one process's models. `allocated` gives what tensors hold now, `may_look` whether PyTorch's history is free,
    `is_training` whether a step of an optimizer will come."""

    def __init__(self, torch, allocated, may_look, is_training):
        self.torch = torch
        self.allocated = allocated
        self.may_look = may_look
        self.is_training = is_training
        self.hook = None
        self.is_stopped = False
        # Ids of outermost modules and of parts of others.
        self.tops, self.inner = set(), set()
        # A sentence on growth before the last step of an optimizer, the line of it, what was held at that step, and whether there was
        # as much between two other steps.
        self.past = self.past_line = None
        self.held = 0
        self.is_again = False
        self.clear()

    def clear(self):
        # What was allocated before each call, and the id of the module.
        self.amounts, self.modules = [], []
        self.looks_at = FIRST
        self.looks = 0
        self.watch = self.boundary = None
        self.is_marked = False
        self.waited = self.stride = 0
        self.place = self.line = self.module = None

    # When calls are seen.

    def begin(self):
        """Sees calls from here on. A hook makes the call of each module slower, so it is not there while optimizers make steps."""
        if self.hook is None and not self.is_stopped:
            self.hook = self.torch.nn.modules.module.register_module_forward_pre_hook(self.called)

    def rest(self):
        """An optimizer has made a step, by which growth is seen from here on."""
        if self.hook is not None:
            self.hook.remove()
            self.hook = None
        if self.amounts:
            sentence, first, last = self.sentence(), self.amounts[0], self.amounts[-1]
            self.end_watch()
            held = self.allocated()
            if sentence and held - first > (last - first) // 2:
                self.is_again = self.is_again or self.line == self.past_line
                self.past, self.past_line, self.held = sentence, self.line, held
            self.clear()

    def stop(self):
        """A compiler or a tracer would find the hook."""
        self.rest()
        self.is_stopped = True

    def called(self, module, arguments):
        """Called before each module's forward pass."""
        try:
            if self.counts(module) and (id(module) in self.tops or self.learn(module)):
                self.passed(module)
        except Exception:
            # An allocator without figures, or a tensor of a kind of its own: nothing is known of what grows.
            watch = self.watch
            self.clear()
            self.stop()
            if watch is not None:
                with contextlib.suppress(Exception):
                    watch.end()

    def counts(self, module):
        """Whether a call may be one of an inference or an evaluation, and not of a part of a model."""
        if id(module) in self.inner or not self.torch.cuda.is_initialized():
            return False
        return not (module.training and self.torch.is_grad_enabled() and self.is_training())

    def learn(self, module):
        """A module that was not called before. Whether it is a model: others, such as losses, have no parameters."""
        if len(self.inner) > MODULES:
            self.tops.clear()
            self.inner.clear()
        parts = {id(part) for part in module.modules()} - {id(module)}
        self.inner |= parts
        self.tops -= parts
        if next(module.parameters(), None) is None:
            self.inner.add(id(module))
            return False
        self.tops.add(id(module))
        return True

    # What they show.

    def passed(self, module):
        self.amounts.append(self.allocated())
        self.modules.append(id(module))
        if self.watch is not None:
            self.go_on()
        elif self.line is None and self.looks < LOOKS and len(self.amounts) >= self.looks_at:
            self.looks_at *= 2
            self.looks += 1
            if rises(self.amounts) and self.may_look():
                self.watch = radrm_kept.watch(self.torch)
                self.is_marked, self.waited = False, 0
                self.stride = min(max(1, len(self.amounts) // FIRST), STRIDE)
                self.module, self.place = id(module), caller()

    def go_on(self):
        """The watch sees as many calls twice: of the first ones it shows what is left after the others."""
        self.waited += 1
        if self.waited < self.stride:
            return
        self.waited = 0
        if not self.is_marked:
            self.is_marked = True
            self.watch.mark()
            self.boundary = radrm_kept.sequence(self.torch)
            return
        left, all_live = self.watch.read()
        # Little that is left, such as a buffer that was made then, is not what grows.
        if sum(size for size, *_ in left.values()) >= LEAST:
            found = radrm_kept.value(self.torch, left, all_live, self.boundary)
            self.line = found and found[1]
        self.end_watch()

    def end_watch(self):
        if self.watch is not None:
            self.watch.end()
            self.watch = None

    def sentence(self):
        """What grows; None if nothing does to the end, or if nothing of it is kept: the cache of a generation, which is written anew."""
        half = len(self.amounts) // 2 if len(self.amounts) >= 2 * FIRST else 0
        if self.line is None or not rises(self.amounts[half:]):
            return None
        calls = self.modules[half:].count(self.module) - 1
        by_call = (self.amounts[-1] - self.amounts[half]) / max(1, calls)
        where = " in " + self.place if self.place else ""
        words = "memory grows by %.1f MiB with each call of the model%s: the program keeps what %s makes"
        return words % (by_call / MIB, where, self.line)

    def goes_on(self):
        """Whether what grew before a step of an optimizer grows further: a cache that was filled by then does not."""
        with contextlib.suppress(Exception):
            return self.is_again or self.allocated() - self.held >= LEAST
        return False

    def remark(self):
        """A sentence on growth without an end; None if there is none."""
        found = self.sentence() or (self.past if self.past and self.goes_on() else None)
        return found and "no bound: " + found

    def filled(self):
        """A sentence on growth that ended with a step of an optimizer; None if there is none."""
        return "only before an optimizer step, " + self.past if self.past and not self.remark() else None
