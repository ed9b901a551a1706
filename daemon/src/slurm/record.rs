//! The files of steps: the SPANK plug-in writes them as root, and only what it wrote of job and user counts. The rest
//! comes from the recorder, which runs as the job's user: figures of that user's own job.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use radrm_scheduler_core::{Bytes, Need, Settings};

use crate::error::DaemonError;

/// The folder in that of the plug-in.
const FOLDER: &str = "steps";
/// A file is far shorter.
const MAX_LEN: u64 = 16 << 10;

/// A step on this node.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Key {
    pub(super) job: u32,
    /// `batch`, or a number.
    pub(super) step: String,
    /// Start time of the step, ms since 1970.
    pub(super) begin_ms: u64,
}

/// Record of a step.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Record {
    pub(super) node: String,
    pub(super) uid: u32,
    /// Memory that the job was granted on each GPU, bytes.
    pub(super) granted: Option<u64>,
    pub(super) end_ms: Option<u64>,
    /// Exit code and signal.
    pub(super) exit: Option<(u32, u32)>,
    /// Most on one GPU, bytes.
    pub(super) peak: Option<u64>,
    /// Held and asked for at the request that was refused, bytes.
    pub(super) oom: Option<u64>,
    /// Mean SM activity, thousandths.
    pub(super) smact: Option<u32>,
}

/// An amount in a sentence.
fn shown(bytes: u64) -> String {
    Bytes(bytes).to_string()
}

impl Record {
    /// Reads a file. `None`: the plug-in has not completed its own part.
    fn parse(text: &str) -> Option<(Key, Self)> {
        let mut lines: BTreeMap<&str, &str> = BTreeMap::new();
        for (name, value) in text.lines().filter_map(|line| line.split_once(' ')) {
            // What the plug-in wrote stands first, so that no later line replaces it.
            lines.entry(name).or_insert(value);
        }
        let number = |name: &str| lines.get(name)?.parse::<u64>().ok();
        let small = |name: &str| number(name).and_then(|number| u32::try_from(number).ok());
        let word = |name: &str| {
            let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
            lines
                .get(name)
                .filter(|word| word.len() <= 255 && word.bytes().all(fits))
                .map(|word| (*word).to_owned())
        };
        let key = Key { job: small("job")?, step: word("step")?, begin_ms: number("begin_ms")? };
        let record = Self {
            node: word("node").unwrap_or_default(),
            uid: small("uid")?,
            granted: number("granted"),
            end_ms: number("end_ms"),
            exit: small("exit").zip(small("signal")),
            peak: number("peak"),
            oom: number("oom"),
            smact: small("smact"),
        };
        Some((key, record))
    }

    pub(super) fn has_failed(&self) -> bool {
        self.exit.is_none_or(|exit| exit != (0, 0))
    }

    /// Memory that an equal job needs on each GPU, bytes: by the rules of radrmd for measured needs.
    pub(super) fn recommended(&self) -> Option<u64> {
        let slack = Settings::default().slack;
        let need = |bytes| Need::measured(Bytes(bytes)).reserved(slack, Bytes(u64::MAX)).0;
        self.oom.or(self.peak.filter(|peak| *peak > 0)).map(need)
    }

    /// For the administrator and the user.
    pub(super) fn sentence(&self) -> Option<String> {
        let recommended = self.recommended()?;
        let of = self.granted.map(|granted| format!(" of {}", shown(granted))).unwrap_or_default();
        let held = shown(self.peak.unwrap_or(0));
        // In MiB, so that it can be copied into a command.
        let mib = recommended.div_ceil(1 << 20);
        Some(match self.oom {
            Some(oom) => {
                format!("peak {held}{of}, ran out of GPU memory at {}: try --gpu-mem={mib}MiB", shown(oom))
            }
            // A run that goes on, or that failed, may have needed more later.
            None if self.has_failed() => format!("peak {held}{of}"),
            None => format!("peak {held}{of}: --gpu-mem={mib}MiB is enough"),
        })
    }
}

/// The folder, and what is in it.
#[derive(Debug)]
pub(super) struct Steps {
    folder: PathBuf,
    running: BTreeMap<Key, Record>,
    ended: BTreeMap<Key, PathBuf>,
}

