"""The processes that train."""

import collections
import ctypes

from . import _resize
from ._core import (
    END,
    EPOCH_END,
    SLOW,
    UNKNOWN,
    ConsumerConfig,
    Found,
    NextBatch,
    ProducerDied,
    ProducerEnded,
    ShareError,
    encoded,
    figures_of,
    named,
)
from ._gpu import handle_of
from ._leases import Core
from ._tree import Decoder

# Where a batch's figures are, among those that the library gives.
_LEASE, _REGION, _EPOCH, _INDEX, _SAMPLES, _BEFORE, _AFTER, _DESCRIBED = 0, 2, 4, 5, 6, 7, 8, slice(10, 12)


class Consumer:
    """Batches of the producer of a name. Iterating gives one epoch, as with a ``DataLoader``.

    name: the producer's; without one that of the job's loader (``RADRM_LOADER``), or "default".
    batch_size: samples of a batch here; None takes the batches as they are. A batch inside of one of the producer's is read
        in place, one across several is joined by a copy.
    drop_last: leaves out the last batch of an epoch if it is smaller. Only with ``batch_size``.
    start: "epoch" begins with a whole epoch, the running one if its first batch is still there; "now" with the oldest batch
        that is there; or what ``state_dict()`` gave, to go on from there.
    slow: "wait", "drop" or "spill": see ``Producer``, whose choice is the default.
    writable: what is written into a batch stays this consumer's own, the default. False maps batches read-only: a write then
        ends the program.
    pin: batches are locked in memory (page-locked) once the program uses CUDA, so that copies with ``non_blocking=True`` do
        not block. Only for read-only batches, so ``writable`` is False then.
    types: classes of named tuples and data classes that batches contain. Without them they get a class of their own, with
        the same name and fields.
    framework: "torch", "numpy" or "jax" makes all arrays those; None makes them what they were (DLPack objects: numpy). Of
        arrays on a GPU, "torch", "jax" or "cupy" makes those; None makes tensors what they were, and of others objects for
        ``from_dlpack``.
    keep: batches that the program may keep before it gets further ones as copies, at least 2: in a loop the old batch is
        released only after the new one has come.
    timeout: seconds to wait for a producer.
    reconnect: seconds to wait for a restarted producer instead of raising ``ProducerDied``.
    directory: folder of the socket, as the producer's.
    """

    def __init__(
        self,
        name=None,
        *,
        batch_size=None,
        drop_last=False,
        start="epoch",
        slow=None,
        writable=None,
        pin=False,
        types=(),
        framework=None,
        keep=None,
        timeout=60.0,
        reconnect=0.0,
        directory=None,
    ):
        if batch_size is not None and batch_size < 1:
            raise ValueError("batch_size is less than 1")
        if slow not in SLOW:
            raise ValueError(f"slow is {slow!r}, and not wait, drop or spill")
        if framework not in (None, "torch", "numpy", "jax", "cupy"):
            raise ValueError(f"framework is {framework!r}, and not torch, numpy, jax or cupy")
        keep = keep if keep is not None else 2 if batch_size is None else 4
        if not 2 <= keep <= 63:
            raise ValueError("keep is not between 2 and 63")
        if pin and writable:
            raise ValueError("batches that are pinned are read-only")
        asked, writable = writable, not pin if writable is None else bool(writable)
        state = start if isinstance(start, dict) else {}
        if not state and start not in ("epoch", "now"):
            raise ValueError(f"start is {start!r}, and neither epoch nor now nor a state")
        self._size, self._drop_last, self._keep = batch_size, drop_last, keep
        self._timeout, self._reconnect = timeout, reconnect
        self._config = ConsumerConfig(
            name=encoded(named(name)),
            folder=encoded(directory),
            epoch=state.get("epoch", 0),
            index=state.get("index", 0),
            order=state.get("order", 0),
            start=2 if state else {"epoch": 0, "now": 1}[start],
            slow=SLOW[slow],
            window=keep + 1,
            access=2 if pin else int(writable),
        )
        self._core = Core(self._config, timeout)
        if self._core.welcome().on_gpu and (asked or framework == "numpy"):
            self._core.close()
            why = "are read-only: copy what you write into" if asked else "are not for numpy: name another framework"
            raise ShareError(f"the producer's batches lie on a GPU, and {why}")
        self._decoder = Decoder(types, framework)
        self._next = NextBatch()
        # Where the last description was, and how batches with it are built. The library keeps a description until the next
        # one has come, so that the same place means the same description.
        self._described, self._plan = None, None
        # Figures of the last batch, which memory came after which, and what is made for the batch that comes next.
        self._last, self._follows, self._ready = (0,) * len(Found._fields), {}, None
        self._lost = False
        self._pushed = collections.deque()
        # Parts of batches that are not handed out yet, for other sizes.
        self._parts = collections.deque()
        self._offset = state.get("offset", 0)
        # Epoch, index, order and offset of the first sample that is not handed out.
        self._place = (state["epoch"], state["index"], state["order"], self._offset) if state else (0, 0, 0, 0)
        self._iteration = None

    def __len__(self):
        """Batches of an epoch. TypeError if the producer does not know it."""
        welcome = self._core.welcome()
        if self._size is None:
            count = welcome.batches
        elif welcome.samples == UNKNOWN:
            count = UNKNOWN
        else:
            count = welcome.samples // self._size if self._drop_last else -(-welcome.samples // self._size)
        if count == UNKNOWN:
            raise TypeError("the producer's loader has no length")
        return count

    def __iter__(self):
        """The rest of this epoch if none of it was handed out yet, else the next one: as with a ``DataLoader``, what is
        left of an epoch that was broken off does not come again."""
        running = self._iteration
        if running is not None and not running.done and running.epoch is not None:
            self._skip(running.epoch)
        self._iteration = _Epoch(self)
        return self._iteration

    def epochs(self):
        """The numbers of all epochs, until the producer ends: ``for epoch in loader.epochs(): for batch in loader: ...``"""
        while True:
            event = self._event()
            if event is None:
                return
            self._pushed.appendleft(event)
            # Not kept here: the epoch's first batch would be in use, and further ones copied, until its end.
            epoch, event = event.epoch, None
            before = self._iteration
            yield epoch
            if self._iteration is before or not self._iteration.done:
                self._skip(epoch)

    @property
    def epoch(self):
        """The epoch that is iterated, from 0; None before its first batch has come."""
        return None if self._iteration is None else self._iteration.epoch

    @property
    def dropped(self):
        """Batches that this consumer missed because it was slow."""
        return self._core.welcome().dropped

    def state_dict(self):
        """Where this consumer is: the first sample that was not handed out. For ``start=`` of another one, as long as the
        producer has that batch or has not begun."""
        if self._parts:
            part = self._parts[0]
            place = (part.epoch, part.index, part.before, part.start)
        else:
            place = self._place
        return dict(zip(("epoch", "index", "order", "offset"), place))

    def record_stream(self, stream):
        """Batches are copied or read on this CUDA stream, too: one is released only when the stream has come so far. A stream of
        PyTorch or CuPy, or the number of one."""
        self._core.streams.add(handle_of(stream))

    def close(self):
        """Leaves the producer. Batches that are still in use stay valid."""
        self._parts.clear()
        self._pushed.clear()
        self._ready = None
        self._core.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
        return False

    def _skip(self, epoch):
        self._parts.clear()
        while self._pushed and self._pushed[0].epoch <= epoch:
            self._pushed.popleft()
        self._core.skip(epoch)
        self._place = (epoch + 1, 0, 0, 0)

    def _event(self):
        """The next part or the end of an epoch; None at the end of all."""
        if self._pushed:
            return self._pushed.popleft()
        while True:
            if self._lost:
                self._attach(self._timeout)
            if self._ready is None and self._described is not None and self._decoder.is_lazy:
                self._prepare()
            try:
                code = self._core.next(self._next)
            except ProducerDied:
                self._lost = True
                if self._reconnect <= 0:
                    raise
                self._attach(self._reconnect)
                continue
            if code == 0:
                return self._part()
            if code == END:
                return None
            if code == EPOCH_END:
                return _EpochEnd(self._next.epoch)

    def _attach(self, timeout):
        self._core.attach(timeout)
        # All memory is another now.
        self._ready = None
        self._lost = False

    def _part(self):
        figures = figures_of(self._next)
        region, described = figures[_REGION], figures[_DESCRIBED]
        ready, self._ready = self._ready, None
        if ready is not None and ready[0] == region and described == self._described:
            if self._core.take(ready[1], figures[_LEASE], self._keep):
                self._last = figures
                return _Part(figures, ready[2])
        if described != self._described:
            # Nothing is taken for the last one if this raises.
            self._described = None
            self._plan = self._decoder.plan(ctypes.string_at(*described))
            self._described = described
        found = Found._make(figures)
        self._follows[self._last[_REGION]] = region
        if len(self._follows) > 256:
            self._follows.clear()
        self._last = figures
        return _Part(figures, self._plan(self._core.memory(found, self._keep)))

    def _prepare(self):
        """Makes the arrays of the batch that most likely comes next, while the program would wait for it: the producer fills
        its slots in turns, and most batches are described alike. They are not handed out before the batch is leased."""
        region = self._follows.get(self._last[_REGION])
        memory = self._core.blank(region)
        if memory is not None:
            self._ready = (region, memory, self._plan(memory))

    def _take(self, iteration):
        """The next batch of an iteration; None at its end."""
        while True:
            if self._size is not None and sum(part.stop - part.start for part in self._parts) >= self._size:
                return self._cut(self._size)
            event = self._event()
            if event is None:
                if iteration.epoch is None:
                    raise ProducerEnded("the producer has ended: there are no more epochs")
                return self._tail()
            if iteration.epoch is None:
                iteration.epoch = event.epoch
            if event.epoch > iteration.epoch:
                # Its end was among what was dropped.
                self._pushed.appendleft(event)
                return self._tail()
            if isinstance(event, _EpochEnd):
                self._place = (event.epoch + 1, 0, 0, 0)
                return self._tail()
            self._place = (event.epoch, event.index + 1, event.after, 0)
            start, self._offset = self._offset, 0
            if self._size is None and not start:
                return event.batch
            if not event.stop:
                raise _resize.NotResizable("a batch without arrays has no known number of samples")
            event.start = min(start, event.stop)
            if self._size is None:
                return _resize.cut(event.batch, event.start, event.stop, event.stop)
            if event.start < event.stop:
                self._parts.append(event)

    def _tail(self):
        held = sum(part.stop - part.start for part in self._parts)
        if self._drop_last or not held:
            self._parts.clear()
            return None
        return self._cut(held)

    def _cut(self, count):
        pieces, sizes = [], []
        while count > 0:
            part = self._parts[0]
            stop = min(part.stop, part.start + count)
            pieces.append(_resize.cut(part.batch, part.start, stop, part.stop))
            sizes.append(stop - part.start)
            count -= stop - part.start
            if stop == part.samples:
                self._parts.popleft()
            else:
                part.start = stop
        return pieces[0] if len(pieces) == 1 else _resize.join(pieces, sizes)


class _Epoch:
    """An iteration over an epoch."""

    def __init__(self, consumer):
        self._consumer = consumer
        self.epoch = None
        self.done = False

    def __iter__(self):
        return self

    def __next__(self):
        if self.done or self._consumer._iteration is not self:
            raise StopIteration
        # After ProducerDied the next call goes on, so an exception does not end it.
        batch = self._consumer._take(self)
        if batch is None:
            self.done = True
            raise StopIteration
        return batch


class _EpochEnd:
    def __init__(self, epoch):
        self.epoch = epoch


class _Part:
    """A batch of the producer, of which the samples from `start` on are not handed out."""

    __slots__ = ("epoch", "_figures", "start", "stop", "batch")

    def __init__(self, figures, batch):
        self._figures, self.batch = figures, batch
        self.epoch, self.start, self.stop = figures[_EPOCH], 0, figures[_SAMPLES]

    index = property(lambda self: self._figures[_INDEX])
    before = property(lambda self: self._figures[_BEFORE])
    after = property(lambda self: self._figures[_AFTER])
    samples = property(lambda self: self._figures[_SAMPLES])
