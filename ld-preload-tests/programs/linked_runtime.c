// A library with the CUDA runtime linked into it, as some packages bring it: takes a mebibyte of device memory.

int cudaMalloc(void **memory, unsigned long bytes);

int take_a_mebibyte(void) {
    void *memory = 0;
    return cudaMalloc(&memory, 1 << 20);
}
