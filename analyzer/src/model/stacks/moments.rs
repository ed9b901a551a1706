//! Memory of each stack at the recorded intermediate moments.

use super::memory::Memory;
use super::table::Rows;
use radrm_profile::model::{Account, Process, StackMoment};
use radrm_profile::{Bytes, Nanos};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Memory at one moment, by stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moment {
    /// The moment.
    pub t: Nanos,
    /// Device total: the sum of `held`.
    pub total: Bytes,
    /// True if nothing higher had been held until then; else it is the moment at which the recorder looked.
    pub is_peak: bool,
    /// By row of the table.
    pub held: Vec<Bytes>,
}

/// Moments that are read of a process and GPU.
const MOMENTS: usize = 256;

/// Figures of moments that are read of a process and GPU: a damaged profile claims any number.
const FIGURES: usize = 1 << 21;

/// The moments that are recorded of a GPU. Each record has only what changed since the one before.
pub(super) fn moments(
    process: &Process,
    account: &Account,
    of_site: &HashMap<u64, usize>,
    rows: &mut Rows,
    until: Option<Nanos>,
) -> Vec<Moment> {
    let records: Vec<_> = process.stack_moments.iter().filter(|record| record.gpu == account.gpu).collect();
    let last = until.map(|t| records.iter().rposition(|record| record.t <= t).into_iter().collect());
    let chosen =
        last.unwrap_or_else(|| chosen(&records, MOMENTS.min(FIGURES / rows.list.len().max(1)).max(1)));
    let mut now = HashMap::<u64, Bytes>::new();
    let mut moments = Vec::new();
    for (number, record) in records.iter().enumerate() {
        now.extend(record.changed.iter().copied());
        if !chosen.contains(&number) {
            continue;
        }
        let (held, total) = rows.held(Memory::Device, &now, of_site, record.total, &record.kinds);
        moments.push(Moment { t: record.t, total, is_peak: record.is_peak, held });
    }
    moments.sort_by_key(|moment| moment.t);
    moments
}

/// Numbers of at most `limit` records: of each part of the time the one in which most was held.
fn chosen(records: &[&StackMoment], limit: usize) -> BTreeSet<usize> {
    let end = records.iter().map(|record| record.t.0).max().unwrap_or(0);
    let part = |record: &StackMoment| u128::from(record.t.0) * limit as u128 / (u128::from(end) + 1);
    let mut best = BTreeMap::<u128, (Bytes, usize)>::new();
    for (number, record) in records.iter().enumerate() {
        let here = (record.total, number);
        let best =
            best.entry(if records.len() > limit { part(record) } else { number as u128 }).or_insert(here);
        *best = here.max(*best);
    }
    best.into_values().map(|(_, number)| number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_moments_the_highest_of_each_part_of_the_time_stays() {
        let moment =
            |t: u64| StackMoment { t: Nanos(t), total: Bytes(t * 7919 % 1009), ..StackMoment::default() };
        let records: Vec<StackMoment> = (0..5000).map(moment).collect();
        let records: Vec<&StackMoment> = records.iter().collect();
        let chosen = chosen(&records, 100);
        assert_eq!(chosen.len(), 100);
        let highest = records.iter().map(|record| record.total).max();
        assert_eq!(chosen.iter().map(|at| records[*at].total).max(), highest);
    }
}
