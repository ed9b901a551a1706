//! Link options of the programs.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Every program that is recorded waits for the start of radrm-run. Linked for one address, its tables of pointers are
    // complete in the file: the loader would otherwise write each of some hundred pages, and the kernel copy it. The other
    // programs, which listen on sockets, keep addresses that differ from run to run.
    println!("cargo::rustc-link-arg-bin=radrm-run=-no-pie");
}
