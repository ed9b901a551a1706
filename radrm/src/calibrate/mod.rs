//! `radrm calibrate --mps`: a program's speed at parts of a GPU's multiprocessors, measured while the GPU is idle.

mod error;

use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use radrm_base::batch;
use radrm_collector::dataset::{Dataset, MeasuredShares, ProgramKey, program_name};
use radrm_limits::jobs::{self, Job};
use radrm_os::nvml::{Nvml, NvmlSource};
use radrm_protocol::words;
use radrm_scheduler_core::interference::ShareCurve;
use radrm_text::{Table, right};
use serde_json::json;

pub(crate) use error::CalibrateError;

use crate::client::text;
use crate::error::Failure;
use crate::show::dataset::{in_file, path};
use crate::{print, print_json};

/// Interval at which launches are counted.
const POLL: Duration = Duration::from_millis(100);
/// Longest time of a program to its first launch.
const MAX_START: Duration = Duration::from_secs(300);
/// Longest time of a program to its end after SIGTERM.
const MAX_END: Duration = Duration::from_secs(20);
/// Rates at 100 % before and after the parts that differ by more are no measurement.
const MAX_DRIFT: f64 = 0.1;

/// Options of `radrm calibrate`.
#[derive(Args, Debug)]
pub(crate) struct Flags {
    /// Measure under MPS, at several parts of the multiprocessors
    #[arg(long, required = true)]
    mps: bool,
    /// Parts beside 100, per cent
    #[arg(long, value_name = "PERCENT,...", value_delimiter = ',', default_values_t = [10u8, 25, 50, 75],
          value_parser = clap::value_parser!(u8).range(1..=99))]
    shares: Vec<u8>,
    /// Time that launches are counted for at each part
    #[arg(long, value_name = "TIME", value_parser = text::span, default_value = "20s")]
    time: u64,
    /// Time from the first launch until they are counted
    #[arg(long, value_name = "TIME", value_parser = text::span, default_value = "5s")]
    warm_up: u64,
    /// Samples in a batch, if the command line does not name it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    batch_size: Option<u32>,
    /// The file of an emulated machine, as radrm-run takes it
    #[arg(long, value_name = "FILE")]
    machine: Option<PathBuf>,
    /// Another dataset than the user's: /var/lib/radrm/dataset.db is that of radrmd
    #[arg(long, value_name = "FILE")]
    dataset: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Program and arguments, as they will be submitted
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    program: Vec<String>,
}

/// A program that runs; it is ended when this goes.
struct Running {
    child: Child,
}

impl Drop for Running {
    fn drop(&mut self) {
        let group = self.child.id().cast_signed();
        // SAFETY: plain system calls; the child leads its group and was not waited for.
        unsafe { libc::kill(group, libc::SIGTERM) };
        let begun = Instant::now();
        while begun.elapsed() < MAX_END && matches!(self.child.try_wait(), Ok(None)) {
            thread::sleep(POLL);
        }
        if matches!(self.child.try_wait(), Ok(None)) {
            // SAFETY: as above.
            unsafe { libc::kill(-group, libc::SIGKILL) };
        }
        let _ = self.child.wait();
    }
}

/// Launches of all processes so far.
fn launches(job: &Job) -> u64 {
    let processes = job.segment.processes().unwrap_or_default();
    let kernels = processes.iter().flat_map(|process| &process.kernels);
    kernels.fold(0, |sum, kernel| sum.saturating_add(kernel.launches + kernel.graph_launches))
}

impl Flags {
    fn start(&self, percent: u8) -> Result<Running, CalibrateError> {
        let cannot = |what| move |source| CalibrateError::Io { what, source };
        let own = std::env::current_exe().map_err(cannot("radrm-run is not found"))?;
        let mut command = Command::new(own.with_file_name("radrm-run"));
        command.args(["--quiet", "--no-dataset", "--no-profile"]).arg(format!("--mps={percent}"));
        if let Some(machine) = &self.machine {
            command.arg("--machine").arg(machine);
        }
        command.arg("--").args(&self.program);
        // What it prints is not what this command says.
        command.stdin(Stdio::null()).stdout(Stdio::null()).process_group(0);
        command.spawn().map(|child| Running { child }).map_err(cannot("radrm-run cannot be started"))
    }

