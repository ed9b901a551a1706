//! Who holds the memory, by line of the program's own code.

use super::frames::FrameLabel;
use super::table::{StackRow, StackTable, tables};
use radrm_profile::Bytes;
use radrm_profile::model::Profile;
use serde::Serialize;
use std::collections::BTreeMap;

/// Sites that the JSON report lists of each process and GPU.
const LISTED: usize = 50;

/// Who holds a process's memory on one GPU, by line.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StacksSummary {
    /// The process.
    pub pid: u32,
    /// The GPU.
    pub gpu: u8,
    /// Its device total at the peak: the sum of `sites`, those that are not listed included.
    pub peak_bytes: Bytes,
    /// Largest at the peak first.
    pub sites: Vec<SiteSummary>,
    /// Sites that are not listed.
    pub sites_not_listed: u64,
    /// Requests that were refused, by where they were made, most first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<RefusedSite>,
    /// Stacks without a place of their own, or that could not be read.
    pub stacks_not_kept: u64,
    /// True if threads made changes out of turn: figures at the peak may be off by these.
    pub is_approximate: bool,
}

/// Memory that was asked for in one line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SiteSummary {
    /// The innermost frame of the program's own code.
    pub site: String,
    /// Held at the peak.
    pub peak_bytes: Bytes,
    /// Held at the end, or when it was last read.
    pub held_bytes: Bytes,
    /// Allocations.
    pub allocations: u64,
    /// The stack that held most of it at the peak, outermost first.
    pub stack: Vec<String>,
}

/// Requests that were refused in one line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RefusedSite {
    /// As in [`SiteSummary`].
    pub site: String,
    /// How many.
    pub requests: u64,
    /// The largest of them.
    pub largest_bytes: Bytes,
    /// The stack of most of them, outermost first.
    pub stack: Vec<String>,
}

/// The lines of one process and GPU.
#[derive(Clone, Debug, Default)]
pub struct Lines {
    /// Largest at the peak first; last those that held something at other moments only.
    pub sites: Vec<SiteSummary>,
    /// Of each row of the table the number of its site.
    pub of_row: Vec<Option<usize>>,
}

impl Lines {
    /// The lines of a table.
    pub fn of(table: &StackTable<'_>) -> Self {
        let mut order: Vec<(usize, &StackRow)> = table.rows.iter().enumerate().collect();
        // Largest first: the first stack of a site is the one that held most.
        order.sort_by(|(_, a), (_, b)| b.at_peak.cmp(&a.at_peak).then_with(|| a.frames.cmp(&b.frames)));
        let mut known = BTreeMap::<String, (SiteSummary, Vec<usize>)>::new();
        for (at, row) in order {
            let was_held = || table.moments.iter().any(|moment| !moment.held[at].is_zero());
            if row.at_peak.is_zero() && row.at_end.is_zero() && !was_held() {
                continue;
            }
            let site = site_of(&row.frames);
            let (entry, rows) = known.entry(site.clone()).or_insert_with(|| {
                let stack = row.frames.iter().map(ToString::to_string).collect();
                let (peak_bytes, held_bytes) = (Bytes::ZERO, Bytes::ZERO);
                (SiteSummary { site, peak_bytes, held_bytes, allocations: 0, stack }, Vec::new())
            });
            entry.peak_bytes = Bytes(entry.peak_bytes.0.saturating_add(row.at_peak.0));
            entry.held_bytes = Bytes(entry.held_bytes.0.saturating_add(row.at_end.0));
            entry.allocations = entry.allocations.saturating_add(row.allocations);
            rows.push(at);
        }
        let mut sites: Vec<(SiteSummary, Vec<usize>)> = known.into_values().collect();
        sites.sort_by(|(a, _), (b, _)| {
            b.peak_bytes
                .cmp(&a.peak_bytes)
                .then_with(|| b.held_bytes.cmp(&a.held_bytes))
                .then_with(|| a.site.cmp(&b.site))
        });
        let mut lines = Self { sites: Vec::new(), of_row: vec![None; table.rows.len()] };
        for (site, rows) in sites {
            for row in rows {
                lines.of_row[row] = Some(lines.sites.len());
            }
            lines.sites.push(site);
        }
        lines
    }
}

/// Who holds the memory of each process and GPU, by line.
pub(in crate::model) fn summaries(profile: &Profile) -> Vec<StacksSummary> {
    tables(profile, false).iter().map(summary).collect()
}

fn summary(table: &StackTable<'_>) -> StacksSummary {
    let mut sites = Lines::of(table).sites;
    sites.retain(|site| !site.peak_bytes.is_zero() || !site.held_bytes.is_zero());
    let mut refused = BTreeMap::<String, RefusedSite>::new();
    let mut order: Vec<&StackRow> = table.rows.iter().filter(|row| row.refused > 0).collect();
    order.sort_by_key(|row| std::cmp::Reverse(row.refused));
    for row in order {
        let site = site_of(&row.frames);
        let entry = refused.entry(site.clone()).or_insert_with(|| RefusedSite {
            site,
            requests: 0,
            largest_bytes: Bytes::ZERO,
            stack: row.frames.iter().map(ToString::to_string).collect(),
        });
        entry.requests = entry.requests.saturating_add(row.refused);
        entry.largest_bytes = entry.largest_bytes.max(row.refused_largest);
    }
    let mut refused: Vec<RefusedSite> = refused.into_values().collect();
    refused.sort_by(|a, b| b.requests.cmp(&a.requests).then_with(|| a.site.cmp(&b.site)));
    let sites_not_listed = sites.len().saturating_sub(LISTED) as u64;
    sites.truncate(LISTED);
    refused.truncate(LISTED);
    let stacks = table.process.stacks.as_ref();
    StacksSummary {
        pid: table.pid(),
        gpu: table.account.gpu.0,
        peak_bytes: table.account.peak,
        sites,
        sites_not_listed,
        refused,
        stacks_not_kept: stacks.map_or(0, |stacks| stacks.full.saturating_add(stacks.unread)),
        is_approximate: stacks.is_some_and(|stacks| stacks.unordered > 0),
    }
}

/// The frame to look at first: the innermost of the program's own code, else the innermost.
pub(crate) fn site_of(frames: &[FrameLabel]) -> String {
    let own = frames.iter().rev().find(|frame| frame.is_own_code());
    own.or(frames.last()).map_or_else(|| "[other stacks]".to_owned(), ToString::to_string)
}
