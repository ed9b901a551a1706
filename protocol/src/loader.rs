//! Loaders that several jobs share (`radrm.share`).

use serde::{Deserialize, Serialize};

use crate::ProtocolError;

/// Bytes of a name: what `radrm.share` takes.
const MAX_LOADER_NAME: usize = 64;

/// The loader that a job loads from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Loader {
    /// The name of its producer.
    pub name: String,
    /// Program and arguments of the producer, as [`crate::words::encode`] writes them. Without it radrmd starts none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// The job is the producer, which the daemon submits itself.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_producer: bool,
}

impl Loader {
    /// Checks it, as a client may send it.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check(&self) -> Result<(), ProtocolError> {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let sound = (1..=MAX_LOADER_NAME).contains(&self.name.len())
            && self.name.bytes().all(fits)
            && !self.name.starts_with('.');
        if !sound {
            return Err(ProtocolError::LoaderName(self.name.clone()));
        }
        if self.is_producer {
            return Err(ProtocolError::ProducerByClient);
        }
        match self.command.first() {
            Some(program) if program.is_empty() => Err(ProtocolError::NoCommand),
            _ => Ok(()),
        }
    }
}
