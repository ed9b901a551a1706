//! Index of the jobs that are not over: those that have begun, and the lines in which lists show those that wait.
//!
//! What the daemon does each second, or answers a client with, visits these and not each waiting job.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::store::{Entry, Stage};

/// Line of a list: a job by itself, or all jobs of an array that wait in the same state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct LineKey {
    /// Number of the job, or of the first job of the array.
    first: u64,
    pub(super) is_held: bool,
}

/// Waiting jobs of a line, as runs of consecutive indices.
#[derive(Debug, Default)]
pub(super) struct Line {
    /// By their first index: the last one, and the job of the first one.
    runs: BTreeMap<u32, (u32, u64)>,
    is_array: bool,
    jobs: u64,
}

impl Line {
    fn insert(&mut self, index: u32, job: u64) {
        self.jobs += 1;
        let before = self.runs.range(..index).next_back().map(|(first, (last, of))| (*first, *last, *of));
        let (first, of) = match before.filter(|(_, last, _)| last.checked_add(1) == Some(index)) {
            Some((first, _, of)) => (first, of),
            None => (index, job),
        };
        let after = index.checked_add(1).and_then(|next| self.runs.remove(&next));
        self.runs.insert(first, (after.map_or(index, |(last, _)| last), of));
    }

    fn remove(&mut self, index: u32) {
        let Some((&first, &(last, of))) = self.runs.range(..=index).next_back() else { return };
        if index > last {
            return;
        }
        self.jobs -= 1;
        self.runs.remove(&first);
        if first < index {
            self.runs.insert(first, (index - 1, of));
        }
        if index < last {
            self.runs.insert(index + 1, (last, of + u64::from(index - first) + 1));
        }
    }

    /// Number of its jobs.
    pub(super) fn len(&self) -> u64 {
        self.jobs
    }

    /// Indices of its jobs, as users write them; empty for a job by itself.
    pub(super) fn tasks(&self) -> String {
        let ranges = self.runs.iter().map(|(first, (last, _))| (*first, *last));
        if self.is_array { radrm_protocol::array::join(ranges) } else { String::new() }
    }

    /// Its jobs, by number.
    pub(super) fn jobs(&self) -> impl Iterator<Item = u64> + '_ {
        self.runs.iter().flat_map(|(first, (last, job))| *job..=job + u64::from(last - first))
    }

    /// The last of the jobs that follow this one without a gap.
    fn last_from(&self, index: u32, job: u64) -> u64 {
        let run = self.runs.range(..=index).next_back();
        run.map_or(job, |(_, (last, _))| job + u64::from(last.saturating_sub(index)))
    }
}

/// Waiting jobs of a user.
#[derive(Debug, Default)]
struct Waiting {
    lines: BTreeMap<LineKey, Line>,
    jobs: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Begun,
    Waiting { uid: u32, line: LineKey, index: u32 },
}

impl Place {
    fn of(entry: &Entry) -> Self {
        if entry.stage != Stage::Waiting {
            return Self::Begun;
        }
        let task = entry.spec.task;
        let first = task.map_or(entry.id, |task| task.array(entry.id));
        let line = LineKey { first, is_held: entry.held };
        Self::Waiting { uid: entry.uid, line, index: task.map_or(0, |task| task.index) }
    }
}

#[derive(Debug, Default)]
pub(super) struct EntryIndex {
    places: HashMap<u64, Place>,
    begun: BTreeSet<u64>,
    users: BTreeMap<u32, Waiting>,
}

impl EntryIndex {
    /// Takes note of a job as it is now, or that it is gone.
    pub(super) fn update(&mut self, job: u64, entry: Option<&Entry>) {
        let now = entry.map(Place::of);
        if self.places.get(&job) == now.as_ref() {
            return;
        }
        match self.places.remove(&job) {
            Some(Place::Begun) => {
                self.begun.remove(&job);
            }
            Some(Place::Waiting { uid, line, index }) => self.leave(uid, line, index),
            None => {}
        }
        let Some(place) = now else { return };
        self.places.insert(job, place);
        match place {
            Place::Begun => {
                self.begun.insert(job);
            }
            Place::Waiting { uid, line, index } => {
                let user = self.users.entry(uid).or_default();
                user.jobs += 1;
                let is_array = entry.is_some_and(|entry| entry.spec.task.is_some());
                user.lines
                    .entry(line)
                    .or_insert_with(|| Line { is_array, ..Line::default() })
                    .insert(index, job);
            }
        }
    }

    fn leave(&mut self, uid: u32, key: LineKey, index: u32) {
        let Some(user) = self.users.get_mut(&uid) else { return };
        user.jobs -= 1;
        if let Some(line) = user.lines.get_mut(&key) {
            line.remove(index);
            if line.jobs == 0 {
                user.lines.remove(&key);
            }
        }
        if user.lines.is_empty() {
            self.users.remove(&uid);
        }
    }

