//! Groups of jobs that start together: all of them in one decision, or none.
//!
//! The first job of a group stands in the queue for all of them, and asks for what they need together. It is queued when
//! all are there and none is kept out of the queue, so a group that is not complete is in the way of no job. When it is
//! first, devices are kept for it as for any job of several devices.

use super::schedule::Place;
use super::{Phase, State};
use crate::action::{Decision, Verdict};
use crate::job::{HostNeed, Job, JobId, Together};
use crate::place::Ask;
use crate::reason::Reason;
use crate::state::record::Record;
use crate::units::Bytes;

impl Record {
    /// Its group, as long as that has not started.
    pub(crate) fn gathers(&self) -> Option<Together> {
        self.job.together.filter(|group| !group.begun)
    }
}

impl State {
    /// Request of a job when it is its turn: the first of a group requests for all of it.
    pub(crate) fn ask_of(&self, record: &Record) -> Ask {
        let leads = record.gathers().filter(|group| group.first == record.job.id);
        let members: Vec<&Record> = leads.map(|group| self.members(group).collect()).unwrap_or_default();
        self.joint_ask(&members).unwrap_or_else(|| self.own_ask(record))
    }

    /// Request of a job for itself.
    pub(super) fn own_ask(&self, record: &Record) -> Ask {
        let ask = record.ask(&self.settings, self.largest(record.job.model.as_deref()));
        let model = record.job.model.as_deref().or_else(|| self.only_model());
        let (activity, basis) = self.activity_of(record, model);
        Ask { activity, basis, ..ask }
    }

    /// Joint request of jobs, the first of them for all. On each device: the request of the site that requests most.
    pub(super) fn joint_ask(&self, members: &[&Record]) -> Option<Ask> {
        let first = members.first()?;
        let ask_of = |record: &Record| self.own_ask(record);
        // A group joins no other job on a device, and nothing depends on what it would do to others: neither its priority nor
        // its use of the host counts.
        let mut joint =
            Ask { gpus: 0, whole: true, host: HostNeed::default(), host_use: None, ..ask_of(first) };
        for (_, gpus, site) in sites(members) {
            joint.gpus += gpus;
            joint.sharers = joint.sharers.max(site.len());
            let (mut share, mut claim) = (0, None);
            for record in &site {
                let ask = ask_of(record);
                share += ask.share;
                claim = ask.claim.map(|more| claim.unwrap_or(Bytes::ZERO).plus(more)).or(claim);
                joint.host.cpu_milli = joint.host.cpu_milli.saturating_add(ask.host.cpu_milli);
                joint.host.memory = joint.host.memory.plus(ask.host.memory);
                joint.model = joint.model.or(ask.model);
            }
            if site.len() > 1 {
                claim = claim.map(|claim| claim.plus(self.settings.preconditions.margin));
            }
            joint.share = joint.share.max(share);
            joint.claim = joint.claim.max(claim);
        }
        Some(joint)
    }

    /// Starts all jobs of a group on devices that were found for it.
    pub(super) fn start_together(
        &mut self,
        group: Together,
        place: &Place,
        head: Option<JobId>,
        out: &mut Vec<Decision>,
    ) {
        let members: Vec<&Record> = self.members(group).collect();
        let mut rest = place.devices.as_slice();
        let mut starts = Vec::new();
        for (_, gpus, site) in sites(&members) {
            let (own, others) = rest.split_at(gpus.min(rest.len()));
            rest = others;
            let own = |record: &&Record| own[..usize::from(record.job.gpus).min(own.len())].to_vec();
            starts.extend(site.iter().map(|record| (record.job.id, own(record))));
        }
        let host = place.devices.first().map_or(place.host, |at| self.devices[*at].node);
        starts.sort_by_key(|(id, _)| *id);
        for (id, devices) in starts {
            self.start(id, Place { devices, host, score: place.score, why: None }, head, out);
        }
    }

    /// The jobs of a group that are not over, in order.
    pub(super) fn members(&self, group: Together) -> impl Iterator<Item = &Record> {
        self.jobs.range(group.first..=group.last()).map(|(_, record)| record)
    }

    /// For a job of a group that has not started: another one that it waits for.
    pub(super) fn awaited_member(&self, job: &Job) -> Option<JobId> {
        let group = job.together.filter(|group| !group.begun)?;
        // Limits on the sums of a group keep its first job out of the queue, and so all: each other one counts by itself.
        let ready = |id: JobId| {
            let other = self.jobs.get(&id);
            other.is_some_and(|other| other.phase == Phase::Held && !self.is_kept_out_alone(&other.job))
        };
        let is_ready = |id: &JobId| *id == job.id || *id == group.first || ready(*id);
        let missing = (group.first.0..=group.last().0).map(JobId).find(|id| !is_ready(id));
        missing.or((job.id != group.first).then_some(group.first))
    }

    /// A job of a group waits: the first one is queued if all do.
    pub(super) fn gather(&mut self, id: JobId) {
        let Some(group) = self.jobs.get(&id).and_then(Record::gathers) else { return };
        let is_held = self.jobs.get(&group.first).is_some_and(|first| first.phase == Phase::Held);
        if id != group.first && is_held {
            self.admit(group.first);
        }
    }

