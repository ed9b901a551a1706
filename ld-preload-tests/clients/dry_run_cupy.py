"""Arrays of CuPy and what cuBLAS, cuFFT and cuSOLVER make of them; prints what the pool holds, in bytes."""

import cupy

# Three matrices of 64 MiB at a time, and no more later.
first = cupy.ones((4096, 4096), dtype=cupy.float32)
second = first @ first
third = first + second
del second, third
cupy.fft.fft(cupy.ones(1 << 16, dtype=cupy.complex64))
cupy.linalg.svd(cupy.ones((64, 64), dtype=cupy.float32))
cupy.random.rand(1000)
assert float(first.sum()) == 0.0, "nothing is computed"
print(cupy.get_default_memory_pool().total_bytes())
