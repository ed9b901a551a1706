"""Phases of a program in the reports of RADRM, and what radrmd asks of a job.

    import radrm

    with radrm.phase("load"):
        ...

    @radrm.phase
    def step():
        ...

    radrm.mark("checkpoint written")
    radrm.log_metric("loss", loss, step)

    if radrm.should_checkpoint():
        save()
        sys.exit(radrm.REQUEUE)

Without ``radrm-run`` nothing of it does anything: a phase costs a function call, ``stats()`` and ``peak()`` return None,
``should_checkpoint()`` returns False. ``radrm.lightning`` and ``radrm.transformers`` have callbacks that do the latter.
In Jupyter, ``%load_ext radrm`` adds ``%%radrm NAME``, which makes a cell a phase.
"""

import ctypes
import functools
import inspect
import json
import math
import os
import time

from ._checkpoint import REQUEUE, should_checkpoint

__all__ = [
    "REQUEUE",
    "is_recording",
    "log_metric",
    "log_metrics",
    "mark",
    "peak",
    "phase",
    "range_end",
    "range_start",
    "should_checkpoint",
    "stats",
    "watch_torch",
]


class _Memory(ctypes.Structure):
    _fields_ = [
        ("gpu", ctypes.c_uint64),
        ("now", ctypes.c_uint64),
        ("peak", ctypes.c_uint64),
        ("total", ctypes.c_uint64),
        ("allocations", ctypes.c_uint64),
        ("releases", ctypes.c_uint64),
        ("refused", ctypes.c_uint64),
        ("uuid", ctypes.c_uint8 * 16),
        ("name", ctypes.c_char * 64),
    ]


def _functions():
    """The functions of the preloaded library; None where it is not preloaded, or does not record this process."""
    try:
        library = ctypes.CDLL(None)
        push, pop, mark = library.radrm_push, library.radrm_pop, library.radrm_mark
        start, end, memory = library.radrm_start, library.radrm_end, library.radrm_memory
        if not library.radrm_is_recording():
            return None
    except (AttributeError, OSError):
        return None
    for function in (push, mark, start):
        function.argtypes = [ctypes.c_char_p]
    for function in (push, pop, mark, end):
        function.restype = None
    pop.argtypes = []
    start.restype = ctypes.c_uint64
    end.argtypes = [ctypes.c_uint64]
    memory.argtypes = [ctypes.POINTER(_Memory), ctypes.c_size_t, ctypes.c_size_t]
    memory.restype = ctypes.c_int
    return library


_library = _functions()


def _encoded(name):
    # The library reads up to the first zero.
    return str(name).encode("utf-8", "replace").replace(b"\0", b" ")


def is_recording():
    """Whether radrm-run records this process."""
    return _library is not None


def mark(name):
    """Notes this moment."""
    if _library is not None:
        _library.radrm_mark(_encoded(name))


def log_metric(name, value, step=None):
    """Logs a figure of the program's own, such as its loss, for ``radrm sweep report`` and ``radrm explore``.

    ``value`` is a number, or a tensor or array with one element; ``step`` is a whole number. One line is appended to the
    file that ``RADRM_METRICS`` names; without the variable nothing is done. An error of the file is not raised.
    """
    log_metrics({name: value}, step)


def log_metrics(metrics, step=None):
    """Logs several figures of one step: a dictionary from names to values."""
    path = os.environ.get("RADRM_METRICS")
    if not path:
        return
    now = time.time_ns() // 1_000_000
    lines = []
    for name, value in metrics.items():
        value = float(value)
        # JSON has no other numbers: these are texts in it.
        line = {"name": str(name), "value": value if math.isfinite(value) else str(value), "time_ms": now}
        if step is not None:
            line["step"] = int(step)
        lines.append(json.dumps(line) + "\n")
    try:
        # One write each: processes that log at the same time do not mix their lines.
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(file, "".join(lines).encode())
        finally:
            os.close(file)
    except OSError:
        pass


def range_start(name):
    """Begins a range that any thread may end with range_end(); returns its number."""
    return _library.radrm_start(_encoded(name)) if _library is not None else 0


def range_end(number):
    """Ends a range that range_start() has begun."""
    if _library is not None:
        _library.radrm_end(number)


