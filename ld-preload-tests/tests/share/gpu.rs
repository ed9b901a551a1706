//! Batches on an emulated GPU, in processes of their own: the same bytes for all, charged once.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use radrm_preload_tests::child::{self, Ended, Running};
use radrm_preload_tests::rig::Rig;
use radrm_preload_tests::{artifacts, python};
use radrm_profile::model::{Account, Kind};

use super::{PATIENCE, program, users};

const MIB: u64 = 1 << 20;
/// A slot on the GPU.
const SLOT: u64 = 2 * MIB;
/// The producer's ring.
const RING: u64 = 4 * SLOT;

/// A case of the client under `radrm-run` with these options; with device memory that has pages, or none.
fn passes(interpreter: Option<&Path>, options: &[&str], backed: bool, case: &str) {
    let runtime = tempfile::tempdir().expect("folder");
    let Some(command) = program(runtime.path(), "share_gpu.py", &[case]) else { return };
    let mut launched = Command::new(artifacts::file("radrm-run"));
    launched.args(options).args(["--no-profile", "--no-dataset", "-q", "--"]);
    launched.arg(interpreter.unwrap_or(Path::new(command.get_program()))).args(command.get_args());
    for (name, value) in command.get_envs().filter_map(|(name, value)| Some((name, value?))) {
        launched.env(name, value);
    }
    if backed {
        launched.env("RADRM_EMULATOR_BACKED", "1");
    }
    let ended = child::run(launched, PATIENCE).ok();
    assert!(ended.stdout.ends_with(&format!("ok {case}\n")), "{}", ended.stdout);
}

#[test]
fn arrays_on_a_gpu_are_read_by_dlpack_and_held_until_they_go() {
    passes(None, &["--emulate", "A100-40GB"], true, "arrays_by_dlpack");
}

#[test]
fn what_a_gpu_does_not_have_stays_on_the_host_or_is_refused() {
    passes(None, &["--emulate", "A100-40GB"], true, "what_a_gpu_does_not_have");
}

#[test]
fn batches_on_a_gpu_are_cut_to_other_sizes() {
    passes(None, &["--emulate", "A100-40GB"], true, "other_sizes");
}

#[test]
fn tensors_on_a_gpu_are_pytorchs_own() {
    let Some(torch) = python::torch() else { return };
    // Only where device memory has pages do bytes arrive, and only where it has none does a copy return before what it
    // waits for.
    for backed in [true, false] {
        passes(Some(&torch), &["--dry-run"], backed, "tensors");
    }
}

/// Programs on one emulated machine, in one job.
struct Node {
    rig: Rig,
    runtime: tempfile::TempDir,
}

impl Node {
    fn new(rig: Rig) -> Option<Self> {
        python::interpreter()?;
        Some(Self { rig, runtime: tempfile::tempdir().expect("folder") })
    }

    fn command(&self, words: &[&str]) -> Command {
        let client = program(self.runtime.path(), "share_gpu.py", words).expect("an interpreter");
        let mut command = self.rig.command(client.get_program());
        command.args(client.get_args());
        for (name, value) in client.get_envs().filter_map(|(name, value)| Some((name, value?))) {
            command.env(name, value);
        }
        command.env("RADRM_EMULATOR_BACKED", "1");
        command
    }

    fn start(&self, words: &[&str]) -> Running {
        let mut running = Running::start(self.command(words), PATIENCE);
        running.until_ready();
        running
    }

    /// A producer of so many epochs of 20 batches, which begins with the first consumers.
    fn produce(&self, epochs: &str, consumers: &str, pause: &str) -> Running {
        self.start(&["produce", "gpu", epochs, "20", consumers, pause])
    }

    fn consume(&self, epochs: &str) -> Running {
        self.start(&["consume", "gpu", epochs])
    }

    /// A consumer that goes on after each epoch when it is let: until then the producer waits for it.
    fn consume_paced(&self, epochs: &str) -> Running {
        self.start(&["consume", "gpu", epochs, "paced"])
    }

