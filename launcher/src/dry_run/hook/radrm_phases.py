"""Which parts of a program a dry run has shown, and when it has shown enough.

* A run ends after so many optimizer steps; an optimizer that has made none by then is waited for.
* With short epochs a loader of data ends after a few steps of an epoch, so that the evaluation comes. What it
  needs does not depend on how long the epoch before it was. A loader that is read without optimizer steps is not cut short.
"""

import importlib
import time
import weakref

# Optimizer steps of a short epoch: the third takes all memory that later ones take.
EPOCH = 3
# Short epochs after which a program that evaluates would have done so.
EPOCHS = 2
# Seconds of one pass over data without an optimizer step.
EVALUATION = 60
# Steps of each optimizer: the first allocates its states while it runs.
OF_EACH = 2
# So many times the steps that were asked for are made until each optimizer has made its own.
PATIENCE = 20


class Phases:
    """What of one process's run was seen."""

    def __init__(self, torch, steps, has_short_epochs):
        self.torch = torch
        self.wanted = steps
        self.has_short_epochs = has_short_epochs
        self.optimizers = weakref.WeakSet()
        # Steps by optimizer, and the largest number of any.
        self.steps = weakref.WeakKeyDictionary()
        self.highest = 0
        # The largest number of steps when a batch was last asked for.
        self.fed = -2
        self.epochs = 0
        self.is_evaluating = False
        self.is_evaluated = False
        self.is_other = False
        self.is_cut_short = False
        # Called when the program puts a module into the mode of evaluation.
        self.begins_evaluation = lambda: None

    def count(self):
        """Steps of the optimizer that made the largest number."""
        return self.highest

    def made(self, optimizer):
        """Called after a step. Whether it is a new step of the program, and not the same one of a further optimizer; and
        whether since the one before it the program evaluated, or an optimizer made one of its first steps."""
        before = self.count()
        own = self.steps.get(optimizer, 0) + 1
        self.steps[optimizer] = own
        self.highest = max(self.highest, own)
        self.is_other = self.is_other or self.is_evaluating or own <= OF_EACH
        if self.is_evaluating:
            self.is_evaluating, self.is_evaluated = False, True
        is_new, is_other = self.count() > before, self.is_other
        if is_new:
            self.is_other = False
        return is_new, is_other

    def idle(self):
        """Optimizers of parameters on GPUs with fewer steps than each should have."""
        least = min(self.wanted or OF_EACH, OF_EACH)

        def is_idle(optimizer):
            return self.steps.get(optimizer, 0) < least and any(
                parameter.is_cuda for group in optimizer.param_groups for parameter in group["params"]
            )

        return [optimizer for optimizer in list(self.optimizers) if is_idle(optimizer)]

    def is_enough(self):
        """Whether the program can be stopped after this step."""
        count = self.count()
        if not self.wanted or count < self.wanted:
            return False
        if count < PATIENCE * self.wanted and self.idle():
            return False
        is_fed = count - self.fed <= 1
        if not self.has_short_epochs or not is_fed:
            return True
        return self.is_evaluated or self.epochs > EPOCHS

    def seen(self):
        """What of an evaluation was seen, as the end of a sentence."""
        if self.is_cut_short:
            return ", evaluation cut short"
        return ", evaluation included" if self.is_evaluated else ""

    def install(self):
        # The package hides its module of that name.
        self.know_optimizers(importlib.import_module("torch.optim.optimizer"))
        if self.has_short_epochs:
            self.shorten(self.torch.utils.data.dataloader._BaseDataLoaderIter)
        self.watch_modes(self.torch.nn.Module)

    def know_optimizers(self, module):
        original = module.Optimizer.__init__

        def __init__(optimizer, *arguments, **keywords):
            original(optimizer, *arguments, **keywords)
            self.optimizers.add(optimizer)

        __init__.__wrapped__ = original
        module.Optimizer.__init__ = __init__

    def watch_modes(self, module):
        original = module.train

        def train(own, mode=True):
            if not mode and self.count() > 0:
                self.is_evaluating = self.is_evaluating or self.has_short_epochs
                self.begins_evaluation()
            return original(own, mode)

        train.__wrapped__, train.__doc__ = original, original.__doc__
        module.train = train

    def shorten(self, iterator):
        ask, reset = iterator.__next__, iterator._reset

        def __next__(own):
            began, at = own.__dict__.setdefault("_radrm_began", (self.count(), time.monotonic()))
            self.fed = self.count()
            made = self.fed - began
            if made >= EPOCH:
                self.epochs += 1
                raise StopIteration
            if made == 0 and self.fed > 0 and time.monotonic() - at > EVALUATION:
                self.is_cut_short = True
                raise StopIteration
            try:
                return ask(own)
            except StopIteration:
                if made == 0 and self.fed > 0:
                    # A pass over data without a step.
                    self.is_evaluating = True
                else:
                    self.epochs += 1
                raise

        def _reset(own, *arguments, **keywords):
            own.__dict__.pop("_radrm_began", None)
            return reset(own, *arguments, **keywords)

        iterator.__next__, iterator._reset = __next__, _reset
