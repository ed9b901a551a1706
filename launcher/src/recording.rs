//! The recording of one job: the segment that the shim writes, and what becomes of its figures.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::IsTerminal;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use radrm_analyzer::Summary;
use radrm_collector::dataset::{self, Row};
use radrm_collector::{
    Finished, HostCounters, JobWatch, NvmlSource, ProfileFile, Usage, WatchOptions, describe_job,
};
use radrm_cuda_abi::init_failure::init_failure;
use radrm_limits::LimitError;
use radrm_limits::audit::job::{Audited, JobAudit, OutsideProcess};
use radrm_limits::carriers::{Carriers, Processes, SegmentOrigin};
use radrm_limits::charge::Charge;
use radrm_limits::config::Percentage;
use radrm_limits::jobs;
use radrm_limits::leftovers;
use radrm_limits::mps::clients::Check;
use radrm_limits::share;
use radrm_os::Process;
use radrm_profile::model::{Exit, GpuClock, UncountedProcess};
use radrm_profile::{Bytes, Profile};
use radrm_telemetry::ledger::{LedgerError, LedgerView, Limit};
use radrm_telemetry::{CreateError, NoticeBoard, Scope, Segment, SegmentError, SegmentFile};
use radrm_text::output;
use radrm_text::output::width;
use rustix::fs::statfs;
use thiserror::Error;

use super::cli::{Plan, ReportTo, RowTo};
use super::emulated::label_of;
use super::ending::Ending;
use super::place::{self, Claimed, Place};
use super::remarks::Remarks;
use super::signals::own_pid;
use super::status_line::StatusLine;
use super::supervise::{Ended, Observer};
use crate::dry_run::{Found, stored};
use crate::layout::text_options;
use crate::outside;
use crate::report_file;
use crate::tensors::TensorRecording;

/// The segment's file systems that keep pages in memory only.
const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58f6];

/// Longest wait of a job's end for its audit.
const AUDIT_PATIENCE: Duration = Duration::from_millis(500);

/// Reason that a job has no segment, or none that can be used, as one sentence.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "each variant states its sentence")]
pub enum ChannelError {
    #[error("no memory to share with the program: {0}")]
    Create(CreateError),
    #[error("the segment cannot be read: {0}")]
    Read(SegmentError),
    #[error("the share cannot be set: {0}")]
    OpenForShare(SegmentError),
    #[error(transparent)]
    Share(#[from] LimitError),
}

/// The segment of a job. When this is dropped the file goes, unless a process can still join it.
pub struct Channel {
    file: SegmentFile,
    /// `None`: the kernel has none.
    board: Option<Arc<NoticeBoard>>,
    /// Decided already: the file goes, or it stays.
    is_decided: bool,
}

impl Channel {
    /// Makes the segment: in a directory that lives in memory, else without a name.
    ///
    /// On a disk the kernel would write the counters back again and again, and hold up the
    /// program's writes while it does.
    ///
    /// # Errors
    /// [`ChannelError::Create`].
    pub fn open(started: Duration) -> Result<Self, ChannelError> {
        let job = u64::try_from(started.as_nanos()).unwrap_or(0) ^ u64::from(own_pid().unsigned_abs());
        leftovers::remove_segments(&SegmentFile::directories());
        for directory in SegmentFile::directories() {
            if in_memory(&directory)
                && let Ok(file) = SegmentFile::create_in(&directory, job)
            {
                return Ok(Self::over(file));
            }
        }
        SegmentFile::create_unnamed(job).map(Self::over).map_err(ChannelError::Create)
    }

    fn over(file: SegmentFile) -> Self {
        Self { file, board: NoticeBoard::create().map(Arc::new), is_decided: false }
    }

    /// Value of `RADRM_NOTICES` for the program.
    #[must_use]
    pub fn board(&self) -> Option<i32> {
        self.board.as_ref().map(|board| board.id())
    }

    /// The processes that can still join.
    fn carriers(&self) -> Carriers {
        let origin = SegmentOrigin {
            path: self.path(),
            name: self.file.name(),
            uid: rustix::process::geteuid().as_raw(),
        };
        Processes::now().settled(origin)
    }

