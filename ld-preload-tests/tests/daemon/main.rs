//! `radrmd` with real processes under the shim on emulated GPUs.

mod arrays;
mod background;
mod bounds;
mod disk;
mod early;
mod ends;
mod fence;
mod gpus;
mod harm;
mod hooks;
mod host;
mod host_limits;
mod hostile_names;
mod idle;
mod jobs;
mod kills;
mod known;
mod live_trace;
mod load;
mod mps;
mod one_need;
mod own_gpus;
mod restart;
mod room;
mod suspend;
mod usage;
