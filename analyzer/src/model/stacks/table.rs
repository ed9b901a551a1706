//! The stacks of one process on one GPU, each with all that is known of it.

use super::fold;
use super::frames::{FrameLabel, labels};
use super::memory::Memory;
use super::moments::{Moment, moments};
use radrm_profile::model::{
    Account, KIND_COUNT, Kind, KindAccount, Process, ProcessKey, Profile, Site, StackFrame, Stacks,
};
use radrm_profile::{Bytes, Nanos};
use std::collections::{BTreeMap, HashMap};

/// The stacks of one process on one GPU.
#[derive(Clone, Debug)]
pub struct StackTable<'a> {
    /// The process.
    pub process: &'a Process,
    /// Its account on the GPU.
    pub account: &'a Account,
    /// Kind of memory that the table describes.
    pub memory: Memory,
    /// Each stack once. `at_peak` and `at_end` add up to the account's figures of this memory, to the byte.
    pub rows: Vec<StackRow>,
    /// Moments at which it was also recorded what each stack held, by time; of device memory only.
    pub moments: Vec<Moment>,
    /// Refused requests that were written down, by time.
    pub refusals: Vec<Refusal>,
    /// Memory still cached at the end by allocators that keep freed memory, by the owner of the allocator.
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

/// A refused request, and what was held at that moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Its number among those of the profile, by time, from 1.
    pub number: usize,
    /// Time of the refusal.
    pub t: Nanos,
    /// Number of the kind of memory.
    pub kind: u8,
    /// Size asked for.
    pub size: Bytes,
    /// The row of the stack that asked.
    pub row: usize,
    /// Memory held in all: the sum of `held`.
    pub total: Bytes,
    /// By row of the table.
    pub held: Vec<Bytes>,
}

impl StackTable<'_> {
    /// Memory of all stacks at the peak of the device total.
    pub fn peak(&self) -> Bytes {
        self.memory.total(self.account.peak, &self.account.kinds.each_ref().map(|kind| kind.at_peak))
    }

    /// The process's id.
    pub fn pid(&self) -> u32 {
        self.process.identity.pid
    }

    /// Its program, without directories.
    pub fn program(&self) -> &str {
        self.process.identity.exe.rsplit('/').next().unwrap_or_default()
    }
}

/// The stacks of a profile's device memory, of each process and GPU. `all_frames`: also frames of allocators, of the CUDA
/// runtime and of interpreters.
pub(crate) fn tables(profile: &Profile, all_frames: bool) -> Vec<StackTable<'_>> {
    tables_of(profile, Memory::Device, all_frames)
}

/// The same of another memory.
pub(crate) fn tables_of(profile: &Profile, memory: Memory, all_frames: bool) -> Vec<StackTable<'_>> {
    make(profile, memory, all_frames, None)
}

/// The stacks of device memory with one moment only: the last one up to `t`.
pub(super) fn tables_at(profile: &Profile, all_frames: bool, t: Nanos) -> Vec<StackTable<'_>> {
    make(profile, Memory::Device, all_frames, Some(t))
}

fn make(profile: &Profile, memory: Memory, all_frames: bool, at: Option<Nanos>) -> Vec<StackTable<'_>> {
    let numbers = refusal_numbers(profile);
    let with_stacks =
        profile.processes.iter().filter_map(|process| Some((process, process.stacks.as_ref()?)));
    let tables = with_stacks.flat_map(|(process, stacks)| {
        let accounts = process.state.accounts.iter();
        accounts.map(|account| Making { process, stacks, account, memory, all_frames, at }.table(&numbers))
    });
    tables.filter(|table| !table.rows.is_empty()).collect()
}

/// Numbers of refused requests by process and place in its list.
type Numbers = HashMap<(ProcessKey, usize), usize>;

fn refusal_numbers(profile: &Profile) -> Numbers {
    let all = profile.processes.iter().enumerate().flat_map(|(process, of)| {
        of.stack_refusals.iter().enumerate().map(move |(at, refusal)| (refusal.t, process, of.key, at))
    });
    let mut all: Vec<_> = all.collect();
    all.sort_by_key(|(t, process, _, at)| (*t, *process, *at));
    all.into_iter().enumerate().map(|(number, (_, _, key, at))| ((key, at), number + 1)).collect()
}

/// Inputs of a table.
#[derive(Clone, Copy)]
struct Making<'a> {
    process: &'a Process,
    stacks: &'a Stacks,
    account: &'a Account,
    memory: Memory,
    all_frames: bool,
    /// Up to when the only moment is wanted.
    at: Option<Nanos>,
}

