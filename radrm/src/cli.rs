//! The command line of `radrm`: flags as written, and what they mean together.

mod flags;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::Parser;
use radrm_console::usage::explain;
use radrm_limits::config::Percentage;
use radrm_limits::requested::RequestedLimits;

use crate::show::compare;
use crate::{audit, client, quota, replay};
use flags::{Flags, FlagsOfCommand, FlagsOfDataset, FlagsOfQuota};

pub use radrm_console::usage::Instead;

/// In what form a report is wanted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Form {
    /// Text for people.
    Text {
        /// With memory over time.
        timeline: bool,
        /// With what each process takes of each resource.
        features: bool,
    },
    /// Text about refused requests alone.
    Oom,
    /// JSON about refused requests alone.
    OomJson,
    /// JSON for programs.
    Json,
    /// A page: in a file, or on standard output.
    Html(Option<PathBuf>),
    /// A trace for ui.perfetto.dev: in a file, or on standard output.
    Perfetto(Option<PathBuf>),
}

/// `radrm report`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// The profile.
    pub file: PathBuf,
    /// The form.
    pub form: Form,
}

/// `radrm dataset list`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct List {
    /// As JSON.
    pub json: bool,
    /// Only runs of programs of this name.
    pub program: Option<String>,
    /// At most so many, the newest; 0 means all.
    pub limit: u32,
    /// Another database than the user's.
    pub dataset: Option<PathBuf>,
}

/// What is to be done.
#[derive(Debug)]
pub enum Command {
    /// Shows a profile.
    Report(Report),
    /// Shows what changed between runs.
    Compare(compare::Compare),
    /// Shows the dataset's rows.
    DatasetList(List),
    /// Copies a dataset, or the user's.
    DatasetBackup {
        /// Where to.
        file: PathBuf,
        /// Another database than the user's.
        dataset: Option<PathBuf>,
    },
    /// Checks a dataset, or the user's.
    DatasetCheck {
        /// Another database than the user's.
        dataset: Option<PathBuf>,
    },
    /// Shows the models of GPUs that can be emulated.
    Machines {
        /// As JSON.
        json: bool,
    },
    /// Checks this machine.
    Doctor {
        /// As JSON.
        json: bool,
    },
    /// Shows or changes limits.
    Quota(quota::Order),
    /// Compares NVML with the shims.
    Audit(audit::Order),
    /// Replays a trace.
    Replay(Box<replay::cli::Order>),
    /// Resolves the needs of a job.
    Estimate(Box<client::estimate::Flags>),
    /// Asks the daemon.
    Daemon {
        /// Its socket.
        socket: Option<PathBuf>,
        /// What for.
        command: client::Command,
    },
}

