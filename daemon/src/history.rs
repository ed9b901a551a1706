//! The runs of all users' jobs, from which needs are derived: the daemon's own dataset, beside its queue.
//!
//! No job waits for it: without a dataset, or with a damaged one, jobs run with what their users say.

use std::path::Path;
use std::time::Duration;

use radrm_base::{Activity, HostUse, PastRun, Permille};
use radrm_collector::dataset::{
    Dataset, DatasetError, Features, FirstSteps, Origin, PastCourse, PastRuns, ProgramKey, Row, Sharing,
};
use radrm_need::{Calibration, Prediction, RunFilter, RunHistory, Trained};
use radrm_scheduler_core::UserId;
use radrm_scheduler_core::interference::ShareCurve;

use super::status::End;
use super::store::Entry;

/// As many runs of one program are kept as are read.
const MAX_RUNS_OF_PROGRAM: u32 = 64;
/// And of all.
const MAX_RUNS: u32 = 20_000;
/// Companies of jobs that are kept: to learn from all of them takes about 0.2 s.
const MAX_COMPANIES: u32 = 512;
/// Time that the daemon waits for another program that has locked the file: an administrator's.
const MAX_WAIT: Duration = Duration::from_millis(200);

/// The daemon's dataset.
#[derive(Debug)]
pub(crate) struct History {
    /// `None` where it cannot be used.
    dataset: Option<Dataset>,
    host: String,
    /// The emulated machine that jobs run on.
    emulated: Option<String>,
}

impl History {
    /// Opens the dataset in the folder of the daemon's state, for the daemon's user alone. If it cannot be used, the
    /// sentence says why, and nothing is recorded.
    pub(crate) fn open(state: &Path, emulated: &str) -> (Self, Option<String>) {
        let path = state.join("dataset.db");
        let (dataset, failed) = match Dataset::open_within(&path, MAX_WAIT) {
            Ok(dataset) => (Some(dataset), None),
            Err(error) => (None, Some(format!("no needs are learned: {}: {error}", path.display()))),
        };
        let host = radrm_os::host::node_name();
        let emulated = (!emulated.is_empty()).then(|| emulated.to_owned());
        (Self { dataset, host, emulated }, failed)
    }

    /// Earlier runs of a program by a user on a model of GPU, the newest first.
    pub(crate) fn runs(&self, uid: u32, program: &ProgramKey, model: &str) -> Vec<PastRun> {
        let Some(dataset) = &self.dataset else { return Vec::new() };
        let of = RunFilter { user: UserId(uid), gpu_model: Some(model), emulated: self.emulated.is_some() };
        dataset.runs(program, &of).unwrap_or_default().into_owned()
    }

    /// Earlier runs of which it is also known what they held early, and that ended well.
    pub(crate) fn courses(&self, uid: u32, program: &ProgramKey, model: &str) -> Vec<PastCourse> {
        let Some(dataset) = &self.dataset else { return Vec::new() };
        let of = PastRuns {
            origin: Origin::Daemon,
            uid,
            gpu_model: Some(model),
            emulated: self.emulated.is_some(),
            limit: MAX_RUNS_OF_PROGRAM,
        };
        dataset.past_courses(program, &of).unwrap_or_default()
    }

    /// Calibration by how the bounds of the newest runs held.
    pub(crate) fn calibration(&self, model: &Trained) -> Calibration {
        let read = self.dataset.as_ref().and_then(|dataset| Calibration::of_history(model, dataset).ok());
        read.unwrap_or_else(|| Calibration::of(model))
    }

    /// Adds the run of an attempt, in place of one that was added before the daemon died.
    pub(crate) fn add(&mut self, run: &Row, features: Option<&Features>) -> Result<(), DatasetError> {
        let Some(dataset) = &mut self.dataset else { return Ok(()) };
        let row = Row {
            origin: Origin::Daemon,
            host: self.host.clone(),
            emulated: self.emulated.clone(),
            radrm_version: env!("CARGO_PKG_VERSION").to_owned(),
            ..run.clone()
        };
        dataset.add_bounded(&row, features, MAX_RUNS_OF_PROGRAM).map(|_| ())
    }

    /// Adds jobs that were seen to share a GPU.
    pub(crate) fn add_sharing(&mut self, of: &Sharing) -> Result<(), DatasetError> {
        let Some(dataset) = &mut self.dataset else { return Ok(()) };
        let row = Sharing { host: self.host.clone(), emulated: self.emulated.clone(), ..of.clone() };
        dataset.add_sharing(&row, MAX_COMPANIES)
    }

    /// The newest of them on GPUs as these are, real or emulated, oldest first.
    pub(crate) fn sharing(&self) -> Vec<Sharing> {
        let rows = self.dataset.as_ref().and_then(|dataset| dataset.sharing(MAX_COMPANIES).ok());
        let alike = |row: &Sharing| row.emulated.is_some() == self.emulated.is_some();
        rows.into_iter().flatten().filter(alike).collect()
    }

