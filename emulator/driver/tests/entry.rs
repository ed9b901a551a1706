//! Names, versions and flavours: what programs find, and what a call outside its time answers.

mod common;

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_void};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use common::{Cuda, begin, isolated};
use radrm_cuda_abi::table::{Need, rows};

const NOT_INITIALIZED: u32 = 3;
const NOT_FOUND: u32 = 500;
const NOT_SUPPORTED: u32 = 801;

fn look_up(cuda: Cuda, name: &str, version: i32, flags: u64) -> (u32, *mut c_void, u32) {
    let name = CString::new(name).unwrap();
    if cuda.find("cuGetProcAddress_v2").is_null() {
        let mut address = std::ptr::null_mut();
        let code = call!(cuda, "cuGetProcAddress"(
            name.as_ptr() => *const c_char, &mut address => *mut *mut c_void, version => i32, flags => u64));
        return (code, address, 0);
    }
    let (mut address, mut status) = (std::ptr::without_provenance_mut(1), 9u32);
    let code = call!(cuda, "cuGetProcAddress_v2"(
        name.as_ptr() => *const c_char, &mut address => *mut *mut c_void, version => i32, flags => u64,
        &mut status => *mut u32));
    (code, address, status)
}

#[test]
fn every_name_of_the_list_is_exported_and_nothing_else() {
    isolated("every_name_of_the_list_is_exported_and_nothing_else", &[], |cuda| {
        let listed: Vec<String> = rows()
            .into_iter()
            .filter(|r| !r.is_nvml() && r.need != Need::NotExported && !r.symbol.starts_with("cuda"))
            .map(|r| r.symbol)
            .collect();
        let mut by_address: HashMap<usize, &str> = HashMap::new();
        for name in &listed {
            let address = cuda.symbol(name) as usize;
            if let Some(other) = by_address.insert(address, name) {
                panic!("{name} and {other} are one function");
            }
        }
        let dump =
            std::process::Command::new("nm").args(["-D", "--defined-only"]).arg(common::library()).output();
        let Ok(dump) = dump else { return };
        for line in String::from_utf8_lossy(&dump.stdout).lines() {
            let name = line.split_whitespace().last().unwrap_or("");
            assert!(listed.iter().any(|l| l == name), "{name} is exported and not in the list");
        }
    });
}

#[test]
fn the_library_bears_the_drivers_name_and_binds_its_own_calls() {
    isolated("the_library_bears_the_drivers_name_and_binds_its_own_calls", &[], |_| {
        let run = |args: &[&str]| {
            let output = std::process::Command::new("readelf").args(args).arg(common::library()).output();
            output.map(|o| String::from_utf8_lossy(&o.stdout).into_owned()).unwrap_or_default()
        };
        let dynamic = run(&["-dW"]);
        if dynamic.is_empty() {
            return;
        }
        assert!(dynamic.contains("Library soname: [libcuda.so.1]"), "{dynamic}");
        let relocations = run(&["-rW"]);
        let foreign: Vec<&str> = relocations
            .lines()
            .filter(|l| {
                l.split_whitespace()
                    .any(|w| w.starts_with("cu") && w.as_bytes().get(2).is_some_and(u8::is_ascii_uppercase))
            })
            .collect();
        assert!(foreign.is_empty(), "a preloaded library would catch {foreign:?}");
    });
}

#[test]
fn recorded_lookups_of_five_runtimes_give_the_recorded_symbols() {
    let environment = [("RADRM_EMULATE", "T4,driver=13050")];
    isolated("recorded_lookups_of_five_runtimes_give_the_recorded_symbols", &environment, |cuda| {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../ld-preload-tests/data/cudart_lookups.tsv");
        let text = std::fs::read_to_string(path).unwrap();
        let mut names: HashMap<usize, String> = HashMap::new();
        for row in rows().into_iter().filter(|r| r.version.is_some()) {
            names.insert(cuda.find(&row.symbol) as usize, row.symbol);
        }
        let mut checked = 0;
        for initialised in [false, true] {
            if initialised {
                assert_eq!(call!(cuda, "cuInit"(0 => u32)), 0);
            }
            for line in text.lines().skip(1) {
                let cell: Vec<&str> = line.split('\t').collect();
                let (name, version, flags, expected) =
                    (cell[1], cell[2].parse().unwrap(), cell[3].parse().unwrap(), cell[4]);
                let (code, address, status) = look_up(cuda, name, version, flags);
                if expected == "NULL" {
                    assert_eq!((code, address.is_null(), status), (0, true, 1), "{line}");
                } else {
                    assert_eq!((code, status), (0, 0), "{line}");
                    assert_eq!(names.get(&(address as usize)).map(String::as_str), Some(expected), "{line}");
                }
                checked += 1;
            }
        }
        assert_eq!(checked, 2 * 2133);
    });
}

