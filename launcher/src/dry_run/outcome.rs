//! The figures of a dry run, and whether they can be trusted.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use radrm_emulator_machine::{Charge, GpuSpec, Machine, ProcessLedger};
use serde::Serialize;

use super::cards::{self, Fit};
use super::flags::DryRun;
use super::notes::{Framework, Matter, Note};

/// What calls without semantics can do to the figures: names, whether it matters, and words.
const EFFECTS: &str = include_str!("../../data/dry_run_effects.tsv");

/// A phase of the run, in the order in which they come.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Until the first forward pass.
    Load,
    /// From there until the first step of an optimizer.
    FirstStep,
    /// All later ones.
    Steady,
    /// Everything.
    Whole,
}

/// The allocator's peaks in a phase, bytes; sums over the processes on the GPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Peak {
    /// Tensors.
    pub allocated: u64,
    /// What the allocator held.
    pub reserved: u64,
}

/// One GPU of the machine.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct GpuOutcome {
    /// Number on the machine.
    pub gpu: usize,
    /// Model.
    pub name: String,
    /// Compute capability, major and minor.
    pub capability: (u32, u32),
    /// Processes that used it.
    pub processes: usize,
    /// Peaks of the framework's allocator in each phase; none if no framework told any.
    pub phases: BTreeMap<Phase, Peak>,
    /// Most that the program's and the libraries' calls took from the driver at a time, bytes.
    pub requested_peak: u64,
    /// Most that the driver would hold for these processes, bytes: with contexts and code.
    pub held_peak: u64,
    /// What of it is the constant for contexts, and code beyond it.
    pub context: u64,
    /// The constant alone, for all of these processes.
    pub context_constant: u64,
    /// Where that constant comes from.
    pub context_origin: String,
}

/// A call without semantics.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct MissingCall {
    /// Function.
    pub name: String,
    /// How often it was called at least.
    pub calls: u64,
    /// What that can do to the figures.
    pub effect: String,
    /// Whether it can change them at all.
    pub matters: bool,
}

/// A size that comes from a model.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ModelledSize {
    /// Of what.
    pub what: String,
    /// The largest, bytes.
    pub bytes: u64,
}

/// Everything that a dry run found out.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Outcome {
    /// Machine, as it was described.
    pub machine: String,
    /// Version of PyTorch, if it was used.
    pub torch: Option<String>,
    /// The frameworks whose allocators told figures, with their versions.
    pub frameworks: Vec<String>,
    /// The first one's allocator.
    pub allocator: Option<String>,
    /// Optimizer steps, the most of any process.
    pub steps: u64,
    /// Duration.
    pub seconds: f64,
    /// Most of the host's memory that one process had, bytes; 0 if no framework told it.
    pub host_memory: u64,
    /// By GPU.
    pub gpus: Vec<GpuOutcome>,
    /// Times that memory did not suffice.
    pub out_of_memory: u64,
    /// Times that the allocator gave its cache back to go on.
    pub retries: u64,
    /// Cards, and whether the program fits; empty if its need is not known.
    pub fits: Vec<Fit>,
    /// Calls without semantics.
    pub missing: Vec<MissingCall>,
    /// Sizes that come from models.
    pub modelled: Vec<ModelledSize>,
    /// Operations whose result depends on data, and how often.
    pub filled: Vec<(String, u64)>,
    /// Percentage of elements that these kept.
    pub fill: u32,
    /// What the Python side remarked.
    pub remarks: Vec<String>,
    /// Why no figure is told.
    pub withheld: Option<String>,
}

