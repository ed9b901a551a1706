//! The command line of `radrm`: flags as written, and what they mean together.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{Parser, Subcommand};

use super::compare;
use crate::audit;
use crate::quota;
use crate::replay;

pub use radrm_console::usage::Instead;
use radrm_console::usage::explain;
use radrm_limits::config::Percentage;
use radrm_limits::wish::Wishes;

/// What `radrm --help` prints.
pub const HELP: &str = include_str!("help.txt");
const REPORT_HELP: &str = include_str!("help_report.txt");
const DATASET_HELP: &str = include_str!("help_dataset.txt");
const MACHINES_HELP: &str = include_str!("help_machines.txt");
const QUOTA_HELP: &str = include_str!("help_quota.txt");
const AUDIT_HELP: &str = include_str!("help_audit.txt");
/// What may stand where a command is missing.
const COMMANDS: &str = "try report, compare, dataset list, submit, queue, top, quota show, audit or replay";
const QUOTA_COMMANDS: &str = "try quota show, quota set or quota init";
const DATASET_COMMANDS: &str = "try dataset list";

#[derive(Parser, Debug)]
#[command(name = "radrm", version, override_help = HELP, subcommand_required = true)]
struct Flags {
    #[command(subcommand)]
    command: Option<FlagsOfCommand>,
}

#[derive(Subcommand, Debug)]
enum FlagsOfCommand {
    #[command(override_help = REPORT_HELP)]
    Report {
        file: PathBuf,
        #[arg(long, conflicts_with = "html")]
        json: bool,
        #[arg(long, value_name = "OUT", num_args = 0..=1, require_equals = true)]
        html: Option<Option<PathBuf>>,
        #[arg(long, conflicts_with_all = ["json", "html"])]
        timeline: bool,
        #[arg(long, conflicts_with_all = ["json", "html"])]
        features: bool,
        #[arg(long, conflicts_with_all = ["html", "timeline", "features"])]
        oom: bool,
        #[arg(long, value_name = "OUT", num_args = 0..=1, require_equals = true,
              conflicts_with_all = ["json", "html", "timeline", "features", "oom"])]
        perfetto: Option<Option<PathBuf>>,
        more: Vec<PathBuf>,
    },
    #[command(override_help = compare::HELP)]
    Compare(compare::Flags),
    #[command(override_help = DATASET_HELP, subcommand_required = true)]
    Dataset {
        #[command(subcommand)]
        command: Option<FlagsOfDataset>,
    },
    #[command(override_help = MACHINES_HELP)]
    Machines {
        #[arg(long)]
        json: bool,
    },
    #[command(override_help = QUOTA_HELP, subcommand_required = true)]
    Quota {
        #[command(subcommand)]
        command: Option<FlagsOfQuota>,
    },
    #[command(override_help = replay::HELP)]
    Replay(Box<replay::Flags>),
    #[command(override_help = AUDIT_HELP)]
    Audit {
        #[arg(long)]
        json: bool,
        #[arg(long, value_name = "AMOUNT")]
        tolerance: Option<String>,
        #[arg(long, value_name = "FILE")]
        machine: Option<PathBuf>,
    },
}

#[derive(Subcommand, Debug)]
enum FlagsOfQuota {
    #[command(override_help = QUOTA_HELP)]
    Show {
        job: Option<u32>,
        #[arg(long)]
        json: bool,
        #[arg(long, value_name = "FILE")]
        machine: Option<PathBuf>,
    },
    #[command(override_help = QUOTA_HELP)]
    Init {
        targets: Vec<String>,
        #[arg(long, value_name = "FILE")]
        machine: Option<PathBuf>,
    },
    #[command(override_help = QUOTA_HELP)]
    Set {
        target: String,
        #[arg(allow_hyphen_values = true, required_unless_present = "sm_limit")]
        limit: Option<String>,
        #[arg(long, value_name = "PERCENT")]
        sm_limit: Option<String>,
        #[arg(long, value_name = "FILE")]
        machine: Option<PathBuf>,
    },
}