    /// Returns true if the segment can outlive this process, for processes that have not joined yet.
    pub fn can_outlive(&self) -> bool {
        self.file.is_named()
    }

    /// Leaves the file to the processes that can still join, or takes it away from them.
    fn decide(&mut self, stays: bool) {
        self.is_decided = true;
        if stays {
            self.file.leave();
        }
    }

    /// Gives the job a ledger with these limits.
    ///
    /// # Errors
    /// There is no memory for it.
    pub fn arm(&self, limits: &[Limit]) -> Result<LedgerView, LedgerError> {
        self.file.arm(limits)
    }

    /// Gives the job a share of its GPUs' time on a machine: an emulated one's file, or this computer.
    pub fn share(&self, percent: Percentage, machine: Option<&Path>) -> Result<(), ChannelError> {
        let segment = self.file.segment().map_err(ChannelError::OpenForShare)?;
        Ok(share::set(&segment, Some(percent), &jobs::all(), machine)?)
    }

    /// Value of `RADRM_SEGMENT` for the program.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.file.path()
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        if !self.is_decided && !self.carriers().is_empty() {
            self.file.leave();
        }
    }
}

/// Returns true if the nearest part of a path that exists lies on a file system in memory.
fn in_memory(directory: &Path) -> bool {
    directory
        .ancestors()
        .find_map(|path| statfs(path).ok())
        .is_some_and(|system| IN_MEMORY.contains(&system.f_type.cast_unsigned()))
}

/// A job that is being recorded.
pub struct Recording {
    watch: JobWatch,
    segment: Option<Segment>,
    warnings: Vec<String>,
    /// Failures to do what was asked for.
    failures: Vec<String>,
    clients: Option<Check>,
    charge: Option<Charge>,
    audit: Option<JobAudit>,
    /// Job that is audited; `None`: the job has no limit.
    audited: Option<AuditedJob>,
    /// Processes that it had found before it was started again.
    outside: Vec<UncountedProcess>,
    status_line: Option<StatusLine>,
    dry_run: Option<Found>,
    tensors: Option<TensorRecording>,
    /// The segment was shortened.
    is_cut: bool,
    // Last, so that the segment's file goes when it has no reader any more.
    channel: Channel,
}

/// A job that audits itself.
struct AuditedJob {
    source: NvmlSource,
    is_emulated: bool,
}

/// Start of a job, as it is recorded.
pub struct Start<'a> {
    /// Program and arguments as given.
    pub command: &'a [OsString],
    /// The file that was executed, if it is known.
    pub program: Option<&'a Path>,
    /// The program's process; this process, if the job is attended.
    pub pid: libc::pid_t,
    /// The processes are not descendants of this one.
    pub attended: bool,
    /// Start time, since 1970.
    pub at: Duration,
    /// The emulated machine: in words, and its NVML.
    pub emulated: Option<(String, PathBuf)>,
    /// There is a profile or a row of the dataset in which the program's digest is kept.
    pub kept: bool,
    /// Nothing is computed.
    pub dry: bool,
    /// The ledgers of the job's limits, with whom they apply to.
    pub ledgers: Vec<(Scope, LedgerView)>,
    /// Known context overheads, bytes, by the GPU's name.
    pub contexts: BTreeMap<String, u64>,
    /// The mode of the profile, if one was asked for.
    pub profile_mode: Option<u32>,
    /// Sentences for the report.
    pub notes: Vec<String>,
}

