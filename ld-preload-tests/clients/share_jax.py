"""Batches of radrm.share as arrays of JAX on the CPU, by DLPack."""

import jax
import numpy
from radrm.share import Consumer
from share_rig import Running, all_of

BATCHES, SHAPE = 20, (4, 16)


def numbers(index):
    return numpy.arange(64, dtype="f4").reshape(SHAPE) + 64 * index


class Loader:
    """Batches of arrays of numpy, or of JAX."""

    def __init__(self, made):
        self.made = made

    def __len__(self):
        return BATCHES

    def __iter__(self):
        for index in range(BATCHES):
            yield {"x": self.made(numbers(index)), "y": (self.made(numpy.full((4, 1), index, "i4")), index)}


def check(batch, index, kind):
    assert isinstance(batch["x"], kind) and isinstance(batch["y"][0], kind), (type(batch["x"]), type(batch["y"][0]))
    assert batch["x"].dtype == "float32" and batch["y"][0].dtype == "int32"
    numpy.testing.assert_array_equal(batch["x"], numbers(index))
    assert batch["y"][0].tolist() == [[index]] * 4 and batch["y"][1] == index


def is_in_a_slot(array):
    """Whether its elements lie in memory of the producer."""
    address = array.unsafe_buffer_pointer()
    for line in open("/proc/self/maps"):
        start, end = (int(part, 16) for part in line.split()[0].split("-"))
        if start <= address < end:
            return "radrm-share" in line
    return False


assert jax.default_backend() == "cpu", jax.default_backend()
for made in (numpy.asarray, jax.numpy.asarray):
    for framework, kind in (("jax", jax.Array), (None, numpy.ndarray)):
        for writable in (True, False):
            with Running(Loader(made), epochs=1):
                loader = Consumer("case", framework=framework, writable=writable)
                kept = []
                for index, batch in enumerate(loader):
                    check(batch, index, kind)
                    if framework == "jax":
                        assert float(jax.jit(jax.numpy.sum)(batch["x"])) == numbers(index).sum()
                        # JAX copies what it may not write into, and the third batch that is kept is a copy anyway.
                        assert is_in_a_slot(batch["x"]) == (writable and index < 2), (index, writable)
                    kept.append(batch)
                assert len(kept) == BATCHES
                # What is kept does not change while the producer goes on.
                for index, batch in enumerate(kept):
                    check(batch, index, kind)
                del kept, batch
# Batches of another size are cut from arrays of JAX, and joined of them.
with Running([numpy.arange(8, dtype="f4") + 8 * index for index in range(3)], epochs=1):
    loader = Consumer("case", framework="jax", batch_size=6)
    assert all_of(loader) == list(range(24))
print("ok share_jax")
