//! Location of memory blocks in a GPU's address space: ranges of blocks with the holes between them.
//! Shown for the moments that are recorded.

use crate::view::flame::{micros, number};
use radrm_profile::model::{BlockMap, BlockRun, KIND_COUNT, Kind, Profile};
use radrm_profile::{Bytes, Nanos};
use radrm_text::clean;
use serde::Serialize;

/// Processes and GPUs that are shown: those that hold most.
const SHOWN: usize = 8;

/// Moments of each at most.
const MOMENTS: usize = 16;

/// Runs in a page, all moments together.
const RUNS: usize = 5_000;

/// A hole of this size or more ends a range: the driver places what does not belong together far apart.
const MIN_GAP: u64 = 1 << 30;

/// A smaller one is what the driver rounds sizes up to.
const MIN_HOLE: u64 = 512;

/// All of a page.
#[derive(Default)]
pub(super) struct Addresses {
    /// For the script.
    pub(super) spaces: Vec<Space>,
    sections: Vec<AddressSection>,
}

/// Of one process on one GPU.
#[derive(Debug, Serialize)]
pub(super) struct Space {
    /// The process's highest device total there, whether it was read or not.
    peak: u64,
    moments: Vec<MomentMap>,
}

/// One recorded moment of the address space.
#[derive(Debug, Serialize)]
struct MomentMap {
    t: u64,
    total: u64,
    /// Kinds of the device total that have no address here, with bytes.
    elsewhere: Vec<(&'static str, u64)>,
    ranges: Vec<Range>,
}

/// Blocks that lie together.
#[derive(Debug, Serialize)]
struct Range {
    address: u64,
    span: u64,
    held: u64,
    blocks: u64,
    holes: u64,
    largest: u64,
    /// For each run the distance from the one before, its span, what of that are holes, blocks, and the number of its
    /// colour.
    runs: Vec<u64>,
}

/// The table below the picture: the moment at which most was held.
pub(super) struct AddressSection {
    gpu: u8,
    /// Number of its space.
    pub(super) space: usize,
    pub(super) title: String,
    pub(super) sentence: String,
    pub(super) rows: Vec<[String; 6]>,
}

impl Addresses {
    pub(super) fn new(profile: &Profile) -> Self {
        let mut of: Vec<Vec<&BlockMap>> = Vec::new();
        for map in &profile.block_maps {
            match of.iter_mut().find(|maps| (maps[0].key, maps[0].gpu) == (map.key, map.gpu)) {
                Some(maps) => maps.push(map),
                None => of.push(vec![map]),
            }
        }
        let highest = |maps: &[&BlockMap]| maps.iter().map(|map| map.total).max().unwrap_or_default();
        of.sort_by_key(|maps| std::cmp::Reverse(highest(maps)));
        of.truncate(SHOWN);
        let room = RUNS / of.len().max(1);
        let is_one = of.iter().all(|maps| maps[0].key == of[0][0].key);
        let mut all = Self::default();
        for maps in of {
            let process = profile.processes.iter().rfind(|process| process.key == maps[0].key);
            let Some(process) = process else { continue };
            let name = process.identity.exe.rsplit('/').next().unwrap_or_default();
            let title = match is_one {
                true => "Address space".to_owned(),
                false => format!("Address space of {} {}", clean(name), process.identity.pid),
            };
            let moments: Vec<MomentMap> = chosen(maps.clone(), room).into_iter().map(moment).collect();
            let peak = process.account(maps[0].gpu).map_or(0, |account| number(account.peak));
            let Some(top) = moments.iter().max_by_key(|moment| moment.total) else { continue };
            all.sections.push(AddressSection {
                gpu: maps[0].gpu.0,
                space: all.spaces.len(),
                title,
                sentence: sentence(top, peak),
                rows: top.ranges.iter().map(row).collect(),
            });
            all.spaces.push(Space { peak, moments });
        }
        all
    }