impl Recording {
    /// Begins to record a program that has just been started.
    ///
    /// # Errors
    /// The segment cannot be read.
    pub fn begin(
        channel: Channel,
        start: Start<'_>,
        place: &Place,
        unseen: Vec<String>,
    ) -> Result<Self, ChannelError> {
        // At once: what the program starts before it is counted is not counted either.
        let counters = (!start.attended).then(|| HostCounters::open(start.pid.unsigned_abs()));
        let segment = channel.file.segment().map_err(ChannelError::Read)?;
        let pid = start.pid.unsigned_abs();
        let at = u64::try_from(start.at.as_nanos()).unwrap_or(0);
        let mut job = describe_job(start.command, start.program, pid, at);
        let (label, nvml) = match start.emulated {
            Some((label, library)) => (Some(label), NvmlSource::Library(library)),
            // Started inside an emulated run: what is seen is that machine, and must not pass for a real one.
            None => {
                let described = |file: PathBuf| {
                    label_of(&file).unwrap_or_else(|| format!("the machine {}", file.display()))
                };
                (outer_machine().map(described), NvmlSource::System)
            }
        };
        job.emulated = label;
        let (mut warnings, mut failures) = (Vec::new(), Vec::new());
        let profile = match place {
            Place::Nowhere => ProfileFile::None,
            Place::File(named) => ProfileFile::Open(named.path().to_owned(), named.file().clone()),
            Place::Usual => {
                // The number that `radrm quota show` has for the job, and a shell for its background job.
                match place::claim(&radrm_profile::name::file_name(start.command, own_pid().unsigned_abs())) {
                    Ok(Claimed { path, file, elsewhere }) => {
                        warnings.extend(elsewhere.map(|reason| {
                        format!("the current directory cannot be written ({reason}), so the profile is elsewhere")
                    }));
                        ProfileFile::Open(path, file)
                    }
                    Err(error) => {
                        failures.push(error.to_string());
                        ProfileFile::None
                    }
                }
            }
        };
        if let (ProfileFile::Open(path, file), Some(mode)) = (&profile, start.profile_mode) {
            failures.extend(place::set_mode_of(path, file, mode).err().map(|error| error.to_string()));
        }
        let entry_name = radrm_cuda_abi::table::symbol;
        let gpu_clock = match (start.dry, job.emulated.is_some()) {
            (true, _) => GpuClock::Absent,
            (_, true) if !radrm_emulator_machine::time_is_real() => GpuClock::Modelled,
            _ => GpuClock::Real,
        };
        let audited = (!start.ledgers.is_empty())
            .then(|| AuditedJob { source: nvml.clone(), is_emulated: job.emulated.is_some() });
        let options = WatchOptions {
            profile,
            nvml,
            entry_name,
            unseen,
            notes: start.notes,
            gpu_clock,
            ledgers: start.ledgers,
            contexts: start.contexts,
            board: channel.board.clone(),
            init_words: |code| {
                let words = init_failure(code);
                (words.name, words.meaning, words.remedy)
            },
            digest: start.kept,
            ..WatchOptions::default()
        };
        let mut watch = JobWatch::start(segment, job, options);
        if let Some(counters) = counters {
            watch.count_host(counters);
        }
        let mut recording = Self {
            watch,
            segment: channel.file.segment().ok(),
            warnings,
            failures,
            clients: None,
            charge: None,
            audit: None,
            audited,
            outside: Vec::new(),
            status_line: None,
            dry_run: None,
            tensors: None,
            is_cut: false,
            channel,
        };
        recording.begin_audit();
        Ok(recording)
    }

    fn begin_audit(&mut self) {
        let (Some(job), Ok(segment)) = (&self.audited, self.channel.file.segment()) else { return };
        self.audit = JobAudit::start(Audited {
            segment,
            path: self.channel.path().to_owned(),
            launcher: Process(own_pid().unsigned_abs()),
            source: job.source.clone(),
            is_emulated: job.is_emulated,
        });
    }

    fn end_audit(&mut self) {
        if let Some(found) = self.audit.take().and_then(|audit| audit.finish(AUDIT_PATIENCE)) {
            self.audited_now(found);
        }
    }

    /// Records what the audit has found since it began, beside what it had found before.
    fn audited_now(&mut self, found: Vec<OutsideProcess>) {
        let found = outside::recorded(found);
        let before = self.outside.iter().filter(|known| found.iter().all(|new| new.pid != known.pid));
        let all: Vec<UncountedProcess> = before.cloned().chain(found.iter().cloned()).collect();
        self.outside.clone_from(&all);
        self.watch.outside(all);
    }

    /// Checks whether the processes of the job become clients of MPS.
    pub fn check_clients(&mut self, check: Check) {
        self.clients = Some(check);
    }

    /// Measures what the driver takes for processes, and charges it.
    pub fn charge(&mut self, charge: Charge) {
        self.charge = Some(charge);
    }

