//! `radrm submit`.

use std::collections::BTreeMap;
use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use clap::Args;
use radrm_need::{DryRun, Source};
use radrm_protocol::ProtocolError;
use radrm_protocol::connection::{Connection, odd};
use radrm_protocol::spec::Spec;
use radrm_protocol::wire::{Request, Response};
use radrm_protocol::words;
use radrm_text::Untrusted;

use super::asks::Asks;
use super::own_runs::OwnRuns;
use super::{dry_run, estimate, interactive, node_need, queue, rad, text, user_limit};
use crate::error::{FileProblem, UsageError};
use crate::{Failure, print, terminal};

/// Interval at which `--wait` asks.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

#[derive(Args, Debug, Default)]
pub struct Flags {
    #[command(flatten)]
    pub(super) asks: Asks,
    /// Wait for its end, and end with its exit code; Ctrl-C ends the wait and not the job
    #[arg(long)]
    pub(super) wait: bool,
    /// Run it on a terminal that is connected to this one, as a shell or a notebook: it ends when this terminal goes
    #[arg(short, long, conflicts_with_all = ["wait", "array", "requeue_on_timeout", "slot"])]
    pub(super) interactive: bool,
    /// Print the job's number and nothing else
    #[arg(short, long)]
    pub(super) quiet: bool,
    /// A file that describes the job
    #[arg(value_name = "FILE.rad")]
    pub(super) file: Option<PathBuf>,
    // Taken to be refused with a sentence of its own.
    #[arg(hide = true)]
    pub(super) more: Vec<PathBuf>,
    /// The program and its arguments
    #[arg(last = true, value_name = "PROGRAM")]
    pub(super) command: Vec<OsString>,
}

/// Submits, and waits if that is wanted. Gives the exit code.
pub(super) fn run(
    flags: Flags,
    connect: &dyn Fn() -> Result<Connection, ProtocolError>,
) -> Result<u8, Failure> {
    let (wait, quiet, interactive) = (flags.wait, flags.quiet, flags.interactive);
    let remark = |sentence: &str| {
        if !quiet {
            radrm_text::output::say(crate::NAME, sentence);
        }
    };
    let (mut spec, dry_run, remarks) = spec(flags)?;
    if dry_run.is_none() {
        add_own_runs(&mut spec);
    }
    let terminal = interactive.then(|| on_terminal(&mut spec)).transpose()?;
    remarks.iter().chain(&user_limit::remark(&spec)).for_each(|sentence| remark(sentence));
    let mut connection = connect()?;
    if let Some(steps) = dry_run {
        let node = queue::node(&mut connection)?;
        // It takes its time, and who says nothing for long is taken for gone.
        drop(connection);
        match dry_run::estimate(&spec, steps, &node, quiet) {
            Ok(held) => {
                spec.dry_run = Some(held);
                add_own_steps(&mut spec);
            }
            Err(why) => remark(&format!("nothing is estimated by a dry run: {why}")),
        }
        connection = connect()?;
        if spec.dry_run.is_some() {
            let needs = node_need::of(&spec, &mut connection)?.needs;
            needs.memory.iter().for_each(|need| remark(&format!("the job {need}")));
            let is_predicted = |source: &Source| source.is_predicted();
            let time = needs.run_time.iter().filter(|found| is_predicted(&found.source));
            time.for_each(|found| remark(&format!("the job's run time: {}", estimate::run_time(found))));
            let activity = needs.activity.iter().filter(|found| is_predicted(&found.source));
            activity.for_each(|found| remark(&format!("the job's activity: {}", estimate::activity(found))));
        }
    }
    let tasks = spec.array.as_ref().map(radrm_protocol::array::Array::len);
    let job = match connection.ask(&Request::Submit(Box::new(spec)))? {
        Response::Submitted { job, remarks } => {
            print(&match tasks {
                _ if quiet => format!("{job}\n"),
                None => format!("job {job} submitted\n"),
                Some(tasks) => format!("array {job} submitted: {tasks} jobs\n"),
            })?;
            remarks.iter().for_each(|sentence| remark(sentence));
            job
        }
        other => return Err(odd(&other).into()),
    };
    if let Some(at) = terminal {
        return interactive::run(job, &at, quiet, connection, connect);
    }
    if !wait {
        return Ok(0);
    }
    // As many numbers as jobs; the worst of their exit codes.
    let mut worst = 0;
    for job in job..job + tasks.unwrap_or(1) as u64 {
        worst = worst.max(end_of(job, quiet, &mut connection, connect)?);
    }
    Ok(worst)
}