/// Reads a command line, the program's own name first.
///
/// # Errors
/// [`Instead`]: help was asked for, or the line is wrong.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Command, Instead> {
    let flags = Flags::try_parse_from(arguments).map_err(|error| explain(&error))?;
    let socket = flags.socket;
    match flags.command {
        FlagsOfCommand::Daemon(command) => Ok(Command::Daemon { socket, command }),
        FlagsOfCommand::Estimate(mut flags) => {
            flags.socket = socket;
            Ok(Command::Estimate(flags))
        }
        FlagsOfCommand::Compare(flags) => flags.resolve().map(Command::Compare).map_err(Instead::Wrong),
        FlagsOfCommand::Report { file, json, html, timeline, features, oom, perfetto, mut more } => {
            let takes_one = matches!(perfetto, Some(None));
            if more.len() > usize::from(takes_one) {
                return Err(Instead::Wrong(too_many(&file, &more)));
            }
            let out = more.pop();
            let form = match (json, html) {
                (false, None) if perfetto.is_some() => {
                    let named = perfetto.flatten().or(out);
                    let out = named.unwrap_or_else(|| file.with_extension("perfetto.json"));
                    Form::Perfetto((out.as_os_str() != "-").then_some(out))
                }
                (true, _) if oom => Form::OomJson,
                (true, _) => Form::Json,
                (false, Some(out)) => {
                    let out = out.unwrap_or_else(|| file.with_extension("html"));
                    Form::Html((out.as_os_str() != "-").then_some(out))
                }
                (false, None) if oom => Form::Oom,
                (false, None) => Form::Text { timeline, features },
            };
            Ok(Command::Report(Report { file, form }))
        }
        FlagsOfCommand::Dataset { command } => Ok(match command {
            FlagsOfDataset::List { json, program, limit, dataset } => {
                Command::DatasetList(List { json, program, limit, dataset })
            }
            FlagsOfDataset::Backup { file, dataset } => Command::DatasetBackup { file, dataset },
            FlagsOfDataset::Check { dataset } => Command::DatasetCheck { dataset },
        }),
        FlagsOfCommand::Doctor { json } => Ok(Command::Doctor { json }),
        FlagsOfCommand::Machines { json } => Ok(Command::Machines { json }),
        FlagsOfCommand::Quota { command } => match command {
            FlagsOfQuota::Show { job, json, machine } => {
                Ok(Command::Quota(quota::Order::Show { job, json, machine }))
            }
            FlagsOfQuota::Init { targets, machine } => {
                let targets = targets.iter().map(|target| quota::Target::parse(target));
                let targets = targets.collect::<Result<_, _>>().map_err(Instead::Wrong)?;
                Ok(Command::Quota(quota::Order::Init { targets, machine }))
            }
            FlagsOfQuota::Set { target, limit, sm_limit, machine } => {
                let target = quota::Target::parse(&target).map_err(Instead::Wrong)?;
                let limits = match limit.as_deref() {
                    None => None,
                    Some("config") => Some(None),
                    Some(text) => Some(Some(
                        RequestedLimits::parse(text).map_err(|error| Instead::Wrong(error.to_string()))?,
                    )),
                };
                let share = match sm_limit.as_deref() {
                    None => None,
                    Some("none") => Some(None),
                    Some(text) => {
                        let wrong = |why| Instead::Wrong(format!("--sm-limit: {why}"));
                        Some(Some(Percentage::parse(text).map_err(wrong)?))
                    }
                };
                Ok(Command::Quota(quota::Order::Set { target, limits, share, machine }))
            }
        },
        FlagsOfCommand::Replay(flags) => {
            Ok(Command::Replay(Box::new(flags.order().map_err(Instead::Wrong)?)))
        }
        FlagsOfCommand::Audit { json, tolerance, machine } => {
            let tolerance = tolerance.as_deref().map(audit::tolerance).transpose();
            let tolerance = tolerance.map_err(|why| Instead::Wrong(format!("--tolerance: {why}")))?;
            Ok(Command::Audit(audit::Order { json, machine, tolerance }))
        }
    }
}

