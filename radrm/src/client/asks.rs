//! Requests of a job: the options of `radrm submit`, which are those of `#RADRM` lines too.

use std::path::{Path, PathBuf};

use clap::{Args, Parser};
use radrm_base::written;
use radrm_limits::amount;
use radrm_need::UserEstimate;
use radrm_protocol::ProtocolError;
use radrm_protocol::after::AfterList;
use radrm_protocol::array::Array;
use radrm_protocol::loader::Loader;
use radrm_protocol::spec::Spec;
use radrm_scheduler_core::rad_file::{RadError, RadOption};
use radrm_scheduler_core::{Bytes, LatencyTarget, Permille};
use radrm_text::Untrusted;
use radrm_text::usage::{Instead, explain};

use super::rad;
use super::text::{self, ValueError};
use crate::Failure;

#[derive(Args, Debug, Default)]
pub struct Asks {
    /// Name in lists
    #[arg(short, long, value_name = "NAME")]
    name: Option<String>,
    /// GPUs at the same time; 0 for a job without [default: 1]
    #[arg(long, value_name = "N")]
    gpus: Option<u16>,
    /// Memory on each GPU, for instance 10GiB: reserved, and enforced as a limit
    #[arg(long, value_name = "AMOUNT", value_parser = amount::bytes)]
    gpu_mem: Option<u64>,
    /// Estimated memory on each GPU: reserved until a run was measured, and not enforced
    #[arg(long, value_name = "AMOUNT", value_parser = amount::bytes, conflicts_with = "gpu_mem")]
    gpu_mem_estimate: Option<u64>,
    /// The upper bound of either, which is reserved
    #[arg(long, value_name = "AMOUNT", value_parser = amount::bytes)]
    gpu_mem_upper: Option<u64>,
    /// Run the program here first, without a GPU, for STEPS optimizer steps (3), and estimate from what it would hold
    #[arg(long, value_name = "STEPS", num_args = 0..=1, require_equals = true, default_missing_value = "3",
          value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) dry_run: Option<u64>,
    /// Do not dry-run this job, where radrmd dry-runs jobs in the background
    #[arg(long, conflicts_with = "dry_run")]
    no_dry_run: bool,
    /// No later step or phase takes more GPU memory than the third optimizer step: the reservation shrinks to that and 5 %
    #[arg(long)]
    fixed_shapes: bool,
    /// Share of the time of each of its GPUs: its launches wait for their slots; with mps.sm_partitions of radrmd under
    /// protocol 3 of MPS: its share of their SMs
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    gpu_share: Option<u32>,
    /// Under NVIDIA's Multi-Process Service, whose control daemon radrmd starts and ends for your jobs
    #[arg(long)]
    mps: bool,
    /// Keep this quantile of its steps (request:p99=20ms: of its ranges `request`) within a time: others get what is left
    #[arg(long, value_name = "[NAME:]pQ=TIME")]
    latency: Option<LatencyTarget>,
    /// Keep at least this speed (0.8) against running alone: other jobs on its GPUs get what is left
    #[arg(long, value_name = "PART", value_parser = part)]
    min_speed: Option<Permille>,
    /// GPUs of its own
    #[arg(long)]
    exclusive: bool,
    /// Only GPUs of this model
    #[arg(long, value_name = "NAME")]
    gpu_model: Option<String>,
    /// Higher goes first; above 0 is for administrators
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    priority: Option<i32>,
    /// Stop it after this time: 90s, 30m, 2h, 1-12:00:00, or minutes
    #[arg(long, alias = "time-limit", value_name = "TIME", value_parser = text::span)]
    time: Option<u64>,
    /// Preempt it after this time if others wait
    #[arg(long, value_name = "TIME", value_parser = text::span)]
    slot: Option<u64>,
    /// Expected run time, a hint for the order
    #[arg(long, value_name = "TIME", value_parser = text::span)]
    expected: Option<u64>,
    /// Optimizer steps of the training: a dry run predicts its run time
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    total_steps: Option<u64>,
    /// CPU cores
    #[arg(long, value_name = "N", value_parser = cores, allow_negative_numbers = true)]
    cpus: Option<u64>,
    /// Host memory
    #[arg(long, value_name = "AMOUNT", value_parser = amount::host_bytes)]
    mem: Option<u64>,
    /// Attempts if it runs out of GPU memory, each with more of it [default and most: the daemon's, 4]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    attempts: Option<u32>,
    /// Exit code 0 after a refused request for GPU memory, with none granted later, counts as out of memory
    #[arg(long)]
    oom_fails: bool,
    /// At the end of its time limit it returns to the queue, unless it ends with 0 after its checkpoint signal
    #[arg(long)]
    requeue_on_timeout: bool,
    /// It may be stopped for others, and is run again
    #[arg(long)]
    preemptible: bool,
    /// Signal at which it writes a checkpoint (USR1, 10; 0: none, it calls radrm.should_checkpoint()); after it exit code 0
    /// means done, 75 means requeue
    #[arg(long, value_name = "NAME", value_parser = signal)]
    checkpoint_signal: Option<i32>,
    /// Time from the checkpoint signal to SIGTERM [default: 30s]
    #[arg(long, value_name = "TIME", value_parser = text::span)]
    grace: Option<u64>,
    /// Samples in a batch, if the command line does not name it: earlier runs of the program are compared by it
    #[arg(long, alias = "batch", value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    batch_size: Option<u32>,
    /// The model's summary as torchsummary, torchinfo or Keras print it, for an estimate before the first run
    #[arg(long, value_name = "FILE")]
    pub(super) model_summary: Option<PathBuf>,
    /// Standard output [default: kept by the daemon]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Standard error [default: as standard output]
    #[arg(short, long, value_name = "FILE")]
    error: Option<PathBuf>,
    /// Working directory [default: the current one]
    #[arg(long, value_name = "DIR")]
    chdir: Option<PathBuf>,
    /// Do not start it before it is released
    #[arg(long)]
    hold: bool,
    /// Start it after these have ended (any:12), or have succeeded (ok:12,13_4); may be given again.
    #[arg(long, value_name = "[any:|ok:]JOB,...")]
    after: Vec<AfterList>,
    /// The loader of radrm.share that it shares with other jobs; COMMAND is its producer, which radrmd runs while jobs use it
    #[arg(long, value_name = "NAME[=COMMAND]", value_parser = loader)]
    loader: Option<Loader>,
    /// Submit it once for each index, as in 0-99; with %4 no more than four run at once.
    #[arg(long, value_name = "INDICES[%N]")]
    array: Option<Array>,
}

