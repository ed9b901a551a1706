//! The profile file: append-only frames, readable after a crash.
//!
//! A profile is what one job left behind: who ran, what it asked of every GPU
//! over time, which kernels it launched, and how it ended. The file is a
//! 16-byte head and then frames (see [`frame`]); every frame is written whole,
//! by one call, and never touched again, so a crash at any byte loses at most
//! the frame that was being written.
//!
//! * [`model`] holds the figures, with their units in the types.
//! * [`Writer`] appends [`Record`]s to a file.
//! * [`Profile::open`] reads a file back, [`Profile::apply`] is the one place
//!   where records become a profile: the running job and the reader of a file
//!   use the same code.
//! * `codec` is the only module that knows the serialisation library.

pub mod error;
pub mod findings;
pub mod frame;
pub mod model;
pub mod name;
pub mod peak;
pub mod steps;
pub use radrm_base::units;

mod bounds;
mod budget;
mod codec;
mod life;
mod merge;
mod reader;
mod record;
mod refusals;
mod writer;

pub use error::{ReadError, WriteError};
pub use model::{Note, Profile};
pub use reader::{MAX_TIME_OF_OTHERS, is_being_written, peek_job, read_bytes};
pub use record::{
    FORMAT_VERSION, KernelCounters, KernelDefinition, ProcessDelta, Record, State, TimelineChunk,
};
pub use units::{Bytes, Nanos};
pub use writer::Writer;
