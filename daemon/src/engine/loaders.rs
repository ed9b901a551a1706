//! Producers of loaders that jobs share (`radrm.share`): jobs that the daemon itself submits.
//!
//! A user's jobs that name the same loader load from one producer, on this node. It is started with the first of them and
//! cancelled after the last. What is to be done follows from the jobs alone, those in the queue and those on disk, so a
//! daemon that was restarted goes on with it.

use std::collections::{BTreeMap, BTreeSet};

use radrm_protocol::loader::Loader;
use radrm_protocol::spec::Spec;
use radrm_text::output::say;

use super::Engine;
use super::loader_table::{Key, Members, due};
use crate::error::DaemonError;
use crate::store::{self, Entry, Stage};

/// The variable that names a job's loader, to both sides.
pub(super) const VARIABLE: &str = "RADRM_LOADER";

/// So many ended jobs of a user are searched for producers.
const SEARCHED: u32 = 1000;

impl Engine {
    /// Starts producers for jobs that run without theirs, and cancels those that no job needs.
    pub(super) fn tend_loaders(&mut self) {
        let touched: Vec<Key> = self
            .outbox
            .dirty()
            .iter()
            .filter_map(|job| self.jobs.entry(*job))
            .filter_map(|entry| Some((entry.uid, entry.spec.loader.as_ref()?.name.clone())))
            .collect();
        for key in touched {
            self.loaders.due.remove(&key);
            self.loaders.used.insert(key);
        }
        if self.loaders.used.is_empty() {
            return;
        }
        let used = std::mem::take(&mut self.loaders.used);
        for (key, members) in self.members(used) {
            match (members.consumers.is_empty(), members.producer) {
                (true, None) => {
                    self.loaders.due.remove(&key);
                    continue;
                }
                (true, Some(producer)) => self.end_producer(producer),
                (false, Some(_)) => {}
                (false, None) => self.start_producer(&key, &members.consumers),
            }
            self.loaders.used.insert(key);
        }
    }

    fn members(&self, keys: BTreeSet<Key>) -> BTreeMap<Key, Members> {
        let mut found: BTreeMap<Key, Members> =
            keys.into_iter().map(|key| (key, Members::default())).collect();
        for entry in self.jobs.entries().values() {
            let Some(loader) = entry.spec.loader.as_ref().filter(|_| entry.stage != Stage::Ended) else {
                continue;
            };
            let Some(members) = found.get_mut(&(entry.uid, loader.name.clone())) else { continue };
            if loader.is_producer {
                members.producer = Some(entry.id);
            } else if entry.stage >= Stage::Starting {
                members.consumers.push(entry.id);
            }
        }
        found
    }

    fn end_producer(&mut self, job: u64) {
        if self.jobs.entry(job).is_some_and(|entry| !entry.cancelled) {
            self.remark(job, "no job that loads from it runs any more".to_owned());
            self.cancel(job);
        }
    }

    fn start_producer(&mut self, key: &Key, consumers: &[u64]) {
        let declares = |job: &&u64| {
            let loader = self.jobs.entry(**job).and_then(|entry| entry.spec.loader.as_ref());
            loader.is_some_and(|loader| !loader.command.is_empty())
        };
        // Without a command the user runs it.
        let Some(first) = consumers.iter().find(declares).copied() else { return };
        let due = match self.loaders.due.get(key) {
            Some(due) => *due,
            None => {
                let due = self.due(key, consumers);
                self.loaders.due.insert(key.clone(), due);
                due
            }
        };
        if due.is_none_or(|due| due > self.now.at.0) {
            return;
        }
        match self.submit_producer(key, first) {
            Ok(producer) => {
                for job in consumers {
                    self.remark(*job, format!("loads from {}, whose producer is job {producer}", key.1));
                }
            }
            Err(why) => {
                // In the next round again.
                let sentence = format!("the producer of loader {} is not started: {why}", key.1);
                if self.health.issue("loader").is_none() {
                    say(crate::process::NAME, &sentence);
                }
                self.health.report("loader", sentence);
            }
        }
    }

    fn due(&self, (uid, name): &Key, consumers: &[u64]) -> Option<u64> {
        let now = self.now.at.0;
        let began = consumers.iter().filter_map(|job| self.jobs.entry(*job));
        let began: Vec<u64> = began.map(|entry| entry.started_ms.unwrap_or(now)).collect();
        let end = |entry: &Entry| {
            let loader = entry.spec.loader.as_ref().filter(|loader| loader.is_producer)?;
            (entry.uid == *uid && loader.name == *name && entry.stage == Stage::Ended)
                .then(|| (entry.id, (entry.ended_ms.unwrap_or(now), entry.verdict)))
        };
        // Those that are not on disk yet, too.
        let mut ends: BTreeMap<u64, _> = self.jobs.entries().begun().filter_map(end).collect();
        let on_disk = self.outbox.store().ended(Some(*uid), SEARCHED, |entry| end(&entry));
        ends.extend(on_disk.unwrap_or_default().into_iter().flatten());
        due(&began, &ends.into_values().collect::<Vec<_>>(), now)
    }

    /// Submits the producer that a job declares, in its user's name, directory and environment.
    fn submit_producer(&mut self, (_, name): &Key, first: u64) -> Result<u64, DaemonError> {
        let of = self.jobs.entry(first).ok_or(DaemonError::JobGone)?;
        let command = of.spec.loader.as_ref().map(|loader| loader.command.clone()).unwrap_or_default();
        let spec = Spec {
            name: format!("loader {name}").into(),
            command,
            cwd: of.spec.cwd.clone(),
            umask: of.spec.umask,
            loader: Some(Loader { name: name.clone(), is_producer: true, ..Loader::default() }),
            ..Spec::default()
        };
        let environment = self.outbox.store().environment(first).map_err(DaemonError::QueueRead)?;
        let mut entry = Entry {
            uid: of.uid,
            gid: of.gid,
            user: of.user.clone(),
            spec,
            submitted_ms: self.now.at.0,
            ..Entry::default()
        };
        self.resolve_needs(&mut entry);
        entry.bytes = store::bytes(&entry.spec, &environment, entry.needs.as_ref());
        self.reserve_numbers(1)?;
        let insert = |tx: &rusqlite::Transaction<'_>| store::insert(tx, &entry, &store::json(&environment));
        entry.id = self.outbox.write_now(insert).map_err(DaemonError::QueueWrite)?;
        let id = entry.id;
        self.health.resolve("loader");
        self.take_up(
            entry,
            false,
            &[format!("submitted by radrmd for job {first}, which loads from {name}")],
        );
        Ok(id)
    }
}
