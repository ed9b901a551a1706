//! Programs that make life hard for anything preloaded into them.

use std::{env, path::PathBuf, process::Command};

use radrm_preload_tests::{
    child, programs,
    rig::{PATIENCE, Rig},
};
use radrm_profile::model::End;

/// Figures of `threads.c` at its end: 8 blocks of 1 MiB, 1,608 allocations, 1,600 launches.
#[track_caller]
fn threads_are_counted(rig: &Rig, command: Command) {
    let outcome = rig.outcome(child::run(command, 120)).ok();
    assert_eq!(outcome.assert_equals_ledger(), 1);
    assert_eq!(outcome.account(0).now.0, 8 << 20);
    assert_eq!(outcome.account(0).kinds[0].allocations, 1608);
    assert_eq!(outcome.launches("nothing"), (1600, 0));
}

/// A library of the system, from one of its usual names; `RADRM_TEST_LIBRARIES` names a directory to
/// look in first.
fn system_library(names: &[&str]) -> Option<PathBuf> {
    let own = env::var_os("RADRM_TEST_LIBRARIES").map(PathBuf::from);
    let usual = ["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib"].map(PathBuf::from);
    let directories: Vec<PathBuf> = own.into_iter().chain(usual).collect();
    names.iter().flat_map(|n| directories.iter().map(move |d| d.join(n))).find(|p| p.exists())
}

#[track_caller]
fn under_allocator(package: &str, names: &[&str]) {
    let Some(library) = system_library(names) else {
        eprintln!("skipped: {} is not installed (Debian package {package})", names[0]);
        return;
    };
    for route in ["dlsym", "proc"] {
        let rig = Rig::emulated("1xH200");
        let mut command = rig.launched(programs::compile("threads.c", &[]));
        command.env("LD_PRELOAD", &library).env("ROUTE", route);
        threads_are_counted(&rig, command);
    }
}

#[test]
fn programs_that_use_jemalloc() {
    under_allocator("libjemalloc2", &["libjemalloc.so.2"]);
}

#[test]
fn programs_that_use_tcmalloc() {
    under_allocator("libtcmalloc-minimal4", &["libtcmalloc_minimal.so.4"]);
}

#[test]
fn programs_that_use_mimalloc() {
    under_allocator("libmimalloc2.0", &["libmimalloc.so.2.0", "libmimalloc.so.2", "libmimalloc.so"]);
}

#[test]
fn an_allocator_that_calls_dlsym_in_its_first_malloc() {
    let rig = Rig::emulated("1xH200");
    let mut command = rig.launched(programs::compile("threads.c", &[]));
    command.env("LD_PRELOAD", programs::compile("first_malloc.c", &["-fPIC", "-shared"]));
    threads_are_counted(&rig, command);
}

#[test]
fn a_program_with_an_allocator_of_its_own_that_calls_dlsym() {
    let rig = Rig::emulated("1xH200");
    let allocator = programs::sources().join("first_malloc.c");
    let program = programs::compile("threads.c", &[&allocator.display().to_string(), "-rdynamic"]);
    threads_are_counted(&rig, rig.launched(program));
}

#[test]
fn a_plain_program_with_many_threads() {
    for flags in [&[][..], programs::LINKED] {
        let rig = Rig::emulated("1xH200");
        threads_are_counted(&rig, rig.launched(programs::compile("threads.c", flags)));
    }
}

/// A program built with a sanitizer; `None`, said aloud, where gcc lacks it or where such programs
/// do not run on this machine even without a shim.
fn sanitized(flags: &[&str], rig: &Rig) -> Option<PathBuf> {
    let program = match programs::try_compile("threads.c", flags) {
        Ok(program) => program,
        Err(error) => {
            eprintln!("skipped: gcc cannot build with {flags:?}: {error}");
            return None;
        }
    };
    let mut command = rig.bare_command("setarch");
    command.arg("-R").arg(&program).env("ASAN_OPTIONS", "detect_leaks=0");
    let ended = child::run(command, 120);
    if !ended.status.success() {
        eprintln!("skipped: {flags:?} programs do not run here: {}", ended.stderr);
        return None;
    }
    Some(program)
}

#[test]
fn programs_with_the_address_sanitizer() {
    for flags in [&["-fsanitize=address"][..], &["-fsanitize=address", "-static-libasan"]] {
        // The check of the order of libraries refuses any preload, whatever it is.
        let Some(program) = sanitized(flags, &Rig::emulated("1xH200")) else { continue };
        let rig = Rig::emulated("1xH200");
        let mut command = rig.launched(program);
        command.env("ASAN_OPTIONS", "verify_asan_link_order=0:detect_leaks=0");
        threads_are_counted(&rig, command);
    }
}

#[test]
fn programs_with_the_address_sanitizer_preloaded_first() {
    let Some(program) = sanitized(&["-fsanitize=address"], &Rig::emulated("1xH200")) else { return };
    let Some(asan) = system_library(&["libasan.so.8", "libasan.so.6"]) else {
        eprintln!("skipped: libasan is not installed");
        return;
    };
    let mut rig = Rig::emulated("1xH200");
    let mut command = rig.command(program);
    let mut preload = asan.into_os_string();
    preload.push(":");
    preload.push(rig.preload());
    command.env("LD_PRELOAD", preload).env("ASAN_OPTIONS", "detect_leaks=0");
    child::run(command, 120).ok();
    let outcome = rig.end_session();
    assert_eq!(outcome.assert_equals_ledger(), 1);
    assert_eq!(outcome.account(0).now.0, 8 << 20);
}

