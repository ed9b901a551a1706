//! Metrics of kernels from a CSV file of Nsight Compute (`ncu --csv`): the raw page, the details page, or a summary of
//! it by kernel.
//!
//! The raw page has a row for each launch, a column for each metric, and the units in the row below its header. The
//! details page has a row for each metric of each launch, with its unit. What ncu and the program print around the table
//! is passed over.

mod metrics;
mod number;

use csv::{ReaderBuilder, StringRecord};
use metrics::{ACTIVE_CYCLES, DURATION, ELAPSED_CYCLES, METRICS, SM_ACTIVE};
use number::Mark;
use radrm_profile::model::{KernelMetrics, ProfiledKernel};
use std::collections::{BTreeMap, HashMap};
use thiserror::Error;

/// Reason that a file gives no metrics, each a clause about the file.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "each variant states its sentence")]
pub enum NcuError {
    #[error("empty")]
    Empty,
    #[error("no table of Nsight Compute is in it: write one with `ncu --csv --page raw --import REPORT`")]
    NoTable,
    #[error("line {line}: {error}")]
    Csv { line: u64, error: csv::Error },
    #[error(
        "no row of units is below the header in line {line}: write the file again with `ncu --csv --page raw`"
    )]
    NoUnits { line: u64 },
    #[error("no kernel was profiled in it")]
    NoKernels,
    #[error(
        "none of the metrics that are imported is in it: profile with `ncu --set full`, or `--section SpeedOfLight \
         --section Occupancy`"
    )]
    NoMetrics,
    #[error("line {line}: the unit of {metric} is \"{unit}\", which is not known")]
    Unit { line: u64, metric: String, unit: String },
    #[error("line {line}: {metric} is \"{value}\", which is not a number of 0 or more")]
    Value { line: u64, metric: String, value: String },
    #[error(
        "some of its numbers have a decimal point and some a decimal comma: write it again with LC_ALL=C"
    )]
    MixedNumbers,
}

/// Rows of a table, one or more for each launch or kernel.
struct Table<'a> {
    head: StringRecord,
    rows: csv::StringRecordsIntoIter<&'a [u8]>,
    /// Line of the header, counted from 1.
    line: u64,
}

/// Reads a file; `name` is what the profile calls it.
///
/// # Errors
/// [`NcuError`]: no table, no kernels, none of the metrics, or a value that is wrong. Nothing is guessed.
pub fn read(text: &str, name: &str) -> Result<KernelMetrics, NcuError> {
    let text = text.trim_start_matches('\u{feff}');
    if text.trim().is_empty() {
        return Err(NcuError::Empty);
    }
    let table = Table::find(text)?;
    let is_raw = table.at("Metric Name").is_none();
    let values = if is_raw { table.raw()? } else { table.details()? };
    let kernels = summed(values)?;
    Ok(KernelMetrics { tool: "Nsight Compute".to_owned(), file: name.to_owned(), kernels })
}

/// The values of one launch, or of one kernel in a summary.
#[derive(Default)]
struct Launch {
    kernel: String,
    /// Launches that the values are means of.
    times: f64,
    values: Vec<Read>,
}

/// A value as it stands in the file.
struct Read {
    metric: usize,
    rank: usize,
    worth: f64,
    text: String,
    line: u64,
}

impl<'a> Table<'a> {
    /// The table's header: the first line with the columns that all forms have.
    fn find(text: &'a str) -> Result<Self, NcuError> {
        let mut at = 0;
        let (mut line, mut found) = (1, None);
        for row in text.split_inclusive('\n') {
            let words: Vec<&str> = row.split([',', ';']).map(|word| word.trim().trim_matches('"')).collect();
            if words.contains(&"Kernel Name") && words.contains(&"Process ID") {
                found = Some((at, line, row.matches(';').count() > row.matches(',').count()));
                break;
            }
            at += row.len();
            line += 1;
        }
        let (at, line, is_semicolon) = found.ok_or(NcuError::NoTable)?;
        let delimiter = if is_semicolon { b';' } else { b',' };
        let mut reader = ReaderBuilder::new()
            .delimiter(delimiter)
            .flexible(true)
            .has_headers(false)
            .from_reader(&text.as_bytes()[at..]);
        let mut head = StringRecord::new();
        reader.read_record(&mut head).map_err(|error| NcuError::Csv { line, error })?;
        head.trim();
        Ok(Table { head, rows: reader.into_records(), line })
    }