#[test]
fn versions_decide_which_form_is_found() {
    isolated("versions_decide_which_form_is_found", &[("RADRM_EMULATE", "T4,driver=12040")], |cuda| {
        assert_eq!(call!(cuda, "cuInit"(0 => u32)), 0);
        let found = |name: &str, version, flags| look_up(cuda, name, version, flags).1 as usize;
        assert_eq!(found("cuMemAlloc", 2000, 0), cuda.symbol("cuMemAlloc") as usize);
        assert_eq!(found("cuMemAlloc", 12000, 0), cuda.symbol("cuMemAlloc_v2") as usize);
        assert_eq!(
            found("cuCtxCreate", 99999, 0),
            cuda.symbol("cuCtxCreate_v3") as usize,
            "v4 is newer than the driver"
        );
        assert_eq!(found("cuGetProcAddress", 11030, 0), cuda.symbol("cuGetProcAddress") as usize);
        assert_eq!(found("cuGetProcAddress", 12000, 0), cuda.symbol("cuGetProcAddress_v2") as usize);
        assert_eq!(found("cuMemcpy", 12000, 1), cuda.symbol("cuMemcpy") as usize);
        assert_eq!(found("cuMemcpy", 12000, 2), cuda.symbol("cuMemcpy_ptds") as usize);
        assert_eq!(found("cuCtxGetDevice", 12000, 2), cuda.symbol("cuCtxGetDevice") as usize);
        let (code, address, status) = look_up(cuda, "cuMemAllocAsync", 11010, 0);
        assert_eq!((code, address.is_null(), status), (0, true, 2), "too new for the version asked for");
        let (code, address, status) = look_up(cuda, "cuStreamGetDevice", 99999, 0);
        assert_eq!((code, address.is_null(), status), (0, true, 1), "this driver does not have it at all");
        assert_eq!(look_up(cuda, "cuMemAlloc_v2", 12000, 0).2, 1, "names are without version");
        assert_eq!(look_up(cuda, "cuMemAlloc", 12000, 3).0, 1);
        let mut version = 0;
        assert_eq!(call!(cuda, "cuDriverGetVersion"(&mut version => *mut i32)), 0);
        assert_eq!(version, 12040);
    });
}

#[test]
fn faults_hide_entry_points() {
    let environment = [("RADRM_EMULATOR_FAULTS", "missing=cuMemAllocAsync;driver=11040")];
    isolated("faults_hide_entry_points", &environment, |cuda| {
        assert_eq!(look_up(cuda, "cuMemAllocAsync", 12000, 0).0, NOT_FOUND, "before cuInit too");
        begin(cuda, 0);
        assert_eq!(look_up(cuda, "cuMemAllocAsync", 12000, 0).0, NOT_FOUND);
        for hidden in ["cuMemAllocAsync", "cuMemAllocAsync_ptsz", "cuCtxCreate_v4", "cuGetProcAddress_v2"] {
            assert!(cuda.find(hidden).is_null(), "dlsym finds {hidden}");
        }
        assert!(!cuda.find("cuMemFreeAsync").is_null());
        assert_eq!(look_up(cuda, "cuMemFreeAsync", 12000, 0).0, 0);
        assert_eq!(look_up(cuda, "cuMemPrefetchAsync", 12020, 0).1, cuda.symbol("cuMemPrefetchAsync"));
        let mut version = 0;
        call!(cuda, "cuDriverGetVersion"(&mut version => *mut i32));
        assert_eq!(version, 11040);
    });
}

#[test]
fn a_plan_of_faults_that_is_not_understood_is_an_error() {
    let environment = [("RADRM_EMULATOR_FAULTS", "oom@often")];
    isolated("a_plan_of_faults_that_is_not_understood_is_an_error", &environment, |cuda| {
        assert_eq!(call!(cuda, "cuInit"(0 => u32)), 1);
    });
}

