//! `radrm report`.

use std::fs;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use radrm_analyzer::{Summary, TextOptions};
use radrm_launcher::layout::text_options;
use radrm_launcher::report_file;
use radrm_launcher::training::TrainingFlags;
use radrm_os::{thread_time, untrusted};
use radrm_profile::model::Profile;
use radrm_text::output::{self, Delivery, width};

use super::stacks::StacksFlags;
use crate::client::text::open_named;
use crate::error::{FileProblem, UsageError};
use crate::sweep::member::Member;
use crate::{Failure, print};

#[derive(clap::Args, Debug)]
pub(crate) struct Flags {
    /// The profile
    #[arg(value_name = "PROFILE")]
    file: PathBuf,
    /// Print JSON
    #[arg(long, conflicts_with = "html")]
    json: bool,
    /// Write one self-contained page with a picture of the memory over time, to OUT or beside PROFILE; `-` is
    /// standard output
    #[arg(long, value_name = "OUT", num_args = 0..=1, require_equals = true)]
    html: Option<Option<PathBuf>>,
    /// Show memory and activity over time
    #[arg(long, conflicts_with_all = ["json", "html"])]
    timeline: bool,
    /// Show what each process takes of SMs, memory, copies, launches and the host, and how each figure was obtained
    #[arg(long, conflicts_with_all = ["json", "html"])]
    features: bool,
    /// Show all sections and rows of a dry run's report: also the driver's counters, phases, kernels and the host
    #[arg(long, conflicts_with_all = ["json", "html"])]
    full: bool,
    /// Show only refused memory requests: memory holders at that moment, and whether a quota, the device or
    /// fragmentation was the cause; also with --json
    #[arg(long, conflicts_with_all = ["html", "timeline", "features"])]
    oom: bool,
    /// Write a trace for ui.perfetto.dev: memory by kind, activity, timed launches, copies, refused requests, the
    /// host; to OUT, which may also stand after PROFILE, or beside PROFILE
    #[arg(long, value_name = "OUT", num_args = 0..=1, require_equals = true,
          conflicts_with_all = ["json", "html", "timeline", "features", "oom"])]
    perfetto: Option<Option<PathBuf>>,
    /// Show the report again every second as long as the program runs, and at the end as a whole
    #[arg(long, conflicts_with_all = ["json", "html", "perfetto"])]
    follow: bool,
    #[command(flatten)]
    training: TrainingFlags,
    #[command(flatten)]
    stacks: StacksFlags,
    #[arg(hide = true)]
    more: Vec<PathBuf>,
}

impl Flags {
    /// The file that the report goes to; `None` for standard output.
    fn out(&self) -> Result<Option<PathBuf>, UsageError> {
        let named = match (&self.perfetto, self.more.as_slice()) {
            (Some(None), [out]) => Some(out),
            (_, []) => self.perfetto.as_ref().or(self.html.as_ref()).and_then(Option::as_ref),
            (_, [other]) => {
                return Err(UsageError::OneProfile { of: Some([self.file.clone(), other.clone()]) });
            }
            _ => return Err(UsageError::OneProfile { of: None }),
        };
        let beside =
            self.html.is_some().then_some("html").or(self.perfetto.is_some().then_some("perfetto.json"));
        let out = named.cloned().or(beside.map(|extension| self.file.with_extension(extension)));
        Ok(out.filter(|out| out.as_os_str() != "-"))
    }
}

/// Shows a profile.
pub(crate) fn run(flags: &Flags) -> Result<(), Failure> {
    let out = flags.out()?;
    if let Some(out) = &out {
        report_file::spares_profile(out).map_err(UsageError::Overwrites)?;
    }
    if flags.follow {
        return follow(flags);
    }
    if let Some(format) = flags.stacks.format() {
        return flags.stacks.print(&flags.file, format);
    }
    let (text, _) = shown(flags)?;
    match out {
        None => print(&text),
        Some(out) => {
            report_file::write(&out, text)?;
            print(&format!("{}\n", out.display()))
        }
    }
}

/// Between two reports of a program that runs.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// Shows the report until the program has ended. What is not a terminal gets the last one only.
fn follow(flags: &Flags) -> Result<(), Failure> {
    let out = std::io::stdout();
    // The launcher makes and locks the file before it writes the profile's first bytes.
    let is_empty = || fs::metadata(&flags.file).is_ok_and(|file| file.len() == 0);
    while is_empty() && radrm_profile::is_being_written(&flags.file) {
        thread::sleep(REPORT_INTERVAL / 50);
    }
    loop {
        let (text, is_running) = shown(flags)?;
        if !is_running {
            if out.is_terminal() {
                output::screen_to_stdout("\x1b[H\x1b[J").map_err(Failure::Output)?;
            }
            return print(&text);
        }
        if out.is_terminal() {
            let tall = rustix::termios::tcgetwinsize(&out).map_or(24, |size| usize::from(size.ws_row).max(4));
            if output::redraw(&text, tall - 1).map_err(Failure::Output)? == Delivery::Closed {
                return Ok(());
            }
        }
        thread::sleep(REPORT_INTERVAL);
    }
}

