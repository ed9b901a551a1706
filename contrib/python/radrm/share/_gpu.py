"""Batches on a GPU: as DLPack objects, which PyTorch, JAX and CuPy read without a copy."""

import ctypes

from ._core import Described, Interpreter, checked, library, locked

# DLPack's type codes and bits by element type of a description. PyTorch reads what has none as bytes.
_SIGNED, _UNSIGNED, _FLOAT, _BFLOAT, _COMPLEX = 0, 1, 2, 4, 5
_CODES = {
    2: (_SIGNED, 8),
    3: (_SIGNED, 16),
    4: (_SIGNED, 32),
    5: (_SIGNED, 64),
    6: (_UNSIGNED, 8),
    7: (_UNSIGNED, 16),
    8: (_UNSIGNED, 32),
    9: (_UNSIGNED, 64),
    10: (_FLOAT, 16),
    11: (_FLOAT, 32),
    12: (_FLOAT, 64),
    13: (_BFLOAT, 16),
    14: (_COMPLEX, 64),
    15: (_COMPLEX, 128),
    16: (_COMPLEX, 32),
}
_BYTES = (_UNSIGNED, 8)
_BOOL = (6, 8)
# kDLCUDA
_CUDA = 2
_LEGACY_STREAM = 1

_interpreter = Interpreter(
    *(
        ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value
        for name in (
            "Py_IsInitialized",
            "PyGILState_Ensure",
            "PyGILState_Release",
            "Py_IncRef",
            "Py_DecRef",
            "PyCapsule_New",
            "PyCapsule_IsValid",
            "PyCapsule_GetPointer",
        )
    )
)
library.radrm_share_interpreter(ctypes.byref(_interpreter))


class GpuArray:
    """An array on a GPU, for any framework with ``from_dlpack``. A framework reads it in place: do not write into it, the
    other consumers have the same memory."""

    __slots__ = ("shape", "strides", "dtype", "size", "_code", "_memory", "_offset")

    def __init__(self, memory, offset, shape, strides, dtype, size, code):
        self.shape, self.strides, self.dtype, self.size = shape, strides, dtype, size
        self._memory, self._offset, self._code = memory, offset, code

    @property
    def device(self):
        """Number of the GPU, as this program counts them."""
        return self._memory.gpu_device

    @property
    def address(self):
        """Where it begins on the GPU."""
        return self._memory.gpu + self._offset

    def __len__(self):
        if not self.shape:
            raise TypeError("an array without dimensions has no length")
        return self.shape[0]

    def __getitem__(self, part):
        """Some of its first dimension."""
        if not isinstance(part, slice) or not self.shape:
            raise TypeError("an array on a GPU can only be cut along its first dimension; give it to a framework first")
        start, stop, step = part.indices(self.shape[0])
        if step != 1:
            raise TypeError("an array on a GPU can only be cut without steps; give it to a framework first")
        offset = self._offset + start * (self.strides[0] * self.size)
        shape = (max(0, stop - start), *self.shape[1:])
        return GpuArray(self._memory, offset, shape, self.strides, self.dtype, self.size, self._code)

    def __repr__(self):
        return f"GpuArray(shape={tuple(self.shape)}, dtype={self.dtype}, device=cuda:{self.device})"

    def __dlpack_device__(self):
        return _CUDA, self.device

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        if copy:
            raise BufferError("an array on a GPU is given without a copy")
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError("an array on a GPU is given on its own GPU")
        # Its copy was complete before the batch was offered, so no stream waits. The batch is released when this one is done.
        if stream != -1:
            self._memory.streams.add(_LEGACY_STREAM if stream is None else stream)
        count = len(self.shape)
        numbers = (ctypes.c_int64 * (2 * count or 1))(*self.shape, *self.strides)
        code, bits = self._code
        described = Described(self.address, self.device, count, numbers, code, bits)
        try:
            return locked.radrm_share_dlpack(ctypes.byref(described), self._memory)
        except ValueError as error:
            # A null pointer.
            raise BufferError("an array on a GPU could not be exported") from error


class KeptCopy:
    """A batch's data on the GPU in memory of the consumer's own."""

    def __init__(self, handle, found):
        self._handle, address = ctypes.c_void_p(), ctypes.c_uint64()
        code = library.radrm_share_gpu_copy(handle, found.lease, found.gpu_data, address, self._handle)
        checked(code)
        self.address = address.value

    def __del__(self):
        if self._handle:
            library.radrm_share_gpu_copy_free(self._handle)


def handle_of(stream):
    """A stream's handle: of PyTorch, CuPy, or a number."""
    for name in ("cuda_stream", "ptr"):
        if hasattr(stream, name):
            return getattr(stream, name)
    return int(stream)


def ordinal_of(device):
    """The number of a GPU that a program names: 0, "cuda", "cuda:1", or PyTorch's device."""
    if device is None:
        return -1
    kind, _, number = str(device).rpartition(":") if ":" in str(device) else (str(device), "", "0")
    if kind.isdecimal():
        kind, number = "cuda", kind
    if kind != "cuda" or not number.isdecimal():
        raise ValueError(f"device is {device!r}, and not the number or name of a GPU, such as cuda:0")
    return int(number)


def plan(name, element, size, shape, strides, offset, wanted):
    """A function that makes an array on a GPU of a batch's memory."""
    code = _CODES.get(element)
    if wanted == "torch":
        import torch

        dtype = getattr(torch, name)

        def tensor(memory):
            array = GpuArray(memory, offset, shape, strides, name, size, code or _BYTES)
            made = torch.from_dlpack(array)
            return made if code else made.view(dtype)

        return tensor
    code = code or (_BOOL if element == 1 else _BYTES)

    def array(memory):
        return GpuArray(memory, offset, shape, strides, name, size, code)

    if wanted == "jax":
        import jax

        return lambda memory: jax.dlpack.from_dlpack(array(memory))
    if wanted == "cupy":
        import cupy

        return lambda memory: cupy.from_dlpack(array(memory))
    return array
