"""Which choices of a training made its peak what it is: types of parameters and gradients, optimizers, settings of the allocator.

What each of them takes is read from the program's own objects after its first steps, and shown as its share of the peak.
"""

import os

from radrm_graphs import address

# Steps after which the objects are read: from the second on all optimizers have made their states.
STEPS = 2
# The least share that is shown.
LEAST = 0.01
MIB = 1 << 20
SETTINGS = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")


def _tensors(torch, value, depth=0):
    if issubclass(type(value), torch.Tensor):
        yield value
    elif depth < 4 and isinstance(value, (dict, list, tuple)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _tensors(torch, part, depth + 1)


def _dtype(tensor):
    return str(tensor.dtype).replace("torch.", "")


def _size(tensor):
    return getattr(tensor, "_local_tensor", tensor).untyped_storage().nbytes()


def _keeps_each(optimizer):
    """Whether an optimizer keeps a state of each parameter: L-BFGS has all in that of the first."""
    return len(optimizer.state) > 1 or len(optimizer.state) == sum(len(group["params"]) for group in optimizer.param_groups)


class Choices:
    """What the optimizers' objects take, by what was chosen."""

    def __init__(self, torch):
        self.torch = torch
        self.bytes = {}
        # Bytes of parameters that an optimizer has and that got no gradient.
        self.frozen = 0

    def see(self, optimizers, count):
        """Called after the step of that number, before gradients are given back."""
        if count > STEPS:
            return
        try:
            self.read(list(optimizers))
        except Exception:
            # An optimizer or a tensor of a kind of its own: the shares are not known, and all other figures are.
            self.bytes, self.frozen = {}, 0

    def read(self, optimizers):
        self.bytes, seen = {}, set()
        parameters = [one for own in optimizers for group in own.param_groups for one in group["params"]]
        for one in parameters:
            self.add("parameters in " + _dtype(one), one, seen)
        # Gradients may be given back while a backward pass runs; an optimizer that keeps states has one of each that got some.
        keeping = [own for own in optimizers if _keeps_each(own)]
        members = [(own, one) for own in keeping for group in own.param_groups for one in group["params"]]
        # The states of others may lie in other processes.
        idle = [one for own, one in members if one not in own.state and one.grad is None]
        self.frozen = sum({address(one): _size(one) for one in idle if address(one)}.values())
        for one in parameters:
            if one.is_leaf and one.grad is not None:
                self.add("gradients in " + _dtype(one.grad), one.grad, seen)
        for own in optimizers:
            for tensor in _tensors(self.torch, dict(enumerate(own.state.values()))):
                self.add("states of " + type(own).__name__, tensor, seen)

    def add(self, what, tensor, seen):
        at = address(tensor)
        if at and at not in seen:
            seen.add(at)
            self.bytes[what] = self.bytes.get(what, 0) + _size(tensor)

    def remarks(self, peak):
        """Sentences, for a peak of so many bytes of tensors on all devices of this process."""
        for what, size in sorted(self.bytes.items(), key=lambda item: -item[1]):
            if peak and size >= LEAST * peak:
                yield "of the peak, %.0f MiB (%.0f %%) are %s" % (size / MIB, 100 * min(1, size / peak), what)
        if self.frozen >= LEAST * peak > 0:
            words = "%.0f MiB of an optimizer's parameters got no gradient in the first steps: training them later takes more"
            yield words % (self.frozen / MIB)
        yield from self.allocator()

    def allocator(self):
        stats = [self.torch.cuda.memory_stats(device) for device in range(self.torch.cuda.device_count())]
        tensors, held = (sum(own.get(name + ".all.peak", 0) for own in stats) for name in ("allocated_bytes", "reserved_bytes"))
        settings = next((os.environ[name] for name in SETTINGS if os.environ.get(name)), None)
        if held - tensors >= max(MIB, LEAST * held):
            by = "with the settings " + settings if settings else "with its usual settings"
            words = "beside tensors, the allocator holds %.0f MiB (%.0f %% of all that it holds) %s"
            yield words % ((held - tensors) / MIB, 100 * (held - tensors) / held, by)