/// The profile with the names of its call stacks, and whether the program is running.
pub(crate) fn read(file: &Path) -> Result<(Profile, bool), Failure> {
    let mut profile = open(file)?;
    let is_running = profile.outcome.is_none() && radrm_profile::is_being_written(file);
    if profile.outcome.is_none() && !is_running {
        // It may have ended after it was read.
        profile = open(file)?;
    }
    radrm_symbols::fill(&mut profile);
    Ok((profile, is_running))
}

/// The report that was asked for, and whether the program is running.
fn shown(flags: &Flags) -> Result<(String, bool), Failure> {
    let (profile, is_running) = read(&flags.file)?;
    let summary = if is_running { Summary::of_running(&profile) } else { Summary::from_profile(&profile) };
    let training = flags.training.resolve().map_err(UsageError::Training)?;
    let own = Member::of_profile(&flags.file).map(|member| member.summary());
    let summary = summary.with_training(training.as_ref()).with_own(own);
    let options = |file| {
        let out = std::io::stdout();
        let options = text_options(out.is_terminal(), width(&out), flags.timeline, file);
        TextOptions { features: flags.features, full: flags.full, ..options }
    };
    let text = match flags {
        Flags { perfetto: Some(_), .. } => radrm_analyzer::perfetto(&profile, &summary),
        Flags { html: Some(_), .. } => radrm_analyzer::html(&profile, &summary),
        Flags { json: true, oom: true, .. } => radrm_analyzer::oom_json(&summary),
        Flags { json: true, .. } => radrm_analyzer::json(&summary),
        Flags { oom: true, file, .. } => radrm_analyzer::oom_text(&summary, &options(Some(file))),
        Flags { file, .. } => radrm_analyzer::text(&profile, &summary, &options(Some(file))),
    };
    Ok((text, is_running))
}

/// Reads a profile.
pub(crate) fn open(path: &Path) -> Result<Profile, Failure> {
    let file = open_named(path).map_err(|problem| problem.of(path))?;
    let read = match untrusted::is_others(&file) {
        true => Profile::of_others_file(file, thread_time),
        false => Profile::of_file(file),
    };
    read.map_err(|error| FileProblem::Profile(error).of(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use radrm_profile::frame::frame;
    use radrm_profile::model::Job;
    use radrm_profile::{Note, Writer};

    #[test]
    fn the_profile_of_another_user_is_read_within_tighter_bounds() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: needs root");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.radrm");
        drop(Writer::create_new(&path, &Job::default()).unwrap());
        let mut file = fs::OpenOptions::new().append(true).open(&path).unwrap();
        std::io::Write::write_all(&mut file, &frame(u32::MAX, &[7; 1 << 20]).repeat(33)).unwrap();
        assert_eq!(open(&path).unwrap().notes, [Note::UnknownFrames { count: 33 }]);
        std::os::unix::fs::chown(&path, Some(64_004), None).unwrap();
        let notes: Vec<String> = open(&path).unwrap().notes.iter().map(ToString::to_string).collect();
        assert!(notes[0].starts_with("of another user's profile 32.0 MiB are read"), "{notes:?}");
    }

    fn out(line: &str) -> Result<Option<PathBuf>, String> {
        #[derive(Parser)]
        struct Line {
            #[command(flatten)]
            flags: Flags,
        }
        let line = Line::try_parse_from(["report"].into_iter().chain(line.split(' ')));
        line.unwrap().flags.out().map_err(|error| error.to_string())
    }

    #[test]
    fn a_page_goes_beside_its_profile_unless_a_file_is_named() {
        for (line, expected) in [
            ("d/p.7.radrm --html", Some("d/p.7.html")),
            ("p.radrm --html=x.html", Some("x.html")),
            ("p.radrm --html=-", None),
            ("p.radrm --timeline", None),
            ("--oom p.radrm --json", None),
            ("--perfetto d/p.7.radrm", Some("d/p.7.perfetto.json")),
            ("--perfetto p.radrm t.json", Some("t.json")),
            ("p.radrm --perfetto=t.json", Some("t.json")),
            ("p.radrm --perfetto=-", None),
        ] {
            assert_eq!(out(line), Ok(expected.map(PathBuf::from)), "{line}");
        }
    }

    #[test]
    fn a_profile_is_a_file_that_can_be_read_at_once() {
        let place = tempfile::tempdir().unwrap();
        let pipe = place.path().join("pipe.radrm");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR)
            .unwrap();
        for path in [&*pipe, Path::new("/dev/zero")] {
            let said = open(path).unwrap_err().to_string();
            assert!(said.contains("not a regular file") && said.lines().count() == 1, "{said}");
        }
    }

    #[test]
    fn a_report_shows_one_profile() {
        for (line, part) in [
            ("f out", "--perfetto=OUT"),
            ("a.radrm b.radrm", "one profile at a time: `radrm compare a.radrm b.radrm`"),
            ("a b c --json", "`radrm compare --before PROFILE... --after PROFILE...`"),
            ("--perfetto=t.json a b", "`radrm compare a b`"),
            ("--perfetto a t.json b", "one profile at a time"),
        ] {
            let why = out(line).unwrap_err();
            assert!(why.contains(part) && why.lines().count() == 1, "{line}: {why}");
        }
    }
}