#[test]
fn programs_with_the_thread_sanitizer() {
    let rig = Rig::emulated("1xH200");
    let Some(program) = sanitized(&["-fsanitize=thread"], &Rig::emulated("1xH200")) else { return };
    let mut command = rig.launched("setarch");
    command.arg("-R").arg(program);
    // The driver is not compiled for the sanitizer, which therefore sees its allocations but not its locks.
    let folder = tempfile::tempdir().unwrap();
    let suppressions = folder.path().join("driver");
    std::fs::write(&suppressions, "called_from_lib:libcuda.so.1\nrace:libcuda.so.1\n").unwrap();
    command.env("TSAN_OPTIONS", format!("suppressions={}", suppressions.display()));
    threads_are_counted(&rig, command);
}

#[test]
fn a_program_that_jumps_out_of_driver_calls() {
    // On the instant driver: jumping out of a call that holds a lock would hang any driver.
    let mut rig = Rig::instant();
    child::run(rig.command(programs::compile("jumps.c", &[])), PATIENCE).ok();
    let outcome = rig.end_session();
    assert_eq!(outcome.launches("nothing").0, 1000, "calls after the jumps are not seen");
    assert!(outcome.launches("other").0 > 1000);
}

#[test]
fn thread_local_destructors_that_call_the_driver() {
    let rig = Rig::emulated("1xH200");
    let outcome = rig.run(programs::compile("destructors.c", &[]), &[]).ok();
    assert_eq!(outcome.assert_equals_ledger(), 1);
    assert_eq!(outcome.account(0).now.0, 0);
    assert_eq!(outcome.account(0).kinds[0].allocations, 40);
    assert_eq!(outcome.account(0).kinds[0].frees, 40);
}

#[test]
fn threads_that_never_made_a_context_are_charged_to_the_right_gpu() {
    let rig = Rig::emulated("2xH200");
    let steps = ["use:0", "thread:create.a.4m.1", "thread:create.b.6m.0", "thread:release.b"];
    let outcome = rig.run(programs::compile("steps.c", &[]), &steps).ok();
    assert_eq!(outcome.assert_equals_ledger(), 1);
    assert_eq!(outcome.account(1).kinds[2].now.0, 4 << 20);
    assert_eq!(outcome.account(0).kinds[2].now.0, 0);
    assert_eq!(outcome.account(0).kinds[2].peak.0, 6 << 20);
}

#[test]
fn every_way_to_end_keeps_its_code_and_its_figures() {
    let program = programs::compile("ends.c", &[]);
    for way in ["return", "exit", "_exit", "quick_exit", "abort", "signal", "thread_exits", "pthread_exit"] {
        let rig = Rig::emulated("1xH200");
        let mut bare = rig.bare_command(&program);
        bare.arg(way);
        let bare = child::run(bare, PATIENCE);
        let rig = Rig::emulated("1xH200");
        let outcome = rig.run(&program, &[way]);
        assert_eq!(outcome.ended.status, bare.status, "{way}: {}", outcome.ended.stderr);
        assert_eq!(outcome.assert_equals_ledger(), 1, "{way}");
        assert!(outcome.account(0).peak.0 >= 5 << 20, "{way}");
        assert_ne!(outcome.process().state.end, End::Running, "{way}");
    }
}

/// Runs `forks.c` and compares all processes with the ledger.
#[track_caller]
fn forks(way: &str, count: u64) -> Vec<u64> {
    let rig = Rig::emulated("1xH200");
    let outcome = rig.run(programs::compile("forks.c", &[]), &[way, &count.to_string()]).ok();
    outcome.assert_equals_ledger();
    outcome.peaks_mib()
}

#[test]
fn case_13_forks_before_driver_use_have_figures_of_their_own() {
    assert_eq!(forks("before", 6), [1, 2, 3, 4, 5, 6]);
}

#[test]
fn children_that_exit_are_told_from_those_that_vanish() {
    let rig = Rig::emulated("1xH200");
    let outcome = rig.run(programs::compile("forks.c", &[]), &["before", "3"]).ok();
    let ends: Vec<End> = outcome.profile.processes.iter().map(|p| p.state.end).collect();
    assert_eq!(ends, [End::Exited(None); 3]);
}

#[test]
fn case_13_forks_after_driver_use_leave_the_parents_figures() {
    assert_eq!(forks("after", 4), [3]);
}

#[test]
fn case_13_a_fork_server_and_its_workers() {
    assert_eq!(forks("server", 4), [1, 1, 2, 3, 4]);
}

#[test]
fn case_13_forks_while_other_threads_allocate_and_launch() {
    let peaks = forks("threads", 60);
    assert_eq!(peaks.len(), 1);
    assert!((1..=3).contains(&peaks[0]), "{peaks:?}");
}

#[test]
fn vfork_and_exec_leave_the_parents_figures_alone() {
    assert_eq!(forks("vfork", 20), [2]);
}

#[test]
fn exec_keeps_the_figures_of_the_program_that_was_there_before() {
    let rig = Rig::emulated("1xH200");
    let outcome = rig.run(programs::compile("execs.c", &[]), &["3"]).ok();
    let peaks = outcome.peaks_mib();
    assert_eq!(peaks, [1, 2, 3, 4]);
    let replaced = outcome.profile.processes.iter().filter(|p| p.state.end == End::Exec).count();
    assert_eq!(
        replaced,
        3,
        "{:?}",
        outcome.profile.processes.iter().map(|p| &p.state.end).collect::<Vec<_>>()
    );
}
