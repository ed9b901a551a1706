//! The stacks of one process on one GPU, each with all that is known of it.

use super::fold;
use super::frames::{FrameLabel, labels};
use radrm_profile::model::{
    Account, Kind, KindAccount, Process, Profile, Site, StackFrame, StackMoment, Stacks,
};
use radrm_profile::{Bytes, Nanos};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The stacks of one process on one GPU.
#[derive(Clone, Debug)]
pub struct StackTable<'a> {
    /// The process.
    pub process: &'a Process,
    /// Its account on the GPU.
    pub account: &'a Account,
    /// Each stack once. `at_peak` and `at_end` add up to the account's totals, to the byte.
    pub rows: Vec<StackRow>,
    /// Moments at which it was also recorded what each stack held, by time.
    pub moments: Vec<Moment>,
    /// What is held at the end through allocators that keep what was given back, by the owner of the allocator.
    pub cached: BTreeMap<&'static str, Bytes>,
}

/// A stack and what was asked for from it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StackRow {
    /// Outermost first.
    pub frames: Vec<FrameLabel>,
    /// Held at the peak of the GPU's device total in the process.
    pub at_peak: Bytes,
    /// Held at the process's end, or when it was last read.
    pub at_end: Bytes,
    /// Allocations of device memory.
    pub allocations: u64,
    /// Requests that were refused.
    pub refused: u64,
    /// The largest of those.
    pub refused_largest: Bytes,
}

/// What was held at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moment {
    /// When.
    pub t: Nanos,
    /// Device total: the sum of `held`.
    pub total: Bytes,
    /// True if nothing higher had been held until then; else it is the moment at which the recorder looked.
    pub is_peak: bool,
    /// By row of the table.
    pub held: Vec<Bytes>,
}

impl StackTable<'_> {
    /// The process's id.
    pub fn pid(&self) -> u32 {
        self.process.identity.pid
    }

    /// Its program, without directories.
    pub fn program(&self) -> &str {
        self.process.identity.exe.rsplit('/').next().unwrap_or_default()
    }
}

/// The stacks of a profile, of each process and GPU. `all_frames`: also frames of allocators, of the CUDA runtime and of
/// interpreters.
pub(crate) fn tables(profile: &Profile, all_frames: bool) -> Vec<StackTable<'_>> {
    let with_stacks =
        profile.processes.iter().filter_map(|process| Some((process, process.stacks.as_ref()?)));
    let tables = with_stacks.flat_map(|(process, stacks)| {
        process.state.accounts.iter().map(move |account| table(process, stacks, account, all_frames))
    });
    tables.filter(|table| !table.rows.is_empty()).collect()
}

fn table<'a>(
    process: &'a Process,
    stacks: &Stacks,
    account: &'a Account,
    all_frames: bool,
) -> StackTable<'a> {
    let mut rows = Rows::default();
    let mut of_site = HashMap::new();
    let mut cached = BTreeMap::<&'static str, Bytes>::new();
    for site in stacks.sites.iter().filter(|site| site.gpu == account.gpu) {
        let mut frames = labels(stacks, site, all_frames);
        frames.reverse();
        let at = rows.at(frames);
        let row = &mut rows.list[at];
        row.refused = row.refused.saturating_add(site.refused);
        row.refused_largest = row.refused_largest.max(site.refused_size);
        if !site.is_in_total() {
            continue;
        }
        row.at_peak = sum(row.at_peak, site.at_peak);
        row.at_end = sum(row.at_end, site.held);
        row.allocations = row.allocations.saturating_add(site.allocations);
        of_site.insert(site.id(), at);
        if let Some(owner) = cache(stacks, site).filter(|_| !site.held.is_zero()) {
            let bytes = cached.entry(owner).or_default();
            *bytes = sum(*bytes, site.held);
        }
    }
    let listed = |of: fn(&StackRow) -> Bytes| rows.list.iter().map(of).fold(Bytes::ZERO, sum);
    let (at_peak, at_end) = (listed(|row| row.at_peak), listed(|row| row.at_end));
    let kinds = |of: fn(&KindAccount) -> Bytes| account.kinds.each_ref().map(of);
    for (name, bytes) in rest(account.peak, at_peak, &kinds(|kind| kind.at_peak)) {
        let at = rows.at(vec![FrameLabel::note(name)]);
        rows.list[at].at_peak = bytes;
    }
    for (name, bytes) in rest(account.now, at_end, &kinds(|kind| kind.now)) {
        let at = rows.at(vec![FrameLabel::note(name)]);
        rows.list[at].at_end = bytes;
    }
    let moments = moments(process, account, &of_site, &mut rows);
    let used = |row: &StackRow| row.refused > 0 || !row.at_peak.is_zero() || !row.at_end.is_zero();
    // What was held in between only matters where such moments are known.
    let keep: Vec<bool> = (0..rows.list.len())
        .map(|at| used(&rows.list[at]) || moments.iter().any(|moment| !moment.held[at].is_zero()))
        .collect();
    let kept = |at: usize| keep.get(at).copied().unwrap_or(false);
    let only =
        |held: Vec<Bytes>| held.into_iter().enumerate().filter(|(at, _)| kept(*at)).map(|(_, b)| b).collect();
    let moments = moments.into_iter().map(|moment| Moment { held: only(moment.held), ..moment }).collect();
    let rows = rows.list.into_iter().enumerate().filter(|(at, _)| kept(*at)).map(|(_, row)| row).collect();
    StackTable { process, account, rows, moments, cached }
}

