"""Truth values of tensors on an emulated GPU, which computes nothing, so that everything there reads as zero.

A program asks whether a loss is finite, or compares two numbers, and a zero is then the wrong answer: False. For such questions
the answer is worked out for operands that are zero, or for what is known of them, and kept beside the tensor with the answer: one value
for all of its elements, or, of small tensors, the content of their storage (`radrm_followed`). What a program reads of such a tensor is
that value. A fact ends with the tensor's memory, with any later write that PyTorch counts, and with any collective, replay of a CUDA
graph or kernel of Triton: what is not known reads as zero, as before.
"""

import contextlib
import math
import operator

import radrm_followed
import radrm_host_models
import radrm_imports
import radrm_waits

COMPARISONS = {
    **{name: getattr(operator, name) for name in ("lt", "le", "gt", "ge")},
    **{"__%s__" % name: getattr(operator, name) for name in ("lt", "le", "gt", "ge")},
    "logical_and": lambda a, b: bool(a) and bool(b),
    "logical_or": lambda a, b: bool(a) or bool(b),
    "logical_xor": lambda a, b: bool(a) != bool(b),
}
# Of facts only. Programs ask by them whether they are done (all sequences have their end token), and zeros that are not known would
# always be equal.
EQUALITIES = {
    **{name: getattr(operator, name) for name in ("eq", "ne")},
    **{"__%s__" % name: getattr(operator, name) for name in ("eq", "ne")},
}
# Of truth values only: of numbers they are more than truth.
BITS = {
    "__and__": operator.and_,
    "__or__": operator.or_,
    "__xor__": operator.xor,
    "__invert__": operator.not_,
}
QUESTIONS = {
    "isfinite": math.isfinite,
    "isnan": math.isnan,
    "isinf": math.isinf,
    "logical_not": operator.not_,
}
# What has the value of its operand, in a tensor of its own.
SAME = ("all", "any", "amin", "amax")
READS = ("item", "tolist", "cpu", "cuda", "__bool__", "__float__", "__int__", "__index__", "to")
# Facts from which on those of tensors that have gone are left out.
MANY = 1000

# Not empty while nothing is kept and nothing is answered: something else has the values.
_RESTING = []


@contextlib.contextmanager
def resting():
    _RESTING.append(True)
    try:
        yield
    finally:
        _RESTING.pop()


