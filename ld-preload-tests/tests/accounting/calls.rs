//! Random programs of driver calls, with valid and invalid arguments, run with and without the shim: the same results,
//! the same bytes held, and the shim's figures are the emulator's ledger.
//!
//! `RADRM_TEST_CALLS=1000000 cargo nextest run --workspace -E 'test(random_calls)'` makes as many calls, and
//! `RADRM_TEST_SEED` other ones. A failure prints the shortest program that shows it; `ld-preload-tests/data/calls/` keeps
//! those that did.

use std::{fs, path::Path, path::PathBuf, process::Command};

use radrm_preload_tests::{
    child::{self, Ended},
    programs,
    random::Random,
    rig::{PATIENCE, Rig},
};

/// Calls of one program.
const LENGTH: usize = 1250;
/// Calls that make something for others to work on: programs begin with them.
const FILL: [&str; 8] = [
    "stream_create",
    "event_create",
    "module_load",
    "module_function",
    "graph_create",
    "pool_create",
    "library_load",
    "library_kernel",
];
/// Parts of names of calls after which many others fail.
const RARE: [&str; 10] = [
    "destroy",
    "reset",
    "unload",
    "pop",
    "primary_release",
    "capture_begin",
    "capture_into",
    "context_push",
    "context_create",
    "kernel_as_function",
];

/// Calls that end contexts, after which many others fail too.
const ENDS: [&str; 4] = ["context_destroy", "primary_release", "primary_reset", "green_destroy"];

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().expect(variable))
}

/// A program from a seed.
fn random_program(seed: u64, names: &[String]) -> Vec<String> {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut choice: Vec<&String> = Vec::new();
    for name in names {
        let weight = if RARE.iter().any(|rare| name.contains(rare)) { 1 } else { 6 };
        choice.extend(std::iter::repeat_n(name, weight));
    }
    let fill = FILL.iter().flat_map(|name| (0..4).map(move |slot| format!("{name} {slot} {slot} {slot} 0")));
    let mut program: Vec<String> = fill.collect();
    // Most programs keep their contexts.
    let keeps = !seed.is_multiple_of(3);
    choice.retain(|name| !(keeps && ENDS.contains(&name.as_str())));
    // Some calls come often in one program and seldom in another.
    let often: Vec<&String> = (0..20).map(|_| random.one_of(&choice)).collect();
    while program.len() < LENGTH {
        let name = match random.below(20) {
            0 => {
                program.push(format!("context_current {} 0 0 0", random.below(8)));
                continue;
            }
            1..6 => random.one_of(&often),
            _ => random.one_of(&choice),
        };
        let [a, b, c] =
            [0; 3].map(|_| if random.below(10) < 7 { random.below(8) } else { random.below(4096) });
        program.push(format!("{name} {a} {b} {c} {}", u8::from(random.below(50) == 0)));
    }
    program
}

/// A card on which large requests fail.
fn rig() -> Rig {
    Rig::emulated("2xA100-40GB")
}

fn file(rig: &Rig, program: &[String]) -> PathBuf {
    let file = rig.path().join("program");
    fs::write(&file, program.join("\n")).expect("program");
    file
}

/// Figures of the driver after a run on a rig of its own.
fn held(rig: &Rig) -> Vec<String> {
    let processes = rig.ledgers();
    let gpus = processes.iter().flat_map(|process| &process.gpus);
    gpus.map(|g| {
        let (held, asked) = (g.held_peak, g.total_requested_peak);
        format!(
            "GPU {}: peak {held} held, {asked} requested; {} failed, {} launches, {} contexts",
            g.gpu, g.failed, g.launches, g.contexts
        )
    })
    .collect()
}

fn lines(ended: &Ended) -> Vec<String> {
    let mut lines: Vec<String> = ended.stdout.lines().map(str::to_owned).collect();
    lines.push(format!("{:?} {}", ended.status, ended.stderr));
    lines
}

/// Difference between the two runs of a program: the number of the first call that differs, and both answers.
fn difference(client: &Path, program: &[String]) -> Option<(usize, String)> {
    let run = |rig: &Rig, mut command: Command| {
        child::run(
            {
                command.arg(file(rig, program));
                command
            },
            PATIENCE,
        )
    };
    let (bare, shimmed) = (rig(), rig());
    let expected = run(&bare, bare.bare_command(client));
    let outcome = shimmed.outcome(run(&shimmed, shimmed.launched(client)));
    let (expected, found) = (lines(&expected), lines(&outcome.ended));
    if let Some(at) = (0..expected.len().max(found.len())).find(|at| expected.get(*at) != found.get(*at)) {
        return Some((at, format!("{:?}\nwith the shim {:?}", expected.get(at), found.get(at))));
    }
    let (expected, found) = (held(&bare), held(&shimmed));
    if expected != found {
        return Some((program.len(), format!("{expected:?}\nwith the shim {found:?}")));
    }
    let (_, wrong) = outcome.compare();
    (!wrong.is_empty()).then(|| (program.len(), wrong.join("\n")))
}

/// The shortest program that differs: without what can be left out, in ever smaller pieces.
fn shrink(client: &Path, mut program: Vec<String>, mut found: (usize, String)) -> (Vec<String>, String) {
    program.truncate(found.0 + 1);
    let mut piece = program.len();
    while piece > 0 {
        let mut at = 0;
        while at < program.len() {
            let mut shorter = program.clone();
            shorter.drain(at..(at + piece).min(program.len()));
            match difference(client, &shorter) {
                Some(still) => (program, found) = (shorter, still),
                None => at += piece,
            }
        }
        piece /= 2;
    }
    (program, found.1)
}

#[test]
fn random_calls_answer_the_same_with_and_without_the_shim() {
    let client = programs::compile("calls.c", &[]);
    let names = child::run(
        {
            let mut list = Command::new(&client);
            list.arg("names");
            list
        },
        PATIENCE,
    )
    .ok()
    .stdout;
    let names: Vec<String> = names.lines().map(str::to_owned).collect();
    assert!(names.len() > 100, "{names:?}");
    let first = number("RADRM_TEST_SEED", 1);
    for seed in first..first + number("RADRM_TEST_CALLS", 50_000).div_ceil(LENGTH as u64) {
        let program = random_program(seed, &names);
        if let Some(found) = difference(&client, &program) {
            let (program, what) = shrink(&client, program, found);
            panic!("seed {seed}: {what}\nby the program\n{}", program.join("\n"));
        }
    }
}

#[test]
fn calls_that_once_differed_answer_the_same_with_and_without_the_shim() {
    let client = programs::compile("calls.c", &[]);
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/data/calls");
    for entry in fs::read_dir(folder).expect(folder).flatten() {
        let text = fs::read_to_string(entry.path()).expect("program");
        let program: Vec<String> = text.lines().map(str::to_owned).collect();
        assert_eq!(difference(&client, &program), None, "{}", entry.path().display());
    }
}
