"""Batches as bytes: a description, and the data of their arrays. No pickle: nothing in a description leads to code.

The format is that of experiments/share/src/description.rs, which checks every description before it is read here.
"""

import collections
import ctypes
import dataclasses
import keyword
import struct
import sys

from . import _gpu
from ._core import UNKNOWN, ShareError

MAGIC = b"RSD1"
ALIGNMENT, _GPU_ALIGNMENT = 64, 256
_MAX_DEPTH = 64
_MAX_DIMENSIONS = 32
_NUMPY, _TORCH, _DLPACK = 0, 1, 2
# Added to one of these where the array lies on the GPU; only element types of DLPack's do.
_ON_GPU, _MAX_ON_GPU = 3, 21

# Element types by number: numpy's text, PyTorch's name.
_ELEMENTS = {
    1: ("|b1", "bool"),
    2: ("|i1", "int8"),
    3: ("<i2", "int16"),
    4: ("<i4", "int32"),
    5: ("<i8", "int64"),
    6: ("|u1", "uint8"),
    7: ("<u2", "uint16"),
    8: ("<u4", "uint32"),
    9: ("<u8", "uint64"),
    10: ("<f2", "float16"),
    11: ("<f4", "float32"),
    12: ("<f8", "float64"),
    13: (None, "bfloat16"),
    14: ("<c8", "complex64"),
    15: ("<c16", "complex128"),
    16: (None, "complex32"),
    17: (None, "float8_e4m3fn"),
    18: (None, "float8_e5m2"),
    19: (None, "float8_e4m3fnuz"),
    20: (None, "float8_e5m2fnuz"),
    21: (None, "float8_e8m0fnu"),
}
_UNITS = ("Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as", "")
_BY_NUMPY = {text: number for number, (text, _) in _ELEMENTS.items() if text}
_BY_TORCH = {name: number for number, (_, name) in _ELEMENTS.items()}


class NotShareable(ShareError, TypeError):
    """A value in the batch has no form in shared memory."""


class _Array:
    """An array to write: where its bytes are, and how they are described."""

    __slots__ = ("keep", "address", "bytes", "offset", "after")

    def __init__(self, keep, address, size, after=UNKNOWN):
        self.keep, self.address, self.bytes, self.offset = keep, address, size, 0
        # The stream that makes it, if it is on a GPU.
        self.after = after