class Facts:
    """The functions, replaced until a tracer records some."""

    def __init__(self, torch, waits):
        from torch.multiprocessing.reductions import StorageWeakRef

        self.torch = torch
        self.weak = StorageWeakRef
        self.skipper = radrm_host_models.Skipper(torch)
        # By the number of a storage: a weak reference, so that the number stays its own; the version; the value or the content; and
        # whether it follows from something that is not known, and was taken to be zero.
        self.facts = {}
        self.many = MANY
        self.contents = radrm_followed.Contents(torch)
        self.followed = radrm_followed.Followed(self)
        self.waits = waits

    def is_gpu(self, value):
        return type(value) in self.skipper.plain and value.is_cuda

    def is_off(self):
        return bool(_RESTING) or not self.torch.cuda.is_initialized() or self.skipper.is_observed()

    def kept(self, tensor):
        """The value of all elements of a tensor's storage, or its content; None if it is not known."""
        kept = self.facts.get(tensor.untyped_storage()._cdata)
        return kept[2] if kept and kept[1] == tensor._version and not kept[0].expired() else None

    def fact(self, tensor):
        """The value of all elements of a tensor; None if it is not known, or if they differ."""
        kept = self.kept(tensor)
        return self.contents.number(kept, tensor) if self.contents.is_content(kept) else kept

    def is_assumed(self, tensor):
        """Whether what is known of a tensor follows from something that is not."""
        kept = self.facts.get(tensor.untyped_storage()._cdata)
        return kept is not None and kept[3]

    def host(self, tensor):
        """The elements of a small tensor as one of the host, which shares memory with its other views; None if they are not
        known. Call `keep` after a write."""
        kept = self.kept(tensor)
        if kept is None or tensor.numel() > radrm_followed.SMALL:
            return None
        if not self.contents.is_content(kept):
            content = self.contents.of_value(kept, tensor)
            if content is None:
                # A part of a large tensor: to be read only.
                return self.contents.full(tensor, kept)
            self.keep(tensor, content, self.is_assumed(tensor))
            kept = content
        return self.contents.view(kept, tensor)

    def keep(self, tensor, value, is_assumed=False):
        if not self.is_gpu(tensor):
            return
        if not self.contents.is_content(value) and not tensor.dtype.is_floating_point:
            value = bool(value) if tensor.dtype == self.torch.bool else int(value)
        if len(self.facts) > self.many:
            self.facts = {number: kept for number, kept in self.facts.items() if not kept[0].expired()}
            self.many = max(MANY, 2 * len(self.facts))
        storage = tensor.untyped_storage()
        self.facts[storage._cdata] = (self.weak(storage), tensor._version, value, is_assumed)

    def forget(self, tensor):
        """A write came that PyTorch does not count."""
        if self.is_gpu(tensor):
            self.facts.pop(tensor.untyped_storage()._cdata, None)

    def forget_all(self):
        self.facts.clear()
        self.waits.forget()

    def value(self, operand):
        """One number for an operand, zero where it is not known; None if it has several, or is of another kind."""
        if self.is_gpu(operand) and self.kept(operand) is None:
            return 0
        return self.known(operand)

    def is_open(self, operands):
        """Whether something about these operands is not known."""
        return any(self.is_gpu(one) and (self.kept(one) is None or self.is_assumed(one)) for one in operands)

    def known(self, operand):
        """One number for an operand; None if it has several, is not known, or is of another kind."""
        if isinstance(operand, (bool, int, float)):
            return operand
        if self.is_gpu(operand):
            return self.fact(operand)
        # Reading a number of the host costs nothing.
        if type(operand) in self.skipper.plain and operand.device.type == "cpu" and operand.numel() == 1:
            return operand.item()
        return None

    def after(self, work):
        """Makes functions that call another one, and then `work` with its result and arguments, which gives the result; where all
        operands are small and known, the result is computed instead. The program comes first: where that fails, nothing is known."""

        def make(original):
            def call(*arguments, **keywords):
                hosts = self.followed.operands(arguments, keywords) if self.facts else None
                out = original(*arguments, **keywords)
                try:
                    if self.is_off() or keywords.get("out") is not None:
                        return out
                    if hosts is not None and self.followed.keep(out, original(*hosts[0], **hosts[1]), hosts[2]):
                        return out
                    return work(out, arguments)
                except Exception:
                    return out

            return call

        return make

    def answered(self, answer, arity, of):
        """For functions whose result has one value, which follows from those of its operands."""

        def work(out, arguments):
            operands = arguments[:arity]
            if len(operands) == arity and any(self.is_gpu(one) and one.numel() for one in operands):
                values = [of(one) for one in operands]
                if None not in values:
                    self.keep(out, answer(*values), self.is_open(operands))
            return out

        return self.after(work)

    def bits(self, answer):
        def work(out, arguments):
            values = [self.value(one) for one in arguments]
            if self.facts and out.dtype == self.torch.bool and None not in values:
                self.keep(out, bool(answer(*map(bool, values))), self.is_open(arguments))
            return out

        return self.after(work)

    def same(self, out, arguments):
        known = self.fact(arguments[0]) if self.facts and self.is_gpu(arguments[0]) else None
        if known is not None and arguments[0].numel():
            self.keep(out, known, self.is_assumed(arguments[0]))
        return out

    def read(self, original):
        """For functions that bring values to the host, or from it."""

        def call(tensor, *arguments, **keywords):
            out = original(tensor, *arguments, **keywords)
            is_on_gpu = isinstance(out, self.torch.Tensor) and out.is_cuda
            if out is tensor or not (tensor.is_cuda or is_on_gpu):
                return out
            try:
                if type(tensor) not in self.skipper.plain or self.is_off():
                    return out
                if not tensor.is_cuda:
                    self.followed.brought(out, tensor)
                    return out
                found = self.found(tensor, out)
                is_open = self.is_open((tensor,)) and not is_on_gpu
                # The weak reference keeps the number of a storage from that of the next one.
                which = (self.weak(tensor.untyped_storage()), tensor.storage_offset(), tensor._version) if is_open else None
            except Exception:
                return out
            if is_open:
                # May end the program.
                self.waits.read(which, out if found is None else found)
            return out if found is None else found

        return call

    def found(self, tensor, out):
        """What a program reads, in the place of zeros; None if that is not known."""
        kept = self.kept(tensor) if self.facts else None
        if kept is None:
            return None
        if isinstance(out, self.torch.Tensor) and out.is_cuda:
            if not self.contents.is_content(kept):
                return self.same(out, (tensor,))
            self.followed.brought(out, self.host(tensor), self.is_assumed(tensor))
            return out
        host = self.host(tensor)
        if isinstance(out, self.torch.Tensor):
            if out.requires_grad:
                return None
            if host is not None:
                return self.followed.copy(out, host)
            return out.fill_(kept) if kept and not self.contents.is_content(kept) else out
        if isinstance(out, list) and host is None:
            return self.torch.full(tensor.shape, kept, dtype=tensor.dtype, device="cpu").tolist()
        return host.tolist() if isinstance(out, list) else type(out)(host.item())

    def equal(self, out, arguments):
        """Whether all elements of two tensors are equal: the function reads the answer itself."""
        a, b = arguments[:2]
        if not (self.is_gpu(a) and self.is_gpu(b)) or a.shape != b.shape:
            return out
        values = self.value(a), self.value(b)
        if None in values:
            a, b = self.host(a), self.host(b)
            return a is not None and b is not None and a.equal(b)
        return values[0] == values[1]

    def install(self):
        torch, replace = self.torch, self.skipper.replace
        makes = [(name, self.answered(answer, 2, self.value)) for name, answer in COMPARISONS.items()]
        makes += [(name, self.answered(answer, 2, self.known)) for name, answer in EQUALITIES.items()]
        makes += [(name, self.answered(answer, 1, self.value)) for name, answer in QUESTIONS.items()]
        makes += [(name, self.after(self.same)) for name in SAME]
        makes += [(name, self.after(self.equal)) for name in ("equal", "allclose")]
        for name, make in makes:
            for owner in (torch, torch.Tensor):
                replace(name, make, owner)
        for name, answer in BITS.items():
            replace(name, self.bits(answer), torch.Tensor)
        for name in READS:
            replace(name, self.read, torch.Tensor)
        self.followed.install(replace)
        builtins = torch.jit._builtins
        if hasattr(builtins, "_get_builtin_table"):
            self.skipper.before.append((builtins, "_get_builtin_table", builtins._get_builtin_table))
            builtins._get_builtin_table = self.skipper.script_table(builtins._get_builtin_table)
        self.forget_by_collectives()
        self.forget_by_kernels()
        radrm_imports.before_traced(self.skipper.restore)

    def forget_by_collectives(self):
        """PyTorch counts no write of theirs."""
        groups = getattr(self.torch._C, "_distributed_c10d", None)
        group = getattr(groups, "ProcessGroup", None)
        if group is None:
            return

        def forgetting(original):
            def call(*arguments, **keywords):
                self.forget_all()
                return original(*arguments, **keywords)

            call.__wrapped__, call.__doc__ = original, original.__doc__
            return call

        parts = ("reduce", "gather", "scatter", "broadcast", "recv", "alltoall")
        for name in dir(group):
            if any(part in name for part in parts) and callable(getattr(group, name)):
                setattr(group, name, forgetting(getattr(group, name)))

    def forget_by_kernels(self):
        """Nor of CUDA graphs and of kernels in Triton."""

        def first(owner, name, forget):
            original = getattr(owner, name)

            def call(own, *arguments, **keywords):
                forget(arguments, keywords)
                return original(own, *arguments, **keywords)

            call.__wrapped__, call.__doc__ = original, original.__doc__
            setattr(owner, name, call)

        def of_kernel(arguments, keywords):
            for value in (*arguments, *keywords.values()):
                self.forget(value)

        graph = getattr(self.torch.cuda, "CUDAGraph", None)
        if graph is not None and hasattr(graph, "replay"):
            first(graph, "replay", lambda arguments, keywords: self.forget_all())
        radrm_imports.after("triton.runtime.jit", lambda module: first(module.JITFunction, "run", of_kernel))


def install(torch, waits):
    Facts(torch, waits).install()
