"""What decides which batches a DataLoader gives, as a digest that equal loaders of different processes have in common.

The data set and the function that makes batches are compared by their state, and by the code of their classes and functions
with the global values that it names. What they reach in another way, as files and variables of the environment, is not.
"""

import functools
import hashlib
import marshal
import pickle
import sys
import types


class Unknown(Exception):
    """A value cannot be compared with that of another process."""


def name(identity, order):
    """The name of the producer of an epoch."""
    digest = hashlib.blake2b(identity, digest_size=16)
    digest.update(repr(order).encode())
    return digest.hexdigest()


def of_loader(loader):
    """The digest of everything but the order of samples."""
    parts = (loader.dataset, loader.collate_fn, loader.worker_init_fn)
    try:
        return _digest(parts)
    except Unknown:
        raise
    except Exception as error:  # noqa: BLE001
        # Whatever a class does when it is pickled: the program loads its data itself.
        raise Unknown(f"its data set cannot be compared: {error}") from None


class _Hasher:
    def __init__(self):
        self.hash = hashlib.blake2b(digest_size=32)

    def write(self, data):
        self.hash.update(data)
        return len(data)


def _digest(value):
    hasher = _Hasher()
    _Pickler(hasher, 5).dump(value)
    return hasher.hash.digest()


class _Pickler(pickle.Pickler):
    """Writes values for their digest only: nothing reads them."""

    def __init__(self, file, protocol):
        super().__init__(file, protocol)
        self._codes = set()

    def reducer_override(self, value):
        torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
        if torch is not None and isinstance(value, torch.Tensor):
            return self._tensor(torch, value)
        if numpy is not None and isinstance(value, numpy.ndarray) and value.dtype.kind != "O":
            data = hashlib.blake2b(numpy.ascontiguousarray(value).view("u1").data).hexdigest() if value.size else ""
            return _as_text("array", str(value.dtype), value.shape, data)
        if torch is not None and isinstance(value, torch.Generator):
            return _as_text("generator", hashlib.blake2b(value.get_state().numpy().tobytes()).hexdigest())
        if isinstance(value, (set, frozenset)):
            # Texts have another order in each process.
            return list, (sorted((_digest(item) for item in value)),)
        if isinstance(value, types.FunctionType):
            return tuple, (self._function(value),)
        if isinstance(value, type) and value.__module__ != "builtins":
            return tuple, (self._class(value),)
        if isinstance(value, types.ModuleType):
            return _as_text("module", value.__name__)
        if isinstance(value, functools.partial):
            return tuple, (["partial", value.func, value.args, value.keywords],)
        return NotImplemented

    def _tensor(self, torch, tensor):
        if tensor.device.type != "cpu":
            raise Unknown("its data set has tensors on a GPU")
        flat = tensor.detach().contiguous().reshape(-1)
        data = hashlib.blake2b(flat.view(torch.uint8).numpy().data).hexdigest() if flat.numel() else ""
        return _as_text("tensor", str(tensor.dtype), tuple(tensor.shape), data)

    def _class(self, kind):
        parts = ["class", kind.__module__, kind.__qualname__]
        if _is_of_program(kind.__module__) and kind not in self._codes:
            self._codes.add(kind)
            functions = (_function_of(value) for value in vars(kind).values())
            parts.append([function for function in functions if function is not None])
            parts.append(list(kind.__bases__))
        return parts

    def _function(self, function):
        parts = ["function", function.__module__, function.__qualname__]
        if _is_of_program(function.__module__) and function not in self._codes:
            self._codes.add(function)
            cells = [cell.cell_contents for cell in function.__closure__ or ()]
            parts += [marshal.dumps(function.__code__), function.__defaults__, function.__kwdefaults__, cells]
            parts.append(_globals(function.__code__, function.__globals__))
        return parts


def _as_text(*parts):
    return str, (repr(parts),)


def _is_of_program(module):
    """Whether code can differ between programs of one machine: packages that are installed cannot."""
    of = sys.modules.get(module)
    path = getattr(of, "__file__", None)
    return module == "__main__" or (path is not None and "site-packages" not in path and "/lib/python" not in path)


def _function_of(value):
    value = getattr(value, "__func__", getattr(value, "fget", value))
    return value if isinstance(value, types.FunctionType) else None


def _names(code):
    found = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found |= _names(constant)
    return found


def _globals(code, scope):
    """The global values that code names. Of a namespace, such as the options of a command line, only what it names, too."""
    names = sorted(_names(code))
    found = []
    for name in names:
        if name in scope:
            value = scope[name]
            if type(value).__name__ in ("Namespace", "SimpleNamespace"):
                value = {part: vars(value)[part] for part in names if part in vars(value)}
            found.append((name, value))
    return found