/// Options without a program's name before them.
#[derive(Parser, Debug)]
#[command(no_binary_name = true, disable_help_flag = true)]
struct Line {
    #[command(flatten)]
    asks: Asks,
}

impl Asks {
    /// Parses the `#RADRM` lines of a file.
    pub(super) fn of_file(options: &[RadOption]) -> Result<Self, RadError> {
        let wrong = |line, error: &clap::Error| match explain(error) {
            Instead::Wrong(what) | Instead::Print(what) => RadError { line, what },
        };
        for option in options {
            Line::try_parse_from([&option.word]).map_err(|error| wrong(option.line, &error))?;
        }
        // Each of them is right; together they may contradict each other.
        let last = options.last().map_or(1, |option| option.line);
        let line = Line::try_parse_from(options.iter().map(|option| &option.word));
        line.map(|line| line.asks).map_err(|error| wrong(last, &error))
    }

    /// Parses words of a command line that a program wrote.
    pub(crate) fn of_words(words: &[String]) -> Result<Self, Failure> {
        Line::try_parse_from(words).map(|line| line.asks).map_err(|error| Failure::Line(explain(&error)))
    }

    /// Puts what is said in place of what was said before. `here` is where paths begin.
    pub(super) fn apply(self, spec: &mut Spec, here: &Path) {
        let set = |place: &mut Option<u64>, value: Option<u64>| *place = value.or(*place);
        spec.name = self.name.map_or_else(|| std::mem::take(&mut spec.name), Untrusted::from);
        spec.gpus = self.gpus.unwrap_or(spec.gpus);
        set(&mut spec.mem, self.gpu_mem);
        if let Some(bytes) = self.gpu_mem_estimate {
            let upper = self.gpu_mem_upper.unwrap_or(bytes);
            (spec.mem, spec.mem_upper) = (None, None);
            let [bytes, upper] = [bytes, upper].map(Bytes);
            spec.estimate = Some(UserEstimate { bytes, upper, ..UserEstimate::default() });
        } else {
            set(&mut spec.mem_upper, self.gpu_mem_upper);
        }
        spec.fixed_shapes |= self.fixed_shapes;
        spec.no_dry_run |= self.no_dry_run;
        spec.share = self.gpu_share.or(spec.share);
        spec.target.latency = self.latency.or_else(|| spec.target.latency.take());
        spec.target.speed = self.min_speed.or(spec.target.speed);
        spec.mps |= self.mps;
        spec.exclusive |= self.exclusive;
        spec.model = self.gpu_model.or_else(|| spec.model.take());
        spec.priority = self.priority.unwrap_or(spec.priority);
        set(&mut spec.time_limit_ms, self.time);
        set(&mut spec.slot_ms, self.slot);
        set(&mut spec.expected_ms, self.expected);
        set(&mut spec.total_steps, self.total_steps);
        spec.cpu_milli = self.cpus.unwrap_or(spec.cpu_milli);
        spec.host_memory = self.mem.unwrap_or(spec.host_memory);
        spec.attempts = self.attempts.or(spec.attempts);
        spec.oom_fails |= self.oom_fails;
        spec.requeue_on_timeout |= self.requeue_on_timeout;
        spec.preemptible |= self.preemptible;
        spec.checkpoint_signal = self.checkpoint_signal.or(spec.checkpoint_signal);
        set(&mut spec.grace_ms, self.grace);
        spec.batch = self.batch_size.or(spec.batch);
        spec.held |= self.hold;
        if !self.after.is_empty() {
            spec.after = self.after.into_iter().flat_map(|list| list.0).collect();
        }
        spec.loader = self.loader.or_else(|| spec.loader.take());
        spec.array = self.array.or_else(|| spec.array.take());
        if let Some(directory) = self.chdir {
            spec.cwd = here.join(directory);
        }
        let path =
            |path: Option<PathBuf>, before: Option<PathBuf>| path.or(before).map(|path| here.join(path));
        spec.output = path(self.output, spec.output.take());
        spec.error = path(self.error, spec.error.take());
    }
}

