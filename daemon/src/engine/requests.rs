//! Answers to clients.

use std::collections::BTreeSet;
use std::sync::mpsc::Sender;

use radrm_protocol::job_ref::JobRef;
use radrm_protocol::limits::DrainRow;
use radrm_protocol::spec::Spec;
use radrm_protocol::wire::{JobRow, Line, Request, Response};
use radrm_scheduler_core::{Bytes, Event, Job, JobId, Reason, UserId};
use radrm_text::output::say;

use super::outbox::Note;
use super::submit::{Part, Taken};
use super::{Engine, arrays, needs};
use crate::error::DaemonError;
use crate::gpu_numbers::is_named;
use crate::message::{Listed, Listing};
use crate::peer::Peer;
use crate::reservations::check_reason;
use crate::store::{self, Entry, Stage};
use crate::user_limits::Named;

/// Beginning of the line of a job's history with the user who cancelled it.
const CANCELLED_BY: &str = "cancel requested by ";

impl Engine {
    /// Jobs that are to be written down: all of them, or none.
    pub(super) fn take_all(
        &self,
        peer: &Peer,
        specs: Vec<Spec>,
        others: &[(Taken, Sender<Response>)],
        now: u64,
    ) -> Result<Taken, DaemonError> {
        let of = specs.len();
        let mut all = Taken { by_admin: peer.admin, ..Taken::default() };
        for (at, spec) in (1..).zip(specs) {
            let before = others.iter().flat_map(|(taken, _)| taken.entries()).chain(all.entries());
            let part = self.take(peer, spec, before, now).map_err(|why| match of {
                1 => why,
                _ => DaemonError::Member { at, of, why: Box::new(why) },
            })?;
            all.parts.push(part);
        }
        if of > 1 {
            let assumed = self.config.scheduler.assumed;
            let jobs: Vec<Job> = all.entries().map(|entry| needs::job(entry, assumed)).collect();
            let answer = self.core.state.admission_together(&jobs);
            answer.map_err(|why| DaemonError::NeverTogether { jobs: of, why })?;
            self.core.state.allows_together(&jobs).map_err(DaemonError::NotAllowed)?;
        }
        Ok(all)
    }

