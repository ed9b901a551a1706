//! A CUDA driver whose every call returns at once: the floor under benchmarks.
//!
//! Every entry point of the table is exported. Those whose results a program or an interposer
//! depends on are written by hand in [`entry`], [`memory`] and [`code`]; all others are generated
//! and return success without looking at anything. Nothing is checked and nothing is kept that a
//! benchmark does not need: this library says nothing about correctness.
// The entry points are documented by NVIDIA under these very names.
#![allow(non_snake_case, missing_docs, clippy::missing_safety_doc, clippy::too_many_arguments)]

pub mod code;
pub mod entry;
pub mod generated;
pub mod memory;
