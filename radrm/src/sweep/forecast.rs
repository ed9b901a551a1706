//! `radrm sweep --dry-run`: what each run and each group needs, whether it fits, and how long all takes.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::PathBuf;

use radrm_emulator_machine::MachineSpec;
use radrm_os::nvml::{Nvml, NvmlSource};
use radrm_protocol::spec::Spec;
use radrm_scheduler_core::{Bytes, Millis, Needs};
use radrm_sweep::plan::{Group, Run};
use radrm_sweep::{Plan, Source};
use radrm_text::{Table, left, right};

use super::count;
use crate::client::own_runs::OwnRuns;
use crate::{Failure, print};

/// A GPU that runs could be on.
#[derive(Clone, Debug, PartialEq)]
struct Card {
    uuid: String,
    name: String,
    total: Bytes,
}

/// Verdict on whether something fits on the GPUs that it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fit {
    Fits,
    /// Not as it is known.
    TooLarge,
    /// A run names a GPU that is not there.
    NoSuchGpu,
    Unknown,
}

impl Fit {
    fn word(self) -> &'static str {
        match self {
            Self::Fits => "yes",
            Self::TooLarge => "no",
            Self::NoSuchGpu => "no such GPU",
            Self::Unknown => "n/a",
        }
    }
}

/// Prints the forecast.
pub(super) fn run(source: &Source, machine: Option<&MachineSpec>) -> Result<(), Failure> {
    let cards = cards(machine);
    let mut known = BTreeMap::new();
    for run in source.plan.groups.iter().flat_map(|group| &group.runs) {
        if let Entry::Vacant(entry) = known.entry(key(run)) {
            let spec = spec(run);
            entry.insert(OwnRuns::of(&spec, None)?.needs(&spec));
        }
    }
    print(&text(&source.plan, count(source), &cards, &known))
}

/// Key of a need: what determines it.
type Key = (Vec<String>, PathBuf, u16);

fn key(run: &Run) -> Key {
    (run.command.clone(), run.directory.clone(), run.gpus())
}

/// The run as `radrm estimate` would be asked for it.
fn spec(run: &Run) -> Spec {
    Spec { command: run.command.clone(), cwd: run.directory.clone(), gpus: run.gpus(), ..Spec::default() }
}

/// The GPUs: emulated ones, or what NVML lists.
fn cards(machine: Option<&MachineSpec>) -> Vec<Card> {
    if let Some(machine) = machine {
        let card = |(at, gpu): (usize, &radrm_emulator_machine::GpuSpec)| Card {
            uuid: machine.uuid_text(at),
            name: gpu.name.clone(),
            total: Bytes(gpu.cuda_memory_bytes()),
        };
        return machine.gpu.iter().enumerate().map(card).collect();
    }
    let found = Nvml::open(&NvmlSource::System).and_then(|nvml| nvml.inventory()).unwrap_or_default();
    found
        .usable()
        .map(|gpu| Card { uuid: gpu.uuid.clone(), name: gpu.name.clone(), total: Bytes(gpu.total) })
        .collect()
}

/// The numbers of the GPUs that a run sees first; `None` if one is not there.
fn seen(run: &Run, cards: &[Card]) -> Option<Vec<usize>> {
    if run.devices.is_empty() {
        return Some(vec![0]);
    }
    let place = |device: &String| match device.parse::<usize>() {
        Ok(number) => Some(number).filter(|number| *number < cards.len()),
        Err(_) => cards.iter().position(|card| card.uuid.starts_with(device.as_str())),
    };
    run.devices.iter().map(place).collect()
}

/// Verdict on whether runs fit on their GPUs together: by the upper bounds of their needs.
fn fit(runs: &[&Run], cards: &[Card], known: &BTreeMap<Key, Needs>) -> Fit {
    if cards.is_empty() {
        return Fit::Unknown;
    }
    let (mut used, mut is_known) = (vec![0_u64; cards.len()], true);
    for run in runs {
        let Some(places) = seen(run, cards) else { return Fit::NoSuchGpu };
        match known.get(&key(run)).and_then(|needs| needs.memory.as_ref()) {
            Some(need) => {
                for place in places {
                    used[place] = used[place].saturating_add(need.upper.0);
                }
            }
            None => is_known = false,
        }
    }
    // What is known may be too much already.
    match used.iter().zip(cards).any(|(used, card)| *used > card.total.0) {
        true => Fit::TooLarge,
        false if is_known => Fit::Fits,
        false => Fit::Unknown,
    }
}

