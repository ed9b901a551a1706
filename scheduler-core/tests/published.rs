//! Replays of the thesis's traces against what was published of them.
//!
//! The traces lie beside the project, not in it; without them nothing is checked.

use std::path::Path;

use radrm_scheduler_core::replay::{
    Cluster, Filling, Knowledge, Metrics, Mode, Model, Options, Profiles, Source, TraceJob, bounds, read,
    replay,
};
use radrm_scheduler_core::{Bytes, Constants, Memory, Permille, Policy, Settings};

fn data(name: &str) -> Option<String> {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data").join(name)).ok()
}

/// The traces of 60 and 90 tasks.
fn traces() -> Option<Vec<Vec<TraceJob>>> {
    let profiles = Profiles::read(&data("workloads_a100/workloads.csv")?).unwrap();
    let filling = Filling { profiles, ..Filling::default() };
    let trace = |name: &str| Some(read(&data(name)?, &filling).unwrap());
    Some(vec![trace("traces/thesis_60.csv")?, trace("traces/thesis_90.csv")?])
}

fn gpus() -> Cluster {
    Cluster::uniform(4, "A100-40GB", Bytes::from_gib(40))
}

struct Case {
    settings: Settings,
    source: Source,
    model: Model,
    knowledge: Knowledge,
}

impl Case {
    fn new(settings: Settings, source: Source) -> Self {
        Self { settings, source, model: Model::default(), knowledge: Knowledge::All }
    }

    /// Means over seeds; 0 stands for the replay without chance.
    fn run(&self, trace: &[TraceJob], seeds: std::ops::Range<u64>) -> Metrics {
        let count = (seeds.end - seeds.start) as f64;
        let mut sum = Metrics::default();
        for seed in seeds {
            let options = Options {
                settings: self.settings.clone(),
                model: self.model,
                source: self.source.clone(),
                knowledge: self.knowledge,
                seed: (seed > 0).then_some(seed),
                bars: false,
            };
            let one = replay(trace, &gpus(), &options, &mut ()).metrics();
            assert_eq!(one.failed, 0.0, "every job ends well");
            sum.makespan_s += one.makespan_s / count;
            sum.jct_mean_s += one.jct_mean_s / count;
            sum.ooms += one.ooms / count;
            sum.energy_mj += one.energy_mj / count;
        }
        sum
    }
}

fn published(policy: Policy, source: Source) -> Case {
    let mut settings = Settings::published(policy);
    if source != Source::Unknown && policy == Policy::RoundRobin {
        settings.memory = Memory::Observed;
        settings.preconditions.smact = Some(Permille(800));
    }
    Case::new(settings, source)
}

#[test]
fn exclusive_makespans_are_those_of_the_tables() {
    let Some(traces) = traces() else { return };
    for (trace, hours) in traces.iter().zip([10.21, 11.27]) {
        let makespan = published(Policy::Exclusive, Source::Measured).run(trace, 0..1).makespan_s / 3600.0;
        assert!((makespan / hours - 1.0).abs() < 0.02, "{makespan} for {hours}");
    }
}

