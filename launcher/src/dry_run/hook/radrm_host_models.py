"""Lets models be made on the host without their values.

Values do not matter in a dry run, and those of a large model would take minutes and tens of gigabytes. Until the first
forward pass, whatever fills a large floating-point tensor of the host leaves it as it was allocated: untouched pages, which
take no memory and hold zeros. Large weight files are mapped and not read. Sizes, types and the order of requests are what
they would be.
"""

import ctypes
import os
import types

import radrm_imports

# Bytes from which on a tensor is left alone. Smaller ones cost nothing.
LARGE = 1 << 20

# Files from which on they are mapped. A program that writes over a mapped file loses what it has loaded.
LARGE_FILE = 256 << 20

# Of <malloc.h>: the size from which on each block has fresh pages, and its largest value, which malloc comes to by itself.
M_MMAP_THRESHOLD = -3
USUAL_THRESHOLD = 32 << 20

FILL = ("normal_", "uniform_", "zero_", "fill_", "log_normal_", "exponential_", "cauchy_", "bernoulli_", "erfinv_")
# Those of torch.nn.init that compute with the values.
INIT = ("trunc_normal_", "_no_grad_trunc_normal_", "orthogonal_", "sparse_", "eye_", "dirac_")
FACTORIES = ("zeros", "ones", "full", "rand", "randn", "normal")
# What torch.jit.script knows builtin functions by.
TABLE = "_get_builtin_table"


class Replaced:
    """A function in place of another one, and equal to it.

    PyTorch's compilers and tracers, and classes with their own `__torch_function__`, look functions up in sets and
    dictionaries. They keep these, so an entry must be found before and after the function is replaced.
    """

    def __init__(self, original, own):
        if type(original) is Replaced:
            # Replaced twice.
            original = original.__wrapped__
        for name in ("__module__", "__name__", "__qualname__", "__doc__"):
            setattr(self, name, getattr(original, name, None))
        self.__wrapped__ = original
        self._own = own

    def __call__(self, *arguments, **keywords):
        return self._own(*arguments, **keywords)

    def __get__(self, instance, owner=None):
        # Builtin functions bind to nothing.
        if instance is None or not hasattr(self.__wrapped__, "__get__"):
            return self
        return types.MethodType(self, instance)

    def __eq__(self, other):
        return self.__wrapped__ == (other.__wrapped__ if type(other) is Replaced else other)

    def __hash__(self):
        return hash(self.__wrapped__)

    def __repr__(self):
        return repr(self.__wrapped__)

    def __getattr__(self, name):
        return getattr(self.__wrapped__, name)

    @property
    def __class__(self):
        return type(self.__wrapped__)

    def __copy__(self):
        return self

    def __deepcopy__(self, memo):
        return self

    def __reduce_ex__(self, protocol):
        # Functions of Python are written by their name, builtin ones know how.
        if isinstance(self.__wrapped__, types.FunctionType):
            return self.__qualname__
        return self.__wrapped__.__reduce_ex__(protocol)


