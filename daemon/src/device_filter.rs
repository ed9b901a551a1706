//! NVIDIA's device files that a job can open: a filter of the kernel on its control group, version 2.
//!
//! It holds for what the shim does not see, and for containers. The files for all GPUs, `/dev/nvidiactl` and `/dev/nvidia-uvm`,
//! stay open to every job.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

/// The driver's list of its GPUs.
const GPUS: &str = "/proc/driver/nvidia/gpus";
/// Major number of `/dev/nvidia0` and those after it.
const MAJOR: i32 = 195;

const PROG_LOAD: i32 = 5;
const PROG_ATTACH: i32 = 8;
const TYPE_CGROUP_DEVICE: u32 = 15;
const ATTACH_CGROUP_DEVICE: u32 = 6;
/// Filters of groups above hold too.
const ALLOW_MULTI: u32 = 2;
const CHARACTER_DEVICE: i32 = 2;

/// Arguments of `bpf(BPF_PROG_LOAD)`, as far as they are used.
#[repr(C)]
#[derive(Default)]
struct Load {
    kind: u32,
    count: u32,
    instructions: u64,
    license: u64,
    log: [u32; 4],
    rest: [u64; 12],
}

/// Arguments of `bpf(BPF_PROG_ATTACH)`, as far as they are used.
#[repr(C)]
#[derive(Default)]
struct Attach {
    group: u32,
    program: u32,
    kind: u32,
    flags: u32,
    rest: [u64; 14],
}

/// UUIDs of the driver's GPUs with the minor numbers of their files.
pub(crate) fn minors() -> Vec<(String, u32)> {
    let entries = fs::read_dir(GPUS).into_iter().flatten().flatten();
    let texts = entries.filter_map(|entry| fs::read_to_string(entry.path().join("information")).ok());
    texts.filter_map(|text| minor(&text)).collect()
}

/// Minor number and UUID from the driver's text about one GPU.
fn minor(text: &str) -> Option<(String, u32)> {
    let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    Some((value("GPU UUID:")?.to_owned(), value("Device Minor:")?.parse().ok()?))
}

/// Returns true if this process may use such filters.
pub(crate) fn is_possible() -> bool {
    rustix::process::geteuid().is_root() && load(&[]).is_ok()
}

/// Hides the files of these GPUs from all processes of a control group, named by its directory. It holds as long as the
/// group is there.
///
/// # Errors
/// The kernel's.
pub(crate) fn hide(group: &Path, minors: &[u32]) -> io::Result<()> {
    let (program, group) = (load(minors)?, File::open(group)?);
    let number = |fd: i32| fd.cast_unsigned();
    let attach = Attach {
        group: number(group.as_raw_fd()),
        program: number(program.as_raw_fd()),
        kind: ATTACH_CGROUP_DEVICE,
        flags: ALLOW_MULTI,
        ..Attach::default()
    };
    bpf(PROG_ATTACH, &attach).map(drop)
}

fn load(minors: &[u32]) -> io::Result<OwnedFd> {
    let program = filter(minors);
    let load = Load {
        kind: TYPE_CGROUP_DEVICE,
        count: u32::try_from(program.len()).unwrap_or(u32::MAX),
        instructions: program.as_ptr().addr() as u64,
        license: c"Dual MIT/GPL".as_ptr().addr() as u64,
        ..Load::default()
    };
    let descriptor = bpf(PROG_LOAD, &load)?;
    // SAFETY: the kernel made it for this call.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

fn bpf<T>(command: i32, arguments: &T) -> io::Result<i32> {
    // SAFETY: the arguments and what they point to live here; the rest of the structure is zero, as the kernel asks.
    let done =
        unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(arguments), size_of::<T>()) };
    match done {
        0.. => i32::try_from(done).map_err(io::Error::other),
        _ => Err(io::Error::last_os_error()),
    }
}