/// Stacks in the order in which they were met, each once.
#[derive(Default)]
struct Rows {
    list: Vec<StackRow>,
    known: HashMap<Vec<FrameLabel>, usize>,
}

impl Rows {
    fn at(&mut self, frames: Vec<FrameLabel>) -> usize {
        *self.known.entry(frames).or_insert_with_key(|frames| {
            self.list.push(StackRow { frames: frames.clone(), ..StackRow::default() });
            self.list.len() - 1
        })
    }
}

/// What the device total has beyond what stacks held: what pools hold beyond what they handed out, and graphs, are amounts
/// that the driver reports; no one asked for them.
fn rest(total: Bytes, listed: Bytes, kinds: &[Bytes]) -> Vec<(&'static str, Bytes)> {
    let of = |kind: Kind| kinds.get(kind.index()).map_or(0, |bytes| bytes.0);
    let mut rest = total.0.saturating_sub(listed.0);
    let pools = of(Kind::PoolReserved).saturating_sub(of(Kind::PoolUsed)).min(rest);
    rest -= pools;
    let graphs = of(Kind::Graph).min(rest);
    rest -= graphs;
    let parts = [
        ("[pools: reserved, not handed out]", pools),
        ("[graphs: reserved by the driver]", graphs),
        ("[not attributed]", rest),
    ];
    parts.into_iter().filter(|part| part.1 > 0).map(|(name, bytes)| (name, Bytes(bytes))).collect()
}

/// Moments that are read of a process and GPU.
const MOMENTS: usize = 256;

/// Figures of moments that are read of a process and GPU: a damaged profile claims any number.
const FIGURES: usize = 1 << 21;

