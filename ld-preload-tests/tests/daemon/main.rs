//! `radrmd` with real processes under the shim on emulated GPUs.

mod bounds;
mod disk;
mod harm;
mod host;
mod idle;
mod jobs;
mod known;
mod live_trace;
mod load;
mod restart;
mod suspend;
