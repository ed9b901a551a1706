"""A kernel of numba-cuda: prints its result."""

import numpy
from numba import cuda


@cuda.jit
def scale(x, factor):
    i = cuda.grid(1)
    if i < x.size:
        x[i] *= factor


x = cuda.to_device(numpy.arange(10_000, dtype=numpy.float32))
for _ in range(3):
    scale[40, 256](x, 2.0)
cuda.synchronize()
print("numba", x.copy_to_host().sum())
stream = cuda.stream()
with stream.auto_synchronize():
    y = cuda.to_device(numpy.ones(100, dtype=numpy.float32), stream=stream)
    scale[1, 128, stream](y, 3.0)
print("stream", y.copy_to_host().sum())