impl<'a> Making<'a> {
    fn table(self, numbers: &Numbers) -> StackTable<'a> {
        let Self { process, stacks, account, memory, all_frames, at: until } = self;
        let mut rows = Rows::default();
        let (mut of_site, mut asked) = (HashMap::new(), HashMap::new());
        let mut cached = BTreeMap::<&'static str, Bytes>::new();
        for site in stacks.sites.iter().filter(|site| site.gpu == account.gpu) {
            let is_held = memory.has(site);
            if !is_held && site.refused == 0 {
                continue;
            }
            let mut frames = labels(stacks, site, all_frames);
            frames.reverse();
            let at = rows.at(frames);
            let row = &mut rows.list[at];
            if site.refused > 0 {
                asked.insert(site.id(), at);
            }
            // Those of all kinds stand with the device memory.
            if is_held || memory == Memory::Device {
                row.refused = row.refused.saturating_add(site.refused);
                row.refused_largest = row.refused_largest.max(site.refused_size);
            }
            if !is_held {
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
        let kinds = |of: fn(&KindAccount) -> Bytes| account.kinds.each_ref().map(of);
        for at in rows.add_rest(memory, account.peak, &kinds(|kind| kind.at_peak), |row| row.at_peak) {
            rows.list[at.0].at_peak = at.1;
        }
        for at in rows.add_rest(memory, account.now, &kinds(|kind| kind.now), |row| row.at_end) {
            rows.list[at.0].at_end = at.1;
        }
        let mut moments = match memory {
            Memory::Device => moments(process, account, &of_site, &mut rows, until),
            _ => Vec::new(),
        };
        let mut refusals = self.refusals(numbers, &of_site, &asked, &mut rows);
        let all = rows.list.len();
        let held = moments.iter_mut().map(|moment| &mut moment.held);
        let mut held: Vec<&mut Vec<Bytes>> =
            held.chain(refusals.iter_mut().map(|refusal| &mut refusal.held)).collect();
        held.iter_mut().for_each(|held| held.resize(all, Bytes::ZERO));
        // What was held in between only matters where such moments are known.
        let is_used = |at: usize, row: &StackRow| {
            row.refused > 0
                || !row.at_peak.is_zero()
                || !row.at_end.is_zero()
                || held.iter().any(|held| !held[at].is_zero())
        };
        let is_asked = |at: usize| asked.values().any(|row| *row == at);
        let keep: Vec<bool> = rows.list.iter().enumerate().map(|(at, row)| is_used(at, row)).collect();
        let has_any = keep.contains(&true);
        let keep: Vec<bool> = (0..all).map(|at| keep[at] || has_any && is_asked(at)).collect();
        for held in held {
            let mut keep = keep.iter();
            held.retain(|_| keep.next().copied().unwrap_or(false));
        }
        for refusal in &mut refusals {
            refusal.row = keep.iter().take(refusal.row).filter(|keep| **keep).count();
        }
        let kept = rows.list.into_iter().zip(&keep).filter(|(_, keep)| **keep);
        let rows = kept.map(|(row, _)| row).collect();
        StackTable { process, account, memory, rows, moments, refusals, cached }
    }

    fn refusals(
        self,
        numbers: &Numbers,
        of_site: &HashMap<u64, usize>,
        asked: &HashMap<u64, usize>,
        rows: &mut Rows,
    ) -> Vec<Refusal> {
        let all = self.process.stack_refusals.iter().enumerate();
        let mut refusals: Vec<Refusal> = all
            .filter(|(_, record)| record.gpu == self.account.gpu)
            .filter_map(|(at, record)| {
                let row = *asked.get(&record.site)?;
                let held = record.held.iter().copied().collect();
                let (held, total) = rows.held(self.memory, &held, of_site, record.total, &record.kinds);
                let number = *numbers.get(&(self.process.key, at))?;
                let (t, kind, size) = (record.t, record.kind, record.size);
                Some(Refusal { number, t, kind, size, row, total, held })
            })
            .collect();
        refusals.sort_by_key(|refusal| refusal.number);
        refusals
    }
}

/// Stacks in the order in which they were met, each once.
#[derive(Default)]
pub(super) struct Rows {
    pub(super) list: Vec<StackRow>,
    known: HashMap<Vec<FrameLabel>, usize>,
}

impl Rows {
    fn at(&mut self, frames: Vec<FrameLabel>) -> usize {
        *self.known.entry(frames).or_insert_with_key(|frames| {
            self.list.push(StackRow { frames: frames.clone(), ..StackRow::default() });
            self.list.len() - 1
        })
    }

    /// Adds rows for what a total has beyond what rows hold; gives them with what they hold.
    fn add_rest(
        &mut self,
        memory: Memory,
        total: Bytes,
        kinds: &[Bytes; KIND_COUNT],
        of: fn(&StackRow) -> Bytes,
    ) -> Vec<(usize, Bytes)> {
        let listed = self.list.iter().map(of).fold(Bytes::ZERO, sum);
        let rest = rest(memory, total, listed, kinds).into_iter();
        rest.map(|(name, bytes)| (self.at(vec![FrameLabel::note(name)]), bytes)).collect()
    }

