//! Rows into the table and out of it.

use super::Features;
use super::row::{Origin, Row};
use radrm_need::DryRun;
use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, params_from_iter};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Filter of rows. Everything that is set must hold.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// The command's or the program's path ends with this.
    pub program: Option<String>,
    /// SHA-256 of the program.
    pub program_sha256: Option<String>,
    /// User name.
    pub user: Option<String>,
    /// Written by these.
    pub origin: Option<Origin>,
    /// Only emulated runs (true) or only real ones (false).
    pub emulated: Option<bool>,
    /// Started at or after this time (nanoseconds since 1970).
    pub since_unix_ns: Option<u64>,
    /// At most so many.
    pub limit: Option<u32>,
}

/// Value of a column. A value of another version or another program that cannot be understood is read as the type's
/// default: a row in doubt must not hide the others.
trait Column: Sized {
    fn to_sql(&self) -> Value;
    fn from_sql(value: ValueRef<'_>) -> Self;
}

/// SQLite's integers have a sign.
impl Column for u64 {
    fn to_sql(&self) -> Value {
        Value::Integer(i64::try_from(*self).unwrap_or(i64::MAX))
    }

    fn from_sql(value: ValueRef<'_>) -> u64 {
        value.as_i64().ok().and_then(|value| u64::try_from(value).ok()).unwrap_or(0)
    }
}

impl Column for u32 {
    fn to_sql(&self) -> Value {
        Value::Integer((*self).into())
    }

    fn from_sql(value: ValueRef<'_>) -> u32 {
        u32::try_from(u64::from_sql(value)).unwrap_or(u32::MAX)
    }
}

impl Column for i32 {
    fn to_sql(&self) -> Value {
        Value::Integer((*self).into())
    }

    fn from_sql(value: ValueRef<'_>) -> i32 {
        value.as_i64().ok().and_then(|value| i32::try_from(value).ok()).unwrap_or(0)
    }
}

impl Column for bool {
    fn to_sql(&self) -> Value {
        Value::Integer((*self).into())
    }

    fn from_sql(value: ValueRef<'_>) -> bool {
        value.as_i64().is_ok_and(|value| value != 0)
    }
}

impl Column for String {
    fn to_sql(&self) -> Value {
        Value::Text(self.clone())
    }

    fn from_sql(value: ValueRef<'_>) -> String {
        value.as_bytes().map(|text| String::from_utf8_lossy(text).into_owned()).unwrap_or_default()
    }
}

impl Column for Origin {
    fn to_sql(&self) -> Value {
        Value::Text(self.as_str().to_owned())
    }

    fn from_sql(value: ValueRef<'_>) -> Origin {
        value.as_str().ok().and_then(Origin::parse).unwrap_or_default()
    }
}

/// As JSON, in the one form that needs have everywhere.
impl Column for DryRun {
    fn to_sql(&self) -> Value {
        json(self)
    }

    fn from_sql(value: ValueRef<'_>) -> DryRun {
        value.as_str().ok().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
    }
}

impl<T: Column> Column for Option<T> {
    fn to_sql(&self) -> Value {
        self.as_ref().map_or(Value::Null, Column::to_sql)
    }

    fn from_sql(value: ValueRef<'_>) -> Option<T> {
        (value != ValueRef::Null).then(|| T::from_sql(value))
    }
}

/// Lists are JSON.
impl<T: Serialize + DeserializeOwned> Column for Vec<T> {
    fn to_sql(&self) -> Value {
        json(self)
    }

    fn from_sql(value: ValueRef<'_>) -> Vec<T> {
        value.as_str().ok().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
    }
}

fn json<T: Serialize>(value: &T) -> Value {
    // Strings and numbers in vectors: nothing that JSON cannot hold.
    Value::Text(serde_json::to_string(value).unwrap_or_else(|_| "[]".into()))
}

/// The columns are the fields of a row, by name.
macro_rules! columns {
    ($($field:ident),* $(,)?) => {
        /// The columns of a [`Row`] but its number and its features.
        const COLUMNS: &[&str] = &[$(stringify!($field)),*];

        fn values(row: &Row) -> Vec<Value> {
            vec![$(row.$field.to_sql()),*]
        }

        /// A row of a statement that selects `id` and then [`COLUMNS`], in this order: to find a column by its name takes
        /// longer than to read it.
        fn from_sql(sql: &rusqlite::Row<'_>) -> Result<Row, rusqlite::Error> {
            let mut columns = 1..;
            let mut next = || sql.get_ref(columns.next().unwrap_or_default());
            Ok(Row {
                id: sql.get(0)?,
                // In a table of their own.
                fits: Vec::new(),
                ranks: None,
                first_steps: None,
                $($field: Column::from_sql(next()?)),*
            })
        }
    };
}

columns!(
    origin,
    start_unix_ns,
    duration_ns,
    run_time_ns,
    command,
    program,
    program_sha256,
    arguments,
    cwd,
    program_key,
    batch,
    user,
    uid,
    host,
    job_id,
    attempt,
    gpus_requested,
    gpu_model,
    gpus,
    driver,
    framework,
    emulated,
    footprint_bytes,
    oom_request_bytes,
    complete,
    smact_permille,
    smocc_permille,
    drama_permille,
    host_cpu_milli,
    host_threads,
    host_resident_bytes,
    host_traffic,
    host_stalled_permille,
    predicted_bytes,
    predicted_upper_bytes,
    predicted_confidence_permille,
    predicted_source,
    dry_run,
    peak_bytes,
    peak_exact,
    peaks,
    device_peak_bytes,
    pool_reserved_peak_bytes,
    pool_used_peak_bytes,
    vmm_peak_bytes,
    array_peak_bytes,
    graph_peak_bytes,
    managed_peak_bytes,
    pinned_peak_bytes,
    nvml_peak_bytes,
    launches,
    graph_launches,
    kernels,
    processes,
    failed_requests,
    outcome,
    exit_code,
    signal,
    out_of_memory,
    profile_path,
    radrm_version,
);

/// Adds a row; a daemon's row of an attempt takes the place of an earlier one.
pub(super) fn insert(
    connection: &Connection,
    row: &Row,
    features: Option<&Features>,
) -> Result<i64, rusqlite::Error> {
    let marks = vec!["?"; COLUMNS.len() + 1].join(", ");
    let statement =
        format!("INSERT OR REPLACE INTO runs ({}, features) VALUES ({marks})", COLUMNS.join(", "));
    let features = features.map_or(Value::Null, json);
    let mut statement = connection.prepare_cached(&statement)?;
    statement.insert(params_from_iter(values(row).into_iter().chain([features])))
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
    if let Some(origin) = filter.origin {
        conditions.push("origin = ?");
        given.push(origin.to_sql());
    }
    if let Some(emulated) = filter.emulated {
        conditions.push(if emulated { "emulated IS NOT NULL" } else { "emulated IS NULL" });
    }
    if let Some(since) = filter.since_unix_ns {
        conditions.push("start_unix_ns >= ?");
        given.push(since.to_sql());
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
