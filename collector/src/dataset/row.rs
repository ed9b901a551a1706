//! A row: from a profile, into the table and out of it.

use super::Features;
use radrm_profile::Bytes;
use radrm_profile::model::{Exit, KIND_COUNT, Kind, Profile, Reason, frameworks};
use radrm_profile::peak::{gpu_kind_peaks, gpu_peak};
use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::Path;

/// One job that ran, without the features of its processes: [`super::Features`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Number of the row; 0 before it was added.
    pub id: i64,
    /// Start, nanoseconds since 1970.
    pub start_unix_ns: u64,
    /// How long it took, nanoseconds.
    pub duration_ns: u64,
    /// The command as it was typed: its first word.
    pub command: String,
    /// The file that was executed.
    pub program: Option<String>,
    /// Its SHA-256, hexadecimal.
    pub program_sha256: Option<String>,
    /// The command's further words.
    pub arguments: Vec<String>,
    /// User name.
    pub user: Option<String>,
    /// Numeric user id.
    pub uid: u32,
    /// Host name.
    pub host: String,
    /// Names of the GPUs that the job used.
    pub gpus: Vec<String>,
    /// Version of the kernel driver.
    pub driver: Option<String>,
    /// Frameworks seen, as "NAME VERSION", comma-separated.
    pub framework: Option<String>,
    /// Specification of the emulated machine; `None` on real GPUs.
    pub emulated: Option<String>,
    /// Highest device memory on one GPU, bytes.
    pub peak_bytes: u64,
    /// False if that is an upper bound (several processes at once).
    pub peak_exact: bool,
    /// The peak of every GPU.
    pub peaks: Vec<GpuPeak>,
    /// Peaks by kind, on the GPU where the kind's peak was highest, bytes: the
    /// most that was held at one moment, as far as that is known, else an
    /// upper bound.
    pub device_peak_bytes: u64,
    /// What stream-ordered pools held.
    pub pool_reserved_peak_bytes: u64,
    /// What was handed out of them.
    pub pool_used_peak_bytes: u64,
    /// Virtual memory management.
    pub vmm_peak_bytes: u64,
    /// Arrays.
    pub array_peak_bytes: u64,
    /// Graph memory.
    pub graph_peak_bytes: u64,
    /// Managed memory.
    pub managed_peak_bytes: u64,
    /// Page-locked host memory.
    pub pinned_peak_bytes: u64,
    /// Highest figure of NVML for the job's processes on one GPU.
    pub nvml_peak_bytes: Option<u64>,
    /// Kernel launches by the program.
    pub launches: u64,
    /// Graph launches.
    pub graph_launches: u64,
    /// Different kernels.
    pub kernels: u64,
    /// Processes that used a GPU.
    pub processes: u64,
    /// Refused memory requests.
    pub failed_requests: u64,
    /// `exited`, `signaled`, `not_started` or `unknown`.
    pub outcome: String,
    /// Exit code.
    pub exit_code: Option<i32>,
    /// Signal.
    pub signal: Option<i32>,
    /// True if it failed after a refusal for lack of GPU memory.
    pub out_of_memory: bool,
    /// Where the profile was written.
    pub profile_path: Option<String>,
    /// Version of radrm.
    pub radrm_version: String,
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

/// Which rows are wanted. Everything that is set must hold.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// The command's or the program's path ends with this.
    pub program: Option<String>,
    /// SHA-256 of the program.
    pub program_sha256: Option<String>,
    /// User name.
    pub user: Option<String>,
    /// Only emulated runs (true) or only real ones (false).
    pub emulated: Option<bool>,
    /// Started at or after this time (nanoseconds since 1970).
    pub since_unix_ns: Option<u64>,
    /// At most so many.
    pub limit: Option<u32>,
}

