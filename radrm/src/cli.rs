//! The command line of `radrm`. The comments of flags are the help texts.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use radrm_text::usage::{Instead, explain};

use crate::overview::grouped;
use crate::show::{compare, dataset, report};
use crate::{
    advise, audit, calibrate, cdi, client, demo, evaluate, explore, export, fence, import_ncu, quota, replay,
    reproduce, share, slurm, sweep, terminal, train,
};

/// Columns of help texts, as of a narrow terminal.
const WIDTH: usize = 80;

/// For a user who types the name alone.
const BEGIN: &str =
    "no command given: try `radrm doctor`, which checks this machine, or `radrm demo`, which needs no GPU";

/// Show what was recorded of GPU programs, change limits, and submit jobs
///
/// Profiles and the dataset are written by radrm-run, jobs are run by radrmd.
#[derive(Parser, Debug)]
#[command(
    name = "radrm",
    version,
    term_width = WIDTH,
    subcommand_required = true,
    arg_required_else_help = false,
    after_help = "\
Exit code: 0, 1 if something went wrong, 2 if the command line is wrong, 3 if an
audit found something; that of the job with submit --wait.",
    after_long_help = "\
Exit code: 0, 1 if something went wrong, 2 if the command line is wrong, 3 if an
audit found something; that of the job with submit --wait.

Examples:
  radrm report train.4711.radrm --html
  radrm compare train.4711.radrm train.4802.radrm
  radrm estimate -- python3 train.py --batch-size 64
  radrm submit --gpu-mem 12GiB --time 4h -- python3 train.py
  radrm queue --why
  radrm dataset list --program python3"
)]
pub struct Flags {
    /// Socket of the daemon [default: $RADRM_SOCKET, the user's own daemon, /run/radrmd/socket]
    #[arg(long, value_name = "FILE", global = true, help_heading = "Daemon")]
    pub(crate) socket: Option<PathBuf>,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The whole command line as data, for man pages and completions.
#[must_use]
pub fn command() -> clap::Command {
    Flags::command()
}

/// Reads a command line, the program's own name first.
///
/// # Errors
/// [`Instead`]: help was asked for, or the line is wrong.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Flags, Instead> {
    let matches = grouped(command(), WIDTH).try_get_matches_from(arguments);
    matches.and_then(|matches| Flags::from_arg_matches(&matches)).map_err(|error| match error.kind() {
        ErrorKind::MissingSubcommand if error.get(ContextKind::InvalidSubcommand).is_some_and(is_root) => {
            Instead::Wrong(BEGIN.to_owned())
        }
        _ => explain(&error),
    })
}

