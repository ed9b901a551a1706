//! Physical memory that several processes map: the same bytes in all of them where memory is backed.

mod common;

use std::io::{BufRead, BufReader, Write};

use common::{Cuda, begin, isolated, memory, role, start};
use radrm_emulator_machine::{Machine, MachineSpec};

const SIZE: usize = 2 << 20;
const INVALID_VALUE: u32 = 1;

/// Maps a handle; the address.
fn mapped(cuda: Cuda, handle: u64) -> u64 {
    let mut address = 0u64;
    let reserved = call!(cuda, "cuMemAddressReserve"(
        &mut address => *mut u64, SIZE => usize, 0usize => usize, 0 => u64, 0 => u64));
    assert_eq!(reserved, 0);
    assert_eq!(map(cuda, address, handle), 0);
    address
}

fn map(cuda: Cuda, address: u64, handle: u64) -> u32 {
    let code =
        call!(cuda, "cuMemMap"(address => u64, SIZE => usize, 0usize => usize, handle => u64, 0 => u64));
    // Rights of device 0: read and write.
    let access = [1u32, 0, 3];
    let rights = || call!(cuda, "cuMemSetAccess"(address => u64, SIZE => usize, &access => *const [u32; 3], 1usize => usize));
    if code == 0 { rights() } else { code }
}

fn fill(cuda: Cuda, address: u64, byte: u8) {
    assert_eq!(call!(cuda, "cuMemsetD8_v2"(address => u64, byte => u8, SIZE => usize)), 0);
}

/// First and last byte.
fn ends(cuda: Cuda, address: u64) -> (u8, u8) {
    let mut back = vec![1u8; SIZE];
    let code = call!(cuda, "cuMemcpyDtoH_v2"(back.as_mut_ptr() => *mut u8, address => u64, SIZE => usize));
    assert_eq!(code, 0);
    (back[0], back[SIZE - 1])
}

#[test]
fn processes_that_map_the_same_memory_find_the_same_bytes() {
    let test = "processes_that_map_the_same_memory_find_the_same_bytes";
    if role().is_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("machine");
        Machine::create(&MachineSpec::parse("A100").unwrap(), &path).unwrap();
        let environment =
            [("RADRM_EMULATED_MACHINE", path.to_str().unwrap()), ("RADRM_EMULATOR_BACKED", "1")];
        return isolated(test, &environment, exported);
    }
    isolated(test, &[], exported);
}

fn exported(cuda: Cuda) {
    begin(cuda, 0);
    if role().as_deref() == Some("importer") {
        return imported(cuda);
    }
    let exportable = [1 | 1 << 32, 1, 0, 0u64];
    let (mut handle, mut fd) = (0u64, -1);
    let created = call!(cuda, "cuMemCreate"(
        &mut handle => *mut u64, SIZE => usize, &exportable => *const [u64; 4], 0 => u64));
    assert_eq!(created, 0);
    let address = mapped(cuda, handle);
    fill(cuda, address, 7);
    let exported =
        call!(cuda, "cuMemExportToShareableHandle"(&mut fd => *mut i32, handle => u64, 1 => u32, 0 => u64));
    assert_eq!(exported, 0);
    let held = memory(cuda).0;
    let path = std::env::var("RADRM_EMULATED_MACHINE").unwrap();
    let environment = [("RADRM_EMULATED_MACHINE", &path[..]), ("RADRM_EMULATOR_BACKED", "1")];
    let test = "processes_that_map_the_same_memory_find_the_same_bytes";
    let mut child = start(test, "importer", &environment);
    let mut answers = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut wait_for = |word: &str| {
        // The test harness of the child prints lines of its own.
        assert!(answers.by_ref().any(|line| line.unwrap().ends_with(word)), "no {word}");
    };
    let mut input = child.stdin.take().unwrap();
    writeln!(input, "/proc/{}/fd/{fd}", std::process::id()).unwrap();
    wait_for("mapped");
    assert_eq!(ends(cuda, address), (8, 8), "what the importer wrote");
    fill(cuda, address, 9);
    writeln!(input).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(memory(cuda).0, held);
    let import = |out: &mut u64| call!(cuda, "cuMemImportFromShareableHandle"(out => *mut u64, fd as usize => usize, 1 => u32));
    // The bytes are the memory's: mapped elsewhere they are found again, and the former range is empty.
    assert_eq!(call!(cuda, "cuMemUnmap"(address => u64, SIZE => usize)), 0);
    let moved = mapped(cuda, handle);
    assert_eq!(ends(cuda, moved), (9, 9));
    let mut plain = 0u64;
    let not_exportable = [1, 1, 0, 0u64];
    let created = call!(cuda, "cuMemCreate"(
        &mut plain => *mut u64, SIZE => usize, &not_exportable => *const [u64; 4], 0 => u64));
    assert_eq!((created, map(cuda, address, plain)), (0, 0));
    assert_eq!(ends(cuda, address), (0, 0));
    // The descriptor keeps the bytes when the memory is released.
    for (call, range) in [("cuMemUnmap", moved), ("cuMemAddressFree", moved)] {
        let symbol = cuda.symbol(call);
        // SAFETY: the type of both functions.
        let f: extern "C" fn(u64, usize) -> u32 = unsafe { std::mem::transmute(symbol) };
        assert_eq!(f(range, SIZE), 0, "{call}");
    }
    assert_eq!(call!(cuda, "cuMemRelease"(handle => u64)), 0);
    let mut again = 0u64;
    assert_eq!(import(&mut again), 0);
    assert_eq!(ends(cuda, mapped(cuda, again)), (9, 9));
}

fn imported(cuda: Cuda) {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    let file = std::fs::File::options().read(true).write(true).open(line.trim()).unwrap();
    let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
    let import = |out: &mut u64, fd: i32| call!(cuda, "cuMemImportFromShareableHandle"(out => *mut u64, fd as usize => usize, 1 => u32));
    let mut handle = 0u64;
    let before = memory(cuda).0;
    assert_eq!(import(&mut handle, fd), 0);
    assert_eq!(import(&mut 0, -1), INVALID_VALUE);
    let address = mapped(cuda, handle);
    assert_eq!(call!(cuda, "cuMemRelease"(handle => u64)), 0);
    assert_eq!(
        (ends(cuda, address), memory(cuda).0),
        ((7, 7), before),
        "the exporter's bytes, charged to it"
    );
    fill(cuda, address, 8);
    println!("mapped");
    std::io::stdin().read_line(&mut line).unwrap();
    assert_eq!(ends(cuda, address), (9, 9));
}
