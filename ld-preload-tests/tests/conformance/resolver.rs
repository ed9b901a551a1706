//! Every way by which a program reaches the driver, and the rules that keep other programs' look-ups
//! as they are.

use std::{collections::HashSet, process::Command};

use radrm_cuda_abi::table::rows;
use radrm_preload_tests::{
    artifacts, child, programs,
    rig::{PATIENCE, Rig},
};

const LOOKUPS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/data/cudart_lookups.tsv");
const STEPS: [&str; 5] = ["use:0", "alloc:a:1m", "alloc:b:3m", "launch:7", "free:a"];

/// Runs [`STEPS`] by one way into the driver and compares with the ledger.
#[track_caller]
fn reaches_the_shim(flags: &[&str], route: &str) {
    let rig = Rig::emulated("1xH200");
    let mut command = rig.launched(programs::compile("steps.c", flags));
    command.args(STEPS).env("ROUTE", route);
    let outcome = rig.outcome(child::run(command, PATIENCE)).ok();
    assert_eq!(outcome.assert_equals_ledger(), 1);
    assert_eq!(outcome.account(0).kinds[0].peak.0, 4 << 20);
    assert_eq!(outcome.account(0).kinds[0].now.0, 3 << 20);
    assert_eq!(outcome.launches("nothing"), (7, 0));
}

#[test]
fn linked_symbols_reach_the_shim() {
    reaches_the_shim(programs::LINKED, "");
}

#[test]
fn symbols_bound_at_load_time_reach_the_shim() {
    reaches_the_shim(&["-DROUTE_LINKED", "-lcuda", "-Wl,-z,now"], "");
}

#[test]
fn dlopen_and_dlsym_reach_the_shim() {
    reaches_the_shim(&[], "dlsym");
}

#[test]
fn cu_get_proc_address_reaches_the_shim() {
    reaches_the_shim(&[], "proc");
}

/// Runs a program bare and under the shim: what it prints must be the same.
#[track_caller]
fn says_the_same(rig: &Rig, program: &str, flags: &[&str]) -> String {
    let program = programs::compile(program, flags);
    let bare = child::run(rig.bare_command(&program), PATIENCE).ok();
    // In a session, so that the driver's libraries are found at the same place.
    let shimmed = child::run(rig.command(&program), PATIENCE).ok();
    assert_eq!(bare.stdout, shimmed.stdout);
    bare.stdout
}

#[test]
fn dlvsym_keeps_versions_apart() {
    let said = says_the_same(&Rig::emulated("1xH200"), "versions.c", &[]);
    assert_eq!(said, "apart\napart\n");
}

#[test]
fn dlerror_survives() {
    let said = says_the_same(&Rig::emulated("1xH200"), "dlerrors.c", &[]);
    assert!(said.contains("undefined symbol: cuNoSuchFunction"), "{said}");
}

#[test]
fn a_probe_finds_what_it_would_find_without_the_shim() {
    let said = says_the_same(&Rig::emulated("1xH200"), "probe.c", &[]);
    assert!(said.contains("before cuInit: default 0, program 0, next 0,"), "{said}");
    assert!(said.contains("after cuMemAlloc_v2: default 1, program 1, next 1"), "{said}");
}

#[test]
fn a_probe_without_libcuda_finds_nothing_by_rtld_next_either() {
    let said = says_the_same(&Rig::empty(), "probe.c", &[]);
    assert!(said.contains("before cuLaunchKernel: default 0, program 0, next 0,"), "{said}");
}

#[test]
fn rtld_default_and_the_programs_own_handle_reach_the_shim() {
    let rig = Rig::emulated("1xH200");
    let outcome = rig.run(programs::compile("default_handle.c", &[]), &[]).ok();
    assert_eq!(outcome.assert_equals_ledger(), 1);
    assert_eq!(outcome.account(0).now.0, 3 << 20);
}

#[test]
fn a_closed_library_leaves_no_stale_pointer() {
    let rig = Rig::emulated("1xH200");
    let outcome = rig.run(programs::compile("reopen.c", &[]), &[]).ok();
    assert_eq!(outcome.assert_equals_ledger(), 1);
    assert_eq!(outcome.account(0).now.0, 49 << 20);
    assert_eq!(outcome.account(0).kinds[0].allocations, 50);
}

/// One answer of `replay.c`: result, symbol status, file and name of the function.
struct Answer {
    result: u32,
    status: u32,
    file: String,
    name: String,
}

fn replay(mut command: Command, form: &str) -> Vec<Answer> {
    command.args([LOOKUPS, form]);
    let said = child::run(command, PATIENCE).ok().stdout;
    said.lines()
        .map(|line| {
            let cell: Vec<&str> = line.split(' ').collect();
            Answer {
                result: cell[0].parse().expect(line),
                status: cell[1].parse().expect(line),
                file: cell[2].to_owned(),
                name: cell[3].to_owned(),
            }
        })
        .collect()
}

