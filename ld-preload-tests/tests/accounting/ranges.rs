//! Ranges and marks that a program names: their memory is exact, and none of them harms the program.

use std::{path::PathBuf, process::Command};

use radrm_preload_tests::{
    artifacts, child,
    figures::Outcome,
    programs, python,
    rig::{PATIENCE, Rig},
};
use radrm_profile::model::{Process, RangeMemory, RangeName, Ranges};

const MIB: u64 = 1 << 20;

fn program() -> PathBuf {
    programs::compile("ranges.c", &["-Wno-unused-variable"])
}

#[track_caller]
fn ranges(process: &Process) -> &Ranges {
    process.ranges.as_ref().expect("ranges")
}

#[track_caller]
fn find<'r>(ranges: &'r Ranges, name: &str) -> &'r RangeName {
    ranges.names.iter().find(|known| known.name == name).unwrap_or_else(|| panic!("no {name}: {ranges:#?}"))
}

/// Peak inside, at begin and at end of the range with the largest peak, MiB.
#[track_caller]
fn memory(ranges: &Ranges, name: &str) -> [u64; 3] {
    let [RangeMemory { peak, entry_at_peak, exit_at_peak, .. }] = find(ranges, name).gpus[..] else {
        panic!("{name} of {ranges:#?}")
    };
    [peak, entry_at_peak, exit_at_peak].map(|bytes| bytes.0 / MIB)
}

/// Runs the program and hands its ranges over.
#[track_caller]
fn recorded(rig: &Rig, arguments: &[&str]) -> Outcome {
    rig.run(program(), arguments).ok()
}

#[test]
fn a_range_has_the_memory_at_its_ends_and_the_peak_inside() {
    let rig = Rig::emulated("H100-80GB");
    let outcome = recorded(&rig, &["nested"]);
    let ranges = ranges(outcome.process());
    assert_eq!(memory(ranges, "outer"), [110, 10, 30]);
    assert_eq!(memory(ranges, "inner"), [60, 10, 10]);
    assert_eq!(memory(ranges, "late"), [30, 30, 30]);
    let mark = find(ranges, "half way");
    assert_eq!((mark.ranges, mark.marks, mark.gpus.len()), (0, 1, 0));
    assert_eq!((ranges.open.len(), ranges.unbalanced, ranges.not_kept, ranges.unlisted), (0, 0, 0, 0));
    let events = &outcome.profile.range_events;
    assert_eq!(events.len(), 4, "{events:#?}");
    let mark = events.iter().find(|event| event.is_mark).expect("the mark");
    assert_eq!((mark.entry.0 / MIB, mark.depth), (30, 1));

    let text = rig.report(&[]).stdout;
    let line = text.lines().find(|line| line.contains("outer")).expect("the range");
    assert!(line.contains("110.0 MiB") && line.contains("10.0 MiB") && line.contains("30.0 MiB"), "{line}");
    let json: serde_json::Value = serde_json::from_str(&rig.report(&["--json"]).stdout).expect("JSON");
    let names = json["ranges"]["names"].as_array().expect("names");
    let outer = names.iter().find(|name| name["name"] == "outer").expect("the range");
    assert_eq!(outer["gpus"][0]["peak_bytes"], 110 * MIB);
    assert_eq!(outer["gpus"][0]["mean_change_bytes"], 20 * MIB);
    assert_eq!(outer["gpus"][0]["peak_is_exact"], true);
}

#[test]
fn a_range_may_be_opened_before_the_driver() {
    let rig = Rig::emulated("H100-80GB");
    let outcome = recorded(&rig, &["before"]);
    let ranges = ranges(outcome.process());
    assert_eq!(memory(ranges, "load"), [7, 0, 0]);
    assert_eq!(memory(ranges, "first"), [5, 0, 0]);
    assert_eq!((ranges.early, ranges.open.len()), (1, 0), "{ranges:#?}");
    assert!(ranges.names.iter().all(|name| name.name != "over"));
}

#[test]
fn threads_have_nestings_of_their_own_over_one_memory() {
    let rig = Rig::emulated("H100-80GB");
    let outcome = recorded(&rig, &["threads"]);
    let ranges = ranges(outcome.process());
    // All blocks are held at once: 1 + 2 + 3 + 4 MiB, inside every range.
    assert_eq!(memory(ranges, "together")[0], 10);
    assert_eq!(find(ranges, "together").ranges, 4);
    for mib in 1..=4 {
        assert_eq!(memory(ranges, &format!("thread of {mib}")), [10, 0, 0]);
    }
}

