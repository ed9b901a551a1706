//! The report of refused requests.

mod common;

use common::*;
use radrm_analyzer::{Summary, TextOptions, html, oom_json, oom_text, text};
use radrm_profile::model::postmortem::*;
use radrm_profile::model::*;
use radrm_profile::*;

fn kinds(of: &[(Kind, u64)]) -> [Bytes; KIND_COUNT] {
    let mut kinds = [Bytes::ZERO; KIND_COUNT];
    for (kind, mib) in of {
        kinds[kind.index()] = Bytes::from_mib(*mib);
    }
    kinds
}

fn block(mib: u64, kind: Kind, ms: u64) -> Block {
    Block { size: Bytes::from_mib(mib), kind: kind as u8, gpu: GpuIndex(0), since: Nanos::from_millis(ms) }
}

fn who(program: &str, user: &str) -> Who {
    Who { program: Some(program.into()), uid: Some(1001), user: Some(user.into()) }
}

/// A run whose first process was refused once, with everything around it.
fn refused(cause: Cause) -> Profile {
    let mut profile = out_of_memory();
    let process = profile.processes[0].clone();
    let other = ProcessKey { slot: 1, generation: 1 };
    let own = kinds(&[(Kind::Device, 3072), (Kind::PoolReserved, 512), (Kind::PoolUsed, 300)]);
    let mut worker = process.clone();
    worker.key = other;
    worker.identity.pid = 4712;
    worker.identity.command = "/usr/bin/python worker.py".into();
    profile.processes.push(worker);
    profile.postmortems = vec![Postmortem {
        process: process.key,
        is_complete: true,
        request: process.state.failures[0].clone(),
        cause,
        quotas: vec![QuotaUse {
            scope: Scope::Job,
            limit: Bytes::from_gib(8),
            used: Bytes::from_mib(3584 + 1024 + 256),
        }],
        own,
        blocks: (1..13).map(|i| block(2400 / i, Kind::Device, 100 * i)).collect(),
        blocks_left_out: LeftOut { count: 1200, bytes: Bytes::from_mib(40) },
        others: Some(vec![JobProcess {
            key: other,
            pid: 4712,
            kinds: kinds(&[(Kind::Vmm, 1024)]),
            blocks: vec![block(1000, Kind::Vmm, 77), block(24, Kind::Vmm, 78)],
        }]),
        holders: vec![
            Holder { pid: 99, who: who("jupyter", "bob"), bytes: Bytes::from_gib(5) },
            Holder { pid: process.identity.pid, who: who("python", "ada"), bytes: Bytes::from_mib(3840) },
        ],
        nvml: Some(Neighbours {
            t: Nanos::from_millis(186_435),
            used: Bytes::from_gib(10),
            total: Bytes::from_mib(143_771),
            processes: vec![
                Neighbour {
                    pid: 99,
                    who: who("jupyter", "bob"),
                    used: Some(Bytes::from_gib(5)),
                    is_own: false,
                },
                Neighbour { pid: 4712, who: Who::default(), used: Some(Bytes::from_gib(1)), is_own: true },
                Neighbour { pid: 100, who: Who::default(), used: None, is_own: false },
            ],
        }),
        later: Later {
            device: 40,
            fragmentation: 1,
            smallest: Bytes::from_mib(2),
            largest: Bytes::from_gib(140),
            last: Nanos::from_millis(186_900),
            ..Later::default()
        },
        ..Postmortem::default()
    }];
    profile
}

fn plain(profile: &Profile) -> String {
    oom_text(&Summary::from_profile(profile), &TextOptions::default())
}

#[test]
fn text_of_a_full_device() {
    insta::assert_snapshot!(plain(&refused(Cause::Device)));
}

#[test]
fn text_of_a_shared_quota() {
    let quota = QuotaUse { scope: Scope::User, limit: Bytes::from_gib(10), used: Bytes::from_mib(8960) };
    let mut profile = refused(Cause::Quota(quota));
    profile.postmortems[0].quotas.push(quota);
    insta::assert_snapshot!(plain(&profile));
}

#[test]
fn json_of_a_full_device() {
    insta::assert_snapshot!(oom_json(&Summary::from_profile(&refused(Cause::Device))));
}

