//! Runs that the sweep starts by itself, each by a supervisor of its own.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use radrm_attempt::{Barrier, HeldProcess, barrier};

use super::{Event, POLL_INTERVAL, Sweep, members};
use crate::attempt::{Attempt, Order, PROFILE, Standing};
use crate::error::SweepError;
use crate::figures;
use crate::link;
use crate::machine::instances;
use crate::metrics;
use crate::plan::{Collocation, Group, Run};
use crate::store::{Outcome, Recorded};

/// Finding of one look at the members of a group.
pub(super) enum Look {
    /// An attempt is under way.
    UnderWay,
    /// None is, and the sweep was asked to end before all had a result.
    Interrupted,
    /// None is: the outcome of each that left one.
    Ended(Vec<Option<Outcome>>),
}

/// Between two looks at members that come to the barrier: this long the first one waits for nothing.
const BARRIER_INTERVAL: Duration = Duration::from_millis(2);

/// A member that has not come to the barrier by then never will: it only has to be started.
const BARRIER_PATIENCE: Duration = Duration::from_secs(60);

impl Sweep<'_> {
    /// Starts the members of a group at once; `None` if that was interrupted. `gpu`: for members that name none.
    pub(super) fn start(
        &self,
        group: &Group,
        runs: &[Recorded],
        gpu: Option<&str>,
        report: &mut dyn FnMut(&Event<'_>),
    ) -> Result<Option<Vec<Child>>, SweepError> {
        let Some(first) = runs.first() else { return Ok(Some(Vec::new())) };
        let shared = self.attempt(first);
        let io = |path: PathBuf| move |source| SweepError::Io { path, source };
        let tied = match runs.len() {
            0 | 1 => None,
            members => {
                std::fs::create_dir_all(shared.folder()).map_err(io(shared.folder().to_owned()))?;
                let barrier = Barrier { path: shared.file("barrier"), members, tied: true };
                let tie = barrier.make_tied().map_err(io(barrier.path.clone()))?;
                Some((barrier, tie))
            }
        };
        let mut children = Vec::new();
        let instances = instances(group, self.options.instances.as_deref().unwrap_or_default())?;
        for (run, member) in members(group, runs) {
            let (planned, instance) = (&group.runs[member], instances[member].clone());
            let attempt = self.attempt(run);
            let mut order = Order {
                command: self.command(planned, &attempt, &shared),
                directory: planned.directory.clone(),
                environment: planned.environment.clone(),
                timeout_ms: planned.timeout_ms,
                grace_ms: self.options.grace.as_millis() as u64,
                barrier: tied.as_ref().map(|(barrier, _)| barrier.clone()),
                mark: self.mark(run),
            };
            let named = if planned.devices.is_empty() {
                gpu.unwrap_or("").to_owned()
            } else {
                planned.devices.join(",")
            };
            let devices = instance.unwrap_or(named);
            let logged = attempt.file(metrics::FILE).to_string_lossy().into_owned();
            order.environment.insert(metrics::VARIABLE.to_owned(), logged);
            // What the file or the user says of it stays.
            if std::env::var_os(link::VARIABLE).is_none() {
                order.environment.entry(link::VARIABLE.to_owned()).or_insert_with(|| link::context(run));
            }
            if !devices.is_empty() {
                if self.options.jobs > 1 {
                    // The numbers by which the groups were kept apart.
                    order.environment.insert("CUDA_DEVICE_ORDER".to_owned(), "PCI_BUS_ID".to_owned());
                }
                order.environment.insert("CUDA_VISIBLE_DEVICES".to_owned(), devices);
            }
            let status = attempt.prepare(&order).map_err(io(attempt.folder().to_owned()))?;
            children.push(self.supervisor(&attempt, status)?);
        }
        let Some((barrier, _tie)) = tied else { return Ok(Some(children)) };
        let since = Instant::now();
        loop {
            let is_gone = runs.iter().any(|run| self.attempt(run).standing() != Standing::UnderWay);
            if self.stop.count() > 0 || is_gone || since.elapsed() > BARRIER_PATIENCE {
                // Without effect if all have come.
                barrier::give_up(&barrier.path);
            }
            let decided = barrier.decided().map_err(io(barrier.path.clone()))?;
            if decided == Some(true) {
                return Ok(Some(children));
            }
            if decided == Some(false) {
                for child in &mut children {
                    let _ = child.wait();
                }
                if self.stop.count() == 0 {
                    report(&Event::Remark(format!("group {}: not all members could be started", group.name)));
                    return Ok(Some(children));
                }
                return Ok(None);
            }
            thread::sleep(BARRIER_INTERVAL);
        }
    }

    /// A supervisor that holds the lock of its attempt from its first moment on.
    fn supervisor(&self, attempt: &Attempt, status: std::fs::File) -> Result<Child, SweepError> {
        use std::os::unix::process::CommandExt;
        let (program, words) = &self.options.supervisor;
        let log = std::fs::File::create(attempt.file("supervisor.log"));
        let log = log.map_err(|source| SweepError::Io { path: attempt.folder().to_owned(), source })?;
        let mut command = Command::new(program);
        // Ctrl-C of the terminal is the sweep's alone.
        command.args(words).arg(attempt.folder()).process_group(0);
        command.stdin(Stdio::from(status)).stdout(Stdio::null()).stderr(log);
        command.spawn().map_err(|source| SweepError::Start { program: program.display().to_string(), source })
    }

    fn command(&self, run: &Run, attempt: &Attempt, shared: &Attempt) -> Vec<String> {
        let file = |attempt: &Attempt, name: &str| attempt.file(name).to_string_lossy().into_owned();
        let mut words = vec![self.options.launcher.to_string_lossy().into_owned(), "--quiet".to_owned()];
        let mut option = |name: &str, value: &str| words.extend([name.to_owned(), value.to_owned()]);
        option("-o", &file(attempt, PROFILE));
        // A share of the running time below 0.5 %, for SM activity by the shape of launches.
        option("--kernels", "sample");
        if let Some(machine) = &run.emulate {
            option("--emulate", machine);
            option("--machine", &file(shared, "machine"));
        }
        if let Some(limit) = &run.mem_limit {
            option("--mem-limit", limit);
        }
        if let Some(share) = &run.sm_limit {
            option("--sm-limit", share);
        }
        if run.collocation == Collocation::Mps {
            words.push("--mps".to_owned());
        }
        words.push("--".to_owned());
        words.extend(run.words(&file(attempt, "profiler")));
        words
    }

    /// Waits until no attempt is under way; what came of each, or `None` if that was interrupted.
    pub(super) fn watch(
        &mut self,
        runs: &[Recorded],
        children: &mut Vec<Child>,
        report: &mut dyn FnMut(&Event<'_>),
    ) -> Result<Option<Vec<Option<Outcome>>>, SweepError> {
        let mut sent = vec![0; runs.len()];
        loop {
            match self.look(runs, children, &mut sent) {
                Look::Ended(outcomes) => return Ok(Some(outcomes)),
                Look::Interrupted => return Ok(None),
                Look::UnderWay => self.stop_early(runs)?,
            }
            report(&Event::Tick);
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Looks at the members of a group, and passes on what asks the sweep to end. `sent`: to each member so far.
    pub(super) fn look(&self, runs: &[Recorded], children: &mut Vec<Child>, sent: &mut [usize]) -> Look {
        children.retain_mut(|child| !matches!(child.try_wait(), Ok(Some(_))));
        let standings: Vec<_> = runs.iter().map(|run| self.attempt(run).standing()).collect();
        if !standings.contains(&Standing::UnderWay) {
            for mut child in children.drain(..) {
                let _ = child.wait();
            }
            let ended = |(standing, run): (Standing, &Recorded)| match standing {
                Standing::Ended(ended) => Some(figures::outcome(&ended, &self.attempt(run).file(PROFILE))),
                Standing::UnderWay | Standing::Nothing => None,
            };
            let outcomes: Vec<_> = standings.into_iter().zip(runs).map(ended).collect();
            // A group that ended just before the signal is recorded.
            let is_whole = outcomes.iter().all(Option::is_some);
            return if is_whole || self.stop.count() == 0 {
                Look::Ended(outcomes)
            } else {
                Look::Interrupted
            };
        }
        let asked = self.stop.count().min(2);
        for (run, sent) in runs.iter().zip(sent) {
            // A supervisor that cannot be asked yet is asked the next time.
            if *sent < asked && end(&self.attempt(run)) {
                *sent += 1;
            }
        }
        Look::UnderWay
    }
}

/// Asks the supervisor of an attempt to end its program; gives whether it was there to be asked.
pub(super) fn end(attempt: &Attempt) -> bool {
    let held = attempt.supervisor().and_then(HeldProcess::of);
    held.is_some_and(|held| held.signal(libc::SIGTERM))
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use radrm_os::ProcessIdentity;
    use rustix::process::Signal;

    use super::*;

    #[test]
    fn a_supervisor_is_asked_only_once_its_process_is_known() {
        let dir = tempfile::tempdir().unwrap();
        let attempt = Attempt::at(dir.path().join("1"));
        let _status = attempt.prepare(&Order::default()).unwrap();
        assert!(!end(&attempt), "it has not said yet which process it is");
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let identity = ProcessIdentity::of(child.id()).unwrap();
        let says = |start: u64| std::fs::write(attempt.file("status"), format!("{} {start}\n", child.id()));
        says(identity.start + 1).unwrap();
        assert!(!end(&attempt), "another process has its number");
        says(identity.start).unwrap();
        assert!(end(&attempt));
        assert_eq!(child.wait().unwrap().signal(), Some(Signal::TERM.as_raw()));
        assert!(!end(&attempt));
    }
}