#[test]
fn calls_before_init_and_in_a_forked_child_say_not_initialized() {
    isolated("calls_before_init_and_in_a_forked_child_say_not_initialized", &[], |cuda| {
        let count = || {
            let mut n = 0;
            call!(cuda, "cuDeviceGetCount"(&mut n => *mut i32))
        };
        assert_eq!(count(), NOT_INITIALIZED);
        begin(cuda, 0);
        assert_eq!(count(), 0);
        // SAFETY: the child only calls the driver and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let ok = count() == NOT_INITIALIZED
                && call!(cuda, "cuInit"(0 => u32)) == NOT_INITIALIZED
                && common::alloc(cuda, 512) == Err(NOT_INITIALIZED);
            // SAFETY: ends the child without running the parent's handlers.
            unsafe { libc::_exit(if ok { 0 } else { 1 }) };
        }
        let mut status = 0;
        // SAFETY: waits for the child made above.
        unsafe { libc::waitpid(child, &mut status, 0) };
        assert_eq!(status, 0);
        assert!(common::alloc(cuda, 512).is_ok(), "the parent goes on");
    });
}

/// Ends the calling process if it is still there after 10 s, so that a child that hangs is a failed test.
fn child_watchdog() {
    // SAFETY: the default action of the signal ends the process.
    unsafe { libc::alarm(10) };
}

#[test]
fn forked_child_returns_while_threads_use_handles() {
    isolated("forked_child_returns_while_threads_use_handles", &[], |cuda| {
        let context = begin(cuda, 0) as usize;
        let (stop, calls) = (&AtomicBool::new(false), &AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(move || {
                    while !stop.load(Relaxed) {
                        let mut own: *mut c_void = std::ptr::null_mut();
                        let shared = std::ptr::without_provenance_mut::<c_void>(context);
                        assert_eq!(call!(cuda, "cuCtxCreate_v2"(&mut own => *mut *mut c_void, 0 => u32, 0 => i32)), 0);
                        let mut version = 0;
                        let code = call!(cuda, "cuCtxGetApiVersion"(shared => *mut c_void, &mut version => *mut u32));
                        assert_eq!((code, version), (0, 3020));
                        assert_eq!(call!(cuda, "cuCtxDestroy_v2"(own => *mut c_void)), 0);
                        calls.fetch_add(1, Relaxed);
                    }
                });
            }
            while calls.load(Relaxed) < 100 {
                std::thread::yield_now();
            }
            for _ in 0..40 {
                // SAFETY: the child only calls the driver and ends.
                let child = unsafe { libc::fork() };
                if child == 0 {
                    child_watchdog();
                    let mut n = 0;
                    let shared = std::ptr::without_provenance_mut::<c_void>(context);
                    let ok = call!(cuda, "cuInit"(0 => u32)) == NOT_INITIALIZED
                        && call!(cuda, "cuDeviceGetCount"(&mut n => *mut i32)) == NOT_INITIALIZED
                        && call!(cuda, "cuCtxSetCurrent"(shared => *mut c_void)) == NOT_INITIALIZED
                        && common::alloc(cuda, 512) == Err(NOT_INITIALIZED)
                        && call!(cuda, "cuDriverGetVersion"(&mut n => *mut i32)) == 0;
                    // SAFETY: ends the child without running the parent's handlers.
                    unsafe { libc::_exit(if ok { 0 } else { 1 }) };
                }
                let mut status = 0;
                // SAFETY: waits for the child made above.
                unsafe { libc::waitpid(child, &mut status, 0) };
                if status != 0 {
                    stop.store(true, Relaxed);
                }
                assert_eq!(
                    status, 0,
                    "256: a call returned another code; 14: the child hung until its alarm"
                );
            }
            stop.store(true, Relaxed);
        });
        assert!(common::alloc(cuda, 512).is_ok(), "the parent goes on");
    });
}

#[test]
fn private_tables_are_never_served_and_missing_semantics_are_named() {
    isolated("private_tables_are_never_served_and_missing_semantics_are_named", &[], |cuda| {
        begin(cuda, 0);
        let (mut table, id) = (std::ptr::without_provenance::<c_void>(5), [7u8; 16]);
        let code = call!(cuda, "cuGetExportTable"(&mut table => *mut *const c_void, &id => *const [u8; 16]));
        assert_eq!((code, table.is_null()), (NOT_FOUND, true));
        assert_eq!(call!(cuda, "cuGLInit"()), NOT_SUPPORTED);
        let mut text: *const c_char = std::ptr::null();
        assert_eq!(call!(cuda, "cuGetErrorName"(2 => u32, &mut text => *mut *const c_char)), 0);
        // SAFETY: the driver gave a text.
        assert_eq!(unsafe { CStr::from_ptr(text) }, c"CUDA_ERROR_OUT_OF_MEMORY");
        assert_eq!(call!(cuda, "cuGetErrorString"(12345 => u32, &mut text => *mut *const c_char)), 1);
        assert!(text.is_null());
    });
}
