//! A connection to the daemon.

use std::fs::File;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use radrm_base::reason;

use crate::ProtocolError;
use crate::descriptor;
use crate::job_ref::JobRef;
use crate::socket;
use crate::wire::{self, JobRow, Request, Response};

/// A daemon that says nothing for so long is stuck. One that works on a request says so more often.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A list of jobs.
#[derive(Debug, Default)]
pub struct JobList {
    /// Rows, in the order of the list.
    pub rows: Vec<JobRow>,
    /// Number of waiting jobs beyond these.
    pub left_out: u64,
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
    /// No daemon answers.
    pub fn open(named: Option<&Path>) -> Result<Self, ProtocolError> {
        let sockets = socket::sockets(named);
        let mut why = String::new();
        for socket in &sockets {
            match UnixStream::connect(socket) {
                Ok(mut stream) => {
                    let _ = stream.set_read_timeout(Some(TIMEOUT));
                    wire::greet(&mut stream)?;
                    return Ok(Self { stream });
                }
                Err(error) => {
                    why = format!("{}: {}", socket.display(), reason(&error));
                }
            }
        }
        Err(ProtocolError::NoDaemon(why))
    }

    /// Sends a request and returns the answer, also where that takes long.
    ///
    /// # Errors
    /// The daemon rejects it, or does not answer.
    pub fn ask(&mut self, request: &Request) -> Result<Response, ProtocolError> {
        let sent = wire::write(&mut self.stream, request);
        match (sent, self.answer(request)) {
            // A daemon that has no room for the connection says so and closes it, whatever is sent.
            (_, Err(error @ (ProtocolError::Later(_) | ProtocolError::Refused(_)))) => Err(error),
            (Err(error), _) => Err(broken(error)),
            (Ok(()), answer) => answer,
        }
    }

    fn answer(&mut self, request: &Request) -> Result<Response, ProtocolError> {
        loop {
            match self.more()? {
                Response::Working if request.may_take_long() => {}
                response => return Ok(response),
            }
        }
    }

    /// Reads the next part of an answer in parts.
    ///
    /// # Errors
    /// As [`Connection::ask`].
    pub fn more(&mut self) -> Result<Response, ProtocolError> {
        match wire::read(&mut self.stream).map_err(broken)? {
            Some(response @ (Response::Refused(_) | Response::Later(_))) => Err(odd(&response)),
            Some(response) => Ok(response),
            None => Err(ProtocolError::Closed),
        }
    }

    /// Lists jobs, those that wait in the order of the queue: `ended` newest ones that are over, then those that are not.
    ///
    /// # Errors
    /// As [`Connection::ask`].
    pub fn jobs(&mut self, all: bool, ended: u32) -> Result<Vec<JobRow>, ProtocolError> {
        Ok(self.list(&Request::Queue { all, ended, merge: false, first: 0 })?.rows)
    }

    /// Lists jobs with one row for all jobs of an array that wait, and at most `first` rows of waiting jobs; 0: all.
    ///
    /// # Errors
    /// As [`Connection::ask`].
    pub fn merged_jobs(&mut self, all: bool, ended: u32, first: u32) -> Result<JobList, ProtocolError> {
        self.list(&Request::Queue { all, ended, merge: true, first })
    }

    fn list(&mut self, request: &Request) -> Result<JobList, ProtocolError> {
        let mut list = JobList::default();
        let mut answer = self.ask(request)?;
        loop {
            match answer {
                Response::Part(rows) => list.rows.extend(rows),
                Response::LeftOut(jobs) => list.left_out = jobs,
                Response::Jobs(rows) => {
                    list.rows.extend(rows);
                    return Ok(list);
                }
                other => return Err(odd(&other)),
            }
            answer = self.more()?;
        }
    }

    /// Opens the file with a job's output through the daemon, or its standard error where that is a file of its own;
    /// `None`: there is no file yet.
    ///
    /// # Errors
    /// As [`Connection::ask`].
    pub fn output(&mut self, job: JobRef, error: bool) -> Result<Option<File>, ProtocolError> {
        match self.ask(&Request::Output { job, error })? {
            Response::Output { is_there: true } => {
                descriptor::receive(&self.stream).map(|file| Some(file.into())).map_err(broken)
            }
            Response::Output { is_there: false } => Ok(None),
            other => Err(odd(&other)),
        }
    }

    /// Sends a request whose answer has no data.
    ///
    /// # Errors
    /// As [`Connection::ask`].
    pub fn done(&mut self, request: &Request) -> Result<(), ProtocolError> {
        match self.ask(request)? {
            Response::Done => Ok(()),
            other => Err(odd(&other)),
        }
    }
}

fn broken(error: std::io::Error) -> ProtocolError {
    ProtocolError::Broken(reason(&error))
}

/// The error of an answer that does not belong to its request, as a refusal does not.
#[must_use]
pub fn odd(response: &Response) -> ProtocolError {
    match response {
        Response::Refused(sentence) => ProtocolError::Refused(sentence.clone()),
        Response::Later(sentence) => ProtocolError::Later(sentence.clone()),
        _ => ProtocolError::OddAnswer,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A connection to a daemon that has sent these answers.
    fn connection(answers: &[Response]) -> (Connection, UnixStream) {
        let (stream, mut daemon) = UnixStream::pair().unwrap();
        for answer in answers {
            wire::write(&mut daemon, answer).unwrap();
        }
        (Connection { stream }, daemon)
    }

    #[test]
    fn a_cancel_is_waited_for_while_the_daemon_works_on_it_and_other_answers_are_not() {
        let answers = [Response::Working, Response::Working, Response::Done];
        let (mut to, _daemon) = connection(&answers);
        assert!(to.done(&Request::Cancel { jobs: Vec::new() }).is_ok());
        let (mut to, _daemon) = connection(&answers);
        let unanswered = to.done(&Request::Unreserve { number: 1 });
        assert!(matches!(unanswered, Err(ProtocolError::OddAnswer)), "{unanswered:?}");
        let refused = [Response::Working, Response::Refused("why".into())];
        let (mut to, _daemon) = connection(&refused);
        let refusal = to.done(&Request::Hold { jobs: Vec::new(), held: true });
        assert!(matches!(&refusal, Err(ProtocolError::Refused(why)) if why == "why"), "{refusal:?}");
    }
}
