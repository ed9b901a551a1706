// The kernels that `radrm-kernels` runs. `ptx/kernels.ptx` is made of this file, for machines without
// NVRTC; its first lines say how.

// One element per thread: over blocks x threads the micro-benchmark for SM activity and occupancy.
// 1 operation for 8 bytes moved.
extern "C" __global__ void square(float *x, unsigned int n) {
    unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = x[i] * x[i];
}

// Memory-bound: 2 operations for 12 bytes moved.
extern "C" __global__ void triad(float *a, const float *b, const float *c, unsigned int n) {
    unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) a[i] = b[i] * 3.0f + c[i];
}

// Compute-bound: 2 * rounds operations for 8 bytes moved. Ends near 2 from wherever it begins, and takes as
// long for one block as for one on every multiprocessor: time that is known in advance.
extern "C" __global__ void spin(float *x, unsigned int n, unsigned int rounds) {
    unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float v = x[i];
        for (unsigned int r = 0; r < rounds; r++) v = v * 0.5f + 1.0f;
        x[i] = v;
    }
}

// What a launch costs by itself.
extern "C" __global__ void nothing() {}

// Counts how often it ran: 1 operation for 8 bytes moved.
extern "C" __global__ void increment(float *x, unsigned int n) {
    unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = x[i] + 1.0f;
}

// A training step in small, for w in y = w x: forward, backward, update with momentum.
extern "C" __global__ void forward(float *y, const float *w, const float *x, unsigned int n) {
    unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = w[i] * x[i];
}

extern "C" __global__ void backward(float *g, const float *y, const float *t, const float *x, unsigned int n) {
    unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) g[i] = (y[i] - t[i]) * x[i];
}

extern "C" __global__ void update(float *w, float *m, const float *g, unsigned int n, float rate) {
    unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        m[i] = m[i] * 0.5f + g[i];
        w[i] = w[i] - rate * m[i];
    }
}