#[test]
fn domains_nest_among_themselves() {
    let rig = Rig::emulated("H100-80GB");
    let outcome = recorded(&rig, &["domains"]);
    let ranges = ranges(outcome.process());
    assert_eq!(memory(ranges, "default"), [40, 0, 0]);
    assert_eq!(memory(ranges, "read [io, disk]"), [40, 40, 0]);
    assert_eq!(find(ranges, "über").ranges, 1);
    assert_eq!((ranges.open.len(), ranges.unbalanced), (0, 0));
}

#[test]
fn a_million_ranges_are_counted_and_take_no_more_memory() {
    let rig = Rig::emulated("H100-80GB");
    let outcome = recorded(&rig, &["many", "1000000"]);
    let ranges = ranges(outcome.process());
    let one = find(ranges, "one of many");
    assert_eq!((one.ranges, one.gpus.len()), (1_000_000, 0), "no memory was ever allocated");
    let listed = outcome.profile.range_events.len() as u64;
    assert_eq!(listed + ranges.unlisted, 1_000_001);
    assert!(listed < 10_000, "{listed}");
    let text = rig.report(&[]).stdout;
    assert!(text.contains("not kept one by one"), "{text}");
}

#[test]
fn names_beyond_the_table_are_counted_as_other() {
    let rig = Rig::emulated("H100-80GB");
    let outcome = recorded(&rig, &["names", "3000"]);
    let ranges = ranges(outcome.process());
    let other = find(ranges, "(other)");
    assert_eq!((other.ranges, ranges.other), (3000 - 1023, 3000 - 1023));
    assert_eq!(ranges.names.iter().map(|name| name.ranges).sum::<u64>(), 3000);
}

#[test]
fn steps_are_one_phase_with_a_rate() {
    let rig = Rig::emulated("H100-80GB");
    let outcome = recorded(&rig, &["steps", "40"]);
    let step = find(ranges(outcome.process()), "step");
    assert_eq!(step.ranges, 40);
    let rate = step.steps_per_second().expect("a rate");
    assert!(rate > 1.0 && rate < 500.0, "{rate}");
    let numbers: Vec<_> = outcome.profile.range_events.iter().filter_map(|event| event.step).collect();
    assert!(numbers.contains(&0) && numbers.is_sorted(), "{numbers:?}");
    let text = rig.report(&[]).stdout;
    assert!(text.contains("40 steps (step): "), "{text}");
}

#[test]
fn ranges_that_any_thread_may_end_have_their_memory() {
    let rig = Rig::emulated("H100-80GB");
    let outcome = recorded(&rig, &["apart"]);
    let ranges = ranges(outcome.process());
    assert_eq!(memory(ranges, "first request"), [64, 0, 0]);
    let request = find(ranges, "request");
    // 256 can be open at a time, and of 64 of them the peak is kept.
    assert_eq!((request.ranges, ranges.not_kept), (255, 300 - 256));
    assert_eq!(request.without_peak, 256 - 64);
    assert_eq!(ranges.open.len(), 0);
    let text = rig.report(&[]).stdout;
    assert!(text.contains(">= 64.0 MiB"), "{text}");
}

#[test]
fn deep_nesting_loses_ranges_and_no_balance() {
    let rig = Rig::emulated("H100-80GB");
    let outcome = recorded(&rig, &["deep", "1000"]);
    let ranges = ranges(outcome.process());
    assert_eq!((find(ranges, "deep").ranges, ranges.not_kept), (52, 1000 - 52));
    assert_eq!((find(ranges, "after").ranges, ranges.unbalanced), (1, 0));
}

#[test]
fn an_end_without_a_begin_is_counted() {
    let rig = Rig::emulated("H100-80GB");
    let outcome = recorded(&rig, &["unbalanced"]);
    let ranges = ranges(outcome.process());
    assert_eq!((find(ranges, "kept").ranges, ranges.unbalanced), (1, 2));
}

#[test]
fn odd_names_reach_no_terminal_and_no_page() {
    let rig = Rig::emulated("H100-80GB");
    let outcome = recorded(&rig, &["odd"]);
    let ranges = ranges(outcome.process());
    let long = ranges.names.iter().find(|name| name.name_cut).expect("the long name");
    assert!((300..400).contains(&long.name.len()), "{}", long.name.len());
    assert_eq!(find(ranges, "bad \u{fffd}\u{fffd} utf-8").marks, 1);
    assert_eq!((find(ranges, "").marks, find(ranges, "(no name)").marks), (1, 1));
    let page = rig.path().join("page.html");
    rig.report(&[&format!("--html={}", page.display())]);
    let page = std::fs::read_to_string(page).expect("the page");
    assert!(!page.contains("<script>alert"), "the name is markup");
    for text in [rig.report(&[]).stdout, page] {
        assert!(!text.contains('\u{1b}') && !text.contains('\u{7}') && !text.contains('\u{202e}'));
    }
}

