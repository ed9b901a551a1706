//! SM activity by the shapes and times of launches, against the emulator's ledgers, which know what was at work on each
//! GPU's multiprocessors from the emulator's own placement of blocks.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use radrm_collector::work;
use radrm_emulator_machine::SmWork;
use radrm_preload_tests::{artifacts, child::Running, programs, rig::Rig};
use radrm_profile::model::KernelActivity;
use radrm_telemetry::{Filling, SegmentFile, monotonic_ns};

/// Of kernels that take longer than what is launched with them, 20 us and more; the others take as long as their waves.
const TIMES: &str =
    "kernel0 20000\nkernel1 45000\nkernel2 80000\nkernel3 150000\nkernel4 400000\nkernel5 30000\n";

/// Points between what the shim says of a run and what was; and of a window, where a few timed launches have to do, in
/// seven of nine. In none are there three times as many.
const POINTS: f64 = 5.0;

const WINDOW: Duration = Duration::from_secs(2);

/// SM activity and occupancy in a window, in per cent.
#[derive(Clone, Copy, Debug)]
struct Seen {
    ours: [f64; 2],
    known: [f64; 2],
}

impl Seen {
    fn differs(&self) -> [f64; 2] {
        [0, 1].map(|part| (self.ours[part] - self.known[part]).abs())
    }
}

/// Windows of a run of the mixed load, and the whole of it.
fn windows(rig: &Rig, seed: u64, count: u32) -> (Vec<Seen>, Seen) {
    let times = rig.path().join("times");
    fs::write(&times, TIMES).expect("kernel times");
    let segment = SegmentFile::create_unnamed(1).expect("segment");
    let mut command: Command = rig.bare_command(programs::compile("sm_load.c", &[]));
    let seconds = WINDOW.as_secs_f64() * f64::from(count) + 1.0;
    command
        .args([seed.to_string(), seconds.to_string()])
        .env("RADRM_EMULATOR_TIME", "real")
        .env("RADRM_EMULATOR_KERNEL_TIMES", &times)
        .env("RADRM_SEGMENT", segment.path())
        .env("LD_PRELOAD", artifacts::file("libradrm.so"))
        .env("RADRM_KERNELS", "sample");
    let mut running = Running::start(command, 120);
    assert_eq!(running.line().trim_end(), "ready");
    let (machine, pid) = (rig.machine(), running.pid());
    let spec = machine.gpu(0).expect("a GPU");
    let (sms, warps) = (f64::from(spec.sms), f64::from(spec.max_threads_per_sm / 32));
    let look = || {
        let now = monotonic_ns();
        let processes = segment.segment().expect("own segment").processes().expect("processes");
        let process = processes.first().expect("the program");
        (now, work(process), machine.sm_work_of(pid, 0, now))
    };
    let seen = |from: (u64, KernelActivity, SmWork), to: (u64, KernelActivity, SmWork)| {
        let ns = (to.0 - from.0) as f64;
        let (work, known) = (to.1.since(from.1), to.2.since(from.2));
        Seen {
            ours: [work.active.0, work.resident.0].map(|part| part as f64 / ns * 100.0),
            known: [known.active as f64 / sms, known.resident as f64 / sms / warps].map(|n| n / ns * 100.0),
        }
    };
    let first = look();
    let mut looks = vec![first];
    let begun = Instant::now();
    for n in 1..=count {
        thread::sleep((WINDOW * n).saturating_sub(begun.elapsed()));
        looks.push(look());
    }
    let whole = seen(first, looks[looks.len() - 1]);
    running.end().ok();
    (looks.windows(2).map(|pair| seen(pair[0], pair[1])).collect(), whole)
}

