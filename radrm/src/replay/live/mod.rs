//! `radrm replay --live`: sends the jobs of a trace to radrmd at their times, and prints what came out.

mod outcome;
mod plan;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use radrm_protocol::after::After;
use radrm_protocol::connection::{Connection, odd};
use radrm_protocol::job_ref::JobRef;
use radrm_protocol::wire::{JobRow, NodeRow, Request, Response};
use radrm_text::Untrusted;
use radrm_text::output::say;

use super::Flags;
use super::error::ReplayError;
use crate::error::UsageError;
use crate::{Failure, NAME, print};
use outcome::{Gpus, Played};
use plan::Planned;

/// Time between two looks at the queue.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Plays one trace.
pub(super) fn run(order: &Flags, socket: Option<&Path>) -> Result<(), Failure> {
    let [path] = &order.traces[..] else { return Err(UsageError::OneTrace.into()) };
    let mut player = Player {
        socket,
        connection: Connection::open(socket)?,
        gpus: Gpus::default(),
        numbers: BTreeMap::new(),
        refused: BTreeMap::new(),
    };
    let node = player.node()?;
    let plan = plan::of(path, order, node.gpus.len())?;
    let begun = Instant::now();
    for (place, planned) in plan.jobs.iter().enumerate() {
        let at = Duration::from_secs_f64(planned.at.as_secs_f64() / order.speed);
        while let Some(rest) = at.checked_sub(begun.elapsed()).filter(|rest| !rest.is_zero()) {
            thread::sleep(rest.min(POLL_INTERVAL));
            player.look()?;
        }
        player.submit(place, planned)?;
    }
    player.wait()?;
    let rows = player.rows()?;
    let played =
        Played { plan: &plan, node: &node, rows: &rows, refused: &player.refused, gpus: &player.gpus, order };
    print(&if order.json { played.json() } else { played.table() })
}

/// The jobs that were sent, and the daemon that has them.
struct Player<'a> {
    socket: Option<&'a Path>,
    connection: Connection,
    gpus: Gpus,
    /// Number of each job that was taken, by its place in the plan.
    numbers: BTreeMap<usize, u64>,
    /// Number of jobs that were not taken, by reason.
    refused: BTreeMap<String, usize>,
}

impl Player<'_> {
    fn node(&mut self) -> Result<NodeRow, Failure> {
        match self.connection.ask(&Request::Nodes)? {
            Response::Nodes(node) => Ok(*node),
            other => Err(odd(&other).into()),
        }
    }

    /// Takes note of what the GPUs do; a daemon that restarts meanwhile is waited for.
    fn look(&mut self) -> Result<(), Failure> {
        match self.connection.ask(&Request::Nodes) {
            Ok(Response::Nodes(node)) => self.gpus.add(&node),
            Ok(other) => return Err(odd(&other).into()),
            Err(why) if why.is_lost() => self.reconnect(),
            Err(why) => return Err(why.into()),
        }
        Ok(())
    }

    fn reconnect(&mut self) {
        thread::sleep(POLL_INTERVAL);
        if let Ok(again) = Connection::open(self.socket) {
            self.connection = again;
        }
    }

    /// Sends a job. One that the daemon rejects is counted, and those that wait for it are not sent.
    fn submit(&mut self, place: usize, planned: &Planned) -> Result<(), Failure> {
        let mut spec = planned.spec.clone();
        for (condition, other) in &planned.after {
            let Some(number) = self.numbers.get(other) else {
                self.refuse(&planned.spec.name, "it was to start after a job that was not submitted");
                return Ok(());
            };
            spec.after.push(After { condition: *condition, job: JobRef::from(*number), jobs: None });
        }
        match self.connection.ask(&Request::Submit(Box::new(spec))) {
            Ok(Response::Submitted { job, .. }) => {
                self.numbers.insert(place, job);
            }
            Ok(other) => return Err(odd(&other).into()),
            // It may have been taken or not: nothing can be said of this trace any more.
            Err(why) if why.is_lost() => {
                return Err(ReplayError::LostAt { name: planned.spec.name.clone(), why }.into());
            }
            Err(why) => self.refuse(&planned.spec.name, &why.to_string()),
        }
        Ok(())
    }

    fn refuse(&mut self, name: &Untrusted, why: &str) {
        say(NAME, &format!("{name} is not submitted: {why}"));
        *self.refused.entry(why.to_owned()).or_default() += 1;
    }

    /// Waits until all jobs have ended.
    fn wait(&mut self) -> Result<(), Failure> {
        loop {
            self.look()?;
            let open: BTreeSet<u64> = match self.connection.jobs(false, 0) {
                Ok(rows) => rows.into_iter().map(|row| row.job).collect(),
                Err(why) if why.is_lost() => {
                    self.reconnect();
                    continue;
                }
                Err(why) => return Err(why.into()),
            };
            if self.numbers.values().all(|job| !open.contains(job)) {
                return Ok(());
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Rows that the daemon keeps of the jobs, by their place in the plan.
    fn rows(&mut self) -> Result<BTreeMap<usize, JobRow>, Failure> {
        let mut rows = BTreeMap::new();
        for (place, job) in &self.numbers {
            match self.connection.ask(&Request::Show { job: (*job).into() })? {
                Response::Job(row, _) => rows.insert(*place, *row),
                other => return Err(odd(&other).into()),
            };
        }
        Ok(rows)
    }
}
