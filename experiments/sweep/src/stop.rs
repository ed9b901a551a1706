//! Signals that ask a sweep to end.

use std::cell::Cell;
use std::io::Read;
use std::os::unix::net::UnixStream;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::error::SweepError;

/// Counter of signals that request the end.
#[derive(Debug, Default)]
pub struct Stop {
    /// Has a byte for each signal.
    signals: Option<UnixStream>,
    seen: Cell<usize>,
}

impl Stop {
    /// One that SIGINT, SIGTERM and SIGHUP ask.
    ///
    /// # Errors
    /// [`SweepError::Signals`].
    pub fn by_signals() -> Result<Self, SweepError> {
        let register = || {
            let (reader, writer) = UnixStream::pair()?;
            reader.set_nonblocking(true)?;
            for signal in [SIGINT, SIGTERM, SIGHUP] {
                signal_hook::low_level::pipe::register(signal, writer.try_clone()?)?;
            }
            Ok(reader)
        };
        Ok(Self { signals: Some(register().map_err(SweepError::Signals)?), seen: Cell::new(0) })
    }

    /// One that was asked once.
    #[cfg(test)]
    pub(crate) fn asked() -> Self {
        Self { signals: None, seen: Cell::new(1) }
    }

    pub(crate) fn count(&self) -> usize {
        let mut bytes = [0; 16];
        let new = self.signals.as_ref().and_then(|mut signals| signals.read(&mut bytes).ok()).unwrap_or(0);
        self.seen.set(self.seen.get() + new);
        self.seen.get()
    }
}
