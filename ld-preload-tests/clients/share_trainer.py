"""A consumer that checks every sample and notes which it has got: share_trainer.py NAME LOG BATCH START RECONNECT.

Lines of LOG: "EPOCH NUMBER..." for each batch, "end EPOCH" after each epoch.
"""

import os
import random
import sys

import numpy
from radrm.share import Consumer
from share_loader import Pair, Sample, image

name, log, size, start, reconnect = sys.argv[1:]
size = int(size) or None
log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
loader = Consumer(name, batch_size=size, start=start, reconnect=float(reconnect), types=[Pair, Sample])
print("ready", os.getpid(), flush=True)
kept = []
for epoch in loader.epochs():
    for batch in loader:
        ids = batch["id"]
        assert size is None or len(ids) <= size, len(ids)
        sample = batch["sample"]
        assert type(sample) is Sample and type(sample.pair) is Pair
        assert (sample.image == image(ids)).all(), "another batch's bytes"
        assert (sample.pair.first == ids.astype("f4")).all()
        assert sample.pair.second == [f"n{number}" for number in ids]
        assert batch["set", 1] == ("train", None, True, 2**70, 1.5, b"\xff", 1j)
        os.write(log, (" ".join(map(str, [epoch, *ids])) + "\n").encode())
        # Own until the batch is released: neither the producer nor another consumer sees it.
        sample.image[:] = 0
        ids += 1
        # Some batches are kept for a while.
        if random.random() < 0.1:
            kept.append((ids.copy(), batch))
        if len(kept) > 3:
            expected, batch = kept.pop(0)
            assert (batch["id"] == expected).all(), "a batch that is kept has changed"
            assert not batch["sample"].image.any()
            del batch
    os.write(log, f"end {epoch}\n".encode())
print("done", flush=True)
