//! Call stacks of requests for memory: every byte at the line that asked for it, and no harm to the program.

use std::{collections::BTreeMap, path::Path, process::Command};

use radrm_preload_tests::{
    artifacts, child,
    figures::Outcome,
    programs,
    rig::{PATIENCE, Rig},
};

/// Runs a program of known lines and leaves the profile in the rig.
#[track_caller]
pub fn recorded(rig: &Rig, program: &Path, arguments: &[&str]) -> Outcome {
    recorded_from(rig, "--stacks", program, arguments)
}

/// The same with an option that says which stacks are recorded.
#[track_caller]
fn recorded_from(rig: &Rig, option: &str, program: &Path, arguments: &[&str]) -> Outcome {
    let mut command = rig.launcher();
    command.arg(option).arg("--").arg(program).args(arguments);
    rig.outcome(child::run(command, PATIENCE).ok())
}

/// The folded stacks at the peak.
#[track_caller]
pub fn folded(rig: &Rig) -> Vec<(Vec<String>, u64)> {
    folded_with(rig, &[])
}

/// The folded stacks with further options.
#[track_caller]
pub fn folded_with(rig: &Rig, options: &[&str]) -> Vec<(Vec<String>, u64)> {
    let text = rig.report(&[&["--stacks=folded"], options].concat()).stdout;
    let line = |line: &str| {
        let (frames, bytes) = line.rsplit_once(' ').expect("frames and bytes");
        (frames.split(';').map(str::to_owned).collect(), bytes.parse().expect("bytes"))
    };
    text.lines().map(line).collect()
}

pub fn total(stacks: &[(Vec<String>, u64)]) -> u64 {
    stacks.iter().map(|(_, bytes)| bytes).sum()
}

#[test]
fn every_byte_at_the_peak_is_at_its_line() {
    let rig = Rig::emulated("H100-80GB");
    let outcome = recorded(&rig, &programs::compile("sites.c", &[]), &["peak"]);
    let mut expected = BTreeMap::<u64, u64>::new();
    for line in outcome.ended.stdout.lines() {
        let (line, bytes) = line.split_once(' ').expect("line and bytes");
        *expected.entry(line.parse().expect("line")).or_default() += bytes.parse::<u64>().expect("bytes");
    }
    let stacks = folded(&rig);
    let account = &outcome.profile.processes[0].state.accounts[0];
    assert_eq!(total(&stacks), account.peak.0, "{stacks:?}");
    let mut found = BTreeMap::<u64, u64>::new();
    let mut pools = 0;
    for (frames, bytes) in &stacks {
        // What the pool holds beyond the block that it handed out was asked for in no line.
        if frames[0].starts_with("[pools") {
            pools += bytes;
            continue;
        }
        assert!(frames[0].starts_with("main (sites.c:"), "{frames:?}");
        let last = frames.last().and_then(|frame| frame.strip_suffix(')')).expect("a line");
        let (_, line) = last.rsplit_once("sites.c:").expect("a line of the program");
        *found.entry(line.parse().expect("line")).or_default() += bytes;
    }
    assert_eq!(found.values().sum::<u64>() + pools, account.peak.0);
    assert_eq!(found, expected, "{stacks:?}");
    let deepest = stacks.iter().map(|(frames, _)| frames.len()).max();
    assert_eq!(deepest, Some(2 + 41), "recursion keeps its frames: {stacks:?}");
}

#[test]
fn a_damaged_stack_ends_early_and_changes_no_figure() {
    let rig = Rig::emulated("H100-80GB");
    let program = programs::compile("sites.c", &["-fno-omit-frame-pointer"]);
    let outcome = recorded(&rig, &program, &["hard"]);
    assert_eq!(outcome.profile.processes.len(), 2, "the forked child has its own record");
    for process in &outcome.profile.processes {
        let ledger = outcome.ledgers.iter().find(|ledger| ledger.pid == process.identity.pid);
        let ledger = ledger.expect("the emulator's ledger");
        let stacks = process.stacks.as_ref().expect("call stacks");
        let account = &process.state.accounts[0];
        let held: u64 = stacks.sites.iter().map(|site| site.held.0).sum();
        assert_eq!(held, account.now.0);
        assert_eq!(account.peak.0, ledger.gpus[0].total_requested_peak, "{process:?}");
        let at_peak: u64 = stacks.sites.iter().map(|site| site.at_peak.0).sum();
        assert_eq!((at_peak, stacks.unordered), (account.peak.0, 0));
        // A thread whose stack cannot be read at the moment counts at "other stacks": how many depends on the machine.
        assert_eq!(stacks.full, 0);
    }
}

