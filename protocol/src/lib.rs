//! What `radrm` and `radrmd` say to each other, and over which socket.

pub mod after;
pub mod array;
pub mod connection;
pub mod job_ref;
pub mod socket;
pub mod spec;
pub mod stats;
pub mod wire;
pub mod words;
