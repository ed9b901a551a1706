//! The emulated machine: GPUs, memory, processes and clocks shared by all programs that use it.