    /// The speed of a program at parts of a GPU of this model, if it was measured here.
    pub(crate) fn share_curve(&self, program: &str, model: &str) -> Option<ShareCurve> {
        let dataset = self.dataset.as_ref()?;
        let measured = dataset.share_curve(program, model, self.emulated.is_some()).ok()??;
        ShareCurve::of_rates(&measured.points)
    }

    /// Forgets all but the newest runs. It reads all of them: not to be done often.
    pub(crate) fn forget_older(&mut self) {
        if let Some(dataset) = &mut self.dataset {
            // The next time there are only more of them.
            let _ = dataset.forget_older(MAX_RUNS);
        }
    }
}

/// Compares the need that was predicted for a run with what it took.
pub(crate) fn observe(calibration: &mut Calibration, row: &Row) {
    if let Some(Prediction { user, need, peak, complete }) = row.prediction() {
        calibration.observe(user, &need, peak, complete);
    }
}

/// An attempt that has ended.
pub(crate) struct EndedRun<'a> {
    pub(crate) entry: &'a Entry,
    pub(crate) attempt: u32,
    pub(crate) end: &'a End,
    pub(crate) begin_ms: u64,
    pub(crate) duration_ms: u64,
    /// Without suspensions.
    pub(crate) ran_ms: u64,
    /// Memory that it needed, bytes, and true if it ended well with that; false if it needed at least that much.
    pub(crate) seen: Option<(u64, bool)>,
    pub(crate) batch: Option<u32>,
    /// Models of its GPUs.
    pub(crate) gpus: Vec<String>,
    /// Memory that it held after its first optimizer steps, as this daemon saw it.
    pub(crate) first_steps: Option<FirstSteps>,
    /// Host use of the run, if that was measured.
    pub(crate) host: Option<HostUse>,
}