/// Makes a job run on a terminal, once; gives the socket of that.
fn on_terminal(spec: &mut Spec) -> Result<PathBuf, Failure> {
    if spec.array.is_some() {
        return Err(UsageError::ArrayOnTerminal.into());
    }
    if spec.name.is_empty() {
        let program = spec.command.first().and_then(|word| words::decode(word)).unwrap_or_default();
        spec.name = Path::new(&program).file_name().unwrap_or_default().to_string_lossy().into_owned().into();
    }
    // Its user has seen why it ended.
    spec.attempts = spec.attempts.or(Some(1));
    let (command, socket) = terminal::command(&spec.command)?;
    spec.command = command;
    Ok(socket)
}

/// Waits for a job's end; gives its exit code.
fn end_of(
    job: u64,
    quiet: bool,
    connection: &mut Connection,
    connect: &dyn Fn() -> Result<Connection, ProtocolError>,
) -> Result<u8, Failure> {
    loop {
        let row = match connection.ask(&Request::Show { job: job.into() }) {
            Ok(Response::Job(row, _)) => row,
            Ok(other) => return Err(odd(&other).into()),
            // The daemon may be on its way back; the job is with it.
            Err(why) if why.is_lost() => {
                thread::sleep(POLL_INTERVAL);
                if let Ok(again) = connect() {
                    *connection = again;
                }
                continue;
            }
            Err(why) => return Err(why.into()),
        };
        if let Some(end) = row.end {
            if !quiet && row.exit_code != Some(0) {
                radrm_text::output::say(crate::NAME, &failed(job, &end, row.attempts));
            }
            return Ok(row.exit_code.map_or(1, |code| u8::try_from(code).unwrap_or(1)));
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// Failure of a job, and the command that shows its cause: a job that was never started has no output.
fn failed(job: u64, end: &Untrusted, attempts: u32) -> String {
    let logs = if attempts > 0 { format!("; `radrm logs {job}` prints its output") } else { String::new() };
    format!("job {job}: {end}{logs}")
}

/// Adds what the user's own dataset says of a job that does not state its memory: what measured runs show, or else its
/// dry run.
pub(super) fn add_own_runs(spec: &mut Spec) {
    if states_memory(spec) {
        return;
    }
    // Without a dataset, or with a damaged one, the daemon's own history decides.
    let own = OwnRuns::of(spec, None).unwrap_or_default();
    match own.estimate(spec) {
        Some(estimate) => (spec.estimate, spec.dry_run) = (Some(estimate), None),
        None => {
            let dry_run = own.dry_run().or(spec.dry_run.take());
            // A daemon corrects by its own runs, whatever their frameworks are.
            spec.dry_run = dry_run.map(|run| DryRun { framework: None, ..run });
        }
    }
}

/// Corrects the predicted step of a job's dry run by the step times of real runs in the user's own dataset: a daemon has none.
fn add_own_steps(spec: &mut Spec) {
    let own = OwnRuns::of(spec, None).unwrap_or_default();
    if let (Some(run), Some(own)) = (&mut spec.dry_run, own.dry_run()) {
        run.step = own.step;
    }
}

/// Returns true if the job, or its file, states its memory, or how to estimate it.
fn states_memory(spec: &Spec) -> bool {
    let is_stated = spec.mem.or(spec.mem_upper).is_some() || spec.estimate.is_some();
    spec.gpus == 0 || is_stated || spec.summary.is_some() || !spec.file_estimates.is_empty()
}

/// The job that flags and file ask for, the steps of its dry run, and what is to be said of it; flags come before the
/// file's lines.
pub(super) fn spec(flags: Flags) -> Result<(Spec, Option<u64>, Vec<String>), Failure> {
    let here = env::current_dir().map_err(Failure::NoDirectory)?;
    let mut asks = flags.asks;
    if let Some(more) = flags.more.first() {
        return Err(UsageError::OneFile(more.clone()).into());
    }
    let (mut spec, dry_run, model) = match (&flags.file, flags.command.is_empty()) {
        (Some(file), true) => {
            let rad = from_file(file, &here)?;
            (rad.spec, rad.dry_run, rad.model.map(|named| (named, rad.batch_line)))
        }
        (Some(file), false) => return Err(UsageError::FileAndProgram(file.clone()).into()),
        (None, true) => return Err(UsageError::NoJob.into()),
        (None, false) => (of_command(flags.command.iter().map(OsString::as_os_str), &here), None, None),
    };
    let (summary, dry_run) = (asks.model_summary.take(), asks.dry_run.or(dry_run));
    asks.apply(&mut spec, &here);
    surround(&mut spec, &BTreeMap::new());
    spec.check().map_err(UsageError::Job)?;
    let mut remarks = Vec::new();
    // What is said or written down of the need comes before a formula.
    let estimated = spec.mem.or(spec.mem_upper).is_none() && spec.gpus > 0;
    let dry_run = dry_run.filter(|_| estimated);
    let named = match (summary, model.filter(|_| estimated)) {
        (Some(path), _) => {
            spec.summary = Some(rad::summary(&path).map_err(|why| Failure::ModelSummary(why.into()))?);
            Some((path, None))
        }
        (None, Some((path, line))) => match rad::summary(&path) {
            Ok(summary) => {
                spec.summary = Some(summary);
                Some((path, Some(line)))
            }
            // A name that is not a file of a summary only means that nothing can be estimated from it.
            Err(why) => {
                remarks.push(format!("nothing is estimated from {why}"));
                None
            }
        },
        (None, None) => None,
    };
    if let (Some((path, line)), Some(summary)) = (named.filter(|_| estimated), &spec.summary)
        && spec.batch_size().or(summary.batch).is_none()
    {
        let line = line.map(|line| format!(", or by {line} in the file")).unwrap_or_default();
        remarks.push(format!(
            "nothing is estimated from {}: the batch size is not known; give it by --batch-size N{line}",
            path.display()
        ));
    }
    Ok((spec, dry_run, remarks))
}

fn from_file(file: &Path, here: &Path) -> Result<rad::Rad, Failure> {
    /// The most that a job's command can be, and room for comments.
    const MAX_FILE: u64 = 4 << 20;
    let text = text::of_file(file, MAX_FILE)?;
    let mut rad = rad::parse(&text).map_err(|error| FileProblem::Rad(error).of(file))?;
    let spec = &mut rad.spec;
    if spec.name.is_empty() {
        spec.name =
            file.file_stem().map(|stem| stem.to_string_lossy().into_owned().into()).unwrap_or_default();
    }
    here.clone_into(&mut spec.cwd);
    std::mem::take(&mut rad.asks).apply(spec, here);
    spec.check().map_err(|error| FileProblem::Job(error).of(file))?;
    rad.model = rad.model.map(|named| file.parent().unwrap_or(Path::new("")).join(named));
    Ok(rad)
}

/// The job of a program in a directory, with variables beside those of this process, under these options.
pub(crate) fn of_program(
    command: &[String],
    cwd: &Path,
    variables: &BTreeMap<String, String>,
    asks: Asks,
) -> Result<Spec, Failure> {
    let mut spec = of_command(command.iter().map(OsStr::new), cwd);
    asks.apply(&mut spec, cwd);
    surround(&mut spec, variables);
    spec.check()?;
    Ok(spec)
}

/// The job of a `.rad` file, as `radrm submit FILE` has it.
pub(crate) fn of_file(file: &Path) -> Result<Spec, Failure> {
    let (spec, _, _) = spec(Flags { file: Some(file.to_owned()), ..Flags::default() })?;
    Ok(spec)
}

fn of_command<'w>(words: impl Iterator<Item = &'w OsStr>, cwd: &Path) -> Spec {
    let command = words.map(words::encode).collect();
    Spec { command, cwd: cwd.to_owned(), gpus: 1, ..Spec::default() }
}

/// Gives a job this process's umask and environment, with these variables in place of those of their names.
fn surround(spec: &mut Spec, variables: &BTreeMap<String, String>) {
    spec.umask = own_umask();
    let is_own = |name: &OsString| name.to_str().is_none_or(|name| !variables.contains_key(name));
    let kept = env::vars_os().filter(|(name, _)| is_own(name));
    let added = variables.iter().map(|(name, value)| (name.into(), value.into()));
    let line =
        |(name, value): (OsString, OsString)| format!("{}={}", words::encode(&name), words::encode(&value));
    spec.environment = kept.chain(added).map(line).collect();
}

fn own_umask() -> u32 {
    // SAFETY: plain system calls; this process has one thread, so no file is made in between.
    unsafe {
        let mask = libc::umask(0o077);
        libc::umask(mask);
        mask
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use radrm_protocol::wire::{self, JobRow};
    use std::fs;
    use std::os::unix::net::UnixListener;

    /// The job of a command line, with `@` for a directory.
    fn submit(line: &str, dir: &Path) -> Result<(Spec, Vec<String>), Failure> {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            flags: Flags,
        }
        let line = line.replace('@', &dir.display().to_string());
        let words = ["submit"].into_iter().chain(line.split(' ').filter(|word| !word.is_empty()));
        let line = <Line as clap::Parser>::try_parse_from(words).unwrap_or_else(|error| panic!("{error}"));
        spec(line.flags).map(|(spec, _, remarks)| (spec, remarks))
    }

    #[test]
    fn a_failed_job_names_the_command_that_prints_its_output() {
        assert_eq!(
            failed(3, &"exit code 2".into(), 1),
            "job 3: exit code 2; `radrm logs 3` prints its output"
        );
        assert_eq!(failed(4, &"cancelled".into(), 0), "job 4: cancelled", "it never ran");
    }

    #[test]
    fn a_program_without_dashes_is_shown_where_it_belongs() {
        let dir = tempfile::tempdir().unwrap();
        let why = submit("sleep 1", dir.path()).unwrap_err().to_string();
        assert!(why.contains("write a program behind --: `radrm submit -- PROGRAM`"), "{why}");
    }

    #[test]
    fn flags_come_before_the_files_lines() {
        let dir = tempfile::tempdir().unwrap();
        let text = "#RADRM --gpu-mem=10GiB\n#RADRM --priority=-2\npython3 train.py\n";
        fs::write(dir.path().join("a.rad"), text).unwrap();
        let (got, remarks) = submit("--gpu-mem 3GiB @/a.rad", dir.path()).unwrap();
        assert_eq!((got.mem, got.priority, got.name.raw()), (Some(3 << 30), -2, "a"));
        assert!(got.cwd.is_absolute() && !got.environment.is_empty() && remarks.is_empty());
    }

    #[test]
    fn an_estimate_is_an_estimate_and_flags_replace_it() {
        let dir = tempfile::tempdir().unwrap();
        let write = |text: &str| fs::write(dir.path().join("a.rad"), text).unwrap();
        let got = |line: &str| submit(line, dir.path()).unwrap().0;
        let guess = |spec: &Spec| spec.estimate.as_ref().map(|guess| (guess.bytes.mib(), guess.upper.mib()));
        write("#RADRM --gpu-mem-estimate=7GiB --gpu-mem-upper=9GiB\nrun\n");
        let file = got("@/a.rad");
        assert_eq!((guess(&file), file.mem, file.mem_upper), (Some((7 << 10, 9 << 10)), None, None));
        assert_eq!(got("--gpu-mem 3GiB @/a.rad").mem, Some(3 << 30), "what is said comes before an estimate");
        write("#RADRM --gpu-mem=7GiB\nrun\n");
        let typed = got("--gpu-mem-estimate 5GiB @/a.rad");
        assert_eq!((guess(&typed), typed.mem), (Some((5 << 10, 5 << 10)), None));
        write("#RADRM --expected=2h --output=out --chdir=/ --hold --dry-run\nrun\n");
        let file = got("@/a.rad");
        assert_eq!(
            (file.expected_ms, file.held, file.cwd.as_path()),
            (Some(7_200_000), true, Path::new("/"))
        );
        assert!(file.output.is_some_and(|path| path.is_absolute()));
    }

    #[test]
    fn a_file_brings_its_models_summary_along() {
        let dir = tempfile::tempdir().unwrap();
        let text = "python t.py\nmodel: m.txt\nbatch_size: 32\npolicy: collocation\n";
        fs::write(dir.path().join("a.rad"), text).unwrap();
        let (without, remarks) = submit("@/a.rad", dir.path()).unwrap();
        assert_eq!(without.summary, None, "no such file: it is submitted all the same");
        assert!(matches!(&remarks[..], [said] if said.contains("m.txt")), "{remarks:?}");
        let text = "Layer (type)   Output Shape   Param #\nLinear-1   [-1, 10]   510\nTotal params: 510\n";
        fs::write(dir.path().join("m.txt"), text).unwrap();
        let (with, remarks) = submit("@/a.rad", dir.path()).unwrap();
        let summary = with.summary.unwrap();
        assert_eq!((summary.parameters, summary.activations, summary.layers.len()), (510, 10, 0));
        assert_eq!(remarks, [""; 0]);
        let wrong = submit("--model-summary @/a.rad @/a.rad", dir.path());
        assert!(wrong.unwrap_err().to_string().starts_with("--model-summary: "));
    }

    #[test]
    fn a_summary_without_a_batch_size_is_remarked_and_how_to_give_it() {
        let dir = tempfile::tempdir().unwrap();
        let text = "Layer (type)   Output Shape   Param #\nLinear-1   [-1, 10]   510\nTotal params: 510\n";
        fs::write(dir.path().join("m.txt"), text).unwrap();
        let printed = "python t.py\nmodel: m.txt\npolicy: collocation\n";
        for (text, how) in [
            (printed, "`batch_size: N`"),
            ("#RADRM --model-summary=m.txt\npython t.py\n", "`#RADRM --batch-size=N`"),
            ("#\n\npython t.py\nm.txt\n", "its sixth line"),
        ] {
            fs::write(dir.path().join("a.rad"), text).unwrap();
            let (_, remarks) = submit("@/a.rad", dir.path()).unwrap();
            let [said] = &remarks[..] else { panic!("{text}: {remarks:?}") };
            for part in ["nothing is estimated from", "m.txt", "--batch-size N", how] {
                assert!(said.contains(part) && said.lines().count() == 1, "{said}");
            }
            for known in ["--batch-size 8 @/a.rad", "--gpu-mem 3GiB @/a.rad", "--gpus 0 @/a.rad"] {
                assert_eq!(submit(known, dir.path()).unwrap().1, [""; 0], "{known}");
            }
        }
        fs::write(dir.path().join("a.rad"), printed.replace("t.py", "t.py --batch-size 8")).unwrap();
        let (known, remarks) = submit("@/a.rad", dir.path()).unwrap();
        assert_eq!((known.batch, remarks.len()), (Some(8), 0), "its own command line names it");
        let (_, remarks) = submit("--model-summary @/m.txt -- p", dir.path()).unwrap();
        assert!(matches!(&remarks[..], [said] if said.ends_with("--batch-size N")), "{remarks:?}");
    }

    #[test]
    fn who_waits_for_a_job_that_the_daemon_does_not_know_is_told_so() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("socket");
        let listener = UnixListener::bind(&socket).unwrap();
        let ended = JobRow { end: Some("succeeded".into()), exit_code: Some(0), ..JobRow::default() };
        let answers = [
            Response::Submitted { job: 7, remarks: Vec::new() },
            Response::Refused("there is no job 7".into()),
            // A second signal is noticed at once.
            Response::Job(Box::new(ended), Vec::new()),
        ];
        let daemon = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            wire::greet(&mut stream).unwrap();
            let mut asked = 0;
            for answer in answers {
                let Ok(Some(_)) = wire::read::<Request>(&mut stream) else { break };
                asked += 1;
                wire::answer(&mut stream, answer).unwrap();
            }
            asked
        });
        let command = vec!["/bin/true".into()];
        let flags = Flags { wait: true, quiet: true, command, ..Flags::default() };
        let answer = run(flags, &|| Connection::open(Some(&socket)));
        assert_eq!(answer.unwrap_err().to_string(), "there is no job 7");
        assert_eq!(daemon.join().unwrap(), 2);
    }

    #[test]
    fn a_variable_of_the_job_replaces_that_of_the_process() {
        let variables = [("PATH", "/own"), ("RADRM_TEST_NEW", "1")];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let spec = of_program(&["p".to_owned()], Path::new("/"), &variables, Asks::default()).unwrap();
        let of = |name: &str| {
            let lines = spec.environment.iter().filter(move |line| line.starts_with(&format!("{name}=")));
            lines.cloned().collect::<Vec<_>>()
        };
        assert_eq!(
            (of("PATH"), of("RADRM_TEST_NEW")),
            (vec!["PATH=/own".into()], vec!["RADRM_TEST_NEW=1".into()])
        );
        assert!(spec.environment.len() >= variables.len());
    }

    #[test]
    fn wrong_submissions_are_told_in_one_sentence() {
        let dir = tempfile::tempdir().unwrap();
        for (line, part) in [
            ("", "no job given"),
            ("x -- p", "not x and"),
            ("a.rad b.rad", "submit takes one file, and b.rad is a second one"),
            ("a.rad b.rad c.rad -- p", "submit takes one file, and b.rad is a second one"),
            ("--gpus 0 --exclusive -- p", "without GPUs"),
            ("--gpus 65 -- p", "65 GPUs"),
            ("--checkpoint-signal KILL -- p", "catch"),
            ("--checkpoint-signal STOP -- p", "catch"),
            ("--time 0 -- p", "end at once"),
            ("--slot 0 -- p", "slot of 0"),
            ("--expected 0s -- p", "no time at all"),
            ("--gpu-mem 0 -- p", "0 bytes"),
            ("--gpu-mem-estimate 0MiB -- p", "0 bytes"),
            ("--gpu-mem 10GiB --gpu-mem-upper 5GiB -- p", "above its upper bound"),
            ("--gpu-mem-estimate 10GiB --gpu-mem-upper 5GiB -- p", "above its upper bound"),
        ] {
            match submit(line, dir.path()) {
                Err(Failure::Usage(error)) => {
                    let error = error.to_string();
                    assert!(error.contains(part) && error.lines().count() == 1, "{line}: {error}");
                }
                other => panic!("{line}: {other:?}"),
            }
        }
        // What stands in a file is no wrong command line.
        fs::write(dir.path().join("a.rad"), "#RADRM --gpus=0 --exclusive\ntrue\n").unwrap();
        for line in ["@/a.rad", "@/none.rad"] {
            let error = submit(line, dir.path());
            assert!(
                matches!(&error, Err(why @ Failure::File { .. }) if why.to_string().contains(".rad: ")),
                "{error:?}"
            );
        }
    }
}