#[derive(Subcommand, Debug)]
enum FlagsOfDataset {
    #[command(override_help = DATASET_HELP)]
    List {
        #[arg(long)]
        json: bool,
        #[arg(long, value_name = "NAME")]
        program: Option<String>,
        #[arg(short = 'n', long, value_name = "N", default_value_t = 20)]
        limit: u32,
        #[arg(long, value_name = "FILE")]
        dataset: Option<PathBuf>,
    },
}

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
#[derive(Clone, PartialEq, Debug)]
pub enum Command {
    /// Shows a profile.
    Report(Report),
    /// Shows what changed between runs.
    Compare(compare::Compare),
    /// Shows the dataset's rows.
    DatasetList(List),
    /// Shows the models of GPUs that can be emulated.
    Machines {
        /// As JSON.
        json: bool,
    },
    /// Shows or changes limits.
    Quota(quota::Order),
    /// Compares NVML with the shims.
    Audit(audit::Order),
    /// Replays a trace.
    Replay(Box<replay::cli::Order>),
}

/// Reads a command line, the program's own name first.
///
/// # Errors
/// [`Instead`]: help was asked for, or the line is wrong.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Command, Instead> {
    let missing = |what: &str| Instead::Wrong(format!("no command given: {what}"));
    let flags = Flags::try_parse_from(arguments).map_err(|error| match error.kind() {
        // Of `radrm quota` the commands are named that clap knows there.
        clap::error::ErrorKind::MissingSubcommand => {
            let usage = error.render().to_string();
            let of = |name: &str| usage.contains(&format!("'radrm {name}'"));
            match () {
                () if of("quota") => missing(QUOTA_COMMANDS),
                () if of("dataset") => missing(DATASET_COMMANDS),
                () => missing(COMMANDS),
            }
        }
        _ => explain(&error),
    })?;
    match flags.command.ok_or_else(|| missing(COMMANDS))? {
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
        FlagsOfCommand::Dataset { command } => match command.ok_or_else(|| missing(DATASET_COMMANDS))? {
            FlagsOfDataset::List { json, program, limit, dataset } => {
                Ok(Command::DatasetList(List { json, program, limit, dataset }))
            }
        },
        FlagsOfCommand::Machines { json } => Ok(Command::Machines { json }),
        FlagsOfCommand::Quota { command } => match command.ok_or_else(|| missing(QUOTA_COMMANDS))? {
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
                    Some(text) => Some(Some(Wishes::parse(text).map_err(Instead::Wrong)?)),
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
            ("dataset", "no command given: try dataset list"),
            ("dataset list -n x", "x"),
            ("quota", "no command given: try quota show, quota set or quota init"),
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

    #[test]
    fn each_command_has_its_own_help() {
        for (line, text) in [
            ("--help", HELP),
            ("help", HELP),
            ("report --help", REPORT_HELP),
            ("help report", REPORT_HELP),
            ("dataset --help", DATASET_HELP),
            ("dataset list -h", DATASET_HELP),
            ("compare -h", compare::HELP),
            ("machines -h", MACHINES_HELP),
            ("quota --help", QUOTA_HELP),
            ("quota set -h", QUOTA_HELP),
            ("audit -h", AUDIT_HELP),
            ("replay -h", replay::HELP),
        ] {
            assert_eq!(command(line), Err(Instead::Print(text.to_owned())), "{line}");
            assert!(text.lines().all(|line| line.chars().count() <= 80), "{line}: wider than a terminal");
        }
        for name in [
            "report",
            "compare",
            "dataset list",
            "machines",
            "quota show",
            "quota set",
            "quota init",
            "audit",
            "replay",
        ] {
            assert!(HELP.contains(name), "{name} is not explained");
        }
    }
}
