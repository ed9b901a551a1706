"""Values of small tensors on an emulated GPU, which computes nothing: comparisons and counts are computed on the host too.

A program compares numbers, counts steps and asks whether a loss is finite. What it puts into a small tensor on a GPU is kept on
the host, by storage; where all tensors of a call are small, the call is made there as well, and a program that reads
such a tensor gets what is kept. What large computations would have made reads as zero, as everywhere in a dry run.
"""

import importlib

import radrm_host_models
import radrm_imports

# Bytes of a small storage.
SMALL = 512
# Storages from which on those that have gone are left out.
MANY = 1000
# What gives new tensors, of which nothing else is known to autograd.
NEW = (
    *("eq", "ne", "lt", "le", "gt", "ge", "__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"),
    *("isfinite", "isnan", "isinf", "all", "any", "equal", "clone"),
    *("logical_and", "logical_or", "logical_not", "logical_xor", "__and__", "__or__", "__invert__"),
)
# What counts in place.
IN_PLACE = ("add_", "sub_", "mul_", "fill_", "zero_", "copy_", "__iadd__", "__isub__")
FACTORIES = ("zeros", "ones", "full", "arange", "tensor", "as_tensor", "zeros_like", "ones_like", "full_like")
FOREACH = ("_foreach_add_", "_foreach_sub_", "_foreach_mul_")
# What brings a tensor elsewhere, and what reads it.
MOVES = ("to", "cuda")
READS = ("item", "tolist", "cpu", "numpy", "__bool__", "__float__", "__int__", "__index__")


