//! Jobs to send, and when: of a trace, of a script, or of a folder of `.rad` files.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use radrm_need::UserEstimate;
use radrm_protocol::spec::Spec;
use radrm_scheduler_core::replay::{Profiles, Source, Trace, TraceJob};
use radrm_scheduler_core::{Bytes, Condition, Millis};

use super::super::{Flags, ReplayError, cli, input, jobs_in, scripts};
use crate::Failure;
use crate::client::asks::Asks;
use crate::client::submit;
use crate::error::FileProblem;

/// A job to send.
#[derive(Debug)]
pub(super) struct Planned {
    /// Since the first one, in the time of the trace.
    pub(super) at: Millis,
    pub(super) spec: Spec,
    /// Jobs that it waits for, by their places in the plan.
    pub(super) after: Vec<(Condition, usize)>,
}

/// All jobs, in order of time.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) jobs: Vec<Planned>,
    /// Parts of the trace that are not jobs, in words; empty: none.
    pub(super) left_out: String,
}

/// The jobs of a file or folder, for a node of so many GPUs.
pub(super) fn of(path: &Path, order: &Flags, gpus: usize) -> Result<Plan, Failure> {
    if path.is_dir() {
        let files = rad_files(path)?.into_iter().map(|file| (Millis::ZERO, file));
        return of_files(files, order, String::new());
    }
    if cli::synthetic(path).is_none()
        && let Some(script) = scripts::of(path, &input::text(path)?, order.rad_files.as_deref())
    {
        let left_out = match script.others {
            0 => String::new(),
            others => format!("commands that are neither a pause nor name a .rad file: {others}"),
        };
        return of_files(script.files.into_iter(), order, left_out);
    }
    let Trace { jobs, left_out } = jobs_in::trace(path, order, &Profiles::default(), gpus)?;
    let first = jobs.first().map_or(Millis::ZERO, |job| job.arrival);
    let folder = scripts::folder(path, order.rad_files.as_deref());
    let planned = |job: &TraceJob| -> Result<Planned, Failure> {
        let after = job.after.iter().map(|after| (after.condition, after.first.0 as usize)).collect();
        Ok(Planned { at: job.arrival.minus(first), spec: of_job(job, &folder, order)?, after })
    };
    let jobs = jobs.iter().map(planned).collect::<Result<_, _>>()?;
    let left_out = match left_out.rows() {
        0 => String::new(),
        rows => format!("{rows} rows ({left_out})"),
    };
    Ok(Plan { jobs, left_out })
}

/// `.rad` files of a folder in order of their names.
fn rad_files(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let entries = fs::read_dir(folder).map_err(|error| FileProblem::Io(error).of(folder))?;
    let mut files: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "rad"));
    files.sort();
    if files.is_empty() {
        return Err(FileProblem::Nothing(".rad files").of(folder));
    }
    Ok(files)
}

fn of_files(
    files: impl Iterator<Item = (Millis, PathBuf)>,
    order: &Flags,
    left_out: String,
) -> Result<Plan, Failure> {
    let planned = |(at, file): (Millis, PathBuf)| -> Result<Planned, Failure> {
        let mut spec = submit::of_file(&file)?;
        if !order.program.is_empty() {
            let figures = Figures {
                name: spec.name.raw(),
                gpus: spec.gpus,
                mem: spec.mem,
                batch: spec.batch,
                ran: None,
            };
            spec.command = figures.words(&order.program, order.speed)?;
        }
        Ok(Planned { at, spec, after: Vec::new() })
    };
    let jobs = files.take(order.jobs.unwrap_or(usize::MAX)).map(planned).collect::<Result<_, _>>()?;
    Ok(Plan { jobs, left_out })
}

