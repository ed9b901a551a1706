//! `--find-batch`, `--fits` and the plain run say the same of a program.

use std::path::Path;
use std::process::Command;

use radrm_preload_tests::artifacts;
use radrm_preload_tests::child::{self, Ended};
use serde_json::Value;

use super::harness::{PATIENCE, plain_dry_run, python};

/// Skips each batch that runs out of memory: with 64 none of its steps is ever made on a T4.
const SKIPS: &str = "import argparse, torch
p = argparse.ArgumentParser()
p.add_argument('--bs', type=int, default=8)
a = p.parse_args()
net = torch.nn.Linear(4096, 4096).cuda()
opt = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(2):
    try:
        x = torch.empty(a.bs << 18, 256, device='cuda')
        net(torch.empty(8, 4096, device='cuda')).sum().backward()
        opt.step()
    except torch.OutOfMemoryError:
        print('skipped')
    x = None
    torch.cuda.empty_cache()
";

/// A process may only take a half of the card.
const LIMITED: &str = "import torch
torch.cuda.set_per_process_memory_fraction(0.5)
try:
    torch.empty(10 << 30, dtype=torch.uint8, device='cuda')
except torch.OutOfMemoryError:
    pass
torch.empty(1 << 20, device='cuda')
";

fn ask(python: &Path, options: &[&str], program: &[&str]) -> Ended {
    let place = tempfile::tempdir().unwrap();
    let mut command = Command::new(artifacts::file("radrm-run"));
    command
        .args(["--dry-run", "--no-profile", "--no-dataset"])
        .args(options)
        .arg("--")
        .arg(python)
        .args(program);
    command.env("TMPDIR", place.path());
    child::run(command, 2 * PATIENCE)
}

fn on_a_card(python: &Path, card: &str, program: &[&str]) -> String {
    let ended = ask(python, &["--quiet", "--json=-", "--fits", card], program);
    let report: Value =
        serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"));
    report["fits"][0]["verdict"].as_str().expect("verdict").to_owned()
}

/// Verdict on a card in the report of a run on it; nothing where it ran out of memory.
fn listed(python: &Path, card: &str, program: &[&str]) -> Option<String> {
    let run = plain_dry_run(python, &["--emulate", card], program).ok();
    let all = run.report["dry_run"]["fits"].as_array().cloned().unwrap_or_default();
    Some(all.iter().find(|fit| fit["card"] == card)?["verdict"].as_str()?.to_owned())
}

#[test]
fn a_caught_out_of_memory_is_no_fit() {
    let Some(python) = python() else { return };
    let ended = ask(&python, &["--emulate", "T4", "--find-batch", "--bs=8..64"], &["-c", SKIPS]).ok();
    assert!(
        ended.stderr.contains(": tight (it may need ") && ended.stderr.contains("of headroom"),
        "{}",
        ended.stderr
    );
    let ended = ask(&python, &["--emulate", "T4", "--find-batch", "--bs=64..64"], &["-c", SKIPS]);
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    assert!(ended.stderr.contains("--bs 64: does not fit (out of memory"), "{}", ended.stderr);
    for (program, verdict, list) in [
        (&["-c", SKIPS, "--bs", "64"][..], "no", None),
        (&["-c", SKIPS, "--bs", "8"], "yes", Some("yes")),
        (&["-c", LIMITED], "no", None),
    ] {
        assert_eq!(on_a_card(&python, "T4", program), verdict, "{program:?}");
        assert_eq!(listed(&python, "T4", program).as_deref(), list, "{program:?}");
    }
}

#[test]
fn a_refusal_by_the_programs_own_limit_is_named_with_its_request() {
    let Some(python) = python() else { return };
    let ended = ask(&python, &["--quiet", "--json=-", "--fits", "T4"], &["-c", LIMITED]);
    let report: Value = serde_json::from_str(&ended.stdout).expect("a report");
    let why = report["fits"][0]["why"].as_str().unwrap_or_default();
    assert!(why.contains("the framework's own limit refused 10.00 GiB (it is 7.5 GiB)"), "{report:#}");
}

#[test]
fn a_program_that_was_stopped_fits_in_part() {
    let Some(python) = python() else { return };
    let program = SKIPS.replace("range(2)", "range(5)");
    let words = ["-c", program.as_str()];
    assert_eq!(on_a_card(&python, "T4", &words), "partly");
    let ended = ask(&python, &["--emulate", "T4", "--find-batch", "--bs=8..9"], &words).ok();
    assert!(ended.stderr.contains("--bs 8: fits for 3 steps, evaluation not reached"), "{}", ended.stderr);
}

/// Two epochs of training, each followed by an evaluation with a batch of so many GiB.
const EVALUATES: &str = "import sys, torch
from torch.utils.data import DataLoader
model = torch.nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
data = [torch.zeros(64)] * 64
for epoch in range(4):
    model.train()
    for x in DataLoader(data, 4):
        model(x.cuda()).sum().backward()
        optimizer.step()
    model.eval()
    for x in DataLoader(data, 32):
        torch.empty(int(sys.argv[1]) << 30, dtype=torch.uint8, device='cuda')
    print('evaluated', epoch, flush=True)
";

#[test]
fn an_evaluation_is_part_of_the_verdict() {
    let Some(python) = python() else { return };
    assert_eq!(on_a_card(&python, "T4", &["-c", EVALUATES, "20"]), "no");
    let ended = ask(&python, &["--quiet", "--json=-", "--fits", "T4"], &["-c", EVALUATES, "2"]).ok();
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(report["fits"][0]["verdict"], "yes", "{report:#}");
    assert_eq!(report["dry_run"]["steps"], 4, "the run on the card, which ends after its evaluation");
    let quiet = ask(&python, &["--quiet", "--fits", "T4"], &["-c", EVALUATES, "2"]).ok();
    assert!(quiet.stderr.contains("T4") && quiet.stderr.contains("yes"), "{}", quiet.stderr);
}

#[test]
fn an_answer_is_written_as_json_too() {
    let shell = Path::new("/bin/sh");
    let ended = ask(
        shell,
        &["--quiet", "--json=-", "--find-batch", "n=3..4"],
        &["-c", "echo the reason; exit 3", "n=7"],
    );
    assert_eq!(ended.status.code(), Some(1));
    let report: Value =
        serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"));
    let found = &report["find_batch"];
    assert!(found["largest"].is_null() && found["trials"][0]["value"] == 3, "{found:#}");
    assert!(found["trials"][0]["verdict"].as_str().unwrap().contains("exit code 3"), "{found:#}");
    assert!(ended.stderr.contains("| the reason"), "what it wrote to standard output: {}", ended.stderr);
}

#[test]
fn a_program_that_is_not_there_gets_no_verdict() {
    for options in [&["--fits", "T4"][..], &["--find-batch", "--bs=1..2"]] {
        let ended = ask(Path::new("./nothere"), options, &[]);
        assert_eq!(ended.status.code(), Some(127), "{}", ended.stderr);
        assert!(ended.stderr.contains("there is no such program"), "{}", ended.stderr);
    }
}

#[test]
fn a_failed_run_shows_what_the_program_said() {
    let Some(python) = python() else { return };
    let words = ["-c", "raise ValueError('no such data set')"];
    let ended = ask(&python, &["--find-batch", "--bs=8..9"], &words);
    assert_eq!(ended.status.code(), Some(1));
    assert!(ended.stderr.contains("| ValueError: no such data set"), "{}", ended.stderr);
}
