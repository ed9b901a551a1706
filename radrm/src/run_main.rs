//! radrm-run.
fn main() {}
