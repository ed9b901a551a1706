//! Dry runs of unmodified PyTorch programs.

mod cards;
mod choices;
mod corrected;
mod ended;
mod exact;
mod files;
mod genuine;
mod growth;
mod harness;
mod order;
mod others;
mod phases;
mod pytorch;
mod ranks;
mod repeat;
mod tensors;
mod values;
mod verdicts;
mod work;
