//! One machine, many processes: figures stay exact whichever process is killed when.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use radrm_emulator_machine::{
    HOLD_GRANULE, Kind, Machine, MachineError, MachineSpec, SharedKind, SharedObject,
};

const ROLE: &str = "RADRM_MACHINE_TEST_ROLE";
const MIB: u64 = 1 << 20;

fn make(text: &str) -> (tempfile::TempDir, Machine) {
    let folder = tempfile::tempdir().unwrap();
    let machine = Machine::create(&MachineSpec::parse(text).unwrap(), &folder.path().join("m")).unwrap();
    (folder, machine)
}

fn start(test: &str, machine: &Machine) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(ROLE, machine.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// The machine of a child's role; the child ends after a minute whatever it does.
fn role() -> Option<Machine> {
    let path = std::env::var_os(ROLE)?;
    // SAFETY: the default action of the signal ends the process.
    unsafe { libc::alarm(60) };
    Some(Machine::open(Path::new(&path)).unwrap())
}

#[test]
fn a_file_is_private_complete_and_not_overwritten() {
    use std::os::unix::fs::PermissionsExt;
    let (folder, machine) = make("2xH200");
    let mode = std::fs::metadata(machine.path()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(matches!(Machine::create(machine.spec(), machine.path()), Err(MachineError::Io { .. })));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "no draft is left");
    assert_eq!(Machine::open(machine.path()).unwrap().spec(), machine.spec());
    let other = folder.path().join("other");
    std::fs::write(&other, b"something else").unwrap();
    assert!(matches!(Machine::open(&other), Err(MachineError::Foreign { .. })));
    assert!(matches!(Machine::open(&folder.path().join("none")), Err(MachineError::Io { .. })));
    let astray = folder.path().join("none/m");
    let Err(error) = Machine::create(machine.spec(), &astray) else { panic!("made") };
    assert!(error.to_string().contains(&format!("{}: ", astray.display())), "{error}");
}

#[test]
fn charges_are_exact_and_ledgers_outlive_their_process() {
    let (_folder, machine) = make("T4");
    let total = machine.memory(0).total;
    {
        let process = machine.join().unwrap();
        process.charge(0, Kind::Device, 5, HOLD_GRANULE).unwrap();
        process.charge(0, Kind::Managed, total * 2, total * 2).unwrap();
        assert_eq!(machine.memory(0).used, HOLD_GRANULE, "managed memory is not charged");
        let error = process.charge(0, Kind::Vmm, total, total).unwrap_err();
        assert_eq!((error.wanted, error.free), (total, total - HOLD_GRANULE));
        process.charge(0, Kind::Vmm, 7, total - HOLD_GRANULE).unwrap();
        assert_eq!(machine.memory(0).free, 0);
        process.discharge(0, Kind::Vmm, 7, total - HOLD_GRANULE);
        process.discharge(0, Kind::Device, 2, 0);
    }
    assert_eq!(machine.memory(0).used, 0);
    let ledgers = machine.ledgers();
    let ledger = ledgers[0].gpu(0).unwrap();
    assert!(!ledgers[0].alive && ledgers[0].pid == std::process::id());
    assert_eq!((ledger.total_requested_now, ledger.total_requested_peak), (3, 12));
    assert_eq!((ledger.held_now, ledger.held_peak), (0, total));
    assert_eq!(ledger.kind(Kind::Vmm).requested_peak, 7);
    assert!(radrm_emulator_machine::ledgers_to_json(&ledgers).contains("\"total_requested_peak\":12"));
}

#[test]
fn two_that_ask_for_most_of_a_gpu_never_both_get_it() {
    let rounds = 3000;
    if let Some(machine) = role() {
        let process = machine.join().unwrap();
        let total = machine.memory(0).total;
        let want = total / 10 * 6;
        let mut got = 0;
        for _ in 0..rounds {
            if process.charge(0, Kind::Device, want, want).is_ok() {
                got += 1;
                assert!(machine.memory_now(0).used <= total);
                process.discharge(0, Kind::Device, want, want);
            }
        }
        println!("got {got}");
        return;
    }
    let (_folder, machine) = make("T4");
    let children: Vec<Child> =
        (0..2).map(|_| start("two_that_ask_for_most_of_a_gpu_never_both_get_it", &machine)).collect();
    // What is charged is never more than there is, withdrawn requests apart: those are added and taken
    // back, so a glance may see them, but a charge that was granted is checked in the children.
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success());
        assert!(!String::from_utf8_lossy(&output.stdout).contains("got 0\n"), "no process starves");
    }
    let peaks: Vec<u64> = machine.ledgers().iter().map(|b| b.gpu(0).unwrap().held_peak).collect();
    assert_eq!(peaks.len(), 2);
    assert!(peaks.iter().all(|p| *p == machine.memory(0).total / 10 * 6), "{peaks:?}");
}

