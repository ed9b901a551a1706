//! What `radrm` and `radrmd` say to each other, and over which socket.

pub mod connection;
pub mod socket;
pub mod spec;
pub mod wire;
