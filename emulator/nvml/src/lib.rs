//! Emulated NVML (libnvidia-ml.so.1).