/// What to do with more files than a report has use for.
fn too_many(file: &Path, more: &[PathBuf]) -> String {
    let compare = match more {
        [other] => format!("radrm compare {} {}", file.display(), other.display()),
        _ => "radrm compare --before PROFILE... --after PROFILE...".to_owned(),
    };
    format!(
        "report shows one profile at a time: `{compare}` shows what changed between several, and what a report writes \
         is named by --html=OUT or --perfetto=OUT"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use flags::WIDTH;

    fn command(line: &str) -> Result<Command, Instead> {
        parse(
            ["radrm"].into_iter().chain(line.split(' ').filter(|word| !word.is_empty())).map(OsString::from),
        )
    }

    #[test]
    fn a_page_goes_beside_its_profile_unless_told_otherwise() {
        let form = |line: &str| match command(line) {
            Ok(Command::Report(report)) => report.form,
            other => panic!("{other:?}"),
        };
        assert_eq!(form("report d/p.7.radrm --html"), Form::Html(Some("d/p.7.html".into())));
        assert_eq!(form("report p.radrm --html=x.html"), Form::Html(Some("x.html".into())));
        assert_eq!(form("report p.radrm --html=-"), Form::Html(None));
        assert_eq!(form("report p.radrm --timeline"), Form::Text { timeline: true, features: false });
        assert_eq!(form("report p.radrm --features"), Form::Text { timeline: false, features: true });
        assert_eq!(form("report --oom p.radrm"), Form::Oom);
        assert_eq!(form("report --perfetto d/p.7.radrm"), Form::Perfetto(Some("d/p.7.perfetto.json".into())));
        assert_eq!(form("report --perfetto p.radrm t.json"), Form::Perfetto(Some("t.json".into())));
        assert_eq!(form("report p.radrm --perfetto=t.json"), Form::Perfetto(Some("t.json".into())));
        assert_eq!(form("report p.radrm --perfetto=-"), Form::Perfetto(None));
        assert_eq!(form("report p.radrm --oom --json"), Form::OomJson);
    }

    #[test]
    fn a_comparison_has_two_sides() {
        let sides = |line: &str| match command(line) {
            Ok(Command::Compare(order)) => (order.before.len(), order.after.len(), order.json),
            other => panic!("{other:?}"),
        };
        assert_eq!(sides("compare a b"), (1, 1, false));
        assert_eq!(sides("compare --before a b c --after d e --json"), (3, 2, true));
        match command("compare old new") {
            Ok(Command::Compare(order)) => assert_eq!(order.before, [PathBuf::from("old")]),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn wrong_lines_are_told_in_one_sentence() {
        for (line, part) in [
            ("", "no command given"),
            ("bogus", "there is no command bogus"),
            ("report", "missing"),
            ("report f --bogus", "there is no option --bogus"),
            ("report f --json --html", "cannot be used together"),
            ("report f --oom --timeline", "cannot be used together"),
            ("report f --perfetto --html", "cannot be used together"),
            ("report f out", "--perfetto=OUT"),
            ("report a.radrm b.radrm", "one profile at a time: `radrm compare a.radrm b.radrm`"),
            ("report a b c --json", "`radrm compare --before PROFILE... --after PROFILE...`"),
            ("report --perfetto=t.json a b", "`radrm compare a b`"),
            ("report --perfetto a t.json b", "one profile at a time"),
            ("compare a.radrm", "needs two profiles"),
            ("compare --before a b", "--after"),
            ("dataset", "no command given: try list, backup or check"),
            ("dataset list -n x", "x"),
            ("quota", "no command given: try show, init or set"),
            ("quota show alice", "alice"),
            ("quota set alice 8GiB", "`alice` is neither a job"),
            ("quota set 4711 8G", "can mean two things"),
            ("quota set 4711", "missing"),
            ("quota set 4711 --sm-limit 0", "--sm-limit: `0` is no percentage"),
            ("audit --tolerance 5%", "is no amount of memory"),
            ("replay", "missing"),
            ("replay t.csv --policy fastest", "there is no policy fastest; there are"),
            ("replay t.csv --policy fastest", "aware, or all"),
            ("replay t.csv --policy all,aware", "all stands alone"),
            ("replay t.csv --mode fast", "is none of mps"),
        ] {
            match command(line) {
                Err(Instead::Wrong(text)) => {
                    assert!(text.contains(part), "{line}: {text}");
                    assert_eq!(text.lines().count(), 1, "{text}");
                }
                other => panic!("{line}: {other:?}"),
            }
        }
    }

    fn programs() -> [clap::Command; 2] {
        [Flags::command(), radrm_launcher::cli::command()]
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
            let Err(Instead::Wrong(text)) = command(line) else { panic!("{line}") };
            assert!(text.to_lowercase().contains(part) && text.lines().count() == 1, "{line}: {text}");
        }
    }

    #[test]
    fn the_daemons_socket_stands_anywhere() {
        for line in ["--socket s queue", "queue --socket s", "--socket=s queue --why"] {
            let parsed = command(line);
            assert!(
                matches!(&parsed, Ok(Command::Daemon { socket: Some(socket), .. }) if socket == Path::new("s")),
                "{line}: {parsed:?}"
            );
        }
    }
}