#[test]
fn killed_at_any_moment_nothing_is_lost_or_kept() {
    let test = "killed_at_any_moment_nothing_is_lost_or_kept";
    if let Some(machine) = role() {
        let process = machine.join().unwrap();
        println!("joined");
        loop {
            let _ = process.charge(0, Kind::Device, MIB, 64 * MIB);
            process.discharge(0, Kind::Device, MIB, 64 * MIB);
        }
    }
    let (_folder, machine) = make("T4");
    for round in 0..40u64 {
        let mut child = start(test, &machine);
        let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
        assert!(lines.any(|l| l.unwrap().contains("joined")));
        std::thread::sleep(std::time::Duration::from_micros(37 * round % 500));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(machine.memory(0).used, 0, "round {round}");
        let ledgers = machine.ledgers();
        let ledger = ledgers.last().unwrap();
        assert_eq!(ledger.pid, child.id());
        assert!(ledger.gpu(0).is_none_or(|g| g.total_requested_now <= MIB), "one call was under way at most");
    }
    assert_eq!(machine.ledgers().len(), 40);
}

#[test]
fn execve_gives_memory_back() {
    if let Some(machine) = role() {
        let process = machine.join().unwrap();
        process.charge(0, Kind::Device, MIB, 64 * MIB).unwrap();
        println!("joined");
        use std::os::unix::process::CommandExt;
        let error = Command::new("sleep").arg("60").exec();
        panic!("{error}");
    }
    let (_folder, machine) = make("T4");
    let mut child = start("execve_gives_memory_back", &machine);
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    assert!(lines.any(|l| l.unwrap().contains("joined")));
    // The program of sleep's image holds nothing, although its process is the same.
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while machine.memory(0).used != 0 {
        assert!(std::time::Instant::now() < deadline, "still {:?}", machine.memory(0));
        std::thread::yield_now();
    }
    assert!(child.try_wait().unwrap().is_none(), "the process lives on");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn offers_end_with_their_owner() {
    let (_folder, machine) = make("T4");
    let process = machine.join().unwrap();
    let object = SharedObject { kind: SharedKind::Memory, gpu: 0, size: 9, address: 77, extra: 1, pid: 0 };
    let (a, b) = (process.offer(object).unwrap(), process.offer(object).unwrap());
    assert_eq!(machine.object(a).unwrap(), SharedObject { pid: std::process::id(), ..object });
    process.withdraw(a);
    assert_eq!(machine.object(a), None);
    let again = process.offer(object).unwrap();
    assert_eq!((again.index, machine.object(a)), (a.index, None), "a place is used again, a name is not");
    drop(process);
    assert_eq!((machine.object(b), machine.object(again)), (None, None));
}

#[test]
fn load_counts_who_is_busy_now() {
    let (_folder, machine) = make("2xT4");
    let process = machine.join().unwrap();
    process.set_busy(1, 1000, 3, 250);
    let load = machine.load(1, 999, None);
    assert_eq!((load.processes, load.streams, load.demand_permille), (1, 3, 250));
    assert_eq!(machine.load(1, 1000, None).processes, 0);
    assert_eq!(machine.load(0, 0, None).processes, 0);
    assert_eq!(machine.load(1, 0, Some(&process)).processes, 0);
}