impl Steps {
    /// Makes the folder: from then on the plug-in keeps files in it.
    pub(super) fn open(state: &Path) -> Result<Self, DaemonError> {
        let folder = state.join(FOLDER);
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o755);
        builder.create(&folder).map_err(|error| DaemonError::file(&folder, &error))?;
        let found = fs::symlink_metadata(&folder).map_err(|error| DaemonError::file(&folder, &error))?;
        let own = rustix::process::geteuid().as_raw();
        if !found.is_dir() || found.uid() != own || found.mode() & 0o022 != 0 {
            return Err(DaemonError::NotPrivate(folder));
        }
        Ok(Self { folder, running: BTreeMap::new(), ended: BTreeMap::new() })
    }

    /// Reads the folder anew, and gives the steps that are over.
    pub(super) fn ended(&mut self) -> Vec<(Key, Record)> {
        self.running.clear();
        let mut over = Vec::new();
        for path in fs::read_dir(&self.folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
            let Some((text, is_held)) = read(&path) else { continue };
            match (Record::parse(&text), is_held) {
                (Some((key, record)), true) => {
                    self.running.insert(key, record);
                }
                (Some((key, record)), false) => {
                    self.ended.insert(key.clone(), path);
                    over.push((key, record));
                }
                // Its writer was killed before there was anything to know.
                (None, false) => drop(fs::remove_file(&path)),
                (None, true) => {}
            }
        }
        over
    }

    /// A step that is over is taken in.
    pub(super) fn forget(&mut self, key: &Key) {
        if let Some(path) = self.ended.remove(key) {
            let _ = fs::remove_file(path);
        }
    }

    /// Returns true if the step runs, or is over and was not taken in.
    pub(super) fn has(&self, key: &Key) -> bool {
        self.running.contains_key(key) || self.ended.contains_key(key)
    }

    /// Record of a step that runs.
    pub(super) fn record(&self, key: &Key) -> Option<&Record> {
        self.running.get(key)
    }

    /// The running steps of a job of this user.
    pub(super) fn of(&self, job: u32, uid: u32) -> Vec<Key> {
        let steps = self.running.iter().filter(|(key, record)| key.job == job && record.uid == uid);
        steps.map(|(key, _)| key.clone()).collect()
    }

    /// Jobs with running steps.
    pub(super) fn jobs(&self) -> u64 {
        let jobs: std::collections::BTreeSet<u32> = self.running.keys().map(|key| key.job).collect();
        jobs.len() as u64
    }
}

/// A file, and whether its writer still lives.
fn read(path: &Path) -> Option<(String, bool)> {
    let flags = libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK;
    let file: File = OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
    let is_held = file.try_lock_shared().is_err();
    let mut text = String::new();
    file.take(MAX_LEN).read_to_string(&mut text).ok()?;
    Some((text, is_held))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &str = "job 42\nstep batch\nnode n1\nuid 1000\ngranted 4294967296\nbegin_ms 5\n";

    #[test]
    fn a_recorder_changes_neither_job_nor_user() {
        let text = format!("{OWN}job 7\nuid 0\npeak 1073741824\nexit 0\nsignal 0\nend_ms 9\nnode ../x\n");
        let (key, record) = Record::parse(&text).unwrap();
        assert_eq!((key.job, key.step.as_str(), key.begin_ms), (42, "batch", 5));
        assert_eq!((record.uid, record.node.as_str(), record.peak), (1000, "n1", Some(1 << 30)));
        assert!(!record.has_failed());
        for wrong in
            ["", "job 42\n", "job x\nstep 0\nuid 1\nbegin_ms 1\n", "job 1\nstep a/b\nuid 1\nbegin_ms 1\n"]
        {
            assert_eq!(Record::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn sentences_state_the_peak_and_what_to_ask_for() {
        let (_, fits) = Record::parse(&format!("{OWN}peak 1073741824\nexit 0\nsignal 0\n")).unwrap();
        assert_eq!(fits.sentence().unwrap(), "peak 1.00 GiB of 4.00 GiB: --gpu-mem=1045MiB is enough");
        let (_, out) =
            Record::parse(&format!("{OWN}peak 4294967296\noom 6442450944\nexit 1\nsignal 0\n")).unwrap();
        let sentence = out.sentence().unwrap();
        assert!(sentence.contains("ran out of GPU memory at 6.00 GiB: try --gpu-mem="), "{sentence}");
        for cut_short in ["", "exit 1\nsignal 0\n"] {
            let (_, record) = Record::parse(&format!("{OWN}peak 1073741824\n{cut_short}")).unwrap();
            assert_eq!(record.sentence().unwrap(), "peak 1.00 GiB of 4.00 GiB", "it may need more later");
        }
        let (_, none) = Record::parse(OWN).unwrap();
        assert!(none.sentence().is_none() && none.has_failed(), "nothing is known of a killed step");
    }

    #[test]
    fn a_step_is_over_when_its_writer_is_gone() {
        let place = tempfile::tempdir().unwrap();
        let mut steps = Steps::open(place.path()).unwrap();
        let path = place.path().join("steps/42.batch");
        fs::write(&path, OWN).unwrap();
        let writer = File::open(&path).unwrap();
        writer.lock().unwrap();
        assert!(steps.ended().is_empty() && steps.jobs() == 1 && steps.of(42, 1000).len() == 1);
        assert!(steps.of(42, 7).is_empty(), "another user's recorder is none of this job");
        drop(writer);
        let over = steps.ended();
        assert_eq!((over.len(), steps.jobs()), (1, 0));
        assert!(steps.has(&over[0].0));
        steps.forget(&over[0].0);
        assert!(!path.exists() && !steps.has(&over[0].0));
        fs::write(&path, "").unwrap();
        assert!(steps.ended().is_empty() && !path.exists());
    }
}
