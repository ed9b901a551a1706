//! A dry run of which only the report is wanted.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::rc::Rc;

use serde_json::Value;
use tempfile::NamedTempFile;

use super::flags::DryRun;
use super::outcome;
use super::verdict::{Evidence, Stopped};
use crate::cli::Plan;
use crate::ending::{Ending, OUT_OF_TIME};
use crate::leftovers;
use crate::recording::Recording;
use crate::signals::Held;
use crate::supervise::Supervisor;
use crate::witness::Witness;

/// One that was not made yet.
pub struct Trial {
    /// Command to run: its other options and, behind `--`, the program are still to be added.
    pub command: Command,
    /// A folder that goes as well if a signal ends this process meanwhile.
    folder: Option<PathBuf>,
    report: NamedTempFile,
    /// Output of the program's standard streams, if it is taken.
    said: Option<Said>,
    // Last: a signal that came meanwhile ends this process when the report's file is gone.
    signals: Signals,
}

/// A dry run that has been started.
pub struct Started {
    child: libc::pid_t,
    folder: Option<PathBuf>,
    report: NamedTempFile,
    said: Option<Said>,
    signals: Signals,
}

/// Signals do not act on this process as long as this, or a copy, lives.
#[derive(Clone)]
pub struct Signals(Rc<LetGo>);

/// Figures on memory in a dry run's report; a report that was not written has none.
pub struct Reading<'a> {
    /// A request for memory was refused.
    pub refused: bool,
    /// Times that the allocator gave its reserve back to go on.
    pub retries: u64,
    /// Reason that there are no figures.
    pub withheld: Option<&'a str>,
    gpus: &'a [Value],
}

/// Output of a program's standard streams.
struct Said {
    out: fs::File,
    error: fs::File,
}

impl Said {
    fn new() -> io::Result<Self> {
        Ok(Self { out: tempfile::tempfile()?, error: tempfile::tempfile()? })
    }

    /// Request that a framework's own allocator refused, as its log says it: the driver sees nothing of that, and a program that does
    /// not wait for the result neither.
    fn refused(&mut self) -> io::Result<Option<String>> {
        self.error.rewind()?;
        let mut bytes = Vec::new();
        (&mut self.error).take(LOG_BYTES).read_to_end(&mut bytes)?;
        let text = String::from_utf8_lossy(&bytes);
        let after = |words: &str| text.split_once(words).map(|(_, rest)| rest);
        let Some(rest) = REFUSALS.iter().find_map(|words| after(words)) else { return Ok(None) };
        let amount = rest.split(|letter: char| letter.is_whitespace() || letter == '(').next();
        Ok(Some(radrm_text::clean(amount.unwrap_or_default()).chars().take(LINE_WIDTH).collect()))
    }

    /// The last lines on standard error, or on standard output where it wrote nothing there.
    fn last_lines(self) -> io::Result<Vec<String>> {
        let lines = last_lines(self.error)?;
        if lines.is_empty() { last_lines(self.out) } else { Ok(lines) }
    }
}

/// Lines of a failed program that are shown.
const LAST_LINES: usize = 5;
/// Characters of each.
const LINE_WIDTH: usize = 200;
/// Words by which logs of XLA and TensorFlow announce a refusal of their allocators.
const REFUSALS: [&str; 2] =
    ["ran out of memory trying to allocate ", "RESOURCE_EXHAUSTED: Out of memory allocating "];
/// Bytes of a log that are searched.
const LOG_BYTES: u64 = 4 << 20;
/// Bytes at the end of what a program said that are read.
const LAST_BYTES: u64 = 16 << 10;

/// A dry run that has ended.
pub struct Ended {
    /// End of the run.
    pub ending: Ending,
    /// Its report, null if it wrote none.
    pub report: Value,
    /// The last lines that the program wrote, if they were taken.
    pub last_lines: Vec<String>,
    /// The request that a framework's own allocator refused, by its log.
    pub refused: Option<String>,
}

