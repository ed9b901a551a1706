//! `radrm sweep`: many runs of programs from one file.

mod forecast;
mod jobs;
pub(crate) mod member;
mod page;
mod progress;
mod report;

use std::env;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use radrm_emulator_machine::MachineSpec;
use radrm_os::nvml::{Nvml, NvmlSource};
use radrm_sweep::execute::{self, End, Options, Sweep};
use radrm_sweep::folder::Folder;
use radrm_sweep::machine::{self, MigInstance};
use radrm_sweep::stop::Stop;
use radrm_sweep::{Source, supervisor};
use radrm_text::clean;

use crate::error::UsageError;
use crate::{Failure, NAME};

use progress::Progress;
pub(crate) use report::{company, recorded};

/// Exit code that a shell reports of a program that Ctrl-C ended.
const INTERRUPTED: u8 = 130;

/// The flags as written.
#[derive(Args, Debug)]
pub(crate) struct Flags {
    #[command(subcommand)]
    command: Option<Command>,
    /// The sweep: .toml, or radT's .csv, .yaml or .yml
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// Run on emulated GPUs, as `radrm-run --emulate`; the members of a group share them
    #[arg(long, value_name = "SPEC")]
    emulate: Option<String>,
    /// Run groups again of which a run failed
    #[arg(long)]
    rerun: bool,
    /// Starter of the runs: by radrmd as its jobs, or by the sweep itself [default: radrmd where one answers]
    #[arg(long, value_name = "radrmd|self", value_enum, hide_possible_values = true)]
    through: Option<Through>,
    /// Groups that run at once where the sweep itself starts them, each on GPUs of its own; runs that name no `devices` get one GPU
    #[arg(long, short = 'j', value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    jobs: u16,
    /// Start nothing: show what each run and each group needs, whether it fits, and how long all takes
    #[arg(long, conflicts_with = "rerun")]
    dry_run: bool,
}

/// Program that starts the runs.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Through {
    Radrmd,
    #[value(name = "self")]
    Own,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Compare the configurations of a sweep, also while it runs
    ///
    /// Means over repetitions have 95 % intervals (Student's t). A slowdown is the time in company by that of the same work alone. A
    /// star marks the configurations that no other beats in both run time and memory, a plus those that none beats in run
    /// time and energy.
    #[command(after_long_help = "\
Examples:
  radrm sweep report grid.toml
  radrm sweep report grid.toml --best peak-memory
  radrm sweep report grid.toml --csv > runs.csv
  radrm sweep report grid.toml --html=grid.html")]
    Report(report::Flags),
}

/// Does what the command line asks for, and gives the exit code.
pub(crate) fn run(flags: Flags, socket: Option<&Path>) -> Result<u8, Failure> {
    if let Some(Command::Report(flags)) = &flags.command {
        return report::run(flags).map(|()| 0);
    }
    let path = flags.file.as_deref().ok_or(UsageError::NoSweep)?;
    let here = env::current_dir().map_err(Failure::NoDirectory)?;
    let mut source = radrm_sweep::read(path, &here)?;
    // They may quote another user's file.
    source.plan.remarks.iter().for_each(|remark| radrm_text::output::say(NAME, &clean(remark)));
    if let Some(machine) = &flags.emulate {
        source.plan.run_on(Some(machine));
    }
    let machine = source.plan.emulate.as_deref().map(MachineSpec::parse).transpose()?;
    if flags.dry_run {
        return forecast::run(&source, machine.as_ref()).map(|()| 0);
    }
    let takes_runs = jobs::takes_runs(flags.through, machine.is_some(), socket)?;
    if takes_runs && flags.jobs > 1 {
        return Err(UsageError::JobsOfRadrmd.into());
    }
    let mut radrmd = jobs::radrmd(socket, takes_runs);
    let launcher = machine::launcher()?;
    let options = Options {
        supervisor: (launcher.with_file_name(NAME), vec!["sweep-run".to_owned()]),
        launcher,
        instances: match (takes_runs, &machine) {
            (true, _) => None,
            (false, Some(machine)) => Some(emulated_instances(machine)),
            (false, None) => Some(instances()),
        },
        jobs: usize::from(flags.jobs),
        gpus: if flags.jobs > 1 && machine.is_none() { gpus() } else { Vec::new() },
        rerun: flags.rerun,
        grace: execute::GRACE,
    };
    let mut sweep = Sweep::open(&source, options, Stop::by_signals()?)?;
    let mut progress =
        Progress::new(&source.plan, Folder::of(&source.path)?, std::io::stderr().is_terminal());
    let end = sweep.run(&mut radrmd, &mut |event| progress.on(event));
    progress.close();
    match end? {
        End::Interrupted => {
            let line = again(path, &flags, socket);
            radrm_text::output::say(NAME, &format!("interrupted: `{line}` goes on"));
            Ok(INTERRUPTED)
        }
        End::Over { failed } => {
            report::after(&source)?;
            Ok(u8::from(failed > 0))
        }
    }
}

/// Supervises the run in a folder.
pub(crate) fn supervise(folder: PathBuf) -> Result<(), Failure> {
    let path = folder.clone();
    supervisor::run(folder).map_err(|error| crate::error::FileProblem::Io(error).of(&path))
}

