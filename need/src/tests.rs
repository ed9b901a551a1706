use std::collections::BTreeMap;

use radrm_base::{Bytes, HostUse, Millis, PastRun, Permille, ProgramKind, SeenActivity, UserId};

use super::*;

fn run(batch: u32, mib: u64) -> PastRun {
    PastRun {
        batch: Some(batch),
        peak: Bytes::from_mib(mib),
        ran: Millis(1000),
        activity: None,
        host: None,
        complete: true,
    }
}

fn lacking(batch: u32, mib: u64) -> PastRun {
    PastRun { complete: false, ran: Millis(5), ..run(batch, mib) }
}

fn resolve(runs: &[PastRun], batch: Option<u32>) -> Needs {
    NeedResolver::default().resolve(&Features { runs, batch, ..Features::default() })
}

fn memory(runs: &[PastRun], batch: u32) -> Need {
    resolve(runs, Some(batch)).memory.unwrap()
}

/// Answer of each source, MiB, and its weight, thousandths.
fn said(need: &Need) -> Vec<(Source, u64, u32)> {
    let Source::Combined { said, .. } = &need.source else { panic!("{need}") };
    said.iter().map(|said| (said.source.clone(), said.bytes.mib(), said.weight.0)).collect()
}

#[test]
fn two_batch_sizes_give_a_line() {
    let runs = [run(64, 7000), run(32, 4000)];
    let third = memory(&runs, 128);
    assert!((12_700..13_100).contains(&third.bytes.mib()) && third.upper > third.bytes, "{third}");
    assert!(third.upper < third.bytes.part(Permille(1200)), "{third}");
    assert!(matches!(said(&third)[..], [(Source::OtherBatchSizes { sizes: 2 }, _, 1000)]), "{third}");
    assert!(!third.is_measured() && third.enforce);
    assert!((5400..5600).contains(&memory(&runs, 48).bytes.mib()));
    assert!(memory(&runs, 16).upper <= Bytes::from_mib(4080), "never more than a larger size needed");
    assert!(memory(&runs, 64).is_measured());
    assert_eq!(resolve(&runs, Some(48)).run_time, None, "a time at another batch size says nothing");
}

#[test]
fn one_batch_size_bounds_others() {
    let runs = [run(32, 4000)];
    let smaller = memory(&runs, 16);
    assert!(smaller.bytes < Bytes::from_mib(4000) && smaller.upper <= Bytes::from_mib(4040), "{smaller}");
    let larger = memory(&runs, 64);
    assert!(larger.bytes > Bytes::from_mib(6000) && larger.upper < Bytes::from_mib(8000), "{larger}");
}

#[test]
fn a_falling_line_is_not_followed() {
    let need = memory(&[run(64, 6900), run(32, 7000)], 128);
    assert!(need.bytes >= Bytes::from_mib(6900) && need.upper >= need.bytes, "{need}");
}

#[test]
fn own_runs_and_a_dry_run_are_one_figure() {
    let dry_run = DryRun {
        held: Bytes::from_mib(6200),
        kind: Some(ProgramKind::Cudnn),
        steps: 3,
        gpu: "A100".into(),
        ..DryRun::default()
    };
    let runs = [run(32, 4000)];
    fn of(runs: &[PastRun], dry_run: Option<&DryRun>, calibration: Option<&Calibration>) -> Need {
        let job = Features { runs, batch: Some(64), dry_run, calibration, ..Features::default() };
        NeedResolver::default().resolve(&job).memory.unwrap()
    }
    let both = of(&runs, Some(&dry_run), None);
    let parts = said(&both);
    let [(own, _, a), (dry, _, b)] = &parts[..] else { panic!("{both}") };
    assert_eq!((own, a + b), (&Source::OtherBatchSizes { sizes: 1 }, 1000));
    let expected = Source::DryRun { run: dry_run.clone(), runs: 0, left_out: None };
    assert_eq!(dry, &expected);
    assert!(both.enforce && !of(&[], Some(&dry_run), None).enforce, "no run stands for a dry run alone");
    let text = both.to_string();
    assert!(text.contains("runs at another batch size (") && text.contains("dry run of 3 steps"), "{text}");
    // Where bounds did not hold, the next ones are wider.
    let mut here = Calibration::default();
    for _ in 0..20 {
        let need = of(&runs, Some(&dry_run), Some(&here));
        here.observe(UserId(1), &need, need.bytes.part(Permille(1900)), true);
    }
    let wider = of(&runs, Some(&dry_run), Some(&here));
    assert!(wider.upper > both.upper && wider.bytes == both.bytes, "{both} {wider}");
    assert!(wider.to_string().contains("after this node's jobs"), "{wider}");
}

