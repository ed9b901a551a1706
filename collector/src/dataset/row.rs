//! A row: what is kept of a run.

use super::first_steps::FirstSteps;
use super::program::ProgramKey;
use super::ranks::RowRanks;
use radrm_base::{HostMeter, HostUse};
use radrm_need::DryRun;
use radrm_profile::Bytes;
use radrm_profile::findings::Findings;
use radrm_profile::model::{Exit, Fit, KIND_COUNT, Kind, Profile, Reason, frameworks};
use radrm_profile::peak::{gpu_kind_peaks, gpu_peak};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::Path;

/// Origin of a row: the way in which its figures were obtained, and its writer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// By `radrm-run`, on real GPUs.
    #[default]
    Measured,
    /// By `radrm-run`, on emulated GPUs.
    Emulated,
    /// By a dry run, which computes nothing.
    DryRun,
    /// By `radrmd`, of one of its jobs.
    Daemon,
}

impl Origin {
    const ALL: [Origin; 4] = [Origin::Measured, Origin::Emulated, Origin::DryRun, Origin::Daemon];

    /// As a row holds it.
    pub fn as_str(self) -> &'static str {
        match self {
            Origin::Measured => "measured",
            Origin::Emulated => "emulated",
            Origin::DryRun => "dry_run",
            Origin::Daemon => "daemon",
        }
    }

    /// From a row; `None` for a word of a newer version.
    pub fn parse(text: &str) -> Option<Origin> {
        Origin::ALL.into_iter().find(|origin| origin.as_str() == text)
    }
}