/// The GPUs of this machine that programs can use; without a driver there are none.
fn gpus() -> Vec<execute::Gpu> {
    let inventory = Nvml::open(&NvmlSource::System).and_then(|nvml| nvml.inventory()).unwrap_or_default();
    let whole = inventory.usable().filter(|gpu| !gpu.uuid.starts_with("MIG-"));
    let gpu = |gpu: &radrm_os::nvml::Gpu| execute::Gpu {
        number: gpu.index.map(|index| index.to_string()).unwrap_or_default(),
        uuid: gpu.uuid.clone(),
    };
    let all: Vec<execute::Gpu> = whole.map(gpu).collect();
    match env::var("CUDA_VISIBLE_DEVICES") {
        Ok(list) => visible(all, &list),
        Err(_) => all,
    }
}

/// Those of the GPUs that a list of `CUDA_VISIBLE_DEVICES` names; none where it names others, or is not understood.
fn visible(all: Vec<execute::Gpu>, list: &str) -> Vec<execute::Gpu> {
    let place = |name: &str| all.iter().position(|gpu| gpu.is_named(name.trim()));
    let places: Option<Vec<usize>> = list.split(',').map(place).collect();
    places.unwrap_or_default().into_iter().map(|at| all[at].clone()).collect()
}

/// The MIG instances of this machine; without a driver there are none.
fn instances() -> Vec<MigInstance> {
    let inventory = Nvml::open(&NvmlSource::System).and_then(|nvml| nvml.inventory());
    let gpus = inventory.map(|found| found.gpus).unwrap_or_default();
    let instances = gpus.into_iter().filter(|gpu| gpu.uuid.starts_with("MIG-"));
    instances.map(|gpu| MigInstance { uuid: gpu.uuid, name: gpu.name }).collect()
}

/// The MIG instances of an emulated machine.
fn emulated_instances(machine: &MachineSpec) -> Vec<MigInstance> {
    let instance = |(at, gpu): (usize, &radrm_emulator_machine::GpuSpec)| {
        let name = format!("{} MIG {}", gpu.name, gpu.mig_profile.as_ref()?);
        Some(MigInstance { uuid: machine.uuid_text(at), name })
    };
    machine.gpu.iter().enumerate().filter_map(instance).collect()
}

/// The command line that goes on, as a person can paste it: on the same machine, in the same way.
fn again(path: &Path, flags: &Flags, socket: Option<&Path>) -> String {
    let mut words = vec!["radrm".to_owned(), "sweep".to_owned()];
    let mut option = |name: &str, value: Option<String>| {
        words.extend(value.into_iter().flat_map(|value| [name.to_owned(), word(&value)]));
    };
    option("--socket", socket.map(|socket| socket.display().to_string()));
    option("--emulate", flags.emulate.clone());
    let through = flags.through.and_then(|through| through.to_possible_value());
    option("--through", through.map(|value| value.get_name().to_owned()));
    words.extend((flags.jobs > 1).then(|| format!("--jobs={}", flags.jobs)));
    words.extend(flags.rerun.then(|| "--rerun".to_owned()));
    words.push(word(&path.display().to_string()));
    words.join(" ")
}

/// A word as a shell reads it.
fn word(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./,:+=@%".contains(&byte);
    match !text.is_empty() && text.bytes().all(is_plain) {
        true => text.to_owned(),
        false => format!("'{}'", clean(text).replace('\'', "'\\''")),
    }
}

/// Runs of a plan.
fn count(source: &Source) -> usize {
    source.plan.groups.iter().map(|group| group.runs.len()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instances_of_an_emulated_machine_are_found_by_their_profile() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("m.toml");
        let text = "[[gpu]]\nmodel = \"A100\"\n[[gpu]]\nmodel = \"A100\"\nmig_profile = \"1g.5gb\"\nmemory_mib = 4864\nsms = 14\n";
        std::fs::write(&file, text).unwrap();
        let machine = MachineSpec::parse(&file.to_string_lossy()).unwrap();
        let found = emulated_instances(&machine);
        assert_eq!(found.len(), 1);
        assert!(found[0].uuid.starts_with("MIG-") && found[0].name.ends_with(" MIG 1g.5gb"), "{found:?}");
    }

    #[test]
    fn several_groups_keep_to_the_gpus_that_their_user_may_see() {
        let gpu = |at: usize| execute::Gpu { number: at.to_string(), uuid: format!("GPU-{at}ab") };
        let of = |list: &str| visible((0..4).map(gpu).collect(), list);
        assert_eq!(of("2, GPU-3"), [gpu(2), gpu(3)]);
        for list in ["", "7", "0,x", "GPU-9"] {
            assert!(of(list).is_empty(), "{list:?}: each group runs with nothing beside it");
        }
    }

    #[test]
    fn an_interrupted_sweep_names_the_line_that_goes_on_in_the_same_way() {
        let flags = |emulate: Option<&str>, rerun, through| Flags {
            command: None,
            file: None,
            emulate: emulate.map(str::to_owned),
            rerun,
            through,
            jobs: 1,
            dry_run: false,
        };
        let path = Path::new("a b.toml");
        let none = flags(None, false, None);
        assert_eq!(again(Path::new("./grid.toml"), &none, None), "radrm sweep ./grid.toml");
        let emulated = flags(Some("2xT4"), true, Some(Through::Own));
        let expected = "radrm sweep --emulate 2xT4 --through self --rerun 'a b.toml'";
        assert_eq!(again(path, &emulated, None), expected);
        let several = Flags { jobs: 4, ..flags(None, true, None) };
        let expected = "radrm sweep --jobs=4 --rerun grid.toml";
        assert_eq!(again(Path::new("grid.toml"), &several, None), expected);
        let jobs = flags(None, false, Some(Through::Radrmd));
        let expected = "radrm sweep --socket /s --through radrmd 'it'\\''s\\u{1b}'";
        assert_eq!(again(Path::new("it's\u{1b}"), &jobs, Some(Path::new("/s"))), expected);
    }
}
