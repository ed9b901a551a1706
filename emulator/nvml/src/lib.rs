//! Emulated NVML (`libnvidia-ml.so.1`).
//!
//! Answers from the ledgers of the emulated machine that `RADRM_EMULATED_MACHINE` names: memory is what
//! living processes are charged for, contexts included; utilisation follows the modelled time of their
//! kernels; power, temperature and clocks follow utilisation by the simple formulas of [`model`].
//!
//! | module | is |
//! |---|---|
//! | [`api`] | results, pointers, the shape of every entry point |
//! | [`state`] | the machine, from `nvmlInit` to `nvmlShutdown` |
//! | [`model`] | formulas behind the figures |
//! | [`system`] | entry points that concern no device |
//! | [`device`] | what a device is |
//! | [`memory`], [`processes`] | memory of a device, and who has it |
//! | [`activity`] | utilisation, clocks, power, temperature |
//! | [`gpm`] | GPM metrics |
//! | [`monitor`], [`events`] | what else monitors ask for, and events |
//! | [`table`] | the functions that answer a constant, or that they are not supported |
//! | [`mig`], [`fabric`], [`fields`] | MIG, links and topology, field values |
//!
//! Every function of the genuine library exists; those that no module writes are rows of `data/functions.tsv`.
#![warn(missing_docs)]
#![allow(non_snake_case)]

#[macro_use]
pub mod api;

pub mod activity;
pub mod device;
pub mod events;
pub mod fabric;
pub mod fields;
pub mod gpm;
pub mod memory;
pub mod mig;
pub mod model;
pub mod monitor;
pub mod processes;
pub mod state;
pub mod system;
pub mod table;