impl Ended {
    /// Evidence from which a verdict is concluded.
    #[must_use]
    pub fn evidence(&self) -> Evidence {
        let reading = Reading::of(&self.report);
        let found = &self.report["dry_run"];
        let remarks = || found["remarks"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let stopped = outcome::stopped(remarks());
        let is_stopped = stopped.is_some();
        let failed = match self.ending {
            Ending::Exited(0) => None,
            Ending::Exited(OUT_OF_TIME) if is_stopped => None,
            Ending::Exited(code) => Some(format!("with exit code {code}")),
            Ending::Killed { .. } if stopped == Some(Stopped::BySignal) => None,
            Ending::Killed { signal, .. } => Some(format!("by {}", radrm_base::signal::name(signal))),
        };
        Evidence {
            failed,
            refused: reading.refused || self.refused.is_some(),
            request: self.refused.clone().or_else(|| outcome::refused_by_own_limit(remarks())),
            withheld: reading.withheld.map(str::to_owned),
            retries: reading.retries,
            held: reading.of_gpus("held_peak").max().unwrap_or(0),
            upper: found["expected"]["upper"].as_u64(),
            steps: found["steps"].as_u64().unwrap_or(0),
            stopped,
        }
    }
}

/// The last lines of what a program said.
fn last_lines(mut said: fs::File) -> io::Result<Vec<String>> {
    let length = said.metadata()?.len();
    said.seek(SeekFrom::Start(length.saturating_sub(LAST_BYTES)))?;
    let mut bytes = Vec::new();
    said.read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let shown = |line: &&str| radrm_text::clean(line).chars().take(LINE_WIDTH).collect();
    Ok(lines[lines.len().saturating_sub(LAST_LINES)..].iter().map(shown).collect())
}

impl<'a> Reading<'a> {
    /// Reads the report of [`Trial::run`].
    #[must_use]
    pub fn of(report: &'a Value) -> Self {
        let found = &report["dry_run"];
        let number = |name: &str| found[name].as_u64().unwrap_or(0);
        Self {
            refused: number("out_of_memory") > 0 || report["outcome"]["out_of_memory"] == true,
            retries: number("retries"),
            withheld: found["withheld"].as_str(),
            gpus: found["gpus"].as_array().map_or(&[], Vec::as_slice),
        }
    }

    /// A figure of each GPU, bytes.
    pub fn of_gpus(&self, name: &str) -> impl Iterator<Item = u64> {
        self.gpus.iter().filter_map(move |gpu| gpu[name].as_u64())
    }
}

struct LetGo(Held);

impl Drop for LetGo {
    fn drop(&mut self) {
        self.0.let_go();
    }
}

impl Signals {
    /// Holds them back.
    ///
    /// # Errors
    /// The system refused.
    pub fn hold() -> io::Result<Self> {
        Ok(Self(Rc::new(LetGo(Held::all()?))))
    }
}

impl Trial {
    /// A dry run of so many optimizer steps by a `radrm-run`. Until it was made or dropped, signals do not act on this
    /// process.
    ///
    /// # Errors
    /// There is no room for its report.
    pub fn new(launcher: &Path, steps: u64) -> io::Result<Self> {
        let mut trial = Self::with(launcher, steps, Signals::hold()?)?;
        trial.command.arg("--no-profile");
        Ok(trial)
    }

    fn with(launcher: &Path, steps: u64, signals: Signals) -> io::Result<Self> {
        let report = NamedTempFile::with_prefix(leftovers::prefix(leftovers::TRIALS))?;
        let mut json = OsString::from("--json=");
        json.push(report.path());
        let mut command = Command::new(launcher);
        command.args(["--dry-run", "--quiet", "--no-dataset"]).arg(json);
        command.args(["--steps", &steps.to_string()]);
        let held = signals.0.0;
        let let_go = move || {
            held.let_go();
            Ok(())
        };
        // SAFETY: one system call that may be made between fork and exec.
        unsafe { command.pre_exec(let_go) };
        Ok(Self { command, folder: None, report, said: None, signals })
    }