impl Row {
    /// The row of a profile.
    pub fn from_profile(profile: &Profile, profile_path: Option<&Path>) -> Row {
        let job = &profile.job;
        let states = || profile.processes.iter().map(|process| &process.state);
        let sum = |values: &mut dyn Iterator<Item = u64>| values.fold(0, u64::saturating_add);
        let peaks: Vec<GpuPeak> = used_gpus(profile);
        let highest = peaks.iter().max_by_key(|peak| peak.peak_bytes);
        let kind_peaks = kind_peaks(profile);
        let kind = |kind: Kind| kind_peaks[kind.index()];
        let (outcome, exit_code, signal) = match profile.outcome.as_ref().map(|outcome| outcome.exit) {
            Some(Exit::Code(code)) => ("exited", Some(code), None),
            Some(Exit::Signal(signal)) => ("signaled", None, Some(signal)),
            Some(Exit::NotStarted) => ("not_started", None, None),
            Some(Exit::Unknown) | None => ("unknown", None, None),
        };
        let kernels: BTreeSet<&str> =
            profile.processes.iter().flat_map(|p| &p.kernels).map(|kernel| kernel.name.as_str()).collect();
        Row {
            id: 0,
            start_unix_ns: job.start_unix_ns,
            duration_ns: profile.duration().0,
            command: job.command.first().cloned().unwrap_or_default(),
            program: job.program.clone(),
            program_sha256: job.program_sha256.map(|d| d.iter().map(|byte| format!("{byte:02x}")).collect()),
            arguments: job.command.iter().skip(1).cloned().collect(),
            user: job.user.clone(),
            uid: job.uid,
            host: job.host.clone(),
            gpus: peaks.iter().map(|peak| peak.name.clone()).collect(),
            driver: profile.gpus.iter().find_map(|gpu| gpu.driver_version.clone()),
            framework: framework_list(profile),
            emulated: job.emulated.clone(),
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
            launches: sum(&mut states().map(|state| state.launches)),
            graph_launches: sum(&mut states().map(|state| state.graph_launches)),
            kernels: kernels.len() as u64,
            processes: profile.processes.len() as u64 + profile.processes_not_kept,
            failed_requests: sum(&mut states()
                .flat_map(|state| &state.accounts)
                .map(|account| account.failed)),
            outcome: outcome.into(),
            exit_code,
            signal,
            out_of_memory: profile
                .outcome
                .as_ref()
                .is_some_and(|outcome| outcome.reason == Some(Reason::OutOfGpuMemory)),
            profile_path: profile_path.map(|path| absolute(path).to_string_lossy().into_owned()),
            radrm_version: job.radrm_version.clone(),
        }
    }
}