    /// A job of a group is kept out of the queue: so is the group.
    pub(super) fn scatter(&mut self, id: JobId) {
        let Some(group) = self.jobs.get(&id).and_then(Record::gathers) else { return };
        let Some(first) = self.jobs.get_mut(&group.first).filter(|first| first.phase == Phase::Waiting)
        else {
            return;
        };
        first.phase = Phase::Held;
        self.unqueue(group.first);
        self.forget_reservation(group.first);
        self.pass_due = true;
    }

    /// Queues the group again after the need of one of its jobs has changed, by what all need now.
    pub(super) fn queue_group_again(&mut self, id: JobId) {
        self.scatter(id);
        self.gather(id);
    }

    /// A job comes that may be of a group: one that has started for the others if it has for one.
    pub(super) fn join_group(&mut self, id: JobId) {
        let Some(group) = self.jobs.get(&id).and_then(|record| record.job.together) else { return };
        self.gathering.insert(id);
        let has_begun = |record: &Record| record.job.together.is_some_and(|group| group.begun);
        if self.members(group).any(has_begun) {
            self.begin(group);
        }
    }

    /// A job of a group has started, so all have.
    pub(super) fn begin_group(&mut self, id: JobId) {
        if let Some(group) = self.jobs.get(&id).and_then(Record::gathers) {
            self.begin(group);
        }
    }

    fn begin(&mut self, group: Together) {
        let members: Vec<JobId> = self.members(group).map(|record| record.job.id).collect();
        for id in members {
            self.gathering.remove(&id);
            let Some(record) = self.jobs.get_mut(&id) else { continue };
            record.job.together = record.job.together.map(|group| Together { begun: true, ..group });
            if record.phase == Phase::Held {
                // Its attempt was over before it began: it is tried again by itself.
                self.admit(id);
            }
        }
    }

    /// A job ends. If its group has not started, it never does: gives the jobs that end with this one. Those that were
    /// given devices come back to the queue first, and end then.
    pub(super) fn take_group_apart(&mut self, id: JobId) -> Vec<JobId> {
        let Some(group) = self.jobs.get(&id).and_then(Record::gathers) else { return Vec::new() };
        self.scatter(id);
        let waits = |record: &&Record| record.job.id != id && !record.phase.on_devices();
        let others: Vec<JobId> = self.members(group).filter(waits).map(|record| record.job.id).collect();
        for other in &others {
            // Each of them ends by this end and no other.
            if let Some(record) = self.jobs.get_mut(other) {
                record.job.together = None;
            }
        }
        others
    }

    /// All jobs that an earlier daemon knew are there: groups of which a job is over by now never start.
    pub(super) fn end_incomplete_groups(&mut self, out: &mut Vec<Decision>) {
        if self.paused {
            return;
        }
        for id in self.gathering.iter().copied().collect::<Vec<_>>() {
            let waits = self.jobs.get(&id).is_some_and(|record| !record.phase.on_devices());
            if waits && let Some(job) = self.missing_member(id) {
                self.end(id, Verdict::Cancelled, Reason::NotTogether { job }, out);
            }
        }
    }

    /// For a job of a group that has not started: one that is over. While more is to be told that is not known.
    pub(super) fn missing_member(&self, id: JobId) -> Option<JobId> {
        if self.paused {
            return None;
        }
        let group = self.jobs.get(&id).and_then(Record::gathers)?;
        (group.first.0..=group.last().0).map(JobId).find(|id| !self.jobs.contains_key(id))
    }
}

/// The sites of a group: each with how many devices it has and its jobs.
fn sites<'r>(members: &[&'r Record]) -> Vec<(u32, usize, Vec<&'r Record>)> {
    let mut sites: Vec<(u32, usize, Vec<&Record>)> = Vec::new();
    for record in members {
        let site = record.job.together.map_or(0, |group| group.site);
        let gpus = usize::from(record.job.gpus);
        match sites.iter_mut().find(|known| known.0 == site) {
            Some(known) => {
                known.1 = known.1.max(gpus);
                known.2.push(record);
            }
            None => sites.push((site, gpus, vec![record])),
        }
    }
    sites
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NodeId;
    use crate::device::{Device, DeviceId};
    use crate::event::Event;
    use crate::settings::Settings;
    use crate::units::Millis;

    /// A state with one GPU and a group of two jobs, of which so many are there.
    fn with_jobs(jobs: u64) -> State {
        let mut state = State::new(Settings::default());
        let (id, node, capacity) = (DeviceId(0), NodeId(0), Bytes::from_gib(40));
        let device = Device { id, node, model: "A".into(), capacity, parent: None, shared: true };
        state.step(Millis(0), Event::DeviceAdded { device });
        for id in (1..=jobs).map(JobId) {
            let together = Some(Together { first: JobId(1), members: 2, site: 0, begun: false });
            state.step(Millis(0), Event::Submitted { job: Box::new(Job { together, ..Job::new(id) }) });
        }
        state
    }

    #[test]
    fn jobs_of_groups_that_began_or_ended_are_not_looked_at_any_more() {
        let mut begun = with_jobs(2);
        assert_eq!(begun.gathering.len(), 2);
        begun.step(Millis(0), Event::Started { job: JobId(1), attempt: 1 });
        assert_eq!(begun.gathering.len(), 0);
        let mut ended = with_jobs(1);
        assert_eq!(ended.gathering.len(), 1);
        ended.step(Millis(0), Event::Cancelled { job: JobId(1) });
        assert_eq!(ended.gathering.len(), 0);
    }
}
