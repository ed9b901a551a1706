//! Prints the C header that the programs in `programs/` are compiled with, for machines without Rust.

fn main() {
    print!("{}", radrm_preload_tests::header::text());
}
