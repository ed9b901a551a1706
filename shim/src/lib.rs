//! The preloaded library that observes the CUDA driver calls of a program.
//!
//! Way of a call: a generated shell ([`entries`]) finds the real function ([`resolve`]), checks that
//! the process has joined its job's segment ([`state`]), and runs the logic that `hooks.tsv` names
//! around the real call. Where anything is missing the real function is called and nothing else
//! happens.
//!
//! No constructor runs, nothing is printed, and no hook takes a lock, allocates from the program's
//! allocator or keeps a thread-local that has a destructor.
#![allow(non_snake_case)]

#[cfg(target_arch = "x86_64")]
#[macro_use]
mod launch_shell;

mod abi_traits;
mod arena;
mod bytes;
mod capture;
mod context;
mod copies;
mod cx;
mod driver;
mod entries;
mod environ;
mod errno;
mod frameworks;
mod graph;
mod init;
mod kernels;
mod launch;
mod map;
mod memory;
mod mode;
mod module;
mod nvml;
mod passive;
mod quota;
#[cfg_attr(test, allow(dead_code, reason = "only exported functions need it, and a test exports none"))]
mod ranges;
mod resolve;
mod sanitizers;
mod shell;
mod shells;
mod stacks;
mod start;
mod state;
mod telemetry;
mod thread;
mod throttle;
mod tls;
mod unjoined;
#[cfg(not(test))]
mod unprinted;
#[cfg(not(test))]
mod unwind;
mod wiped;
