//! Destination of a job's records: the profile in memory, and its file as far as that is possible.

use radrm_profile::model::{Job, Profile};
use radrm_profile::{Bytes, Record, WriteError, Writer, name};
use std::collections::VecDeque;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thiserror::Error;

/// Destination of the profile.
#[derive(Clone, Debug, Default)]
pub enum ProfileFile {
    /// `PROGRAM.PID.radrm` in the working directory; no file is replaced.
    #[default]
    Default,
    /// At this path; a file that is there is replaced.
    At(PathBuf),
    /// In this file, which has this path or had it when it was opened.
    Open(PathBuf, Arc<File>),
    /// Not at all.
    None,
}

/// Names that are tried if `PROGRAM.PID.radrm` is taken.
const TRIES: u32 = 1000;

/// Size at which a profile's file ends, bytes: days of many GPUs take less, and readers take four times as much.
const MAX_FILE: u64 = 256 << 20;

/// Reason that there is no file.
#[derive(Debug, Error)]
pub(crate) enum OutputError {
    #[error("no profile at {}: {}", path.display(), reason(error))]
    Unwritable { path: PathBuf, error: WriteError },
    #[error("no profile at {0}: that name and {TRIES} like it are taken")]
    Taken(String),
}

/// The profile being built.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) profile: Profile,
    writer: Option<Writer>,
    /// Records that the disk had no room for, in order. No more than the
    /// profile in memory holds, so bounded like it.
    backlog: VecDeque<Record>,
    failing: bool,
    /// The file has reached its limit, in bytes.
    max: u64,
    is_full: bool,
    /// Another process writes the file.
    is_detached: bool,
}

impl Output {
    /// Begins; the second part is the reason if there will be no file.
    pub(crate) fn begin(job: Job, file: &ProfileFile) -> (Output, Option<OutputError>) {
        let writer = match file {
            ProfileFile::None => Ok(None),
            ProfileFile::At(path) => Writer::create(path, &job)
                .map(Some)
                .map_err(|error| OutputError::Unwritable { path: path.clone(), error }),
            ProfileFile::Open(path, file) => {
                let begun = file.try_clone().map_err(WriteError::from);
                let begun = begun.and_then(|file| Writer::over(file, path, &job));
                begun.map(Some).map_err(|error| OutputError::Unwritable { path: path.clone(), error })
            }
            ProfileFile::Default => free_name(&job).map(Some),
        };
        let (writer, warning) = match writer {
            Ok(writer) => (writer, None),
            Err(warning) => (None, Some(warning)),
        };
        (
            Output {
                profile: Profile::new(job),
                writer,
                backlog: VecDeque::new(),
                failing: false,
                max: MAX_FILE,
                is_full: false,
                is_detached: false,
            },
            warning,
        )
    }

    /// Adds a record. The first failure in a row comes back as a sentence; the
    /// records wait, and are tried again with the next one.
    pub(crate) fn add(&mut self, record: Record) -> Option<String> {
        if let Some(writer) = self.writer.as_mut().filter(|_| !self.is_detached) {
            if writer.written() >= self.max && !is_of_the_end(&record) {
                self.profile.apply(record);
                if std::mem::replace(&mut self.is_full, true) {
                    return None;
                }
                let size = Bytes(self.max);
                let note = format!(
                    "the profile's file has {size}, the most that it may have: it has nothing of what came later"
                );
                let note = Record::Note(note);
                let _ = writer.append(&note);
                self.profile.apply(note);
                let path = writer.path().display();
                return Some(format!(
                    "the profile {path} has {size}, the most that it may have: it ends here, the job goes on"
                ));
            }
            self.backlog.push_back(record.clone());
            while let Some(next) = self.backlog.front() {
                match writer.append(next) {
                    Ok(()) | Err(WriteError::TooLarge { .. } | WriteError::Encode(_)) => {
                        self.backlog.pop_front();
                        self.failing = false;
                    }
                    Err(error) => {
                        self.profile.apply(record);
                        let warning = format!(
                            "the profile {} cannot be written: {}; the job goes on, and it will be tried again",
                            writer.path().display(),
                            reason(&error)
                        );
                        return (!std::mem::replace(&mut self.failing, true)).then_some(warning);
                    }
                }
            }
        }
        self.profile.apply(record);
        None
    }

    /// Leaves the file to another process; what is added from here on is in memory only.
    pub(crate) fn detach(&mut self) {
        self.is_detached = true;
        self.backlog.clear();
    }

    pub(crate) fn is_detached(&self) -> bool {
        self.is_detached
    }

