//! Specification of a job as it is kept: all of it while the job may start, a bounded part afterwards.

use radrm_protocol::spec::Spec;
use rusqlite::{Result, Transaction, params};

use super::{Entry, int, json};

/// Writes what is asked for with a job, to which a dry run has added.
pub(crate) fn put(tx: &Transaction<'_>, job: u64, spec: &Spec) -> Result<()> {
    tx.prepare_cached("UPDATE jobs SET spec = ?2 WHERE id = ?1")?
        .execute(params![int(job), json(spec)])
        .map(|_| ())
}

/// Of a job that is over so many bytes of its command are kept.
const KEPT_COMMAND: usize = 8 << 10;

/// The beginning of a command that is too long to be kept for weeks.
fn beginning(command: &[String]) -> Option<Vec<String>> {
    let mut left = KEPT_COMMAND;
    let mut kept = Vec::new();
    for (at, word) in command.iter().enumerate() {
        if word.len() >= left {
            kept.push(word[..word.floor_char_boundary(left)].to_owned());
            kept.push(format!("... (cut: {} words)", command.len() - at));
            return Some(kept);
        }
        left -= word.len() + 1;
        kept.push(word.clone());
    }
    None
}

/// A job that has ended is not started again: of what its user wrote a bounded part is kept.
pub(super) fn shorten(tx: &Transaction<'_>, entry: &Entry) -> Result<()> {
    tx.prepare_cached("UPDATE jobs SET environment = '[]' WHERE id = ?1")?.execute([int(entry.id)])?;
    let own = beginning(&entry.spec.command);
    let loader = entry.spec.loader.as_ref();
    let producer = loader.and_then(|loader| beginning(&loader.command));
    if own.is_none() && producer.is_none() {
        return Ok(());
    }
    let mut spec = entry.spec.clone();
    if let Some(command) = own {
        spec.command = command;
    }
    if let (Some(command), Some(loader)) = (producer, &mut spec.loader) {
        loader.command = command;
    }
    put(tx, entry.id, &spec)
}
