//! Streams and virtual time, events, capture.

pub mod ask;
pub mod capture;
pub mod clock;
pub mod event;
pub mod memops;
pub mod offer;
pub mod op;
pub mod queue;
pub mod state;
pub mod sync;
