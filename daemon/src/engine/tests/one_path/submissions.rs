//! Generated submissions, as the replay and as the daemon take them.

use std::collections::BTreeMap;

use radrm_base::random::Rng;
use radrm_need::DryRun;
use radrm_protocol::spec::Spec;
use radrm_scheduler_core::replay::TraceJob;
use radrm_scheduler_core::{
    Bytes, Condition, Dependency, HostNeed, JobId, Millis, Permille, Preemption, SuspendRefusal, UserId,
};

use super::{BEGIN, GIB, GPUS, HOST};

const JOBS: u64 = 1000;

/// Runs of 40 programs of three users: declared, estimated, learned and unknown needs, dry runs, gangs, shares,
/// priorities, preemption with and without checkpoints, dependencies, time limits, GPU models that are not there, more
/// GPUs and more host memory than there is.
pub(super) fn submissions(first_user: u32, users: u32) -> Vec<TraceJob> {
    let mut rng = Rng::seeded(12);
    let mut arrival = BEGIN;
    // Earlier jobs of each user that can run: those that can not have no number.
    let mut earlier: BTreeMap<UserId, Vec<JobId>> = BTreeMap::new();
    let job = |index| {
        arrival += 1 + rng.below(40_000);
        let program = rng.below(40);
        let peak = Bytes((1 + program) * GIB - rng.below(GIB / 4));
        let about = |rng: &mut Rng| Bytes(peak.0 / 100 * (70 + rng.below(80)));
        let duration = Millis(1000 + rng.below(200_000));
        let gpus = [1, 1, 1, 1, 1, 2, 3, 5, 0][usize::try_from(rng.below(9)).unwrap()];
        let user = UserId(first_user + rng.below(users.into()) as u32);
        let preemption = Preemption {
            allowed: rng.one_in(2),
            checkpoint_signal: rng.one_in(2).then_some(libc::SIGUSR1),
            grace: Millis(rng.below(3000)),
            suspend: if rng.one_in(2) { Ok(()) } else { Err(SuspendRefusal::NoShim) },
        };
        let jobs = earlier.entry(user).or_default();
        let recent = jobs.iter().rev().nth(rng.below(4) as usize).copied();
        let condition = if rng.one_in(2) { Condition::Ok } else { Condition::Any };
        let after = recent.filter(|_| rng.one_in(6)).map(|job| Dependency {
            condition,
            first: job,
            last: job,
            failed: None,
        });
        let job = TraceJob {
            gpus,
            peak,
            declared: (rng.one_in(4) && gpus > 0).then(|| about(&mut rng)),
            dry_run: rng.one_in(3).then(|| DryRun {
                held: about(&mut rng),
                steps: 3,
                gpu: "G".into(),
                ..DryRun::default()
            }),
            estimates: rng.one_in(5).then(|| ("horus".to_owned(), about(&mut rng))).into_iter().collect(),
            model: rng.one_in(8).then(|| if rng.one_in(3) { "H" } else { "G" }.to_owned()),
            share: (rng.one_in(10) && gpus > 0).then(|| Permille(100 + 100 * rng.below(4) as u32)),
            host: HostNeed { cpu_milli: 1000 * rng.below(5), memory: Bytes(rng.below(12).pow(2) * 3 * GIB) },
            user,
            preemption,
            after: after.into_iter().collect(),
            priority: i32::try_from(rng.below(5)).unwrap() - 2,
            // Some run into theirs.
            time_limit: rng.one_in(3).then(|| Millis(duration.0 * (1 + 2 * rng.below(2)) / 2 + 4000)),
            ..TraceJob::new(format!("p{program}"), Millis(arrival), duration)
        };
        let is_large = job.gpus > GPUS as u16 || job.host.memory > Bytes(HOST);
        if !is_large
            && job.after.is_empty()
            && job.model.as_deref() != Some("H")
            && job.peak < Bytes(17 * GIB)
        {
            earlier.entry(user).or_default().push(JobId(index));
        }
        job
    };
    (0..JOBS).map(job).collect()
}

/// Specification of a trace's job for the daemon.
pub(super) fn spec(index: usize, job: &TraceJob) -> Spec {
    Spec {
        command: vec![job.name.clone()],
        environment: vec![format!("INDEX={index}")],
        cwd: "/".into(),
        gpus: job.gpus,
        mem: job.declared.map(|bytes| bytes.0),
        dry_run: job.dry_run.clone(),
        file_estimates: job.estimates.clone(),
        model: job.model.clone(),
        share: job.share.map(|share| share.0),
        cpu_milli: job.host.cpu_milli,
        host_memory: job.host.memory.0,
        priority: job.priority,
        time_limit_ms: job.time_limit.map(|time| time.0),
        preemptible: job.preemption.allowed,
        checkpoint_signal: job.preemption.checkpoint_signal,
        grace_ms: Some(job.preemption.grace.0),
        ..Spec::default()
    }
}