    /// The end: the profile and, if there is one, its file's path, and a
    /// sentence if the file is not whole.
    pub(crate) fn finish(self) -> (Profile, Option<PathBuf>, Option<String>) {
        let warning = (!self.backlog.is_empty()).then(|| {
            format!(
                "{} record(s) are missing from the profile's file; the report is complete",
                self.backlog.len()
            )
        });
        (self.profile, self.writer.map(|writer| writer.path().to_owned()), warning)
    }

    /// The file, if there is one.
    pub(crate) fn path(&self) -> Option<PathBuf> {
        self.writer.as_ref().map(|writer| writer.path().to_owned())
    }
}

/// Returns true for the few records that say how a job ended: these follow where the rest has no room.
fn is_of_the_end(record: &Record) -> bool {
    matches!(record, Record::Outcome(_) | Record::Note(_) | Record::ProgramDigest(_))
}

fn reason(error: &WriteError) -> String {
    match error {
        WriteError::Io(error) => error.to_string(),
        other => other.to_string(),
    }
}

fn free_name(job: &Job) -> Result<Writer, OutputError> {
    let first = name::file_name(&job.command, job.pid);
    let mut path = first.clone();
    for number in 2..TRIES {
        match Writer::create_new(Path::new(&path), job) {
            Ok(writer) => return Ok(writer),
            Err(WriteError::Io(error)) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                path = format!("{}.{number}.radrm", first.trim_end_matches(".radrm"));
            }
            Err(error) => return Err(OutputError::Unwritable { path: path.into(), error }),
        }
    }
    Err(OutputError::Taken(first))
}

#[cfg(test)]
mod tests {
    use super::*;
    use radrm_profile::model::Gpu;

    #[test]
    fn a_disk_that_is_full_is_said_once_and_nothing_is_lost() {
        let (mut output, warning) = Output::begin(Job::default(), &ProfileFile::At("/dev/full".into()));
        assert!(warning.unwrap().to_string().starts_with("no profile at /dev/full: No space left"));
        assert_eq!(output.add(Record::Note("kept".into())), None);
        let (profile, path, _) = output.finish();
        assert_eq!((profile.notes.len(), path), (1, None));
    }

    #[test]
    fn without_a_file_the_profile_is_built_all_the_same() {
        let (mut output, warning) = Output::begin(Job::default(), &ProfileFile::None);
        assert!(warning.is_none());
        output.add(Record::ProgramDigest([1; 32]));
        assert_eq!(output.path(), None);
        assert_eq!(output.finish().0.job.program_sha256, Some([1; 32]));
    }

    #[test]
    fn a_file_that_was_left_to_another_process_is_not_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.radrm");
        let (mut output, _) = Output::begin(Job::default(), &ProfileFile::At(path.clone()));
        output.add(Record::Note("a".into()));
        output.detach();
        output.add(Record::Note("b".into()));
        let (profile, file, warning) = output.finish();
        assert_eq!((profile.notes.len(), file, warning), (2, Some(path.clone()), None));
        assert_eq!(Profile::open(&path).unwrap().notes.len(), 1);
    }

    #[test]
    fn a_file_ends_at_its_limit_with_a_remark_and_how_the_job_ended() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.radrm");
        let (mut output, _) = Output::begin(Job::default(), &ProfileFile::At(path.clone()));
        output.max = 10_000;
        let gpus = || Record::Gpus(vec![Gpu { name: "n".repeat(500), ..Gpu::default() }]);
        let said: Vec<String> = (0..1000).filter_map(|_| output.add(gpus())).collect();
        assert!(matches!(&said[..], [one] if one.contains("the most that it may have")), "{said:?}");
        output.add(Record::ProgramDigest([1; 32]));
        let size = std::fs::metadata(&path).unwrap().len();
        assert!((10_000..12_000).contains(&size), "{size}");
        let (whole, ..) = output.finish();
        let read = Profile::open(&path).unwrap();
        assert_eq!((read.job.program_sha256, whole.job.program_sha256), (Some([1; 32]), Some([1; 32])));
        let remark = format!("{:?}", read.notes);
        assert!(remark.contains("it has nothing of what came later"), "{remark}");
    }

    #[test]
    fn the_file_says_what_the_memory_says() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.radrm");
        std::fs::write(&path, "something old").unwrap();
        let (mut output, _) = Output::begin(Job::default(), &ProfileFile::At(path.clone()));
        output.add(Record::Note("a".into()));
        let (profile, file, warning) = output.finish();
        assert_eq!((file, warning), (Some(path.clone()), None));
        assert_eq!(Profile::open(&path).unwrap(), profile);
    }
}