/// The moments that are recorded of a GPU. Each record has only what changed since the one before.
fn moments(
    process: &Process,
    account: &Account,
    of_site: &HashMap<u64, usize>,
    rows: &mut Rows,
) -> Vec<Moment> {
    let records: Vec<_> = process.stack_moments.iter().filter(|record| record.gpu == account.gpu).collect();
    let chosen = chosen(&records, MOMENTS.min(FIGURES / rows.list.len().max(1)).max(1));
    let mut now = HashMap::<u64, Bytes>::new();
    let mut moments = Vec::new();
    for (number, record) in records.iter().enumerate() {
        now.extend(record.changed.iter().copied());
        if !chosen.contains(&number) {
            continue;
        }
        let mut held = vec![Bytes::ZERO; rows.list.len()];
        for (site, bytes) in &now {
            if let Some(held) = of_site.get(site).and_then(|at| held.get_mut(*at)) {
                *held = sum(*held, *bytes);
            }
        }
        let listed = held.iter().copied().fold(Bytes::ZERO, sum);
        for (name, bytes) in rest(record.total, listed, &record.kinds) {
            let at = rows.at(vec![FrameLabel::note(name)]);
            held.resize(rows.list.len(), Bytes::ZERO);
            held[at] = bytes;
        }
        let total = held.iter().copied().fold(Bytes::ZERO, sum);
        moments.push(Moment { t: record.t, total, is_peak: record.is_peak, held });
    }
    for moment in &mut moments {
        moment.held.resize(rows.list.len(), Bytes::ZERO);
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

/// Whose allocator keeps what was given back from a site, if one does.
fn cache(stacks: &Stacks, site: &Site) -> Option<&'static str> {
    site.frames.iter().find_map(|frame| {
        let StackFrame::Native { module, offset } = frame else { return None };
        let symbols = stacks.symbols.get(&(*module, *offset))?;
        symbols.iter().find_map(|symbol| fold::cache(&symbol.function))
    })
}

fn sum(a: Bytes, b: Bytes) -> Bytes {
    Bytes(a.0.saturating_add(b.0))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use radrm_profile::model::{GpuIndex, Job, StackCode};

    fn site(kind: Kind, code: u32, at_peak: u64, held: u64) -> Site {
        Site {
            kind: kind as u8,
            frames: vec![StackFrame::Code { code, line: 1, is_entry: true }],
            held: Bytes(held),
            at_peak: Bytes(at_peak),
            allocations: 1,
            ..Site::default()
        }
    }

    /// A pool that holds 300 bytes of which 200 are handed out, and a block of 500 that is freed after the peak.
    pub(crate) fn profile() -> Profile {
        let code = |name: &str| StackCode { file: "/home/u/a.py".into(), name: name.into() };
        let sites = vec![site(Kind::Device, 0, 500, 0), site(Kind::PoolUsed, 1, 200, 150)];
        let mut account = Account {
            gpu: GpuIndex(0),
            peak: Bytes(800),
            peak_at: Nanos(20),
            now: Bytes(300),
            ..Account::default()
        };
        account.kinds[Kind::Device.index()].at_peak = Bytes(500);
        for (kind, at_peak, now) in [(Kind::PoolReserved, 300, 300), (Kind::PoolUsed, 200, 150)] {
            account.kinds[kind.index()].at_peak = Bytes(at_peak);
            account.kinds[kind.index()].now = Bytes(now);
        }
        let moment = |t, total, pool, is_peak, changed: &[(usize, u64)]| {
            let mut kinds = [Bytes::ZERO; radrm_profile::model::KIND_COUNT];
            kinds[Kind::PoolReserved.index()] = Bytes(pool);
            kinds[Kind::PoolUsed.index()] = Bytes(changed.iter().find(|c| c.0 == 1).map_or(0, |c| c.1));
            StackMoment {
                t: Nanos(t),
                total: Bytes(total),
                kinds,
                is_peak,
                changed: changed.iter().map(|(at, bytes)| (sites[*at].id(), Bytes(*bytes))).collect(),
                ..StackMoment::default()
            }
        };
        let stack_moments =
            vec![moment(10, 500, 0, true, &[(0, 500)]), moment(20, 800, 300, true, &[(1, 200)])];
        let mut process = Process { stack_moments, ..Process::default() };
        process.stacks = Some(Stacks { sites, codes: vec![code("load"), code("step")], ..Stacks::default() });
        process.state.accounts = vec![account];
        process.state.ended = Some(Nanos(30));
        let mut profile = Profile::new(Job::default());
        profile.processes = vec![process];
        profile
    }

    #[test]
    fn every_moment_adds_up_to_its_total() {
        let profile = profile();
        let tables = tables(&profile, false);
        let [table] = &tables[..] else { panic!("{tables:?}") };
        let total = |of: fn(&StackRow) -> Bytes| table.rows.iter().map(|row| of(row).0).sum::<u64>();
        assert_eq!((total(|row| row.at_peak), total(|row| row.at_end)), (800, 300));
        let moments: Vec<_> = table
            .moments
            .iter()
            .map(|moment| (moment.total.0, moment.held.iter().map(|bytes| bytes.0).sum::<u64>()))
            .collect();
        assert_eq!(moments, [(500, 500), (800, 800)]);
        let last: Vec<_> = table
            .rows
            .iter()
            .zip(&table.moments[1].held)
            .map(|(row, bytes)| (row.frames[0].function.as_str(), bytes.0))
            .collect();
        assert_eq!(last, [("load", 500), ("step", 200), ("[pools: reserved, not handed out]", 100)]);
    }

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
