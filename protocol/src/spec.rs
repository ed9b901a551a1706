//! Checks of a job's specification, and its view for the scheduler and for the resolver of needs.

use radrm_base::{PastRun, batch};
use radrm_need::Features;
use radrm_scheduler_core::{
    ArrayLimit, Bytes, HostNeed, Job, JobId, Millis, Permille, Preemption, SuspendRefusal, Together, UserId,
};

use crate::ProtocolError;
use crate::after::After;
use crate::bounds::{MAX_DEPENDENCIES, MAX_WORDS};
use crate::loader::Loader;
use crate::words;

pub use crate::specification::Spec;

impl Spec {
    /// Checks it, but for what only a daemon knows.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check(&self) -> Result<(), ProtocolError> {
        if self.command.first().is_none_or(String::is_empty) {
            return Err(ProtocolError::NoCommand);
        }
        let loader = self.loader.as_ref();
        let producer = loader.map_or(&[][..], |loader| &loader.command);
        if self.command.len() + self.environment.len() + producer.len() > MAX_WORDS {
            return Err(ProtocolError::ManyWords);
        }
        loader.map_or(Ok(()), Loader::check)?;
        self.check_lengths(&self.command)?;
        self.check_lengths(producer)?;
        let words = self.command.iter().chain(&self.environment).chain(producer).map(String::as_str);
        if words.chain([self.name.raw()]).any(|word| words::decode(word).is_none()) {
            return Err(ProtocolError::ZeroByte);
        }
        if self.task.is_some()
            || self.together.is_some()
            || self.after.iter().any(|after| after.jobs.is_some())
        {
            return Err(ProtocolError::NotTheClients);
        }
        if self.after.len() > MAX_DEPENDENCIES {
            return Err(ProtocolError::ManyDependencies);
        }
        if !self.cwd.is_absolute() {
            return Err(ProtocolError::RelativeDirectory(self.cwd.clone()));
        }
        if self.gpus > 64 {
            return Err(ProtocolError::ManyGpus(self.gpus));
        }
        if self.gpus == 0 && (self.mem.is_some() || self.exclusive || self.share.is_some() || self.mps) {
            return Err(ProtocolError::NoGpus);
        }
        if self.share.is_some_and(|share| share == 0 || share > 1000) {
            return Err(ProtocolError::Share);
        }
        if !self.target.is_none() && self.gpus == 0 {
            return Err(ProtocolError::NoGpus);
        }
        if !self.target.is_valid() {
            return Err(ProtocolError::Target);
        }
        let estimate = self.estimate.as_ref();
        let estimate = (estimate.map(|estimate| estimate.bytes), estimate.map(|estimate| estimate.upper));
        let figures = self.file_estimates.values().copied().chain(self.dry_run.iter().map(|run| run.held));
        let figures = figures.map(|bytes| (Some(bytes), None));
        let declared = (self.mem.map(Bytes), self.mem_upper.map(Bytes));
        for (bytes, upper) in [declared, estimate].into_iter().chain(figures) {
            if bytes == Some(Bytes::ZERO) || upper == Some(Bytes::ZERO) {
                return Err(ProtocolError::NoMemory);
            }
            if let (Some(bytes), Some(upper)) = (bytes, upper)
                && bytes > upper
            {
                return Err(ProtocolError::AboveBound { bytes, upper });
            }
        }
        if self.time_limit_ms == Some(0) {
            return Err(ProtocolError::ZeroTime);
        }
        if self.slot_ms == Some(0) {
            return Err(ProtocolError::ZeroSlot);
        }
        for (what, limit) in [("time limit", self.time_limit_ms), ("slot", self.slot_ms)] {
            if let (Some(_), Some(grace_ms), Some(limit_ms)) = (self.checkpoint_signal, self.grace_ms, limit)
                && grace_ms >= limit_ms
            {
                return Err(ProtocolError::LongGrace { what, grace_ms, limit_ms });
            }
        }
        if self.expected_ms == Some(0) {
            return Err(ProtocolError::ZeroExpected);
        }
        // 0 is none: the program asks.
        let caught = |signal| (0..=64).contains(&signal) && ![libc::SIGKILL, libc::SIGSTOP].contains(&signal);
        if self.checkpoint_signal.is_some_and(|signal| !caught(signal)) {
            return Err(ProtocolError::Uncatchable);
        }
        Ok(())
    }

    /// The batch size: as the user states it, or as the command line names it.
    #[must_use]
    pub fn batch_size(&self) -> Option<u32> {
        self.batch.or_else(|| batch::of_command(&self.command))
    }

    /// Knowledge about the job before it runs, with earlier runs of it.
    #[must_use]
    pub fn features<'a>(&'a self, runs: &'a [PastRun]) -> Features<'a> {
        Features {
            declared: self.mem.map(Bytes),
            declared_upper: self.mem_upper.map(Bytes),
            declared_time: self.expected_ms.map(Millis),
            total_steps: self.total_steps,
            runs,
            dry_run: self.dry_run.as_ref(),
            on_other_gpu: false,
            estimate: self.estimate.as_ref(),
            file: Some(&self.file_estimates),
            summary: self.summary.as_ref(),
            batch: self.batch_size(),
            user: None,
            calibration: None,
        }
    }

    /// Host resources that it requests.
    #[must_use]
    pub fn host(&self) -> HostNeed {
        HostNeed { cpu_milli: self.cpu_milli, memory: Bytes(self.host_memory) }
    }

    /// The scheduler's view, but for its needs.
    #[must_use]
    pub fn job(&self, id: u64, uid: u32, submitted: Millis) -> Job {
        let preemption = Preemption {
            allowed: self.preemptible,
            checkpoint_signal: self.checkpoint_signal,
            grace: self.grace_ms.map_or(Preemption::default().grace, Millis),
            // Known when it was seen to use a GPU.
            suspend: Err(SuspendRefusal::NoShim),
        };
        Job {
            user: UserId(uid),
            priority: self.priority,
            gpus: self.gpus,
            share: self.share.map(Permille),
            target: self.target.clone(),
            exclusive: self.exclusive,
            model: self.model.clone(),
            host: self.host(),
            time_limit: self.time_limit_ms.map(Millis),
            slot: self.slot_ms.map(Millis),
            preemption,
            requeue_on_timeout: self.requeue_on_timeout,
            submitted,
            first: self.loader.as_ref().is_some_and(|loader| loader.is_producer),
            max_attempts: self.attempts,
            after: self.after.iter().filter_map(After::dependency).collect(),
            array: self.task.and_then(|task| {
                let array = JobId(task.array(id));
                task.at_once.map(|at_once| ArrayLimit { array, at_once })
            }),
            together: self.together.map(|place| Together {
                first: JobId(place.first(id)),
                members: place.members,
                site: place.site,
                begun: false,
            }),
            ..Job::new(JobId(id))
        }
    }
}

