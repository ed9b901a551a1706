//! The figures of a dry run, and whether they can be trusted.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use radrm_emulator_machine::{Charge, GpuLedger, GpuSpec, Machine, ProcessLedger};
use radrm_profile::model::DryRunRanks;
use radrm_profile::model::dry_run::{
    DryRunFigures, GpuFigures, MissingCall, ModelledSize, Peak, Phase, RanRank,
};

use super::NO_BOUND;
use super::flags::DryRun;
use super::notes::{Framework, Matter, Note};
use super::ranks::{Placed, Ranks};
use super::verdict::{Evaluation, Stopped};

/// Processes that one sentence names.
const NAMED: usize = 8;

/// Effects of calls without semantics on the figures: names, whether it matters, and words.
const EFFECTS: &str = include_str!("../../data/dry_run_effects.tsv");

/// Puts the ledger of the machine and the notes of the processes together.
#[must_use]
pub fn figures(wanted: &DryRun, machine: Option<&Machine>, notes: &[Note], took: Duration) -> DryRunFigures {
    let ledgers = machine.map(|machine| own_ledgers(machine.ledgers(), notes)).unwrap_or_default();
    let Reported { last, cut_short } = Reported::of(notes);
    let gpus: Vec<GpuFigures> = machine
        .map(|machine| {
            (0..machine.gpu_count())
                .filter_map(|gpu| {
                    let uuid = machine.spec().uuid_text(gpu);
                    one_gpu(gpu, machine.gpu(gpu)?, &uuid, &ledgers, &last)
                })
                .collect()
        })
        .unwrap_or_default();
    let full: Vec<String> = gpus
        .iter()
        .filter(|gpu| machine.and_then(|machine| machine.gpu(gpu.gpu)).is_some_and(|spec| is_full(gpu, spec)))
        .map(|gpu| {
            format!(
                "{NO_BOUND}GPU {} had less than 2 % free, and a larger card lets the allocator reserve more",
                gpu.gpu
            )
        })
        .collect();
    let ends = whole_runs(&last);
    // Of what a process that was cut short reported only these hold in any case.
    let all: Vec<&Framework> = ends.iter().copied().chain(whole_runs(&cut_short)).collect();
    let sum = |of: fn(&super::notes::FrameworkDevice) -> u64| -> u64 {
        all.iter().flat_map(|own| &own.devices).map(of).sum()
    };
    let frameworks: BTreeSet<_> =
        all.iter().map(|own| format!("{} {}", own.framework, own.version)).collect();
    let missing = missing(notes);
    let elsewhere = notes.iter().find(|note| note.matter == Matter::Withhold && frameworks.is_empty());
    let withheld = elsewhere.map(|note| note.words.clone()).or_else(|| reason_to_withhold(&missing));
    DryRunFigures {
        machine: machine.map(describe).unwrap_or_default(),
        torch: all.iter().find(|own| own.framework == "PyTorch").map(|own| own.version.clone()),
        frameworks: frameworks.into_iter().collect(),
        allocator: all.first().map(|own| own.allocator.clone()),
        steps: ends.iter().map(|own| own.steps).max().unwrap_or(0),
        seconds: took.as_secs_f64(),
        host_memory: ends.iter().map(|own| own.resident).max().unwrap_or(0),
        // What is not to be trusted is not there to be read by accident.
        gpus: if withheld.is_none() { gpus } else { Vec::new() },
        out_of_memory: sum(|device| device.out_of_memory),
        retries: sum(|device| device.retries),
        missing,
        modelled: modelled(notes),
        filled: counted(notes, |matter| match matter {
            Matter::Fill(count) => Some(*count),
            _ => None,
        }),
        fill: wanted.fill,
        library_calls: counted(notes, |matter| match matter {
            Matter::LibraryCall(count) => Some(*count),
            _ => None,
        }),
        remarks: notes
            .iter()
            .filter(|note| note.matter == Matter::Remark)
            .map(|note| note.words.clone())
            .chain(of_cut_short(&cut_short))
            .chain(full)
            .chain(many_communicators(&modelled(notes)))
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect(),
        withheld,
    }
}

