"""Programs that know nothing of sharing: what `radrm share` loads into their interpreters.

Each epoch of a DataLoader is a producer of its own, which the first program forks, as a DataLoader forks its workers. Its name
is a digest of all that decides what the epoch gives: the data set, the order of the samples, how they become batches. So
programs share an epoch exactly if each would have loaded the same samples in the same order, and otherwise load it themselves.

In the folder of the session, `living` has the numbers of the programs that run, and `at.LOADER.EPOCH.RANK.PROGRAM` says
what a program loads in an epoch of its loader. By these a producer knows whom to wait for.
"""

import importlib.abc
import importlib.machinery
import os
import random
import signal
import sys
import time
from pathlib import Path

SESSION = "RADRM_SHARE_SESSION"
PROGRAM = "RADRM_SHARE_PROGRAM"
ANY_ORDER = "RADRM_SHARE_ANY_ORDER"
WAIT = "RADRM_SHARE_WAIT_MS"

# What a program waits for a producer that it has forked, in seconds: it only has to take its name.
_PATIENCE = 60

# How often a program takes the place of a producer that died, within an epoch.
_REPLACED = 3


def install():
    """Shares the DataLoaders of this interpreter, once its program imports PyTorch."""
    if os.environ.get(SESSION):
        sys.meta_path.insert(0, _Finder())


class _Finder(importlib.abc.MetaPathFinder):
    """Patches PyTorch's module when it has been loaded."""

    _NAME = "torch.utils.data.dataloader"

    def find_spec(self, name, path, target=None):
        if name != self._NAME:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module):
                execute(module)
                # A program may have looked for the module before, without loading it.
                if self in sys.meta_path:
                    sys.meta_path.remove(self)
                    _patch(module.DataLoader)

            spec.loader.exec_module = exec_module
        return spec


def _patch(DataLoader):
    own = DataLoader.__iter__

    def shared(self):
        try:
            found = _epoch_of(self, own)
        except _NotShared as why:
            _say(self, f"not shared: {why}")
            found = None
        return own(self) if found is None else found

    DataLoader.__iter__ = shared


class _NotShared(Exception):
    pass


_said = set()


def _say(loader, text):
    key = (id(loader), text)
    if key not in _said:
        _said.add(key)
        name = type(loader.dataset).__qualname__
        print(f"radrm share: process {os.getpid()}: the loader of {name}: {text}", file=sys.stderr, flush=True)


class _Random:
    """The states of all generators that iterating a loader may move."""

    def __init__(self, loader):
        import torch

        batch_sampler = loader.batch_sampler
        parts = (loader, batch_sampler, getattr(batch_sampler, "sampler", None))
        generators = [getattr(part, "generator", None) for part in parts]
        self._generators = [generator for generator in generators if generator is not None]
        self._states = [generator.get_state() for generator in self._generators]
        self._torch, self._python = torch.get_rng_state(), random.getstate()
        self._numpy = sys.modules["numpy"].random.get_state() if "numpy" in sys.modules else None

    def restore(self):
        import torch

        for generator, state in zip(self._generators, self._states):
            generator.set_state(state)
        torch.set_rng_state(self._torch)
        random.setstate(self._python)
        if self._numpy is not None:
            sys.modules["numpy"].random.set_state(self._numpy)


