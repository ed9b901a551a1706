"""Operations of CuPy: prints their results."""

import cupy

x = cupy.arange(1 << 20, dtype=cupy.float32) % 17
print("sum", float(x.sum()))
print("sorted", float(cupy.sort(x)[1 << 19]))
a = ((cupy.arange(256 * 256) % 7) - 3).reshape(256, 256).astype(cupy.float32)
print("product", float(abs(a @ a).sum()))
print("fft", round(float(abs(cupy.fft.fft(x[:1024])).max()), 1))
square = cupy.RawKernel(r"""
extern "C" __global__ void square_all(float *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= x[i];
}""", "square_all")
y = cupy.arange(1000, dtype=cupy.float32) % 10
square((4,), (256,), (y, cupy.int32(1000)))
print("kernel", float(y.sum()))
with cupy.cuda.Stream(non_blocking=True) as stream:
    z = cupy.ones(100) * 2
    stream.synchronize()
print("stream", float(z.sum()))
with cupy.cuda.using_allocator(cupy.cuda.MemoryAsyncPool().malloc):
    print("pool", float(cupy.ones(1000).sum()))
try:
    cupy.cuda.alloc(1 << 50)
except cupy.cuda.memory.OutOfMemoryError:
    print("refused")
print("after", float(cupy.ones(10).sum()))
