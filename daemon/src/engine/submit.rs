//! New jobs, from their check to their answer: they are written, then the scheduler learns of them.
//!
//! Those of a large submission are written piece by piece, so that they hold up no answer to others. They are jobs once the
//! last one is written; a daemon that ends before leaves none of them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Instant;

use radrm_need::Source;
use radrm_protocol::wire::Response;
use radrm_scheduler_core::{Event, Job};

use super::arrivals::{Arrival, NewJob, PIECE, Submission};
use super::requests::refused;
use super::{Engine, needs};
use crate::error::DaemonError;
use crate::store::{self, Entry, arriving};

/// A submission that was checked and is not written yet.
#[derive(Default)]
pub(super) struct Taken {
    pub(super) parts: Vec<Part>,
    pub(super) by_admin: bool,
}

/// Jobs of one specification in a submission.
pub(super) struct Part {
    /// Its jobs: one, or those of an array.
    pub(super) entries: Vec<Entry>,
    pub(super) environment: Vec<String>,
    pub(super) remarks: Vec<String>,
}

impl Taken {
    pub(super) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.parts.iter().flat_map(|part| &part.entries)
    }

    /// Its jobs, none of which is written.
    fn arrival(self, reply: Sender<Response>) -> Arrival {
        let uid = self.entries().next().map_or(0, |entry| entry.uid);
        let remarks = self.parts.iter().flat_map(|part| part.remarks.clone()).collect();
        let of_part = |part: Part| {
            // Once for all jobs of an array.
            let environment: Arc<str> = store::json(&part.environment).into();
            let remarks = part.remarks;
            part.entries.into_iter().map(move |entry| NewJob {
                entry,
                environment: Arc::clone(&environment),
                remarks: remarks.clone(),
            })
        };
        let jobs: VecDeque<NewJob> = self.parts.into_iter().flat_map(of_part).collect();
        let answer = Response::Submitted { job: 0, remarks };
        Arrival { uid, by_admin: self.by_admin, jobs, written: 0, numbers: [0, 0], reply, answer }
    }
}

impl Engine {
    /// Accepts new jobs: all of a submission or none, and none before it is written. What one stint has no time for is checked in
    /// the next round; `all`: all are.
    pub(super) fn submit(
        &mut self,
        new: Vec<Submission>,
        all: bool,
        replies: &mut Vec<(Sender<Response>, Response)>,
    ) {
        if new.is_empty() {
            return;
        }
        self.report_unknown();
        let now = self.now.at.0;
        let begun = Instant::now();
        let mut taken: Vec<(Taken, Sender<Response>)> = Vec::new();
        let mut new = new.into_iter();
        for (peer, specs, reply) in new.by_ref() {
            let jobs = specs.and_then(|specs| {
                self.has_disk(peer.uid)?;
                self.know_account(&peer);
                let all = self.take_all(&peer, specs, &taken, now)?;
                let new = taken.iter().map(|(before, _)| before).chain([&all]);
                let bytes: u64 = new.flat_map(Taken::entries).map(|entry| entry.bytes).sum();
                self.has_reserve(bytes + self.arrivals.unwritten_bytes())?;
                Ok(all)
            });
            match jobs {
                Ok(one) => taken.push((one, reply)),
                Err(why) => replies.push((reply, refused(&why))),
            }
            if !all && begun.elapsed() >= self.effects.stint() {
                break;
            }
        }
        self.arrivals.postpone(new);
        let mut arrivals: Vec<Arrival> =
            taken.into_iter().map(|(taken, reply)| taken.arrival(reply)).collect();
        let count: usize = arrivals.iter().map(|arrival| arrival.jobs.len()).sum();
        let begun = self.reserve_numbers(count as u64).and_then(|()| {
            // Small ones with one write, as many as are a piece together.
            let mut room = PIECE;
            let begin = |tx: &rusqlite::Transaction<'_>| {
                arrivals.iter_mut().try_for_each(|arrival| {
                    arrival.number(arriving::begin(tx, arrival.jobs.len() as u64)?);
                    let count = arrival.next_piece(room);
                    if count == arrival.jobs.len() {
                        room -= count;
                        arrival.write(tx, count)?;
                    }
                    Ok(())
                })
            };
            self.outbox.write_now(begin).map_err(DaemonError::QueueWrite)
        });
        match begun {
            Ok(()) => arrivals.into_iter().for_each(|arrival| self.arrivals.push(arrival)),
            Err(why) => {
                replies.extend(arrivals.into_iter().map(|arrival| (arrival.reply, refused(&why))));
                self.health.report("disk", why.to_string());
            }
        }
    }

    /// Writes the next jobs of each submission; `all`: all there are.
    pub(super) fn write_some(&mut self, all: bool, replies: &mut Vec<(Sender<Response>, Response)>) {
        let outbox = &mut self.outbox;
        let failed = self.arrivals.write(all, |arrival, count| {
            outbox.write_now(|tx| arrival.write(tx, count)).map_err(DaemonError::QueueWrite)
        });
        for (arrival, why) in failed {
            replies.push((arrival.reply, refused(&why)));
            self.health.report("disk", why.to_string());
        }
    }

    /// Removes what was written of submissions that failed, some of it.
    pub(super) fn discard_some(&mut self) {
        const SOME: u32 = 2000;
        let outbox = &mut self.outbox;
        self.arrivals.abandoned.retain(|numbers| {
            let is_done = outbox.write_now(|tx| arriving::discard_some(tx, *numbers, SOME));
            !is_done.unwrap_or(false)
        });
    }

    /// Takes up the next jobs of each submission; `all`: all there are.
    pub(super) fn take_up_some(&mut self, all: bool, replies: &mut Vec<(Sender<Response>, Response)>) {
        for (entry, by_admin, remarks) in self.arrivals.next(all) {
            self.take_up(entry, by_admin, &remarks);
        }
        replies.extend(self.arrivals.answers());
    }

    /// A new job that is on disk.
    pub(super) fn take_up(&mut self, entry: Entry, by_admin: bool, remarks: &[String]) {
        let id = entry.id;
        let awaits_dry_run = self.is_for_dry_run(&entry);
        if awaits_dry_run {
            self.expect_dry_run(id);
        }
        let job = Job { awaits_dry_run, ..needs::job(&entry, self.config.scheduler.assumed) };
        // The daemon's own are within no user's limits.
        let job = Box::new(Job { by_admin, admitted: job.first, ..job });
        let need = entry.needs.as_ref().and_then(|needs| needs.memory.as_ref());
        // What the user asked for is known to them.
        let need = need.filter(|need| need.source != Source::Declared).map(ToString::to_string);
        self.jobs.insert(id, entry);
        self.remark_group(id);
        self.health.counters.submitted += 1;
        need.iter().chain(remarks).for_each(|words| self.say(id, words.clone()));
        self.step(Event::Submitted { job });
    }

    /// Reserves the numbers of so many more jobs. A highest number that cannot be read reserves none.
    pub(super) fn reserve_numbers(&mut self, count: u64) -> Result<(), DaemonError> {
        let highest = self.outbox.store().highest().map_err(DaemonError::QueueRead)?;
        self.numbers.reserve(highest.saturating_add(count)).map_err(DaemonError::NumberNotKept)
    }
}
