//! `radrm submit`.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use clap::Args;

use super::connection::Connection;
use super::{odd, print, rad, text};
use crate::daemon::spec::Spec;
use crate::daemon::wire::{Request, Response};

/// How often `--wait` looks.
const LOOK: Duration = Duration::from_millis(200);

#[derive(Args, Debug, Default)]
pub(super) struct Flags {
    #[arg(short, long, value_name = "NAME")]
    name: Option<String>,
    #[arg(long, value_name = "N")]
    gpus: Option<u16>,
    #[arg(long, value_name = "AMOUNT")]
    gpu_mem: Option<String>,
    #[arg(long, value_name = "AMOUNT")]
    gpu_mem_upper: Option<String>,
    #[arg(long, value_name = "PERCENT")]
    gpu_share: Option<String>,
    #[arg(long)]
    exclusive: bool,
    #[arg(long, value_name = "NAME")]
    gpu_model: Option<String>,
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    priority: Option<i32>,
    #[arg(long, alias = "time-limit", value_name = "TIME")]
    time: Option<String>,
    #[arg(long, value_name = "TIME")]
    slot: Option<String>,
    #[arg(long, value_name = "TIME")]
    expected: Option<String>,
    #[arg(long, value_name = "N")]
    cpus: Option<f64>,
    #[arg(long, value_name = "AMOUNT")]
    mem: Option<String>,
    #[arg(long)]
    preemptible: bool,
    #[arg(long, value_name = "NAME")]
    checkpoint_signal: Option<String>,
    #[arg(long, value_name = "TIME")]
    grace: Option<String>,
    #[arg(long, value_name = "N")]
    batch_size: Option<u32>,
    #[arg(long, value_name = "FILE")]
    model_summary: Option<PathBuf>,
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[arg(short, long, value_name = "FILE")]
    error: Option<PathBuf>,
    #[arg(long, value_name = "DIR")]
    chdir: Option<PathBuf>,
    #[arg(long)]
    hold: bool,
    #[arg(long)]
    wait: bool,
    #[arg(short, long)]
    quiet: bool,
    /// The file.
    #[arg(value_name = "FILE.rad")]
    file: Option<PathBuf>,
    /// The program and its arguments.
    #[arg(last = true, value_name = "PROGRAM")]
    command: Vec<String>,
}

/// Submits, and waits if that is wanted. Gives the exit code.
pub(super) fn run(flags: Flags, connect: &dyn Fn() -> Result<Connection, String>) -> Result<u8, String> {
    let (wait, quiet) = (flags.wait, flags.quiet);
    let spec = spec(flags)?;
    let mut connection = connect()?;
    let job = match connection.ask(&Request::Submit(Box::new(spec)))? {
        Response::Submitted { job } => job,
        other => return Err(odd(&other)),
    };
    print(&if quiet { format!("{job}\n") } else { format!("job {job} submitted\n") })?;
    if !wait {
        return Ok(0);
    }
    loop {
        let row = match connection.ask(&Request::Show { job }) {
            Ok(Response::Job(row, _)) => row,
            Ok(other) => return Err(odd(&other)),
            // The daemon may be on its way back; the job is with it.
            Err(_) => {
                thread::sleep(LOOK);
                if let Ok(again) = connect() {
                    connection = again;
                }
                continue;
            }
        };
        if let Some(end) = row.end {
            if !quiet && row.exit_code != Some(0) {
                crate::output::say(crate::show::NAME, &format!("job {job}: {end}"));
            }
            return Ok(row.exit_code.map_or(1, |code| u8::try_from(code).unwrap_or(1)));
        }
        thread::sleep(LOOK);
    }
}

