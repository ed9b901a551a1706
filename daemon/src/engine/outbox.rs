//! Outbox: what is written before it is done.
//!
//! Changes, notes and effects are gathered while events are handled. [`Outbox::commit`] writes all of them in one
//! transaction; only what it returns, [`Committed`], lets effects be carried out and requests be acknowledged.

use std::collections::{BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use radrm_base::PastRun;
use radrm_collector::dataset::{Features, PastCourse, ProgramKey, Row, Sharing};
use radrm_protocol::limits::DrainRow;
use radrm_protocol::spec::Spec;
use radrm_protocol::wire::Line;
use radrm_scheduler_core::interference::ShareCurve;
use radrm_scheduler_core::{LimitKey, Signal};
use rusqlite::Transaction;

use super::entries::Entries;
use crate::accounting::{self, GpuTime};
use crate::attempt::Attempt;
use crate::dry_run::Outcome;
use crate::dry_run::stored::{self, Key};
use crate::history::History;
use crate::reservations::SetReservation;
use crate::store::changes::Undone;
use crate::store::{self, Store, Watched, curves};
use crate::user_limits::{LimitSetting, Scope};

/// Notes for the dataset that wait until it takes them, and their bytes; beyond that the oldest are lost. A run of 300
/// processes takes 60 KiB.
const MAX_UNLEARNED: usize = 1000;
const MAX_UNLEARNED_BYTES: usize = 32 << 20;
/// Time after which the dataset is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// Effect that is carried out after it was written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    Start(Attempt),
    /// The step between running and suspended at which the job is.
    Suspension(Attempt),
    /// A signal to an attempt, and whether the scheduler knows that it has to wait.
    Signal(Attempt, Signal, bool),
    /// The files of an attempt that has ended.
    Clear(Attempt),
}

/// Note that is written beside the jobs' rows.
#[derive(Clone, Debug)]
pub(super) enum Note {
    /// A line of a job's history.
    Line(u64, Line),
    /// A run that has ended, for the dataset.
    Run(Box<Row>, Option<Box<Features>>),
    /// Jobs that were seen to share a GPU, for the dataset.
    Sharing(Box<Sharing>),
    /// An attempt that has ended, for the users' accounting.
    Attempt(Box<GpuTime>),
    /// GPU time of a user, ms, at a time: the fair share's.
    Usage(u32, u64, u64),
    /// Figures of a GPU up to a time, ms.
    Watched(String, u64, Watched),
    /// Energy that a user's jobs took up to a time: the user, the time, ms since 1970, and mJ.
    Energy(u32, u64, u64),
    /// A GPU takes no new jobs, or takes them again.
    Drained(String, Option<DrainRow>),
    /// A limit that an administrator sets, or takes back.
    UserLimit(Scope, LimitKey, Option<LimitSetting>),
    /// A request that cancels, holds or releases many jobs and is not done, or that is done now.
    Change(u64, Option<Box<Undone>>),
    /// A reservation that an administrator makes, or takes back.
    Reservation(u64, Option<SetReservation>),
    /// Groups of a user, or nothing more of them.
    UserGroups(u32, Option<Vec<String>>),
    /// Outcome of a dry run in the background, the digest of the files that it is for, and its time, ms since 1970.
    DryRun(Box<(Key, String, Outcome, u64)>),
    /// Specification of a job, with what a dry run added.
    Spec(u64, Box<Spec>),
    /// Bytes on the disk of the folder of a job, with its user.
    Disk(u64, u32, u64),
    /// A job whose files are gone.
    Forget(u64),
    /// All but the newest runs, and GPU time of attempts that ended before this, ms since 1970. `None`: no clock is trusted yet.
    ForgetRuns(Option<u64>),
}

impl Note {
    /// Bytes of its text, about as many as it takes in memory.
    fn bytes(&self) -> usize {
        let length = |text: serde_json::Result<Vec<u8>>| text.map_or(0, |text| text.len());
        match self {
            Self::Run(row, features) => {
                length(serde_json::to_vec(row)) + length(serde_json::to_vec(features))
            }
            Self::Sharing(row) => row.jobs.iter().map(|job| size_of_val(job) + job.program.len()).sum(),
            _ => size_of::<Self>(),
        }
    }