#[test]
fn answers_name_every_source_in_order() {
    let dry_run = DryRun { held: Bytes::from_mib(6200), steps: 3, gpu: "A100".into(), ..DryRun::default() };
    let runs = [run(64, 4000)];
    let declared = Some(Bytes::from_mib(9000));
    let job =
        Features { declared, runs: &runs, batch: Some(64), dry_run: Some(&dry_run), ..Features::default() };
    let resolver = NeedResolver::default();
    let answers = resolver.answers(&job);
    let names: Vec<&str> = answers.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["declared", "own history", "combined"]);
    assert_eq!(Some(&answers[0].1), resolver.resolve(&job).memory.as_ref());
}

#[test]
fn out_of_memory_is_a_lower_bound_and_no_run_time() {
    let peak = Bytes::from_mib(20_000);
    assert!(memory(&[lacking(128, 20_000), run(64, 7000), run(32, 4000)], 128).bytes > peak);
    let only = resolve(&[lacking(8, 6000)], Some(8));
    let need = only.memory.unwrap();
    assert!(need.bytes > Bytes::from_mib(6000) && need.source == Source::OutOfMemory, "{need}");
    assert_eq!(only.run_time, None);
    let unknown = PastRun { batch: None, ..lacking(8, 6000) };
    assert!(resolve(&[unknown], None).memory.unwrap().upper > Bytes::from_mib(6000));
    // One that was granted more and ended well is the measurement.
    let runs = [
        run(8, 7000),
        PastRun { ran: Millis(9000), ..run(8, 7000) },
        PastRun { ran: Millis(2000), ..run(8, 7000) },
        lacking(8, 6000),
    ];
    let both = resolve(&runs, Some(8));
    let need = both.memory.unwrap();
    assert_eq!((need.upper, &need.source), (Bytes::from_mib(7000), &Source::EqualRuns { runs: 3 }));
    assert_eq!(both.run_time.unwrap().value, Millis(2000), "the median");
    let less = memory(&[run(8, 5000), lacking(8, 6000)], 8);
    assert_eq!((less.upper, less.confidence), (Bytes::from_mib(6000), None), "no run shows that it suffices");
    assert!(!less.is_measured() && less.to_string().contains("others ran out of memory"), "{less}");
}

#[test]
fn only_the_newest_runs_count() {
    let mut runs = vec![run(8, 1000); 8];
    runs.push(run(8, 9000));
    assert_eq!(memory(&runs, 8).upper, Bytes::from_mib(1000));
    let mut runs = vec![PastRun { peak: Bytes::ZERO, ..run(8, 0) }; MAX_RUNS];
    runs.push(run(8, 9000));
    assert_eq!(resolve(&runs, Some(8)).memory, None, "a peak of nothing was not measured");
}

#[test]
fn activity_of_an_equal_run_comes_before_others() {
    let seen = |smact| Some(SeenActivity { smact: Permille(smact), ..SeenActivity::default() });
    let with = |smact, batch| PastRun { activity: seen(smact), ..run(batch, 3000) };
    let runs = [with(300, 8), run(16, 5000), with(700, 16)];
    let of = |batch| resolve(&runs, Some(batch)).activity.map(|known| known.value);
    assert_eq!((of(16), of(8), of(99)), (seen(700), seen(300), seen(300)));
}

#[test]
fn host_use_of_an_equal_run_comes_before_others() {
    let used = |cpu_milli| HostUse { cpu_milli, threads: 1, resident: Bytes(1), ..HostUse::default() };
    let with = |cpu_milli, batch| PastRun { host: Some(used(cpu_milli)), ..run(batch, 3000) };
    let runs = [with(300, 8), run(16, 5000), with(700, 16)];
    let of = |batch| resolve(&runs, Some(batch)).host.map(|known| known.value);
    assert_eq!((of(16), of(8), of(99)), (Some(used(700)), Some(used(300)), Some(used(300))));
}

