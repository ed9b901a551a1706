//! Runs that are jobs of radrmd: what is on disk before a job is submitted, and before it may start.
//!
//! | on disk | then |
//! |---|---|
//! | a tag that no other attempt has | a job with the tag in its name is submitted, held |
//! | the job's number | it is released |
//!
//! A sweep that is killed in between finds the job by its tag. A held job never starts by itself, so one that is found too
//! late has not run.

use rusqlite::{Row, params};

use super::Store;
use crate::error::SweepError;

/// An attempt that is a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Submission {
    /// In the job's name, and in that of no other.
    pub tag: String,
    /// The job's number; `None`: it may not have been submitted.
    pub job: Option<u64>,
    /// Other jobs may have been on its GPU.
    pub shares: bool,
    /// The sweep was interrupted: that the job was cancelled is not a failure.
    pub withdrawn: bool,
}

impl Store {
    /// Records that an attempt at a group is about to be submitted; it is on disk when this returns.
    ///
    /// # Errors
    /// [`SweepError::State`].
    pub fn submit(&mut self, keys: &[String], shares: bool) -> Result<(), SweepError> {
        self.each(keys, |transaction, key| {
            let text =
                "UPDATE runs SET state = 'started', attempt = attempt + 1, tag = lower(hex(randomblob(8))),
                                 job = NULL, shares = ?2, withdrawn = 0
                 WHERE key = ?1";
            transaction.execute(text, params![key, shares]).map(|_| ())
        })
    }

    /// Records the numbers of the jobs of a group, from that of the first on.
    ///
    /// # Errors
    /// [`SweepError::State`].
    pub fn submitted(&mut self, keys: &[String], first: u64) -> Result<(), SweepError> {
        let mut jobs = first..;
        self.each(keys, |transaction, key| {
            let job = jobs.next().map(super::signed);
            transaction.execute("UPDATE runs SET job = ?2 WHERE key = ?1", params![key, job]).map(|_| ())
        })
    }

    /// Records that jobs are about to be cancelled, because the sweep is interrupted.
    ///
    /// # Errors
    /// [`SweepError::State`].
    pub fn withdraw(&mut self, keys: &[String]) -> Result<(), SweepError> {
        self.each(keys, |transaction, key| {
            transaction.execute("UPDATE runs SET withdrawn = 1 WHERE key = ?1", [key]).map(|_| ())
        })
    }
}

/// The job of a row.
pub(super) fn submission(row: &Row<'_>) -> rusqlite::Result<Option<Submission>> {
    let Some(tag) = row.get("tag")? else { return Ok(None) };
    Ok(Some(Submission {
        tag,
        job: row.get::<_, Option<i64>>("job")?.map(i64::unsigned_abs),
        shares: row.get("shares")?,
        withdrawn: row.get("withdrawn")?,
    }))
}
