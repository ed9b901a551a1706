//! Check that the processes of a job really are clients of MPS.
//!
//! A process that does not find the control daemon runs without MPS and says nothing; so does one
//! that dropped the variable which names the pipe directory.

use std::collections::HashSet;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;
use std::time::{Duration, Instant};

use radrm_telemetry::{Liveness, Segment};

use super::control::Control;

/// After its first allocation a process has long connected.
const SETTLED: Duration = Duration::from_millis(500);

/// A check of the clients, once, after the job's first process has taken memory.
#[derive(Debug)]
pub struct Check {
    control: Control,
    since: Option<Instant>,
    answer: Option<Receiver<Option<Vec<u32>>>>,
    asked_about: Vec<u32>,
    done: bool,
}

impl Check {
    /// A check of this daemon's clients.
    #[must_use]
    pub fn new(control: Control) -> Self {
        Self { control, since: None, answer: None, asked_about: Vec::new(), done: false }
    }

    /// Checks; gives a sentence when there is something to say. Never waits: the daemon is asked on a
    /// thread.
    pub fn poll(&mut self, segment: &Segment) -> Option<String> {
        if self.done {
            return None;
        }
        if let Some(answer) = &self.answer {
            let clients = match answer.try_recv() {
                Err(TryRecvError::Empty) => return None,
                Err(TryRecvError::Disconnected) => None,
                Ok(clients) => clients,
            };
            self.done = true;
            return self.judge(&clients?.into_iter().collect(), segment);
        }
        let holding = holding(segment);
        if holding.is_empty() {
            return None;
        }
        if self.since.get_or_insert_with(Instant::now).elapsed() < SETTLED {
            return None;
        }
        self.asked_about = holding;
        let (to, answer) = channel();
        let control = self.control.clone();
        let ask = move || to.send(control.clients().ok());
        self.done = thread::Builder::new().name("radrm-mps".into()).spawn(ask).is_err();
        self.answer = Some(answer);
        None
    }

    fn judge(&self, clients: &HashSet<u32>, segment: &Segment) -> Option<String> {
        // Only those that held memory before the question and still do after the answer.
        let still = holding(segment);
        let mut unmanaged =
            self.asked_about.iter().filter(|pid| still.contains(pid) && !clients.contains(pid));
        let first = unmanaged.next()?;
        let more = match unmanaged.count() {
            0 => String::new(),
            1 => " and 1 more process".to_owned(),
            count => format!(" and {count} more processes"),
        };
        Some(format!(
            "process {first}{more} of this job uses a GPU without being a client of MPS: neither its share of the GPU nor MPS's limits hold for it"
        ))
    }
}

/// Living processes of the job that hold memory.
fn holding(segment: &Segment) -> Vec<u32> {
    let slots = segment.slots().unwrap_or_default();
    let living = slots.iter().filter(|slot| slot.liveness == Liveness::Running);
    living
        .filter(|slot| segment.totals(slot).is_ok_and(|totals| !totals.is_empty()))
        .filter_map(|slot| slot.pid)
        .collect()
}
