//! A CUDA driver whose every call returns at once: the floor under benchmarks.
