//! `cuCheckpointProcess*` on other processes: states, memory, errors, and who dies when.

mod common;

use std::ffi::c_void;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use common::{Cuda, alloc, begin, free, isolated, role, start};
use radrm_emulator_machine::{CheckpointState, Machine, MachineSpec};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const INVALID_VALUE: u32 = 1;
const OUT_OF_MEMORY: u32 = 2;
const NOT_INITIALIZED: u32 = 3;
const ILLEGAL_STATE: u32 = 401;
const NOT_READY: u32 = 600;
const NOT_SUPPORTED: u32 = 801;
const RUNNING: u32 = 0;
const LOCKED: u32 = 1;
const CHECKPOINTED: u32 = 2;
const FAILED: u32 = 3;

/// Runs `body` with the driver of a machine that targets share.
fn with_targets(test: &str, spec: &str, body: impl FnOnce(&Controller)) {
    match role().as_deref() {
        None => {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("machine");
            let machine = Machine::create(&MachineSpec::parse(spec).unwrap(), &path).unwrap();
            let backed = ("RADRM_EMULATOR_BACKED", "1");
            isolated(test, &[("RADRM_EMULATED_MACHINE", path.to_str().unwrap()), backed], |_| {});
            assert_eq!(machine.memory(0).used, 0, "what processes held comes back with their end");
        }
        Some("main") => {
            common::watchdog();
            let cuda = Cuda::open();
            assert_eq!(call!(cuda, "cuInit"(0 => u32)), 0);
            let path = std::env::var("RADRM_EMULATED_MACHINE").unwrap();
            let machine = Machine::open(Path::new(&path)).unwrap();
            body(&Controller { test: test.to_owned(), path, machine, cuda });
        }
        Some("target") => target(Cuda::open()),
        Some(order) => {
            // A caller that is to be killed while it is at it.
            common::watchdog();
            let cuda = Cuda::open();
            assert_eq!(call!(cuda, "cuInit"(0 => u32)), 0);
            let (name, pid) = order.split_once(' ').unwrap();
            println!("begun");
            println!("done {}", operate(cuda, name, pid.parse().unwrap(), 0));
        }
    }
}

extern "C" fn nap(ms: *mut c_void) {
    std::thread::sleep(Duration::from_millis(ms as u64));
}

/// Does what its standard input says, a line at a time, and answers each.
fn target(cuda: Cuda) {
    common::watchdog();
    begin(cuda, 0);
    let mut held = Vec::new();
    println!("ready");
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let (word, number) = line.split_once(' ').unwrap();
        let number: u64 = number.parse().unwrap();
        let answer = match word {
            "alloc" => match alloc(cuda, number as usize) {
                Ok(address) => {
                    held.push((address, number));
                    0
                }
                Err(code) => u64::from(code),
            },
            "free" => u64::from(free(cuda, held.pop().unwrap().0)),
            "fill" => {
                let (address, bytes) = *held.last().unwrap();
                u64::from(
                    call!(cuda, "cuMemsetD8_v2"(address => u64, number as u8 => u8, bytes as usize => usize)),
                )
            }
            "sum" => {
                let mut bytes = vec![0u8; number as usize];
                let address = held.last().unwrap().0;
                let (to, from) = (bytes.as_mut_ptr().cast::<c_void>(), address);
                assert_eq!(
                    call!(cuda, "cuMemcpyDtoH_v2"(to => *mut c_void, from => u64, bytes.len() => usize)),
                    0
                );
                bytes.iter().map(|byte| u64::from(*byte)).sum()
            }
            "managed" => {
                let mut address = 0u64;
                let out = &mut address;
                u64::from(
                    call!(cuda, "cuMemAllocManaged"(out => *mut u64, number as usize => usize, 1 => u32)),
                )
            }
            "event" => ipc_event(cuda),
            "nap" => {
                let (none, ms) = (std::ptr::null_mut(), number as *mut c_void);
                let call = nap as extern "C" fn(*mut c_void);
                u64::from(
                    call!(cuda, "cuLaunchHostFunc"(none => *mut c_void, call => extern "C" fn(*mut c_void), ms => *mut c_void)),
                )
            }
            other => panic!("{other}"),
        };
        println!("{answer}");
    }
}

