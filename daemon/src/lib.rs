//! `radrmd`: the node daemon.
//!
//! | module | is |
//! |---|---|
//! | `process`, `signals` | this process: its name, locks and signals |
//! | `server`, `peer` | the socket: threads, who is there |
//! | `job_files` | a job's output for administrators |
//! | `http`, `metrics` | `/metrics`: its bounds, its series |
//! | `engine` | the one thread that decides, with `scheduler-core` |
//! | `store` | the queue in SQLite |
//! | `history` | the dataset of the jobs that ran |
//! | `accounting` | GPU time of users |
//! | `supervisor`, `status`, `outcome` | the small process that keeps one attempt, and what it writes down |
//! | `descriptors` | how many files may be open, here and in jobs |
//! | `device_filter` | which device files of GPUs jobs can open |
//! | `fence` | what keeps a job to its GPUs beside the shim, and whether it could be set |
//! | `watch`, `gpus` | threads that wait for supervisors and poll GPUs |
//! | `pace`, `load` | how fast a job is beside others, and what it does to a GPU alone |
//! | `launch_slots` | which job may launch when |
//! | `long_read` | answers that are read in parts |
//! | `gates` | launches that wait for a request of the job beside them |
//! | `dry_run` | what jobs need of which nothing is known, by a helper process |
//! | `hooks` | the administrator's prolog and epilog |
//! | `suspend` | a job taken off its GPUs without loss, and brought back, by a helper process |
//! | `host` | what jobs take of the host's CPUs and memory |
//! | `events` | the log that `radrm replay --events` reads |
//! | `slurm` | engine mode: Slurm places the jobs, radrmd watches them |

mod accounting;
mod attempt;
mod check;
mod config;
mod descriptors;
mod device_filter;
mod disk_use;
mod dry_run;
mod engine;
mod error;
mod events;
mod fence;
mod gates;
mod gpu_numbers;
mod gpus;
mod history;
mod hooks;
mod host;
mod http;
mod job_files;
mod job_output;
mod latency;
mod launch_slots;
mod limited_groups;
mod load;
mod long_read;
mod message;
mod metrics;
mod mps;
mod numbers;
mod outcome;
mod pace;
mod peer;
mod process;
mod reservations;
mod server;
mod signals;
mod slurm;
mod status;
mod store;
mod supervisor;
mod suspend;
mod time;
mod user_limits;
mod watch;

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::channel;
use std::time::Duration;

use clap::Parser;
use radrm_text::output::Priority;
use radrm_text::{output, usage};

use config::Config;
use engine::{Disk, Engine};
use error::DaemonError;
use gpus::Gpus;
use history::History;
use numbers::Numbers;
use process::{NAME, Stopped, only_one};
use signals::{block_signals, take_signals};
use store::Store;
use watch::Watch;

/// Run GPU jobs of several users on this node's GPUs
///
/// Takes jobs from `radrm submit`, places them by the GPU memory that they need, starts them as their users, and keeps
/// the queue on disk: jobs survive the daemon, and the next daemon adopts them.
///
/// Without a configuration root listens at /run/radrmd/socket and keeps its state in /var/lib/radrm; other users listen
/// in $XDG_RUNTIME_DIR/radrmd, keep it in ~/.local/state/radrm, and start their own jobs only.
///
/// SIGTERM and Ctrl-C end the daemon, not its jobs. SIGHUP reloads the configuration.
#[derive(Clone, Parser, Debug)]
#[command(
    name = "radrmd",
    version,
    term_width = 80,
    after_help = "Exit code: 0, 1 if it cannot work, 2 if the command line is wrong."
)]
struct Flags {
    /// Configuration [default: /etc/radrm/radrmd.toml if it exists]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Listen here
    #[arg(long, value_name = "FILE")]
    socket: Option<PathBuf>,
    /// Keep queue, output and profiles here
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Emulate these GPUs in place of the real ones: 2xH200, A100-40GB
    #[arg(long, value_name = "SPEC")]
    emulate: Option<String>,
    /// Serve no /metrics
    #[arg(long)]
    no_metrics: bool,
    /// Check configuration and queue, and start nothing
    #[arg(long)]
    check: bool,
}

/// The command line as clap knows it: manual page and completions are made of it.
#[must_use]
pub fn command() -> clap::Command {
    <Flags as clap::CommandFactory>::command()
}

/// The whole program.
#[must_use]
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    // Before this process or a helper of it starts anything of a user.
    radrm_os::descriptors::keep_from_programs();
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    if arguments.get(1).is_some_and(|word| word == supervisor::WORD) {
        time::follow(arguments.get(2).map(OsString::as_os_str));
        descriptors::restore(arguments.get(3));
        return supervisor::keep();
    }
    if arguments.get(1).is_some_and(|word| word == dry_run::WORD) {
        time::follow(arguments.get(2).map(OsString::as_os_str));
        descriptors::restore(arguments.get(3));
        return dry_run::keep();
    }
    if arguments.get(1).is_some_and(|word| word == mps::WORD) {
        return mps::keep();
    }
    if arguments.get(1).is_some_and(|word| word == hooks::WORD) {
        return hooks::keep();
    }
    if arguments.get(1).is_some_and(|word| word == suspend::WORD) {
        return suspend::help();
    }
    let flags = match usage::flags::<Flags>(arguments, NAME, "radrmd --help") {
        Ok(flags) => flags,
        Err(code) => return code,
    };
    let done = match flags.check {
        true => configure(flags).and_then(|config| check::all(&config)).map(|found| {
            found.iter().for_each(|sentence| output::log(Priority::Info, NAME, sentence));
            Stopped::ToEnd
        }),
        false => serve(flags),
    };
    match done {
        Ok(Stopped::ToEnd) => ExitCode::SUCCESS,
        Ok(Stopped::ToRestart) => restart(),
        Err(error) => {
            output::log(Priority::Error, NAME, &error.to_string());
            ExitCode::FAILURE
        }
    }
}

