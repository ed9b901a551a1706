"""Marks the steps of PyTorch's optimizers, by the hooks that PyTorch has for that: figures of steps need no call in the program.

Where the program itself uses several optimizers each step of each is a mark.
"""

import ctypes

import radrm_imports

# `STEP_BY_HOOK` in base/units/src/step.rs.
NAME = b"optimizer step [radrm-run]"


def install():
    radrm_imports.after("torch.optim.optimizer", _register)


def _register(module):
    mark = _mark()
    if mark is not None:
        module.register_optimizer_step_post_hook(lambda *_: mark(NAME))


def _mark():
    """The function of the preloaded library; None where it is not preloaded."""
    try:
        mark = ctypes.CDLL(None).radrm_mark
    except (AttributeError, OSError):
        return None
    mark.argtypes = [ctypes.c_char_p]
    mark.restype = None
    return mark
