//! A connection to the daemon.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use radrm_console::output::reason as words;

use crate::socket;
use crate::wire::{self, Request, Response};

/// A daemon that says nothing for so long is stuck.
const PATIENCE: Duration = Duration::from_secs(60);

/// Why there is no answer, in one sentence.
#[derive(Debug)]
pub enum Unanswered {
    /// The daemon does not do it.
    Refused(String),
    /// It cannot be heard: it may be on its way back.
    Lost(String),
}

impl From<Unanswered> for String {
    fn from(why: Unanswered) -> Self {
        match why {
            Unanswered::Refused(sentence) | Unanswered::Lost(sentence) => sentence,
        }
    }
}

/// A connection.
#[derive(Debug)]
pub struct Connection {
    stream: UnixStream,
}

impl Connection {
    /// To the daemon that is named, or to the first that answers.
    ///
    /// # Errors
    /// One sentence: no daemon answers.
    pub fn open(named: Option<&Path>) -> Result<Self, String> {
        let sockets = socket::sockets(named);
        let mut reason = String::new();
        for socket in &sockets {
            match UnixStream::connect(socket) {
                Ok(mut stream) => {
                    let _ = stream.set_read_timeout(Some(PATIENCE));
                    wire::greet(&mut stream)?;
                    return Ok(Self { stream });
                }
                Err(error) => {
                    reason = format!("{}: {}", socket.display(), words(&error));
                }
            }
        }
        Err(format!("no radrmd answers ({reason}); start radrmd, or name its socket with --socket"))
    }

    /// Asks; a refusal is an error.
    ///
    /// # Errors
    /// [`Unanswered`].
    pub fn ask(&mut self, request: &Request) -> Result<Response, Unanswered> {
        wire::write(&mut self.stream, request).map_err(broken)?;
        self.more()
    }

    /// What comes next of an answer in parts.
    ///
    /// # Errors
    /// [`Unanswered`].
    pub fn more(&mut self) -> Result<Response, Unanswered> {
        match wire::read(&mut self.stream).map_err(broken)? {
            Some(Response::Refused(sentence)) => Err(Unanswered::Refused(sentence)),
            Some(response) => Ok(response),
            None => Err(Unanswered::Lost("radrmd closed the connection".to_owned())),
        }
    }

    /// Asks for something to be done.
    ///
    /// # Errors
    /// One sentence: the daemon does not do it, or does not answer.
    pub fn done(&mut self, request: &Request) -> Result<(), String> {
        match self.ask(request)? {
            Response::Done => Ok(()),
            other => Err(odd(&other)),
        }
    }
}

fn broken(error: std::io::Error) -> Unanswered {
    Unanswered::Lost(format!("radrmd does not answer: {}", words(&error)))
}

/// An answer that does not belong to its request.
#[must_use]
pub fn odd(response: &Response) -> String {
    match response {
        Response::Refused(sentence) => sentence.clone(),
        _ => "radrmd gave an answer to another question".to_owned(),
    }
}
