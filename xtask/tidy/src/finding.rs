//! Findings of checks.

/// Something that breaks a convention: one line, with the place.
pub type Finding = String;