    /// Takes out what is shown on a GPU.
    pub(super) fn take(&mut self, gpu: u8) -> Vec<AddressSection> {
        self.sections.extract_if(.., |section| section.gpu == gpu).collect()
    }
}

/// Moments that find room, by time: of each part of the recorded ones that with the most.
fn chosen(mut maps: Vec<&BlockMap>, room: usize) -> Vec<&BlockMap> {
    maps.sort_by_key(|map| map.t);
    let most = maps.iter().map(|map| map.runs.len()).max().unwrap_or(1).max(1);
    let parts = (room / most).clamp(1, MOMENTS);
    if maps.len() <= parts {
        return maps;
    }
    let part = |part: usize| {
        let of = &maps[part * maps.len() / parts..(part + 1) * maps.len() / parts];
        of.iter().max_by_key(|map| map.total).copied()
    };
    (0..parts).filter_map(part).collect()
}

fn moment(map: &BlockMap) -> MomentMap {
    let mut with_address = [0u64; KIND_COUNT];
    let mut ranges: Vec<Range> = Vec::new();
    let mut end = 0u64;
    for run in &map.runs {
        if let Some(sum) = with_address.get_mut(usize::from(run.kind)) {
            *sum = sum.saturating_add(run.held.0);
        }
        let gap = run.address.saturating_sub(end);
        match ranges.last_mut().filter(|_| gap < MIN_GAP) {
            Some(range) => range.add(run, gap),
            None => {
                let mut range = Range {
                    address: run.address,
                    span: 0,
                    held: 0,
                    blocks: 0,
                    holes: 0,
                    largest: 0,
                    runs: Vec::new(),
                };
                range.add(run, 0);
                ranges.push(range);
            }
        }
        end = run.address.saturating_add(run.span.0);
    }
    let elsewhere = Kind::DEVICE.into_iter().filter_map(|kind| {
        let held = map.kinds[kind.index()].0;
        let (name, rest) = match kind {
            // What pools handed out has an address; the rest of what they hold has none.
            Kind::PoolReserved => {
                ("pools, not handed out", held.saturating_sub(map.kinds[Kind::PoolUsed.index()].0))
            }
            kind => (kind.label(), held.saturating_sub(with_address[kind.index()])),
        };
        (rest > 0).then(|| (name, number(Bytes(rest))))
    });
    MomentMap { t: micros(map.t), total: number(map.total), elsewhere: elsewhere.collect(), ranges }
}

impl Range {
    fn add(&mut self, run: &BlockRun, gap: u64) {
        let inside = run.span.0.saturating_sub(run.held.0);
        if gap >= MIN_HOLE {
            self.holes = self.holes.saturating_add(gap);
            self.largest = self.largest.max(gap);
        }
        // Where blocks were put together the holes between them are smaller than all that are kept.
        self.holes = self.holes.saturating_add(inside);
        self.span = self.span.saturating_add(gap).saturating_add(run.span.0);
        self.held = self.held.saturating_add(run.held.0);
        self.blocks = self.blocks.saturating_add(run.blocks.into());
        let kind = if run.kind == Kind::PoolUsed as u8 { Kind::PoolReserved as u8 } else { run.kind };
        self.runs.extend([gap, run.span.0, inside, run.blocks.into(), kind.into()]);
    }
}

/// Caption of the picture: the moment, its total, and memory without an address.
/// [`MIN_HOLE`] and [`MIN_GAP`] define the holes and ranges that the picture shows.
fn sentence(moment: &MomentMap, peak: u64) -> String {
    let t = Nanos(moment.t * 1000);
    let elsewhere: Vec<String> =
        moment.elsewhere.iter().map(|(name, bytes)| format!("{name} {}", Bytes(*bytes))).collect();
    let without = match elsewhere.is_empty() {
        true => String::new(),
        false => format!(" · without an address: {}", elsewhere.join(", ")),
    };
    let missed = match moment.total < peak {
        true => format!(" (the peak of {} itself was not read)", Bytes(peak)),
        false => String::new(),
    };
    format!("At {t}, the recorded moment at which most was held: {}{missed}{without}", Bytes(moment.total))
}

fn row(range: &Range) -> [String; 6] {
    [
        format!("{:#x}", range.address),
        Bytes(range.span).to_string(),
        Bytes(range.held).to_string(),
        radrm_text::number::grouped(range.blocks),
        Bytes(range.holes).to_string(),
        Bytes(range.largest).to_string(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use radrm_profile::model::{Job, Process};

    fn run(address: u64, bytes: u64, kind: Kind) -> BlockRun {
        BlockRun { address, span: Bytes(bytes), held: Bytes(bytes), blocks: 1, kind: kind as u8 }
    }

    fn map(t: u64, total: u64, runs: Vec<BlockRun>) -> BlockMap {
        BlockMap { t: Nanos::from_secs(t), total: Bytes(total), runs, ..BlockMap::default() }
    }

    #[test]
    fn ranges_have_their_holes_and_what_lies_elsewhere_is_named() {
        const MIB: u64 = 1 << 20;
        let mut map = map(
            5,
            60 * MIB,
            vec![
                run(0x10_0000_0000, 10 * MIB, Kind::Device),
                run(0x10_0000_0000 + 10 * MIB + 100, 4 * MIB, Kind::PoolUsed),
                run(0x10_0000_0000 + 20 * MIB, 6 * MIB, Kind::Device),
                run(0x20_0000_0000, 8 * MIB, Kind::Device),
            ],
        );
        for (kind, mib) in
            [(Kind::Device, 24), (Kind::PoolReserved, 20), (Kind::PoolUsed, 4), (Kind::Vmm, 16)]
        {
            map.kinds[kind.index()] = Bytes(mib * MIB);
        }
        let moment = moment(&map);
        let rows: Vec<[String; 6]> = moment.ranges.iter().map(row).collect();
        assert_eq!(rows[0], ["0x1000000000", "26.0 MiB", "20.0 MiB", "3", "6.00 MiB", "6.00 MiB"]);
        assert_eq!(rows[1], ["0x2000000000", "8.00 MiB", "8.00 MiB", "1", "0 B", "0 B"]);
        let elsewhere = "without an address: pools, not handed out 16.0 MiB, virtual memory 16.0 MiB";
        let at = "At 5.00 s, the recorded moment at which most was held: 60.0 MiB";
        assert_eq!(sentence(&moment, 60 * MIB), format!("{at} · {elsewhere}"));
        let missed = " (the peak of 64.0 MiB itself was not read)";
        assert_eq!(sentence(&moment, 64 * MIB), format!("{at}{missed} · {elsewhere}"));
    }

    #[test]
    fn of_many_moments_the_highest_stay() {
        let mut profile = Profile::new(Job::default());
        profile.processes = vec![Process::default()];
        let runs: Vec<BlockRun> = (0..400).map(|at| run(at << 21, 1 << 20, Kind::Device)).collect();
        profile.block_maps = (0..300).map(|t| map(t, if t == 123 { 900 } else { t }, runs.clone())).collect();
        let all = Addresses::new(&profile);
        let [space] = &all.spaces[..] else { panic!("{:?}", all.spaces) };
        assert_eq!(space.moments.len(), RUNS / 400);
        assert!(space.moments.iter().any(|moment| moment.total == 900));
        assert!(space.moments.is_sorted_by_key(|moment| moment.t));
    }
}