    /// Draws a line with the figures of the moment, where there is a terminal.
    pub fn show_live(&mut self) {
        self.status_line = StatusLine::new();
    }

    /// The processes that can still join the job, or have.
    pub fn carriers(&self) -> Carriers {
        self.channel.carriers()
    }

    /// Returns true if the segment can outlive this process.
    pub fn can_outlive(&self) -> bool {
        self.channel.can_outlive()
    }

    /// Returns true if a profile is written.
    pub fn has_profile(&self) -> bool {
        self.watch.profile_path().is_some()
    }

    /// Comes to rest, so that this process can be forked; then one of both goes on, and the other ends it.
    pub fn pause(&mut self, ending: Ending) {
        // The report is printed to the same terminal.
        self.status_line = None;
        self.end_audit();
        self.watch.pause(exit(ending));
    }

    /// Goes on: the other process has left the job to this one.
    pub fn resume(&mut self) {
        self.watch.resume();
        self.begin_audit();
        if let Some(charge) = &mut self.charge {
            charge.resume();
        }
    }

    /// Leaves the segment to the other process, and `with_profile` the profile's file.
    pub fn hand_over(&mut self, with_profile: bool) {
        if with_profile {
            self.detach();
        }
        self.channel.decide(true);
    }

    /// Leaves the profile's file to the other process.
    pub fn detach(&mut self) {
        self.watch.detach();
    }

    /// Decides whether the segment stays when this process ends.
    pub fn decide(&mut self, stays: bool) {
        self.channel.decide(stays);
    }

    /// Polls; returns the time to the next poll.
    pub fn poll(&mut self) -> Duration {
        let gap = self.watch.poll();
        if let (Some(check), Some(segment)) = (&mut self.clients, &self.segment) {
            self.warnings.extend(check.poll(segment));
        }
        self.check_segment();
        let measured = self.watch.take_measured();
        if let (Some(charge), Some(segment)) = (&mut self.charge, &self.segment) {
            charge.take(&measured, segment);
        }
        if let Some(found) = self.audit.as_mut().and_then(JobAudit::news) {
            self.audited_now(found);
        }
        if let (Some(line), Some(segment)) = (&mut self.status_line, &self.segment) {
            line.poll(segment);
        }
        gap
    }

    /// Notes once that a process of the job has shortened the segment: what it held is in no figure.
    fn check_segment(&mut self) {
        if self.is_cut || self.segment.as_ref().is_none_or(Segment::is_whole) {
            return;
        }
        self.is_cut = true;
        let sentence = "a process of the job has shortened its segment: what was not read before is lost";
        self.watch.note(sentence.to_owned());
    }

    /// Notes that the program has ended.
    pub fn program_ended(&mut self) {
        self.watch.program_ended();
    }

    /// Takes what the kernel says of the program at its end.
    pub fn used(&mut self, ended: &Ended) {
        self.watch.used(Usage {
            busy: ended.user + ended.system,
            resident: Bytes(ended.max_resident),
            context_switches: ended.context_switches,
            minor_faults: ended.minor_faults,
            major_faults: ended.major_faults,
        });
    }

    /// Takes what a dry run found out: it is recorded at the end.
    pub fn dry_run(&mut self, found: Option<Found>) {
        self.dry_run = found;
    }

    /// Takes what recorded tensors: it is read at the end.
    pub fn tensors(&mut self, recording: Option<TensorRecording>) {
        self.tensors = recording;
    }