/// Run time of a group: that of its longest member, where all are known.
fn time(group: &Group, known: &BTreeMap<Key, Needs>) -> Option<Millis> {
    let times = group.runs.iter().map(|run| {
        let expected = known.get(&key(run))?.run_time.as_ref()?.value;
        // A run is ended by its timeout.
        Some(run.timeout_ms.map_or(expected, |limit| expected.min(Millis(limit))))
    });
    times.collect::<Option<Vec<_>>>()?.into_iter().max()
}

const UNKNOWN: &str = "n/a";

/// `1 run`, `2 runs`.
fn number(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

fn text(plan: &Plan, runs: usize, cards: &[Card], known: &BTreeMap<Key, Needs>) -> String {
    let mut table = Table::new([
        left("GROUP"),
        left("RUN"),
        right("MEMORY"),
        right("RUN TIME"),
        left("FITS"),
        left("KNOWN FROM"),
    ]);
    let (mut misfits, mut sum, mut timed) = (0, 0_u64, 0);
    for group in &plan.groups {
        for run in &group.runs {
            let needs = known.get(&key(run));
            let memory = needs.and_then(|needs| needs.memory.as_ref());
            let run_time = needs.and_then(|needs| needs.run_time.as_ref());
            table.row([
                group.name.clone(),
                run.name.clone(),
                memory.map_or_else(|| UNKNOWN.to_owned(), |need| need.upper.to_string()),
                run_time.map_or_else(|| UNKNOWN.to_owned(), |time| time.value.to_string()),
                fit(&[run], cards, known).word().to_owned(),
                memory.map_or_else(String::new, |need| need.source.to_string()),
            ]);
        }
        let together = fit(&group.runs.iter().collect::<Vec<_>>(), cards, known);
        let lasts = time(group, known);
        if group.runs.len() > 1 {
            let lasts = lasts.map_or_else(|| UNKNOWN.to_owned(), |time| time.to_string());
            let row = [group.name.as_str(), "all together", "", lasts.as_str(), together.word(), ""];
            table.row(row);
        }
        misfits += usize::from(matches!(together, Fit::TooLarge | Fit::NoSuchGpu));
        if let Some(lasts) = lasts {
            sum = sum.saturating_add(lasts.0);
            timed += 1;
        }
    }
    let groups = plan.groups.len();
    let mut lines = table.lines();
    lines.push(String::new());
    lines.push(format!("{} in {}", number(runs, "run"), number(groups, "group")));
    lines.push(match cards {
        [] => "GPUs: none found; give --emulate to see what fits on a model".to_owned(),
        cards => {
            let names: Vec<_> = cards.iter().map(|card| format!("{} ({})", card.name, card.total)).collect();
            format!("GPUs: {}", names.join(", "))
        }
    });
    if misfits > 0 {
        lines.push(format!("do not fit: {misfits} of {}", number(groups, "group")));
    }
    lines.push(match timed {
        0 => "time: n/a, no run of these programs is in the dataset".to_owned(),
        timed if timed == groups => format!("time: about {}", Millis(sum)),
        timed => {
            format!("time: about {} for {timed} of {groups}, the others are not known", Millis(sum))
        }
    });
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use radrm_need::{Need, Source as Known};

    fn run(name: &str, device: &str) -> Run {
        let devices = if device.is_empty() { Vec::new() } else { vec![device.to_owned()] };
        Run { name: name.into(), command: vec![name.into()], devices, ..Run::default() }
    }

    fn needs(gib: u64) -> Needs {
        let need = Need::new(Bytes(gib << 30), Bytes(gib << 30), None, Known::Declared);
        Needs { memory: Some(need), ..Needs::default() }
    }

    #[test]
    fn members_of_a_group_fit_alone_and_not_together() {
        let cards: Vec<_> = (0..2)
            .map(|at| Card { uuid: format!("GPU-{at}"), name: "T".into(), total: Bytes(10 << 30) })
            .collect();
        let (a, b) = (run("a", "0"), run("b", "0"));
        let known = BTreeMap::from([(key(&a), needs(6)), (key(&b), needs(5))]);
        assert_eq!(fit(&[&a], &cards, &known), Fit::Fits);
        assert_eq!(fit(&[&a, &b], &cards, &known), Fit::TooLarge);
        assert_eq!(fit(&[&a, &run("b", "1")], &cards, &known), Fit::Fits);
        assert_eq!(fit(&[&a, &run("b", "GPU-1")], &cards, &known), Fit::Fits);
        assert_eq!(fit(&[&run("b", "2")], &cards, &known), Fit::NoSuchGpu);
        assert_eq!(fit(&[&a, &run("c", "")], &cards, &known), Fit::Unknown);
        assert_eq!(fit(&[&a, &b, &run("c", "")], &cards, &known), Fit::TooLarge, "whatever c needs");
        assert_eq!(fit(&[&a], &[], &known), Fit::Unknown);
    }
}