fn ipc_event(cuda: Cuda) -> u64 {
    let mut event: *mut c_void = std::ptr::null_mut();
    let mut handle = [0u8; 64];
    assert_eq!(call!(cuda, "cuEventCreate"(&mut event => *mut *mut c_void, 6 => u32)), 0);
    u64::from(call!(cuda, "cuIpcGetEventHandle"(handle.as_mut_ptr() => *mut u8, event => *mut c_void)))
}

fn operate(cuda: Cuda, name: &str, pid: i32, timeout: u32) -> u32 {
    let mut lock = [0u32; 16];
    lock[0] = timeout;
    match name {
        "lock" => call!(cuda, "cuCheckpointProcessLock"(pid => i32, lock.as_ptr() => *const u32)),
        "checkpoint" => {
            call!(cuda, "cuCheckpointProcessCheckpoint"(pid => i32, std::ptr::null() => *const u8))
        }
        "restore" => call!(cuda, "cuCheckpointProcessRestore"(pid => i32, std::ptr::null() => *const u8)),
        "unlock" => call!(cuda, "cuCheckpointProcessUnlock"(pid => i32, std::ptr::null() => *const u8)),
        other => panic!("{other}"),
    }
}

struct Controller {
    test: String,
    path: String,
    machine: Machine,
    cuda: Cuda,
}

impl Controller {
    fn start(&self, role: &str) -> Child {
        let machine = ("RADRM_EMULATED_MACHINE", self.path.as_str());
        start(&self.test, role, &[machine, ("RADRM_EMULATOR_BACKED", "1")])
    }

    fn target(&self) -> Target {
        let mut child = self.start("target");
        let to = child.stdin.take().unwrap();
        let out = child.stdout.take().unwrap();
        let (give, from) = channel();
        std::thread::spawn(move || {
            // The test harness prints before the target does, without a line's end.
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                let word = line.rsplit(' ').next().unwrap_or_default().to_owned();
                if give.send(word).is_err() {
                    return;
                }
            }
        });
        let target = Target { child, to, from };
        while target.from.recv().unwrap() != "ready" {}
        target
    }

    fn op(&self, name: &str, target: &Target) -> u32 {
        operate(self.cuda, name, target.pid(), 20_000)
    }

    #[track_caller]
    fn ok(&self, names: &[&str], target: &Target) {
        for name in names {
            assert_eq!(self.op(name, target), 0, "{name}");
        }
    }

    fn state(&self, target: &Target) -> Result<u32, u32> {
        let mut state = 77;
        let pid = target.pid();
        match call!(self.cuda, "cuCheckpointProcessGetState"(pid => i32, &mut state => *mut u32)) {
            0 => Ok(state),
            code => Err(code),
        }
    }

    fn used(&self) -> u64 {
        self.machine.memory(0).used
    }
}

struct Target {
    child: Child,
    to: ChildStdin,
    from: Receiver<String>,
}

impl Target {
    fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    fn tell(&mut self, word: &str, number: u64) {
        writeln!(self.to, "{word} {number}").unwrap();
    }

    fn answer(&self) -> u64 {
        self.from.recv_timeout(Duration::from_secs(30)).unwrap().parse().unwrap()
    }

    fn ask(&mut self, word: &str, number: u64) -> u64 {
        self.tell(word, number);
        self.answer()
    }