def _epoch_of(loader, own):
    """An iterator over an epoch that others load too; None where this is a producer or a worker of a loader."""
    import torch
    from torch.utils import data

    from . import _identity

    session = os.environ.get(SESSION)
    if not session or data.get_worker_info() is not None:
        return None
    if type(loader).__iter__ is not data.DataLoader.__iter__ or type(loader) is not data.DataLoader:
        raise _NotShared(f"{type(loader).__qualname__} may make its batches in another way than a DataLoader")
    if loader.batch_sampler is None or isinstance(loader.dataset, data.IterableDataset):
        raise _NotShared("the order of its samples is known only when they are loaded")
    batch_sampler = loader.batch_sampler
    sampler = batch_sampler.sampler if type(batch_sampler) is data.BatchSampler else batch_sampler
    known = ("SequentialSampler", "RandomSampler", "SubsetRandomSampler", "WeightedRandomSampler", "DistributedSampler")
    if type(sampler).__name__ not in known or not type(sampler).__module__.startswith("torch.utils.data"):
        raise _NotShared(f"its sampler {type(sampler).__qualname__} is not one of PyTorch's")
    try:
        identity = _identity.of_loader(loader)
    except _identity.Unknown as why:
        raise _NotShared(str(why)) from None
    before = _Random(loader)
    # As a DataLoader draws them, so that the program's random numbers go on as they would have.
    seed = int(torch.empty((), dtype=torch.int64).random_(generator=loader.generator).item())
    order = [list(batch) for batch in batch_sampler]
    place = _place_of(loader)
    if os.environ.get(ANY_ORDER):
        shape = (type(sampler).__name__, len(order), len(order[0]) if order else 0, place)
        name = _identity.name(identity, shape)
    else:
        name = _identity.name(identity, order)
    others = _Others(session, place, _identity.name(identity, ""), name)
    epoch = _Shared(loader, others, name, order, seed)
    why = epoch.attach()
    if why is None:
        return epoch
    before.restore()
    raise _NotShared(why)


_loaders = []


def _place_of(loader):
    """Which of the program's loaders it is, and which epoch of it: equal in programs that are alike."""
    import weakref

    for number, known in enumerate(_loaders):
        if known[0]() is loader:
            known[1] += 1
            return number, known[1]
    _loaders.append([weakref.ref(loader), 0])
    return len(_loaders) - 1, 0


class _Others:
    """The other programs of the session."""

    def __init__(self, session, place, data, name):
        self.session = session
        self._data, self._name = data, name
        loader, epoch = place
        self._prefix = f"at.{loader}.{epoch}.{os.environ.get('RANK') or 0}."
        self._own = os.environ.get(PROGRAM) or "0"
        # Written elsewhere: the file is whole at any time.
        part = Path(session, f"part.{os.getpid()}")
        part.write_text(f"{data} {name}")
        part.rename(Path(session, self._prefix + self._own))
        if epoch > 1:
            Path(session, f"at.{loader}.{epoch - 2}.{os.environ.get('RANK') or 0}.{self._own}").unlink(missing_ok=True)

    def _living(self):
        try:
            return set(Path(self.session, "living").read_text().split()) - {self._own}
        except OSError:
            return set()

    def _at(self, program):
        try:
            return Path(self.session, self._prefix + program).read_text().split()
        except OSError:
            return None

    def expected(self):
        """How many load this epoch or may still come to it, with this one."""
        at = [self._at(program) for program in self._living()]
        return 1 + sum(found is None or found[1:] == [self._name] for found in at)

    def why_not(self):
        """Why no other program shares this epoch."""
        at = [self._at(program) for program in self._living()]
        if not at:
            return "the other programs have ended"
        if any(found is not None and found[0] == self._data for found in at):
            return "the samples of the others come in another order, as with other seeds: --any-order shares them"
        return "the others load other data"


