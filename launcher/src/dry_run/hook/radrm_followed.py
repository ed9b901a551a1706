"""Values of small tensors on an emulated GPU, followed through the functions by which programs count.

Counters (`step += 1`), positions (`arange`), lengths and masks decide how a program goes on. Where all operands of one of these
functions are small and known, it is done on the host as well, in a copy of the storage that `radrm_facts` keeps. What comes from
a function that is not listed here is not known, and neither is what one of those was written over.
"""

# Elements up to which values are followed.
SMALL = 1 << 14
BYTES = 8 * SMALL

# Operators with their reflected forms, and those that write their first operand.
_OPERATORS = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow")
FUNCTIONS = (
    *("__%s__" % name for name in _OPERATORS),
    *("__r%s__" % name for name in (*_OPERATORS, "div")),
    *("add", "sub", "subtract", "rsub", "mul", "multiply", "div", "divide", "true_divide", "floor_divide", "remainder", "pow"),
    *("__neg__", "neg", "abs", "sign", "sqrt", "reciprocal", "floor", "ceil", "round", "clamp", "clip", "clamp_min", "clamp_max"),
    *("maximum", "minimum", "max", "min", "sum", "prod", "cumsum", "argmax", "argmin", "where", "masked_fill", "isin"),
    *("bitwise_and", "bitwise_or", "bitwise_not", "cat", "stack", "concat", "clone", "repeat", "flip", "index_select", "gather"),
    *("reshape", "flatten"),
)
# Methods only: of PyTorch itself these names are types, or none.
METHODS = ("long", "int", "float", "double", "bool", "type_as", "contiguous", "__getitem__")
IN_PLACE = (
    *("__i%s__" % name for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor")),
    *("add_", "sub_", "mul_", "div_", "pow_", "clamp_", "clamp_min_", "clamp_max_", "neg_", "masked_fill_", "__setitem__"),
    *("logical_and_", "logical_or_", "logical_not_", "index_fill_", "cumsum_"),
)
# These need not know what they write over.
WRITES = ("fill_", "zero_", "copy_")
FOREACH = ("add", "sub", "mul", "div", "zero", "copy")
MADE = ("arange", "tensor", "as_tensor", "scalar_tensor")
# By function: the position of the one value that all elements get, or that value itself.
UNIFORM = {
    **{name: (None, 0) for name in ("zeros", "zeros_like", "new_zeros")},
    **{name: (None, 1) for name in ("ones", "ones_like", "new_ones")},
    **{name: (at, None) for name, at in (("full", 1), ("full_like", 1), ("new_full", 2))},
}


class Contents:
    """Copies of storages, on the host."""

    def __init__(self, torch):
        self.torch = torch
        self.empty, self.make_full = torch.empty, torch.full

    def is_content(self, kept):
        return type(kept) is self.torch.UntypedStorage

    def view(self, content, tensor):
        own = self.empty(0, dtype=tensor.dtype, device="cpu")
        return own.set_(content, tensor.storage_offset(), tensor.size(), tensor.stride())

    def full(self, tensor, value):
        return self.make_full(tuple(tensor.shape), value, dtype=tensor.dtype, device="cpu")

    def of_value(self, value, tensor):
        """A copy of a tensor's storage in which all elements have a value; None if it is large."""
        size = tensor.untyped_storage().nbytes()
        if size > BYTES:
            return None
        return self.make_full((size // tensor.element_size(),), value, dtype=tensor.dtype, device="cpu").untyped_storage()

    def of_tensor(self, tensor):
        """A copy of the storage of a tensor that has all of it; None if it is large or has more."""
        size = tensor.untyped_storage().nbytes()
        if size > BYTES or size != tensor.numel() * tensor.element_size() or tensor.storage_offset():
            return None
        return self.torch.UntypedStorage(size)

    def number(self, content, tensor):
        """The value of all elements of a tensor; None if they differ, or are many."""
        if not 0 < tensor.numel() <= SMALL:
            return None
        values = self.view(content, tensor)
        first = values.flatten()[0]
        return first.item() if bool((values == first).all()) else None


class Followed:
    """Functions that are done on the host as well. `facts`: the owner of what is known."""

    def __init__(self, facts):
        self.facts = facts
        self.torch = facts.torch
        self.plain = facts.skipper.plain
        # Before any of them is replaced.
        self.copy = facts.torch.Tensor.copy_
        self.single = {name: getattr(facts.torch.Tensor, name + "_") for name in FOREACH}
        # Contents of storages that were brought to the GPU, each with a weak reference to it.
        self.storages = {}

    def operands(self, arguments, keywords):
        """The arguments with tensors of the host in the place of those of the GPU, of which there is one at least; None if one of
        them is not known."""
        first = arguments[0] if arguments else None
        if type(first) in self.plain and first.numel() > SMALL or self.facts.is_off():
            return None
        # For each tensor of the GPU, whether it is only assumed.
        found = []
        try:
            hosts = [self.operand(one, found) for one in arguments], {name: self.operand(one, found) for name, one in keywords.items()}
        except (LookupError, RuntimeError):
            return None
        return (*hosts, any(found)) if found else None

    def operand(self, value, found):
        if type(value) in self.plain:
            if value.numel() > SMALL:
                raise LookupError
            if not value.is_cuda:
                return value
            host = self.facts.host(value)
            if host is None:
                raise LookupError
            found.append(self.facts.is_assumed(value))
            return host
        if isinstance(value, self.torch.Tensor):
            raise LookupError
        if type(value) in (list, tuple):
            return type(value)(self.operand(one, found) for one in value)
        if isinstance(value, self.torch.device):
            return self.torch.device("cpu")
        return value

    def pure(self, original):
        """For functions that write none of their operands."""

        def call(*arguments, **keywords):
            hosts = self.operands(arguments, keywords) if self.facts.facts else None
            out = original(*arguments, **keywords)
            if hosts is not None and "out" not in keywords:
                try:
                    self.keep(out, original(*hosts[0], **hosts[1]), hosts[2])
                except Exception:
                    pass
            return out

        return call

    def keep(self, out, computed, is_assumed):
        """Keeps what was computed on the host; false if it is not what the function gave."""
        if isinstance(out, tuple):
            return all([self.keep(*pair, is_assumed) for pair in zip(out, computed)])
        if not self.facts.is_gpu(out) or out.shape != computed.shape or out.dtype != computed.dtype:
            return False
        # A view has its content already.
        if self.facts.kept(out) is None:
            self.brought(out, computed, is_assumed)
        return self.facts.kept(out) is not None

    def brought(self, out, host, is_assumed=False):
        """The GPU has what a tensor of the host has."""
        if host is not None and self.facts.is_gpu(out) and out.numel() == host.numel() <= SMALL:
            content = self.facts.contents.of_tensor(out)
            if content is not None:
                self.copy(self.facts.contents.view(content, out), host.detach())
                self.facts.keep(out, content, is_assumed)

    def in_place(self, original):
        """For functions that write their first operand."""

        def call(*arguments, **keywords):
            hosts = self.operands(arguments, keywords) if self.facts.facts else None
            out = original(*arguments, **keywords)
            if hosts is not None:
                self.write(arguments[0], original, hosts)
            return out

        return call

    def write(self, target, original, hosts):
        """Does on the host what was done on the GPU, where all of the storage is known."""
        try:
            content = self.facts.facts.get(target.untyped_storage()._cdata)
            if self.facts.is_gpu(target) and content and self.facts.contents.is_content(content[2]):
                with self.torch.no_grad():
                    original(*hosts[0], **hosts[1])
                self.facts.keep(target, content[2], hosts[2] or content[3])
        except Exception:
            self.facts.forget(target)

    def written(self, original):
        """For functions that write all of their first operand, with a second one or zero."""

        def call(target, *arguments, **keywords):
            source, is_assumed, part = self.source(target, arguments, keywords)
            out = original(target, *arguments, **keywords)
            if source is None:
                return out
            try:
                if not target.is_cuda:
                    self.copy(target, source)
                elif part is not None:
                    is_one = not isinstance(source, self.torch.Tensor)
                    self.copy(part[0], self.facts.contents.full(target, source) if is_one else source)
                    self.facts.keep(target, part[1], is_assumed)
                elif isinstance(source, self.torch.Tensor):
                    self.brought(target, source.expand(target.shape), is_assumed)
                else:
                    self.facts.keep(target, source)
            except Exception:
                self.facts.forget(target)
            return out

        return call

    def source(self, target, arguments, keywords):
        """What is written: a number, or a tensor of the host, and None if it is not known or of no interest; whether it is assumed; and
        where only a part of a known storage is written, that part and the content."""
        nothing = None, False, None
        try:
            if type(target) not in self.plain or self.facts.is_off() or keywords and not arguments:
                return nothing
            found, source = [], arguments[0] if arguments else 0
            if not isinstance(source, (bool, int, float)):
                if target.numel() > SMALL:
                    return nothing
                source = self.operand(source, found)
            # Of the host only what comes from the GPU is of interest.
            if not target.is_cuda and (not found or target.requires_grad):
                return nothing
            if target.numel() * target.element_size() == target.untyped_storage().nbytes():
                return source, any(found), None
            host = self.facts.host(target) if target.is_cuda else None
            kept = self.facts.kept(target) if target.is_cuda else None
            if target.is_cuda and not self.facts.contents.is_content(kept):
                return nothing
            return source, any(found) or target.is_cuda and self.facts.is_assumed(target), (host, kept)
        except (LookupError, RuntimeError, AttributeError):
            return nothing

    def foreach(self, name):
        """For functions that write each of several tensors."""
        single = self.single[name]

        def make(original):
            def call(tensors, *arguments, **keywords):
                hosts = self.of_each(tensors, arguments, keywords) if self.facts.facts else ()
                out = original(tensors, *arguments, **keywords)
                for target, operands in hosts:
                    self.write(target, single, operands)
                return out

            return call

        return make

    def of_each(self, tensors, arguments, keywords):
        if not tensors or tensors[0].numel() > SMALL or self.facts.is_off():
            return ()
        each = []
        for at, tensor in enumerate(tensors):
            own = [one[at] if isinstance(one, (list, tuple)) else one for one in arguments]
            hosts = self.operands((tensor, *own), keywords)
            if hosts is not None:
                each.append((tensor, hosts))
        return each

    def made(self, original):
        """For functions that make tensors of values of the host."""

        def call(*arguments, **keywords):
            out = original(*arguments, **keywords)
            try:
                if self.facts.is_gpu(out) and out.numel() <= SMALL and not self.facts.is_off():
                    found = []
                    values = [self.operand(one, found) for one in arguments]
                    host = original(*values, **{**keywords, "device": "cpu", "dtype": out.dtype})
                    self.brought(out, host, any(found))
            except Exception:
                pass
            return out

        return call

    def uniform(self, place, value):
        def make(original):
            def call(*arguments, **keywords):
                out = original(*arguments, **keywords)
                try:
                    if self.facts.is_gpu(out) and "out" not in keywords and not self.facts.is_off():
                        found = value
                        if place is not None:
                            found = arguments[place] if len(arguments) > place else keywords.get("fill_value")
                        if isinstance(found, (bool, int, float)):
                            self.facts.keep(out, found)
                except Exception:
                    pass
                return out

            return call

        return make

    def copied(self, original):
        """`torch.load` brings storages to the GPU, and makes tensors of them then."""

        def call(storage, source, *arguments, **keywords):
            out = original(storage, source, *arguments, **keywords)
            try:
                if storage.device.type == "cuda" and source.device.type == "cpu" and storage.nbytes() <= BYTES:
                    content = self.torch.UntypedStorage(storage.nbytes())
                    original(content, source)
                    self.storages[storage._cdata] = self.facts.weak(storage), content
            except Exception:
                pass
            return out

        return call

    def rebuilt(self, original):
        def call(storage, *arguments, **keywords):
            out = original(storage, *arguments, **keywords)
            try:
                found = self.storages.pop(out.untyped_storage()._cdata, None)
                if found and not found[0].expired():
                    self.facts.keep(out, found[1])
            except Exception:
                pass
            return out

        return call

    def install(self, replace):
        torch = self.torch
        for name in FUNCTIONS:
            for owner in (torch, torch.Tensor):
                replace(name, self.pure, owner)
        for names, make in ((METHODS, self.pure), (IN_PLACE, self.in_place), (WRITES, self.written)):
            for name in names:
                replace(name, make, torch.Tensor)
        for name in FOREACH:
            replace("_foreach_%s_" % name, self.foreach(name), torch)
        for name in MADE:
            replace(name, self.made, torch)
        for name, (place, value) in UNIFORM.items():
            replace(name, self.uniform(place, value), torch.Tensor if name.startswith("new_") else torch)
        replace("copy_", self.copied, torch.UntypedStorage)
        replace("_rebuild_tensor", self.rebuilt, torch._utils)