    /// Bytes of each row, from the bytes of sites, and their sum.
    /// Adds rows for memory of the total that no site holds.
    pub(super) fn held(
        &mut self,
        memory: Memory,
        sites: &HashMap<u64, Bytes>,
        of_site: &HashMap<u64, usize>,
        total: Bytes,
        kinds: &[Bytes; KIND_COUNT],
    ) -> (Vec<Bytes>, Bytes) {
        let mut held = vec![Bytes::ZERO; self.list.len()];
        for (site, bytes) in sites {
            if let Some(held) = of_site.get(site).and_then(|at| held.get_mut(*at)) {
                *held = sum(*held, *bytes);
            }
        }
        let listed = held.iter().copied().fold(Bytes::ZERO, sum);
        for (name, bytes) in rest(memory, total, listed, kinds) {
            let at = self.at(vec![FrameLabel::note(name)]);
            held.resize(self.list.len(), Bytes::ZERO);
            held[at] = bytes;
        }
        let total = held.iter().copied().fold(Bytes::ZERO, sum);
        (held, total)
    }
}

/// Parts of a memory's total that no stack holds.
/// The driver reports the amount that pools hold beyond what they handed out, and no line requested it. The same goes
/// for the memory that graphs hold after a trim.
fn rest(
    memory: Memory,
    device: Bytes,
    listed: Bytes,
    kinds: &[Bytes; KIND_COUNT],
) -> Vec<(&'static str, Bytes)> {
    let is_device = memory == Memory::Device;
    let of = |kind: Kind| if is_device { kinds[kind.index()].0 } else { 0 };
    let mut rest = memory.total(device, kinds).0.saturating_sub(listed.0);
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

/// Owner of the caching allocator that a site's memory was allocated through, if any.
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
    use radrm_profile::model::{GpuIndex, Job, StackCode, StackMoment, StackRefusal};

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
            let mut kinds = [Bytes::ZERO; KIND_COUNT];
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
    fn a_refused_request_has_the_line_that_asked_and_what_was_held_then() {
        let mut profile = profile();
        let process = &mut profile.processes[0];
        let stacks = process.stacks.as_mut().unwrap();
        let asked = Site { refused: 2, ..site(Kind::Device, 2, 0, 0) };
        let [load, step, asking] = [&stacks.sites[0], &stacks.sites[1], &asked].map(Site::id);
        stacks.sites.push(asked);
        stacks.codes.push(StackCode { file: "/home/u/a.py".into(), name: "ask".into() });
        let refusal = |t, held: &[(u64, u64)], total, pool, used| {
            let mut kinds = [Bytes::ZERO; KIND_COUNT];
            kinds[Kind::PoolReserved.index()] = Bytes(pool);
            kinds[Kind::PoolUsed.index()] = Bytes(used);
            StackRefusal {
                t: Nanos(t),
                size: Bytes(9000),
                site: asking,
                total: Bytes(total),
                kinds,
                held: held.iter().map(|(site, bytes)| (*site, Bytes(*bytes))).collect(),
                ..StackRefusal::default()
            }
        };
        process.stack_refusals =
            vec![refusal(25, &[(step, 120)], 300, 300, 120), refusal(15, &[(load, 500)], 500, 0, 0)];
        let tables = tables(&profile, false);
        let found: Vec<_> = tables[0]
            .refusals
            .iter()
            .map(|of| {
                let held = tables[0].rows.iter().zip(&of.held).filter(|(_, held)| !held.is_zero());
                let held: Vec<_> = held.map(|(row, held)| (&*row.frames[0].function, held.0)).collect();
                (of.number, of.t.0, of.total.0, &*tables[0].rows[of.row].frames[0].function, held)
            })
            .collect();
        let expected = [
            (1, 15, 500, "ask", vec![("load", 500)]),
            (2, 25, 300, "ask", vec![("step", 120), ("[pools: reserved, not handed out]", 180)]),
        ];
        assert_eq!(found, expected);
        let flames = super::super::flames(&profile, super::super::Held::AtRefusal(2), false);
        assert_eq!((flames.len(), flames[0].total()), (1, Bytes(300)));
        assert!(super::super::flames(&profile, super::super::Held::AtRefusal(3), false).is_empty());
    }

    #[test]
    fn memory_outside_of_the_total_has_sums_of_its_own() {
        let mut profile = profile();
        let process = &mut profile.processes[0];
        let account = &mut process.state.accounts[0];
        account.kinds[Kind::PinnedHost.index()].at_peak = Bytes(70);
        account.kinds[Kind::PinnedHost.index()].now = Bytes(50);
        process.stacks.as_mut().unwrap().sites.push(site(Kind::PinnedHost, 0, 70, 50));
        let total = |memory, of: fn(&StackRow) -> Bytes| {
            let tables = tables_of(&profile, memory, false);
            tables.iter().flat_map(|table| &table.rows).map(|row| of(row).0).sum::<u64>()
        };
        assert_eq!(total(Memory::Device, |row| row.at_peak), 800);
        assert_eq!(total(Memory::PinnedHost, |row| row.at_peak), 70);
        assert_eq!(total(Memory::PinnedHost, |row| row.at_end), 50);
        assert_eq!(total(Memory::Managed, |row| row.at_peak), 0);
        assert_eq!(tables_of(&profile, Memory::PinnedHost, false)[0].peak(), Bytes(70));
    }
}
