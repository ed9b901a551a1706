//! A pass in which a [`Planner`] decides, and what it may ask.

use std::sync::Arc;

use super::schedule::Place;
use super::{Stage, State};
use crate::action::Decision;
use crate::device::DeviceId;
use crate::event::Event;
use crate::host::HostEffect;
use crate::interference::Activity;
use crate::job::JobId;
use crate::outside::{Outside, PlanError, SpeedModel};
use crate::place::{Scratch, admits};
use crate::planner::{JobRequest, Plan, Planner};
use crate::reason::{Score, Wait};
use crate::units::{Bytes, Millis};

impl State {
    /// Like [`State::step`], but the planner decides which jobs start. Jobs without GPUs start as soon as the host has room.
    ///
    /// # Errors
    /// The planner failed, or named a place that a job cannot have. The state is of no use any more.
    pub fn step_planned(
        &mut self,
        at: Millis,
        event: Event,
        planner: &mut dyn Planner,
    ) -> Result<Vec<Decision>, PlanError> {
        let mut done = Ok(());
        planner.happened(at, &event);
        let out =
            self.step_by(at, event, &mut |state, out| done = state.schedule_planned(&mut *planner, out));
        done.map(|()| out)
    }

    /// Predicts slowdowns by a model of the caller's from now on, on all devices that are added later.
    pub fn predict_by(&mut self, model: Arc<dyn SpeedModel>) {
        self.outside = Some(Outside::new(model));
    }

    /// The first failure of the caller's model of speeds.
    #[must_use]
    pub fn prediction_failure(&self) -> Option<PlanError> {
        self.outside.as_ref()?.failure()
    }

    /// The time of the last event.
    #[must_use]
    pub fn now(&self) -> Millis {
        self.now
    }