/// Ranks that ran, and what they asked of the others.
#[must_use]
pub fn ranks(wanted: &Ranks, placed: &[Placed], machine: &Machine, notes: &[Note]) -> DryRunRanks {
    let last = last_by_phase(notes);
    let host_memory = |rank: u32| {
        let of_rank = |note: &&Note| note.matter == Matter::Rank(rank);
        let own: BTreeSet<u32> = notes.iter().filter(of_rank).map(|note| note.pid).collect();
        let whole = last.iter().filter(|((pid, _), _)| own.contains(pid));
        whole.filter_map(|(_, phases)| Some(phases.get(&Phase::Whole)?.resident)).max()
    };
    let ran = |placed: &Placed| RanRank {
        rank: placed.rank,
        gpu: placed.gpu,
        host_memory: host_memory(placed.rank),
    };
    DryRunRanks {
        world: wanted.world,
        per_node: u32::try_from(machine.gpu_count()).unwrap_or(u32::MAX),
        ran: placed.iter().map(ran).collect(),
        answered: counted(notes, |matter| match matter {
            Matter::Answered(count) => Some(*count),
            _ => None,
        }),
    }
}

/// Way in which the program was stopped before its end, by the remarks of a run: the Python side writes them, and where a signal
/// stopped the program [`stopped_by`].
pub(crate) fn stopped<'a>(remarks: impl IntoIterator<Item = &'a str>) -> Option<Stopped> {
    let of = |remark: &str| {
        if remark.starts_with("stopped in ") && remark.ends_with(WAITS) {
            return Some(Stopped::Waiting);
        }
        let rest = remark.strip_suffix(AS_ASKED)?.strip_prefix("stopped ")?;
        let has = |(words, _): &&(&str, Evaluation)| rest.ends_with(*words);
        let evaluation = EVALUATIONS.iter().find(has).map_or(Evaluation::NotReached, |(_, seen)| *seen);
        match rest.split(' ').next()? {
            "after" => Some(Stopped::AfterSteps { evaluation }),
            "when" => Some(Stopped::AtItsTime),
            "by" => Some(Stopped::BySignal),
            _ => None,
        }
    };
    remarks.into_iter().find_map(of)
}

/// Request that a framework refused at a limit of its own, by the remarks of a run: the Python side writes them.
pub(crate) fn refused_by_own_limit<'a>(remarks: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let of = |remark: &str| {
        let (refused, limit) = remark.split_once(" at its own limit of ")?;
        let (_, request) = refused.split_once(" refused ")?;
        Some(format!("{request} (it is {limit})"))
    };
    remarks.into_iter().find_map(of)
}

/// End of the remark on a program that would never have ended.
const WAITS: &str = ": its loop waits for a value of the GPU, which a dry run does not compute";
/// End of remarks on a program that was stopped.
const AS_ASKED: &str = ", as asked";
/// Words before that end where the program has begun to evaluate.
const EVALUATIONS: [(&str, Evaluation); 2] =
    [(", evaluation included", Evaluation::Whole), (", evaluation cut short", Evaluation::CutShort)];

/// The remark on a program that a signal stopped when its time was up.
pub(crate) fn stopped_by(signal: i32) -> String {
    format!("stopped by {} when its time was up{AS_ASKED}", radrm_base::signal::name(signal))
}

/// Returns true if so much was held that an allocator would have kept more in reserve on a larger card.
fn is_full(gpu: &GpuFigures, spec: &GpuSpec) -> bool {
    gpu.held_peak >= spec.memory_bytes() / 100 * 98
}