    fn write(&self, tx: &Transaction<'_>) -> rusqlite::Result<()> {
        match self {
            Self::Line(job, line) => store::note(tx, *job, line),
            Self::Attempt(of) => accounting::insert(tx, of),
            Self::Usage(uid, gpu_ms, at_ms) => store::put_usage(tx, *uid, *gpu_ms, *at_ms),
            Self::Watched(gpu, at_ms, figures) => store::put_watched(tx, gpu, *at_ms, figures),
            Self::Energy(uid, at_ms, mj) => store::energy::add(tx, *uid, *at_ms, *mj),
            Self::DryRun(of) => {
                let (key, digest, outcome, at_ms) = &**of;
                stored::insert(tx, key, digest, outcome, *at_ms)
            }
            Self::Spec(job, spec) => store::put_spec(tx, *job, spec),
            Self::Disk(job, uid, bytes) => store::disk::put(tx, *job, *uid, *bytes),
            Self::Forget(job) => store::forget(tx, *job),
            Self::Drained(gpu, drain) => store::drains::put(tx, gpu, drain.as_ref()),
            Self::UserLimit(scope, key, setting) => {
                store::user_limits::put(tx, scope, *key, setting.as_ref())
            }
            Self::Change(number, undone) => store::changes::put(tx, *number, undone.as_deref()),
            Self::Reservation(number, set) => store::reservations::put(tx, *number, set.as_ref()),
            Self::UserGroups(uid, names) => store::user_groups::put(tx, *uid, names.as_deref()),
            // For the dataset.
            Self::Run(..) | Self::Sharing(_) => Ok(()),
            Self::ForgetRuns(before_ms) => {
                if let Some(before_ms) = *before_ms {
                    accounting::forget_older(tx, before_ms)?;
                    store::energy::forget_older(tx, before_ms)?;
                }
                curves::forget_older(tx)
            }
        }
    }
}

/// Everything that was gathered is on disk.
#[derive(Debug)]
#[must_use]
pub(super) struct Committed {
    /// The jobs whose rows were written.
    pub(super) jobs: BTreeSet<u64>,
    /// Jobs were forgotten.
    pub(super) forgot: bool,
}

/// Notes for the dataset that it has not taken yet, the oldest first, each with its bytes.
#[derive(Debug, Default)]
struct Unlearned {
    notes: VecDeque<(Note, usize)>,
    bytes: usize,
}

impl Unlearned {
    fn add(&mut self, note: Note) {
        let bytes = note.bytes();
        self.bytes += bytes;
        self.notes.push_back((note, bytes));
        while self.notes.len() > MAX_UNLEARNED || self.bytes > MAX_UNLEARNED_BYTES {
            self.remove_oldest();
        }
    }

    fn oldest(&self) -> Option<&Note> {
        self.notes.front().map(|(note, _)| note)
    }

    fn newest_first(&self) -> impl Iterator<Item = &Note> {
        self.notes.iter().rev().map(|(note, _)| note)
    }

    fn remove_oldest(&mut self) {
        self.bytes -= self.notes.pop_front().map_or(0, |(_, bytes)| bytes);
    }
}

/// The outbox.
#[derive(Debug)]
pub(super) struct Outbox {
    store: Store,
    history: History,
    unlearned: Unlearned,
    /// Reason for that, or that the last ones are lost; and the time of the next try.
    unrecorded: Option<String>,
    next_try: Option<Instant>,
    dirty: BTreeSet<u64>,
    notes: Vec<Note>,
    effects: VecDeque<Effect>,
    /// Effects that could not be carried out and are tried again.
    later: VecDeque<Effect>,
}

impl Outbox {
    pub(super) fn new(store: Store, history: History) -> Self {
        Self {
            store,
            history,
            unlearned: Unlearned::default(),
            unrecorded: None,
            next_try: None,
            dirty: BTreeSet::new(),
            notes: Vec::new(),
            effects: VecDeque::new(),
            later: VecDeque::new(),
        }
    }

    /// The queue on disk.
    pub(super) fn store(&self) -> &Store {
        &self.store
    }

    #[cfg(test)]
    pub(super) fn store_mut(&mut self) -> &mut Store {
        &mut self.store
    }

