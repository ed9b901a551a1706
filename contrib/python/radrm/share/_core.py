"""The functions of libradrm_share.so."""

import collections
import ctypes
import os
import struct
import sys
from pathlib import Path

UNKNOWN = 2**64 - 1
AGAIN, UNWANTED, EPOCH_END, END = 1, 2, 3, 4
SLOW = {None: 0, "wait": 1, "drop": 2, "spill": 3}
_VERSION = 3


class ShareError(Exception):
    """Sharing a loader failed."""


class ProducerDied(ShareError):
    """The producer ended without a word. Another call of next() goes on with a restarted one."""


class NoProducer(ShareError):
    """No producer of this name runs."""


class ProducerEnded(ShareError):
    """The producer has ended as it should: there are no more epochs."""


class Refused(ShareError):
    """The producer does not take this consumer."""


class BatchGone(Refused):
    """The batch to go on with is not there any more."""


class OrderChanged(Refused):
    """A restarted producer gives the samples in another order, so that some would come twice."""


class LoaderFailed(ShareError):
    """The producer's loader raised an exception."""


class NameTaken(ShareError):
    """A producer of this name runs already."""


class NoGpu(ShareError):
    """The GPU that batches lie on cannot be used: there is no driver, no such GPU, or this program does not see it."""


class ProtocolError(ShareError):
    """What the other side sent is malformed; nothing of it was used."""


_ERRORS = {
    -2: ProducerDied,
    -3: NoProducer,
    -4: Refused,
    -5: LoaderFailed,
    -6: NameTaken,
    -7: BatchGone,
    -8: OrderChanged,
    -9: ProtocolError,
    -10: NoGpu,
}


class ProducerConfig(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("folder", ctypes.c_char_p),
        ("spill", ctypes.c_char_p),
        ("slots", ctypes.c_uint64),
        ("spill_limit", ctypes.c_uint64),
        ("batches", ctypes.c_uint64),
        ("samples", ctypes.c_uint64),
        ("seed", ctypes.c_uint64),
        ("gpu", ctypes.c_int64),
        ("slow", ctypes.c_uint8),
        ("resume", ctypes.c_uint8),
    ]


class ConsumerConfig(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("folder", ctypes.c_char_p),
        ("epoch", ctypes.c_uint64),
        ("index", ctypes.c_uint64),
        ("order", ctypes.c_uint64),
        ("start", ctypes.c_uint8),
        ("slow", ctypes.c_uint8),
        ("window", ctypes.c_uint8),
        ("access", ctypes.c_uint8),
    ]


class NextBatch(ctypes.Structure):
    _fields_ = [
        ("lease", ctypes.c_uint64),
        ("address", ctypes.c_void_p),
        ("region", ctypes.c_uint64),
        ("bytes", ctypes.c_uint64),
        ("epoch", ctypes.c_uint64),
        ("index", ctypes.c_uint64),
        ("samples", ctypes.c_uint64),
        ("before", ctypes.c_uint64),
        ("after", ctypes.c_uint64),
        ("data", ctypes.c_uint64),
        ("description", ctypes.c_void_p),
        ("description_bytes", ctypes.c_uint64),
        ("gpu_data", ctypes.c_uint64),
        ("gpu", ctypes.c_uint64),
        ("gpu_device", ctypes.c_int64),
    ]


# The figures of a batch, as numbers of Python: all of them at once.
Found = collections.namedtuple("Found", [name for name, _ in NextBatch._fields_])
figures_of = struct.Struct("=14Qq").unpack


class Welcome(ctypes.Structure):
    _fields_ = [
        ("batches", ctypes.c_uint64),
        ("samples", ctypes.c_uint64),
        ("dropped", ctypes.c_uint64),
        ("leases", ctypes.c_uint64),
        ("session", ctypes.c_uint8 * 16),
        ("slow", ctypes.c_uint8),
        ("on_gpu", ctypes.c_uint8),
    ]


class Counts(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_uint64)
        for name in ("consumers", "slots", "bytes", "gpu_bytes", "published", "spilled", "spilled_bytes", "malformed")
    ]


class Interpreter(ctypes.Structure):
    """Functions of the interpreter that the library calls when a framework lets an array go."""

    _names = ("is_initialized", "ensure", "release", "hold", "let_go", "capsule_new", "capsule_is", "capsule_pointer")
    _fields_ = [(name, ctypes.c_void_p) for name in _names]


class Described(ctypes.Structure):
    """An array on a GPU."""

    _fields_ = [
        ("address", ctypes.c_uint64),
        ("device", ctypes.c_int32),
        ("dimensions", ctypes.c_int32),
        ("numbers", ctypes.POINTER(ctypes.c_int64)),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
    ]