/// One job that ran, without the features of its processes: [`super::Features`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Number of the row; 0 before it was added.
    pub id: i64,
    /// Origin of the figures, and writer of the row.
    pub origin: Origin,
    /// Start, nanoseconds since 1970.
    pub start_unix_ns: u64,
    /// From its start to its end, nanoseconds.
    pub duration_ns: u64,
    /// Run time: the duration without times in which it was suspended, nanoseconds.
    pub run_time_ns: u64,
    /// The command as it was typed: its first word.
    pub command: String,
    /// The file that was executed.
    pub program: Option<String>,
    /// Its SHA-256, hexadecimal.
    pub program_sha256: Option<String>,
    /// The command's further words.
    pub arguments: Vec<String>,
    /// Working directory.
    pub cwd: Option<String>,
    /// Equal for runs that differ in batch size only: a [`ProgramKey`]; `None`: not known.
    pub program_key: Option<String>,
    /// Batch size, if it is known.
    pub batch: Option<u32>,
    /// User name.
    pub user: Option<String>,
    /// Numeric user id.
    pub uid: u32,
    /// Host name.
    pub host: String,
    /// Number of the daemon's job that the run belongs to.
    pub job_id: Option<u64>,
    /// Attempt number of that job, from 1.
    pub attempt: Option<u32>,
    /// GPUs that were asked for; where nothing was asked, those used.
    pub gpus_requested: Option<u32>,
    /// Model of the GPUs: of several the first.
    pub gpu_model: Option<String>,
    /// Names of the GPUs that the job used.
    pub gpus: Vec<String>,
    /// Version of the kernel driver.
    pub driver: Option<String>,
    /// Frameworks seen, as "NAME VERSION", comma-separated.
    pub framework: Option<String>,
    /// Specification of the emulated machine; `None` on real GPUs.
    pub emulated: Option<String>,
    /// Device memory that it needed on the GPU where that was highest, contexts included, bytes. Of a run that ran
    /// out of memory: what it held there and requested on top.
    pub footprint_bytes: Option<u64>,
    /// Memory that it requested on top when it ran out of memory, bytes; part of the footprint.
    pub oom_request_bytes: Option<u64>,
    /// It was not cut short: it exited with code 0.
    pub complete: bool,
    /// Mean SM activity, thousandths; `None`: not measured.
    pub smact_permille: Option<u32>,
    /// Mean SM occupancy, thousandths; `None`: not measured.
    pub smocc_permille: Option<u32>,
    /// Mean DRAM activity, thousandths; `None`: not measured.
    pub drama_permille: Option<u32>,
    /// CPU time in a unit of time, thousandths of a core; `None`: not measured.
    pub host_cpu_milli: Option<u32>,
    /// Threads that took it at the same time.
    pub host_threads: Option<u32>,
    /// Most resident memory of its processes, bytes: pages that several have count in each.
    pub host_resident_bytes: Option<u64>,
    /// Memory traffic of its processes, bytes in a second; `None`: not measured.
    pub host_traffic: Option<u64>,
    /// Part of the CPU cycles of its processes in which a processor waited, thousandths; `None`: not measured.
    pub host_stalled_permille: Option<u32>,
    /// The need that was predicted before the run, bytes.
    pub predicted_bytes: Option<u64>,
    /// The upper bound of that prediction, bytes.
    pub predicted_upper_bytes: Option<u64>,
    /// Confidence of that bound, thousandths.
    pub predicted_confidence_permille: Option<u32>,
    /// Source of that prediction, in the serialized form of [`radrm_need::Source`].
    pub predicted_source: Option<String>,
    /// Figures of the dry run, if it was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dry_run: Option<DryRun>,
    /// Highest device memory on one GPU that calls asked for, bytes.
    pub peak_bytes: u64,
    /// False if that is an upper bound (several processes at once).
    pub peak_exact: bool,
    /// The peak of every GPU.
    pub peaks: Vec<GpuPeak>,
    /// Peaks by kind, on the GPU where the kind's peak was highest, bytes: the
    /// most that was held at one moment, as far as that is known, else an
    /// upper bound. `None` in rows that were not made from a profile, like all counts below.
    pub device_peak_bytes: Option<u64>,
    /// Memory that stream-ordered pools held.
    pub pool_reserved_peak_bytes: Option<u64>,
    /// Memory that was handed out of them.
    pub pool_used_peak_bytes: Option<u64>,
    /// Virtual memory management.
    pub vmm_peak_bytes: Option<u64>,
    /// Arrays.
    pub array_peak_bytes: Option<u64>,
    /// Graph memory.
    pub graph_peak_bytes: Option<u64>,
    /// Managed memory.
    pub managed_peak_bytes: Option<u64>,
    /// Page-locked host memory.
    pub pinned_peak_bytes: Option<u64>,
    /// Highest figure of NVML for the job's processes on one GPU.
    pub nvml_peak_bytes: Option<u64>,
    /// Kernel launches by the program.
    pub launches: Option<u64>,
    /// Graph launches.
    pub graph_launches: Option<u64>,
    /// Different kernels.
    pub kernels: Option<u64>,
    /// Processes that used a GPU.
    pub processes: Option<u64>,
    /// Refused memory requests.
    pub failed_requests: Option<u64>,
    /// `exited`, `signaled`, `not_started` or `unknown`.
    pub outcome: String,
    /// Exit code.
    pub exit_code: Option<i32>,
    /// Signal.
    pub signal: Option<i32>,
    /// True if it failed after a refusal for lack of GPU memory.
    pub out_of_memory: bool,
    /// Path that the profile was written to.
    pub profile_path: Option<String>,
    /// Version of radrm.
    pub radrm_version: String,
    /// Cards, and whether the program fits on them: of dry runs, in a table of their own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fits: Vec<Fit>,
    /// The ranks that a dry run ran of a larger job, in a table of their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ranks: Option<RowRanks>,
    /// Memory that it held after its first optimizer steps: of jobs of `radrmd`, in a table of their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_steps: Option<FirstSteps>,
}

/// The peak on one GPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GpuPeak {
    /// Index in the job.
    pub index: u8,
    /// UUID.
    pub uuid: String,
    /// Product name.
    pub name: String,
    /// Highest device memory.
    pub peak_bytes: u64,
    /// False if it is an upper bound.
    pub exact: bool,
}

impl Row {
    /// The row of a run, from its profile and what the analysis of it found. The only way from a profile to a row.
    #[must_use]
    pub fn of(profile: &Profile, profile_path: Option<&Path>, findings: &Findings) -> Row {
        let [smact, smocc, drama] = findings.features.activity().map(|part| part.map(|part| part.0));
        let row = Row {
            footprint_bytes: findings.footprint,
            oom_request_bytes: findings.oom_request,
            smact_permille: smact,
            smocc_permille: smocc,
            drama_permille: drama,
            ..Row::of_figures(profile, profile_path)
        };
        let Some(figures) = &profile.dry_run else { return row };
        let expected = profile.expected.as_ref();
        Row {
            origin: Origin::DryRun,
            predicted_bytes: expected.map(|expected| expected.bytes),
            predicted_upper_bytes: expected.and_then(|expected| expected.upper),
            predicted_confidence_permille: expected
                .and_then(|expected| expected.confidence)
                .map(|part| (part * 1000.0).round() as u32),
            predicted_source: expected.map(|expected| expected.source.clone()),
            dry_run: dry_run_of(profile),
            footprint_bytes: figures.gpus.iter().map(|gpu| gpu.held_peak).max(),
            // Nothing was computed.
            smact_permille: None,
            smocc_permille: None,
            drama_permille: None,
            host_cpu_milli: None,
            host_threads: None,
            host_resident_bytes: None,
            host_traffic: None,
            host_stalled_permille: None,
            ..row
        }
    }

