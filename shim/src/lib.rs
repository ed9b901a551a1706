//! The preloaded library that observes the CUDA driver calls of a program.
