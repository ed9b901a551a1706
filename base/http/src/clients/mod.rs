//! Room that a server gives to its clients, so that one user's connections leave room for others: shares of its room by user,
//! and a deadline for all that is read or written.

mod deadline;
mod owner;
mod room;

pub use deadline::Until;
pub use owner::owner;
pub use room::{Bounds, Full, Room, Share, User};