#[cfg(test)]
mod tests {
    use radrm_need::Source;
    use radrm_scheduler_core::Target;

    use super::*;

    #[test]
    fn a_wrong_job_is_told_in_one_sentence() {
        let good = Spec { command: vec!["a".into()], cwd: "/".into(), gpus: 1, ..Spec::default() };
        good.check().unwrap();
        let hasty = |time_limit_ms, slot_ms| Spec {
            checkpoint_signal: Some(10),
            grace_ms: Some(5000),
            time_limit_ms,
            slot_ms,
            ..good.clone()
        };
        hasty(Some(5001), Some(5001)).check().unwrap();
        Spec { checkpoint_signal: Some(0), ..good.clone() }.check().unwrap();
        let speed = |least| Target { latency: None, speed: Some(Permille(least)) };
        for (bad, part) in [
            (Spec { command: Vec::new(), ..good.clone() }, "no command"),
            (Spec { cwd: "x".into(), ..good.clone() }, "not absolute"),
            (Spec { name: "a\0".into(), ..good.clone() }, "zero byte"),
            (Spec { gpus: 65, ..good.clone() }, "65 GPUs"),
            (Spec { share: Some(0), ..good.clone() }, "share"),
            (Spec { target: speed(0), ..good.clone() }, "lowest speed"),
            (Spec { target: speed(800), gpus: 0, ..good.clone() }, "without GPUs"),
            (Spec { checkpoint_signal: Some(9), ..good.clone() }, "catch"),
            (Spec { checkpoint_signal: Some(-1), ..good.clone() }, "catch"),
            (hasty(Some(5000), None), "time limit is 5 s"),
            (hasty(None, Some(4999)), "slot is 4.999 s"),
        ] {
            let text = bad.check().unwrap_err().to_string();
            assert!(text.contains(part) && text.lines().count() == 1, "{text}");
        }
    }

    #[test]
    fn all_that_a_job_says_of_its_needs_reaches_the_resolver() {
        let runs = [PastRun {
            batch: Some(8),
            peak: Bytes(1),
            ran: Millis(2),
            activity: None,
            host: None,
            complete: true,
        }];
        let text = r#"{"mem": 5, "mem_upper": 6, "expected_ms": 7, "total_steps": 9, "batch": 8,
            "estimate": {"bytes": 9, "upper": 10, "confidence": 950, "source": {"equal_runs": {"runs": 2}}},
            "dry_run": {"held": 11, "steps": 3, "gpu": "A100"}, "file_estimates": {"horus": 12},
            "summary": {"layers": [], "parameters": 13, "trainable": 0, "activations": 0, "batch": null}}"#;
        let spec: Spec = serde_json::from_str(text).unwrap();
        let features = spec.features(&runs);
        assert_eq!((features.declared, features.declared_upper), (Some(Bytes(5)), Some(Bytes(6))));
        assert_eq!((features.declared_time, features.batch), (Some(Millis(7)), Some(8)));
        assert_eq!(features.total_steps, Some(9));
        assert_eq!(features.runs, runs);
        assert_eq!(features.estimate.unwrap().source, Some(Source::EqualRuns { runs: 2 }));
        assert_eq!(features.dry_run.unwrap().held, Bytes(11));
        assert_eq!(features.file.unwrap()["horus"], Bytes(12));
        assert_eq!(features.summary.unwrap().parameters, 13);
    }
}
