//! Memory holders, by line.

use super::sections::{Report, more};
use crate::model::{
    HeldSite, JobStacksSummary, OtherMemorySummary, PostmortemSummary, RefusalSummary, RefusedSite,
    StacksSummary,
};
use crate::view::phrases::counted;
use radrm_profile::model::Kind;
use radrm_text::{Table, clean, left, right};

/// Lines that are listed of each process and GPU.
const SHOWN: usize = 8;
/// Lines that are listed where others matter more.
const SHORT: usize = 3;
/// Share of the peak, in percent, from which a line's callers are listed.
const MUCH: f64 = 10.0;
/// Processes and GPUs that are listed.
const PLACES: usize = 4;

/// Line of a refused request and the largest memory holders at that moment, by line, if call stacks were recorded.
pub(super) fn by_line(all: &[StacksSummary], it: &PostmortemSummary, path: Option<&str>) -> Vec<String> {
    let mut lines = Vec::new();
    let Some(of) = all.iter().find(|of| of.pid == it.pid && of.gpu == it.gpu) else { return lines };
    match of.refusals.iter().find(|refusal| is_of(refusal, it)) {
        Some(refusal) => {
            lines.push(asked_at(refusal));
            lines.extend(held_then(refusal, SHOWN));
            let (number, path) = (refusal.number, path.unwrap_or("PROFILE"));
            lines.push(format!("its flame graph: radrm report --stacks=folded --at=refusal:{number} {path}"));
        }
        None => lines.push("what was held by line at that moment is not recorded".into()),
    }
    lines.extend(of.refused.iter().take(SHOWN).map(refused_at));
    lines
}

/// The same in two lines.
pub(crate) fn in_short(all: &[StacksSummary], it: &PostmortemSummary) -> Vec<String> {
    let refusals = all.iter().filter(|of| of.pid == it.pid && of.gpu == it.gpu).flat_map(|of| &of.refusals);
    let Some(refusal) = refusals.into_iter().find(|refusal| is_of(refusal, it)) else { return Vec::new() };
    let asked = format!("  {}", asked_at(refusal));
    let held = held_then(refusal, SHORT).into_iter().map(|line| format!("  {line}"));
    [asked].into_iter().chain(held).collect()
}

/// The line that asked, and how the program came there.
fn asked_at(refusal: &RefusalSummary) -> String {
    let mut line = format!("asked for at {}", refusal.site);
    for caller in refusal.callers.iter().take(SHORT) {
        line.push_str(&format!(", called by {caller}"));
    }
    if refusal.callers.len() > SHORT {
        line.push_str(", ...");
    }
    line
}

fn is_of(refusal: &RefusalSummary, it: &PostmortemSummary) -> bool {
    (refusal.t_ns, refusal.size_bytes) == (it.t_ns, it.size_bytes)
}

fn held_then(refusal: &RefusalSummary, most: usize) -> Vec<String> {
    let line =
        |site: &HeldSite| format!("held then, of {}: {} at {}", refusal.held_bytes, site.bytes, site.site);
    refusal.held.iter().take(most).map(line).collect()
}

/// Requests that were refused at a line.
fn refused_at(refused: &RefusedSite) -> String {
    let requests = counted(refused.requests, "request was", "requests were");
    let first = refused.first_ns.map_or(String::new(), |t| format!(", the first at {t}"));
    format!("{requests} refused at {}, up to {}{first}", refused.site, refused.largest_bytes)
}