#[test]
fn refused_requests_are_at_their_line() {
    let rig = Rig::emulated("H100-80GB");
    recorded(&rig, &programs::compile("sites.c", &[]), &["refused"]);
    let text = rig.report(&[]).stdout;
    let line = text.lines().find(|line| line.contains("refused at refused (")).expect("refused requests");
    assert!(line.contains("3 requests were refused at refused (sites.c:"), "{line}");
    let oom = rig.report(&["--oom"]).stdout;
    assert!(oom.contains("3 requests were refused at refused (sites.c:"), "{oom}");
}

#[test]
fn a_library_without_symbols_is_unwound_and_named_by_its_file() {
    let rig = Rig::emulated("H100-80GB");
    recorded(&rig, &programs::compile("sites.c", &["-s"]), &["peak"]);
    let stacks = folded(&rig);
    let deepest = stacks.iter().map(|(frames, _)| frames.len()).max();
    assert!(deepest >= Some(2 + 41), "{stacks:?}");
    assert!(stacks.iter().flat_map(|(frames, _)| frames).all(|frame| frame.starts_with('[')), "{stacks:?}");
}

#[test]
fn other_tools_read_the_stacks() {
    let rig = Rig::emulated("H100-80GB");
    let outcome = recorded(&rig, &programs::compile("sites.c", &[]), &["peak"]);
    let peak = outcome.profile.processes[0].state.accounts[0].peak.0;
    let json: serde_json::Value = serde_json::from_str(&rig.report(&["--json"]).stdout).expect("JSON");
    assert_eq!(json["stacks"][0]["peak_bytes"], peak);
    let sites = json["stacks"][0]["sites"].as_array().expect("sites");
    let sum: u64 = sites.iter().map(|site| site["peak_bytes"].as_u64().expect("bytes")).sum();
    assert_eq!(sum, peak);
    assert!(sites[0]["site"].as_str().expect("site").starts_with("weights (sites.c:"), "{sites:?}");
}

#[test]
fn blocks_below_the_size_asked_for_are_added_up() {
    let rig = Rig::emulated("H100-80GB");
    let program = programs::compile("sites.c", &[]);
    let outcome = recorded_from(&rig, "--stacks=8MiB", &program, &["peak"]);
    let stacks = folded(&rig);
    assert_eq!(total(&stacks), outcome.profile.processes[0].state.accounts[0].peak.0, "{stacks:?}");
    let other: u64 =
        stacks.iter().filter(|(frames, _)| frames[0] == "[other stacks]").map(|(_, bytes)| bytes).sum();
    let small = outcome.ended.stdout.lines().filter_map(|line| line.split_once(' ')?.1.parse::<u64>().ok());
    assert_eq!(other, small.filter(|bytes| *bytes < 8 << 20).sum::<u64>(), "{stacks:?}");
    assert!(
        other > 0 && stacks.iter().any(|(frames, _)| frames[0].starts_with("main (sites.c:")),
        "{stacks:?}"
    );
}

#[test]
fn moments_in_between_hold_what_their_accounts_say() {
    let rig = Rig::emulated("H100-80GB");
    let outcome = recorded(&rig, &programs::compile("sites.c", &[]), &["peak"]);
    let process = &outcome.profile.processes[0];
    let stacks = process.stacks.as_ref().expect("call stacks");
    let moments = &process.stack_moments;
    let peak = moments.iter().rfind(|moment| moment.is_peak).expect("the moment of the peak");
    assert_eq!(peak.total, process.state.accounts[0].peak);
    // Each record has what changed since the one before: together they are what is held at the end.
    let mut held = BTreeMap::<u64, u64>::new();
    held.extend(moments.iter().flat_map(|moment| &moment.changed).map(|(site, bytes)| (*site, bytes.0)));
    for site in stacks.sites.iter().filter(|site| site.is_in_total()) {
        assert_eq!(held.get(&site.id()).copied().unwrap_or(0), site.held.0, "{site:?}");
    }
}