#[test]
fn estimators_are_asked_in_order_of_trust() {
    let gib = Bytes::from_gib;
    let dry_run = DryRun { held: gib(4), steps: 3, gpu: "A100".into(), ..DryRun::default() };
    let estimate = UserEstimate { bytes: gib(1), upper: gib(2), ..UserEstimate::default() };
    let file = BTreeMap::from([("horus".to_owned(), gib(9))]);
    let summary = ModelSummary { parameters: 1 << 28, activations: 1 << 22, ..ModelSummary::default() };
    let runs = [run(64, 3072)];
    let all = Features {
        declared: Some(gib(10)),
        declared_time: Some(Millis(7)),
        runs: &runs,
        dry_run: Some(&dry_run),
        estimate: Some(&estimate),
        file: Some(&file),
        summary: Some(&summary),
        batch: Some(64),
        ..Features::default()
    };
    let of = |job: &Features<'_>| NeedResolver::default().resolve(job).memory;
    // What is asked first leaves, one after the other.
    let mut left = all;
    let mut seen = Vec::new();
    let leave: [fn(&mut Features<'_>); 6] = [
        |job| job.declared = None,
        |job| job.runs = &[],
        |job| job.dry_run = None,
        |job| job.estimate = None,
        |job| job.file = None,
        |job| job.summary = None,
    ];
    for leave in leave {
        let need = of(&left).unwrap();
        if let Source::Combined { .. } = need.source {
            assert!(need.upper > gib(5) && need.upper < gib(6) && !need.enforce, "{need}");
            leave(&mut left);
            continue;
        }
        seen.push((need.source.clone(), need.bytes, need.upper, need.enforce));
        leave(&mut left);
    }
    assert_eq!(of(&left), None);
    // 4 bytes of each: parameters once, activations of the batch twice.
    let formula = Bytes((1 << 30) + (2 << 30) + (600 << 20));
    let startup = Bytes::from_mib(600);
    assert_eq!(
        seen,
        [
            (Source::Declared, gib(10), gib(10), true),
            (Source::EqualRuns { runs: 1 }, gib(3), gib(3), true),
            (Source::UserEstimate, gib(1), gib(2), false),
            (Source::File { estimator: "Horus".into() }, gib(9), gib(9), false),
            (
                Source::Formula { parameters: 1 << 28, activations: 1 << 22, batch: 64, startup },
                formula,
                formula,
                false
            ),
        ]
    );
    let times = NeedResolver::default().resolve(&all);
    assert_eq!(times.run_time.unwrap().value, Millis(7), "what the user declares comes first");
}

#[test]
fn an_upper_bound_alone_is_the_declared_need() {
    let of = |declared, declared_upper| {
        let job = Features { declared, declared_upper, ..Features::default() };
        NeedResolver::default().resolve(&job).memory.map(|need| (need.bytes.0, need.upper.0))
    };
    assert_eq!(of(Some(Bytes(5)), None), Some((5, 5)));
    assert_eq!(of(Some(Bytes(5)), Some(Bytes(8))), Some((5, 8)));
    assert_eq!(of(None, Some(Bytes(8))), Some((8, 8)));
    assert_eq!(of(None, None), None);
}

#[test]
fn estimates_of_a_file_are_bounds_by_how_often_they_were_too_low() {
    let of = |figures: &[(&str, u64)]| {
        let file: BTreeMap<String, Bytes> =
            figures.iter().map(|(name, mib)| ((*name).to_owned(), Bytes::from_mib(*mib))).collect();
        let job = Features { file: Some(&file), ..Features::default() };
        NeedResolver::default().resolve(&job).memory.map(|need| (need.bytes.mib(), need.upper.mib()))
    };
    let (bytes, upper) = of(&[("horus", 100), ("faketensor", 7000)]).unwrap();
    assert!((9000..11_000).contains(&bytes) && (11_000..14_000).contains(&upper), "{bytes} {upper}");
    assert_eq!(of(&[("horus", 9000), ("faketensor", 7000)]), Some((9000, 9000)));
    assert_eq!(of(&[("horus", 9000), ("faketensor", 7000), ("gpumemnet", 8000)]), Some((8000, 8000)));
    assert_eq!(of(&[("horus", 9000)]), Some((9000, 9000)));
    assert_eq!(of(&[]), None);
}

#[test]
fn a_need_says_its_interval_confidence_and_source() {
    let line = memory(&[run(64, 7000), run(32, 4000)], 128).to_string();
    assert!(line.starts_with("needs 12.") && line.contains(" on each GPU, at most 1"), "{line}");
    assert!(line.ends_with("(95 % confidence): extrapolated from 2 other batch sizes"), "{line}");
    assert_eq!(
        memory(&[run(8, 3072)], 8).to_string(),
        "needs 3.00 GiB on each GPU: measured in an equal run"
    );
    assert_eq!(Need::declared(Bytes::from_gib(5)).to_string(), "requested 5.00 GiB on each GPU");
}
