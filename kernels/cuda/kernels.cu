// The kernels that `radrm-kernels` runs. `ptx/kernels.ptx` is the same by hand, for machines
// without NVRTC; keep the two in step.

extern "C" __global__ void square(float *x, unsigned int n) {
    unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = x[i] * x[i];
}

// Memory-bound: 12 bytes moved for 2 operations.
extern "C" __global__ void triad(float *a, const float *b, const float *c, unsigned int n) {
    unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) a[i] = b[i] * 3.0f + c[i];
}

// Compute-bound: 2 * rounds operations for 8 bytes moved.
extern "C" __global__ void spin(float *x, unsigned int n, unsigned int rounds) {
    unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float v = x[i];
        for (unsigned int r = 0; r < rounds; r++) v = v * 0.5f + 1.0f;
        x[i] = v;
    }
}

extern "C" __global__ void nothing() {}
