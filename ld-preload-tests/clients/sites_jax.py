"""Arrays of JAX in known lines. Prints "LINE BYTES" for each that is held while the program waits, and as line 0 what is in use
altogether. Most goes before the end."""

import sys
import threading
import time

import jax
import jax.numpy as jnp
import numpy

MIB = 1 << 20


def said(array):
    """The caller's line holds this array."""
    jax.block_until_ready(array)
    print(sys._getframe(1).f_lineno, array.nbytes, flush=True)
    return array


class Model:
    def __init__(self):
        self.weights = said(jnp.zeros((40, MIB), dtype=jnp.uint8))

    def forward(self, depth):
        if depth:
            return self.forward(depth - 1)
        return said(jnp.ones(7 * MIB // 4, dtype=jnp.float32))


def batches():
    for mib in (3, 5):
        yield said(jax.device_put(numpy.zeros(mib * MIB, dtype=numpy.uint8)))


@jax.jit
def double(array):
    return array * 2


def in_thread():
    kept.append(said(jnp.zeros(13 * MIB, dtype=jnp.uint8)))


assert jax.default_backend() == "gpu", jax.default_backend()
model = Model()
kept = [model.forward(depth) for depth in (0, 5, 20)]
kept.extend(batches())
kept.append(said(double(kept[0])))
thread = threading.Thread(target=in_thread)
thread.start()
thread.join()
# What the allocator counts: it gives whole chunks, which may be larger than what was asked for.
print(0, jax.local_devices()[0].memory_stats()["bytes_in_use"], flush=True)
time.sleep(1)
del model, kept
