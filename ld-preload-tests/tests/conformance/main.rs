//! Programs, libraries and Python clients under the shim behave as without it.

mod cases;
mod clients;
mod clocks;
mod documents;
mod floors;
mod genuine;
mod gpu_bundle;
mod harness;
mod hosts;
mod lost;
mod monitors;
mod packages;
mod peers;
mod regressions;
mod resolver;
mod sanitizers;