#[test]
fn a_comparison_names_the_line_that_grew() {
    let before = Rig::emulated("H100-80GB");
    recorded(&before, &programs::compile("sites.c", &[]), &["refused"]);
    let after = Rig::emulated("H100-80GB");
    let outcome = recorded(&after, &programs::compile("sites.c", &[]), &["peak"]);
    let mut command = Command::new(artifacts::file("radrm"));
    command.args(["compare", "--json"]).arg(before.profile_path()).arg(after.profile_path());
    let json: serde_json::Value =
        serde_json::from_str(&child::run(command, PATIENCE).ok().stdout).expect("JSON");
    let lines = json["lines"].as_array().expect("lines");
    let grown: u64 = lines.iter().map(|line| line["after_bytes"].as_u64().expect("bytes")).sum();
    let weights =
        lines.iter().find(|line| line["site"].as_str().is_some_and(|site| site.starts_with("weights (")));
    assert_eq!(weights.expect("the line of the weights")["before_bytes"], 0, "{lines:?}");
    assert!(grown <= outcome.profile.processes[0].state.accounts[0].peak.0, "{lines:?}");
    let mut command = Command::new(artifacts::file("radrm"));
    command.arg("compare").arg(before.profile_path()).arg(after.profile_path());
    let text = child::run(command, PATIENCE).ok().stdout;
    assert!(
        text.contains("lines that hold more or less at the peak") && text.contains("weights (sites.c:"),
        "{text}"
    );
}

#[test]
fn without_the_option_nothing_is_recorded() {
    let rig = Rig::emulated("H100-80GB");
    let outcome = rig.run(programs::compile("sites.c", &[]), &["peak"]);
    assert_eq!(outcome.profile.processes[0].stacks, None);
    let mut command = Command::new(artifacts::file("radrm"));
    command.args(["report", "--stacks=folded"]).arg(rig.profile_path());
    let ended = child::run(command, PATIENCE);
    assert!(ended.stderr.contains("radrm-run --stacks"), "{ended:?}");
}

/// Addition of `--stacks=tensors`: a folder of Python modules, which a program of another kind never loads.
#[test]
fn a_program_without_pytorch_is_reported_with_the_drivers_allocations_only() {
    let rig = Rig::emulated("H100-80GB");
    let outcome = recorded_from(&rig, "--stacks=tensors", &programs::compile("sites.c", &[]), &["peak"]);
    let process = &outcome.profile.processes[0];
    assert_eq!(total(&folded(&rig)), process.state.accounts[0].peak.0, "the driver's allocations are there");
    let tensors = process.tensors.as_ref().expect("what is said of tensors");
    assert_eq!(
        (tensors.missing.as_deref(), tensors.gpus.len()),
        (Some("it used neither PyTorch nor JAX"), 0)
    );
    let text = rig.report(&[]).stdout;
    assert!(text.contains("tensors: driver allocations only: it used neither PyTorch nor JAX"), "{text}");
}

/// A `sitecustomize` of the program's own runs, and the program sees its own search path behind one more folder.
#[test]
fn a_python_program_keeps_its_own_sitecustomize_beside_the_recorder() {
    let rig = Rig::emulated("H100-80GB");
    let folder = tempfile::tempdir().expect("folder");
    std::fs::write(folder.path().join("sitecustomize.py"), "import builtins\nbuiltins.own = 'own'\n")
        .expect("written");
    let code = "import os; print(own, os.environ['PYTHONPATH'].split(':')[-1])";
    let mut command = rig.launcher();
    command.arg("--stacks=tensors").args(["--", "python3", "-c", code]).env("PYTHONPATH", folder.path());
    let ended = child::run(command, PATIENCE).ok();
    assert_eq!(ended.stdout, format!("own {}\n", folder.path().display()));
}
