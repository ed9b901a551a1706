//! The programs radrm-run and radrm.
fn main() {}
