//! Name and marks of the file of an emulated machine.

/// Environment variable that names the file.
pub const VARIABLE: &str = "RADRM_EMULATED_MACHINE";
/// First word of the file, in its machine's byte order: "RADRMEMU".
pub const MAGIC: u64 = u64::from_le_bytes(*b"RADRMEMU");
/// Size of the file.
pub const BYTES: u64 = 104_288_256;