    /// Jobs that do not wait any more, by number.
    pub(super) fn begun(&self) -> &BTreeSet<u64> {
        &self.begun
    }

    /// Number of jobs that wait, of one user or of all.
    pub(super) fn waiting(&self, whose: Option<u32>) -> u64 {
        self.of(whose).map(|user| user.jobs).sum()
    }

    /// Number of jobs that wait and are held by their users.
    pub(super) fn held(&self) -> u64 {
        self.lines(None).filter(|(key, _)| key.is_held).map(|(_, line)| line.jobs).sum()
    }

    /// Lines of waiting jobs, of one user or of all: those of each user by the number of their first job.
    pub(super) fn lines(&self, whose: Option<u32>) -> impl Iterator<Item = (LineKey, &Line)> {
        self.of(whose).flat_map(|user| user.lines.iter().map(|(key, line)| (*key, line)))
    }

    /// The line of a waiting job, and the last of the jobs of that line that follow it without a gap.
    pub(super) fn line_of(&self, job: u64) -> Option<(LineKey, &Line, u64)> {
        let Place::Waiting { uid, line: key, index } = *self.places.get(&job)? else { return None };
        let line = self.users.get(&uid)?.lines.get(&key)?;
        Some((key, line, line.last_from(index, job)))
    }

    fn of(&self, whose: Option<u32>) -> impl Iterator<Item = &Waiting> {
        let one = whose.and_then(|uid| self.users.get(&uid));
        let all = whose.is_none().then(|| self.users.values());
        one.into_iter().chain(all.into_iter().flatten())
    }
}

#[cfg(test)]
mod tests {
    use radrm_protocol::array::ArrayTask;
    use radrm_protocol::spec::Spec;

    use super::*;

    /// Jobs 10 to 19 are an array of the even indices 0 to 18, jobs 20 to 29 one of the indices 0 to 9.
    fn entry(id: u64, stage: Stage, held: bool) -> Entry {
        let position = u32::try_from(id % 10).unwrap();
        let index = if id < 20 { 2 * position } else { position };
        let task = (id >= 10).then_some(ArrayTask { index, position, tasks: 10, at_once: None });
        Entry {
            id,
            uid: 7 + u32::from(id < 10),
            stage,
            held,
            spec: Spec { task, ..Spec::default() },
            ..Entry::default()
        }
    }

    #[test]
    fn an_index_is_what_a_walk_over_all_jobs_finds() {
        let (mut index, mut all) = (EntryIndex::default(), BTreeMap::new());
        let mut random = 1u64;
        for _ in 0..3000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (id, what) = ((random >> 33) & 31, random >> 60);
            if id == 0 || id > 29 {
                continue;
            }
            let stage = if what < 9 { Stage::Waiting } else { Stage::Running };
            match what < 12 {
                true => all.insert(id, entry(id, stage, what < 2)),
                false => all.remove(&id),
            };
            index.update(id, all.get(&id));
            let waiting = |held: bool| {
                let waits = move |entry: &&Entry| entry.stage == Stage::Waiting && entry.held == held;
                all.values().filter(waits).collect::<Vec<_>>()
            };
            let begun: Vec<u64> =
                all.values().filter(|entry| entry.stage == Stage::Running).map(|entry| entry.id).collect();
            assert_eq!(index.begun().iter().copied().collect::<Vec<_>>(), begun);
            assert_eq!(index.held(), waiting(true).len() as u64);
            assert_eq!(index.waiting(None), (waiting(true).len() + waiting(false).len()) as u64);
            assert_eq!(
                index.waiting(Some(8)),
                all.range(..10).filter(|(_, entry)| entry.stage == Stage::Waiting).count() as u64
            );
            for held in [false, true] {
                for entry in waiting(held) {
                    let (key, line, last) = index.line_of(entry.id).unwrap();
                    let same = |other: &&&Entry| {
                        other.id / 10 == entry.id / 10 && (entry.id >= 10 || other.id == entry.id)
                    };
                    let jobs: Vec<u64> = waiting(held).iter().filter(same).map(|other| other.id).collect();
                    assert_eq!(
                        (line.jobs().collect::<Vec<_>>(), line.len()),
                        (jobs.clone(), jobs.len() as u64)
                    );
                    assert_eq!(key.is_held, held);
                    let consecutive = (entry.id..)
                        .take_while(|id| jobs.contains(id) && (*id == entry.id || entry.id >= 20));
                    assert_eq!(consecutive.last(), Some(last));
                    let indices: Vec<u32> = waiting(held)
                        .iter()
                        .filter(same)
                        .filter_map(|of| Some(of.spec.task?.index))
                        .collect();
                    assert_eq!(line.tasks(), radrm_protocol::array::ranges(&indices));
                }
            }
        }
    }
}
