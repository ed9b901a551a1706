//! Stacks of refused requests, of memory outside of the device total, of graphs, and of several processes together.

use std::{collections::BTreeMap, process::Command};

use radrm_preload_tests::{
    artifacts, child,
    figures::Outcome,
    programs,
    rig::{PATIENCE, Rig},
};
use radrm_profile::model::Kind;

use super::stacks::{folded, folded_with, recorded, total};

const FILE: &str = "sites_kinds.c";

/// Output of the program: line and bytes by name.
fn said(outcome: &Outcome) -> BTreeMap<String, (u64, u64)> {
    let line = |line: &str| {
        let mut words = line.split(' ');
        let name = words.next()?.to_owned();
        Some((name, (words.next()?.parse().ok()?, words.next()?.parse().ok()?)))
    };
    outcome.ended.stdout.lines().filter_map(line).collect()
}

fn run(argument: &str) -> (Rig, Outcome, BTreeMap<String, (u64, u64)>) {
    let rig = Rig::emulated("H100-80GB");
    let outcome = recorded(&rig, &programs::compile(FILE, &[]), &[argument]);
    let said = said(&outcome);
    (rig, outcome, said)
}

fn at(function: &str, line: u64) -> String {
    format!("{function} ({FILE}:{line})")
}

#[test]
fn a_refused_request_shows_what_was_held_then_and_not_at_the_peak() {
    let (rig, _, said) = run("refusals");
    for (number, name, held) in [(1, "early", "first"), (2, "late", "second")] {
        let stacks = folded_with(&rig, &[&format!("--at=refusal:{number}")]);
        let (line, bytes) = said[held];
        let [(frames, found)] = &stacks[..] else { panic!("{name}: {stacks:?}") };
        assert_eq!((frames.last(), *found), (Some(&at("refusals", line)), bytes), "{name}");
    }
    assert_eq!(folded_with(&rig, &["--at=refusal"]), folded_with(&rig, &["--at=refusal:1"]));
    let json: serde_json::Value = serde_json::from_str(&rig.report(&["--json"]).stdout).expect("JSON");
    let refusals = json["stacks"][0]["refusals"].as_array().expect("refusals");
    let found: Vec<(&str, u64, &str, u64)> = refusals
        .iter()
        .take(2)
        .map(|refusal| {
            let text = |value: &serde_json::Value| value.as_str().expect("text").to_owned().leak() as &str;
            let bytes = |value: &serde_json::Value| value.as_u64().expect("bytes");
            let held = &refusal["held"][0];
            (
                text(&refusal["site"]),
                bytes(&refusal["size_bytes"]),
                text(&held["site"]),
                bytes(&held["bytes"]),
            )
        })
        .collect();
    let expected = [("early", "first", "refused_early"), ("late", "second", "refused_late")].map(
        |(name, held, function)| {
            (at(function, said[name].0), said[name].1, at("refusals", said[held].0), said[held].1)
        },
    );
    let expected: Vec<(&str, u64, &str, u64)> =
        expected.iter().map(|(a, b, c, d)| (a.as_str(), *b, c.as_str(), *d)).collect();
    assert_eq!(found, expected, "{json:#}");
    // The line that asked first stands first, although the other one asked more often.
    let refused = json["stacks"][0]["refused"].as_array().expect("refused");
    let order: Vec<(&str, u64)> = refused
        .iter()
        .map(|of| (of["site"].as_str().expect("site"), of["requests"].as_u64().expect("count")))
        .collect();
    let lines = [at("refused_early", said["early"].0), at("refused_late", said["late"].0)];
    assert_eq!(order, [(lines[0].as_str(), 2), (lines[1].as_str(), 5)]);
    // The post-mortem of the first one says the same.
    let oom = rig.report(&["--oom"]).stdout;
    assert!(oom.contains(&format!("asked for at {}, called by refusals (", lines[0])), "{oom}");
    assert!(
        oom.contains(&format!("held then, of 100.0 MiB: 100.0 MiB at {}", at("refusals", said["first"].0))),
        "{oom}"
    );
    assert!(
        oom.contains("--at=refusal:1 ") && !oom.contains("PROFILE"),
        "the command can be typed as it is: {oom}"
    );
    let text = rig.report(&[]).stdout;
    assert!(text.contains(&format!("asked for at {}", lines[0])), "{text}");
}

