//! Pointers as C callers hand them over: those of [`radrm_emulator_ffi`].

pub use radrm_emulator_ffi::{Answer, In, Out, Text, set_text};
