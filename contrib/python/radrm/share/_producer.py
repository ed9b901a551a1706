"""The process that loads."""

import contextlib
import ctypes
import hashlib
import itertools
import random
import sys

from ._core import AGAIN, SLOW, UNKNOWN, UNWANTED, Counts, ProducerConfig, checked, encoded, library, named
from ._gpu import ordinal_of
from ._tree import Encoded

# How long a call may wait before Python looks for signals.
_SLICE = 200


class Producer:
    """Runs a loader for all consumers of a name.

    ``loader`` is a ``torch.utils.data.DataLoader``, or anything that gives an epoch of batches each time it is iterated.

    name: what consumers call it; without one the name of the job's loader (``RADRM_LOADER``), or "default".
    epochs: how many; None goes on for ever.
    consumers: how many to wait for before the first batch.
    ring: batches in memory, at least 2. Consumers with ``slow`` other than "wait" add one each.
    slow: what happens when a consumer is slow and does not say it itself: "wait" makes all wait for it, "drop" lets it miss
        the oldest batches, "spill" writes them to disk for it.
    spill_dir, spill_bytes: where such batches go, and how many bytes at most; above that, all wait.
    seed: what the order of samples is derived from, the same in a restart. Without one the loader's generator gives it,
        else it is random.
    resume: after a kill, go on where the consumers are. Otherwise they are refused.
    rejoin: seconds to wait for consumers of the killed producer that still live.
    directory: folder of the socket, with mode 0700; without one that of the user's runtime files.
    device: a GPU, such as "cuda:0", on which the arrays of batches then lie: consumers read them there without a copy, and
        their memory counts as this process's. Not with ``slow="spill"``.
    """

    def __init__(
        self,
        loader,
        name=None,
        *,
        epochs=None,
        consumers=1,
        ring=8,
        slow="wait",
        spill_dir=None,
        spill_bytes=16 << 30,
        seed=None,
        resume=True,
        rejoin=60.0,
        directory=None,
        device=None,
    ):
        if slow not in SLOW or slow is None:
            raise ValueError(f"slow is {slow!r}, and not wait, drop or spill")
        self._device = ordinal_of(device)
        self._source = _source(loader)
        self._epochs, self._consumers, self._rejoin = epochs, consumers, rejoin
        if seed is None:
            seed = self._source.seed()
        config = ProducerConfig(
            name=encoded(named(name)),
            folder=encoded(directory),
            spill=encoded(spill_dir),
            slots=ring,
            spill_limit=spill_bytes,
            batches=self._source.batches(),
            samples=self._source.samples(),
            seed=seed & UNKNOWN,
            gpu=self._device,
            slow=SLOW[slow],
            resume=bool(resume),
        )
        self._handle = ctypes.c_void_p()
        checked(library.radrm_share_producer(ctypes.byref(config), ctypes.byref(self._handle)))
        seed = ctypes.c_uint64()
        self._resumed = bool(checked(library.radrm_share_seed(self._handle, ctypes.byref(seed))))
        self._seed = seed.value

    def run(self):
        """Loads and publishes until the last epoch is delivered. An exception of the loader is raised here and at the
        consumers. After any other end, such as Ctrl-C, a producer of this name goes on from here."""
        try:
            epoch, index = self._begin()
            while self._epochs is None or epoch < self._epochs:
                try:
                    self._epoch(epoch, index)
                except Exception as error:
                    text = f"{type(error).__name__}: {error}".replace("\0", " ")
                    library.radrm_share_fail(self._handle, text.encode("utf-8", "replace"))
                    raise
                epoch, index = epoch + 1, 0
            while checked(library.radrm_share_finish(self._handle, _SLICE)) == AGAIN:
                pass
        finally:
            self.close()

    def _wait(self, former, count):
        found = ctypes.c_uint64()
        checked(library.radrm_share_wait(self._handle, former, count, _SLICE, ctypes.byref(found)))
        return found.value

    def _begin(self):
        if self._resumed:
            for _ in range(max(1, int(self._rejoin * 1000 / _SLICE))):
                if self._wait(1, 0) == 0:
                    break
        if not self._resumed or self._wait(0, 1) == 0:
            while self._wait(0, self._consumers) < self._consumers:
                pass
        epoch, index = ctypes.c_uint64(), ctypes.c_uint64()
        checked(library.radrm_share_begin(self._handle, ctypes.byref(epoch), ctypes.byref(index)))
        return epoch.value, index.value

    def _epoch(self, epoch, skip):
        """Publishes an epoch from the batch `skip` on."""
        address, on_gpu = ctypes.c_void_p(), ctypes.c_uint64()
        # Closes generators, and with them workers, also where the rest of the epoch is not wanted.
        with contextlib.closing(self._source.epoch(self._seed, epoch, skip)) as batches:
            for before, after, batch in batches:
                batch = self._encode(batch)
                while True:
                    code = library.radrm_share_reserve(
                        self._handle, batch.bytes, batch.gpu_data, _SLICE, ctypes.byref(address), ctypes.byref(on_gpu)
                    )
                    if checked(code) != AGAIN:
                        break
                if code == UNWANTED:
                    break
                batch.write(address.value)
                for array in batch.gpu_arrays:
                    to = on_gpu.value + array.offset
                    checked(library.radrm_share_copy(self._handle, to, array.address, array.bytes, array.after))
                figures = (batch.samples, before, after, batch.data, len(batch.description), batch.gpu_data)
                checked(library.radrm_share_publish(self._handle, *figures))
        checked(library.radrm_share_end_epoch(self._handle))

    def _encode(self, batch):
        return Encoded(batch, device=self._device)

    def stats(self):
        """Figures: attached consumers, slots and their bytes, published and spilled batches, malformed connections."""
        counts = Counts()
        checked(library.radrm_share_counts(self._handle, ctypes.byref(counts)))
        return {name: getattr(counts, name) for name, _ in Counts._fields_}

    def close(self):
        """Stops serving. Consumers that have not got everything see the producer's death."""
        handle, self._handle = self._handle, None
        if handle:
            library.radrm_share_producer_free(handle)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
        return False

    def __del__(self):
        if getattr(self, "_handle", None):
            self.close()