impl EndedRun<'_> {
    /// Its row: that of its profile, but for what the daemon knows better, which is what is listed here. `None` if
    /// nothing was seen of its GPU memory.
    pub(crate) fn row(self) -> Option<Row> {
        let Self { entry, end, first_steps, .. } = self;
        let highest = end.peak.max(end.oom)?;
        let out_of_memory = end.oom.is_some();
        // What is concluded from the output of a program bounds nothing.
        let footprint = self.seen.map(|(bytes, _)| bytes).or(end.peak.filter(|_| !out_of_memory));
        let (outcome, exit_code) = match (end.code, end.signal) {
            (Some(code), _) => ("exited", Some(code)),
            (None, Some(_)) => ("signaled", None),
            (None, None) => ("unknown", None),
        };
        // As it was resolved before the run.
        let predicted = entry.needs.as_ref().and_then(|needs| needs.memory.as_ref());
        let part = |of: fn(&Activity) -> Permille| entry.activity.as_ref().map(|activity| of(activity).0);
        // The program as it was submitted: a profile counts the GPUs that it used.
        let submitted = Row::of_command(&entry.spec.command, &entry.spec.cwd, entry.spec.gpus.into());
        let profiled = end.record.as_ref().map(|record| record.row.clone());
        let profiled = profiled.unwrap_or_else(|| Row {
            peak_bytes: end.peak.unwrap_or(highest),
            peaks: end.peaks.clone(),
            ..Row::default()
        });
        let row = Row {
            command: submitted.command,
            arguments: submitted.arguments,
            cwd: submitted.cwd,
            program_key: submitted.program_key,
            gpus_requested: submitted.gpus_requested,
            start_unix_ns: self.begin_ms.saturating_mul(1_000_000),
            duration_ns: self.duration_ms.saturating_mul(1_000_000),
            run_time_ns: self.ran_ms.saturating_mul(1_000_000),
            batch: self.batch,
            user: Some(entry.user.clone()),
            uid: entry.uid,
            job_id: Some(entry.id),
            attempt: Some(self.attempt),
            gpu_model: self.gpus.first().cloned(),
            gpus: self.gpus,
            footprint_bytes: footprint,
            oom_request_bytes: end.oom_request,
            complete: self.seen.is_some_and(|(_, complete)| complete),
            smact_permille: part(|activity| activity.smact),
            smocc_permille: part(|activity| activity.smocc),
            drama_permille: part(|activity| activity.drama),
            host_cpu_milli: self.host.map(|host| host.cpu_milli),
            host_threads: self.host.map(|host| host.threads),
            host_resident_bytes: self.host.map(|host| host.resident.0),
            host_traffic: self.host.and_then(|host| host.memory_traffic),
            host_stalled_permille: self.host.and_then(|host| host.memory_stalled).map(|part| part.0),
            outcome: outcome.to_owned(),
            exit_code,
            signal: end.signal,
            out_of_memory,
            first_steps,
            ..profiled
        };
        Some(row.predicted_as(predicted, true))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use radrm_analyzer::Summary;
    use radrm_collector::dataset::Filter;
    use radrm_profile::model::{
        Account, Exit, Framework, Gpu, Job, Kernel, Kind, Outcome, Process, ProcessState,
    };
    use radrm_profile::{Bytes, Nanos, Profile};
    use radrm_protocol::spec::Spec;

    use super::*;
    use crate::outcome::RunRecord;

    /// A run on one GPU, as a profile has it.
    fn profile() -> Profile {
        let job = Job {
            radrm_version: "0.0.1".into(),
            command: ["t", "--bs", "8"].map(str::to_owned).into(),
            cwd: "/work".into(),
            program: Some("/usr/bin/t".into()),
            program_sha256: Some([15; 32]),
            user: Some("ada".into()),
            uid: 7,
            host: "node7".into(),
            start_unix_ns: 5_000_000,
            ..Job::default()
        };
        let mut profile = Profile::new(job);
        profile.gpus.push(Gpu {
            name: "A100".into(),
            uuid: "GPU-0".into(),
            driver_version: Some("570.1".into()),
            ..Gpu::default()
        });
        let mut account = Account { peak: Bytes(700), failed: 2, ..Account::default() };
        account.kinds[Kind::Device.index()].peak = Bytes(500);
        profile.processes.push(Process {
            state: ProcessState {
                accounts: vec![account],
                frameworks: vec![Framework { name: "PyTorch".into(), version: Some("2.15".into()) }],
                launches: 12,
                ..ProcessState::default()
            },
            kernels: vec![Kernel { name: "k".into(), ..Kernel::default() }],
            ..Process::default()
        });
        profile.outcome = Some(Outcome { exit: Exit::Code(0), duration: Nanos(9_000_000), reason: None });
        profile
    }

    #[test]
    fn radrmds_row_of_a_run_is_radrm_runs_but_for_named_fields() {
        let (dir, profile, path) = (tempfile::tempdir().unwrap(), profile(), Path::new("/work/t.radrm"));
        let summary = Summary::from_profile(&profile);
        let findings = radrm_analyzer::findings(&summary);
        let by_radrm_run = Row::of(&profile, Some(path), &findings);
        let record = RunRecord::of(&profile, path, &summary);
        let end =
            End { code: Some(0), peak: findings.footprint, record: Some(Box::new(record)), ..End::default() };
        let spec =
            Spec { command: profile.job.command.clone(), cwd: "/work".into(), gpus: 1, ..Spec::default() };
        let ended = EndedRun {
            entry: &Entry { id: 3, uid: 7, user: "ada".into(), spec, ..Entry::default() },
            attempt: 1,
            end: &end,
            begin_ms: 4,
            duration_ms: 11,
            ran_ms: 10,
            seen: end.peak.map(|peak| (peak, true)),
            batch: Some(8),
            gpus: vec!["A100".into()],
            first_steps: None,
            host: None,
        };
        let (mut history, _) = History::open(dir.path(), "");
        history.add(&ended.row().unwrap(), Some(&findings.features)).unwrap();
        let dataset = Dataset::open_existing(&dir.path().join("dataset.db")).unwrap();
        let by_radrmd = dataset.rows(&Filter::default()).unwrap().remove(0);
        assert_eq!(dataset.features(by_radrmd.id).unwrap(), Some(findings.features));
        assert_eq!((by_radrmd.launches, by_radrmd.device_peak_bytes), (Some(12), Some(500)));
        let fields = |row: &Row| serde_json::to_value(row).unwrap().as_object().unwrap().clone();
        let (own, other) = (fields(&by_radrmd), fields(&by_radrm_run));
        let differ = own.iter().filter(|(name, value)| other.get(*name) != Some(*value));
        let mut differ: Vec<&str> = differ.map(|(name, _)| name.as_str()).collect();
        differ.sort_unstable();
        let named = [
            "attempt",
            "duration_ns",
            "host",
            "id",
            "job_id",
            "origin",
            "radrm_version",
            "run_time_ns",
            "start_unix_ns",
        ];
        assert_eq!((differ, own.len()), (named.to_vec(), other.len()));
    }

    #[test]
    fn the_daemons_dataset_is_for_its_user_alone() {
        let dir = tempfile::tempdir().unwrap();
        let (_history, failed) = History::open(dir.path(), "");
        assert_eq!(failed, None);
        for entry in fs::read_dir(dir.path()).unwrap() {
            let entry = entry.unwrap();
            assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{:?}", entry.path());
        }
    }

    #[test]
    fn a_damaged_dataset_is_one_sentence_and_no_history() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("dataset.db"), "no database, but long enough to be read as one").unwrap();
        let (mut history, failed) = History::open(dir.path(), "");
        let sentence = failed.unwrap();
        assert!(sentence.contains("damaged") && sentence.lines().count() == 1, "{sentence}");
        history.add(&Row::default(), None).unwrap();
        assert!(history.runs(7, &ProgramKey::of(&[], Path::new("/"), 1), "m").is_empty());
    }
}