class Small:
    """The functions, replaced until a tracer records some."""

    def __init__(self, torch):
        self.torch = torch
        self.skipper = radrm_host_models.Skipper(torch)
        self.is_inside = False
        # By the number of a storage: a weak reference, so that the number stays its own, and its content.
        self.contents = {}
        self.weak = importlib.import_module("torch.multiprocessing.reductions").StorageWeakRef

    def is_small(self, value):
        return value.device.type == "cuda" and value.layout == self.torch.strided and value.untyped_storage().nbytes() <= SMALL

    def tensors(self, values):
        """Those among arguments, also in lists; None if one of them is not small or not plain."""
        found = []
        for value in values:
            inner = value if isinstance(value, (list, tuple)) else (value,)
            for one in inner:
                if not isinstance(one, self.torch.Tensor):
                    continue
                if type(one) not in self.skipper.plain:
                    return None
                if one.device.type == "cpu" and one.numel() == 1:
                    continue
                if not self.is_small(one):
                    return None
                found.append(one)
        return found

    def is_off(self):
        cuda = self.torch.cuda
        # To ask for the stream would begin to use the GPU.
        if self.is_inside or not cuda.is_initialized():
            return True
        return self.skipper.is_observed() or cuda.is_current_stream_capturing()

    def content(self, tensor):
        """What is kept of a tensor's storage; None if nothing is."""
        kept = self.contents.get(tensor.untyped_storage()._cdata)
        return kept[1] if kept and not kept[0].expired() else None

    def view(self, tensor, content):
        """A tensor of the host that shares memory with what is kept."""
        own = self.torch.empty(0, dtype=tensor.dtype)
        return own.set_(content, tensor.storage_offset(), tensor.size(), tensor.stride())

    def on_host(self, value):
        if isinstance(value, (list, tuple)):
            return type(value)(self.on_host(one) for one in value)
        if not isinstance(value, self.torch.Tensor):
            return value
        content = self.content(value) if value.is_cuda else None
        return value.detach().cpu() if content is None else self.view(value, content).clone()

    def read(self, arguments, keywords):
        """The arguments with the values of now; None if they cannot be read."""
        found = []
        self.guarded(lambda: found.append((self.on_host(list(arguments)), {name: self.on_host(value) for name, value in keywords.items()})))
        return found[0] if found else None

    def write(self, tensor, value):
        """Keeps a tensor's values."""
        if isinstance(value, (list, tuple)):
            for one, its in zip(tensor, value):
                self.write(one, its)
            return
        is_pair = isinstance(tensor, self.torch.Tensor) and isinstance(value, self.torch.Tensor)
        if not is_pair or not tensor.is_cuda or value.shape != tensor.shape:
            return
        content = self.content(tensor)
        if content is None:
            storage = tensor.untyped_storage()
            content = self.torch.UntypedStorage(storage.nbytes()).fill_(0)
            if len(self.contents) > MANY:
                self.contents = {number: kept for number, kept in self.contents.items() if not kept[0].expired()}
            self.contents[storage._cdata] = (self.weak(storage), content)
        self.view(tensor, content).copy_(value)
        self.show(tensor)

    def show(self, tensor):
        """Puts what is kept into the GPU's memory, where it stands until a kernel runs."""
        content = self.content(tensor)
        if content is not None:
            whole = self.torch.empty(0, dtype=self.torch.uint8, device=tensor.device).set_(tensor.untyped_storage())
            whole.copy_(self.torch.empty(0, dtype=self.torch.uint8).set_(content))

    def guarded(self, function):
        """The program comes first: what cannot be computed stays as it is."""
        self.is_inside = True
        try:
            with self.torch.no_grad():
                function()
        except Exception:
            pass
        finally:
            self.is_inside = False

    def new(self, original):
        torch = self.torch

        def call(*arguments, **keywords):
            if self.is_off() or not self.tensors((*arguments, *keywords.values())):
                return original(*arguments, **keywords)
            before = self.read(arguments, keywords)
            out = original(*arguments, **keywords)
            found = []

            def compute():
                content = original(*before[0], **before[1])
                if isinstance(out, torch.Tensor) and self.is_small(out):
                    self.write(out, content)
                elif isinstance(out, bool):
                    found.append(content)

            if before:
                self.guarded(compute)
            return found[0] if found else out

        return call

    def in_place(self, original):
        def call(*arguments, **keywords):
            all_tensors = None if self.is_off() else self.tensors((*arguments, *keywords.values()))
            if not all_tensors or any(tensor.requires_grad for tensor in all_tensors):
                return original(*arguments, **keywords)
            before = self.read(arguments, keywords)
            out = original(*arguments, **keywords)

            def compute():
                original(*before[0], **before[1])
                self.write(arguments, before[0])

            if before:
                self.guarded(compute)
            return out

        return call

    def factory(self, original):
        torch = self.torch

        def call(*arguments, **keywords):
            out = original(*arguments, **keywords)
            if not self.is_off() and type(out) is torch.Tensor and self.is_small(out) and keywords.get("out") is None:

                def compute():
                    plain = [self.on_host(value) for value in arguments]
                    rest = {name: value for name, value in keywords.items() if name not in ("pin_memory", "requires_grad")}
                    self.write(out, original(*plain, **{**rest, "device": "cpu"}))

                self.guarded(compute)
            return out

        return call

    def moved(self, original):
        def call(tensor, *arguments, **keywords):
            if self.is_off() or type(tensor) not in self.skipper.plain or tensor.numel() * tensor.element_size() > SMALL:
                return original(tensor, *arguments, **keywords)
            if tensor.is_cuda:
                self.guarded(lambda: self.show(tensor))
            out = original(tensor, *arguments, **keywords)
            if out is not tensor and self.is_small(out):
                self.guarded(lambda: self.write(out, self.on_host(tensor).to(out.dtype)))
            return out

        return call

    def reading(self, original):
        def call(tensor, *arguments, **keywords):
            if self.contents and not self.is_off() and tensor.is_cuda:
                self.guarded(lambda: self.show(tensor))
            return original(tensor, *arguments, **keywords)

        return call

    def install(self):
        torch, replace = self.torch, self.skipper.replace
        for name in NEW:
            if hasattr(torch, name) and not name.startswith("__"):
                replace(name, self.new, torch)
            if hasattr(torch.Tensor, name):
                replace(name, self.new, torch.Tensor)
        for name in IN_PLACE:
            replace(name, self.in_place, torch.Tensor)
        for name in FACTORIES:
            replace(name, self.factory, torch)
        for names, make in ((MOVES, self.moved), (READS, self.reading)):
            for name in names:
                replace(name, make, torch.Tensor)
        for name in FOREACH:
            replace(name, self.in_place, torch)
        builtins = torch.jit._builtins
        if hasattr(builtins, "_get_builtin_table"):
            self.skipper.before.append((builtins, "_get_builtin_table", builtins._get_builtin_table))
            builtins._get_builtin_table = self.skipper.script_table(builtins._get_builtin_table)
        radrm_imports.before_traced(self.skipper.restore)


def install(torch):
    Small(torch).install()
