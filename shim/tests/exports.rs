//! Exports of the library, and the functions that it needs of libc.

mod support;

use std::collections::BTreeSet;

fn symbols(flags: &[&str]) -> Vec<String> {
    let output = support::binutil("nm").args(flags).arg(support::library()).output().expect("nm");
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).expect("names");
    text.lines().filter_map(|line| line.split_whitespace().last()).map(str::to_owned).collect()
}

#[test]
fn the_library_exports_what_is_listed_and_nothing_else() {
    let exported: BTreeSet<String> = symbols(&["-D", "--defined-only"]).into_iter().collect();
    let generated = include_str!(concat!(env!("OUT_DIR"), "/exports.txt"));
    let mut expected: BTreeSet<String> = generated.lines().map(str::to_owned).collect();
    let besides = ["dlsym", "dlvsym", "InitializeInjectionNvtx2", "__asan_default_options"];
    let own = ["end", "is_recording", "join_failure", "mark", "memory", "pop", "push", "start"];
    expected.extend(besides.map(str::to_owned));
    expected.extend(own.map(|name| format!("radrm_{name}")));
    let missing: Vec<_> = expected.difference(&exported).collect();
    let surplus: Vec<_> = exported.difference(&expected).collect();
    assert!(missing.is_empty() && surplus.is_empty(), "missing {missing:?}, surplus {surplus:?}");
}

#[test]
fn the_library_runs_on_glibc_2_34() {
    let newest: Option<(u32, u32)> = symbols(&["-D", "--undefined-only", "--with-symbol-versions"])
        .iter()
        .filter_map(|name| name.split_once("@GLIBC_"))
        .filter_map(|(_, version)| {
            version.split_once('.').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)))
        })
        .max();
    assert!(newest <= Some((2, 34)), "{newest:?}");
}

/// Each further library would be loaded into every program of a job, and glibc's loader would keep programs of musl from
/// starting.
#[test]
fn the_library_needs_libc_alone() {
    let output = support::binutil("readelf").args(["-dW"]).arg(support::library()).output().expect("readelf");
    let text = String::from_utf8(output.stdout).expect("names");
    let needed = text.lines().filter_map(|line| line.split_once("Shared library: [")?.1.strip_suffix(']'));
    assert_eq!(needed.collect::<Vec<_>>(), ["libc.so.6"]);
}

/// A package is linked for glibc 2.28: what is newer under every version must be weak.
#[test]
fn functions_that_older_libraries_lack_are_not_needed() {
    // They moved or got a version of their own.
    const OLD: [&str; 3] = ["pthread_key_create", "pthread_key_delete", "pthread_setspecific"];
    let output = support::binutil("nm")
        .args(["-D", "--undefined-only", "--with-symbol-versions"])
        .arg(support::library())
        .output()
        .expect("nm");
    let text = String::from_utf8(output.stdout).expect("names");
    let needed =
        text.lines().filter_map(|line| line.trim_start().strip_prefix("U ")?.split_once("@GLIBC_2."));
    let newer: Vec<_> = needed
        .filter(|(name, minor)| {
            minor.split('.').next().and_then(|n| n.parse().ok()).is_none_or(|n: u32| n > 28)
                && !OLD.contains(name)
        })
        .collect();
    assert!(text.contains("@GLIBC_2.") && newer.is_empty(), "{newer:?}");
}

/// The loader would look each of them up in every program of a job (`src/unprinted.rs`), and before glibc 2.34 load libdl for
/// `dlopen`.
#[test]
fn no_function_is_needed_that_few_programs_call() {
    let needed: BTreeSet<String> = symbols(&["-D", "--undefined-only"])
        .into_iter()
        .map(|name| name.split('@').next().unwrap_or_default().to_owned())
        .collect();
    assert!(needed.contains("memcpy"), "{needed:?}");
    let rare =
        ["dlopen", "getcwd", "getenv", "gettid", "mmap64", "open64", "read", "realpath", "stat64", "statx"];
    let found: Vec<_> = rare.iter().filter(|name| needed.contains(**name)).collect();
    assert!(found.is_empty(), "{found:?}");
}

/// Addresses that the loader has to write into every program of a job: those of the standard library, and few of ours.
#[test]
fn the_loader_writes_few_addresses() {
    let output = support::binutil("readelf").args(["-rW"]).arg(support::library()).output().expect("readelf");
    let text = String::from_utf8(output.stdout).expect("relocations");
    let written = text.lines().filter(|line| line.contains("_RELATIVE")).count();
    assert!((1..1200).contains(&written), "{written}");
}

#[test]
fn nothing_of_the_library_runs_when_it_is_loaded() {
    let output =
        support::binutil("readelf").args(["-W", "-S"]).arg(support::library()).output().expect("readelf");
    let text = String::from_utf8(output.stdout).expect("sections");
    // Two entries at most: the compiler's own frame_dummy and std's copy of argc and argv. On AArch64 two more, in
    // which the compilers' atomics look at the processor.
    let most = if cfg!(target_arch = "aarch64") { 32 } else { 16 };
    let size = text.lines().find(|l| l.contains(" .init_array")).and_then(|l| {
        let after: Vec<&str> = l.split(".init_array").nth(1)?.split_whitespace().collect();
        u64::from_str_radix(after.get(3)?, 16).ok()
    });
    assert!(size.unwrap_or(0) <= most, "{size:?} bytes of constructors");
}