/// A loader, and the shell's line that starts its producer.
fn loader(text: &str) -> Result<Loader, ProtocolError> {
    let (name, command) = text.split_once('=').unwrap_or((text, ""));
    let command = match command.trim() {
        "" => Vec::new(),
        command => rad::shell(command),
    };
    let loader = Loader { name: name.to_owned(), command, ..Loader::default() };
    loader.check().map(|()| loader)
}

/// CPU cores, in thousandths.
fn cores(text: &str) -> Result<u64, ValueError> {
    let cores = text.parse().ok().filter(|cores: &f64| (0.0..=65_536.0).contains(cores));
    cores.map(|cores| (cores * 1000.0).ceil() as u64).ok_or_else(|| ValueError::Cores(text.to_owned()))
}

/// A share in thousandths.
fn percent(text: &str) -> Result<u32, ValueError> {
    let value = written::percent(text).map_err(ValueError::Percentage)?;
    let share = (value * 10.0).round() as u32;
    if share > 0 { Ok(share) } else { Err(ValueError::NoShare(text.to_owned())) }
}

/// A speed as a part of that alone: 0.8, or 80%.
fn part(text: &str) -> Result<Permille, ValueError> {
    let text = text.trim();
    let (number, whole) = text.strip_suffix('%').map_or((text, 1.0), |number| (number, 100.0));
    let part = number.trim().parse::<f64>().ok().map(|value| value / whole);
    let part = part.filter(|part| (0.001..=1.0).contains(part));
    part.map(Permille::from_fraction).ok_or_else(|| ValueError::Part(text.to_owned()))
}