impl Outcome {
    /// Puts the ledger of the machine and the notes of the processes together.
    #[must_use]
    pub fn new(wanted: &DryRun, machine: Option<&Machine>, notes: &[Note], took: Duration) -> Self {
        let ledgers = machine.map(|machine| own_ledgers(machine.ledgers(), notes)).unwrap_or_default();
        let mut last = last_by_phase(notes);
        let cut_short = forget_cut_short(&mut last, notes);
        let gpus: Vec<GpuOutcome> = machine
            .map(|machine| {
                (0..machine.gpu_count())
                    .filter_map(|gpu| {
                        one_gpu(gpu, machine.gpu(gpu)?, &machine.spec().uuid_text(gpu), &ledgers, &last)
                    })
                    .collect()
            })
            .unwrap_or_default();
        let ends: Vec<&Framework> = last.values().filter_map(|phases| phases.get(&Phase::Whole)).collect();
        let sum = |of: fn(&super::notes::FrameworkDevice) -> u64| -> u64 {
            ends.iter().flat_map(|own| &own.devices).map(of).sum()
        };
        let mut outcome = Self {
            machine: machine.map(describe).unwrap_or_default(),
            torch: ends.iter().find(|own| own.framework == "PyTorch").map(|own| own.version.clone()),
            frameworks: ends
                .iter()
                .map(|own| format!("{} {}", own.framework, own.version))
                .collect::<BTreeSet<_>>()
                .into_iter()
                .collect(),
            allocator: ends.first().map(|own| own.allocator.clone()),
            steps: ends.iter().map(|own| own.steps).max().unwrap_or(0),
            seconds: took.as_secs_f64(),
            host_memory: ends.iter().map(|own| own.resident).max().unwrap_or(0),
            gpus,
            out_of_memory: sum(|device| device.out_of_memory),
            retries: sum(|device| device.retries),
            fits: Vec::new(),
            missing: missing(notes),
            modelled: modelled(notes),
            filled: filled(notes),
            fill: wanted.fill,
            remarks: notes
                .iter()
                .filter(|note| note.matter == Matter::Remark)
                .map(|note| note.words.clone())
                .chain(cut_short)
                .collect::<BTreeSet<_>>()
                .into_iter()
                .collect(),
            withheld: None,
        };
        let elsewhere =
            notes.iter().find(|note| note.matter == Matter::Withhold && outcome.frameworks.is_empty());
        outcome.withheld = elsewhere.map(|note| note.words.clone()).or_else(|| outcome.reason_to_withhold());
        if outcome.withheld.is_none() && outcome.out_of_memory == 0 {
            outcome.fits = cards::fits(&outcome.gpus, outcome.retries > 0);
        }
        outcome
    }

    /// The job did not succeed: what it would have needed later is not known.
    pub fn failed(&mut self) {
        self.fits.clear();
    }

    /// The job failed when its last requests for memory, of so many that were refused, had not been met. Not every
    /// program's allocator counts those itself; what the program needs is not known then.
    pub fn ran_out(&mut self, refused: u64) {
        if self.out_of_memory == 0 {
            self.out_of_memory = refused.max(1);
        }
        self.fits.clear();
    }

    fn reason_to_withhold(&self) -> Option<String> {
        let names: Vec<&str> =
            self.missing.iter().filter(|call| call.matters).map(|call| call.name.as_str()).collect();
        if let Some(library) = names.iter().find_map(|name| name.strip_prefix(PRIVATE_TABLES)) {
            return Some(format!(
                "{} has the CUDA runtime linked into it, which does not start on an emulated GPU",
                library.trim_matches([' ', '(', ')'])
            ));
        }
        match names.as_slice() {
            [] => None,
            [one] => Some(format!("the program called {one}, whose effect on memory is not known")),
            [first, rest @ ..] => Some(format!(
                "the program called {first} and {} more whose effect on memory is not known",
                rest.len()
            )),
        }
    }
}

fn describe(machine: &Machine) -> String {
    let names: Vec<&str> = machine.spec().gpu.iter().map(|gpu| gpu.id.as_str()).collect();
    match names.as_slice() {
        [one] => (*one).to_owned(),
        [first, ..] if names.iter().all(|name| name == first) => format!("{}x{first}", names.len()),
        _ => names.join("+"),
    }
}

/// What NVIDIA's runtime asks a driver for when it starts. The stand-in for it does not.
const PRIVATE_TABLES: &str = "cuGetExportTable";

/// The ledger of this run's processes: others, and those of earlier runs, may be on the same machine. Without
/// notes of processes (there was no room for them) all are taken to be of this run.
fn own_ledgers(mut ledgers: Vec<ProcessLedger>, notes: &[Note]) -> Vec<ProcessLedger> {
    let own: BTreeSet<u32> =
        notes.iter().filter(|note| note.matter == Matter::Process).map(|note| note.pid).collect();
    if !own.is_empty() {
        let last: BTreeMap<u32, u64> = ledgers.iter().map(|ledger| (ledger.pid, ledger.order)).collect();
        // Numbers of processes are used again: the last one to join is the one that was noted.
        ledgers.retain(|ledger| own.contains(&ledger.pid) && last.get(&ledger.pid) == Some(&ledger.order));
    }
    ledgers
}

type ByProcess = BTreeMap<(u32, String), BTreeMap<Phase, Framework>>;