class Encoded:
    """A batch, ready to be written.

    exact: what a consumer would get as another type is refused.
    device: number of the GPU that arrays go to; -1 for none.
    """

    def __init__(self, batch, exact=False, device=-1):
        self._exact, self._device = exact, device
        self._parts = [MAGIC]
        self._arrays, self.gpu_arrays = [], []
        self._samples = None
        self._end = self.gpu_data = 0
        self._node(batch, "batch", 0)
        self.description = b"".join(self._parts)
        self.data = self._end
        self.samples = self._samples or 0

    @property
    def bytes(self):
        return self.data + len(self.description)

    def write(self, address):
        """Copies data and description to an address."""
        for array in self._arrays:
            if array.bytes:
                ctypes.memmove(address + array.offset, array.address, array.bytes)
        ctypes.memmove(address + self.data, self.description, len(self.description))

    def _node(self, value, path, depth):
        if depth >= _MAX_DEPTH:
            raise NotShareable(f"{path}: nested more than {_MAX_DEPTH} levels deep")
        put = self._parts.append
        kind = type(value)
        if value is None:
            put(b"\0")
        elif kind is bool:
            put(b"\2" if value else b"\1")
        elif kind is int:
            if -(2**63) <= value < 2**63:
                put(struct.pack("<Bq", 3, value))
            else:
                data = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
                put(struct.pack("<BI", 4, len(data)) + data)
        elif kind is float:
            put(struct.pack("<Bd", 5, value))
        elif kind is complex:
            put(struct.pack("<Bdd", 6, value.real, value.imag))
        elif kind is str:
            try:
                data = value.encode()
            except UnicodeEncodeError:
                raise NotShareable(f"{path}: a text with half a surrogate pair") from None
            put(struct.pack("<BI", 7, len(data)) + data)
        elif kind is bytes or (kind is bytearray and not self._exact):
            put(struct.pack("<BI", 8, len(value)) + bytes(value))
        elif kind in (list, tuple):
            put(struct.pack("<BI", 9 if kind is list else 10, len(value)))
            for number, item in enumerate(value):
                self._node(item, f"{path}[{number}]", depth + 1)
        elif kind is dict:
            put(b"\x0b")
            self._pairs(value, path, depth)
        elif isinstance(value, tuple) and hasattr(value, "_fields"):
            self._record(0, kind.__name__, value._fields, value, path, depth)
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            names = [field.name for field in dataclasses.fields(value)]
            self._record(1, kind.__name__, names, [getattr(value, name) for name in names], path, depth)
        elif not self._array(value, path):
            self._other(value, path, depth)

    def _pairs(self, value, path, depth):
        self._parts.append(struct.pack("<I", len(value)))
        for key, item in value.items():
            if not _is_key(key):
                raise NotShareable(f"{path}: a key of type {type(key).__name__}")
            self._node(key, f"{path}: key {key!r}", depth + 1)
            self._node(item, f"{path}[{key!r}]", depth + 1)

    def _other(self, value, path, depth):
        """A dictionary of a class of its own, such as OrderedDict or BatchEncoding. Everything else is refused."""
        kind = type(value)
        if hasattr(value, "items") and hasattr(value, "keys"):
            if self._exact and kind is not collections.OrderedDict:
                raise NotShareable(f"{path}: {_name_of(value)} would become another type")
            name = kind.__name__.encode()
            self._parts.append(struct.pack("<BH", 14, len(name)) + name)
            return self._pairs(value, path, depth)
        for base in (str, bytes, int, float, list):
            if isinstance(value, base):
                raise NotShareable(
                    f"{path}: {_name_of(value)} would become a plain {base.__name__}; let the loader give one instead"
                )
        raise NotShareable(f"{path}: {_name_of(value)} has no form in shared memory; let the loader give tensors instead")

    def _record(self, kind, name, names, values, path, depth):
        if self._exact:
            raise NotShareable(f"{path}: {name} would become another type")
        head = [struct.pack("<BB", 12, kind)]
        for text in (name, None, *names):
            if text is None:
                head.append(struct.pack("<H", len(names)))
            else:
                data = text.encode()
                head.append(struct.pack("<H", len(data)) + data)
        self._parts.append(b"".join(head))
        for field, value in zip(names, values):
            self._node(value, f"{path}.{field}", depth + 1)

    def _array(self, value, path):
        torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
        if self._exact:
            # A tensor's gradients and its own class are not in the description.
            kinds = [torch.Tensor] if torch is not None else []
            kinds += [numpy.ndarray] if numpy is not None else []
            if type(value) not in kinds or getattr(value, "requires_grad", False):
                return False
        if torch is not None and isinstance(value, torch.Tensor):
            if type(value) is not torch.Tensor:
                raise NotShareable(
                    f"{path}: {_name_of(value)} would become a plain tensor; let the loader give "
                    "value.detach().as_subclass(torch.Tensor) instead"
                )
            self._torch(torch, value, path, _TORCH)
        elif numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic)):
            if isinstance(value, numpy.ma.MaskedArray):
                raise NotShareable(f"{path}: a masked array would lose its mask; let the loader give its data and its mask instead")
            if isinstance(value, numpy.ndarray) and type(value) not in (numpy.ndarray, numpy.memmap):
                raise NotShareable(
                    f"{path}: {_name_of(value)} would become a plain array; let the loader give numpy.asarray(value) instead"
                )
            self._numpy(numpy, numpy.asarray(value), path, _NUMPY)
        elif hasattr(value, "__dlpack__"):
            # PyTorch knows more element types, and GPUs.
            if torch is not None:
                self._torch(torch, torch.from_dlpack(value), path, _DLPACK)
            else:
                import numpy

                self._numpy(numpy, numpy.from_dlpack(value), path, _DLPACK)
        else:
            return False
        return True

    def _torch(self, torch, tensor, path, framework):
        if tensor.layout is not torch.strided or tensor.is_quantized:
            raise NotShareable(f"{path}: a tensor that is not dense")
        element = _BY_TORCH.get(str(tensor.dtype).removeprefix("torch."))
        if element is None:
            raise NotShareable(f"{path}: elements of type {tensor.dtype}")
        tensor = tensor.detach()
        if tensor.device.type != "cpu" and (tensor.device.type, tensor.device.index) != ("cuda", self._device):
            tensor = tensor.cpu()
        tensor = tensor.resolve_conj().resolve_neg()
        if not _is_dense(tensor.shape, tensor.stride()):
            tensor = tensor.contiguous()
        size = tensor.numel() * tensor.element_size()
        on_gpu = tensor.device.type == "cuda"
        after = torch.cuda.current_stream(tensor.device).cuda_stream if on_gpu else UNKNOWN
        array = _Array(tensor, tensor.data_ptr(), size, after)
        self._add(array, framework, element, tensor.element_size(), tuple(tensor.shape), tensor.stride(), path)

    def _numpy(self, numpy, array, path, framework):
        dtype = array.dtype
        text = dtype.newbyteorder("<").str
        element = _BY_NUMPY.get(text)
        if element is None and dtype.kind in "SU" and dtype.itemsize:
            element = 32 if dtype.kind == "S" else 33
        elif element is None and dtype.kind in "mM":
            unit, count = numpy.datetime_data(dtype)
            unit = "" if unit == "generic" else unit
            if count == 1 and unit in _UNITS:
                element = (34 if dtype.kind == "M" else 48) + _UNITS.index(unit)
        if element is None:
            raise NotShareable(f"{path}: elements of type {dtype}")
        # Not ascontiguousarray, which gives a scalar a dimension.
        array = array.astype(dtype.newbyteorder("<"), order="C", copy=False)
        if not array.flags.c_contiguous:
            array = array.copy(order="C")
        strides = [0] * array.ndim
        step = 1
        for dimension in reversed(range(array.ndim)):
            strides[dimension], step = step, step * max(array.shape[dimension], 1)
        address = array.__array_interface__["data"][0]
        written = _Array(array, address, array.nbytes)
        self._add(written, framework, element, dtype.itemsize, array.shape, strides, path)

    def _add(self, array, framework, element, size, shape, strides, path):
        if len(shape) > _MAX_DIMENSIONS:
            raise NotShareable(f"{path}: more than {_MAX_DIMENSIONS} dimensions")
        if self._device >= 0 and element <= _MAX_ON_GPU:
            framework += _ON_GPU
            array.offset = -(-self.gpu_data // _GPU_ALIGNMENT) * _GPU_ALIGNMENT
            self.gpu_data = array.offset + array.bytes
            if array.bytes:
                self.gpu_arrays.append(array)
        else:
            array.offset = -(-self._end // ALIGNMENT) * ALIGNMENT
            self._end = array.offset + array.bytes
            self._arrays.append(array)
        count = len(shape)
        packed = struct.pack(
            f"<BBBIBQ{2 * count}Q", 13, framework, element, size, count, array.offset, *shape, *strides
        )
        self._parts.append(packed)
        if count and self._samples is None:
            self._samples = shape[0]


def _name_of(value):
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _is_key(key):
    scalar = key is None or type(key) in (bool, int, float, complex, str, bytes)
    return scalar or (type(key) is tuple and all(map(_is_key, key)))


def _is_dense(shape, strides):
    """Whether the elements lie without gaps, in any order of the dimensions, as in channels_last."""
    step = 1
    for stride, length in sorted((stride, length) for stride, length in zip(strides, shape) if length != 1):
        if stride != step:
            return False
        step *= length
    return True


class Decoder:
    """Makes batches of descriptions. Types of records that it makes must be named; others get classes of their own."""

    def __init__(self, types=(), framework=None):
        self._types = {}
        for kind in types:
            self._types[kind.__name__] = kind
        self._framework = framework
        self._made = {}
        self._plans = {}
        # Whether no plan so far reads a batch's memory: then a batch can be made before its data have come.
        self.is_lazy = True

    def plan(self, description):
        """A function that makes the batch of a description whose data lie in `memory`, an object with the buffer interface.
        Every array in it keeps `memory` alive."""
        plan = self._plans.get(description)
        if plan is None:
            plan, _ = self._plan(description, len(MAGIC))
            if len(self._plans) >= 32:
                self._plans.clear()
            self._plans[description] = plan
        return plan

    def _plan(self, of, at):
        """A function from memory to the value of the node at a place, and where the next one is."""
        tag = of[at]
        at += 1
        if tag <= 2:
            value = (None, False, True)[tag]
        elif tag == 3:
            (value,), at = struct.unpack_from("<q", of, at), at + 8
        elif tag == 5:
            (value,), at = struct.unpack_from("<d", of, at), at + 8
        elif tag == 6:
            value, at = complex(*struct.unpack_from("<dd", of, at)), at + 16
        elif tag in (4, 7, 8):
            (length,) = struct.unpack_from("<I", of, at)
            value, at = of[at + 4 : at + 4 + length], at + 4 + length
            if tag == 4:
                value = int.from_bytes(value, "little", signed=True)
            elif tag == 7:
                value = value.decode()
        elif tag in (9, 10):
            items, at = self._plans_of(of, at)
            kind = list if tag == 9 else tuple
            return (lambda memory: kind([item(memory) for item in items])), at
        elif tag in (11, 14):
            kind = dict
            if tag == 14:
                name, at = _name(of, at)
                kind = self._mapping(name)
            (count,), at = struct.unpack_from("<I", of, at), at + 4
            pairs = []
            for _ in range(count):
                key, at = self._plan(of, at)
                item, at = self._plan(of, at)
                pairs.append((key(None), item))
            if kind is dict:
                return (lambda memory: {key: item(memory) for key, item in pairs}), at
            return (lambda memory: kind({key: item(memory) for key, item in pairs})), at
        elif tag == 12:
            return self._record(of, at)
        else:
            return self._array(of, at)
        return (lambda memory: value), at

    def _plans_of(self, of, at):
        (count,), at = struct.unpack_from("<I", of, at), at + 4
        items = []
        for _ in range(count):
            item, at = self._plan(of, at)
            items.append(item)
        return items, at

    def _record(self, of, at):
        kind, at = of[at], at + 1
        name, at = _name(of, at)
        (count,), at = struct.unpack_from("<H", of, at), at + 2
        names = []
        for _ in range(count):
            field, at = _name(of, at)
            names.append(field)
        items = []
        for _ in range(count):
            item, at = self._plan(of, at)
            items.append(item)
        make = self._maker(kind, name, tuple(names))
        return (lambda memory: make([item(memory) for item in items])), at

    def _mapping(self, name):
        """The class of a dictionary: one that the program named, OrderedDict, or a dict of this name."""
        own = self._types.get(name)
        if own is None and name == "OrderedDict":
            own = collections.OrderedDict
        if own is None:
            own = self._made.get(name) or type(name, (dict,), {})
            self._made[name] = own
        return own

    def _maker(self, kind, name, names):
        """A function from values of fields to a record. Neither __init__ nor __post_init__ of a data class runs: the record
        is what the producer's was."""
        own = self._types.get(name)
        if own is None:
            own = self._made.get((kind, name, names)) or _class(kind, name, names)
            self._made[kind, name, names] = own
        if kind == 0:
            if getattr(own, "_fields", None) != names:
                raise ShareError(f"{name} has the fields {', '.join(names)}, but not the class of this name here")
            return own._make
        fields = {field.name for field in dataclasses.fields(own)} if dataclasses.is_dataclass(own) else None
        if fields != set(names):
            raise ShareError(f"{name} has the fields {', '.join(names)}, but not the class of this name here")

        def make(values):
            record = object.__new__(own)
            for field, value in zip(names, values):
                object.__setattr__(record, field, value)
            return record

        return make

    def _array(self, of, at):
        framework, element, size, count, offset = struct.unpack_from("<BBIBQ", of, at)
        at += struct.calcsize("<BBIBQ")
        numbers = struct.unpack_from(f"<{2 * count}Q", of, at)
        at += 16 * count
        shape, strides = numbers[:count], numbers[count:]
        elements = 1
        for length in shape:
            elements *= length
        span = 1 + sum((length - 1) * stride for length, stride in zip(shape, strides)) if elements else 0
        text, name = _ELEMENTS.get(element, (None, None))
        if framework >= _ON_GPU:
            wanted = self._framework or ("torch" if framework == _TORCH + _ON_GPU else None)
            if wanted == "numpy":
                raise ShareError("numpy does not read arrays on a GPU: leave framework out, or name another one")
            self.is_lazy = False
            return _gpu.plan(name, element, size, shape, strides, offset, wanted), at
        wanted = self._framework or {_NUMPY: "numpy", _TORCH: "torch", _DLPACK: "numpy"}[framework]
        if name is None or wanted == "cupy":
            wanted = "numpy"
        elif text is None and wanted == "numpy":
            wanted = "torch"
        if wanted == "torch":
            return _torch_plan(name, shape, strides, span, offset), at
        if element in (32, 33):
            text = f"|S{size}" if element == 32 else f"<U{size // 4}"
        elif element >= 34:
            unit = _UNITS[(element - 34) % len(_UNITS)]
            text = ("<M8" if element < 48 else "<m8") + (f"[{unit}]" if unit else "")
        # JAX copies what it cannot share.
        self.is_lazy = self.is_lazy and wanted != "jax"
        return _numpy_plan(text, size, shape, strides, offset, wanted), at


def _name(of, at):
    (length,) = struct.unpack_from("<H", of, at)
    return of[at + 2 : at + 2 + length].decode(), at + 2 + length


def _class(kind, name, names):
    if any(keyword.iskeyword(text) for text in (name, *names)) or len(set(names)) != len(names):
        raise ShareError(f"a record {name} with fields that no class can have")
    if kind == 0:
        return collections.namedtuple(name, names, rename=True) if names else collections.namedtuple(name, ())
    return dataclasses.make_dataclass(name, names)


def _torch_plan(name, shape, strides, span, offset):
    import torch

    dtype = getattr(torch, name)
    if span == 0:
        return lambda memory: torch.empty(shape, dtype=dtype)

    def plan(memory):
        return torch.frombuffer(memory, dtype=dtype, count=span, offset=offset).as_strided(shape, strides)

    return plan


def _numpy_plan(text, size, shape, strides, offset, wanted):
    import numpy

    dtype = numpy.dtype(text)
    steps = tuple(stride * size for stride in strides)

    def plan(memory):
        array = numpy.ndarray(shape, dtype, memory, offset, steps)
        if memory.read_only:
            array.flags.writeable = False
        return array

    if wanted == "jax":
        import jax

        # JAX takes neither a read-only array nor one of another alignment without a copy.
        return lambda memory: jax.dlpack.from_dlpack(plan(memory)) if not memory.read_only else jax.numpy.asarray(plan(memory))
    return plan