fn reason_to_withhold(missing: &[MissingCall]) -> Option<String> {
    let names: Vec<&str> =
        missing.iter().filter(|call| call.matters).map(|call| call.name.as_str()).collect();
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

fn describe(machine: &Machine) -> String {
    let names: Vec<&str> = machine.spec().gpu.iter().map(|gpu| gpu.id.as_str()).collect();
    match names.as_slice() {
        [one] => (*one).to_owned(),
        [first, ..] if names.iter().all(|name| name == first) => format!("{}x{first}", names.len()),
        _ => names.join("+"),
    }
}

/// Function that NVIDIA's runtime asks a driver for when it starts. The stand-in for it does not.
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
        let Matter::Framework(figures) = &note.matter else { continue };
        let own = all.entry((note.pid, figures.framework.clone())).or_default();
        let phase = match figures.phase.as_str() {
            "load" => Some(Phase::Load),
            "first step" => Some(Phase::FirstStep),
            "steady" => Some(Phase::Steady),
            _ => None,
        };
        own.extend(phase.map(|phase| (phase, figures.clone())));
        let mut whole = figures.clone();
        if let Some(before) = own.get(&Phase::Whole) {
            whole.keep_peaks_of(before);
        }
        own.insert(Phase::Whole, whole);
    }
    all
}

/// Figures that the frameworks of processes reported.
struct Reported {
    /// By processes that wrote their last figures.
    last: ByProcess,
    /// By processes that ended without writing them: what they took later is not in these.
    cut_short: ByProcess,
}

impl Reported {
    fn of(notes: &[Note]) -> Self {
        let complete: BTreeSet<(u32, &str)> = notes
            .iter()
            .filter_map(|note| match &note.matter {
                Matter::Framework(figures) if figures.is_final => {
                    Some((note.pid, figures.framework.as_str()))
                }
                _ => None,
            })
            .collect();
        let is_complete = |pid: u32, framework: &str| complete.contains(&(pid, framework));
        let (last, cut_short) =
            last_by_phase(notes).into_iter().partition(|((pid, framework), _)| is_complete(*pid, framework));
        Self { last, cut_short }
    }
}

fn whole_runs(reported: &ByProcess) -> Vec<&Framework> {
    reported.values().filter_map(|phases| phases.get(&Phase::Whole)).collect()
}

/// A sentence about the processes of each framework that were cut short.
fn of_cut_short(cut_short: &ByProcess) -> Vec<String> {
    let mut by_framework: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
    for (pid, framework) in cut_short.keys() {
        by_framework.entry(framework).or_default().push(*pid);
    }
    let sentence = |(framework, pids): (&str, Vec<u32>)| {
        let named: Vec<String> = pids.iter().take(NAMED).map(u32::to_string).collect();
        let more = match pids.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        format!(
            "{} {}{more} ended by a signal or without exit handlers: figures are those of the driver, {framework}'s \
             are incomplete and left out",
            if pids.len() == 1 { "process" } else { "processes" },
            named.join(", "),
        )
    };
    by_framework.into_iter().map(sentence).collect()
}