    /// Jobs with GPUs that wait, in the order of the queue.
    pub fn requests(&self) -> impl Iterator<Item = (JobId, JobRequest)> + '_ {
        let of = |id| Some((id, self.request(id)?));
        self.queue().into_iter().filter_map(of).filter(|(_, request)| request.gpus > 0)
    }

    /// Request of a job that is not over.
    #[must_use]
    pub fn request(&self, id: JobId) -> Option<JobRequest> {
        let record = self.jobs.get(&id)?;
        let (job, ask) = (&record.job, self.own_ask(record));
        let is_placed = !record.devices.is_empty();
        Some(JobRequest {
            user: job.user,
            priority: job.priority,
            gpus: job.gpus,
            submitted: job.submitted,
            need: job.need.as_ref().map(|need| need.bytes),
            upper: job.need.as_ref().map(|need| need.upper),
            reserves: record.reserved.filter(|_| is_placed).or(ask.claim).unwrap_or(Bytes::ZERO),
            alone: if is_placed { record.reserved.is_none() } else { ask.whole },
            half_empty: ask.half_empty,
            ooms: record.ooms,
            run_time: job.expected,
            activity: self.measured_activity(id),
        })
    }

    /// Activity of a job alone, where it was measured.
    #[must_use]
    pub fn measured_activity(&self, id: JobId) -> Option<Activity> {
        self.jobs.get(&id)?.measured()
    }

    /// Returns true if a device takes jobs: it is neither lost nor drained nor divided into instances.
    #[must_use]
    pub fn takes_jobs(&self, id: DeviceId) -> bool {
        self.numbers.get(&id).is_some_and(|at| self.devices[*at].usable())
    }

    /// Memory of a device that no job reserves or uses.
    #[must_use]
    pub fn free(&self, id: DeviceId) -> Bytes {
        let dev = self.numbers.get(&id).map(|at| &self.devices[*at]);
        dev.map_or(Bytes::ZERO, |dev| dev.spec.capacity.minus(dev.occupied()))
    }

    /// Checks that a waiting job may start on this device now, as far as one device shows it.
    ///
    /// # Errors
    /// Why it may not.
    pub fn admits(&self, job: JobId, device: DeviceId) -> Result<(), Wait> {
        let found = self.jobs.get(&job).zip(self.numbers.get(&device));
        let (record, at) = found.ok_or(Wait::NoDevice)?;
        let (dev, ask) = (&self.devices[*at], self.own_ask(record));
        if !self.nodes[dev.node].has(ask.host) {
            return Err(Wait::Host);
        }
        let mut scratch = Scratch::default();
        admits(&self.settings, dev, &ask, &HostEffect::NONE, self.now, &mut scratch).map(|_| ())
    }

    fn schedule_planned(
        &mut self,
        planner: &mut dyn Planner,
        out: &mut Vec<Decision>,
    ) -> Result<(), PlanError> {
        (self.stage, self.reservation) = (Stage::Rest, None);
        self.start_on_hosts(out);
        // A planner may start one job at a time: it is asked again until it starts none.
        loop {
            let mut waiting = self.queue();
            waiting.retain(|id| self.jobs.get(id).is_some_and(|record| record.job.gpus > 0));
            if waiting.is_empty() {
                return Ok(());
            }
            let plans = planner.plan(self)?;
            for id in waiting {
                self.lets_wait(id, Wait::Chosen { why: String::new() });
            }
            let mut started = false;
            for plan in plans {
                match plan {
                    Plan::Start { job, devices, why } => {
                        started |= self.start_planned(job, &devices, why, out)?;
                    }
                    Plan::Wait { job, why } => {
                        let waits = self.jobs.get(&job).is_some_and(|record| record.phase.queued());
                        if !waits {
                            return Err(PlanError(format!("job {job} does not wait")));
                        }
                        self.lets_wait(job, Wait::Chosen { why });
                    }
                }
            }
            if !started {
                return Ok(());
            }
        }
    }

    /// Starts jobs without GPUs where the host has room.
    fn start_on_hosts(&mut self, out: &mut Vec<Decision>) {
        for id in self.queue() {
            let Some(record) = self.jobs.get(&id).filter(|record| record.job.gpus == 0) else { continue };
            let ask = self.own_ask(record);
            match self.find_host(&ask, None) {
                Ok(place) => self.start(id, place, None, out),
                Err(wait) => self.lets_wait(id, wait),
            }
        }
    }

    fn lets_wait(&mut self, id: JobId, wait: Wait) {
        if let Some(record) = self.jobs.get_mut(&id) {
            record.wait = Some(wait);
        }
    }

    /// Returns true if the job starts: it waits where the host has no room.
    fn start_planned(
        &mut self,
        job: JobId,
        devices: &[DeviceId],
        why: String,
        out: &mut Vec<Decision>,
    ) -> Result<bool, PlanError> {
        let refused = |why: String| PlanError(format!("job {job} {why}"));
        let record = self.jobs.get(&job).filter(|record| record.phase.queued());
        let record = record.ok_or_else(|| refused("does not wait".into()))?;
        if record.gathers().is_some() {
            return Err(refused("starts together with others, which no planner decides".into()));
        }
        if devices.len() != usize::from(record.job.gpus) {
            let gpus = record.job.gpus;
            return Err(refused(format!("asks for {gpus} GPUs and was given {}", devices.len())));
        }
        let mut places = Vec::with_capacity(devices.len());
        for device in devices {
            let at = self.numbers.get(device).copied();
            let at = at.ok_or_else(|| refused(format!("was given GPU {device}, and there is none")))?;
            if places.contains(&at) {
                return Err(refused(format!("was given GPU {device} twice")));
            }
            match self.admits(job, *device) {
                Ok(()) => {}
                // A planner does not see what the host has left.
                Err(Wait::Host) => {
                    self.lets_wait(job, Wait::Host);
                    return Ok(false);
                }
                Err(wait) => return Err(refused(refusal(*device, &wait))),
            }
            places.push(at);
        }
        let node = places.first().map_or(0, |at| self.devices[*at].node);
        if places.iter().any(|at| self.devices[*at].node != node) {
            return Err(refused("was given GPUs of different machines".into()));
        }
        let place = Place { devices: places, host: node, score: Score::First, why: Some(why) };
        self.start(job, place, None, out);
        Ok(true)
    }
}

/// `cannot start on GPU 1: ...`
fn refusal(device: DeviceId, wait: &Wait) -> String {
    let why = match wait {
        Wait::Memory { need, free, .. } => format!("it reserves {need}, and {free} are free there"),
        Wait::Idle => "one of the jobs there, or this one, has its GPU to itself".to_owned(),
        Wait::NoDevice => "it takes no jobs, or could never hold this one".to_owned(),
        other => other.to_string(),
    };
    format!("cannot start on GPU {device}: {why}")
}
