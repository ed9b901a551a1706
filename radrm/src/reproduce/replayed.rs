//! Figures of replays.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use radrm_scheduler_core::replay::{Interval, Metrics};
use serde::Serialize;

use super::tables::{Replayed, Row};
use super::{Flags, ReproduceError, missing};
use crate::cli::{self, Command};
use crate::{Failure, replay};

/// Measured workloads, whose activities the replays take.
const WORKLOADS: &str = "workloads_a100/workloads.csv";

/// Our figure, and the command that gives it.
#[derive(Debug, Serialize)]
pub(super) struct Ours {
    #[serde(rename = "ours")]
    pub(super) mean: f64,
    /// Half the width of its 95 % interval, where there is chance.
    pub(super) half: Option<f64>,
    pub(super) least: Option<f64>,
    pub(super) most: Option<f64>,
    command: String,
}

impl Ours {
    /// A figure without chance.
    pub(super) fn exact(mean: f64, command: String) -> Self {
        Self { mean, half: None, least: None, most: None, command }
    }
}

/// Our figure of a row, from this trace.
pub(super) fn ours(figure: Replayed, row: &Row<'_>, trace: &Path, flags: &Flags) -> Result<Ours, Failure> {
    let profiles = flags.data.join(WORKLOADS);
    if !profiles.is_file() {
        return Err(
            missing("every replay", WORKLOADS, &flags.data, "github.com/ehsanyousefzadehasl/AEGIS").into()
        );
    }
    let times = flags.times.as_deref().filter(|_| is_script(trace));
    if is_script(trace) && times.is_none() {
        return Err(ReproduceError::WithoutTimes(trace.to_owned()).into());
    }
    let of = |options: &str| metrics(trace, options, &profiles, times, flags.seeds);
    let value = |seed: &Metrics| figure.of(seed);
    let mut values: Vec<f64> = of(row.options)?.iter().map(value).collect();
    if figure == Replayed::Less {
        let alone = of("--policy exclusive")?;
        let alone = Interval::of(&alone.iter().map(value).collect::<Vec<_>>()).mean;
        values.iter_mut().for_each(|value| *value = (*value / alone - 1.0) * 100.0);
    }
    let Interval { mean, half } = Interval::of(&values);
    Ok(Ours {
        mean,
        half: Some(half),
        least: Some(values.iter().copied().fold(f64::INFINITY, f64::min)),
        most: Some(values.iter().copied().fold(f64::NEG_INFINITY, f64::max)),
        command: format!("radrm replay {} {} --seeds {}", trace.display(), row.options, flags.seeds),
    })
}

fn is_script(trace: &Path) -> bool {
    trace.extension().is_some_and(|ending| ending == "sh")
}

/// Metrics of each seed of a replay with these options.
fn metrics(
    trace: &Path,
    options: &str,
    profiles: &Path,
    times: Option<&Path>,
    seeds: u64,
) -> Result<Vec<Metrics>, Failure> {
    let word = |word: &str| OsString::from(word);
    let file = |path: &Path| PathBuf::from(path).into_os_string();
    let mut words: Vec<OsString> = vec![word("radrm"), word("replay"), file(trace)];
    words.extend(options.split_whitespace().map(word));
    words.extend([word("--seeds"), seeds.to_string().into(), word("--profiles"), file(profiles)]);
    if let Some(times) = times {
        words.extend([word("--estimates"), file(times)]);
    }
    let Command::Replay(order) = cli::parse(words).map_err(Failure::Line)?.command else {
        return Ok(Vec::new());
    };
    replay::metrics(&order)
}
