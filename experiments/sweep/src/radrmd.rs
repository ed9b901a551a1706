//! The way to radrmd.

use std::error::Error;
use std::path::Path;

use radrm_protocol::ProtocolError;
use radrm_protocol::connection::{Connection, odd};
use radrm_protocol::spec::Spec;
use radrm_protocol::together::Member;
use radrm_protocol::wire::{JobRow, Request, Response};

use crate::error::SweepError;
use crate::job;
use crate::plan::{Collocation, Run};

/// Connects to the daemon.
pub type Connect<'s> = dyn Fn() -> Result<Connection, ProtocolError> + 's;

/// Makes a run's job, with a path for what a profiler writes. The sweep adds the name and the output.
pub type Specify<'s> = dyn Fn(&Run, &Path) -> Result<Spec, Box<dyn Error>> + 's;

/// Connection of a sweep to radrmd.
pub struct Radrmd<'s> {
    connect: Box<Connect<'s>>,
    specify: Box<Specify<'s>>,
    /// Runs that are to be started become jobs. If not, only jobs of an earlier call are waited for.
    pub(crate) takes_runs: bool,
    /// The models of its GPUs, MIG instances among them, where they were asked for.
    models: Vec<String>,
    /// A lost one is opened again by the next request.
    connection: Option<Connection>,
}

impl<'s> Radrmd<'s> {
    /// A way that is not gone yet. `takes_runs`: runs that are to be started become jobs.
    #[must_use]
    pub fn new(connect: Box<Connect<'s>>, specify: Box<Specify<'s>>, takes_runs: bool) -> Self {
        Self { connect, specify, takes_runs, models: Vec::new(), connection: None }
    }

    /// The job of a run.
    pub(crate) fn specify(&self, run: &Run, profiler: &Path) -> Result<Spec, SweepError> {
        let spec = (self.specify)(run, profiler);
        let spec = spec.map_err(|why| SweepError::Specification { run: run.name.clone(), why })?;
        Ok(match &run.collocation {
            Collocation::Mig(profile) => {
                Spec { model: job::mig_model(profile, &self.models).cloned(), ..spec }
            }
            _ => spec,
        })
    }

    /// Asks for the models of its GPUs.
    pub(crate) fn find_models(&mut self) -> Result<(), ProtocolError> {
        match self.with(|connection| connection.ask(&Request::Nodes))? {
            Response::Nodes(node) => {
                self.models = node.gpus.into_iter().map(|gpu| gpu.model).collect();
                Ok(())
            }
            other => Err(odd(&other)),
        }
    }

    pub(crate) fn models(&self) -> &[String] {
        &self.models
    }

    /// The user's jobs that are not over.
    pub(crate) fn open_jobs(&mut self) -> Result<Vec<JobRow>, ProtocolError> {
        self.with(|connection| connection.jobs(false, 0))
    }

    /// A job; `None` if the user has none of this number.
    pub(crate) fn job(&mut self, job: u64) -> Result<Option<JobRow>, ProtocolError> {
        match self.with(|connection| connection.ask(&Request::Show { job: job.into() })) {
            Ok(Response::Job(row, _)) => Ok(Some(*row)),
            Ok(other) => Err(odd(&other)),
            Err(ProtocolError::Refused(_)) => Ok(None),
            Err(why) => Err(why),
        }
    }

    /// Submits a job, or jobs that start together at these sites. Gives the number of the first, which those of the others
    /// follow, and what their user had better know of them. An error that is [`ProtocolError::is_lost`] leaves open
    /// whether they were submitted.
    pub(crate) fn submit(
        &mut self,
        mut specs: Vec<Spec>,
        sites: &[u32],
    ) -> Result<(u64, Vec<String>), ProtocolError> {
        let request = match (specs.pop(), specs.is_empty()) {
            (Some(spec), true) => Request::Submit(Box::new(spec)),
            (last, _) => {
                let specs = specs.into_iter().chain(last).zip(sites);
                Request::SubmitTogether(specs.map(|(spec, site)| Member { spec, site: *site }).collect())
            }
        };
        match self.with(|connection| connection.ask(&request))? {
            Response::Submitted { job, remarks } => Ok((job, remarks)),
            other => Err(odd(&other)),
        }
    }

    /// Lets held jobs start; gives whether that was accepted. One that is over cannot be released.
    pub(crate) fn release(&mut self, jobs: &[u64]) -> Result<bool, ProtocolError> {
        self.try_change(&Request::Hold { jobs: jobs.iter().map(|job| (*job).into()).collect(), held: false })
    }

    /// Cancels jobs. One that is over stays as it ended, and does not keep the others from being cancelled; nor does one
    /// that radrmd has cancelled and cannot write down.
    pub(crate) fn cancel(&mut self, jobs: &[u64]) -> Result<(), ProtocolError> {
        // The last first: what is cancelled makes no room in which the next one starts.
        jobs.iter()
            .rev()
            .map(|job| self.try_change(&Request::Cancel { jobs: vec![(*job).into()] }))
            .filter(|answer| !matches!(answer, Err(ProtocolError::Later(_))))
            .try_for_each(|answer| answer.map(|_| ()))
    }

    /// Sends a request that is rejected for a job that is over; gives whether it was accepted.
    fn try_change(&mut self, request: &Request) -> Result<bool, ProtocolError> {
        match self.with(|connection| connection.done(request)) {
            Ok(()) => Ok(true),
            Err(ProtocolError::Refused(_)) => Ok(false),
            Err(why) => Err(why),
        }
    }

    fn with<T>(
        &mut self,
        ask: impl FnOnce(&mut Connection) -> Result<T, ProtocolError>,
    ) -> Result<T, ProtocolError> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            None => self.connection.insert((self.connect)()?),
        };
        let answer = ask(connection);
        if answer.as_ref().is_err_and(ProtocolError::is_lost) {
            self.connection = None;
        }
        answer
    }
}