impl Report<'_> {
    /// The lines that held most at the peak.
    pub(super) fn stacks(&self, out: &mut String) {
        let all = &self.summary.stacks;
        for of in all.iter().take(PLACES) {
            if !of.sites.is_empty() {
                self.holders(out, of, all.len() > 1);
            }
            for other in &of.other_memory {
                self.other_holders(out, of, other, all.len() > 1);
            }
            for refused in of.refused.iter().take(SHOWN) {
                out.push_str(&format!("  {}\n", clean(&refused_at(refused))));
            }
        }
        more(out, all.len().saturating_sub(PLACES) as u64);
        if let Some(job) = &self.summary.job_stacks {
            self.holders_of_job(out, job);
        }
    }

    /// The lines that held most in all processes together.
    fn holders_of_job(&self, out: &mut String, job: &JobStacksSummary) {
        let columns = vec![right("held"), right("share"), left("line")];
        let mut table = Table::new(columns).within(self.width, 24);
        for site in job.sites.iter().take(SHOWN) {
            let share = site.bytes.0 as f64 / job.held_bytes.0.max(1) as f64 * 100.0;
            table.row(vec![site.bytes.to_string(), format!("{share:.1} %"), clean(&site.site).to_string()]);
        }
        let processes = counted(job.processes, "process", "processes");
        let title =
            format!("memory holders by line, {processes} together at {}: {}", job.t_ns, job.held_bytes);
        self.section(out, &title, table);
        more(out, (job.sites.len().saturating_sub(SHOWN) as u64).saturating_add(job.sites_not_listed));
    }

    /// The lines that held most of a memory that is not a part of the peak.
    fn other_holders(
        &self,
        out: &mut String,
        of: &StacksSummary,
        other: &OtherMemorySummary,
        is_one_of_several: bool,
    ) {
        let label = Kind::ALL.into_iter().find(|kind| kind.key() == other.kind).map_or("", Kind::label);
        let place =
            if is_one_of_several { format!(", pid {}, GPU {}", of.pid, of.gpu) } else { String::new() };
        let columns = vec![right("at the device peak"), right("at end"), left("line")];
        let mut table = Table::new(columns).within(self.width, 24);
        for site in other.sites.iter().take(SHORT) {
            let (peak, end) = (site.peak_bytes.to_string(), site.held_bytes.to_string());
            table.row(vec![peak, end, clean(&site.site).to_string()]);
        }
        self.section(out, &format!("{label} memory by line{place}"), table);
        more(out, (other.sites.len().saturating_sub(SHORT) as u64).saturating_add(other.sites_not_listed));
    }

    fn holders(&self, out: &mut String, of: &StacksSummary, is_one_of_several: bool) {
        let place =
            if is_one_of_several { format!(", pid {}, GPU {}", of.pid, of.gpu) } else { String::new() };
        let mut table = Table::new(vec![right("at peak"), right("share"), right("at end"), left("line")])
            .within(self.width, 24);
        for site in of.sites.iter().take(SHOWN) {
            let share = site.peak_bytes.0 as f64 / of.peak_bytes.0.max(1) as f64 * 100.0;
            table.row(vec![
                site.peak_bytes.to_string(),
                format!("{share:.1} %"),
                site.held_bytes.to_string(),
                clean(&site.site).to_string(),
            ]);
            // Of a helper that asks for much its callers matter.
            let callers = if share < MUCH { &[] } else { &site.callers[..] };
            for caller in callers.iter().take(SHORT) {
                table.row(vec![
                    format!("  {}", caller.peak_bytes),
                    String::new(),
                    caller.held_bytes.to_string(),
                    format!("  from {}", clean(&caller.site)),
                ]);
            }
        }
        self.section(out, &format!("memory holders by line{place}"), table);
        more(out, (of.sites.len().saturating_sub(SHOWN) as u64).saturating_add(of.sites_not_listed));
        if of.stacks_not_kept > 0 {
            let stacks = counted(of.stacks_not_kept, "stack", "stacks");
            out.push_str(&format!("  {stacks} could not be kept: see [other stacks]\n"));
            for (count, reason) in &of.stacks_bypassed {
                out.push_str(&format!("  {count} of them: {reason}\n"));
            }
        }
        if of.is_approximate {
            out.push_str("  threads changed figures at the same time: lines may be off by a few requests\n");
        }
    }
}