def phase(name="phase"):
    """A phase of the calling thread: a context manager, and a decorator with or without a name.

    A coroutine or a generator may be left in between, and others entered, so its phase is a range of its own and not part
    of the thread's nesting. Around an ``await`` use ``async with`` for the same reason. Asynchronous generators are left
    as they are.
    """
    return _wrapped(name.__qualname__, name) if callable(name) else _Phase(name)


class _Phase:
    def __init__(self, name):
        self._name = name
        self._numbers = []

    def __enter__(self):
        if _library is not None:
            _library.radrm_push(_encoded(self._name))
        return self

    def __exit__(self, *_):
        if _library is not None:
            _library.radrm_pop()
        return False

    async def __aenter__(self):
        self._numbers.append(range_start(self._name))
        return self

    async def __aexit__(self, *_):
        range_end(self._numbers.pop())
        return False

    def __call__(self, function):
        return _wrapped(self._name, function)


def _wrapped(name, function):
    if _library is None or inspect.isasyncgenfunction(function):
        return function
    if inspect.isgeneratorfunction(function):

        @functools.wraps(function)
        def within(*arguments, **named):
            number = range_start(name)
            try:
                return (yield from function(*arguments, **named))
            finally:
                range_end(number)

    elif inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def within(*arguments, **named):
            number = range_start(name)
            try:
                return await function(*arguments, **named)
            finally:
                range_end(number)

    else:

        @functools.wraps(function)
        def within(*arguments, **named):
            with _Phase(name):
                return function(*arguments, **named)

    return within


def stats():
    """What this process holds, a dictionary for each GPU that it has used; None if it is not recorded.

    Sizes are bytes of memory that the driver has granted: what a framework keeps in its cache is part of them.
    """
    if _library is None:
        return None
    places = (_Memory * 16)()
    count = _library.radrm_memory(places, len(places), ctypes.sizeof(_Memory))
    if count < 0:
        return None
    return [
        {
            "gpu": memory.gpu,
            "name": memory.name.decode("utf-8", "replace"),
            "uuid": _uuid(bytes(memory.uuid)),
            "held_bytes": memory.now,
            "peak_bytes": memory.peak,
            "gpu_bytes": memory.total,
            "allocations": memory.allocations,
            "releases": memory.releases,
            "refused": memory.refused,
        }
        for memory in places[: min(count, len(places))]
    ]


def _uuid(uuid):
    text = uuid.hex()
    return "GPU-" + "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def peak(gpu=None):
    """Most bytes that this process held at once on a GPU of the job, by its number; without one on the GPU of the
    largest peak. 0 before it has used a GPU, None if it is not recorded."""
    found = stats()
    if found is None:
        return None
    return max((of["peak_bytes"] for of in found if gpu is None or of["gpu"] == gpu), default=0)


def watch_torch(model=None, optimizers=True, depth=2):
    """Makes phases of PyTorch's own work, by its public hooks: the steps of all optimizers, and the forward passes of
    the model's modules down to a depth. Returns a function that removes the hooks."""
    if _library is None:
        return lambda: None
    handles = []
    if optimizers:
        from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

        # A step that raises has no hook behind it: its range is ended by the optimizer's next one. A range of its own, so
        # that no other is ended in its place.
        begun = {}

        def end(optimizer, *_):
            range_end(begun.pop(id(optimizer), 0))

        def begin(optimizer, *_):
            end(optimizer)
            begun[id(optimizer)] = range_start(f"optimizer step [{type(optimizer).__name__}]")

        handles.append(register_optimizer_step_pre_hook(begin))
        handles.append(register_optimizer_step_post_hook(end))
    if model is not None:
        for path, module in model.named_modules():
            if path.count(".") + bool(path) <= depth:
                name = path or type(module).__name__
                handles.append(module.register_forward_pre_hook(lambda *_, name=name: _push(name), prepend=True))
                handles.append(module.register_forward_hook(lambda *_: _library.radrm_pop(), always_call=True))

    def remove():
        for handle in handles:
            handle.remove()

    return remove


def _push(name):
    _library.radrm_push(_encoded(name))


def load_ipython_extension(shell):
    """For %load_ext radrm: adds the cell magic %%radrm."""

    def radrm(line, cell):
        with phase(line.strip() or "cell"):
            shell.run_cell(cell)

    shell.register_magic_function(radrm, magic_kind="cell", magic_name="radrm")