/// The job that flags and file ask for; flags come before the file's lines.
fn spec(flags: Flags) -> Result<Spec, String> {
    let named = |option: &str, why: String| format!("--{option}: {why}");
    let mut spec = match (&flags.file, flags.command.is_empty()) {
        (Some(file), true) => from_file(file)?,
        (Some(file), false) => {
            return Err(format!("give a file or a program behind --, not {} and a program", file.display()));
        }
        (None, true) => return Err("no job given: name a .rad file, or a program behind --".to_owned()),
        (None, false) => Spec { command: flags.command, gpus: 1, ..Spec::default() },
    };
    let span = |option: &str, text: &Option<String>| {
        text.as_deref().map(|text| text::span(text).map_err(|why| named(option, why))).transpose()
    };
    let memory = |option: &str, text: &Option<String>| {
        text.as_deref().map(|text| text::memory(text).map_err(|why| named(option, why))).transpose()
    };
    spec.name = flags.name.unwrap_or(spec.name);
    spec.gpus = flags.gpus.unwrap_or(spec.gpus);
    spec.mem = memory("gpu-mem", &flags.gpu_mem)?.or(spec.mem);
    spec.mem_upper = memory("gpu-mem-upper", &flags.gpu_mem_upper)?.or(spec.mem_upper);
    spec.share = match &flags.gpu_share {
        Some(text) => Some(percent(text).map_err(|why| named("gpu-share", why))?),
        None => spec.share,
    };
    spec.exclusive |= flags.exclusive;
    spec.model = flags.gpu_model.or(spec.model);
    spec.priority = flags.priority.unwrap_or(spec.priority);
    spec.time_limit_ms = span("time", &flags.time)?.or(spec.time_limit_ms);
    spec.slot_ms = span("slot", &flags.slot)?.or(spec.slot_ms);
    spec.expected_ms = span("expected", &flags.expected)?.or(spec.expected_ms);
    if let Some(cpus) = flags.cpus {
        if !(0.0..=65_536.0).contains(&cpus) {
            return Err(named("cpus", format!("{cpus} is no number of cores")));
        }
        spec.cpu_milli = (cpus * 1000.0).ceil() as u64;
    }
    spec.host_memory = memory("mem", &flags.mem)?.unwrap_or(spec.host_memory);
    spec.preemptible |= flags.preemptible;
    spec.checkpoint_signal = match &flags.checkpoint_signal {
        Some(text) => Some(signal(text).map_err(|why| named("checkpoint-signal", why))?),
        None => spec.checkpoint_signal,
    };
    spec.grace_ms = span("grace", &flags.grace)?.or(spec.grace_ms);
    spec.batch = flags.batch_size.or(spec.batch);
    if let Some(path) = &flags.model_summary {
        spec.summary = Some(rad::summary(path).map_err(|why| named("model-summary", why))?);
    }
    spec.held |= flags.hold;
    let here = env::current_dir().map_err(|error| format!("the current directory is gone: {error}"))?;
    spec.cwd = flags.chdir.map_or_else(|| here.clone(), |directory| here.join(directory));
    spec.output = flags.output.or(spec.output).map(|path| here.join(path));
    spec.error = flags.error.or(spec.error).map(|path| here.join(path));
    spec.umask = own_umask();
    spec.environment = environment();
    if spec.gpus == 0 && (spec.mem.is_some() || spec.exclusive || spec.share.is_some()) {
        return Err("a job without GPUs has no GPU memory, share or GPUs of its own".to_owned());
    }
    spec.check()?;
    Ok(spec)
}

fn from_file(file: &Path) -> Result<Spec, String> {
    let text = fs::read_to_string(file)
        .map_err(|error| format!("{}: {}", file.display(), crate::output::reason(&error)))?;
    let (mut spec, summary) = rad::parse(&text).map_err(|why| format!("{}: {why}", file.display()))?;
    // A name that is no file of a summary only means that nothing can be told from it.
    if let Some(path) = summary.filter(|_| spec.mem.is_none() && spec.gpus > 0) {
        match rad::summary(&file.parent().unwrap_or(Path::new("")).join(path)) {
            Ok(summary) => spec.summary = Some(summary),
            Err(why) => crate::output::say(crate::show::NAME, &format!("nothing is estimated from {why}")),
        }
    }
    if spec.name.is_empty() {
        spec.name = file.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    }
    Ok(spec)
}