    /// A job, or those of an array.
    fn take<'e>(
        &self,
        peer: &Peer,
        mut spec: Spec,
        others: impl Iterator<Item = &'e Entry>,
        now: u64,
    ) -> Result<Part, DaemonError> {
        let place = spec.together.take();
        // Only radrmd makes those.
        spec.dry_run.iter_mut().for_each(|run| run.background = false);
        self.check(peer, &spec)?;
        spec.together = place;
        self.find_dependencies(peer, &mut spec)?;
        let default_time = self.limit_time(peer.uid, &mut spec);
        let environment = std::mem::take(&mut spec.environment);
        let others = others.filter(|entry| entry.uid == peer.uid);
        let (before, others) =
            others.fold((0_u32, 0), |(jobs, bytes), entry| (jobs + 1, bytes + entry.bytes));
        let jobs = spec.array.as_ref().map_or(1, |array| u32::try_from(array.len()).unwrap_or(u32::MAX));
        let mut entry = Entry {
            uid: peer.uid,
            gid: peer.gid,
            user: peer.name.clone(),
            held: spec.held,
            spec,
            submitted_ms: now,
            ..Entry::default()
        };
        self.resolve_needs(&mut entry);
        entry.bytes = store::bytes(&entry.spec, &environment, entry.needs.as_ref());
        self.has_room(self.jobs.entries().bytes_of(peer.uid) + others, entry.bytes * u64::from(jobs))?;
        let job = Job { by_admin: peer.admin, ..needs::job(&entry, self.config.scheduler.assumed) };
        match self.core.state.admission(&job, before.saturating_add(jobs - 1)) {
            Ok(oversized) => {
                let no_gpu = (entry.spec.gpus > 0).then(|| self.node.gpus().waiting_for_one()).flatten();
                let bounded = self
                    .core
                    .state
                    .below_need(&job)
                    .map(|why| format!("{why}: the job gets that much, and may run out of memory"));
                // Where its user may never have so much, `radrm submit` states that limit: no GPU of its own helps.
                let quotas = self.core.state.allowance(UserId(peer.uid)).quotas;
                let limited: BTreeSet<_> = quotas.iter().map(|quota| quota.device).collect();
                let is_free = limited.is_empty() || limited.len() < self.node.gpus().list.len();
                let oversized = oversized.filter(|_| is_free);
                let remarks = oversized.iter().map(ToString::to_string).chain(no_gpu).chain(bounded);
                let remarks = remarks.chain(default_time).collect();
                Ok(Part { entries: arrays::split(entry), environment, remarks })
            }
            Err(reason) => Err(self.not_admitted(Box::new(reason), jobs)),
        }
    }

    fn not_admitted(&self, reason: Box<Reason>, jobs: u32) -> DaemonError {
        match *reason {
            Reason::Impossible { .. } => DaemonError::Impossible(reason),
            Reason::NotAllowed { why } => DaemonError::NotAllowed(why),
            _ if jobs > 1 => DaemonError::LargeArray { jobs, reason },
            _ => DaemonError::NotAdmitted(reason),
        }
    }

    /// A user cancels a job: the job's history has who it was, and the log too if it is another user's.
    pub(super) fn cancel_by(&mut self, job: u64, by: &str) {
        if let Some(entry) = self.jobs.entry(job).filter(|entry| !entry.cancelled) {
            let owner = entry.user.clone();
            self.remark(job, format!("{CANCELLED_BY}{by}"));
            if owner != by {
                say(crate::process::NAME, &format!("job {job} of {owner} is cancelled by {by}"));
            }
        }
        if let Some(entry) = self.jobs.entry_mut(job) {
            entry.cancelled_by.get_or_insert_with(|| by.to_owned());
        }
        self.cancel(job);
    }

    /// Name of the user who cancelled a job.
    pub(super) fn canceller(&self, job: u64) -> Option<String> {
        let entry = self.jobs.entry(job).filter(|entry| entry.cancelled)?;
        let written = || {
            let lines = self.outbox.store().history(job).unwrap_or_default();
            lines.iter().find_map(|line| line.text.raw().strip_prefix(CANCELLED_BY).map(str::to_owned))
        };
        entry.cancelled_by.clone().or_else(written)
    }

    pub(super) fn cancel(&mut self, job: u64) {
        if let Some(entry) = self.jobs.entry_mut(job) {
            if entry.stage == Stage::Ended {
                return;
            }
            entry.cancelled = true;
        }
        self.touch(job);
        self.step(Event::Cancelled { job: JobId(job) });
    }

    /// A user holds a job, or releases it.
    pub(super) fn hold(&mut self, job: u64, held: bool) {
        let id = JobId(job);
        let Some(entry) = self.jobs.entry_mut(job).filter(|entry| entry.held != held) else { return };
        entry.held = held;
        self.say(job, if held { "held".to_owned() } else { "released".to_owned() });
        self.step(if held { Event::Held { job: id } } else { Event::Released { job: id } });
    }

    fn check(&self, peer: &Peer, spec: &Spec) -> Result<(), DaemonError> {
        spec.check()?;
        let own = rustix::process::geteuid();
        if !own.is_root() && own.as_raw() != peer.uid {
            return Err(DaemonError::OtherUser);
        }
        if peer.name.is_empty() {
            return Err(DaemonError::NoAccount(peer.uid));
        }
        Ok(())
    }

    /// Checks that a user's jobs, which take `bytes` on disk, have room for `more` bytes.
    fn has_room(&self, bytes: u64, more: u64) -> Result<(), DaemonError> {
        let most = self.config.bytes_per_user;
        match bytes.saturating_add(more) > most {
            true => Err(DaemonError::NoRoom { bytes: Bytes(bytes), most: Bytes(most) }),
            false => Ok(()),
        }
    }

    /// Answers everything but a submission.
    /// `named`: what it names, if that was looked up.
    pub(super) fn answer(&mut self, peer: &Peer, request: &Request, named: Option<&Named>) -> Response {
        self.try_answer(peer, request, named).unwrap_or_else(|why| refused(&why))
    }

    fn try_answer(
        &mut self,
        peer: &Peer,
        request: &Request,
        named: Option<&Named>,
    ) -> Result<Response, DaemonError> {
        Ok(match request {
            Request::Submit(_) | Request::SubmitTogether(_) => return Err(DaemonError::OutOfOrder),
            // Done in pieces: see `changes`.
            Request::Cancel { .. } | Request::Hold { .. } => return Err(DaemonError::OutOfOrder),
            // Answered in parts, see `long_reads`, and by the client's thread.
            Request::Stats { .. } | Request::Usage { .. } | Request::Past { .. } | Request::Output { .. } => {
                return Err(DaemonError::OutOfOrder);
            }
            Request::Estimate(spec) => self.estimate(peer, spec)?,
            &Request::Queue { all, ended, merge, first } => {
                let list = self.listed(peer, Listing { all, ended, merge, first });
                Response::Jobs(self.rows(peer, &list.jobs))
            }
            Request::Show { job } => self.show(peer, *job)?,
            Request::Nodes => Response::Nodes(Box::new(self.node(peer))),
            Request::Curves { from_ms, to_ms } => self.curves(*from_ms, *to_ms)?,
            Request::Drain { gpu, drained, reason } => self.drain(peer, gpu, *drained, reason.as_deref())?,
            Request::Limits { user } => {
                self.know_account(peer);
                self.show_limits(peer, user.as_deref(), named)?
            }
            Request::SetLimits => self.set_limits(peer)?,
            Request::SetLimit { scope, name, value } => {
                let unknown = named.and_then(|named| named.unknown.as_ref());
                self.set_limit(peer, (scope, unknown), name, value.as_deref())?
            }
            Request::Reserve(row) => {
                self.reserve(peer, row, named.and_then(|named| named.unknown.as_ref()))?
            }
            Request::Reservations => Response::Reservations(self.reservation_rows(peer)),
            Request::Unreserve { number } => self.unreserve(peer, *number)?,
        })
    }

    /// Estimate of what a submission of this job would be given now.
    fn estimate(&self, peer: &Peer, spec: &Spec) -> Result<Response, DaemonError> {
        self.check(peer, spec)?;
        Ok(Response::Estimate(Box::new(self.estimate_of(peer.uid, spec))))
    }

    /// Rows of jobs, by their numbers. What is gone in the meantime has none.
    pub(super) fn rows(&self, peer: &Peer, jobs: &[Listed]) -> Vec<JobRow> {
        let row = |(job, tasks): &Listed| {
            let row = match self.jobs.entry(*job) {
                Some(entry) => peer.may(entry.uid).then(|| self.row_of_list(entry)),
                None => {
                    let entry = self.outbox.store().job(*job).ok().flatten();
                    entry.filter(|entry| peer.may(entry.uid)).map(|entry| self.row_of_list(&entry))
                }
            };
            row.map(|row| JobRow { tasks: tasks.clone(), ..row })
        };
        jobs.iter().filter_map(row).collect()
    }

    fn show(&mut self, peer: &Peer, named: JobRef) -> Result<Response, DaemonError> {
        let job = self.one_named(peer, named)?;
        let entry = self.entry_of(peer, job)?.ok_or(DaemonError::UnknownJob(named))?;
        let mut lines = self.outbox.store().history(job).map_err(DaemonError::QueueRead)?;
        if let Some((at, reason)) = self.core.state.history(JobId(job)).pop()
            && matches!(reason, Reason::Waiting { .. })
        {
            lines.push(Line { at_ms: at.0, text: reason.to_string().into() });
        }
        if self.jobs.is_live(job)
            && let Ok(Some(report)) = self.effects.status((job, entry.attempt))
            && let Some(why) = report.status.output_end
        {
            lines.push(Line { at_ms: self.now.at.0, text: why.sentence().into() });
        }
        Ok(Response::Job(Box::new(self.row(&entry)), lines))
    }

    fn drain(
        &mut self,
        peer: &Peer,
        gpu: &str,
        drained: bool,
        reason: Option<&str>,
    ) -> Result<Response, DaemonError> {
        if !peer.admin {
            return Err(DaemonError::DrainedByAdmins);
        }
        let reason = reason.map(str::trim).filter(|reason| !reason.is_empty());
        check_reason(reason)?;
        let list = &self.node.gpus().list;
        let found = (0..list.len()).find(|at| is_named(list, *at, gpu));
        let at = found.ok_or_else(|| DaemonError::NoGpu(gpu.to_owned()))?;
        let uuid = list[at].uuid.clone();
        let (by, at_ms) = (peer.name.clone(), self.now.at.0);
        let drain = drained.then(|| DrainRow { reason: reason.map(str::to_owned), by, at_ms });
        self.outbox.note(Note::Drained(uuid.clone(), drain.clone()));
        self.node.drain(&uuid, drain);
        if let Some(device) = self.node.device(&uuid) {
            self.step(Event::DeviceDrained { device, drained });
        }
        Ok(Response::Done)
    }
}

pub(super) fn refused(why: &DaemonError) -> Response {
    let sentence = why.to_string();
    if why.is_passing() { Response::Later(sentence) } else { Response::Refused(sentence) }
}
