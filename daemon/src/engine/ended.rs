//! The end of an attempt: what its supervisor reported, what is kept of it, and what the scheduler learns.

use std::collections::BTreeSet;

use radrm_analyzer::RefusedRequests;
use radrm_scheduler_core::{Bytes, Event, Evidence, JobId, Outcome};

use super::actions::gpu_time;
use super::jobs::{Live, Over, Seen};
use super::outbox::{Effect, Note};
use super::{Engine, epilog};
use crate::accounting::GpuTime;
use crate::attempt::Attempt;
use crate::history::{self, EndedRun};
use crate::status::{End, Status};
use crate::suspend::Step;

/// Exit code of a job with `--oom-fails` whose program ended with 0 after a refused request.
const REFUSED: i32 = 1;

impl Engine {
    /// An attempt has ended: its supervisor reported how.
    pub(super) fn supervisor_ended(&mut self, attempt: Attempt) {
        let job = attempt.0;
        let Some(live) = self.jobs.end(job) else { return };
        self.review_fences();
        self.effects.reap(attempt);
        if !self.jobs.is_current(attempt) {
            return;
        }
        let status = match self.effects.status(attempt) {
            Ok(report) => report.unwrap_or_default().status,
            Err(error) => {
                self.health.report("status", error.to_string());
                // Searched for again, as one of which no supervisor is known.
                self.jobs.begin(job, Live { supervisor: None, ..live });
                self.review_fences();
                return;
            }
        };
        self.health.resolve("status");
        self.suspensions.forget(job);
        let status = Status { supervisor: status.supervisor.or(live.supervisor), ..status };
        let seen = Seen {
            launched_ms: Some(live.launched_ms),
            first_steps: live.observed.steps.first,
            host_use: live.host.alone(),
        };
        self.attempt_over(attempt, status, live.reported, seen);
    }

    /// An attempt is over: what it left is killed. Its end counts when that is off the GPUs, and it is known that no GPU
    /// failed under it.
    pub(super) fn attempt_over(&mut self, attempt: Attempt, status: Status, reported: bool, seen: Seen) {
        let uid = self.jobs.entry(attempt.0).map(|entry| entry.uid);
        let found = self.effects.sweep(attempt, uid, &status);
        let over = Over { attempt, status, reported, killed: BTreeSet::new(), seen };
        match found {
            Some(killed) => self.rid_of_leftovers(Over { killed, ..over }),
            // Its status file stays until then: a daemon that is killed meanwhile searches again.
            None => drop(self.sweeping.insert(attempt, over)),
        }
    }

    /// A search for what an attempt left took long, and is over.
    pub(super) fn swept(&mut self, attempt: Attempt, killed: BTreeSet<u32>) {
        if let Some(over) = self.sweeping.remove(&attempt) {
            self.rid_of_leftovers(Over { killed, ..over });
        }
    }

    /// Nothing of an attempt is left but its epilog.
    fn rid_of_leftovers(&mut self, over: Over) {
        if let Some(over) = self.begin_epilog(over) {
            self.end_unless_doubtful(over);
        }
    }

    /// Its end counts now, or when a poll has shown that no GPU is the cause.
    pub(super) fn end_unless_doubtful(&mut self, over: Over) {
        if let Some(over) = self.doubt(over) {
            self.attempt_ended(&over);
        }
    }

    /// Reports the end to the scheduler, and keeps what was measured.
    pub(super) fn attempt_ended(&mut self, over: &Over) {
        let Over { attempt: (job, attempt), ref status, reported, .. } = *over;
        if status.program.is_some() && !reported {
            self.report_fences(job, status.missing.as_ref());
            self.started(job, attempt, status.began_ms);
        }
        if status.program.is_none() {
            self.give_up_together(job);
        }
        if let Some(why) = status.output_end {
            self.remark(job, why.sentence());
        }
        self.measure_disk(job);
        let mut end = self.end_of(job, status);
        let bounds_need = self.keep_run(over, &mut end);
        self.forget_signal((job, attempt));
        self.say_end(job, status.end.as_ref().and_then(|end| end.code), &end);
        self.touch(job);
        self.outbox.effect(Effect::Clear((job, attempt)));
        self.finish((job, attempt), end.outcome(), bounds_need);
    }

    /// End of an attempt, also where its supervisor could not record one.
    fn end_of(&self, job: u64, status: &Status) -> End {
        let mut end = status.end.clone().unwrap_or_else(|| match status.program {
            Some(_) => End { signal: Some(libc::SIGKILL), at_ms: self.now.at.0, ..End::default() },
            // Nothing of it ran.
            None => End { lost: true, ..End::default() },
        });
        let entry = self.jobs.entry(job);
        if let Some(refused) = end.refused.as_ref().filter(|_| end.code == Some(0))
            && let Some(needed) = refused.needed
            && entry.is_some_and(|entry| entry.spec.oom_fails)
        {
            (end.code, end.oom, end.oom_request) = (Some(REFUSED), Some(needed), refused.request);
        }
        end
    }

