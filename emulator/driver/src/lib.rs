//! Emulated CUDA driver (libcuda.so.1).