    /// The figures that a profile has itself.
    fn of_figures(profile: &Profile, profile_path: Option<&Path>) -> Row {
        let job = &profile.job;
        let states = || profile.processes.iter().map(|process| &process.state);
        let sum = |values: &mut dyn Iterator<Item = u64>| values.fold(0, u64::saturating_add);
        let peaks = gpu_peaks(profile);
        let highest = peaks.iter().max_by_key(|peak| peak.peak_bytes);
        let kind_peaks = kind_peaks(profile);
        let kind = |kind: Kind| Some(kind_peaks[kind.index()]);
        // A dry run of some ranks is one of a job on as many GPUs as it has ranks.
        let world = profile.ranks.as_ref().map(|ranks| ranks.world);
        let gpus_requested = world.unwrap_or_else(|| u32::try_from(peaks.len()).unwrap_or(u32::MAX));
        let (outcome, exit_code, signal) = match profile.outcome.as_ref().map(|outcome| outcome.exit) {
            Some(Exit::Code(code)) => ("exited", Some(code), None),
            Some(Exit::Signal(signal)) => ("signaled", None, Some(signal)),
            Some(Exit::NotStarted) => ("not_started", None, None),
            Some(Exit::Unknown) | None => ("unknown", None, None),
        };
        let host = host_use(profile);
        let kernels: BTreeSet<&str> =
            profile.processes.iter().flat_map(|p| &p.kernels).map(|kernel| kernel.name.as_str()).collect();
        Row {
            origin: if job.emulated.is_some() { Origin::Emulated } else { Origin::Measured },
            start_unix_ns: job.start_unix_ns,
            duration_ns: profile.duration().0,
            run_time_ns: profile.duration().0,
            host_cpu_milli: host.map(|host| host.cpu_milli),
            host_threads: host.map(|host| host.threads),
            host_resident_bytes: host.map(|host| host.resident.0),
            host_traffic: host.and_then(|host| host.memory_traffic),
            host_stalled_permille: host.and_then(|host| host.memory_stalled).map(|part| part.0),
            program: job.program.clone(),
            program_sha256: job.program_sha256.map(|d| d.iter().map(|byte| format!("{byte:02x}")).collect()),
            user: job.user.clone(),
            uid: job.uid,
            host: job.host.clone(),
            gpu_model: peaks.first().map(|peak| peak.name.clone()),
            gpus: peaks.iter().map(|peak| peak.name.clone()).collect(),
            driver: profile.gpus.iter().find_map(|gpu| gpu.driver_version.clone()),
            framework: framework_list(profile),
            emulated: job.emulated.clone(),
            complete: exit_code == Some(0),
            peak_bytes: highest.map_or(0, |peak| peak.peak_bytes),
            peak_exact: highest.is_none_or(|peak| peak.exact),
            peaks,
            device_peak_bytes: kind(Kind::Device),
            pool_reserved_peak_bytes: kind(Kind::PoolReserved),
            pool_used_peak_bytes: kind(Kind::PoolUsed),
            vmm_peak_bytes: kind(Kind::Vmm),
            array_peak_bytes: kind(Kind::Array),
            graph_peak_bytes: kind(Kind::Graph),
            managed_peak_bytes: kind(Kind::Managed),
            pinned_peak_bytes: kind(Kind::PinnedHost),
            nvml_peak_bytes: profile
                .samples
                .iter()
                .filter_map(|s| s.processes.iter().filter_map(|p| p.used).reduce(|a, b| a + b))
                .max()
                .map(Bytes::get),
            launches: Some(sum(&mut states().map(|state| state.launches))),
            graph_launches: Some(sum(&mut states().map(|state| state.graph_launches))),
            kernels: Some(kernels.len() as u64),
            processes: Some(profile.processes.len() as u64 + profile.processes_not_kept),
            failed_requests: Some(sum(&mut states()
                .flat_map(|state| &state.accounts)
                .map(|account| account.failed))),
            outcome: outcome.into(),
            exit_code,
            signal,
            out_of_memory: profile
                .outcome
                .as_ref()
                .is_some_and(|outcome| outcome.reason == Some(Reason::OutOfGpuMemory)),
            profile_path: profile_path.map(|path| absolute(path).to_string_lossy().into_owned()),
            radrm_version: job.radrm_version.clone(),
            fits: profile.fits.clone(),
            ranks: profile.ranks.as_ref().map(RowRanks::from),
            ..Row::of_command(&job.command, Path::new(&job.cwd), gpus_requested)
        }
    }

