//! Groups that the sweep itself runs, several at once where there is room.

use std::collections::VecDeque;
use std::process::Child;
use std::thread;

use super::here::Look;
use super::room::{Room, Seat};
use super::{Event, POLL_INTERVAL, Sweep};
use crate::attempt;
use crate::error::SweepError;
use crate::machine::instances;
use crate::plan::Group;
use crate::store::{Outcome, Recorded, State};

/// A group that the sweep itself runs.
struct Running<'p> {
    group: &'p Group,
    runs: Vec<Recorded>,
    children: Vec<Child>,
    /// Signals that each member's supervisor was sent.
    sent: Vec<usize>,
    seat: Seat,
}

/// Outcome of the start of a group.
enum Begun {
    /// Nothing is left to do of it.
    Over,
    Interrupted,
    Runs(Vec<Recorded>, Vec<Child>),
}

impl Sweep<'_> {
    /// Brings all groups to their ends by itself, as many at once as there is room for; `None` if that was interrupted.
    pub(super) fn run_here(&mut self, report: &mut dyn FnMut(&Event<'_>)) -> Result<Option<()>, SweepError> {
        let mut waiting: VecDeque<&Group> = self.source.plan.groups.iter().collect();
        let mut room = Room::new(self.options.jobs, self.options.gpus.clone());
        let (mut open, mut is_interrupted) = (Vec::<Running<'_>>::new(), false);
        loop {
            while self.stop.count() == 0
                && let Some((at, seat)) = room.next(&waiting)
            {
                let Some(group) = waiting.remove(at) else { break };
                match self.begin(group, room.gpu(&seat), report)? {
                    Begun::Over => room.leave(&seat),
                    Begun::Interrupted => {
                        room.leave(&seat);
                        is_interrupted = true;
                    }
                    Begun::Runs(runs, children) => {
                        let sent = vec![0; runs.len()];
                        open.push(Running { group, runs, children, sent, seat });
                    }
                }
            }
            if open.is_empty() {
                return Ok((waiting.is_empty() && !is_interrupted).then_some(()));
            }
            let mut left = Vec::new();
            for mut one in open {
                match self.look(&one.runs, &mut one.children, &mut one.sent) {
                    Look::UnderWay => {
                        self.stop_early(&one.runs)?;
                        left.push(one);
                    }
                    Look::Ended(outcomes) => {
                        room.leave(&one.seat);
                        self.close(one.group, &one.runs, outcomes, report)?;
                    }
                    Look::Interrupted => {
                        room.leave(&one.seat);
                        let keys: Vec<_> = one.runs.iter().map(|run| run.key.clone()).collect();
                        self.give_up(&keys)?;
                        is_interrupted = true;
                    }
                }
            }
            open = left;
            if !open.is_empty() {
                report(&Event::Tick);
                thread::sleep(POLL_INTERVAL);
            }
        }
    }

    /// Starts a group. `gpu`: for runs that name none.
    fn begin(
        &mut self,
        group: &Group,
        gpu: Option<&str>,
        report: &mut dyn FnMut(&Event<'_>),
    ) -> Result<Begun, SweepError> {
        let keys = group.keys();
        if self.skip(group, &keys, report)? {
            return Ok(Begun::Over);
        }
        if let Err(why) = instances(group, self.options.instances.as_deref().unwrap_or_default()) {
            let runs = self.recorded(&keys)?;
            let outcome =
                Outcome { state: State::Failed, reason: Some(why.to_string()), ..Outcome::default() };
            self.end(group, &runs, &vec![outcome; runs.len()], report)?;
            return Ok(Begun::Over);
        }
        self.store.start(&keys)?;
        let runs = self.recorded(&keys)?;
        let Some(children) = self.start(group, &runs, gpu, report)? else {
            self.give_up(&keys)?;
            return Ok(Begun::Interrupted);
        };
        report(&Event::Started { group, runs: &runs });
        Ok(Begun::Runs(runs, children))
    }

    /// A group is over; a member without an outcome has failed.
    fn close(
        &mut self,
        group: &Group,
        runs: &[Recorded],
        outcomes: Vec<Option<Outcome>>,
        report: &mut dyn FnMut(&Event<'_>),
    ) -> Result<(), SweepError> {
        let known = |(outcome, run): (Option<Outcome>, &Recorded)| {
            outcome.unwrap_or_else(|| {
                attempt::kill_marked(&self.mark(run));
                let reason = Some(
                    "its supervisor left no result: supervisor.log in its folder may say why".to_owned(),
                );
                Outcome { state: State::Failed, reason, ..Outcome::default() }
            })
        };
        let outcomes: Vec<_> = outcomes.into_iter().zip(runs).map(known).collect();
        self.end(group, runs, &outcomes, report)
    }
}