/// A job of a trace: its `.rad` file where there is one of its name, else the program of the command line.
fn of_job(job: &TraceJob, folder: &Path, order: &Flags) -> Result<Spec, Failure> {
    let file = folder.join(format!("{}.rad", job.name));
    let mem = Some(job.peak.0).filter(|peak| *peak > 0);
    let mut spec = if !order.program.is_empty() {
        let ran = Some(job.duration);
        let figures = Figures { name: &job.name, gpus: job.gpus, mem, batch: job.batch, ran };
        let words = figures.words(&order.program, order.speed)?;
        let here = env::current_dir().map_err(Failure::NoDirectory)?;
        submit::of_program(&words, &here, &BTreeMap::new(), Asks::default())?
    } else if !job.name.contains('/') && file.is_file() {
        submit::of_file(&file)?
    } else {
        return Err(ReplayError::NoProgram { name: job.name.as_str().into(), file }.into());
    };
    spec.name = job.name.as_str().into();
    (spec.gpus, spec.priority) = (job.gpus, job.priority);
    spec.batch = job.batch.or(spec.batch);
    let scaled = |time: Millis| (time.0 as f64 / order.speed).ceil() as u64;
    spec.time_limit_ms = job.time_limit.map(scaled);
    if spec.gpus > 0 {
        match &order.estimator {
            Source::Measured => (spec.mem, spec.mem_upper) = (mem, None),
            Source::Column(name) => {
                let bytes = job.estimates.get(name).copied().filter(|bytes| *bytes > Bytes::ZERO);
                let estimate = |bytes| UserEstimate { bytes, upper: bytes, confidence: None, source: None };
                (spec.mem, spec.mem_upper, spec.estimate) = (None, None, bytes.map(estimate));
            }
            // radrmd has its own history, dry runs and estimates.
            _ => (spec.mem, spec.mem_upper, spec.estimate) = (None, None, None),
        }
    }
    spec.check()?;
    Ok(spec)
}

/// Figures that the words of a program may name.
struct Figures<'a> {
    name: &'a str,
    gpus: u16,
    mem: Option<u64>,
    batch: Option<u32>,
    ran: Option<Millis>,
}