    /// Launches in a second at a part, and the model of the GPU.
    fn rate(&self, percent: u8) -> Result<(f64, String), CalibrateError> {
        let mut running = self.start(percent)?;
        let begun = Instant::now();
        let mut job = None;
        let mut first: Option<Instant> = None;
        let mut counted: Option<(Instant, u64)> = None;
        loop {
            thread::sleep(POLL);
            let is_over = !matches!(running.child.try_wait(), Ok(None));
            if job.is_none() && !is_over {
                job = jobs::of(jobs::all(), running.child.id());
            }
            let so_far = job.as_ref().map_or(0, launches);
            let now = Instant::now();
            match (first, counted) {
                _ if is_over => return Err(CalibrateError::Ended(percent)),
                (None, _) if so_far > 0 => first = Some(now),
                (None, _) if begun.elapsed() > MAX_START => {
                    return Err(CalibrateError::NoLaunches(percent, MAX_START.as_secs()));
                }
                (Some(first), None) if now - first >= Duration::from_millis(self.warm_up) => {
                    counted = Some((now, so_far));
                }
                (_, Some((then, before))) if now - then >= Duration::from_millis(self.time) => {
                    let gpus = job.as_ref().and_then(|job| job.segment.gpus().ok()).unwrap_or_default();
                    let model = gpus.first().map(|gpu| gpu.name.clone()).unwrap_or_default();
                    let rate = so_far.saturating_sub(before) as f64 / (now - then).as_secs_f64();
                    return Ok((rate, model));
                }
                _ => {}
            }
        }
    }
}

/// Every GPU that the program may use is idle.
fn check_idle() -> Result<(), CalibrateError> {
    let no_nvml = |error: &dyn std::fmt::Display| CalibrateError::NoNvml(error.to_string());
    let nvml = Nvml::open(&NvmlSource::System).map_err(|error| no_nvml(&error))?;
    let inventory = nvml.inventory().map_err(|error| no_nvml(&error))?;
    for gpu in inventory.usable() {
        let device = nvml.device(&gpu.uuid).map_err(|error| no_nvml(&error))?;
        let processes = device.processes().map_err(|error| no_nvml(&error))?.len();
        if processes > 0 {
            return Err(CalibrateError::Busy(gpu.index.unwrap_or(0), processes));
        }
    }
    Ok(())
}

/// Measures and keeps a curve.
///
/// # Errors
/// One sentence; nothing is stored then.
pub(crate) fn run(flags: &Flags) -> Result<(), Failure> {
    // What cannot be kept is not worth minutes of a GPU.
    let file = path(flags.dataset.clone())?;
    let mut dataset = Dataset::open(&file).map_err(|error| in_file(&file, error))?;
    if flags.machine.is_none() {
        check_idle()?;
    }
    let mut shares = flags.shares.clone();
    shares.sort_unstable();
    shares.dedup();
    let (before, gpu_model) = flags.rate(100)?;
    let mut points = Vec::new();
    for percent in shares.iter().rev() {
        points.push((*percent, flags.rate(*percent)?.0));
    }
    let (after, _) = flags.rate(100)?;
    if before <= 0.0 || (after - before).abs() > MAX_DRIFT * before {
        return Err(CalibrateError::Drift(before, after).into());
    }
    points.push((100, f64::midpoint(before, after)));
    points.sort_by_key(|(percent, _)| *percent);
    let command: Vec<String> = flags.program.iter().map(|word| words::encode(OsStr::new(word))).collect();
    let cwd = std::env::current_dir().map_err(Failure::NoDirectory)?;
    let batch = flags.batch_size.or_else(|| batch::of_command(&command));
    let program = program_name(ProgramKey::of(&command, &cwd, 1).as_str(), batch);
    let row = MeasuredShares {
        unix_ns: radrm_os::time::epoch_ns(),
        host: radrm_os::host::node_name(),
        gpu_model,
        emulated: flags.machine.is_some(),
        program,
        points,
    };
    dataset.set_share_curve(&row).map_err(|error| in_file(&file, error))?;
    let curve = ShareCurve::of_rates(&row.points);
    let enough = curve.as_ref().and_then(|curve| curve.enough(ShareCurve::KEPT));
    if flags.json {
        let points: Vec<_> = row
            .points
            .iter()
            .map(|(percent, rate)| {
                let speed = curve.as_ref().and_then(|curve| curve.speed(*percent));
                json!({ "percent": percent, "launches_per_second": rate, "speed": speed })
            })
            .collect();
        return print_json(&json!({ "gpu": row.gpu_model, "points": points, "enough_percent": enough }));
    }
    let mut table = Table::new(["SMS", "LAUNCHES/S", "SPEED"].map(right).to_vec());
    for (percent, rate) in &row.points {
        let speed = curve.as_ref().and_then(|curve| curve.speed(*percent));
        let speed = speed.map_or_else(|| "-".to_owned(), |speed| format!("{speed:.2}"));
        table.row(vec![format!("{percent} %"), format!("{rate:.1}"), speed]);
    }
    let meaning = enough.map_or_else(
        || "no part that was measured keeps 95 % of its speed: radrmd sets no limit".to_owned(),
        |percent| format!("{percent} % keep 95 % of its speed: radrmd limits it to these under MPS"),
    );
    print(&format!("{table}\n{}: {meaning}\n", row.gpu_model))
}