/// The last figures of each phase of each process and framework, and those of the whole run: the largest of any phase.
fn last_by_phase(notes: &[Note]) -> ByProcess {
    let mut all: ByProcess = BTreeMap::new();
    for note in notes {
        let Matter::Framework(told) = &note.matter else { continue };
        let own = all.entry((note.pid, told.framework.clone())).or_default();
        let phase = match told.phase.as_str() {
            "load" => Some(Phase::Load),
            "first step" => Some(Phase::FirstStep),
            "steady" => Some(Phase::Steady),
            _ => None,
        };
        own.extend(phase.map(|phase| (phase, told.clone())));
        let mut whole = told.clone();
        if let Some(before) = own.get(&Phase::Whole) {
            whole.keep_peaks_of(before);
        }
        own.insert(Phase::Whole, whole);
    }
    all
}

/// Leaves out the figures of processes that ended without writing the last ones: what they took after the ones before
/// is not in them. Gives a sentence for each.
fn forget_cut_short(last: &mut ByProcess, notes: &[Note]) -> Vec<String> {
    let complete: BTreeSet<(u32, &str)> = notes
        .iter()
        .filter_map(|note| match &note.matter {
            Matter::Framework(told) if told.is_final => Some((note.pid, told.framework.as_str())),
            _ => None,
        })
        .collect();
    let mut sentences = Vec::new();
    last.retain(|(pid, framework), _| {
        let is_complete = complete.contains(&(*pid, framework.as_str()));
        if !is_complete {
            sentences.push(format!(
                "process {pid} ended by a signal or without exit handlers: figures are those of the driver, {framework}'s \
                 are incomplete and left out"
            ));
        }
        is_complete
    });
    sentences
}

fn one_gpu(
    gpu: usize,
    spec: &GpuSpec,
    uuid: &str,
    ledgers: &[ProcessLedger],
    last: &ByProcess,
) -> Option<GpuOutcome> {
    let own: Vec<_> =
        ledgers.iter().filter_map(|ledger| ledger.gpu(gpu)).filter(|ledger| ledger.held_peak > 0).collect();
    if own.is_empty() {
        return None;
    }
    let mut phases: BTreeMap<Phase, Peak> = BTreeMap::new();
    for process in last.values() {
        for (phase, told) in process {
            for device in told.devices.iter().filter(|device| same_uuid(&device.uuid, uuid)) {
                let peak = phases.entry(*phase).or_default();
                peak.allocated += device.allocated;
                peak.reserved += device.reserved;
            }
        }
    }
    Some(GpuOutcome {
        gpu,
        name: spec.name.clone(),
        capability: spec.capability(),
        processes: own.len(),
        phases,
        requested_peak: own.iter().map(|ledger| ledger.total_requested_peak).sum(),
        held_peak: own.iter().map(|ledger| ledger.held_peak).sum(),
        context: own.iter().map(|ledger| ledger.kind(Charge::Context).held_peak).sum(),
        context_constant: own.len() as u64 * spec.context_bytes(),
        context_origin: spec.context_origin.clone(),
    })
}

/// PyTorch writes UUIDs without their prefix.
fn same_uuid(torch: &str, machine: &str) -> bool {
    machine.trim_start_matches("GPU-").trim_start_matches("MIG-").eq_ignore_ascii_case(torch)
}

/// Sums of the largest number of each process, by words.
fn largest(notes: &[Note], of: fn(&Matter) -> Option<u64>) -> BTreeMap<String, BTreeMap<u32, u64>> {
    let mut all: BTreeMap<String, BTreeMap<u32, u64>> = BTreeMap::new();
    for note in notes {
        if let Some(number) = of(&note.matter) {
            let own = all.entry(note.words.clone()).or_default().entry(note.pid).or_default();
            *own = number.max(*own);
        }
    }
    all
}

fn missing(notes: &[Note]) -> Vec<MissingCall> {
    let counts = largest(notes, |matter| match matter {
        Matter::Missing(count) => Some(*count),
        _ => None,
    });
    counts
        .into_iter()
        .map(|(name, by_process)| {
            let (matters, effect) = effect(&name);
            MissingCall { calls: by_process.values().sum(), effect: effect.to_owned(), matters, name }
        })
        .collect()
}

fn modelled(notes: &[Note]) -> Vec<ModelledSize> {
    let sizes = largest(notes, |matter| match matter {
        Matter::Guess(bytes) => Some(*bytes),
        _ => None,
    });
    sizes
        .into_iter()
        .map(|(what, by_process)| ModelledSize { what, bytes: by_process.into_values().max().unwrap_or(0) })
        .collect()
}