/// A share in thousandths.
pub(super) fn percent(text: &str) -> Result<u32, String> {
    let bad = || format!("`{text}` is no percentage such as 30%");
    let value: f64 = text.trim().trim_end_matches('%').trim().parse().map_err(|_| bad())?;
    if !(0.1..=100.0).contains(&value) {
        return Err(bad());
    }
    Ok((value * 10.0).round() as u32)
}

/// A signal by name or number.
pub(super) fn signal(text: &str) -> Result<i32, String> {
    let name = text.trim().to_ascii_uppercase();
    let name = if name.starts_with("SIG") { name.clone() } else { format!("SIG{name}") };
    let known = (1..32).find(|number| crate::run::ending::signal_name(*number) == name);
    let number = known.or_else(|| text.trim().parse().ok().filter(|number| (1..=64).contains(number)));
    number.ok_or_else(|| format!("`{text}` is no signal such as USR1"))
}

fn own_umask() -> u32 {
    // SAFETY: plain system calls; this process has one thread, so nobody makes files in between.
    unsafe {
        let mask = libc::umask(0o077);
        libc::umask(mask);
        mask
    }
}

/// What is text of this process's environment.
fn environment() -> Vec<String> {
    let pairs = env::vars_os().filter_map(|(name, value)| {
        Some(format!("{}={}", name.into_string().ok()?, value.into_string().ok()?))
    });
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_come_before_the_files_lines() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a.rad");
        fs::write(&file, "#RADRM --gpu-mem=10GiB\n#RADRM --priority=-2\npython3 train.py\n").unwrap();
        let flags = Flags { gpu_mem: Some("3GiB".into()), file: Some(file), ..Flags::default() };
        let got = spec(flags).unwrap();
        assert_eq!((got.mem, got.priority, got.name.as_str()), (Some(3 << 30), -2, "a"));
        assert!(got.cwd.is_absolute() && !got.environment.is_empty());
    }

    #[test]
    fn a_file_brings_its_models_summary_along() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a.rad");
        fs::write(&file, "python t.py\nmodel: m.txt\nbatch_size: 32\npolicy: collocation\n").unwrap();
        let flags = || Flags { file: Some(file.clone()), ..Flags::default() };
        assert_eq!(spec(flags()).unwrap().summary, None, "no such file: it is submitted all the same");
        let text = "Layer (type)   Output Shape   Param #\nLinear-1   [-1, 10]   510\nTotal params: 510\n";
        fs::write(dir.path().join("m.txt"), text).unwrap();
        let summary = spec(flags()).unwrap().summary.unwrap();
        assert_eq!((summary.parameters, summary.activations, summary.layers.len()), (510, 10, 0));
        let wrong = Flags { model_summary: Some(file.clone()), ..flags() };
        assert!(spec(wrong).unwrap_err().contains("--model-summary"));
    }

    #[test]
    fn wrong_submissions_are_told_in_one_sentence() {
        let command = || vec!["p".to_owned()];
        for (flags, part) in [
            (Flags::default(), "no job given"),
            (Flags { file: Some("x".into()), command: command(), ..Flags::default() }, "not x and"),
            (Flags { gpu_mem: Some("3G".into()), command: command(), ..Flags::default() }, "--gpu-mem"),
            (Flags { time: Some("x".into()), command: command(), ..Flags::default() }, "--time"),
            (Flags { gpu_share: Some("0".into()), command: command(), ..Flags::default() }, "--gpu-share"),
            (
                Flags { gpus: Some(0), exclusive: true, command: command(), ..Flags::default() },
                "without GPUs",
            ),
            (
                Flags { checkpoint_signal: Some("KILL".into()), command: command(), ..Flags::default() },
                "catch",
            ),
        ] {
            let error = spec(flags).unwrap_err();
            assert!(error.contains(part) && error.lines().count() == 1, "{error}");
        }
        assert_eq!(signal("usr1"), Ok(10));
        assert_eq!(signal("SIGTERM"), Ok(15));
        assert_eq!(percent("30%"), Ok(300));
    }
}