    /// A row that says what ran, and nothing of how: for runs without a profile.
    pub fn of_command(command: &[String], cwd: &Path, gpus_requested: u32) -> Row {
        Row {
            command: command.first().cloned().unwrap_or_default(),
            arguments: command.iter().skip(1).cloned().collect(),
            cwd: Some(cwd.to_string_lossy().into_owned()),
            program_key: Some(ProgramKey::of(command, cwd, gpus_requested).as_str().to_owned()),
            batch: radrm_base::batch::of_command(command),
            gpus_requested: Some(gpus_requested),
            ..Row::default()
        }
    }
}

/// Figures of a dry run on the GPU that needs most; `None` if they were withheld.
#[must_use]
pub fn dry_run_of(profile: &Profile) -> Option<DryRun> {
    let figures = profile.dry_run.as_ref()?;
    let largest = figures.gpus.iter().max_by_key(|gpu| gpu.held_peak).filter(|gpu| gpu.held_peak > 0)?;
    Some(DryRun {
        held: Bytes(largest.held_peak),
        kind: figures.kind(),
        steps: figures.steps,
        gpu: largest.name.clone(),
        framework: framework_list(profile),
        card: profile
            .gpus
            .iter()
            .find(|gpu| gpu.name == largest.name)
            .map(|gpu| gpu.total)
            .filter(|total| total.0 > 0),
        no_bound: figures.no_bound().map(str::to_owned),
        background: false,
    })
}

fn absolute(path: &Path) -> std::path::PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// Use of the host by the job, from the spans of its profile.
#[must_use]
pub fn host_use(profile: &Profile) -> Option<HostUse> {
    let spans = &profile.host.spans;
    let mut meter = HostMeter::default();
    spans.iter().for_each(|span| meter.add(span.span.0, span.busy.0));
    meter.used(spans.iter().map(|span| span.resident).max()?)
}

/// The peak on each GPU on which a process of the job had an account.
#[must_use]
pub fn gpu_peaks(profile: &Profile) -> Vec<GpuPeak> {
    let accounts = profile.processes.iter().flat_map(|process| &process.state.accounts);
    let indices: BTreeSet<_> = accounts.map(|account| account.gpu).collect();
    indices
        .into_iter()
        .map(|index| {
            let gpu = profile.gpu(index);
            let peak = gpu_peak(profile, index);
            GpuPeak {
                index: index.0,
                uuid: gpu.map(|gpu| gpu.uuid.clone()).unwrap_or_default(),
                name: gpu.map(|gpu| gpu.name.clone()).unwrap_or_default(),
                peak_bytes: peak.total.0,
                exact: peak.exact,
            }
        })
        .collect()
}

/// The most that was held of every kind at one moment, on the GPU where that
/// was highest.
fn kind_peaks(profile: &Profile) -> [u64; KIND_COUNT] {
    let accounts = profile.processes.iter().flat_map(|process| &process.state.accounts);
    let gpus: BTreeSet<_> = accounts.map(|account| account.gpu).collect();
    let mut highest = [0; KIND_COUNT];
    for gpu in gpus {
        for (highest, peak) in highest.iter_mut().zip(gpu_kind_peaks(profile, gpu)) {
            *highest = peak.bytes.0.max(*highest);
        }
    }
    highest
}

/// The column `framework` of a profile: frameworks with their versions.
#[must_use]
pub fn framework_list(profile: &Profile) -> Option<String> {
    let seen = frameworks(profile);
    (!seen.is_empty()).then(|| seen.join(", "))
}