    fn is_silent(&self) -> bool {
        self.from.recv_timeout(Duration::from_millis(200)).is_err()
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_checkpointed_process_holds_nothing_and_goes_on_with_its_data() {
    with_targets("a_checkpointed_process_holds_nothing_and_goes_on_with_its_data", "T4", |here| {
        let mut target = here.target();
        assert_eq!(target.ask("alloc", 64 * MIB), 0);
        assert_eq!(target.ask("fill", 3), 0);
        let used = here.used();
        assert!(used > 64 * MIB && here.state(&target) == Ok(RUNNING));
        here.ok(&["lock"], &target);
        assert_eq!((here.state(&target), here.used()), (Ok(LOCKED), used));
        target.tell("sum", 1000);
        assert!(target.is_silent(), "calls of a locked process block");
        here.ok(&["checkpoint"], &target);
        assert_eq!((here.state(&target), here.used()), (Ok(CHECKPOINTED), 0));
        let mut thread = 0;
        let pid = target.pid();
        assert_eq!(
            call!(here.cuda, "cuCheckpointProcessGetRestoreThreadId"(pid => i32, &mut thread => *mut i32)),
            0
        );
        assert_eq!(thread, pid);
        let ledgers = here.machine.ledgers();
        let ledger = ledgers.iter().find(|ledger| ledger.pid == target.child.id()).unwrap();
        assert!(ledger.alive && ledger.checkpoint == CheckpointState::Checkpointed);
        here.ok(&["restore"], &target);
        assert_eq!((here.state(&target), here.used()), (Ok(LOCKED), used));
        assert!(target.is_silent(), "restored is not unlocked");
        here.ok(&["unlock"], &target);
        assert_eq!(target.answer(), 3000);
        assert_eq!(target.ask("free", 0), 0);
        assert!(here.used() < used && here.state(&target) == Ok(RUNNING));
    });
}

#[test]
fn an_operation_in_the_wrong_state_changes_nothing() {
    with_targets("an_operation_in_the_wrong_state_changes_nothing", "T4", |here| {
        let target = here.target();
        let wrong = |names: &[&str], state: u32| {
            for name in names {
                assert_eq!(here.op(name, &target), ILLEGAL_STATE, "{name} in {state}");
                assert_eq!(here.state(&target), Ok(state));
            }
        };
        wrong(&["checkpoint", "restore", "unlock"], RUNNING);
        here.ok(&["lock"], &target);
        wrong(&["lock", "restore"], LOCKED);
        here.ok(&["checkpoint"], &target);
        wrong(&["lock", "checkpoint", "unlock"], CHECKPOINTED);
        for (pid, code) in
            [(0, INVALID_VALUE), (-4, INVALID_VALUE), (i32::MAX, INVALID_VALUE), (1, NOT_INITIALIZED)]
        {
            for name in ["lock", "checkpoint", "restore", "unlock"] {
                assert_eq!(operate(here.cuda, name, pid, 10), code, "{name} of {pid}");
            }
        }
        let (pid, mut args) = (target.pid(), [0u32; 16]);
        args[15] = 1;
        assert_eq!(
            call!(here.cuda, "cuCheckpointProcessUnlock"(pid => i32, args.as_ptr() => *const u32)),
            INVALID_VALUE
        );
        // The first of two pairs of GPUs is not the same GPU twice.
        let pairs = [[0u8; 32], [1u8; 32]];
        let mut other = pairs[0];
        other[3] = 9;
        let mut restore = [0u64; 8];
        (restore[0], restore[1]) = (other.as_ptr().addr() as u64, 1);
        assert_eq!(
            call!(here.cuda, "cuCheckpointProcessRestore"(pid => i32, restore.as_ptr() => *const u64)),
            NOT_SUPPORTED
        );
        (restore[0], restore[1]) = (pairs.as_ptr().addr() as u64, 2);
        assert_eq!(
            call!(here.cuda, "cuCheckpointProcessRestore"(pid => i32, restore.as_ptr() => *const u64)),
            0
        );
        assert_eq!(
            call!(here.cuda, "cuCheckpointProcessGetState"(pid => i32, std::ptr::null_mut() => *mut u32)),
            INVALID_VALUE
        );
    });
}

#[test]
fn a_restore_without_room_fails_for_good() {
    with_targets("a_restore_without_room_fails_for_good", "T4", |here| {
        let (mut target, mut other) = (here.target(), here.target());
        assert_eq!(target.ask("alloc", GIB), 0);
        here.ok(&["lock", "checkpoint"], &target);
        let free = here.machine.memory(0).free;
        assert_eq!(other.ask("alloc", free - GIB), 0);
        let used = here.used();
        assert_eq!(here.op("restore", &target), OUT_OF_MEMORY);
        assert_eq!((here.state(&target), here.used()), (Ok(FAILED), used), "nothing of it is kept");
        assert_eq!(other.ask("free", 0), 0);
        for name in ["restore", "unlock", "lock", "checkpoint"] {
            assert_eq!(here.op(name, &target), ILLEGAL_STATE, "{name}");
        }
    });
}

#[test]
fn a_lock_waits_for_work_and_gives_up_in_time() {
    with_targets("a_lock_waits_for_work_and_gives_up_in_time", "T4", |here| {
        let mut target = here.target();
        assert_eq!(target.ask("nap", 1500), 0);
        assert_eq!(operate(here.cuda, "lock", target.pid(), 100), NOT_READY);
        assert_eq!(here.state(&target), Ok(RUNNING), "as if no lock had been requested");
        assert_eq!(target.ask("alloc", MIB), 0);
        assert_eq!(operate(here.cuda, "lock", target.pid(), 0), 0, "without a time it waits");
        here.ok(&["unlock"], &target);
    });
}

#[test]
fn what_cannot_be_saved_is_refused() {
    with_targets("what_cannot_be_saved_is_refused", "T4", |here| {
        for word in ["managed", "event"] {
            let mut target = here.target();
            assert_eq!(target.ask(word, 4096), 0);
            here.ok(&["lock"], &target);
            assert_eq!(here.op("checkpoint", &target), NOT_SUPPORTED, "{word}");
            assert_eq!(here.state(&target), Ok(LOCKED));
            here.ok(&["unlock"], &target);
            assert_eq!(target.ask("alloc", MIB), 0);
        }
    });
}

#[test]
fn a_target_that_dies_in_any_state_leaves_nothing() {
    with_targets("a_target_that_dies_in_any_state_leaves_nothing", "T4", |here| {
        for steps in [&[][..], &["lock"], &["lock", "checkpoint"], &["lock", "checkpoint", "restore"]] {
            let mut target = here.target();
            assert_eq!(target.ask("alloc", 64 * MIB), 0);
            here.ok(steps, &target);
            target.kill();
            assert_eq!((here.state(&target), here.used()), (Err(INVALID_VALUE), 0), "{steps:?}");
        }
        // In the middle of a copy of 4 GiB, by a caller that lives on.
        for steps in [&["lock"][..], &["lock", "checkpoint"]] {
            let mut target = here.target();
            assert_eq!(target.ask("alloc", 4 * GIB), 0);
            here.ok(steps, &target);
            let next = if steps.len() == 1 { "checkpoint" } else { "restore" };
            let (cuda, pid) = (here.cuda, target.pid());
            let caller = std::thread::spawn(move || operate(cuda, next, pid, 0));
            std::thread::sleep(Duration::from_millis(200));
            target.kill();
            assert_eq!(caller.join().unwrap(), INVALID_VALUE);
            assert_eq!(here.used(), 0, "{next}");
        }
    });
}

#[test]
fn a_caller_that_is_killed_leaves_a_state_that_the_next_one_can_go_on_from() {
    with_targets("a_caller_that_is_killed_leaves_a_state_that_the_next_one_can_go_on_from", "T4", |here| {
        let mut target = here.target();
        assert_eq!(target.ask("alloc", 4 * GIB), 0);
        let used = here.used();
        let killed = |name: &str, target: &Target| {
            let mut caller = here.start(&format!("{name} {}", target.pid()));
            let mut lines = BufReader::new(caller.stdout.take().unwrap()).lines();
            while lines.next().is_some_and(|line| !line.unwrap().ends_with("begun")) {}
            std::thread::sleep(Duration::from_millis(300));
            caller.kill().unwrap();
            caller.wait().unwrap();
            assert!(!lines.map_while(Result::ok).any(|line| line.contains("done")), "{name} was too fast");
        };
        assert_eq!(target.ask("nap", 2000), 0);
        killed("lock", &target);
        assert_eq!(target.ask("alloc", MIB), 0, "calls go on by themselves");
        assert_eq!((target.ask("free", 0), here.state(&target)), (0, Ok(RUNNING)));
        here.ok(&["lock"], &target);
        killed("checkpoint", &target);
        assert_eq!((here.state(&target), here.used()), (Ok(CHECKPOINTED), 0));
        killed("restore", &target);
        assert_eq!((here.state(&target), here.used()), (Ok(CHECKPOINTED), 0));
        here.ok(&["restore", "unlock"], &target);
        assert_eq!((here.state(&target), here.used()), (Ok(RUNNING), used));
        assert_eq!(target.ask("free", 0), 0);
    });
}

#[test]
fn a_process_can_do_it_to_itself() {
    with_targets("a_process_can_do_it_to_itself", "T4", |here| {
        begin(here.cuda, 0);
        let used = here.used();
        let own = std::process::id() as i32;
        for (name, left) in [("lock", used), ("checkpoint", 0), ("restore", used), ("unlock", used)] {
            assert_eq!(operate(here.cuda, name, own, 1000), 0, "{name}");
            assert_eq!(here.used(), left, "{name}");
        }
        alloc(here.cuda, 4096).unwrap();
    });
}