class _Shared:
    """An epoch of a loader, in place of the loader's own iterator."""

    def __init__(self, loader, others, name, order, seed):
        self._loader, self._others, self._name = loader, others, name
        self._order, self._seed = order, seed
        self._consumer = self._batches = None
        self._first, self._replaced = None, 0

    def __iter__(self):
        return self

    def __len__(self):
        return len(self._order)

    def attach(self):
        """Waits for the first batch; why the epoch is not shared, or None."""
        from ._consumer import Consumer
        from ._core import NoProducer, ShareError

        if not self._order:
            return "it has no samples"
        if self._others.expected() == 1:
            return self._others.why_not()
        begin = {"epoch": 0, "index": 0, "order": 0, "offset": 0}
        options = {"directory": self._others.session, "start": begin}
        try:
            try:
                self._consumer = Consumer(self._name, timeout=0, **options)
            except NoProducer:
                self._lead()
                self._consumer = Consumer(self._name, timeout=_PATIENCE, **options)
            self._batches = iter(self._consumer)
            self._first = self._next()
        except ShareError as why:
            self.close()
            return f"{why}"
        except StopIteration:
            self.close()
            return "its producer had no batch"
        _say(self._loader, "shared" if self._others.expected() > 1 else f"not shared: {self._others.why_not()}")
        return None

    def __next__(self):
        if self._first is not None:
            (batch,), self._first = self._first, None
        elif self._batches is None:
            raise StopIteration
        else:
            try:
                (batch,) = self._next()
            except StopIteration:
                self.close()
                raise
        if self._loader.pin_memory:
            import torch

            if torch.accelerator.is_available():
                batch = torch.utils.data._utils.pin_memory.pin_memory(batch)
        return batch

    def _next(self):
        from ._core import ProducerDied

        while True:
            try:
                return (next(self._batches),)
            except ProducerDied:
                self._replaced += 1
                if self._replaced > _REPLACED:
                    raise
                self._lead()

    def close(self):
        consumer, self._consumer, self._batches = self._consumer, None, None
        if consumer is not None:
            consumer.close()

    def __del__(self):
        self.close()

    def _lead(self):
        """Forks a producer, which ends at once if another process is one already."""
        sys.stdout.flush()
        sys.stderr.flush()
        child = os.fork()
        if child:
            os.waitpid(child, 0)
            return
        code = 1
        try:
            # Not a child of the program, which waits for its own only; and no Ctrl-C of its terminal's.
            os.setsid()
            if os.fork():
                os._exit(0)
            _run_producer(self._loader, self._others, self._name, self._order, self._seed)
            code = 0
        except BaseException as error:  # noqa: BLE001
            print(f"radrm share: the producer: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        finally:
            os._exit(code)


def _run_producer(loader, others, name, order, seed):
    """Loads an epoch for all that attach. In a process of its own."""
    import torch

    from ._core import NameTaken
    from ._producer import Producer, _TorchSource
    from ._tree import Encoded

    os.environ.pop(SESSION, None)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    _close_devices()
    # Threads of OpenMP do not survive a fork.
    torch.set_num_threads(1)

    class Source(_TorchSource):
        def _set_epoch(self, seed, epoch):
            # The data set and the sampler are as they were when the program began the epoch.
            mixed = seed % 2**63
            random.seed(mixed)
            if "numpy" in sys.modules:
                sys.modules["numpy"].random.seed(mixed % 2**32)
            torch.manual_seed(mixed)

    class Fixed:
        def __iter__(self):
            return iter(order)

        def __len__(self):
            return len(order)

    class EpochProducer(Producer):
        def _encode(self, batch):
            return Encoded(batch, exact=True)

        def _begin(self):
            if not self._resumed:
                # A program that does not come, because it loads something else, is not waited for longer.
                until = time.monotonic() + int(os.environ.get(WAIT) or 30_000) / 1000
                while self._wait(0, others.expected()) < others.expected() and time.monotonic() < until:
                    pass
            return super()._begin()

    options = {}
    if loader.num_workers > 0:
        options.update(prefetch_factor=loader.prefetch_factor, multiprocessing_context=loader.multiprocessing_context)
    fixed = torch.utils.data.DataLoader(
        loader.dataset,
        batch_sampler=Fixed(),
        num_workers=loader.num_workers,
        collate_fn=loader.collate_fn,
        timeout=loader.timeout,
        worker_init_fn=loader.worker_init_fn,
        **options,
    )
    try:
        producer = EpochProducer(Source(fixed), name, epochs=1, consumers=1, seed=seed, rejoin=10, directory=others.session)
    except NameTaken:
        return
    producer.run()


def _close_devices():
    """Closes what the program has of its GPUs, which would keep their memory after its end."""
    for entry in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{entry}").startswith("/dev/nvidia"):
                os.close(int(entry))
        except OSError:
            pass