    /// Waits until so much memory of the GPU is used.
    fn until_used(&self, expected: impl Fn(u64) -> bool) {
        let began = Instant::now();
        while !expected(self.rig.machine().memory(0).used) {
            let used = self.rig.machine().memory(0).used;
            assert!(began.elapsed() < Duration::from_secs(PATIENCE), "{} MiB are used", used / MIB);
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Lines `epoch NUMBER DIGEST` of a consumer.
fn epochs(ended: Ended) -> Vec<String> {
    ended.ok().stdout.lines().filter(|line| line.starts_with("epoch ")).map(str::to_owned).collect()
}

#[test]
fn batches_on_a_gpu_are_equal_for_all_and_charged_once() {
    // Four contexts and one ring fit, with a slot for the batch that each consumer may keep, and no second ring.
    let most = RING + 3 * SLOT;
    let limit = format!("{}MiB", (4 * context() + most) / MIB + 1);
    let Some(mut node) = Node::new(Rig::emulated("A100-40GB").limited(&limit)) else { return };
    let producer = node.produce("3", "2", "0");
    let (mut first, second) = (node.consume_paced("3"), node.consume("3"));
    let begun = first.line();
    let late = node.consume("1");
    (0..3).for_each(|_| first.go_on());
    let (first, second, late) = (epochs(first.end()), epochs(second.end()), epochs(late.end()));
    producer.end().ok();
    assert!(begun.trim_end() == second[0] && first == second[1..], "{begun:?} {first:?} {second:?}");
    assert!(late.len() == 1 && second[1..].contains(&late[0]), "{late:?} of {second:?}");
    let outcome = node.rig.end_session();
    assert_eq!(outcome.assert_equals_ledger(), 4);
    let accounts = outcome.profile.processes.iter().flat_map(|process| &process.state.accounts);
    let peak = |kind: Kind| move |account: &Account| account.kinds[kind.index()].peak.0;
    let mut peaks: Vec<(u64, u64)> =
        accounts.map(|account| (peak(Kind::Vmm)(account), peak(Kind::Imported)(account))).collect();
    peaks.sort_unstable();
    let (producer, consumers) = peaks.split_last().expect("four processes");
    assert!((RING..=most).contains(&producer.0) && producer.1 == 0, "{peaks:?}");
    assert!(consumers.iter().all(|(own, imported)| *own == 0 && (1..=most).contains(imported)), "{peaks:?}");
}

/// Memory of a process's context on the emulated GPU.
fn context() -> u64 {
    let rig = Rig::emulated("A100-40GB");
    let interpreter = python::interpreter();
    let Some(interpreter) = interpreter else { return 0 };
    let code = "import ctypes; c = ctypes.CDLL('libcuda.so.1'); p = ctypes.c_void_p(); \
        assert not c.cuInit(0) and not c.cuDevicePrimaryCtxRetain(ctypes.byref(p), 0)";
    let mut command = rig.bare_command(interpreter);
    command.args(["-c", code]);
    child::run(command, PATIENCE).ok();
    rig.ledgers().iter().filter_map(|ledger| ledger.gpu(0)).map(|gpu| gpu.held_peak).sum()
}

#[test]
fn a_killed_consumer_of_a_gpu_harms_no_other() {
    let Some(node) = Node::new(Rig::emulated("A100-40GB")) else { return };
    let producer = node.produce("4", "2", "0");
    let (mut stays, mut dies) = (node.consume_paced("4"), node.consume_paced("4"));
    assert_eq!(stays.line(), dies.line());
    // It holds its last batch, and has been sent others.
    dies.kill();
    let later = node.consume("1");
    (0..4).for_each(|_| stays.go_on());
    let (stays, later) = (epochs(stays.end()), epochs(later.end()));
    producer.end().ok();
    assert_eq!(stays.len(), 3);
    assert!(later.len() == 1 && stays.contains(&later[0]), "{later:?} of {stays:?}");
    node.until_used(|used| used == 0);
}

#[test]
fn the_death_of_a_gpus_producer_is_raised_and_frees_its_memory() {
    let Some(node) = Node::new(Rig::emulated("A100-40GB")) else { return };
    let producer = node.produce("1000", "2", "0.01");
    let mut consumers = [node.consume("1000"), node.consume("1000")];
    for consumer in &mut consumers {
        assert!(consumer.line().starts_with("epoch 0 "));
    }
    assert!(node.rig.machine().memory(0).used >= RING);
    producer.kill();
    for consumer in consumers {
        let ended = consumer.end().ok();
        assert!(ended.stdout.contains("\ndied\n") || ended.stdout.starts_with("died\n"), "{}", ended.stdout);
    }
    node.until_used(|used| used == 0);
}

#[test]
fn a_program_without_the_gpu_gets_an_error_that_says_so() {
    let Some(node) = Node::new(Rig::emulated("2xA100-40GB")) else { return };
    let producer = node.produce("1", "1", "0");
    let tries = |command: Command| {
        let text = child::run(command, PATIENCE).ok().stdout;
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let words = ["a_gpu_that_a_program_does_not_see"];
    let mut other = node.command(&words);
    other.env("CUDA_VISIBLE_DEVICES", "1");
    let uuid = node.rig.machine().spec().uuid_text(0);
    let uuid = uuid.trim_start_matches("GPU-");
    let found = tries(other);
    assert_eq!(found[0], format!("the batches lie on GPU-{uuid}, which this program does not see"));
    assert_eq!(found[1], "none", "the other GPU is its cuda:0");
    let mut none = node.command(&words);
    none.env("CUDA_VISIBLE_DEVICES", "");
    let [consumer, producing, _] = &tries(none)[..] else { panic!("three lines") };
    assert!(consumer.contains("CUDA_ERROR_NO_DEVICE"), "{consumer}");
    assert!(producing.contains("CUDA_ERROR_NO_DEVICE"), "{producing}");
    let mut without = node.command(&words);
    without.env_remove("LD_LIBRARY_PATH").env_remove("LD_PRELOAD");
    for line in &tries(without)[..2] {
        // A machine with a GPU of its own has a driver all the same.
        assert!(line.contains("driver") || line.contains("GPU"), "{line}");
    }
    // A refused program counts as no consumer, so the producer goes on with one that sees the GPU.
    assert_eq!(epochs(node.consume("1").end()).len(), 1);
    producer.end().ok();
}

#[test]
fn another_user_is_kept_out_of_a_gpus_batches() {
    if !users::is_there_another() {
        return;
    }
    let Some(node) = Node::new(Rig::emulated("A100-40GB")) else { return };
    let producer = node.produce("1", "1", "0");
    users::is_kept_out(node.runtime.path(), "gpu");
    assert_eq!(epochs(node.consume("1").end()).len(), 1);
    producer.end().ok();
}