#[test]
fn a_forked_child_leaves_its_parents_ranges_alone() {
    let rig = Rig::emulated("H100-80GB");
    let outcome = recorded(&rig, &["fork"]);
    let ranges = ranges(outcome.process());
    assert_eq!(memory(ranges, "around"), [8, 0, 8]);
    assert_eq!(find(ranges, "of the parent").ranges, 1);
    assert_eq!((ranges.unbalanced, ranges.open.len()), (0, 0));
    assert!(ranges.names.iter().all(|name| name.name != "in the child"));
}

#[test]
fn a_killed_program_leaves_the_ranges_it_was_in() {
    let rig = Rig::emulated("H100-80GB");
    let outcome = rig.run(program(), &["killed"]);
    let ranges = ranges(outcome.process());
    let open: Vec<(&str, Option<u64>)> = ranges
        .open
        .iter()
        .map(|range| {
            let name = ranges.names.iter().find(|name| name.id == range.name).expect("its name");
            (name.name.as_str(), range.step)
        })
        .collect();
    assert_eq!(open, [("step", Some(7)), ("backward", None)]);
    let text = rig.report(&[]).stdout;
    assert!(text.contains("not ended: step 7 · ") && text.contains("not ended: backward · "), "{text}");
}

#[test]
fn another_tools_library_stays() {
    let rig = Rig::emulated("H100-80GB");
    let mut command = rig.launched(program());
    command.args(["many", "5"]).env("NVTX_INJECTION64_PATH", "/nonexistent/tool.so");
    let outcome = rig.outcome(child::run(command, PATIENCE)).ok();
    assert_eq!(outcome.process().ranges, None);
}

#[test]
fn a_program_without_ranges_has_no_tables_for_them() {
    let rig = Rig::emulated("H100-80GB");
    let outcome = rig.run(programs::compile("keeps.c", &[]), &["1"]);
    assert!(outcome.profile.processes.iter().all(|process| process.ranges.is_none()));
}

/// Program that prints what the module reports of itself, and has phases around what the driver is asked for
/// through ctypes.
const MODULE: &str = r#"
import asyncio, ctypes, sys, threading, time
import radrm

print(radrm.is_recording(), radrm.peak(), radrm.stats())
cuda = ctypes.CDLL("libcuda.so.1")
MIB = 1 << 20

def held(mib):
    block = ctypes.c_uint64()
    assert cuda.cuMemAlloc_v2(ctypes.byref(block), ctypes.c_size_t(mib * MIB)) == 0
    return block

@radrm.phase("train_step")
def step(mib):
    assert cuda.cuMemFree_v2(held(mib)) == 0

@radrm.phase
def named_by_itself():
    return 3

@radrm.phase("waits")
async def waits():
    await asyncio.sleep(0)

with radrm.phase("load"):
    context = ctypes.c_void_p()
    assert cuda.cuInit(0) == 0
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert cuda.cuCtxSetCurrent(context) == 0
    kept = held(16)
for _ in range(3):
    step(48)
assert named_by_itself() == 3 and named_by_itself.__name__ == "named_by_itself"
try:
    with radrm.phase("fails"):
        raise KeyError
except KeyError:
    pass
async def beside(name, seconds):
    async with radrm.phase(name):
        await asyncio.sleep(seconds)
async def both():
    await asyncio.gather(waits(), waits(), beside("short", 0.05), beside("long", 0.2))
asyncio.run(both())
@radrm.phase("yields")
def yields():
    time.sleep(0.02)
    return (yield 5)
assert list(yields()) == [5]
class Shell:
    def register_magic_function(self, function, magic_kind, magic_name):
        assert (magic_kind, magic_name) == ("cell", "radrm")
        self.magic = function
    def run_cell(self, cell):
        exec(cell)
shell = Shell()
radrm.load_ipython_extension(shell)
shell.magic(" a cell ", "x = 1")
shell.magic("", "x = 2")
radrm.mark("half\x00way\ud800")
of = radrm.stats()
print(radrm.peak(), radrm.peak(0), radrm.peak(7), of and (of[0]["held_bytes"], of[0]["peak_bytes"], of[0]["name"], of[0]["refused"]))
"#;

fn with_module(command: &mut Command) {
    let module = artifacts::workspace().join("contrib/python");
    command.arg("-c").arg(MODULE).env("PYTHONPATH", module);
}

fn python() -> PathBuf {
    PathBuf::from("python3")
}

