//! The instant driver and the pass-through shim do what the benchmarks take for granted.

use std::process::Command;

use radrm_preload_tests::{artifacts, bench::Setup, child, programs, rig::Rig};

const LOOKUPS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/data/cudart_lookups.tsv");

/// Symbols that the recorded look-ups name, in order; `NULL` where there was none.
fn recorded() -> Vec<String> {
    let text = std::fs::read_to_string(LOOKUPS).expect(LOOKUPS);
    text.lines().skip(1).map(|l| l.rsplit('\t').next().unwrap_or("").to_owned()).collect()
}

fn replay(mut command: Command, form: &str) -> Vec<String> {
    command.args([LOOKUPS, form]);
    child::run(command, 60).ok().stdout.lines().map(str::to_owned).collect()
}

#[test]
fn the_instant_driver_answers_all_recorded_look_ups() {
    let program = programs::compile("replay.c", &[]);
    for form in ["v1", "v2"] {
        let said = replay(Rig::instant().bare_command(&program), form);
        let recorded = recorded();
        assert_eq!(said.len(), 2133);
        for (said, symbol) in said.iter().zip(&recorded) {
            let cells: Vec<&str> = said.split(' ').collect();
            let expected = if symbol == "NULL" { "-" } else { symbol };
            assert_eq!(cells[3], expected, "{said}");
            assert_eq!(cells[0] == "0", symbol != "NULL", "{said}");
        }
    }
}

#[test]
fn every_entry_point_of_the_instant_driver_has_an_address_of_its_own() {
    let output = Command::new("nm")
        .args(["-D", "--defined-only"])
        .arg(artifacts::file("libradrm_instant_cuda.so"))
        .output()
        .expect("nm");
    let text = String::from_utf8_lossy(&output.stdout);
    let mut addresses: Vec<&str> =
        text.lines().filter(|l| l.contains(" T cu")).filter_map(|l| l.split(' ').next()).collect();
    let all = addresses.len();
    assert!(all > 650, "{all} exports");
    addresses.sort_unstable();
    addresses.dedup();
    assert_eq!(addresses.len(), all);
}

#[test]
fn the_pass_through_shim_wraps_every_way_into_the_driver() {
    let rig = Rig::instant();
    let shim = artifacts::file("libradrm_passthrough.so");
    // Every wrapped entry point comes back as the wrapper, by cuGetProcAddress.
    let mut command = rig.bare_command(programs::compile("replay.c", &[]));
    command.env("LD_PRELOAD", &shim).args([LOOKUPS, "v2"]);
    let said = child::run(command, 60).ok().stdout;
    let wrapped = said.lines().filter(|l| l.contains(" libradrm_passthrough.so ")).count();
    assert!(wrapped > 400, "{wrapped} of the look-ups are wrapped");
    // Programs run, linked or not.
    for flags in [&[][..], programs::LINKED] {
        let mut command = rig.bare_command(programs::compile("steps.c", flags));
        command.env("LD_PRELOAD", &shim).args([
            "use:0",
            "alloc:a:1m",
            "launch:3",
            "free:a",
            "kernelgraph:g:5",
        ]);
        child::run(command, 60).ok();
    }
}

#[test]
fn the_client_of_the_benchmarks_gives_all_figures_without_a_shim() {
    let rig = Rig::instant();
    for setup in [Setup::Bare, Setup::Passthrough] {
        let mut command = rig.bare_command(programs::compile("bench_client.c", &[]));
        if setup == Setup::Passthrough {
            command.env("LD_PRELOAD", artifacts::file("libradrm_passthrough.so"));
        }
        command.args(["time", "2", "1000", "3", "1", "100"]);
        let said = child::run(command, 60).ok().stdout;
        assert_eq!(said.lines().count(), 8 + 3, "{said}");
        let timed = |batch: &str| batch.split(':').all(|n| n.parse::<f64>().is_ok_and(|n| n > 0.0));
        assert!(said.lines().all(|l| l.split('\t').nth(3).is_some_and(timed)), "{said}");
    }
}