    /// Keeps the time and the figures of an attempt. Returns true if it bounds the need of later runs.
    fn keep_run(&mut self, over: &Over, end: &mut End) -> bool {
        let (Over { attempt: (job, attempt), status, .. }, now) = (over, self.now.at.0);
        let Some(entry) = self.jobs.entry_mut(*job) else { return false };
        let at = if end.at_ms > 0 { end.at_ms.min(now) } else { now };
        let mut ran_ms = entry.started_ms.take().map_or(0, |since| at.saturating_sub(since));
        entry.ran_ms += ran_ms;
        let suspension = std::mem::take(&mut entry.suspension);
        end.lost |= suspension.step == Step::Lost;
        ran_ms += suspension.ran_ms;
        entry.peak = end.peak.max(entry.peak);
        entry.refused = end.refused.as_ref().map_or(0, |refused| refused.count);
        // One that ran out of memory says what does not suffice, if the shim saw it.
        let lacked = matches!(end.outcome(), Outcome::OutOfMemory { evidence: Evidence::Shim, .. });
        let seen = match end.code {
            Some(0) => end.peak.map(|peak| (peak, true)),
            _ => end.oom.filter(|_| lacked).map(|least| (least, false)),
        };
        let begin_ms = status.program.map_or(at, |_| status.began_ms);
        let ended = EndedRun {
            entry,
            attempt: *attempt,
            end,
            begin_ms,
            duration_ms: at.saturating_sub(begin_ms),
            ran_ms,
            seen,
            batch: entry.spec.batch_size(),
            gpus: self.node.names(&entry.devices),
            first_steps: over.seen.first_steps,
            host: over.seen.host_use,
        };
        if let Some(row) = ended.row() {
            history::observe(&mut self.calibration, &row);
            let features = end.record.take().map(|record| Box::new(record.features));
            self.outbox.note(Note::Run(Box::new(row), features));
        }
        // An attempt without a program had its GPUs none the less.
        let held_ms = match (status.program, over.seen.launched_ms) {
            (None, Some(since)) => at.saturating_sub(since),
            _ => ran_ms,
        };
        if !entry.devices.is_empty() && held_ms > 0 {
            let span = (at.saturating_sub(held_ms).min(begin_ms), at);
            let time = gpu_time(entry, *attempt, span, held_ms, &self.node.totals(&entry.devices));
            let out_of_memory = end.oom.is_some();
            self.outbox.note(Note::Attempt(Box::new(GpuTime { out_of_memory, ..time })));
        }
        seen.is_some()
    }

    /// Adds to the job's history what its end does not say by itself.
    /// `program`: exit code of the program itself.
    fn say_end(&mut self, job: u64, program: Option<i32>, end: &End) {
        if let Some(sentence) = &end.elsewhere {
            self.say(job, sentence.clone());
        }
        if let (Some(refused), Some(program)) = (&end.refused, program) {
            self.say(job, refused_sentence(refused, program, program != end.code.unwrap_or(program)));
        }
        if let Some(limit) = &end.limited {
            self.say(job, format!("a request for GPU memory was stopped by {limit}"));
        }
        // A job that failed by that has it as its verdict.
        if let Some(limit) = end.host_oom.filter(|_| end.code == Some(0)) {
            let limit = Bytes(limit);
            self.say(
                job,
                format!("the kernel killed a process of it: its host memory reached {limit} (--mem)"),
            );
        }
        if let Some(sentence) = &end.not_started {
            self.say(job, format!("{}{sentence}", epilog::NOT_STARTED));
        }
    }

    /// Reports the end to the scheduler. What becomes free is given away by what is known then, this run included.
    fn finish(&mut self, (job, attempt): Attempt, outcome: Outcome, bounds_need: bool) {
        let ended = self.jobs.entry(job).filter(|_| bounds_need).cloned();
        let pause = ended.is_some() && !self.recovering;
        if pause {
            self.step(Event::Paused { paused: true });
        }
        self.step(Event::Finished { job: JobId(job), attempt, outcome });
        if let Some(ended) = ended {
            self.update_waiting(&ended);
        }
        if pause {
            self.step(Event::Paused { paused: false });
        }
    }
}

/// Sentence on refused requests for GPU memory. `fails`: they turned the exit code of the program into a failure.
fn refused_sentence(refused: &RefusedRequests, program: i32, fails: bool) -> String {
    let (count, last) = (refused.count, &refused.last);
    let requests = if count == 1 { "a request".to_owned() } else { format!("{count} requests") };
    let then = if fails { ", which counts as out of memory (--oom-fails)" } else { "" };
    format!(
        "ended with {program} after {requests} for GPU memory had been refused: the last was {last}{then}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_requests_count_as_out_of_memory_only_with_oom_fails() {
        let refused =
            RefusedRequests { count: 1, last: "15.0 GiB on GPU 0, by the GPU".into(), ..Default::default() };
        let of = |program, fails| refused_sentence(&refused, program, fails);
        assert_eq!(
            of(1, false),
            "ended with 1 after a request for GPU memory had been refused: the last was 15.0 GiB on GPU 0, by the GPU"
        );
        assert!(
            of(0, false).starts_with("ended with 0 after a request") && of(0, false).ends_with("by the GPU")
        );
        assert!(of(0, true).ends_with("by the GPU, which counts as out of memory (--oom-fails)"));
    }
}