    fn at(&self, column: &str) -> Option<usize> {
        self.head.iter().position(|name| name == column)
    }

    fn need(&self, column: &str) -> Result<usize, NcuError> {
        self.at(column).ok_or(NcuError::NoTable)
    }

    /// Each launch in its row.
    fn raw(mut self) -> Result<Vec<Launch>, NcuError> {
        let (kernel, process) = (self.need("Kernel Name")?, self.need("Process ID")?);
        let line = self.line;
        let units =
            self.rows.next().ok_or(NcuError::NoKernels)?.map_err(|error| NcuError::Csv { line, error })?;
        if !units.get(process).unwrap_or_default().trim().is_empty() {
            return Err(NcuError::NoUnits { line });
        }
        let mut columns = Vec::new();
        for (at, name) in self.head.iter().enumerate().filter(|(_, name)| metrics::is_known(name)) {
            let unit = units.get(at).unwrap_or_default().trim();
            match metrics::find(name, unit) {
                Some(found) => columns.push((at, name.to_owned(), Ok(found))),
                // Told only if a value has it: ncu writes no unit over a column of n/a.
                None => columns.push((at, name.to_owned(), Err(unit.to_owned()))),
            }
        }
        let mut launches = Vec::new();
        for row in self.rows {
            let row = row.map_err(|error| NcuError::Csv { line, error })?;
            let line = line + row.position().map_or(0, csv::Position::line) - 1;
            if !is_row(&row, process, kernel) {
                continue;
            }
            let mut launch = Launch { kernel: row[kernel].to_owned(), times: 1.0, values: Vec::new() };
            for (at, name, found) in &columns {
                let Some(text) = row.get(*at).filter(|text| !number::is_missing(text)) else { continue };
                let (metric, rank, worth) =
                    found.clone().map_err(|unit| NcuError::Unit { line, metric: name.clone(), unit })?;
                launch.values.push(Read { metric, rank, worth, text: text.trim().to_owned(), line });
            }
            launches.push(launch);
        }
        Ok(launches)
    }

    /// A row for each metric: those of a launch follow each other.
    fn details(self) -> Result<Vec<Launch>, NcuError> {
        let (kernel, process) = (self.need("Kernel Name")?, self.need("Process ID")?);
        let (name, unit) = (self.need("Metric Name")?, self.need("Metric Unit")?);
        let value = self.at("Metric Value").map_or_else(|| self.need("Average"), Ok)?;
        let invocations = self.at("Invocations");
        // What tells launches apart stands before the metric.
        let identity = self.at("Section Name").unwrap_or(name);
        let mut launches: Vec<Launch> = Vec::new();
        let mut last = StringRecord::new();
        for row in self.rows {
            let row = row.map_err(|error| NcuError::Csv { line: self.line, error })?;
            let line = self.line + row.position().map_or(0, csv::Position::line) - 1;
            if !is_row(&row, process, kernel) {
                continue;
            }
            let same = |at: usize| row.get(at) == last.get(at);
            if launches.is_empty() || !(0..identity).all(same) {
                let times =
                    invocations.and_then(|at| row.get(at)?.trim().replace([',', '.'], "").parse().ok());
                launches.push(Launch {
                    kernel: row[kernel].to_owned(),
                    times: times.unwrap_or(1.0),
                    values: Vec::new(),
                });
            }
            let field = |at: usize| row.get(at).unwrap_or_default().trim();
            let (metric_name, text) = (field(name), field(value));
            if metrics::is_known(metric_name) && !number::is_missing(text) {
                let found = metrics::find(metric_name, field(unit));
                let (metric, rank, worth) = found.ok_or_else(|| NcuError::Unit {
                    line,
                    metric: metric_name.to_owned(),
                    unit: field(unit).to_owned(),
                })?;
                if let Some(launch) = launches.last_mut() {
                    launch.values.push(Read { metric, rank, worth, text: text.to_owned(), line });
                }
            }
            last = row;
        }
        Ok(launches)
    }
}