    /// Completes the profile, adds the dataset's row and reports. `completed` is called with the profile when that stands.
    /// With `goes_on` another process completes file and row, and this one only reports. Gives the segment back.
    pub fn finish(
        mut self,
        plan: &Plan,
        ending: Ending,
        remarks: Remarks,
        goes_on: bool,
        completed: &mut dyn FnMut(&Profile),
    ) -> Channel {
        // The report is printed to the same terminal.
        self.status_line = None;
        self.check_segment();
        self.warnings.extend(self.watch.take_warnings());
        if let Some(charge) = &self.charge {
            charge.save();
        }
        self.end_audit();
        let Finished { mut profile, path, warnings, failures } = self.watch.finish(exit(ending));
        self.warnings.extend(warnings);
        self.failures.extend(failures);
        if let Some(found) = self.dry_run.take() {
            let records = stored::records(found, &Summary::from_profile(&profile));
            self.failures.extend(stored::add(&mut profile, path.as_deref(), stored::FIGURES, records));
            self.failures.extend(stored::add_expected(&mut profile, path.as_deref(), plan));
        }
        if let Some(tensors) = self.tensors.take() {
            let records = tensors.collect(&profile);
            self.failures.extend(stored::add(&mut profile, path.as_deref(), "tensors", records));
        }
        completed(&profile);
        radrm_symbols::fill(&mut profile);
        let training = plan.dry_run.as_ref().and_then(|dry_run| dry_run.training.as_ref());
        let summary = Summary::from_profile(&profile).with_training(training);
        if !goes_on {
            self.failures.extend(add_row(plan, (&profile, &summary), path.as_deref()));
        }
        report(plan, (&profile, &summary), path.as_deref(), remarks);
        remarks.all(self.warnings);
        for failure in &self.failures {
            remarks.failure(failure);
        }
        self.channel
    }
}

impl Observer for Option<Recording> {
    fn poll(&mut self) -> Duration {
        // Without a recording only signals and the end matter, and these wake by themselves.
        self.as_mut().map_or(Duration::from_secs(3600), Recording::poll)
    }

    fn goes_on(&mut self, ending: Ending) {
        if let Some(recording) = self {
            recording.watch.goes_on(exit(ending));
        }
    }

    fn descendant_ended(&mut self, pid: libc::pid_t, ending: Ending) {
        if let Some(recording) = self {
            recording.watch.process_ended(pid.unsigned_abs(), exit(ending));
        }
    }
}

fn exit(ending: Ending) -> Exit {
    match ending {
        Ending::Exited(code) => Exit::Code(code),
        Ending::Killed { signal, .. } => Exit::Signal(signal),
    }
}

fn report(plan: &Plan, (profile, summary): (&Profile, &Summary), path: Option<&Path>, remarks: Remarks) {
    let json = || radrm_analyzer::json(summary);
    match &plan.report {
        ReportTo::Nowhere => {}
        ReportTo::Text { timeline } => {
            let err = std::io::stderr();
            let options = text_options(err.is_terminal(), width(err.as_fd()), *timeline, path);
            output::to_stderr(&radrm_analyzer::text(profile, summary, &options));
        }
        ReportTo::JsonOnStderr => {
            output::to_stderr(&json());
        }
        ReportTo::JsonOnStdout => {
            if let Err(error) = output::to_stdout(&json()) {
                remarks.failure(&format!(
                    "the report cannot be written to standard output: {}",
                    radrm_base::reason(&error)
                ));
            }
        }
        ReportTo::JsonFile(file) => {
            if let Err(error) = report_file::write(file, json()) {
                remarks.failure(&error.to_string());
            }
        }
    }
}

/// The emulated machine that the environment leads to.
pub fn outer_machine() -> Option<PathBuf> {
    std::env::var_os(radrm_emulator_machine::ENV_MACHINE).filter(|file| !file.is_empty()).map(PathBuf::from)
}

/// Adds a run to the dataset that was asked for. What went wrong, as a sentence.
pub(crate) fn add_row(
    plan: &Plan,
    (profile, summary): (&Profile, &Summary),
    path: Option<&Path>,
) -> Option<String> {
    let file = match &plan.row {
        RowTo::Nowhere => return None,
        RowTo::File(file) => Some(file.clone()),
        RowTo::Default => dataset::default_path(),
    };
    let findings = radrm_analyzer::findings(summary);
    let row = Row {
        job_id: number_in("RADRM_JOB").or_else(|| number_in("SLURM_JOB_ID")),
        attempt: number_in("RADRM_ATTEMPT"),
        ..Row::of(profile, path, &findings)
    };
    dataset::record(file.as_deref(), &row, &findings.features)
}

/// Number that radrmd, or Slurm, left in the environment of a job of its own.
fn number_in<T: FromStr>(name: &str) -> Option<T> {
    std::env::var(name).ok()?.parse().ok()
}