#[test]
fn each_form_shows_refused_requests() {
    let (rig, _, said) = run("refusals");
    let of = |when: &str| {
        let folded = rig.report(&["--stacks=folded", when]).stdout;
        folded
            .lines()
            .map(|line| line.rsplit_once(' ').expect("bytes").1.parse::<u64>().expect("bytes"))
            .sum::<u64>()
    };
    assert_eq!([of("--at=refusal:1"), of("--at=refusal:2")], [said["first"].1, said["second"].1]);
    let mut command = Command::new(artifacts::file("radrm"));
    command.args(["report", "--stacks=folded", "--at=refusal:9"]).arg(rig.profile_path());
    let ended = child::run(command, PATIENCE);
    assert!(ended.stderr.contains("no refused request 9"), "{ended:?}");
    let pprof = rig.report(&["--stacks=pprof", "--at=refusal:1"]).stdout;
    assert!(pprof.contains("refusal_1_space") && !pprof.contains("peak_space"), "{pprof:?}");
    let pprof = rig.report(&["--stacks=pprof"]).stdout;
    assert!(
        ["peak_space", "held_space", "refusal_1_space", "refusal_2_space"]
            .iter()
            .all(|of| pprof.contains(of))
    );
}

#[test]
fn managed_and_pinned_memory_have_lines_beside_the_device_total() {
    let (rig, outcome, said) = run("outside");
    let account = &outcome.profile.processes[0].state.accounts[0];
    let device = folded(&rig);
    assert_eq!(total(&device), account.peak.0);
    assert_eq!(total(&device), said["device"].1, "device memory has no line of the others: {device:?}");
    for (name, root, kind) in
        [("managed", "[managed memory]", Kind::Managed), ("pinned", "[pinned host memory]", Kind::PinnedHost)]
    {
        let stacks = folded_with(&rig, &[&format!("--memory={name}")]);
        let (line, bytes) = said[name];
        let [(frames, found)] = &stacks[..] else { panic!("{name}: {stacks:?}") };
        assert_eq!((frames[0].as_str(), frames.last(), *found), (root, Some(&at("outside", line)), bytes));
        assert_eq!(total(&stacks), account.kinds[kind.index()].at_peak.0);
        assert_eq!(total(&folded_with(&rig, &[&format!("--memory={name}"), "--at=end"])), bytes);
    }
    let text = rig.report(&[]).stdout;
    for title in ["managed memory by line", "pinned host memory by line"] {
        assert!(text.contains(title), "{title}: {text}");
    }
}

#[test]
fn memory_of_graphs_is_at_the_line_that_launched_them() {
    let (rig, outcome, said) = run("graphs");
    let stacks = folded(&rig);
    let (line, bytes) = said["graph"];
    assert!(bytes > 0 && total(&stacks) == outcome.profile.processes[0].state.accounts[0].peak.0);
    let found = stacks.iter().find(|(frames, _)| frames.last() == Some(&at("graphs", line)));
    assert_eq!(found.map(|(_, bytes)| *bytes), Some(bytes), "{stacks:?}");
}

#[test]
fn processes_of_a_job_are_added_up_at_one_moment() {
    let (rig, outcome, _) = run("job");
    let stacks = folded_with(&rig, &["--job"]);
    let held: Vec<u64> = outcome
        .ended
        .stdout
        .lines()
        .filter_map(|line| line.strip_prefix("held ")?.split(' ').nth(1)?.parse().ok())
        .collect();
    assert_eq!(held.len(), 2, "{outcome:?}");
    assert_eq!(total(&stacks), held.iter().sum::<u64>(), "{stacks:?}");
    let text = rig.report(&[]).stdout;
    assert!(text.contains("memory holders by line, 2 processes together at"), "{text}");
}