_NAME = "libradrm_share.so"


def _places():
    """Where the library may be: named by a variable, as installed, beside an unpacked tree, in a source tree."""
    if "RADRM_LIB_DIR" in os.environ:
        yield Path(os.environ["RADRM_LIB_DIR"])
    here = Path(__file__).resolve()
    # A wheel: pip records where it has put each file.
    try:
        from importlib import metadata

        for file in metadata.files("radrm") or ():
            if file.name == _NAME:
                yield Path(file.locate()).resolve().parent
    except metadata.PackageNotFoundError:
        pass
    yield Path(sys.prefix) / "lib/radrm"
    # lib/radrm/python/radrm/share/_core.py of a tarball; a package of the system.
    yield here.parents[3]
    yield Path("/usr/lib/radrm")
    # contrib/python/radrm/share/_core.py of a source tree: what was built last.
    built = [path for path in (here.parents[4] / "target").glob(f"*/{_NAME}") if path.is_file()]
    if built:
        yield max(built, key=lambda path: path.stat().st_mtime).parent


def _load():
    tried = []
    for place in _places():
        path = place / _NAME
        if path.is_file():
            library = ctypes.CDLL(str(path))
            break
        tried.append(str(place))
    else:
        raise ImportError(f"{_NAME} is in none of {', '.join(tried)}; RADRM_LIB_DIR can name its folder")
    library.radrm_share_version.restype = ctypes.c_uint32
    if library.radrm_share_version() != _VERSION:
        raise ImportError(f"{path} is of another version of RADRM")
    handle, u64, i64 = ctypes.c_void_p, ctypes.c_uint64, ctypes.c_int64
    pointer = ctypes.POINTER
    functions = {
        "producer": [pointer(ProducerConfig), pointer(handle)],
        "seed": [handle, pointer(u64)],
        "wait": [handle, ctypes.c_int, u64, i64, pointer(u64)],
        "begin": [handle, pointer(u64), pointer(u64)],
        "reserve": [handle, u64, u64, i64, pointer(handle), pointer(u64)],
        "copy": [handle, u64, u64, u64, u64],
        "abandon": [handle],
        "publish": [handle, u64, u64, u64, u64, u64, u64],
        "end_epoch": [handle],
        "finish": [handle, i64],
        "fail": [handle, ctypes.c_char_p],
        "counts": [handle, pointer(Counts)],
        "consumer": [pointer(ConsumerConfig), i64, pointer(handle)],
        "close": [handle],
        "attach": [handle, i64],
        "welcome": [handle, pointer(Welcome)],
        "next": [handle, i64, pointer(NextBatch)],
        "release": [handle, u64],
        "skip": [handle, u64],
        "release_after": [handle, u64, pointer(ctypes.c_size_t), ctypes.c_size_t],
        "gpu_copy": [handle, u64, u64, pointer(u64), pointer(handle)],
    }
    for name, arguments in functions.items():
        function = getattr(library, "radrm_share_" + name)
        function.argtypes, function.restype = arguments, ctypes.c_int
    for name in ("producer_free", "consumer_free", "gpu_copy_free"):
        function = getattr(library, "radrm_share_" + name)
        function.argtypes, function.restype = [handle], None
    library.radrm_share_error.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    library.radrm_share_error.restype = ctypes.c_size_t
    library.radrm_share_forked.restype = None
    library.radrm_share_interpreter.argtypes = [pointer(Interpreter)]
    library.radrm_share_interpreter.restype = None
    # Called with the interpreter's lock, because it makes objects.
    locked = ctypes.PyDLL(str(path))
    locked.radrm_share_dlpack.argtypes = [pointer(Described), ctypes.py_object]
    locked.radrm_share_dlpack.restype = ctypes.py_object
    return library, locked


library, locked = _load()
os.register_at_fork(after_in_child=library.radrm_share_forked)


def checked(code):
    """The code of a call; an error as an exception."""
    if code >= 0:
        return code
    buffer = ctypes.create_string_buffer(2048)
    library.radrm_share_error(buffer, len(buffer))
    raise _ERRORS.get(code, ShareError)(buffer.value.decode("utf-8", "replace"))


def encoded(path):
    """A path or a text for the library; None stays None."""
    return None if path is None else os.fsencode(path)


def named(name):
    """A producer's name: the one that is given, else that of the job's loader."""
    return name if name is not None else os.environ.get("RADRM_LOADER") or "default"