fn one_gpu(
    gpu: usize,
    spec: &GpuSpec,
    uuid: &str,
    ledgers: &[ProcessLedger],
    last: &ByProcess,
) -> Option<GpuFigures> {
    let own: Vec<(u32, &GpuLedger)> = ledgers
        .iter()
        .filter_map(|ledger| Some((ledger.pid, ledger.gpu(gpu)?)))
        .filter(|(_, ledger)| ledger.held_peak > 0)
        .collect();
    if own.is_empty() {
        return None;
    }
    let mut phases: BTreeMap<Phase, Peak> = BTreeMap::new();
    let mut reporting: BTreeSet<u32> = BTreeSet::new();
    for ((pid, _), process) in last {
        for (phase, figures) in process {
            for device in figures.devices.iter().filter(|device| same_uuid(&device.uuid, uuid)) {
                let peak = phases.entry(*phase).or_default();
                peak.allocated += device.allocated;
                peak.reserved += device.reserved;
                reporting.insert(*pid);
            }
        }
    }
    let sum = |of: fn(&GpuLedger) -> u64| -> u64 { own.iter().map(|(_, ledger)| of(ledger)).sum() };
    let reporting: Vec<&GpuLedger> =
        own.iter().filter(|(pid, _)| reporting.contains(pid)).map(|(_, ledger)| *ledger).collect();
    Some(GpuFigures {
        gpu,
        name: spec.name.clone(),
        capability: spec.capability(),
        processes: own.len(),
        reporting_processes: reporting.len(),
        phases,
        requested_peak: sum(|ledger| ledger.total_requested_peak),
        reporting_requested_peak: reporting.iter().map(|ledger| ledger.total_requested_peak).sum(),
        held_peak: sum(|ledger| ledger.held_peak),
        context: sum(|ledger| ledger.kind(Charge::Context).held_peak),
        context_constant: own.len() as u64 * spec.context_bytes(),
        context_origin: spec.context_origin.clone(),
    })
}