class Skipper:
    """The functions that fill tensors, replaced until `restore`."""

    def __init__(self, torch):
        self.torch = torch
        self.plain = (torch.Tensor, torch.nn.Parameter)
        self.before = []
        self.replaced = []
        c, no = torch._C, lambda otherwise: lambda *arguments: otherwise
        self.dispatch_modes = getattr(c, "_len_torch_dispatch_stack", no(0))
        self.traced = getattr(c, "_get_tracing_state", no(None))
        self.transformed = getattr(getattr(c, "_functorch", None), "peek_interpreter_stack", no(None))
        self.modes = getattr(c, "_len_torch_function_stack", no(0))
        self.mode_at = getattr(c, "_get_function_stack_at", no(None))

    def is_observed(self):
        """Whether something sees each operation, and must see those of the program: a tracer, a transformation, a mode."""
        return (
            self.dispatch_modes() > 0
            or self.traced() is not None
            or self.transformed() is not None
            # One that only says where tensors are made sees none.
            or any(type(self.mode_at(at)).__module__ != "torch.utils._device" for at in range(self.modes()))
        )

    def is_large(self, tensor):
        """Whether it is a plain tensor of the host whose values need not be there."""
        return (
            type(tensor) in self.plain
            and tensor.device.type == "cpu"
            and tensor.is_floating_point()
            and tensor.layout == self.torch.strided
            and tensor.numel() * tensor.element_size() >= LARGE
            and not self.is_observed()
        )

    def may_change(self, tensor):
        """Whether a change in place is not an error."""
        return not (tensor.requires_grad and self.torch.is_grad_enabled())

    def replace(self, name, make, *owners):
        """Replaces a function where it is known: all owners have one and the same."""
        original = getattr(owners[0], name, None)
        if original is None:
            return
        # Kept, as a table may know it by its number.
        self.replaced.append(Replaced(original, make(original)))
        for owner in owners:
            self.before.append((owner, name, original if name in vars(owner) else None))
            setattr(owner, name, self.replaced[-1])

    def fresh_pages_from(self, size):
        """Lets larger tensors begin as zeros, also where memory was freed before."""
        try:
            ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, size)
        except (OSError, AttributeError):
            pass

    def script_table(self, original):
        """What torch.jit.script knows builtin functions by, the numbers of their objects, for both of each pair."""

        def table():
            known = original()
            for replaced in self.replaced:
                pair = id(replaced), id(replaced.__wrapped__)
                found = known.get(pair[0]) or known.get(pair[1])
                if found:
                    known.update(dict.fromkeys(pair, found))
            return known

        return table

    def restore(self):
        """Makes everything what it was. What the program has put in the place of a function since then stays."""
        if not self.before:
            return
        self.fresh_pages_from(USUAL_THRESHOLD)
        for replaced in self.replaced:
            # A function of the program's may go on to call it.
            replaced._own = replaced.__wrapped__
        while self.before:
            owner, name, original = self.before.pop()
            if name != TABLE and type(vars(owner).get(name)) is not Replaced:
                continue
            if original is None:
                delattr(owner, name)
            else:
                setattr(owner, name, original)

    def install(self):
        torch = self.torch
        self.fresh_pages_from(LARGE)
        for name in FILL:
            self.replace(name, self.fill, torch.Tensor)
        for name in INIT:
            self.replace(name, self.fill, torch.nn.init)
        for name in FACTORIES:
            self.replace(name, self.factory, torch)
        self.replace("copy_", self.copy, torch.Tensor)
        self.replace("clone", self.clone, torch.Tensor)
        self.replace("_apply", self.apply, torch.nn.Module)
        self.replace("load", self.load, torch, torch.serialization)
        builtins = torch.jit._builtins
        if hasattr(builtins, TABLE):
            self.before.append((builtins, TABLE, builtins._get_builtin_table))
            builtins._get_builtin_table = self.script_table(builtins._get_builtin_table)

    def fill(self, original):
        def filled(tensor, *arguments, **keywords):
            if self.is_large(tensor) and self.may_change(tensor):
                return tensor
            return original(tensor, *arguments, **keywords)

        return filled

    def factory(self, original):
        """What it makes is asked for on the device without memory, and then made without values."""
        torch = self.torch

        def made(*arguments, **keywords):
            is_usual = keywords.get("device") is None and keywords.get("out") is None and "generator" not in keywords
            if is_usual and not self.is_observed():
                default = torch.get_default_device().type
                if default == "cpu" and not keywords.get("pin_memory"):
                    try:
                        like = original(*arguments, **{**keywords, "device": "meta"})
                    except (TypeError, RuntimeError, NotImplementedError):
                        return original(*arguments, **keywords)
                    if (
                        type(like) is torch.Tensor
                        and like.is_floating_point()
                        and like.layout == torch.strided
                        and like.numel() * like.element_size() >= LARGE
                    ):
                        return torch.empty_like(like, device="cpu").requires_grad_(like.requires_grad)
            return original(*arguments, **keywords)

        return made

    def copy(self, original):
        def copied(tensor, source, *arguments, **keywords):
            if self.is_large(tensor) and self.is_large(source) and self.may_change(tensor):
                if tensor.shape == source.shape and not source.requires_grad:
                    return tensor
            return original(tensor, source, *arguments, **keywords)

        return copied

    def clone(self, original):
        """Copies of modules clone their parameters."""

        def cloned(tensor, *arguments, **keywords):
            if self.is_large(tensor) and self.may_change(tensor):
                return self.torch.empty_like(tensor, *arguments, requires_grad=False, **keywords)
            return original(tensor, *arguments, **keywords)

        return cloned

    def apply(self, original):
        """`Module.to` and its like: a change of type on the host gives a tensor without values."""
        torch = self.torch

        def applied(module, function, *arguments, **keywords):
            def converted(tensor):
                if not self.is_large(tensor):
                    return function(tensor)
                try:
                    with torch.no_grad():
                        shape = function(torch.empty_like(tensor, device="meta"))
                except (NotImplementedError, RuntimeError):
                    # It leaves the host.
                    return function(tensor)
                if shape.device.type != "meta" or shape.dtype == tensor.dtype or shape.shape != tensor.shape:
                    return function(tensor)
                return torch.empty_like(tensor, dtype=shape.dtype)

            if getattr(function, "_radrm", False):
                return original(module, function, *arguments, **keywords)
            converted._radrm = True
            return original(module, converted, *arguments, **keywords)

        return applied

    def load(self, original):
        def loaded(f, *arguments, **keywords):
            is_path = isinstance(f, (str, os.PathLike)) and os.path.isfile(f)
            is_large = is_path and os.path.getsize(f) >= LARGE_FILE
            if keywords.get("mmap") is None and is_large and not self.is_observed():
                try:
                    return original(f, *arguments, **{**keywords, "mmap": True})
                except (RuntimeError, ValueError):
                    # Not of a form that can be mapped.
                    pass
            return original(f, *arguments, **keywords)

        return loaded


def install(torch):
    """Replaces them; what makes them what they were."""
    skipper = Skipper(torch)
    skipper.install()
    radrm_imports.before_traced(skipper.restore)
    return skipper.restore