/// Every one of the recorded look-ups comes back as the shim's wrapper of exactly the recorded
/// symbol if the shim wraps it, else as the driver's own function; results and states are the
/// driver's.
#[track_caller]
fn replay_is_right(form: &str) {
    let rig = Rig::emulated("1xH200,driver=13050");
    let program = programs::compile("replay.c", &[]);
    let must_be_wrapped: HashSet<String> =
        rows().into_iter().filter(|r| r.need.is_wrapped()).map(|r| r.symbol).collect();
    let bare = replay(rig.bare_command(&program), form);
    let shimmed = replay(rig.launched(&program), form);
    let text = std::fs::read_to_string(LOOKUPS).expect(LOOKUPS);
    let recorded: Vec<&str> = text.lines().skip(1).collect();
    assert_eq!(recorded.len(), 2133);
    assert_eq!((bare.len(), shimmed.len()), (2133, 2133));
    let (mut wrapped, mut wrong) = (0, Vec::new());
    for ((line, bare), shimmed) in recorded.iter().zip(&bare).zip(&shimmed) {
        let symbol = line.rsplit('\t').next().unwrap_or("");
        let expected = if symbol == "NULL" { "-" } else { symbol };
        let mut say = |what: &str| wrong.push(format!("{line}: {what}"));
        if bare.name != expected {
            say(&format!("the driver itself gave {}", bare.name));
        }
        if shimmed.name != expected {
            say(&format!("under the shim: {} of {}", shimmed.name, shimmed.file));
        }
        if (bare.result, bare.status) != (shimmed.result, shimmed.status) {
            say(&format!(
                "result and status {} {} became {} {}",
                bare.result, bare.status, shimmed.result, shimmed.status
            ));
        }
        let is_wrapper = shimmed.file == "libradrm.so";
        if must_be_wrapped.contains(symbol) && !is_wrapper {
            say("is not the wrapper");
        }
        if !is_wrapper && shimmed.file != bare.file {
            say(&format!("is neither the wrapper nor the driver's, but of {}", shimmed.file));
        }
        wrapped += usize::from(is_wrapper);
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert!(wrapped > 400, "only {wrapped} are wrapped");
}

#[test]
fn case_11_all_2133_runtime_look_ups_give_the_right_entry_point() {
    replay_is_right("v2");
}

#[test]
fn case_11_all_2133_runtime_look_ups_by_the_first_form_of_the_interface() {
    replay_is_right("v1");
}

#[test]
fn every_wrapper_has_an_address_of_its_own() {
    // Else the replay above could not tell two of them apart.
    let output =
        Command::new("nm").args(["-D", "--defined-only"]).arg(artifacts::file("libradrm.so")).output();
    let text = String::from_utf8_lossy(&output.expect("nm").stdout).into_owned();
    let mut addresses: Vec<&str> = text.lines().filter(|l| l.contains(" T cu")).map(|l| &l[..16]).collect();
    let all = addresses.len();
    addresses.sort_unstable();
    addresses.dedup();
    assert!(all > 150, "{all} wrappers");
    assert_eq!(addresses.len(), all);
}

#[test]
fn case_12_rtld_next_twice_is_not_swallowed() {
    let rig = Rig::emulated("1xH200");
    let directory = rig.path().join("links");
    std::fs::create_dir(&directory).expect("links");
    for link in ["1", "10", "100"] {
        let built = programs::compile(
            "chain_link.c",
            &[&format!("-DLINK={link}"), "-fPIC", "-shared", &format!("-Wl,-soname,libchain{link}.so")],
        );
        std::fs::copy(built, directory.join(format!("libchain{link}.so"))).expect("copy");
    }
    let path = format!("-L{}", directory.display());
    let rpath = format!("-Wl,-rpath,{}", directory.display());
    let program = programs::compile(
        "chain.c",
        &[&path, &rpath, "-Wl,--no-as-needed", "-lchain1", "-lchain10", "-lchain100"],
    );
    assert_eq!(child::run(rig.bare_command(&program), PATIENCE).ok().stdout, "111 111\n");
    assert_eq!(child::run(rig.launched(&program), PATIENCE).ok().stdout, "111 111\n");
}

#[test]
fn a_preloaded_hook_of_the_users_own_does_no_harm() {
    let rig = Rig::emulated("1xH200");
    let hook = programs::compile("user_hook.c", &["-fPIC", "-shared"]);
    let mut command = rig.launched(programs::compile("steps.c", programs::LINKED));
    command.args(STEPS).env("LD_PRELOAD", hook);
    let outcome = rig.outcome(child::run(command, PATIENCE)).ok();
    assert_eq!(outcome.assert_equals_ledger(), 1);
    assert_eq!(outcome.account(0).kinds[0].allocations, 2);
}

#[test]
fn a_missing_function_is_missing_under_the_shim_too() {
    // An old driver lacks the newer entry points; programs choose their way by asking.
    let rig = Rig::emulated("1xH200,driver=11080");
    let program = programs::compile("asks.c", &[]);
    let bare = child::run(rig.bare_command(&program), PATIENCE).ok().stdout;
    assert_eq!(child::run(rig.launched(&program), PATIENCE).ok().stdout, bare);
    assert!(bare.contains("cuLaunchKernel 1"), "{bare}");
}