fn filled(notes: &[Note]) -> Vec<(String, u64)> {
    let counts = largest(notes, |matter| match matter {
        Matter::Fill(count) => Some(*count),
        _ => None,
    });
    counts.into_iter().map(|(what, by_process)| (what, by_process.values().sum())).collect()
}

/// Whether a call can change the figures, and how.
fn effect(name: &str) -> (bool, &'static str) {
    EFFECTS
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| {
            let (prefix, rest) = line.split_once('\t')?;
            let (matters, words) = rest.split_once('\t')?;
            name.starts_with(prefix).then_some((matters == "yes", words))
        })
        .next()
        .unwrap_or((true, "it failed; what the program did instead may take other memory"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_ran_out_of_memory_unknown_to_its_framework_fits_nowhere() {
        let wanted = DryRun { steps: None, fake_data: false, fill: 50, find_batch: None, fits: vec![] };
        let card = Fit { card: "T4".to_owned(), verdict: cards::Verdict::Yes, need: 1, memory: 2 };
        let new = |counted| Outcome {
            fits: vec![card.clone()],
            out_of_memory: counted,
            ..Outcome::new(&wanted, None, &[], Duration::ZERO)
        };
        for (counted, refused, told) in [(0, 3, 3), (0, 0, 1), (1, 3, 1)] {
            let mut outcome = new(counted);
            outcome.ran_out(refused);
            assert_eq!((outcome.out_of_memory, outcome.fits.len()), (told, 0));
        }
    }

    fn torch(pid: u32, phase: &str, allocated: u64) -> Note {
        let device = super::super::notes::FrameworkDevice {
            uuid: "abcd".to_owned(),
            allocated,
            reserved: allocated + 1,
            ..Default::default()
        };
        let is_final = phase == "steady";
        let told =
            Framework { phase: phase.to_owned(), is_final, devices: vec![device], ..Framework::default() };
        Note { pid, matter: Matter::Framework(told), words: String::new() }
    }

    #[test]
    fn each_phase_has_its_own_peak_and_the_run_the_largest() {
        let notes =
            [torch(1, "load", 5), torch(1, "first step", 11), torch(1, "steady", 6), torch(1, "steady", 9)];
        let last = last_by_phase(&notes);
        let allocated = |phase| last[&(1, String::new())][&phase].devices[0].allocated;
        let phases = [Phase::Load, Phase::FirstStep, Phase::Steady, Phase::Whole];
        assert_eq!(phases.map(allocated), [5, 11, 9, 11]);
    }

    #[test]
    fn figures_of_a_process_that_wrote_no_last_ones_are_left_out() {
        let notes = [torch(1, "load", 5), torch(2, "load", 7), torch(2, "steady", 8)];
        let mut last = last_by_phase(&notes);
        let sentences = forget_cut_short(&mut last, &notes);
        assert_eq!(last.keys().map(|key| key.0).collect::<Vec<_>>(), [2]);
        assert!(
            matches!(&sentences[..], [one] if one.starts_with("process 1 ended by a signal")),
            "{sentences:?}"
        );
    }

    #[test]
    fn a_gpu_that_a_later_phase_does_not_use_keeps_its_peak() {
        let mut other = torch(1, "steady", 3);
        let Matter::Framework(told) = &mut other.matter else { unreachable!() };
        told.devices[0].uuid = "other".to_owned();
        let last = last_by_phase(&[torch(1, "load", 5), other]);
        let whole = &last[&(1, String::new())][&Phase::Whole].devices;
        assert_eq!(whole.iter().map(|device| device.allocated).sum::<u64>(), 8);
    }

    #[test]
    fn a_call_of_unknown_effect_withholds_the_figures_and_a_harmless_one_does_not() {
        let note = |name: &str| Note { pid: 1, matter: Matter::Missing(10), words: name.to_owned() };
        let harmless = missing(&[note("cuptiSubscribe")]);
        assert!(!harmless[0].matters, "{harmless:?}");
        let unknown = missing(&[note("cufftXtMalloc"), note("cuptiSubscribe")]);
        assert_eq!(unknown.iter().filter(|call| call.matters).count(), 1);
        assert!(missing(&[note("nvshmem_malloc")])[0].effect.contains("NVSHMEM"));
        assert_eq!(unknown.iter().map(|call| call.calls).sum::<u64>(), 20);
    }

    #[test]
    fn uuids_are_compared_without_prefix() {
        assert!(same_uuid("362c5e16-CA66", "GPU-362c5e16-ca66"));
        assert!(!same_uuid("362c5e16", "GPU-362c5e17"));
    }
}