fn absolute(path: &Path) -> std::path::PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// GPUs on which a process of the job had an account.
fn used_gpus(profile: &Profile) -> Vec<GpuPeak> {
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

fn framework_list(profile: &Profile) -> Option<String> {
    let seen = frameworks(profile);
    (!seen.is_empty()).then(|| seen.join(", "))
}

/// The columns of a [`Row`], in the order of `values` and of `from_sql`.
const COLUMNS: [&str; 36] = [
    "start_unix_ns",
    "duration_ns",
    "command",
    "program",
    "program_sha256",
    "arguments",
    "user",
    "uid",
    "host",
    "gpus",
    "driver",
    "framework",
    "emulated",
    "peak_bytes",
    "peak_exact",
    "peaks",
    "device_peak_bytes",
    "pool_reserved_peak_bytes",
    "pool_used_peak_bytes",
    "vmm_peak_bytes",
    "array_peak_bytes",
    "graph_peak_bytes",
    "managed_peak_bytes",
    "pinned_peak_bytes",
    "nvml_peak_bytes",
    "launches",
    "graph_launches",
    "kernels",
    "processes",
    "failed_requests",
    "outcome",
    "exit_code",
    "signal",
    "out_of_memory",
    "profile_path",
    "radrm_version",
];

/// SQLite's integers have a sign.
fn integer(value: u64) -> Value {
    Value::Integer(i64::try_from(value).unwrap_or(i64::MAX))
}

fn text(value: &Option<String>) -> Value {
    value.clone().map_or(Value::Null, Value::Text)
}

fn json<T: Serialize>(value: &T) -> Value {
    // Strings and numbers in vectors: nothing that JSON cannot hold.
    Value::Text(serde_json::to_string(value).unwrap_or_else(|_| "[]".into()))
}

fn values(row: &Row) -> [Value; COLUMNS.len()] {
    let small = |value: Option<i32>| value.map_or(Value::Null, |value| Value::Integer(value.into()));
    let flag = |value: bool| Value::Integer(value.into());
    [
        integer(row.start_unix_ns),
        integer(row.duration_ns),
        Value::Text(row.command.clone()),
        text(&row.program),
        text(&row.program_sha256),
        json(&row.arguments),
        text(&row.user),
        integer(row.uid.into()),
        Value::Text(row.host.clone()),
        json(&row.gpus),
        text(&row.driver),
        text(&row.framework),
        text(&row.emulated),
        integer(row.peak_bytes),
        flag(row.peak_exact),
        json(&row.peaks),
        integer(row.device_peak_bytes),
        integer(row.pool_reserved_peak_bytes),
        integer(row.pool_used_peak_bytes),
        integer(row.vmm_peak_bytes),
        integer(row.array_peak_bytes),
        integer(row.graph_peak_bytes),
        integer(row.managed_peak_bytes),
        integer(row.pinned_peak_bytes),
        row.nvml_peak_bytes.map_or(Value::Null, integer),
        integer(row.launches),
        integer(row.graph_launches),
        integer(row.kernels),
        integer(row.processes),
        integer(row.failed_requests),
        Value::Text(row.outcome.clone()),
        small(row.exit_code),
        small(row.signal),
        flag(row.out_of_memory),
        text(&row.profile_path),
        Value::Text(row.radrm_version.clone()),
    ]
}

fn from_sql(sql: &rusqlite::Row<'_>) -> Result<Row, rusqlite::Error> {
    let number = |column: &str| -> Result<u64, rusqlite::Error> {
        Ok(u64::try_from(sql.get::<_, i64>(column)?).unwrap_or(0))
    };
    let list = |column: &str| -> Result<String, rusqlite::Error> { sql.get(column) };
    Ok(Row {
        id: sql.get("id")?,
        start_unix_ns: number("start_unix_ns")?,
        duration_ns: number("duration_ns")?,
        command: sql.get("command")?,
        program: sql.get("program")?,
        program_sha256: sql.get("program_sha256")?,
        arguments: serde_json::from_str(&list("arguments")?).unwrap_or_default(),
        user: sql.get("user")?,
        uid: u32::try_from(number("uid")?).unwrap_or(u32::MAX),
        host: sql.get("host")?,
        gpus: serde_json::from_str(&list("gpus")?).unwrap_or_default(),
        driver: sql.get("driver")?,
        framework: sql.get("framework")?,
        emulated: sql.get("emulated")?,
        peak_bytes: number("peak_bytes")?,
        peak_exact: sql.get("peak_exact")?,
        peaks: serde_json::from_str(&list("peaks")?).unwrap_or_default(),
        device_peak_bytes: number("device_peak_bytes")?,
        pool_reserved_peak_bytes: number("pool_reserved_peak_bytes")?,
        pool_used_peak_bytes: number("pool_used_peak_bytes")?,
        vmm_peak_bytes: number("vmm_peak_bytes")?,
        array_peak_bytes: number("array_peak_bytes")?,
        graph_peak_bytes: number("graph_peak_bytes")?,
        managed_peak_bytes: number("managed_peak_bytes")?,
        pinned_peak_bytes: number("pinned_peak_bytes")?,
        nvml_peak_bytes: sql
            .get::<_, Option<i64>>("nvml_peak_bytes")?
            .map(|bytes| u64::try_from(bytes).unwrap_or(0)),
        launches: number("launches")?,
        graph_launches: number("graph_launches")?,
        kernels: number("kernels")?,
        processes: number("processes")?,
        failed_requests: number("failed_requests")?,
        outcome: sql.get("outcome")?,
        exit_code: sql.get("exit_code")?,
        signal: sql.get("signal")?,
        out_of_memory: sql.get("out_of_memory")?,
        profile_path: sql.get("profile_path")?,
        radrm_version: sql.get("radrm_version")?,
    })
}

pub(super) fn insert(
    connection: &Connection,
    row: &Row,
    features: Option<&Features>,
) -> Result<i64, rusqlite::Error> {
    let marks = vec!["?"; COLUMNS.len() + 1].join(", ");
    let statement = format!("INSERT INTO runs ({}, features) VALUES ({marks})", COLUMNS.join(", "));
    let features = features.map_or(Value::Null, json);
    connection.execute(&statement, params_from_iter(values(row).into_iter().chain([features])))?;
    Ok(connection.last_insert_rowid())
}

pub(super) fn select(connection: &Connection, filter: &Filter) -> Result<Vec<Row>, rusqlite::Error> {
    let mut conditions = vec!["1"];
    let mut given: Vec<Value> = Vec::new();
    if let Some(program) = &filter.program {
        // Not LIKE: file names contain its wildcards.
        conditions.push("(substr(command, -length(?)) = ? OR substr(program, -length(?)) = ?)");
        given.extend(std::iter::repeat_n(Value::Text(program.clone()), 4));
    }
    if let Some(digest) = &filter.program_sha256 {
        conditions.push("program_sha256 = ?");
        given.push(Value::Text(digest.clone()));
    }
    if let Some(user) = &filter.user {
        conditions.push("user = ?");
        given.push(Value::Text(user.clone()));
    }
    if let Some(emulated) = filter.emulated {
        conditions.push(if emulated { "emulated IS NOT NULL" } else { "emulated IS NULL" });
    }
    if let Some(since) = filter.since_unix_ns {
        conditions.push("start_unix_ns >= ?");
        given.push(integer(since));
    }
    given.push(Value::Integer(filter.limit.map_or(-1, i64::from)));
    let statement = format!(
        "SELECT id, {} FROM runs WHERE {} ORDER BY start_unix_ns DESC, id DESC LIMIT ?",
        COLUMNS.join(", "),
        conditions.join(" AND ")
    );
    let mut statement = connection.prepare(&statement)?;
    let rows = statement.query_map(params_from_iter(given), from_sql)?;
    rows.collect()
}