    /// Writes in a transaction of its own, before what is gathered.
    ///
    /// # Errors
    /// The database's; nothing was written.
    pub(super) fn write_now<T>(
        &mut self,
        work: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<T> {
        self.store.transaction(work)
    }

    /// The next writing is the last one of this daemon.
    pub(super) fn end(&mut self) {
        self.next_try = None;
    }

    /// Number of notes that the dataset has not taken.
    pub(super) fn unlearned(&self) -> usize {
        self.unlearned.notes.len()
    }

    /// Reason that the last runs are not in the dataset.
    pub(super) fn unrecorded(&self) -> Option<&String> {
        self.unrecorded.as_ref()
    }

    /// Number of effects that wait.
    pub(super) fn waiting(&self) -> usize {
        self.effects.len()
    }

    pub(super) fn next_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// A job's row has to be written.
    pub(super) fn touch(&mut self, job: u64) {
        self.dirty.insert(job);
    }

    pub(super) fn note(&mut self, note: Note) {
        self.notes.push(note);
    }

    /// Adds a line to a job's history.
    pub(super) fn line(&mut self, job: u64, at_ms: u64, text: String) {
        self.note(Note::Line(job, Line { at_ms, text: text.into() }));
    }

    pub(super) fn effect(&mut self, effect: Effect) {
        self.effects.push_back(effect);
    }

    /// An effect that could not be carried out is tried again, after [`Self::take_up_later`].
    pub(super) fn later(&mut self, effect: Effect) {
        self.later.push_back(effect);
    }

    /// Effects that could not be carried out wait to be carried out again.
    pub(super) fn take_up_later(&mut self) {
        self.effects.append(&mut self.later);
    }

    /// Jobs whose rows have to be written.
    pub(super) fn dirty(&self) -> &BTreeSet<u64> {
        &self.dirty
    }

    /// Runs of a program by a user on a GPU model that are not written yet, the newest first.
    fn pending<'o>(
        &'o self,
        uid: u32,
        program: &'o ProgramKey,
        model: &'o str,
    ) -> impl Iterator<Item = &'o Row> {
        let notes = self.notes.iter().rev().chain(self.unlearned.newest_first());
        notes.filter_map(move |note| match note {
            Note::Run(row, _) => Some(&**row).filter(|row| is_run_of(row, uid, program, model)),
            _ => None,
        })
    }

    /// Earlier runs of a program by a user on a GPU model, the newest first, those among them that are not written yet.
    pub(super) fn past_runs(&self, uid: u32, program: &ProgramKey, model: &str) -> Vec<PastRun> {
        let pending = self.pending(uid, program, model);
        let mut runs: Vec<PastRun> = pending.filter_map(Row::past_run).collect();
        runs.extend(self.history.runs(uid, program, model));
        runs
    }

    /// Earlier runs of which it is also known what they held early, and that ended well.
    pub(super) fn past_courses(&self, uid: u32, program: &ProgramKey, model: &str) -> Vec<PastCourse> {
        let pending = self.pending(uid, program, model);
        let mut courses: Vec<PastCourse> = pending.filter_map(Row::past_course).collect();
        courses.extend(self.history.courses(uid, program, model));
        courses
    }

    /// Jobs that were seen to share GPUs, oldest first.
    pub(super) fn sharing(&self) -> Vec<Sharing> {
        self.history.sharing()
    }

    /// The speed of a program at parts of a GPU of this model, if it was measured here.
    pub(super) fn share_curve(&self, program: &str, model: &str) -> Option<ShareCurve> {
        self.history.share_curve(program, model)
    }

    /// Returns true if nothing waits to be written, and nothing that failed waits to be undone for good.
    pub(super) fn is_clean(&self) -> bool {
        self.dirty.is_empty() && self.notes.is_empty() && !self.store.has_failed()
    }

    /// Adds to the dataset, before the queue says that the attempts have ended: a daemon that dies in between adds the
    /// same runs again, in place of the first ones. No job waits for it: what a disk in trouble or a locked dataset does not
    /// take is added later, and only what no later try can add is lost.
    fn record(&mut self) {
        let new = self.notes.extract_if(.., |note| matches!(note, Note::Run(..) | Note::Sharing(_)));
        let mut new: VecDeque<Note> = new.collect();
        let now = Instant::now();
        let is_due = self.next_try.is_none_or(|at| now >= at);
        while let Some(note) = self.unlearned.oldest().or(new.front()).filter(|_| is_due) {
            let failed = add_to(&mut self.history, note);
            let is_passing = failed.as_ref().is_some_and(|(is_passing, _)| *is_passing);
            self.unrecorded = failed.map(|(_, sentence)| sentence);
            self.next_try = is_passing.then(|| now + RETRY);
            if is_passing {
                break;
            }
            match self.unlearned.notes.is_empty() {
                true => drop(new.pop_front()),
                false => self.unlearned.remove_oldest(),
            }
        }
        new.into_iter().for_each(|note| self.unlearned.add(note));
    }

    /// Writes everything in one transaction, and what is for the dataset before. What cannot be written is kept.
    ///
    /// # Errors
    /// The database's; nothing was written.
    pub(super) fn commit(&mut self, entries: &Entries) -> rusqlite::Result<Committed> {
        self.record();
        if !self.is_clean() {
            let (dirty, notes) = (&self.dirty, &self.notes);
            self.store.transaction(|tx| {
                dirty
                    .iter()
                    .filter_map(|job| entries.get(job))
                    .try_for_each(|entry| store::update(tx, entry))?;
                notes.iter().try_for_each(|note| note.write(tx))
            })?;
        }
        let mut forgot = false;
        for note in self.notes.drain(..) {
            forgot |= matches!(note, Note::Forget(_));
            if matches!(note, Note::ForgetRuns(_)) {
                self.history.forget_older();
            }
        }
        Ok(Committed { jobs: std::mem::take(&mut self.dirty), forgot })
    }

    /// Takes back a signal that was not sent; with it whether it had to wait.
    pub(super) fn take_back_signal(&mut self, attempt: Attempt) -> Option<(Signal, bool)> {
        let mut taken = None;
        self.effects.retain(|effect| match effect {
            Effect::Signal(whose, signal, held) if *whose == attempt => {
                taken = Some((*signal, *held));
                false
            }
            _ => true,
        });
        taken
    }

    /// Takes back a start that was not carried out.
    pub(super) fn take_back_start(&mut self, job: u64) -> Option<Attempt> {
        for effects in [&mut self.effects, &mut self.later] {
            let at = effects.iter().position(|effect| matches!(effect, Effect::Start((id, _)) if *id == job));
            if let Some(Effect::Start(attempt)) = at.and_then(|at| effects.remove(at)) {
                return Some(attempt);
            }
        }
        None
    }

    /// Returns true if a start of the job waits to be carried out.
    pub(super) fn starts(&self, job: u64) -> bool {
        let mut effects = self.effects.iter().chain(&self.later);
        effects.any(|effect| matches!(effect, Effect::Start((id, _)) if *id == job))
    }

    /// Takes the signals for which this holds, although nothing can be written.
    pub(super) fn take_signals(&mut self, which: impl Fn(Attempt) -> bool) -> Vec<(Attempt, Signal, bool)> {
        let mut taken = Vec::new();
        self.effects.retain(|effect| match effect {
            Effect::Signal(attempt, signal, held) if which(*attempt) => {
                taken.push((*attempt, *signal, *held));
                false
            }
            _ => true,
        });
        taken
    }

    /// Marks all signals as held back; returns the jobs for which that is news.
    pub(super) fn hold_signals(&mut self) -> Vec<u64> {
        let mut news = Vec::new();
        for effect in &mut self.effects {
            if let Effect::Signal((job, _), _, held) = effect
                && !std::mem::replace(held, true)
            {
                news.push(*job);
            }
        }
        news
    }
}