    /// One that is like another dry run: with its options, on the machine `emulate` if that is given, without
    /// standard streams. The profile's option and the program are still to be added.
    ///
    /// # Errors
    /// As [`Trial::new`].
    pub fn like(
        plan: &Plan,
        wanted: &DryRun,
        emulate: Option<&str>,
        steps: u64,
        signals: Signals,
    ) -> io::Result<Self> {
        let mut trial = Self::with(&std::env::current_exe()?, wanted.steps.unwrap_or(steps), signals)?;
        let own = || plan.emulate.as_ref().and_then(|emulate| emulate.spec.as_deref());
        let command = &mut trial.command;
        command.args(emulate.or_else(own).into_iter().flat_map(|spec| ["--emulate", spec]));
        command.args(["--fill", &wanted.fill.to_string()]);
        if let Some(ranks) = &wanted.ranks {
            command.args(["--ranks", &ranks.list(), "--world", &ranks.world.to_string()]);
        }
        if wanted.writes.all_real {
            command.arg("--write-files");
        } else if !wanted.writes.real.is_empty() {
            let mut option = OsString::from("--write-files=");
            let folders: Vec<_> = wanted.writes.real.iter().map(|folder| folder.as_os_str()).collect();
            option.push(folders.join(OsStr::new(",")));
            command.arg(option);
        }
        // What was seen of three steps says nothing of an evaluation.
        command.args((wanted.short_epochs || wanted.steps.is_none()).then_some("--short-epochs"));
        command.args(wanted.timeout.iter().flat_map(|seconds| ["--timeout".to_owned(), seconds.to_string()]));
        for (option, is_wanted) in [("--fake-data", wanted.fake_data), ("--host-values", wanted.host_values)]
        {
            command.args(is_wanted.then_some(option));
        }
        let said = Said::new()?;
        command.stdin(Stdio::null()).stdout(said.out.try_clone()?).stderr(said.error.try_clone()?);
        trial.said = Some(said);
        Ok(trial)
    }

    /// Its profile, with call stacks as the plan has them, in a folder that goes with it.
    pub fn profile(&mut self, plan: &Plan, path: &Path) {
        self.folder = path.parent().map(Path::to_owned);
        self.command.args(plan.stacks_option()).arg("-o").arg(path);
    }

    /// Makes it: how it ended, and its report, null if it wrote none.
    ///
    /// Signals reach the program once, as in any other run. One that asks to end ends this process too, when the dry
    /// run has tidied up: the call does not return then.
    ///
    /// # Errors
    /// It could not be started.
    pub fn run(self) -> io::Result<(Ending, Value)> {
        let ended = self.start()?.wait([]);
        Ok((ended.ending, ended.report))
    }

    /// Starts it.
    ///
    /// # Errors
    /// It could not be started.
    pub fn start(self) -> io::Result<Started> {
        // What is bound last is dropped first.
        let Self { signals, report, folder, said, mut command } = self;
        let child = command.spawn()?.id().cast_signed();
        Ok(Started { child, folder, report, said, signals })
    }
}

impl Started {
    /// Waits for it. Signals reach it, and not the dry runs
    /// `beside` it; one that asks to end ends these too, and then this process.
    #[must_use]
    pub fn wait<'a>(self, beside: impl IntoIterator<Item = &'a Self>) -> Ended {
        let Self { signals, report, folder, said, child } = self;
        let mut supervisor = Supervisor::new(child, signals.0.0, Witness::new());
        let ending = supervisor.wait(&mut None::<Recording>).ending;
        let written = fs::read(report.path()).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let told_to_end = supervisor.told_to_end(ending);
        drop((supervisor, report));
        if let Some(signal) = told_to_end {
            for other in beside {
                other.end(signal);
            }
            if let Some(folder) = folder {
                // Nothing is dropped any more where this process ends.
                let _ = fs::remove_dir_all(folder);
            }
            Ending::Killed { signal, core: false }.imitate();
        }
        let mut said = said;
        let refused = said.as_mut().and_then(|said| said.refused().ok().flatten());
        let last_lines = said.and_then(|said| said.last_lines().ok()).unwrap_or_default();
        Ended { ending, report: written.unwrap_or_default(), last_lines, refused }
    }

    /// Ends it, waits until it has tidied up, and removes its report.
    fn end(&self, signal: i32) {
        // SAFETY: plain system calls on a child that nothing else has waited for.
        unsafe {
            libc::kill(self.child, signal);
            libc::waitpid(self.child, std::ptr::null_mut(), 0);
        }
        // Nothing is dropped any more where this process ends.
        let _ = fs::remove_file(self.report.path());
    }
}