/// A signal by name or number; 0 is none.
fn signal(text: &str) -> Result<i32, ValueError> {
    let name = text.trim().to_ascii_uppercase();
    let name = if name.starts_with("SIG") { name.clone() } else { format!("SIG{name}") };
    let known = (1..32).find(|number| radrm_base::signal::name(*number) == name);
    let number = known.or_else(|| text.trim().parse().ok().filter(|number| (0..=64).contains(number)));
    number.ok_or_else(|| ValueError::Signal(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use radrm_scheduler_core::rad_file::RadFile;

    /// Options of a file with this line before its program.
    fn lines(text: &str) -> Result<Asks, RadError> {
        Asks::of_file(&RadFile::parse(&format!("{text}\nrun\n"))?.options)
    }

    #[test]
    fn what_an_option_takes_it_takes_in_a_file_too() {
        for value in [
            "--time=30m",
            "--time=30min",
            "--time=90",
            "--time=1:30",
            "--time=2-12:00:00",
            "--slot=1d",
            "--gpu-share=30",
            "--gpu-share=30%",
            "--latency=p99=20ms",
            "--latency=request:p99.9=1.5s",
            "--latency=20ms",
            "--min-speed=0.8",
            "--min-speed=80%",
            "--min-speed=8",
            "--gpu-mem=3GiB",
            "--gpu-mem=3gib",
            "--gpu-mem=3G",
            "--batch-size=0",
            "--batch-size=8",
            "--checkpoint-signal=USR1",
            "--checkpoint-signal=usr1",
            "--checkpoint-signal=0",
            "--cpus=1.5",
            "--expected=2h",
            "--output=x",
            "--dry-run",
            "--no-dry-run",
            "--dry-run=2",
            "--dry-run=0",
            "--gpu=1",
            "--exclusive=no",
            "--mps",
            "--mps=30",
            "--after=ok:12,13_4",
            "--after=afterok:12",
            "--array=0-9:3%2",
            "--array=3-1",
            "--gpus",
        ] {
            let typed = Line::try_parse_from([value]).map(|line| line.asks);
            let written = lines(&format!("#RADRM {value}"));
            assert_eq!(typed.is_ok(), written.is_ok(), "{value}");
            assert_eq!(
                typed.ok().map(|asks| format!("{asks:?}")),
                written.ok().map(|asks| format!("{asks:?}")),
                "{value}"
            );
        }
    }

    #[test]
    fn a_wrong_line_is_reported_with_its_number() {
        for (text, part) in [
            ("#\n#RADRM --gpu=1", "line 2: there is no option --gpu"),
            ("#RADRM --time=soon", "line 1: --time: `soon` is no time"),
            ("#RADRM --wait", "line 1: there is no option --wait"),
            ("#RADRM --help", "line 1: there is no option --help"),
            ("#RADRM --gpu-mem=1GiB\n#RADRM --gpu-mem-estimate=1GiB", "line 2: --gpu-mem"),
        ] {
            let error = lines(text).unwrap_err().to_string();
            assert!(error.starts_with(part) && error.lines().count() == 1, "{text}: {error}");
        }
    }

    #[test]
    fn values_are_read_as_people_write_them() {
        assert_eq!((signal("usr1"), signal("SIGTERM"), signal("10")), (Ok(10), Ok(15), Ok(10)));
        assert_eq!((percent("30%"), percent("30"), percent("0").is_err()), (Ok(300), Ok(300), true));
        assert_eq!((cores("1.5"), cores("-1").is_err()), (Ok(1500), true));
    }
}
