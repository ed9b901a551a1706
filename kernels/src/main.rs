//! CUDA C kernels and the program that runs them.
fn main() {}