/// An instruction: its code, registers (the second one in the upper half), how far it jumps or where it reads, a number.
type Instruction = (u8, u8, i16, i32);

/// The program: it denies character devices of the major number with one of these minor numbers.
fn filter(minors: &[u32]) -> Vec<[u8; 8]> {
    // What is asked for is at the address in register 1: kind and way of access, major and minor number.
    const READ: u8 = 0x61;
    const AND: u8 = 0x57;
    const UNEQUAL: u8 = 0x55;
    const EQUAL: u8 = 0x15;
    const SET: u8 = 0xb7;
    const EXIT: u8 = 0x95;
    let count = i16::try_from(minors.len()).unwrap_or(i16::MAX);
    let mut program: Vec<Instruction> = vec![
        (READ, 0x12, 0, 0),
        (AND, 2, 0, 0xffff),
        (UNEQUAL, 2, count + 3, CHARACTER_DEVICE),
        (READ, 0x12, 4, 0),
        (UNEQUAL, 2, count + 1, MAJOR),
        (READ, 0x12, 8, 0),
    ];
    for (at, minor) in (0_i16..).zip(minors) {
        program.push((EQUAL, 2, count - at + 1, minor.cast_signed()));
    }
    program.extend([(SET, 0, 0, 1), (EXIT, 0, 0, 0)]);
    if !minors.is_empty() {
        // The kernel takes no program with a part that is never reached.
        program.extend([(SET, 0, 0, 0), (EXIT, 0, 0, 0)]);
    }
    let bytes = |(code, registers, offset, number): Instruction| {
        let ([o0, o1], [n0, n1, n2, n3]) = (offset.to_ne_bytes(), number.to_ne_bytes());
        [code, registers, o0, o1, n0, n1, n2, n3]
    };
    program.into_iter().map(bytes).collect()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn the_drivers_words_about_a_gpu_are_read() {
        let text = "Model: \t\t NVIDIA H200\nIRQ:   \t\t 16\nGPU UUID: \t GPU-8f3a\nBus Type: \t PCIe\nDevice Minor: \t 3\n";
        assert_eq!(minor(text), Some(("GPU-8f3a".to_owned(), 3)));
        assert_eq!(minor("GPU UUID: GPU-8f3a\n"), None);
    }

    /// Opens a device file of these numbers inside a group, and gives the reason why that fails.
    fn opened(group: &Path, place: &Path, minor: u32) -> String {
        let file = place.join(format!("nvidia{minor}"));
        let script = format!(
            "echo 0 > {}/cgroup.procs && {{ test -e {1} || mknod {1} c {MAJOR} {minor}; }} && cat {1}",
            group.display(),
            file.display()
        );
        let done = Command::new("/bin/sh").args(["-c", &script]).env("LC_ALL", "C").output().unwrap();
        String::from_utf8_lossy(&done.stderr).into_owned()
    }

    #[test]
    fn hidden_files_cannot_be_opened_in_the_group_and_others_can() {
        let root = radrm_os::host::control_groups();
        let place = tempfile::tempdir().unwrap();
        let group = root.map(|root| root.join(format!("radrm-test-filter-{}", std::process::id())));
        let Some(group) = group.filter(|group| is_possible() && fs::create_dir(group).is_ok()) else {
            eprintln!("skipped: no filters on control groups here");
            return;
        };
        // Their files are made before, since the filter denies that as well.
        let before: Vec<String> = (0..4).map(|minor| opened(&group, place.path(), minor)).collect();
        hide(&group, &[1, 3]).unwrap();
        let after: Vec<String> = (0..4).map(|minor| opened(&group, place.path(), minor)).collect();
        for _ in 0..100 {
            if fs::remove_dir(&group).is_ok() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let is_denied = |said: &String| said.contains("Operation not permitted");
        assert!(!before.iter().any(is_denied), "{before:?}");
        assert_eq!(after.iter().map(is_denied).collect::<Vec<_>>(), [false, true, false, true], "{after:?}");
    }
}