def _source(loader):
    if isinstance(loader, _Source):
        return loader
    torch = sys.modules.get("torch")
    # A subclass may make its batches in another way; an IterableDataset has no sampler, whatever its loader says.
    if torch is None or type(loader) is not torch.utils.data.DataLoader or loader.batch_sampler is None:
        return _Source(loader)
    if isinstance(loader.dataset, torch.utils.data.IterableDataset):
        return _Source(loader)
    return _TorchSource(loader)


class _Source:
    """Any iterable. To resume, it is iterated from the epoch's beginning."""

    def __init__(self, loader):
        self._loader = loader

    def seed(self):
        generator = getattr(self._loader, "generator", None)
        return random.SystemRandom().getrandbits(63) if generator is None else generator.initial_seed()

    def batches(self):
        try:
            return len(self._loader)
        except TypeError:
            return UNKNOWN

    def samples(self):
        return UNKNOWN

    def epoch(self, seed, epoch, skip):
        """Digests of the order before and after each batch, and the batch, from the batch `skip` on."""
        self._set_epoch(seed, epoch)
        for batch in itertools.islice(self._loader, skip, None):
            yield 0, 0, batch

    def _set_epoch(self, seed, epoch):
        """Makes an epoch's order depend on nothing but the seed and its number."""
        mixed = hashlib.blake2b(f"{seed} {epoch}".encode(), digest_size=8).digest()
        mixed = int.from_bytes(mixed, "little") >> 1
        random.seed(mixed)
        if "numpy" in sys.modules:
            sys.modules["numpy"].random.seed(mixed % 2**32)
        if "torch" in sys.modules:
            sys.modules["torch"].manual_seed(mixed)
        sampler = getattr(self._loader, "sampler", None)
        batch_sampler = getattr(self._loader, "batch_sampler", None)
        parts = (self._loader, sampler, batch_sampler, getattr(batch_sampler, "sampler", None))
        for part in (*parts, getattr(self._loader, "dataset", None)):
            generator = getattr(part, "generator", None)
            if hasattr(generator, "manual_seed"):
                generator.manual_seed(mixed)
            if callable(getattr(part, "set_epoch", None)):
                part.set_epoch(epoch)


class _TorchSource(_Source):
    """A DataLoader of PyTorch with a sampler: what is skipped is not loaded, and the order of samples is known."""

    def __init__(self, loader):
        super().__init__(loader)
        from torch.utils.data import DataLoader

        self._sampler = _RecordedSampler(loader.batch_sampler)
        options = {}
        if loader.num_workers > 0:
            options.update(prefetch_factor=loader.prefetch_factor, persistent_workers=loader.persistent_workers)
        self._made = DataLoader(
            loader.dataset,
            batch_sampler=self._sampler,
            num_workers=loader.num_workers,
            collate_fn=loader.collate_fn,
            timeout=loader.timeout,
            worker_init_fn=loader.worker_init_fn,
            multiprocessing_context=loader.multiprocessing_context,
            generator=loader.generator,
            **options,
        )

    def samples(self):
        try:
            samples = len(self._loader.sampler)
            size = self._loader.batch_size
        except (AttributeError, TypeError):
            return UNKNOWN
        if not size:
            return UNKNOWN
        return samples // size * size if self._loader.drop_last else samples

    def epoch(self, seed, epoch, skip):
        self._set_epoch(seed, epoch)
        self._sampler.start(skip)
        digests = self._sampler.digests
        for index, batch in enumerate(self._made, skip):
            yield digests[index], digests[index + 1], batch


class _RecordedSampler:
    """The batches of a batch sampler without the first ones, with a digest of the order in front of each."""

    def __init__(self, sampler):
        self._sampler = sampler
        self.start(0)

    def start(self, skip):
        self._skip = skip
        self.digests = [0]

    def __iter__(self):
        digests = self.digests
        for number, indices in enumerate(self._sampler):
            indices = list(indices)
            text = f"{digests[-1]} {indices!r}".encode("utf-8", "replace")
            digests.append(int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") or 1)
            if number >= self._skip:
                yield indices

    def __len__(self):
        return len(self._sampler)