/// At the default budget, with kernels of many shapes one after another and side by side, in graphs, with gaps and copies.
#[test]
fn sampled_sm_activity_is_within_five_points_of_what_was_at_work() {
    let rig = Rig::emulated("1xH200");
    let mut largest = [0.0_f64; 2];
    let mut beyond = 0;
    let mut known = Vec::new();
    for seed in [4, 7, 9] {
        let (windows, whole) = windows(&rig, seed, 3);
        for seen in windows.iter().chain([&whole]) {
            eprintln!("seed {seed}: {seen:.1?}");
            known.push(seen.known[0]);
        }
        assert!(whole.differs().iter().all(|points| *points <= POINTS), "seed {seed}: {whole:?}");
        for seen in &windows {
            let points = seen.differs();
            beyond += usize::from(points.iter().any(|points| *points > POINTS));
            largest = [0, 1].map(|part| largest[part].max(points[part]));
        }
    }
    eprintln!("largest differences: {largest:.2?} points");
    assert!(beyond <= 2 && largest.iter().all(|points| *points <= 3.0 * POINTS), "{beyond}: {largest:?}");
    let (least, most) =
        (known.iter().copied().fold(100.0, f64::min), known.iter().copied().fold(0.0, f64::max));
    // How far they lie apart depends on how fast the machine launches: what must not be is one window nine times.
    assert!(least > 1.0 && most < 95.0 && most - least > 2.0, "windows of many sorts: {known:?}");
}

/// Counts of a GPU for a kernel that squares numbers, launched again and again with so many blocks of so many
/// threads.
struct Counted {
    blocks: u64,
    threads: u64,
    /// Share of the time in which the GPU's compute engine was at work, and SM activity (DCGM).
    gract: f64,
    smact: f64,
    /// SM activity while blocks run, by the shape of the launch.
    shape: f64,
}

/// Figures of an A100 with 40 GB, for 12 numbers of blocks by 7 of threads; `None` where they are not at hand.
fn counted_on_a100() -> Option<Vec<Counted>> {
    let file =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/pmdlt/square_metrics_mean_a100.csv");
    let text = fs::read_to_string(file).ok()?;
    let row = |line: &str| {
        let cells: Vec<f64> = line.split(',').map(|cell| cell.parse().expect("a number")).collect();
        let [_, blocks, threads, _, _, _, gract, smact, _] = cells[..] else { panic!("{line}") };
        let (blocks, threads) = (blocks as u64, threads as u64);
        // An A100 has 108 multiprocessors that hold 64 warps each, in at most 32 blocks.
        let held = 32.min(64 / threads.div_ceil(32));
        let shape = Filling::of(blocks, threads, held, 108, 2048).expect("a launch").active;
        Counted { blocks, threads, gract, smact, shape }
    };
    Some(text.lines().skip(1).map(row).collect())
}

/// The kernels of these figures do next to nothing: for most of the time in which the compute engine is at work no block
/// is there, because launches and copies keep it at work too. So the shape times the engine's time is the
/// most that there can be and no estimate; what it says is seen where the kernels are long, and in how the shapes compare.
#[test]
fn shapes_bound_and_compare_what_an_a100_counted() {
    let Some(all) = counted_on_a100() else {
        eprintln!("skipped: no figures of the square kernel");
        return;
    };
    assert_eq!(all.len(), 84);
    for c in &all {
        assert!(c.smact <= c.shape * c.gract + 0.005, "{} x {}: {}", c.blocks, c.threads, c.smact);
    }
    // One block keeps as much of one multiprocessor busy as 128 keep of all.
    let duty = |blocks: u64, threads: u64| {
        let c = all.iter().find(|c| (c.blocks, c.threads) == (blocks, threads)).expect("the cell");
        c.smact / (c.shape * c.gract)
    };
    for threads in [1, 8, 32, 128, 256, 512, 1024] {
        let (one, many) = (duty(1, threads), duty(128, threads));
        assert!((one / many - 1.0).abs() < 0.15, "{threads} threads: {one:.3} and {many:.3}");
    }
    // Of many large blocks the time between kernels is little.
    let long = all.iter().filter(|c| c.threads == 1024 && c.blocks >= 16_384);
    for c in long {
        assert!((c.shape * c.gract - c.smact).abs() < 0.05, "{} x {}: {}", c.blocks, c.threads, c.smact);
    }
    let points = |c: &Counted| (c.shape * c.gract - c.smact).abs() * 100.0;
    let mean = all.iter().map(points).sum::<f64>() / all.len() as f64;
    eprintln!("the shape times GRACT is {mean:.1} points off SMACT on average");
}
