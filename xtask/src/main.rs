//! Developer commands: demo, test, bench, tidy.
fn main() {}
