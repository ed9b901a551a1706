//! A GPU's memory over time by line of the program: what each held at the moments at which that is recorded.

use crate::model::stacks::{Lines, StackTable, site_of};
use crate::view::flame::{micros, number};
use radrm_profile::Bytes;
use std::collections::{BTreeMap, BTreeSet};

/// Lines of a GPU that have a series of their own: those with the highest figures.
pub(super) const LINES: usize = 8;

/// Moments of all GPUs together.
const MOMENTS: usize = 600;

/// Memory by line at one moment, bytes.
type Held<'a> = BTreeMap<&'a str, u64>;

/// Memory by line over time.
#[derive(Debug, Default)]
pub(super) struct LinesOverTime {
    /// Microseconds.
    pub(super) t: Vec<u64>,
    /// Names and what each held, those with the highest figures first.
    pub(super) named: Vec<(String, Vec<Bytes>)>,
    /// All other lines; empty if there are none.
    pub(super) others: Vec<Bytes>,
}

/// Of the GPU with this number, one of so many; `None` where no call stacks are recorded.
pub(super) fn over_time(tables: &[StackTable<'_>], gpu: u8, gpus: usize) -> Option<LinesOverTime> {
    let tables: Vec<_> = tables.iter().filter(|table| table.account.gpu.0 == gpu).collect();
    let sites: Vec<Vec<String>> = tables.iter().map(|table| sites(table)).collect();
    // By time: the number of a process, and what its lines hold from then on.
    let mut changes: Vec<(u64, usize, Held<'_>)> = Vec::new();
    for (process, (table, sites)) in tables.iter().zip(&sites).enumerate() {
        let held = |of: &dyn Fn(usize) -> Bytes| {
            let mut held = Held::new();
            for (row, site) in sites.iter().enumerate() {
                let sum = held.entry(site.as_str()).or_default();
                *sum = sum.saturating_add(number(of(row)));
            }
            held
        };
        let moments = table.moments.iter();
        changes.extend(moments.map(|moment| (micros(moment.t), process, held(&|row| moment.held[row]))));
        let peak_at = micros(table.account.peak_at);
        if !table.account.peak.is_zero() && table.moments.iter().all(|moment| micros(moment.t) != peak_at) {
            changes.push((peak_at, process, held(&|row| table.rows[row].at_peak)));
        }
        if let Some(ended) = table.process.state.ended {
            changes.push((micros(ended), process, Held::new()));
        }
    }
    // Stable: the end of a process comes after what it last held.
    changes.sort_by_key(|change| change.0);
    let mut now: Vec<Held<'_>> = vec![Held::new(); tables.len()];
    let mut steps: Vec<(u64, Held<'_>)> = Vec::new();
    for (t, process, held) in changes {
        now[process] = held;
        let mut sum = Held::new();
        for (site, bytes) in now.iter().flatten().filter(|(_, bytes)| **bytes > 0) {
            let of_site = sum.entry(site).or_default();
            *of_site = u64::saturating_add(*of_site, *bytes);
        }
        match steps.last_mut() {
            Some(last) if last.0 == t => last.1 = sum,
            _ => steps.push((t, sum)),
        }
    }
    let steps = thinned(steps, (MOMENTS / gpus.max(1)).max(LINES));
    let mut highest = Held::new();
    for (site, bytes) in steps.iter().flat_map(|step| &step.1) {
        let known = highest.entry(site).or_default();
        *known = (*known).max(*bytes);
    }
    let mut order: Vec<(&str, u64)> = highest.into_iter().collect();
    order.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    let named: Vec<&str> = order.iter().take(LINES).map(|(site, _)| *site).collect();
    if named.is_empty() {
        return None;
    }
    let own: BTreeSet<&str> = named.iter().copied().collect();
    let of = |site: &str| -> Vec<Bytes> {
        steps.iter().map(|step| Bytes(step.1.get(site).copied().unwrap_or(0))).collect()
    };
    let rest = |step: &(u64, Held<'_>)| {
        let others = step.1.iter().filter(|(site, _)| !own.contains(*site));
        Bytes(others.fold(0, |sum, (_, bytes)| u64::saturating_add(sum, *bytes)))
    };
    Some(LinesOverTime {
        t: steps.iter().map(|step| step.0).collect(),
        others: if order.len() > LINES { steps.iter().map(rest).collect() } else { Vec::new() },
        named: named.into_iter().map(|site| (site.to_owned(), of(site))).collect(),
    })
}

/// The line of each row.
fn sites(table: &StackTable<'_>) -> Vec<String> {
    let lines = Lines::of(table);
    let of = |(row, line): (usize, &Option<usize>)| match line {
        Some(line) => lines.sites[*line].site.clone(),
        None => site_of(&table.rows[row].frames),
    };
    lines.of_row.iter().enumerate().map(of).collect()
}

/// About so many steps: of each part of the time the highest and the last.
fn thinned(steps: Vec<(u64, Held<'_>)>, limit: usize) -> Vec<(u64, Held<'_>)> {
    let end = steps.last().map_or(0, |step| step.0);
    if steps.len() <= limit {
        return steps;
    }
    let parts = (limit / 2).max(1) as u128;
    let part = |step: &(u64, Held<'_>)| u128::from(step.0) * parts / (u128::from(end) + 1);
    let total = |step: &(u64, Held<'_>)| step.1.values().fold(0u64, |sum, bytes| sum.saturating_add(*bytes));
    let mut kept: Vec<(u64, Held<'_>)> = Vec::new();
    for steps in steps.chunk_by(|a, b| part(a) == part(b)) {
        let highest = steps.iter().enumerate().rev().max_by_key(|(_, step)| total(step)).map(|(at, _)| at);
        kept.extend(highest.filter(|at| at + 1 < steps.len()).map(|at| steps[at].clone()));
        kept.extend(steps.last().cloned());
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::stacks::{profile_with_moments, tables};

    #[test]
    fn lines_add_up_to_the_total_of_each_moment() {
        let mut later = profile_with_moments();
        let process = &mut later.processes[0];
        process.stack_moments.iter_mut().for_each(|moment| moment.t.0 *= 1000);
        process.state.accounts[0].peak_at.0 *= 1000;
        process.state.ended = Some(radrm_profile::Nanos(30_000));
        let tables = tables(&later, false);
        let lines = over_time(&tables, 0, 1).unwrap();
        assert_eq!(lines.t, [10, 20, 30]);
        let sums: Vec<u64> =
            (0..3).map(|at| lines.named.iter().map(|(_, values)| values[at].0).sum()).collect();
        assert_eq!(sums, [500, 800, 0]);
        assert_eq!(lines.named[0].0, "load (a.py:1)");
        assert!(over_time(&tables, 1, 1).is_none());
    }

    #[test]
    fn many_moments_keep_the_highest() {
        let steps = (0..5000u64).map(|t| (t, Held::from([("a", if t == 3333 { 9000 } else { t % 10 })])));
        let kept = thinned(steps.collect(), 100);
        assert!(kept.len() <= 100 && kept.is_sorted_by_key(|step| step.0), "{}", kept.len());
        assert!(kept.iter().any(|step| step.1["a"] == 9000));
    }
}
