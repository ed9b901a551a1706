"""Arrays of CuPy, out of its pool, in known lines. Prints "LINE BYTES" for each piece of memory that the pool takes from the
driver: it keeps what it has, so all of them stand at the peak."""

import sys
import threading

import cupy

MIB = 1 << 20
pool = cupy.get_default_memory_pool()
before = 0


def said(array):
    """The caller's line made the pool grow by this."""
    global before
    grown, before = pool.total_bytes() - before, pool.total_bytes()
    if grown:
        print(sys._getframe(1).f_lineno, grown, flush=True)
    return array


class Model:
    def __init__(self):
        self.weights = said(cupy.zeros((40, MIB), dtype=cupy.uint8))

    def forward(self, depth):
        if depth:
            return self.forward(depth - 1)
        return said(cupy.empty(7 * MIB // 4, dtype=cupy.float32))


def batches():
    for mib in (3, 5):
        yield said(cupy.empty(mib * MIB, dtype=cupy.uint8))


model = Model()
kept = [model.forward(depth) for depth in (0, 30, 90)]
kept.extend(batches())
# Small arrays share a piece, and one that was given back is used again.
kept.extend(said(cupy.empty(300, dtype=cupy.uint8)) for _ in range(4))
kept.pop(0)
kept.append(said(cupy.empty(7 * MIB // 4, dtype=cupy.float32)))


def in_thread():
    kept.append(said(cupy.empty(13 * MIB, dtype=cupy.uint8)))


thread = threading.Thread(target=in_thread)
thread.start()
thread.join()