impl Figures<'_> {
    /// The program with this job's figures. One that the job does not have is an error.
    fn words(&self, program: &[String], speed: f64) -> Result<Vec<String>, ReplayError> {
        let ms = self.ran.map(|ran| ran.0 as f64 / speed);
        let figures = [
            ("{name}", Some(self.name.to_owned())),
            ("{gpus}", Some(self.gpus.to_string())),
            ("{mem_mib}", self.mem.map(|bytes| (bytes >> 20).to_string())),
            ("{batch}", self.batch.map(|batch| batch.to_string())),
            ("{seconds}", ms.map(|ms| format!("{:.3}", ms / 1000.0))),
            ("{ms}", ms.map(|ms| format!("{ms:.0}"))),
        ];
        let word = |word: &String| {
            figures.iter().filter(|(name, _)| word.contains(name)).try_fold(
                word.clone(),
                |word, (name, value)| -> Result<String, ReplayError> {
                    let missing = || ReplayError::NoFigure { name: self.name.to_owned(), figure: name };
                    Ok(word.replace(name, value.as_ref().ok_or_else(missing)?))
                },
            )
        };
        program.iter().map(word).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        flags: Flags,
    }

    fn of(path: &Path, order: &Flags) -> Result<Plan, Failure> {
        super::of(path, order, 4)
    }

    fn flags(words: &[&str]) -> Flags {
        <Line as clap::Parser>::try_parse_from([&["replay", "--live"], words].concat()).unwrap().flags
    }

    const TRACE: &str = "arrival_s,task,rad,model,batch,dataset,epochs,n_gpus,mem_mib,duration_min,est_horus_mib,after\n\
        10,1,big,vgg16,128,imagenet,1,1,24408,40,20000,\n\
        70,2,gang,gpt2,8,wiki,1,2,27902,65,40000,ok:1\n";

    #[test]
    fn words_of_a_program_have_the_jobs_figures() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.csv");
        fs::write(&path, TRACE).unwrap();
        let path = path.to_str().unwrap();
        let program = ["--", "run", "--for={seconds}", "{ms}/{mem_mib}/{gpus}", "{name}", "{other}"];
        let plan = of(Path::new(path), &flags(&[&[path, "--speed", "100"], &program[..]].concat())).unwrap();
        let [big, gang] = &plan.jobs[..] else { panic!("{plan:?}") };
        assert_eq!((big.at, gang.at), (Millis::ZERO, Millis(60_000)));
        assert_eq!(big.spec.command, ["run", "--for=24.000", "24000/24408/1", "big", "{other}"]);
        assert_eq!((big.spec.mem, gang.spec.gpus, gang.spec.batch), (Some(24_408 << 20), 2, Some(8)));
        assert_eq!((&big.after[..], &gang.after[..]), (&[][..], &[(Condition::Ok, 0)][..]));
        let unsaid = of(Path::new(path), &flags(&[path, "--estimator", "none", "--", "run"])).unwrap();
        assert_eq!((unsaid.jobs[0].spec.mem, &unsaid.jobs[0].spec.estimate), (None, &None));
        let horus = of(Path::new(path), &flags(&[path, "--estimator", "horus", "--", "run"])).unwrap();
        let estimate = horus.jobs[0].spec.estimate.as_ref().map(|estimate| estimate.bytes.mib());
        assert_eq!((horus.jobs[0].spec.mem, estimate), (None, Some(20_000)));
    }

    #[test]
    fn a_trace_without_programs_names_what_is_missing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.csv");
        fs::write(&path, TRACE).unwrap();
        let words = path.to_str().unwrap();
        let why = of(&path, &flags(&[words])).unwrap_err().to_string();
        assert!(why.contains("big has no program") && why.contains("big.rad") && why.contains("--"), "{why}");
        for name in ["big", "gang"] {
            fs::write(dir.path().join(format!("{name}.rad")), format!("#RADRM --gpus=1\npython {name}.py\n"))
                .unwrap();
        }
        let plan = of(&path, &flags(&[words])).unwrap();
        assert!(plan.jobs[1].spec.command.iter().any(|word| word.contains("gang.py")), "{plan:?}");
        assert_eq!(plan.jobs[1].spec.gpus, 2, "the trace says what it takes");
    }

    #[test]
    fn scripts_and_folders_of_rad_files_are_played() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["b", "a"] {
            fs::write(dir.path().join(format!("{name}.rad")), format!("#RADRM --gpu-mem=2GiB\n./{name}\n"))
                .unwrap();
        }
        fs::write(
            dir.path().join("trace.sh"),
            "#!/bin/bash\nset -e\nsubmit ../tasks/b.rad\nsleep 90\nsubmit a.rad\n",
        )
        .unwrap();
        let folder = dir.path().to_str().unwrap();
        let names = |plan: &Plan| {
            plan.jobs.iter().map(|job| (job.at.0, job.spec.name.raw().to_owned())).collect::<Vec<_>>()
        };
        let all = of(dir.path(), &flags(&[folder])).unwrap();
        assert_eq!(names(&all), [(0, "a".to_owned()), (0, "b".to_owned())]);
        let script = dir.path().join("trace.sh");
        let played = of(&script, &flags(&[script.to_str().unwrap(), "--", "run", "{mem_mib}"])).unwrap();
        assert_eq!(names(&played), [(0, "b".to_owned()), (90_000, "a".to_owned())]);
        assert_eq!(played.jobs[0].spec.command, ["run", "2048"]);
        assert!(played.left_out.ends_with("a .rad file: 1"), "{}", played.left_out);
        let words = [script.to_str().unwrap(), "--", "run", "{seconds}"];
        let why = of(&script, &flags(&words)).unwrap_err().to_string();
        assert!(why.contains("b has no {seconds}"), "{why}");
    }
}
