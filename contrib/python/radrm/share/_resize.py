"""Batches of other sizes: parts of batches, and parts joined to one.

What has one entry for each sample is cut: tensors and arrays whose first dimension is the number of samples, and lists of
so many texts or numbers. Everything else belongs to the whole batch.
"""

import dataclasses
import sys

from ._core import ShareError
from ._gpu import GpuArray

_SCALARS = (str, bytes, bool, int, float, complex, type(None))


class NotResizable(ShareError):
    """A batch cannot be divided into batches of another size, or parts of batches cannot be joined."""


def _is_array(value):
    return hasattr(value, "shape") and hasattr(value, "dtype")


def _is_mapping(value):
    return hasattr(value, "keys") and hasattr(value, "values")


def _has_samples(value, samples):
    """Whether a value has one entry for each sample."""
    if _is_array(value):
        return len(value.shape) > 0 and value.shape[0] == samples
    kind = type(value)
    return kind in (list, tuple) and len(value) == samples and all(isinstance(item, _SCALARS) for item in value)


def _rebuilt(value, items):
    """A container like `value` with other items."""
    if _is_mapping(value):
        return type(value)(dict(zip(value, items)))
    if dataclasses.is_dataclass(value):
        made = object.__new__(type(value))
        for field, item in zip(dataclasses.fields(value), items):
            object.__setattr__(made, field.name, item)
        return made
    if hasattr(value, "_fields"):
        return type(value)._make(items)
    return type(value)(items)


def _items(value):
    """The items of a container; None if the value is none."""
    if _is_mapping(value):
        return list(value.values())
    if dataclasses.is_dataclass(value):
        return [getattr(value, field.name) for field in dataclasses.fields(value)]
    return list(value) if isinstance(value, (list, tuple)) else None


def cut(value, start, stop, samples):
    """The samples from `start` to `stop` of a batch, without a copy."""
    if _has_samples(value, samples):
        return value[start:stop]
    if _is_array(value) and len(value.shape) > 0:
        raise NotResizable(f"an array of shape {tuple(value.shape)} in a batch of {samples} samples")
    items = _items(value)
    return value if items is None else _rebuilt(value, [cut(item, start, stop, samples) for item in items])


def join(parts, sizes):
    """One batch of several parts, whose samples are so many. Copies."""
    first = parts[0]
    if all(_has_samples(part, size) for part, size in zip(parts, sizes)):
        if not _is_array(first):
            return type(first)(item for part in parts for item in part)
        shapes = {(tuple(part.shape[1:]), part.dtype) for part in parts}
        if len(shapes) > 1:
            raise NotResizable(f"arrays of different shapes cannot be joined: {sorted(map(str, shapes))}")
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(first, torch.Tensor):
            return torch.cat(parts)
        if isinstance(first, GpuArray):
            raise NotResizable("arrays on a GPU are joined by a framework: name one with framework=")
        for name in ("jax", "cupy"):
            module = sys.modules.get(name)
            module = module.numpy if name == "jax" and module is not None else module
            if module is not None and isinstance(first, module.ndarray):
                return module.concatenate(parts)
        import numpy

        return numpy.concatenate(parts)
    items = [_items(part) for part in parts]
    if items[0] is None or any(of is None or len(of) != len(items[0]) for of in items):
        if _is_array(first) or any(type(part) is not type(first) or part != first for part in parts):
            if not (_is_array(first) and all(_same(first, part) for part in parts)):
                raise NotResizable("a value of the whole batch differs between batches that are to be joined")
        return first
    if _is_mapping(first) and any(list(part) != list(first) for part in parts):
        raise NotResizable("dictionaries with different keys cannot be joined")
    return _rebuilt(first, [join(list(of), sizes) for of in zip(*items)])


def _same(one, other):
    return _is_array(other) and one.shape == other.shape and bool((one == other).all())