#[test]
fn the_normal_report_says_it_in_short() {
    let profile = refused(Cause::Fragmentation);
    let summary = Summary::from_profile(&profile);
    let options = TextOptions { profile_path: Some("p.radrm".into()), ..TextOptions::default() };
    let report = text(&profile, &summary, &options);
    let from = report.find("memory holders at the out-of-memory event").expect("the section");
    let short: Vec<&str> = report[from..].lines().take_while(|line| !line.is_empty()).collect();
    assert!(short.len() <= 9, "{short:?}");
    for part in [
        "probably fragmented: ",
        "this process held 3.50 GiB",
        "1 other process of the job",
        "jupyter of bob",
    ] {
        assert!(short.iter().any(|line| line.contains(part)), "{part}: {short:#?}");
    }
    assert!(short.last().is_some_and(|line| line.contains("radrm report --oom p.radrm")));
    assert!(html(&profile, &summary).contains("this process held 3.50 GiB"));
}

#[test]
fn a_request_that_a_quota_refused_is_not_shown_as_a_full_gpu() {
    let quota = QuotaUse { scope: Scope::Job, limit: Bytes::from_gib(8), used: Bytes::from_mib(8000) };
    let mut profile = refused(Cause::Quota(quota));
    let shown = |profile: &Profile| {
        let summary = Summary::from_profile(profile);
        let text = text(profile, &summary, &TextOptions::default());
        let line = |line: &&str| line.contains("· pid 4711 · cuMemAlloc ·");
        (summary, text.lines().filter(line).map(str::to_owned).collect::<Vec<_>>())
    };
    let (summary, lines) = shown(&profile);
    assert!(
        lines[0].contains("refused by the job's quota of 8.00 GiB (GPU had 130.9 GiB free)"),
        "{lines:?}"
    );
    assert!(lines[1].ends_with("130.9 GiB of 140.4 GiB free"), "later refusals had other causes: {lines:?}");
    assert_eq!(summary.failed_requests[0].quota.map(|quota| quota.scope), Some("job"));
    // Later ones have no record of their own, but all had the same cause.
    let later = &mut profile.postmortems[0].later;
    (later.quota, later.device, later.fragmentation) = ([41, 0, 0], 0, 0);
    let (_, lines) = shown(&profile);
    assert!(lines.iter().all(|line| line.contains("quota of 8.00 GiB")), "{lines:?}");
}

#[test]
fn a_request_that_a_fault_refused_is_not_shown_as_a_full_gpu() {
    let mut profile = refused(Cause::Fragmentation);
    let shown = |profile: &Profile| {
        let summary = Summary::from_profile(profile);
        let text = text(profile, &summary, &TextOptions::default());
        (text.contains("refused by a fault injected by --faults ("), summary.failed_requests[0].injected)
    };
    // Less than what was free.
    for process in &mut profile.processes {
        process.state.failures.iter_mut().for_each(|failure| failure.size = Bytes::from_gib(1));
    }
    assert_eq!(shown(&profile), (false, false));
    profile.job.emulated = Some("H200 with faults oom@2".into());
    assert_eq!(shown(&profile), (true, true));
}

#[test]
fn missing_parts_of_a_record_are_named() {
    let mut profile = refused(Cause::Unknown);
    let it = &mut profile.postmortems[0];
    (it.nvml, it.others, it.is_complete, it.blocks_cut) = (None, None, false, true);
    (it.request.free, it.request.total) = (None, None);
    let report = plain(&profile);
    for part in [
        "free memory unknown",
        "NVML listed no processes",
        "could not be read",
        "the process ended before",
        "list of this process's blocks is incomplete",
    ] {
        assert!(report.contains(part), "{part}\n{report}");
    }
}

#[test]
fn names_of_other_peoples_programs_are_harmless() {
    let mut profile = refused(Cause::Device);
    let evil = "\x1b[2J<script>";
    profile.postmortems[0].nvml.as_mut().unwrap().processes[0].who = who(evil, evil);
    profile.postmortems[0].holders[0].who = who(evil, evil);
    profile.postmortems[0].request.call = evil.into();
    let summary = Summary::from_profile(&profile);
    for report in
        [oom_text(&summary, &TextOptions::default()), text(&profile, &summary, &TextOptions::default())]
    {
        assert!(!report.contains('\x1b'), "{report}");
    }
    assert_eq!(html(&profile, &summary).matches("<script>").count(), 1);
}
