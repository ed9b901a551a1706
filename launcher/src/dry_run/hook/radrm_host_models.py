"""Lets models be made on the host without their values.

Values do not matter in a dry run, and those of a large model would take minutes and tens of gigabytes. Until the first
forward pass, whatever fills a large floating-point tensor of the host leaves it as it was allocated: untouched pages, which
take no memory and hold zeros. Large weight files are mapped and not read. Sizes, types and the order of requests are what
they would be.
"""

import ctypes
import functools
import os

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


class Skipper:
    """The functions that fill tensors, replaced until `restore`."""

    def __init__(self, torch):
        self.torch = torch
        self.plain = (torch.Tensor, torch.nn.Parameter)
        self.before = []

    def is_large(self, tensor):
        """Whether it is a plain tensor of the host whose values need not be there."""
        return (
            type(tensor) in self.plain
            and tensor.device.type == "cpu"
            and tensor.is_floating_point()
            and tensor.layout == self.torch.strided
            and tensor.numel() * tensor.element_size() >= LARGE
        )

    def may_change(self, tensor):
        """Whether a change in place is no error."""
        return not (tensor.requires_grad and self.torch.is_grad_enabled())

    def replace(self, owner, name, make):
        original = getattr(owner, name, None)
        if original is None:
            return
        own = name in vars(owner)
        self.before.append((owner, name, original if own else None))
        setattr(owner, name, functools.wraps(original)(make(original)))

    def fresh_pages_from(self, size):
        """Lets larger tensors begin as zeros, also where memory was freed before."""
        try:
            ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, size)
        except (OSError, AttributeError):
            pass

    def restore(self):
        """Makes everything what it was."""
        self.fresh_pages_from(USUAL_THRESHOLD)
        while self.before:
            owner, name, original = self.before.pop()
            if original is None:
                delattr(owner, name)
            else:
                setattr(owner, name, original)

    def install(self):
        torch = self.torch
        self.fresh_pages_from(LARGE)
        for name in FILL:
            self.replace(torch.Tensor, name, self.fill)
        for name in INIT:
            self.replace(torch.nn.init, name, self.fill)
        for name in FACTORIES:
            self.replace(torch, name, self.factory)
        self.replace(torch.Tensor, "copy_", self.copy)
        self.replace(torch.Tensor, "clone", self.clone)
        self.replace(torch.nn.Module, "_apply", self.apply)
        self.replace(torch, "load", self.load)

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
            if keywords.get("device") is None and keywords.get("out") is None and "generator" not in keywords:
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
            if keywords.get("mmap") is None and is_path and os.path.getsize(f) >= LARGE_FILE:
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
    return skipper.restore
