//! Processes of the job that have no slot: what they report themselves, and what others found out about them.

use super::{Watch, WatchOptions};
use crate::source::Source;
use radrm_os::Process;
use radrm_profile::model::{InitFailure, Uncounted, UncountedProcess};
use radrm_profile::{Nanos, Record};
use radrm_telemetry::{Notice, NoticeSeen};

/// Code, meaning and remedy of a failed `cuInit`: name, meaning, remedy.
pub type InitWords = fn(u32) -> (&'static str, &'static str, &'static str);

/// Processes without a slot, as far as they are known.
#[derive(Debug)]
pub(super) struct Notices {
    /// Their own reports, each with its process's command line.
    seen: Vec<(NoticeSeen, String)>,
    lost: u64,
    /// Found by other means.
    outside: Vec<UncountedProcess>,
    is_limited: bool,
    init_words: InitWords,
}

impl Notices {
    pub(super) fn new(options: &WatchOptions) -> Self {
        let is_limited = !options.ledgers.is_empty();
        Self { seen: Vec::new(), lost: 0, outside: Vec::new(), is_limited, init_words: options.init_words }
    }

    /// Processes in no figure; what was found by other means comes first.
    fn uncounted(&self, origin: u64) -> Vec<UncountedProcess> {
        let mut all = self.outside.clone();
        for (seen, command) in &self.seen {
            let Notice::Unjoined(failure) = seen.notice else { continue };
            if all.iter().any(|known| known.pid == seen.pid && known.reason == failure.code()) {
                continue;
            }
            let t = Nanos(seen.ns.saturating_sub(origin));
            all.push(UncountedProcess {
                kind: if self.is_limited { Uncounted::Refused } else { Uncounted::Unseen },
                pid: seen.pid,
                command: command.clone(),
                reason: failure.code().to_owned(),
                explanation: failure.sentence().to_owned(),
                remedy: failure.remedy().to_owned(),
                first: t,
                last: t,
                gpus: Vec::new(),
            });
        }
        all
    }

    fn init_failures(&self, origin: u64) -> Vec<InitFailure> {
        let failure = |(seen, _): &(NoticeSeen, String)| {
            let Notice::InitFailed(code) = seen.notice else { return None };
            let (name, meaning, remedy) = (self.init_words)(code);
            Some(InitFailure {
                t: Nanos(seen.ns.saturating_sub(origin)),
                pid: seen.pid,
                code,
                name: name.to_owned(),
                meaning: meaning.to_owned(),
                remedy: remedy.to_owned(),
            })
        };
        self.seen.iter().filter_map(failure).collect()
    }
}

impl<S: Source> Watch<S> {
    /// Takes new notices.
    pub(super) fn read_notices(&mut self) {
        let (notices, lost) = self.source.notices();
        self.notices.lost = lost;
        let known = |seen: &NoticeSeen, all: &[(NoticeSeen, String)]| {
            all.iter().any(|(other, _)| (other.pid, other.notice) == (seen.pid, seen.notice))
        };
        let before = self.notices.seen.len();
        for seen in notices {
            if !known(&seen, &self.notices.seen) {
                self.notices.seen.push((seen, command(seen.pid)));
            }
        }
        if self.notices.seen.len() > before {
            self.write_notices();
        }
    }

    /// Takes processes of the job that were found outside of all figures, in place of those of the last call.
    pub(crate) fn outside(&mut self, found: Vec<UncountedProcess>) {
        if self.notices.outside != found {
            self.notices.outside = found;
            self.write_notices();
        }
    }

    fn write_notices(&mut self) {
        let origin = self.source.origin_mono_ns();
        let (uncounted, failures) = (self.notices.uncounted(origin), self.notices.init_failures(origin));
        if !uncounted.is_empty() {
            self.write(Record::Uncounted(uncounted));
        }
        if !failures.is_empty() {
            self.write(Record::InitFailures(failures));
        }
    }

    /// Says at the end how many notices there was no room for.
    pub(super) fn note_lost_notices(&mut self) {
        if self.notices.lost > 0 {
            self.note(format!(
                "{} further processes could not join the job, or cuInit failed in them: no figure contains them",
                self.notices.lost
            ));
        }
    }
}

/// The command line of a process with a shim; empty if there is none of this number.
fn command(pid: u32) -> String {
    let process = Process(pid);
    let has_shim = process.has_mapped(&["/libradrm.so"]);
    if has_shim { process.command() } else { String::new() }
}