/// The configuration with what the command line changes.
fn configure(flags: Flags) -> Result<Config, DaemonError> {
    let mut config = Config::load(flags.config.as_deref())?;
    config.remarks().iter().for_each(|sentence| output::say(NAME, sentence));
    let absolute = |path: PathBuf| std::path::absolute(&path).unwrap_or(path);
    config.socket = absolute(flags.socket.unwrap_or(config.socket));
    config.state = absolute(flags.state.unwrap_or(config.state));
    config.emulate = flags.emulate.unwrap_or(config.emulate);
    if !config.events.as_os_str().is_empty() {
        config.events = absolute(config.events);
    }
    if flags.no_metrics {
        config.metrics.clear();
    }
    Ok(config)
}

/// Becomes the daemon once more, in the same process: the next one adopts what runs.
fn restart() -> ExitCode {
    descriptors::restore(descriptors::word().map(OsString::from).as_ref());
    // SAFETY: a set that lives here; the signals of `block_signals` act again.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const set, std::ptr::null_mut());
    }
    let error = std::process::Command::new("/proc/self/exe").args(std::env::args_os().skip(1)).exec();
    output::log(Priority::Error, NAME, &format!("cannot restart: {}", radrm_base::reason(&error)));
    ExitCode::FAILURE
}

fn serve(flags: Flags) -> Result<Stopped, DaemonError> {
    // The queue holds all users' command lines and environments.
    // SAFETY: a plain system call that cannot fail.
    unsafe { libc::umask(0o077) };
    descriptors::raise();
    let again = flags.clone();
    let config = configure(flags)?;
    prepare(&config.state)?;
    let _lock = only_one(&config.state)?;
    let boot = radrm_os::host::boot_id();
    let boot_file = config.state.join("boot");
    let boot_is_new = fs::read_to_string(&boot_file).unwrap_or_default().trim() != boot;
    let gpus = Gpus::find(&config, boot_is_new)?;
    gpus::reserved_whole(&gpus.list, config.gpu_reserve_mib)?;
    config.mps.unknown_gpus(&gpus.list).iter().for_each(|sentence| output::say(NAME, sentence));
    if boot_is_new {
        // The next daemon would take what runs for processes of another boot.
        fs::write(&boot_file, &boot).map_err(|error| DaemonError::file(&boot_file, &error))?;
    }
    if config.slurm.engine {
        return slurm::serve(&config, gpus, block_signals(), || configure(again.clone()));
    }
    let mut store = Store::open(&config.state.join("queue.db"))?;
    let given = store.highest().map_err(DaemonError::QueueRead)?;
    let (numbers, behind) = Numbers::open(&config.state, given)?;
    if let Some(behind) = behind {
        store.skip_to(behind.floor).map_err(DaemonError::QueueWrite)?;
        output::say(NAME, &behind.sentence(given));
    }
    let (history, failed) = History::open(&config.state, &config.emulate);
    failed.iter().for_each(|sentence| output::say(NAME, sentence));
    let newest = store.newest().map_err(DaemonError::QueueRead)?;
    time::begin(&config.state.join("clock"), &boot, newest);
    let (listener, _socket_lock) = server::listen(&config.socket)?;
    let signals = block_signals();
    let (to, from) = channel();
    // From here on there are several threads.
    take_signals(signals, to.clone())?;
    let watch = Watch::start(to.clone())?;
    let (ask, asked) = channel();
    let disk = Disk { store, history, numbers };
    let engine = Engine::new(config.clone(), disk, gpus.clone(), watch, boot, ask)?;
    let audit = (config.audit_s > 0).then(|| Duration::from_secs(config.audit_s));
    gpus::watch(&gpus, Duration::from_millis(config.poll_ms), audit, asked, to.clone());
    if let Some(address) = config.metrics()?
        && let Err(error) = http::serve(address, to.clone())
    {
        output::say(NAME, &format!("/metrics is not served: {}", radrm_base::reason(&error)));
    }
    let socket = config.socket.clone();
    server::serve(listener, socket.clone(), config.admin_group, engine.limited_groups(), to)?;
    let text = format!("ready at {} with {}", socket.display(), gpus.describe());
    output::log(Priority::Info, NAME, &text);
    tell_systemd();
    let stopped = engine.run(&from, || configure(again.clone()));
    let _ = fs::remove_file(&socket);
    Ok(stopped)
}

/// Tells systemd, where it started the daemon (`Type=notify`), that requests are answered from here on.
pub(crate) fn tell_systemd() {
    if let Err(error) = sd_notify::notify(&[sd_notify::NotifyState::Ready]) {
        output::log(
            Priority::Warning,
            NAME,
            &format!("systemd cannot be told: {}", radrm_base::reason(&error)),
        );
    }
}

/// The folders. Users pass through them to their own jobs' folders, and see no others.
fn prepare(state: &Path) -> Result<(), DaemonError> {
    for (folder, mode) in
        [(state.to_owned(), 0o711), (state.join("jobs"), 0o711), (state.join("attempts"), 0o700)]
    {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(mode)
            .create(&folder)
            .and_then(|()| fs::set_permissions(&folder, fs::Permissions::from_mode(mode)))
            .map_err(|error| DaemonError::not(&folder, " cannot be used", &error))?;
    }
    Ok(())
}
