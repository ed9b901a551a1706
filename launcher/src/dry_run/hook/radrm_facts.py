"""Truth values of tensors on an emulated GPU, which computes nothing, so that everything there reads as zero.

A program asks whether a loss is finite, or compares two numbers, and a zero is then the wrong answer: False. For such questions
the answer is worked out for operands that are zero, or for what is known of them, and kept beside the tensor with the answer: one value
for all of its elements. What a program reads of such a tensor is that value. A fact ends with the tensor's memory, with
any later write that PyTorch counts, and with any collective: what is not known reads as zero, as before.
"""

import math
import operator

import radrm_host_models
import radrm_imports

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
READS = ("item", "tolist", "cpu", "__bool__", "__float__", "__int__", "__index__", "to")
# Facts from which on those of tensors that have gone are left out.
MANY = 1000


class Facts:
    """The functions, replaced until a tracer records some."""

    def __init__(self, torch):
        from torch.multiprocessing.reductions import StorageWeakRef

        self.torch = torch
        self.weak = StorageWeakRef
        self.skipper = radrm_host_models.Skipper(torch)
        # By the number of a storage: a weak reference, so that the number stays its own; the version; the value.
        self.facts = {}

    def is_gpu(self, value):
        return type(value) in self.skipper.plain and value.is_cuda

    def is_off(self):
        return not self.torch.cuda.is_initialized() or self.skipper.is_observed()

    def fact(self, tensor):
        """The value of all elements of a tensor; None if it is not known."""
        kept = self.facts.get(tensor.untyped_storage()._cdata)
        return kept[2] if kept and kept[1] == tensor._version and not kept[0].expired() else None

    def keep(self, tensor, value):
        if not self.is_gpu(tensor):
            return
        if len(self.facts) > MANY:
            self.facts = {number: kept for number, kept in self.facts.items() if not kept[0].expired()}
        storage = tensor.untyped_storage()
        self.facts[storage._cdata] = (self.weak(storage), tensor._version, value)

    def value(self, operand):
        """One number for an operand, zero where it is not known; None if it has several, or is of another kind."""
        known = self.known(operand)
        return 0 if known is None and self.is_gpu(operand) else known

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
        """Makes functions that call another one, and then `work` with its result and arguments, which gives the result. The program
        comes first: where that fails, nothing is known."""

        def make(original):
            def call(*arguments, **keywords):
                out = original(*arguments, **keywords)
                try:
                    if self.is_off() or keywords.get("out") is not None:
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
                    self.keep(out, answer(*values))
            return out

        return self.after(work)

    def bits(self, answer):
        def work(out, arguments):
            values = [self.value(one) for one in arguments]
            if self.facts and out.dtype == self.torch.bool and None not in values:
                self.keep(out, bool(answer(*map(bool, values))))
            return out

        return self.after(work)

    def same(self, out, arguments):
        known = self.fact(arguments[0]) if self.facts and self.is_gpu(arguments[0]) else None
        if known is not None and arguments[0].numel():
            self.keep(out, known)
        return out

    def read(self, out, arguments):
        tensor = arguments[0]
        known = self.fact(tensor) if self.facts and self.is_gpu(tensor) else None
        if known is None or out is tensor:
            return out
        if isinstance(out, self.torch.Tensor):
            if out.is_cuda:
                self.keep(out, known)
            elif known and not out.requires_grad:
                out.fill_(known)
            return out
        if isinstance(out, list):
            return self.torch.full(tensor.shape, known, dtype=tensor.dtype).tolist()
        return type(out)(known) if isinstance(out, (bool, int, float)) else out

    def equal(self, out, arguments):
        """Whether all elements of two tensors are equal: the function reads the answer itself."""
        a, b = arguments[:2]
        if not (self.is_gpu(a) and self.is_gpu(b)) or a.shape != b.shape:
            return out
        return self.value(a) == self.value(b)

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
            replace(name, self.after(self.read), torch.Tensor)
        builtins = torch.jit._builtins
        if hasattr(builtins, "_get_builtin_table"):
            self.skipper.before.append((builtins, "_get_builtin_table", builtins._get_builtin_table))
            builtins._get_builtin_table = self.skipper.script_table(builtins._get_builtin_table)
        self.forget_by_collectives()
        radrm_imports.before_traced(self.skipper.restore)

    def forget_by_collectives(self):
        """PyTorch counts no write of theirs."""
        groups = getattr(self.torch._C, "_distributed_c10d", None)
        group = getattr(groups, "ProcessGroup", None)
        if group is None:
            return

        def forgetting(original):
            def call(*arguments, **keywords):
                self.facts.clear()
                return original(*arguments, **keywords)

            call.__wrapped__, call.__doc__ = original, original.__doc__
            return call

        parts = ("reduce", "gather", "scatter", "broadcast", "recv", "alltoall")
        for name in dir(group):
            if any(part in name for part in parts) and callable(getattr(group, name)):
                setattr(group, name, forgetting(getattr(group, name)))


def install(torch):
    Facts(torch).install()
