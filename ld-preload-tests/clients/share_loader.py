"""A producer of samples that can be recognized: share_loader.py NAME EPOCHS SAMPLES BATCH CONSUMERS [SLOW]."""

import collections
import dataclasses
import os
import random
import sys

import numpy
from radrm.share import Producer

Pair = collections.namedtuple("Pair", "first second")


@dataclasses.dataclass
class Sample:
    image: object
    pair: object


def image(ids):
    """What the image of each number is."""
    return ((ids[:, None, None] * 2654435761 + numpy.arange(512).reshape(16, 32)) % 251).astype(numpy.uint8)


class Loader:
    """Shuffled samples in batches, the last one smaller."""

    def __init__(self, samples, batch):
        self.samples, self.batch = samples, batch

    def __len__(self):
        return -(-self.samples // self.batch)

    def __iter__(self):
        order = list(range(self.samples))
        random.shuffle(order)
        for start in range(0, self.samples, self.batch):
            ids = numpy.array(order[start : start + self.batch])
            yield {
                "id": ids,
                "sample": Sample(image(ids), Pair(ids.astype("f4"), [f"n{number}" for number in ids])),
                ("set", 1): ("train", None, True, 2**70, 1.5, b"\xff", 1j),
            }


if __name__ == "__main__":
    name, epochs, samples, batch, consumers, *slow = sys.argv[1:]
    producer = Producer(
        Loader(int(samples), int(batch)),
        name,
        epochs=int(epochs),
        consumers=int(consumers),
        ring=4,
        slow=(slow or ["wait"])[0],
        rejoin=20,
    )
    print("ready", os.getpid(), flush=True)
    producer.run()
