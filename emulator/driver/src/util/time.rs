//! The clock of the host.

pub use radrm_emulator_machine::monotonic_ns;
