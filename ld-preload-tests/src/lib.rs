//! Base of the conformance tests and the benchmarks: building the C programs, finding the libraries under test,
//! running programs under a watchdog, and comparing the shim's figures with the emulator's ledger.
//!
//! * [`bench`]: the benchmarks behind `bench/RESULTS.md`.
//! * [`artifacts`]: the libraries and programs of this workspace, built when asked for.
//! * [`browser`]: a browser that loads a page, runs what a test asks in it, and takes pictures.
//! * [`faults`]: system calls that fail when a test says so.
//! * [`genuine`]: NVIDIA's own driver, where it has been fetched.
//! * [`groups`]: control groups.
//! * [`header`] and [`programs`]: the C header made from the table, and the C programs.
//! * [`peers`]: other projects' test suites, run with and without the shim.
//! * [`python`]: the interpreter that clients from PyPI run in.
//! * [`child`]: processes that cannot outlive their watchdog.
//! * [`rig`]: one emulated machine (or the instant driver), one segment, and the environment that
//!   joins a program to both.
//! * [`rights`]: the tables of files in `docs/security.md`, beside a running system.
//! * [`node`]: a node daemon, and its clients.
//! * [`slurm`]: a Slurm of one node.
//! * [`measured`]: where, when and of what a table was made.
//! * [`random`]: numbers that a seed repeats.
//! * [`figures`]: the shim's figures beside the emulator's.

pub mod artifacts;
pub mod bench;
pub mod browser;
pub mod child;
pub mod faults;
pub mod figures;
pub mod genuine;
pub mod groups;
pub mod header;
pub mod measured;
pub mod node;
pub mod peers;
pub mod programs;
pub mod python;
pub mod random;
pub mod rig;
pub mod rights;
pub mod slurm;
