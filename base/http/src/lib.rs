//! Servers for clients of this machine: room by user, deadlines, and HTTP with one answer a connection.
//!
//! `httparse` reads requests. The bounds are here: clients at once, bytes and headers of a request, and one deadline each
//! for a whole request and for its answer. A client that is slow, or sends what is not a request, loses its connection; the
//! server goes on. Servers of other protocols use [`clients`] alone.

pub mod clients;
mod connection;
mod message;

pub use connection::{Bounds, Server};
pub use message::{Answer, Header, Request};
