"""Values that decide how a program goes on, where those of the GPU cannot be read: nothing is computed, so they are zero.

* `generate` of transformers reads from the GPU whether all sequences are finished: it ends at its maximum length
* optimizers divide by what follows from their number of steps, which is on the GPU after `torch.load(map_location="cuda")`
"""

import functools
import sys

import radrm_imports

# Marks of functions that have been replaced.
_OURS = "_radrm_values"
# What an optimizer has made at least when it divides by it.
_FIRST_STEP = 1.0


def end_of_generation():
    """Functions for two modules: the one knows the maximum length, the other asks whether to go on."""
    reached = []

    def criteria(module):
        original = module.MaxLengthCriteria.__call__

        @functools.wraps(original)
        def call(self, input_ids, *arguments, **keywords):
            if input_ids.shape[1] >= self.max_length:
                reached.append(True)
            return original(self, input_ids, *arguments, **keywords)

        module.MaxLengthCriteria.__call__ = call

    def loop(module):
        original = module.GenerationMixin._has_unfinished_sequences

        @functools.wraps(original)
        def has_unfinished(self, *arguments, **keywords):
            # An answer for one loop: the next one begins anew.
            if reached:
                reached.clear()
                return False
            return original(self, *arguments, **keywords)

        module.GenerationMixin._has_unfinished_sequences = has_unfinished

    return criteria, loop


def optimizers_count(torch):
    """Called when PyTorch has been loaded: its optimizers have modules of their own, each with its name of the function."""

    def value(original):
        @functools.wraps(original)
        def get(x):
            found = original(x)
            # A rate or a count of zero on the GPU is one that was not computed.
            on_gpu = isinstance(x, torch.Tensor) and x.is_cuda and isinstance(found, (int, float))
            return _FIRST_STEP if on_gpu and found == 0 else found

        setattr(get, _OURS, True)
        return get

    for name, module in list(sys.modules.items()):
        original = getattr(module, "_get_value", None) if name.startswith("torch.optim.") else None
        if original is not None and not hasattr(original, _OURS):
            module._get_value = value(original)


def install():
    criteria, loop = end_of_generation()
    radrm_imports.after("torch", optimizers_count)
    radrm_imports.after("transformers.generation.stopping_criteria", criteria)
    radrm_imports.after("transformers.generation.utils", loop)