/// Adds a note to the dataset. Returns what failed, with true if that may pass.
fn add_to(history: &mut History, note: &Note) -> Option<(bool, String)> {
    match note {
        Note::Run(row, features) => {
            let failed = history.add(row, features.as_deref()).err();
            failed.map(|error| (error.is_passing(), format!("a run was not recorded: {error}")))
        }
        Note::Sharing(row) => history
            .add_sharing(row)
            .err()
            .map(|error| (error.is_passing(), format!("how jobs slow each other was not recorded: {error}"))),
        _ => None,
    }
}

/// Returns true if a row is a run of this program by this user on this GPU model.
fn is_run_of(row: &Row, uid: u32, program: &ProgramKey, model: &str) -> bool {
    row.uid == uid
        && row.program_key.as_deref() == Some(program.as_str())
        && row.gpu_model.as_deref() == Some(model)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Entry;
    use std::path::Path;

    fn outbox() -> (tempfile::TempDir, Outbox) {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("q.db")).unwrap();
        let (history, failed) = History::open(dir.path(), "");
        assert_eq!(failed, None);
        (dir, Outbox::new(store, history))
    }

    fn run(job: u64, peak: u64) -> Note {
        let row = Row {
            uid: 7,
            gpu_model: Some("m".into()),
            job_id: Some(job),
            attempt: Some(1),
            footprint_bytes: Some(peak),
            complete: true,
            ..Row::of_command(&["p".to_owned()], Path::new("/"), 1)
        };
        Note::Run(Box::new(row), None)
    }

    #[test]
    fn a_run_counts_before_it_is_written_and_once() {
        let (_dir, mut outbox) = outbox();
        outbox.note(run(1, 1));
        let _ = outbox.commit(&Entries::default()).unwrap();
        outbox.note(run(2, 2));
        let key = ProgramKey::of(&["p".to_owned()], Path::new("/"), 1);
        let peaks = |outbox: &Outbox, uid| -> Vec<u64> {
            outbox.past_runs(uid, &key, "m").iter().map(|run| run.peak.0).collect()
        };
        assert_eq!(peaks(&outbox, 7), [2, 1]);
        // Also where the queue cannot be written, and where the attempt is found ended a second time.
        outbox.line(1, 5, "a line".to_owned());
        outbox.store().fail_writes(true);
        outbox.commit(&Entries::default()).unwrap_err();
        assert_eq!(peaks(&outbox, 7), [2, 1]);
        outbox.store().fail_writes(false);
        outbox.note(run(2, 2));
        let _ = outbox.commit(&Entries::default()).unwrap();
        assert_eq!(peaks(&outbox, 7), [2, 1]);
        assert!(peaks(&outbox, 8).is_empty(), "another user's");
    }

    #[test]
    fn a_run_is_in_the_dataset_before_the_queue_says_that_it_is_over() {
        let (dir, mut outbox) = outbox();
        outbox.note(run(1, 5));
        outbox.line(1, 5, "a line".to_owned());
        outbox.store().fail_writes(true);
        outbox.commit(&Entries::default()).unwrap_err();
        // The daemon dies here.
        drop(outbox);
        let (history, failed) = History::open(dir.path(), "");
        assert_eq!(failed, None);
        let key = ProgramKey::of(&["p".to_owned()], Path::new("/"), 1);
        assert_eq!(history.runs(7, &key, "m").iter().map(|run| run.peak.0).collect::<Vec<_>>(), [5]);
    }

    #[test]
    fn what_cannot_be_written_is_kept_and_nothing_is_acknowledged() {
        let (_dir, mut outbox) = outbox();
        let mut entries = Entries::default();
        let id = outbox.write_now(|tx| store::insert(tx, &Entry::default(), "[]")).unwrap();
        entries.insert(id, Entry { id, why: "changed".into(), ..Entry::default() });
        outbox.touch(id);
        outbox.line(id, 5, "a line".to_owned());
        outbox.store().fail_writes(true);
        outbox.commit(&entries).unwrap_err();
        assert!(!outbox.is_clean());
        outbox.store().fail_writes(false);
        let committed = outbox.commit(&entries).unwrap();
        assert_eq!(committed.jobs, BTreeSet::from([id]));
        assert_eq!(outbox.store().job(id).unwrap().unwrap().why, "changed");
        assert_eq!(outbox.store().history(id).unwrap().len(), 1, "once");
        assert!(outbox.is_clean());
    }

    #[test]
    fn gpu_time_and_runs_are_forgotten_once_their_time_is_over() {
        let (_dir, mut outbox) = outbox();
        let ended =
            |job, end_ms| Note::Attempt(Box::new(GpuTime { job, attempt: 1, end_ms, ..GpuTime::default() }));
        for note in [ended(1, 10), ended(2, 20), Note::ForgetRuns(Some(15))] {
            outbox.note(note);
        }
        let _ = outbox.commit(&Entries::default()).unwrap();
        let left = accounting::select(&outbox.store().connection, None, 0, u64::MAX);
        assert_eq!(left.iter().map(|of| of.job).collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn a_run_that_the_dataset_does_not_take_now_is_added_later() {
        let (dir, mut outbox) = outbox();
        let other = rusqlite::Connection::open(dir.path().join("dataset.db")).unwrap();
        other.execute_batch("BEGIN EXCLUSIVE").unwrap();
        let program = ["p".to_owned()];
        let key = ProgramKey::of(&program, Path::new("/"), 1);
        let row = |peak| Row {
            program_key: Some(key.as_str().to_owned()),
            uid: 7,
            gpu_model: Some("m".into()),
            footprint_bytes: Some(peak),
            peak_bytes: peak,
            complete: true,
            job_id: Some(peak),
            ..Row::default()
        };
        let peaks =
            |outbox: &Outbox| outbox.past_runs(7, &key, "m").iter().map(|run| run.peak.0).collect::<Vec<_>>();
        outbox.note(Note::Run(Box::new(row(5)), None));
        let _ = outbox.commit(&Entries::default()).unwrap();
        assert!(outbox.unrecorded().unwrap().contains("locked"), "{:?}", outbox.unrecorded());
        assert!(outbox.is_clean(), "no job waits for it");
        assert_eq!(peaks(&outbox), [5], "needs are derived from it meanwhile");
        outbox.note(Note::Run(Box::new(row(6)), None));
        drop(other);
        outbox.next_try = None;
        let _ = outbox.commit(&Entries::default()).unwrap();
        assert_eq!((outbox.unrecorded(), outbox.unlearned(), outbox.unlearned.bytes), (None, 0, 0));
        assert_eq!(peaks(&outbox), [6, 5]);
        let (history, _) = History::open(dir.path(), "");
        assert_eq!(history.runs(7, &key, "m").len(), 2, "and no run twice");
    }

    #[test]
    fn what_a_locked_dataset_does_not_take_has_a_bound_in_bytes() {
        let (dir, mut outbox) = outbox();
        let other = rusqlite::Connection::open(dir.path().join("dataset.db")).unwrap();
        other.execute_batch("BEGIN EXCLUSIVE").unwrap();
        for job in 1..=40 {
            let Note::Run(row, features) = run(job, job) else { unreachable!() };
            let row = Row { command: "x".repeat(1 << 20), ..*row };
            outbox.note(Note::Run(Box::new(row), features));
            let _ = outbox.commit(&Entries::default()).unwrap();
        }
        let (kept, bytes) = (outbox.unlearned(), outbox.unlearned.bytes);
        assert!((30..32).contains(&kept) && bytes <= MAX_UNLEARNED_BYTES, "{kept} of {bytes} bytes");
        let newest = outbox.unlearned.newest_first().next();
        assert!(matches!(newest, Some(Note::Run(row, _)) if row.job_id == Some(40)), "the oldest are lost");
        assert!(outbox.unrecorded().is_some());
    }

    #[test]
    fn jobs_that_shared_gpus_count_with_their_programs() {
        let (dir, mut outbox) = outbox();
        let other = rusqlite::Connection::open(dir.path().join("dataset.db")).unwrap();
        other.execute_batch("BEGIN EXCLUSIVE").unwrap();
        let program = "x".repeat(2 << 10);
        let jobs = vec![radrm_collector::dataset::SharedJob { program, ..Default::default() }; 48];
        for unix_ns in 0..400 {
            outbox.note(Note::Sharing(Box::new(Sharing {
                unix_ns,
                jobs: jobs.clone(),
                ..Sharing::default()
            })));
        }
        let _ = outbox.commit(&Entries::default()).unwrap();
        // 32 MiB over 48 times 2 KiB.
        let kept = outbox.unlearned();
        assert!((300..342).contains(&kept), "{kept}");
    }

    #[test]
    fn a_signal_is_held_back_once_and_taken_back_whole() {
        let (_dir, mut outbox) = outbox();
        outbox.effect(Effect::Signal((1, 1), Signal::Terminate, false));
        outbox.effect(Effect::Start((2, 1)));
        assert_eq!((outbox.hold_signals(), outbox.hold_signals()), (vec![1], vec![]));
        assert_eq!(outbox.take_back_signal((1, 2)), None, "another attempt's");
        assert_eq!(outbox.take_back_signal((1, 1)), Some((Signal::Terminate, true)));
        assert!(outbox.starts(2));
        assert_eq!((outbox.take_back_start(2), outbox.take_back_start(2)), (Some((2, 1)), None));
        outbox.later(Effect::Start((3, 1)));
        assert!(outbox.starts(3) && outbox.waiting() == 0, "it is tried again later");
        assert_eq!((outbox.take_back_start(3), outbox.take_back_start(3)), (Some((3, 1)), None));
    }
}