/// Returns true if a line belongs to the table: what programs print in between has no process in its place.
fn is_row(row: &StringRecord, process: usize, kernel: usize) -> bool {
    let pid = row.get(process).unwrap_or_default().trim();
    let has_pid = !pid.is_empty() && pid.chars().all(|c| c.is_ascii_digit() || matches!(c, ',' | '.'));
    has_pid && row.get(kernel).is_some_and(|name| !name.trim().is_empty())
}

/// Sums over the launches of a kernel.
#[derive(Default)]
struct Sums {
    launches: f64,
    /// By metric: values times weights, and weights.
    of: BTreeMap<&'static str, (f64, f64)>,
}

/// Means by kernel. Shares of a peak are over time: a longer launch weighs more.
fn summed(launches: Vec<Launch>) -> Result<Vec<ProfiledKernel>, NcuError> {
    let mark = mark(&launches)?;
    let mut order: Vec<String> = Vec::new();
    let mut kernels: HashMap<String, Sums> = HashMap::new();
    if launches.is_empty() {
        return Err(NcuError::NoKernels);
    }
    // Only if all have one: else launches of unknown length would weigh nothing or all.
    let timed =
        launches.iter().all(|launch| launch.values.iter().any(|value| METRICS[value.metric].key == DURATION));
    for launch in launches {
        let values = launch_values(&launch, mark)?;
        let sums = kernels.entry(launch.kernel.trim().to_owned()).or_insert_with_key(|name| {
            order.push(name.clone());
            Sums::default()
        });
        sums.launches += launch.times;
        let time = values.get(DURATION).copied().filter(|_| timed).unwrap_or(1.0).max(f64::MIN_POSITIVE);
        for (key, value) in values {
            let weight = if key == DURATION { launch.times } else { launch.times * time };
            let (sum, weights) = sums.of.entry(key).or_default();
            *sum += value * weight;
            *weights += weight;
        }
    }
    let mean = |(key, (sum, weight)): (&str, (f64, f64))| (key.to_owned(), sum / weight);
    let kernel = |name: String| {
        let sums = kernels.remove(&name).unwrap_or_default();
        let finite = sums.of.into_iter().map(mean).filter(|(_, value)| value.is_finite());
        ProfiledKernel { name, launches: sums.launches as u64, metrics: finite.collect() }
    };
    let all: Vec<ProfiledKernel> = order.into_iter().map(kernel).collect();
    let has_metric = |kernel: &ProfiledKernel| kernel.metrics.keys().any(|key| key != DURATION);
    if all.iter().any(has_metric) { Ok(all) } else { Err(NcuError::NoMetrics) }
}

/// The decimal mark of all numbers.
fn mark(launches: &[Launch]) -> Result<Mark, NcuError> {
    let mut found = None;
    for mark in
        launches.iter().flat_map(|launch| &launch.values).filter_map(|value| number::mark(&value.text))
    {
        if *found.get_or_insert(mark) != mark {
            return Err(NcuError::MixedNumbers);
        }
    }
    // Where no number tells, ncu's own: in the C locale it writes a comma between thousands.
    Ok(found.unwrap_or(Mark::Point))
}

/// The values of a launch by metric, in the profile's units.
fn launch_values(launch: &Launch, mark: Mark) -> Result<BTreeMap<&'static str, f64>, NcuError> {
    let mut values: BTreeMap<&'static str, (usize, f64)> = BTreeMap::new();
    for read in &launch.values {
        let parsed = number::parse(&read.text, mark).filter(|number| *number >= 0.0);
        let number = parsed.ok_or_else(|| NcuError::Value {
            line: read.line,
            metric: METRICS[read.metric].name(read.rank).to_owned(),
            value: read.text.clone(),
        })?;
        let known = values.entry(METRICS[read.metric].key).or_insert((usize::MAX, 0.0));
        if read.rank < known.0 {
            *known = (read.rank, number * read.worth);
        }
    }
    let mut values: BTreeMap<&'static str, f64> =
        values.into_iter().map(|(key, (_, value))| (key, value)).collect();
    let cycles = values.remove(ACTIVE_CYCLES).zip(values.remove(ELAPSED_CYCLES));
    if let Some((active, elapsed)) = cycles.filter(|(_, elapsed)| *elapsed > 0.0) {
        // The two are counted in different passes: a little more than all is all.
        values.entry(SM_ACTIVE).or_insert((active / elapsed * 100.0).min(100.0));
    }
    Ok(values)
}

#[cfg(test)]
mod tests;
