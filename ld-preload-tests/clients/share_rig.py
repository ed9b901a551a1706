"""What the cases of radrm.share have in common."""

import os
import sys
import threading
import traceback

import numpy
from radrm.share import Producer


def raises(kind, call):
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")


class Running:
    """A producer on a thread."""

    def __init__(self, loader, **options):
        options.setdefault("seed", 1)
        self.producer = Producer(loader, options.pop("name", "case"), **options)
        self.error = None
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        try:
            self.producer.run()
        except BaseException as error:  # noqa: BLE001
            self.error = error

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is not None:
            # Its consumers may be left attached, and it would wait for them.
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
        self.thread.join()


class Numbers:
    """Batches of four samples: index, four times."""

    def __init__(self, batches, last=4):
        self.batches, self.last = batches, last

    def __len__(self):
        return self.batches

    def __iter__(self):
        for index in range(self.batches):
            yield numpy.arange(4 if index < self.batches - 1 else self.last) + 4 * index


def all_of(loader):
    return [number for batch in loader for number in batch.tolist()]