/// PyTorch writes UUIDs without their prefix.
pub(crate) fn same_uuid(torch: &str, machine: &str) -> bool {
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

/// Names of the sizes that the stand-in of NCCL models: of all communicators, and of those that were used.
const COMMUNICATORS: [&str; 2] =
    ["buffers of all communicators (NCCL), 64 MiB each", "of these, buffers of communicators that were used"];
/// Bytes of each.
const COMMUNICATOR: u64 = 64 << 20;
/// Communicators whose buffers a bound covers.
const COVERED: u64 = 4;

/// Sentence on communicators that no bound covers, if there are many.
fn many_communicators(modelled: &[ModelledSize]) -> Option<String> {
    let number = |name| modelled.iter().find(|of| of.what == name).map_or(0, |of| of.bytes / COMMUNICATOR);
    let [made, used] = COMMUNICATORS.map(number);
    let takes =
        "NCCL connects each when it is first used, and it takes up to 1 GiB then on machines with NVSwitch";
    (made > COVERED)
        .then(|| format!("{NO_BOUND}{made} communicators of 64 MiB, of which {used} were used: {takes}"))
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

/// Sums over the processes.
fn counted(notes: &[Note], of: fn(&Matter) -> Option<u64>) -> Vec<(String, u64)> {
    let sum = |by_process: BTreeMap<u32, u64>| by_process.values().sum();
    largest(notes, of).into_iter().map(|(what, by_process)| (what, sum(by_process))).collect()
}

/// Effect of a call: true if it can change the figures, and how.
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

    fn torch(pid: u32, phase: &str, allocated: u64) -> Note {
        let device = super::super::notes::FrameworkDevice {
            uuid: "abcd".to_owned(),
            allocated,
            reserved: allocated + 1,
            ..Default::default()
        };
        let is_final = phase == "steady";
        let figures =
            Framework { phase: phase.to_owned(), is_final, devices: vec![device], ..Framework::default() };
        Note { pid, matter: Matter::Framework(figures), words: String::new() }
    }

    #[test]
    fn a_program_was_stopped_by_its_steps_or_by_its_time() {
        let by_signal = stopped_by(libc::SIGTERM);
        for (remark, expected) in [
            (
                "stopped after 3 optimizer steps, as asked",
                Stopped::AfterSteps { evaluation: Evaluation::NotReached },
            ),
            (
                "stopped after 6 optimizer steps, evaluation included, as asked",
                Stopped::AfterSteps { evaluation: Evaluation::Whole },
            ),
            ("stopped when its time was up, as asked", Stopped::AtItsTime),
            (by_signal.as_str(), Stopped::BySignal),
            (
                "stopped in run (a.py:7): its loop waits for a value of the GPU, which a dry run does not compute",
                Stopped::Waiting,
            ),
        ] {
            assert_eq!(stopped(["other", remark]), Some(expected), "{remark}");
        }
        assert_eq!(stopped(["stopped after an error", "the rest, as asked"]), None);
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
        let mut notes = vec![torch(1, "load", 5), torch(2, "load", 7), torch(2, "steady", 8)];
        let found = Reported::of(&notes);
        assert_eq!(found.last.keys().map(|key| key.0).collect::<Vec<_>>(), [2]);
        let sentences = of_cut_short(&found.cut_short);
        assert!(
            matches!(&sentences[..], [one] if one.starts_with("process 1 ended by a signal")),
            "{sentences:?}"
        );
        notes.extend((11..21).map(|pid| torch(pid, "load", 5)));
        let sentences = of_cut_short(&Reported::of(&notes).cut_short);
        assert!(
            matches!(&sentences[..], [all] if all.starts_with("processes 1, 11, 12, 13, 14, 15, 16, 17 and 3 more ended")),
            "{sentences:?}"
        );
    }

    #[test]
    fn many_communicators_are_counted_and_leave_no_bound() {
        let size = |what: &str, mib: u64| ModelledSize { what: what.to_owned(), bytes: mib << 20 };
        let of = |made, used| {
            many_communicators(&[
                size(COMMUNICATORS[0], made),
                size(COMMUNICATORS[1], used),
                size("cuDNN", 99),
            ])
        };
        let found = of(19 * 64, 64).expect("a remark");
        assert!(found.starts_with("no bound: 19 communicators of 64 MiB, of which 1 were used"), "{found}");
        assert_eq!((of(4 * 64, 0), many_communicators(&[])), (None, None));
    }

    #[test]
    fn a_frameworks_own_limit_is_read_with_the_request() {
        let remark = "PyTorch refused 20.00 GiB at its own limit of 14.0 GiB";
        let found = refused_by_own_limit(["wrote 3 files", remark]);
        assert_eq!(found.as_deref(), Some("20.00 GiB (it is 14.0 GiB)"));
        assert_eq!(refused_by_own_limit(["no bound: a limit"]), None);
    }

    #[test]
    fn what_a_cut_short_process_used_and_what_was_refused_to_it_is_reported() {
        let mut note = torch(1, "load", 5);
        let Matter::Framework(figures) = &mut note.matter else { unreachable!() };
        (figures.framework, figures.version) = ("PyTorch".to_owned(), "2".to_owned());
        figures.devices[0].out_of_memory = 1;
        let found = super::figures(&DryRun::default(), None, &[note], Duration::ZERO);
        assert_eq!((found.frameworks, found.out_of_memory), (vec!["PyTorch 2".to_owned()], 1));
        assert_eq!((found.torch.as_deref(), found.remarks.len()), (Some("2"), 1));
    }

    #[test]
    fn a_gpu_that_a_later_phase_does_not_use_keeps_its_peak() {
        let mut other = torch(1, "steady", 3);
        let Matter::Framework(figures) = &mut other.matter else { unreachable!() };
        figures.devices[0].uuid = "other".to_owned();
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
        // NVIDIA's linker has the runtime linked in and works without it, as Numba uses it.
        let linker = missing(&[note("cuGetExportTable (libnvJitLink.so.13)")]);
        assert_eq!((linker[0].matters, reason_to_withhold(&linker)), (false, None));
        let runtime = missing(&[note("cuGetExportTable (libother.so.1)")]);
        assert!(
            reason_to_withhold(&runtime)
                .is_some_and(|why| why.starts_with("libother.so.1 has the CUDA runtime"))
        );
        assert!(missing(&[note("nvshmem_malloc")])[0].effect.contains("NVSHMEM"));
        assert_eq!(unknown.iter().map(|call| call.calls).sum::<u64>(), 20);
    }

    #[test]
    fn uuids_are_compared_without_prefix() {
        assert!(same_uuid("362c5e16-CA66", "GPU-362c5e16-ca66"));
        assert!(!same_uuid("362c5e16", "GPU-362c5e17"));
    }
}