#[test]
fn sharing_is_ahead_of_exclusive_and_chance_costs_memory() {
    let Some(traces) = traces() else { return };
    for trace in &traces {
        let run = |case: Case| case.run(trace, 1..6);
        let exclusive = run(published(Policy::Exclusive, Source::Measured));
        let oracle = run(published(Policy::Magm, Source::Measured));
        let lug = run(published(Policy::Lug, Source::Unknown));
        let estimated = run(published(Policy::Magm, Source::Column("gpumemnet".into())));
        let blind = run(published(Policy::RoundRobin, Source::Unknown));
        let mut slices = published(Policy::RoundRobin, Source::Unknown);
        slices.model.mode = Mode::Streams;
        let slices = run(slices);
        for better in [&oracle, &lug, &estimated, &blind] {
            assert!(better.makespan_s < exclusive.makespan_s * 0.85, "{better:?}");
            assert!(better.energy_mj < exclusive.energy_mj);
        }
        // As published: time slices of blind round-robin cost more energy than nobody sharing.
        assert!(slices.energy_mj > exclusive.energy_mj, "{} {}", slices.energy_mj, exclusive.energy_mj);
        // Oracles never run out; looking at free memory helps, not looking costs most.
        assert_eq!(oracle.ooms, 0.0);
        assert!(blind.ooms > lug.ooms + 3.0 && blind.ooms < 20.0, "{} {}", blind.ooms, lug.ooms);
        assert!(estimated.ooms <= lug.ooms && lug.ooms <= 6.0);
        // Published: 30.13 % less time with measured peaks.
        let less = 1.0 - oracle.makespan_s / exclusive.makespan_s;
        assert!((0.22..0.34).contains(&less), "{less}");
    }
}

#[test]
fn the_default_is_ahead_of_every_published_policy_over_the_models_range() {
    let Some(traces) = traces() else { return };
    let rivals = [
        Policy::Exclusive,
        Policy::RoundRobin,
        Policy::Magm,
        Policy::Lug,
        Policy::Mug,
        Policy::FirstFit,
        Policy::BestFit,
    ];
    for trace in &traces {
        for factor in [0.5, 1.0, 1.5] {
            let run = |mut case: Case| {
                case.model.mps = Constants::MPS.scaled(factor);
                case.run(trace, 21..26)
            };
            let own = run(Case::new(Settings::default(), Source::Measured));
            let all: Vec<Metrics> =
                rivals.iter().map(|policy| run(published(*policy, Source::Measured))).collect();
            let makespan = all.iter().map(|metrics| metrics.makespan_s).fold(f64::MAX, f64::min);
            let completion = all.iter().map(|metrics| metrics.jct_mean_s).fold(f64::MAX, f64::min);
            let at = format!("{} jobs, slow-downs x{factor}", trace.len());
            assert_eq!(own.ooms, 0.0, "{at}");
            assert!(own.makespan_s <= makespan, "{at}: {} {makespan}", own.makespan_s);
            assert!(own.jct_mean_s <= 0.85 * completion, "{at}: {} {completion}", own.jct_mean_s);
        }
    }
}

#[test]
fn nothing_beats_the_bound() {
    let Some(traces) = traces() else { return };
    for trace in &traces {
        let bound = bounds(trace, 4, Constants::MPS.capacity, Settings::default().assumed);
        for policy in Policy::ALL {
            let case = match policy {
                Policy::Aware => Case::new(Settings::default(), Source::Measured),
                other => published(other, Source::Measured),
            };
            let metrics = case.run(trace, 0..1);
            assert!(metrics.makespan_s >= bound.makespan_s, "{policy}");
            assert!(metrics.jct_mean_s >= bound.jct_mean_s, "{policy}");
        }
    }
}

#[test]
fn a_replay_is_the_same_each_time() {
    let Some(traces) = traces() else { return };
    let options = Options { seed: Some(3), bars: true, ..Options::default() };
    let run = || replay(&traces[1], &gpus(), &options, &mut ());
    assert_eq!(run(), run());
}

#[test]
fn openb_is_replayed_whole() {
    let (Some(pods), Some(nodes)) =
        (data("openb/openb_pod_list_default.csv"), data("openb/openb_node_list_gpu_node.csv"))
    else {
        return;
    };
    let trace = read(&pods, &Filling::default()).unwrap();
    let cluster = read::openb_nodes(&nodes).unwrap();
    assert_eq!((trace.len(), cluster.devices.len()), (8152, 6212));
    let options = Options { model: Model::default().plain(), ..Options::default() };
    let metrics = replay(&trace, &cluster, &options, &mut ()).metrics();
    assert_eq!(metrics.failed, 0.0);
}