#[test]
fn the_python_module_names_phases_and_tells_what_is_held() {
    let rig = Rig::emulated("H100-80GB");
    let mut command = rig.launched(python());
    with_module(&mut command);
    let outcome = rig.outcome(child::run(command, PATIENCE)).ok();
    let ranges = ranges(outcome.process());
    assert_eq!(memory(ranges, "load"), [16, 0, 16]);
    assert_eq!(memory(ranges, "train_step"), [64, 16, 16]);
    assert_eq!(find(ranges, "train_step").ranges, 3);
    for (name, count) in [
        ("named_by_itself", 1),
        ("fails", 1),
        ("waits", 2),
        ("yields", 1),
        ("long", 1),
        ("short", 1),
        ("a cell", 1),
        ("cell", 1),
    ] {
        assert_eq!(find(ranges, name).ranges, count, "{name}");
    }
    assert_eq!(find(ranges, "half way?").marks, 1);
    // "short" begins before "long" and ends before it: neither ends in the other's place.
    for (name, at_least) in [("long", 200), ("yields", 20)] {
        assert!(find(ranges, name).total.0 >= at_least * 1_000_000, "{name}: {:?}", find(ranges, name));
    }
    let (held, peak) = (16 * MIB, 64 * MIB);
    let lines: Vec<&str> = outcome.ended.stdout.lines().collect();
    assert_eq!(lines[0], "True 0 []");
    assert!(lines[1].starts_with(&format!("{peak} {peak} 0 ({held}, {peak}, 'NVIDIA H100")), "{lines:?}");
    assert!(lines[1].ends_with(", 0)"), "{lines:?}");
    assert_eq!((ranges.open.len(), ranges.unbalanced), (0, 0));
}

#[test]
fn the_python_module_does_nothing_without_radrm_run() {
    let rig = Rig::emulated("H100-80GB");
    let mut command = rig.bare_command(python());
    with_module(&mut command);
    let ended = child::run(command, PATIENCE).ok();
    assert_eq!(ended.stdout, "False None None\nNone None None None\n");
    assert_eq!(ended.stderr, "");
}

#[test]
fn the_shim_records_no_ranges_where_it_was_not_preloaded() {
    let rig = Rig::emulated("H100-80GB");
    let mut command = rig.command(program());
    let shim = artifacts::file("libradrm.so");
    command.arg("nested").env_remove("LD_PRELOAD").env("NVTX_INJECTION64_PATH", shim);
    let ended = child::run(command, PATIENCE);
    // NVTX does nothing then, so that a range has no number.
    assert_eq!(ended.status.code(), Some(43), "{ended:?}");
    let mut rig = rig;
    assert_eq!(rig.end_session().profile.processes.len(), 0);
}

/// The package `nvtx` of PyPI is NVIDIA's own client of NVTX.
#[test]
fn ranges_of_the_nvtx_package_are_recorded() {
    let Some(python) = python::interpreter() else { return };
    let has = Command::new(&python).args(["-c", "import nvtx"]).output();
    if !has.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: {} has no nvtx (cargo xtask venv)", python.display());
        return;
    }
    let rig = Rig::emulated("H100-80GB");
    let mut command = rig.launched(&python);
    command.arg(python::script("ranges.py"));
    let outcome = rig.outcome(child::run(command, PATIENCE)).ok();
    let ranges = ranges(outcome.process());
    assert_eq!(memory(ranges, "train_step"), [48, 16, 16]);
    assert_eq!(find(ranges, "train_step").ranges, 5);
    assert_eq!(memory(ranges, "load [io, disk]"), [16, 0, 16]);
    assert_eq!(memory(ranges, "across"), [48, 16, 16]);
    assert_eq!(find(ranges, "saved").marks, 1);
}

/// The same program with NVIDIA's headers, where the package that has them is installed.
#[test]
fn ranges_of_nvidias_headers_are_recorded() {
    let Some(python) = python::interpreter() else { return };
    let find = "import nvidia.nvtx, os; print(os.path.join(list(nvidia.nvtx.__path__)[0], 'include'))";
    let found = Command::new(&python).args(["-c", find]).output().expect("python");
    let include = String::from_utf8(found.stdout).expect("a path");
    if !found.status.success() {
        eprintln!("skipped: {} has no nvidia-nvtx-cu12 (cargo xtask venv)", python.display());
        return;
    }
    let program = programs::compile("ranges.c", &["-DGENUINE_NVTX", "-isystem", include.trim()]);
    for (what, name, expected) in
        [("nested", "outer", [110, 10, 30]), ("domains", "read [io, disk]", [40, 40, 0])]
    {
        let rig = Rig::emulated("H100-80GB");
        let outcome = rig.run(&program, &[what]).ok();
        assert_eq!(memory(ranges(outcome.process()), name), expected, "{what}");
    }
}