/// Returns true if it names the whole program, and not one of its commands.
fn is_root(value: &ContextValue) -> bool {
    matches!(value, ContextValue::String(name) if name == "radrm")
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Show a profile: memory per GPU and process, kernels, failed requests
    ///
    /// A profile can be read while its program still runs, and after radrm-run or the node died. An existing file is
    /// replaced by OUT, but never a profile.
    #[command(after_long_help = "\
Examples:
  radrm report train.4711.radrm --timeline
  radrm report train.4711.radrm --oom
  radrm report train.4711.radrm --json | jq .
  radrm report train.4711.radrm --html=memory.html
  radrm report --perfetto train.4711.radrm train.json")]
    Report(report::Flags),
    /// Show what changed between runs, and whether it is more than noise
    ///
    /// Compares peak memory by GPU and kind, time, launches, kernels, activity, energy and the host's counters. With
    /// several profiles on a side it reports which changes are significant (Welch's t-test at 99 %). A directory stands
    /// for all profiles in it.
    #[command(after_long_help = "\
Examples:
  radrm compare train.4711.radrm train.4802.radrm
  radrm compare --before old/*.radrm --after new/*.radrm")]
    Compare(compare::Flags),
    /// Estimate GPU memory, activity and run time of a job from earlier runs
    ///
    /// Takes the options of `radrm submit`. The daemon resolves the job's needs as it would for a submission, from its
    /// history of the user's jobs. Without a daemon, or with --dataset, they are resolved likewise from the user's
    /// dataset: what radrm-run and dry runs measured. An equal run has the same command, directory and number of GPUs;
    /// runs at other batch sizes are extrapolated.
    #[command(after_long_help = "\
Examples:
  radrm estimate -- python3 train.py --batch-size 64
  radrm estimate --gpus 2 --json -- python3 train.py | jq .memory.upper_bytes
  radrm estimate --dry-run -- python3 train.py
  radrm estimate --features features.toml")]
    Estimate(Box<client::estimate::Flags>),
    /// Train a memory model on measured runs
    ///
    /// Learns from programs that ran at several batch sizes how memory grows, and how far off estimates are. radrmd uses
    /// the file that `model` below `[estimator]` names; without one, a model that ships.
    #[command(after_long_help = "\
Examples:
  radrm train -o model.json
  radrm train --csv runs.csv.gz -o model.json")]
    Train(train::Flags),
    /// Compare estimates of memory with what programs took
    ///
    /// Prints for each file how many bounds were too low, how much was allocated in vain, and the errors, by what was
    /// known before the run; for networks also Horus's formula, accelerate's and DeepSpeed's rules.
    #[command(after_long_help = "\
Examples:
  radrm evaluate --model model.json
  radrm evaluate runs.csv.gz --json")]
    Evaluate(evaluate::Flags),
    /// Show, check and copy the runs that were recorded
    ///
    /// Every run under radrm-run adds a row: the command, the user, the GPUs, the peaks, the duration and the outcome.
    /// The dataset is $XDG_DATA_HOME/radrm/dataset.db, an SQLite database, or ~/.local/share/radrm/dataset.db.
    #[command(subcommand_required = true, arg_required_else_help = false)]
    Dataset {
        #[command(subcommand)]
        command: dataset::Command,
    },
    /// Show the runs of the dataset as a page in a browser of this machine
    ///
    /// Prints the page's address and serves it until Ctrl-C: a table of all runs that can be filtered and ordered, curves
    /// of chosen runs over each other, points and boxes of any figure by any other or by a parameter, how much runs slow
    /// each other, and each run's own report. Parameters are the options of command lines, and those of the sweeps that
    /// are named.
    ///
    /// Everything is only read. The server is reachable from this machine only, and answers only requests that have the
    /// token, the part of the address behind the #: without the whole line other users learn nothing.
    #[command(after_long_help = "\
Examples:
  radrm explore
  radrm explore grid.toml
  radrm explore --dataset /var/lib/radrm/dataset.db --port 8765")]
    Explore(explore::Flags),
    /// Send runs to trackers of experiments
    #[command(subcommand_required = true, arg_required_else_help = false)]
    Export {
        #[command(subcommand)]
        command: export::Command,
    },
    /// Add metrics from Nsight Compute to a run: L2, DRAM and memory throughput, occupancy
    ///
    /// No meter reports these before Hopper. Profile one iteration of the program with `ncu`; the kernels of FILE are
    /// found in the run by name, and their metrics weighted by the launches and the GPU time that radrm-run recorded. The
    /// result is kept in the run's profile and in its row of the dataset. A second import replaces the first.
    #[command(after_long_help = "\
Examples:
  ncu --set full -o step -- python3 train.py --steps 1
  ncu --import step.ncu-rep --csv --page raw > step.csv
  radrm import-ncu step.csv --run train.4711.radrm")]
    ImportNcu(import_ncu::Flags),
    /// Advise which programs share a GPU well, on which card each is best placed, and what limits each
    ///
    /// Reads the dataset: SM and DRAM activity and peaks of runs alone, launch rates beside others where the daemon has
    /// observed them (`--dataset /var/lib/radrm/dataset.db`). Speeds are against running alone, with 95 % intervals.
    #[command(after_long_help = "\
Examples:
  radrm advise
  radrm advise 12 17 23 --price A100-40GB=1.10 --price H200=3.20
  radrm advise --json | jq '.pairs[0]'")]
    Advise(advise::Flags),
    /// Measure a program's speed at parts of a GPU's multiprocessors, while the GPU is idle
    ///
    /// Runs the program under MPS at 100 %, at each part, and at 100 % again, for a bounded time each, and counts its launches.
    /// The curve is kept in the dataset. radrmd limits a program under MPS to the smallest part that keeps 95 % of its
    /// speed; without a curve measured on the same GPU model it sets no limit.
    #[command(after_long_help = "\
Examples:
  radrm calibrate --mps -- python3 train.py --batch-size 64
  radrm calibrate --mps --shares 20,40,60 --time 60s --dataset /var/lib/radrm/dataset.db -- ./server")]
    Calibrate(calibrate::Flags),
    /// Check what works on this machine, and what to do about the rest
    ///
    /// Checks the libraries, the driver, the GPUs and their device files, meters, limits, MPS, the daemon and the
    /// container. Exit code 1 means that radrm-run cannot record programs here.
    #[command(after_long_help = "\
Example:
  radrm-run --emulate 2xH200 -- radrm doctor")]
    Doctor {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Bring programs and limits into containers (Container Device Interface)
    #[command(subcommand_required = true, arg_required_else_help = false)]
    Cdi {
        #[command(subcommand)]
        command: cdi::Command,
    },
    /// Run a small training program on emulated GPUs and show what is recorded of it
    ///
    /// Needs no GPU and no program of your own. Writes the profile, the page of the report and a dataset into a folder.
    #[command(after_long_help = "\
Examples:
  radrm demo
  radrm demo --emulate A100-40GB --folder /tmp/demo
  radrm demo --real")]
    Demo(demo::Flags),
    /// Print completions of all three programs for a shell
    ///
    /// Packages have them installed. Elsewhere, write the line of the shell into its start-up file.
    #[command(after_long_help = "\
Examples:
  source <(radrm completion bash)
  source <(radrm completion zsh)
  radrm completion fish | source")]
    Completion {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Show the manual page of a command
    ///
    /// In a terminal `man` shows the page. Otherwise its source is printed.
    #[command(after_long_help = "\
Examples:
  radrm man report
  radrm man quota set
  radrm man radrm-run")]
    Man {
        /// The command, behind radrm-run or radrmd for these programs
        command: Vec<String>,
    },
    /// Write manual pages, completions for shells and the reference of commands, for packages
    #[command(hide = true)]
    Generate {
        /// The folder to write into
        folder: PathBuf,
    },
    /// Run a program of an interactive job on a terminal: `radrm submit --interactive` submits this
    #[command(hide = true)]
    Terminal(terminal::Flags),
    /// Show the GPU models that can be emulated
    ///
    /// The names are those of `radrm-run --emulate`, with an optional count before them: 2xH200, or 1xT4+2xA100-80GB.
    /// Other models can be described in a TOML file, whose path is given instead.
    #[command(after_long_help = "\
Example:
  radrm-run --emulate 2xA100-40GB -- python3 train.py")]
    Machines {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show and change limits on GPU memory and GPU time while jobs run
    #[command(
        subcommand_required = true,
        arg_required_else_help = false,
        after_long_help = "\
Examples:
  radrm quota show
  radrm quota set 4711 8GiB
  radrm quota set 4711 --sm-limit 30%
  radrm quota set user:alice 0=20GiB,1=none"
    )]
    Quota {
        #[command(subcommand)]
        command: quota::Command,
    },
    /// Set and show the driver's own limits of control groups (driver 615 and newer)
    ///
    /// They hold for every process in the group. Jobs of root under radrm-run, jobs of radrmd, and jobs of Slurm and
    /// Kubernetes with the plug-ins have them without this command.
    #[command(subcommand_required = true, arg_required_else_help = false)]
    Fence {
        #[command(subcommand)]
        command: fence::Command,
    },
    /// Simulate scheduling policies on the jobs of a trace
    ///
    /// The decisions are those of the node daemon; the node is a model. Times are hours; an interval is 95 % over the
    /// seeds. The bound is what no policy can beat under the model.
    #[command(after_long_help = "\
Examples:
  radrm replay thesis_60.csv --policy all --profiles workloads.csv
  radrm replay thesis_90.csv --policy magm --estimator none --min-free 2GiB
  radrm replay pods.csv --gpus nodes.csv --policy aware --seeds 0
  radrm replay --events /var/lib/radrm/events.jsonl
  radrm replay thesis_60.csv --live --speed 10 -- ./stand_in {mem_mib} {seconds}
  radrm replay synthetic:1000000 --gpus 64xA100-40GB --seeds 0")]
    Replay(Box<replay::Flags>),
    /// Print a published table with our figures beside it
    ///
    /// Without a name the tables are listed. Figures of replays are means over the seeds with their 95 % interval, of published
    /// ones of one run each; estimators and predictors are trained on the measurements that were published with them.
    /// docs/published-tables.md explains the differences.
    #[command(after_long_help = "\
Examples:
  radrm reproduce
  radrm reproduce carma-table-6.3 --data ../data
  radrm reproduce kace-partners --data KACE-artifact")]
    Reproduce(reproduce::Flags),
    /// Find processes that take GPU memory past their limits
    ///
    /// Compares what the driver reports for each process (NVML) with what its shim has counted, on every GPU, for all
    /// jobs that the user can see; root sees all. Reported are processes without a shim (started without radrm-run,
    /// statically linked, setuid, RADRM_DISABLE set, preload lost), and those that hold more than was counted, for
    /// instance through a library opened with RTLD_DEEPBIND.
    ///
    /// Contexts take memory too: as much as earlier jobs on such a GPU with such a driver showed, or else 640 MiB.
    #[command(after_long_help = "\
Exit code: 0 if everything is explained, 3 if a process is reported, 1 if NVML
does not work, 2 if the command line is wrong.")]
    Audit(audit::Flags),
    /// Submit a batch job to Slurm that asks for the GPU memory that it needs
    ///
    /// The need is taken from earlier runs of the same script with the same arguments, or else from an estimate; it is
    /// printed with its source, turned into shards (gres/shard) and handed to sbatch, which gets all its own options. A
    /// job of unknown need gets a GPU of its own, and so does one that needs more than an estimate can promise. Jobs that
    /// name GPUs or shards keep what they name.
    #[command(after_long_help = "\
Exit code: that of sbatch; 1 if nothing was submitted, 2 if the command line is
wrong.

Examples:
  radrm sbatch train.sh
  radrm sbatch -p gpu --time 4:00:00 train.sh --batch-size 64
  radrm sbatch --gpu-mem 12GiB --attempts 2 train.sh
  radrm sbatch --dry-run --wrap 'python3 train.py'")]
    Sbatch(Box<slurm::submit::Flags>),
    /// Requeue a job of Slurm that ran out of GPU memory, with more of it
    #[command(hide = true, override_usage = "radrm slurm-retry [OPTIONS]")]
    SlurmRetry(slurm::retry::Flags),
    /// Run many configurations of a program, resume after an interruption, and compare them
    ///
    /// Groups of runs are run one after the other, the members of a group at once. Each run has a profile, limits and an
    /// output of its own in FILE.sweep, and the state is kept there: the same command goes on where it was interrupted.
    /// Where radrmd answers, each run is a job of it, and runs wait in its queue together.
    #[command(
        args_conflicts_with_subcommands = true,
        after_long_help = "\
Exit code: 0, 1 if a run failed or something went wrong, 2 if the command line
is wrong, 130 if it was interrupted.

Examples:
  radrm sweep --dry-run grid.toml
  radrm sweep grid.toml
  radrm sweep --emulate 2xA100-40GB experiment.csv
  radrm sweep report grid.toml"
    )]
    Sweep(Box<sweep::Flags>),
    /// Run unmodified programs that load the same data with one loader
    ///
    /// Where PyTorch's DataLoaders of several programs would give the same samples in the same order, one process loads
    /// them for all. Where they would not, each program loads its own, and a line on standard error reports why. Programs
    /// that name their loader themselves use the Python package radrm.share instead.
    #[command(
        override_usage = "radrm share [OPTIONS] -- PROGRAM [ARG]... [-- PROGRAM [ARG]...]...",
        after_long_help = "\
Exit code: the highest of the programs'.

Examples:
  radrm share -- python3 train.py --lr 0.1 -- python3 train.py --lr 0.01"
    )]
    Share(share::Flags),
    /// Supervise a run of a sweep
    #[command(hide = true)]
    SweepRun {
        /// The folder of the attempt
        folder: PathBuf,
    },
    #[command(flatten)]
    Daemon(client::Command),
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn flags(line: &str) -> Result<Flags, Instead> {
        let words = line.split(' ').filter(|word| !word.is_empty());
        parse(["radrm"].into_iter().chain(words).map(OsString::from))
    }

    #[test]
    fn wrong_lines_are_explained_in_one_sentence() {
        for (line, part) in [
            ("", "no command given"),
            ("bogus", "there is no command bogus"),
            ("report", "missing"),
            ("reprot f", "there is no command reprot; did you mean report?"),
            ("report f --bogus", "there is no option --bogus"),
            ("report f --htm", "there is no option --htm; did you mean --html?"),
            ("report f --stacks=svg", "there is no value svg for --stacks"),
            ("completion bahs", "did you mean bash?"),
            ("report f --stacks=pporf", "did you mean pprof?"),
            ("replay t.csv --policy MAGMM", "or all; did you mean magm?"),
            ("replay t.csv --mode mpss", "did you mean mps?"),
            ("report f --stacks=svg", "pprof or perfetto"),
            ("machines x", "unexpected argument x"),
            ("advise x", "`x` is not a whole number"),
            ("report f --json --html", "cannot be used together"),
            ("report f --oom --timeline", "cannot be used together"),
            ("report f --perfetto --html", "cannot be used together"),
            ("compare --before a b", "--after"),
            ("dataset", "no command given: try list, backup or check"),
            ("dataset list -n x", "x"),
            ("quota", "no command given: try show, init or set"),
            ("quota show alice", "alice"),
            ("quota set alice 8GiB", "`alice` is neither a job"),
            ("quota set 4711 8G", "can mean two things"),
            ("quota set 4711", "missing"),
            ("quota set 4711 --sm-limit 0", "--sm-limit: `0` is not a percentage"),
            ("audit --tolerance 5%", "--tolerance: `5%` is not an amount of memory"),
            ("replay", "missing"),
            ("replay t.csv --policy fastest", "there is no policy fastest; there are"),
            ("replay t.csv --policy fastest", "aware, or all"),
            ("replay t.csv --policy all,aware", "all stands alone"),
            ("replay t.csv --mode fast", "is none of mps"),
        ] {
            match flags(line) {
                Err(Instead::Wrong(text)) => {
                    assert!(text.contains(part), "{line}: {text}");
                    assert_eq!(text.lines().count(), 1, "{text}");
                }
                other => panic!("{line}: {other:?}"),
            }
        }
    }

    fn programs() -> [clap::Command; 2] {
        [grouped(command(), WIDTH), radrm_launcher::cli::command()]
    }

    #[test]
    fn every_help_text_is_the_recorded_one() {
        let mut text = String::new();
        for mut program in programs() {
            helps(&mut text, &mut program);
        }
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "wider than a terminal");
        insta::assert_snapshot!("help", text);
    }

    /// Appends the help of a command and of those below it.
    fn helps(text: &mut String, command: &mut clap::Command) {
        command.build();
        let help = command.render_long_help().to_string();
        let lines = help.lines().map(str::trim_end);
        text.extend(lines.flat_map(|line| [line, "\n"]));
        text.push_str("--------\n");
        for below in command.get_subcommands_mut().filter(|below| below.get_name() != "help") {
            helps(text, below);
        }
    }

    #[test]
    fn every_command_and_option_is_explained() {
        fn check(command: &clap::Command) {
            assert!(command.get_about().is_some(), "{}", command.get_name());
            for argument in command.get_arguments().filter(|argument| !argument.is_hide_set()) {
                assert!(argument.get_help().is_some(), "{} {}", command.get_name(), argument.get_id());
            }
            command.get_subcommands().for_each(check);
        }
        programs().iter().for_each(check);
    }

    #[test]
    fn a_bad_value_is_a_wrong_command_line_for_every_command() {
        for (line, part) in [
            ("submit --gpu-mem 3G -- p", "--gpu-mem"),
            ("submit --time x -- p", "--time"),
            ("submit --time 99999999999999999-1 -- p", "--time"),
            ("submit --gpu-share 0 -- p", "--gpu-share"),
            ("submit --cpus -1 -- p", "--cpus"),
            ("submit --cpus many -- p", "--cpus"),
            ("submit --dry-run=0 -- p", "--dry-run"),
            ("submit --checkpoint-signal NONE -- p", "--checkpoint-signal"),
            ("submit --batch-size 0 -- p", "--batch-size"),
            ("submit --gpus x -- p", "--gpus"),
            ("estimate --gpus x -- p", "--gpus"),
            ("stats --since yesterday", "--since"),
            ("top --every 0", "--every"),
            ("top --every nan", "--every"),
            ("queue --ended x", "--ended"),
            ("cancel x", "x"),
            ("logs", "missing"),
            ("drain", "missing"),
        ] {
            let Err(Instead::Wrong(text)) = flags(line) else { panic!("{line}") };
            assert!(text.to_lowercase().contains(part) && text.lines().count() == 1, "{line}: {text}");
        }
    }

    #[test]
    fn the_daemons_socket_stands_anywhere() {
        for line in ["--socket s queue", "queue --socket s", "--socket=s queue --why"] {
            assert_eq!(flags(line).unwrap().socket.as_deref(), Some(Path::new("s")), "{line}");
        }
    }
}
