//! Host use of jobs: resident memory and CPU time of their processes, beside what was booked.

use std::collections::{HashMap, HashSet};
use std::time::Instant;

use radrm_base::{Bytes, HostMeter, HostUse, Permille};
use radrm_collector::MemoryCount;
use radrm_os::Process;
use radrm_os::host::ProcessorTime;
use radrm_telemetry::process::Stat;

/// More than what is booked by so much is no slip of the clock: thousandths of a core, and of what is booked.
const SLACK_MILLI: u64 = 100;
const SLACK_PART: u64 = 100;
/// So many snapshots in a row, as what is started may take more for a moment.
const LOOKS: u32 = 3;
/// Processors slow no job while they do nothing for so many ms in a second, all together: a fifth of one.
const LEFT_OVER_MS: f64 = 200.0;

/// All processes at one moment.
#[derive(Debug)]
pub(crate) struct Snapshot {
    at: Instant,
    processors: Option<ProcessorTime>,
    /// Memory traffic of the node so far, where that of jobs is not counted.
    pub(crate) memory: Option<MemoryCount>,
    all: HashMap<u32, Stat>,
    children: HashMap<u32, Vec<u32>>,
}

/// Host use of the processes below a supervisor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sum {
    pids: Vec<u32>,
    /// CPU time so far, ms.
    cpu_ms: u64,
    /// Resident memory, bytes: pages that several processes share count in each.
    pub(crate) resident: u64,
}

impl Snapshot {
    pub(crate) fn now(memory: Option<MemoryCount>) -> Self {
        let mut snapshot = Self {
            at: Instant::now(),
            processors: ProcessorTime::now(),
            memory,
            all: HashMap::new(),
            children: HashMap::new(),
        };
        for Process(pid) in Process::all() {
            if let Some(stat) = Stat::now(pid) {
                snapshot.children.entry(stat.ppid).or_default().push(pid);
                snapshot.all.insert(pid, stat);
            }
        }
        snapshot
    }

    pub(crate) fn below(&self, supervisor: u32) -> Sum {
        let mut pids = self.children.get(&supervisor).cloned().unwrap_or_default();
        // Numbers that were given anew while the list was read may lead back.
        let mut found: HashSet<u32> = pids.iter().copied().collect();
        let mut at = 0;
        while at < pids.len() {
            let children = self.children.get(&pids[at]).map_or(&[][..], Vec::as_slice);
            pids.extend(children.iter().copied().filter(|pid| found.insert(*pid)));
            at += 1;
        }
        // What ended without a parent of its own was waited for by the supervisor.
        let mut ticks = self.all.get(&supervisor).map_or(0, |stat| stat.children_ticks);
        let mut pages = 0;
        for stat in pids.iter().filter_map(|pid| self.all.get(pid)) {
            ticks += stat.own_ticks + stat.children_ticks;
            pages += stat.resident;
        }
        let cpu_ms = ticks.saturating_mul(1000) / system(libc::_SC_CLK_TCK);
        Sum { pids, cpu_ms, resident: pages.saturating_mul(page_size()) }
    }
}

/// A number of the system's.
fn system(name: libc::c_int) -> u64 {
    // SAFETY: a plain system call that cannot fail for the names that it is called with.
    unsafe { libc::sysconf(name) }.max(1).unsigned_abs()
}

fn page_size() -> u64 {
    system(libc::_SC_PAGESIZE)
}

impl Sum {
    /// Its processes.
    pub(crate) fn processes(&self) -> &[u32] {
        &self.pids
    }

    /// The same with pages that several processes share counted once. A process that may not be read counts as resident,
    /// and one that has ended since not at all.
    pub(crate) fn proportional(&self) -> u64 {
        let resident = |process: Process| process.stat().map_or(0, |stat| stat.resident * page_size());
        let part = |pid: &u32| {
            let process = Process(*pid);
            process.proportional_memory().unwrap_or_else(|| resident(process))
        };
        self.pids.iter().map(part).sum::<u64>().min(self.resident)
    }
}

/// Observed host use of one job.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    before: Option<(Instant, u64)>,
    processors: Option<ProcessorTime>,
    /// Host use while processors were left over, so that nothing slowed it.
    meter: HostMeter,
    /// Traffic or stalls of memory by it so far, where that is counted.
    counted: Option<MemoryCount>,
    memory: MemoryUse,
    /// Memory traffic between the last two snapshots, bytes in a second, where it is counted.
    pub(crate) memory_traffic: Option<u64>,
    /// Part of its CPU cycles between them in which a processor waited, where these are counted.
    pub(crate) memory_stalled: Option<Permille>,
    most_resident: u64,
    reported: Option<HostUse>,
    pub(crate) resident: u64,
    /// Thousandths of a core, between the last two snapshots.
    pub(crate) cpu_milli: Option<u64>,
    over: u32,
}

/// Traffic or stalls of memory by a job over spans of time, by one source: bytes, or cycles.
#[derive(Clone, Copy, Debug, Default)]
struct MemoryUse {
    bytes: u64,
    /// Time in which these were counted.
    ms: u64,
    cycles: u64,
    stalled: u64,
}

impl MemoryUse {
    /// Between two counts, `ms` apart. `part`: of the CPU time of the node that is the job's, by which it has a part of what the
    /// node moved; `None`: not known.
    fn between(before: MemoryCount, now: MemoryCount, ms: u64, part: Option<f64>) -> Option<Self> {
        use MemoryCount::{Cycles, Moved, NodeMoved};
        match (before, now) {
            (Moved(before), Moved(now)) => {
                Some(Self { bytes: now.saturating_sub(before), ms, ..Self::default() })
            }
            (NodeMoved(before), NodeMoved(now)) => {
                let bytes = (now.saturating_sub(before) as f64 * part?) as u64;
                Some(Self { bytes, ms, ..Self::default() })
            }
            (Cycles { all: before, stalled: waited }, Cycles { all, stalled }) => {
                let cycles = all.saturating_sub(before);
                let stalled = stalled.saturating_sub(waited).min(cycles);
                Some(Self { cycles, stalled, ..Self::default() })
            }
            _ => None,
        }
    }

    fn add(&mut self, more: Self) {
        self.bytes = self.bytes.saturating_add(more.bytes);
        self.ms = self.ms.saturating_add(more.ms);
        self.cycles = self.cycles.saturating_add(more.cycles);
        self.stalled = self.stalled.saturating_add(more.stalled);
    }

    /// The mean, bytes in a second.
    fn traffic(self) -> Option<u64> {
        let bytes = u128::from(self.bytes) * 1000;
        (self.ms > 0).then(|| u64::try_from(bytes / u128::from(self.ms)).unwrap_or(u64::MAX))
    }

    /// Part of the cycles in which a processor waited.
    fn stalled(self) -> Option<Permille> {
        (self.cycles > 0).then(|| Permille::from_fraction(self.stalled as f64 / self.cycles as f64))
    }
}

impl Usage {
    /// Returns true if all of its processes were counted at the last snapshot.
    pub(crate) fn has_memory_count(&self) -> bool {
        self.counted.is_some()
    }

    /// Takes note of a snapshot. `counted`: what memory did for it so far, if that is counted.
    pub(crate) fn take(&mut self, snapshot: &Snapshot, sum: &Sum, counted: Option<MemoryCount>) {
        let before = std::mem::replace(&mut self.counted, counted);
        self.resident = sum.resident;
        self.most_resident = self.most_resident.max(sum.resident);
        let node_before = std::mem::replace(&mut self.processors, snapshot.processors);
        if let Some((then, cpu_ms)) = self.before.replace((snapshot.at, sum.cpu_ms)) {
            let passed = snapshot.at.saturating_duration_since(then).as_secs_f64();
            let used = sum.cpu_ms.saturating_sub(cpu_ms) as f64;
            self.cpu_milli = (passed > 0.0).then(|| (used / passed).round() as u64);
            let span = snapshot.at.saturating_duration_since(then).as_millis();
            let span = u64::try_from(span).unwrap_or(u64::MAX);
            let node = node_before.zip(snapshot.processors).map(|(before, now)| now.since(before));
            // The kernel counts a process's ticks later than those of the node.
            let part = node.map(|node| used / used.max(node.busy_ms as f64).max(1.0));
            let memory = before.zip(counted);
            let memory = memory.and_then(|(before, now)| MemoryUse::between(before, now, span, part));
            self.memory_traffic = memory.and_then(MemoryUse::traffic);
            self.memory_stalled = memory.and_then(MemoryUse::stalled);
            if node.is_some_and(|node| node.idle_ms as f64 >= passed * LEFT_OVER_MS) {
                self.meter.add(span, sum.cpu_ms.saturating_sub(cpu_ms));
                self.memory.add(memory.unwrap_or_default());
            }
        }
    }

    /// Host use where nothing slows it there, once it was seen for long enough.
    pub(crate) fn alone(&self) -> Option<HostUse> {
        let seen = self.meter.spans() >= LOOKS;
        let used = seen.then(|| self.meter.used(Bytes(self.most_resident))).flatten()?;
        let (memory_traffic, memory_stalled) = (self.memory.traffic(), self.memory.stalled());
        Some(HostUse { memory_traffic, memory_stalled, ..used })
    }

    /// The same as [`Self::alone`] where it is news: CPU time by a tenth of a core, threads, memory traffic by a tenth, or stalled
    /// cycles by a twentieth of them.
    pub(crate) fn news(&mut self) -> Option<HostUse> {
        let now = self.alone()?;
        let moved = |before: &HostUse| {
            let traffic = |of: &HostUse| of.memory_traffic.unwrap_or(0);
            let stalled = |of: &HostUse| of.memory_stalled.unwrap_or_default().0;
            before.threads != now.threads
                || before.cpu_milli.abs_diff(now.cpu_milli) >= 100
                || traffic(before).abs_diff(traffic(&now)) > (traffic(before) / 10).max(100 << 20)
                || stalled(before).abs_diff(stalled(&now)) >= 50
        };
        if self.reported.as_ref().is_some_and(|before| !moved(before)) {
            return None;
        }
        self.reported = Some(now);
        self.reported
    }

    /// Returns true if it has taken more CPU time than booked in several snapshots.
    pub(crate) fn is_over(&mut self, booked_milli: u64) -> bool {
        let most = booked_milli + SLACK_MILLI + booked_milli * SLACK_PART / 1000;
        let over = booked_milli > 0 && self.cpu_milli.is_some_and(|milli| milli > most);
        self.over = if over { self.over.saturating_add(1) } else { 0 };
        self.over >= LOOKS
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// A snapshot without processes, with busy and idle time of the processors so far.
    fn at(at: Instant, processors: Option<(u64, u64)>) -> Snapshot {
        let processors = processors.map(|(busy_ms, idle_ms)| ProcessorTime { busy_ms, idle_ms });
        Snapshot { at, processors, memory: None, all: HashMap::new(), children: HashMap::new() }
    }

    #[test]
    fn everything_below_a_supervisor_counts_and_nothing_beside_it() {
        let own = Stat::now(std::process::id()).unwrap();
        let stat =
            |ppid, own_ticks, children_ticks| Stat { ppid, own_ticks, children_ticks, resident: 1, ..own };
        let all = [(1, stat(0, 9, 9)), (2, stat(1, 100, 7)), (3, stat(2, 10, 0)), (4, stat(3, 20, 3))];
        let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
        all.iter().for_each(|(pid, stat)| children.entry(stat.ppid).or_default().push(*pid));
        let all = all.into_iter().collect();
        let snapshot = Snapshot { all, children, ..at(Instant::now(), None) };
        let sum = snapshot.below(2);
        assert_eq!((sum.pids.as_slice(), sum.cpu_ms), (&[3, 4][..], 400), "100 ticks a second");
        assert_eq!(sum.resident % 8192, 0);
        assert_eq!(snapshot.below(9), Sum::default());
    }

    /// Each of them is looked at once: with a look at all others for each, this takes minutes.
    #[test]
    fn a_chain_of_all_processes_that_a_node_can_have_is_summed_and_a_circle_ends() {
        const LAST: u32 = 400_000;
        let mut children: HashMap<u32, Vec<u32>> = (1..LAST).map(|pid| (pid, vec![pid + 1])).collect();
        children.insert(LAST, vec![2]);
        let snapshot = Snapshot { children, ..at(Instant::now(), None) };
        assert!(snapshot.below(1).pids.into_iter().eq(2..=LAST));
    }

    #[test]
    fn cpu_time_counts_between_looks_and_a_moment_is_no_excess() {
        let begun = Instant::now();
        let mut usage = Usage::default();
        let mut said = Vec::new();
        for (seconds, cpu_ms) in [(0, 50), (1, 2050), (2, 2100), (3, 4100), (4, 6100), (5, 8100)] {
            let snapshot = at(begun + Duration::from_secs(seconds), None);
            usage.take(&snapshot, &Sum { cpu_ms, ..Sum::default() }, None);
            said.push((usage.cpu_milli, usage.is_over(1000)));
        }
        let two = Some(2000);
        let expected =
            [(None, false), (two, false), (Some(50), false), (two, false), (two, false), (two, true)];
        assert_eq!(said, expected);
        assert!(!usage.is_over(0), "nothing is booked");
    }

    #[test]
    fn what_a_job_takes_counts_while_processors_are_left_over() {
        let begun = Instant::now();
        let mut usage = Usage::default();
        let mut news = Vec::new();
        // CPU time so far, and how long all processors did nothing: they are all busy from the fourth second on.
        for (seconds, cpu_ms, idle_ms) in
            [(0, 0, 0), (1, 500, 500), (2, 1000, 1000), (3, 1500, 1500), (4, 1700, 1600), (5, 1900, 1700)]
        {
            let snapshot = at(begun + Duration::from_secs(seconds), Some((0, idle_ms)));
            usage.take(&snapshot, &Sum { cpu_ms, resident: 7, ..Sum::default() }, None);
            news.push(usage.news());
        }
        let expected = HostUse { cpu_milli: 500, threads: 1, resident: Bytes(7), ..HostUse::default() };
        assert_eq!(news, [None, None, None, Some(expected), None, None]);
        assert_eq!(usage.alone(), Some(expected));
    }

    #[test]
    fn memory_traffic_counts_where_it_is_known_and_processors_are_left_over() {
        let begun = Instant::now();
        let mut usage = Usage::default();
        let mut seen = Vec::new();
        const GB: u64 = 1_000_000_000;
        // The group is there from the second snapshot on, and a domain does not say once; then no processor is left over.
        let moved = [None, Some(0), Some(9 * GB), None, Some(90 * GB), Some(99 * GB), Some(199 * GB)];
        for (second, moved) in (0_u64..).zip(moved) {
            let snapshot = at(begun + Duration::from_secs(second), Some((0, second.min(5) * 1000)));
            let moved = moved.map(MemoryCount::Moved);
            usage.take(&snapshot, &Sum { cpu_ms: second * 500, ..Sum::default() }, moved);
            seen.push(usage.memory_traffic.map(|bytes| bytes / GB));
        }
        assert_eq!(seen, [None, None, Some(9), None, None, Some(9), Some(100)]);
        assert_eq!(usage.alone().and_then(|used| used.memory_traffic), Some(9 * GB));
    }

    #[test]
    fn of_the_nodes_traffic_a_job_has_the_part_of_its_cpu_time() {
        let begun = Instant::now();
        let mut usage = Usage::default();
        let mut seen = Vec::new();
        // CPU time of the job and of the node so far, ms, and GB that the node moved so far.
        for (second, cpu_ms, busy_ms, moved) in
            [(0, 0, 0, 5), (1, 500, 2000, 13), (2, 1500, 3000, 23), (3, 1500, 3000, 24), (4, 2500, 3500, 33)]
        {
            let snapshot = at(begun + Duration::from_secs(second), Some((busy_ms, second * 1000)));
            let counted = Some(MemoryCount::NodeMoved(moved * 1_000_000_000));
            usage.take(&snapshot, &Sum { cpu_ms, ..Sum::default() }, counted);
            seen.push(usage.memory_traffic.map(|bytes| bytes / 1_000_000));
        }
        // A quarter of 8 GB, all of 10 GB, nothing of what others moved, and no more than all.
        assert_eq!(seen, [None, Some(2000), Some(10_000), Some(0), Some(9000)]);
        assert_eq!(usage.memory_stalled, None);
        assert_eq!(usage.alone().and_then(|used| used.memory_traffic), Some(5_250_000_000));
        usage.take(
            &at(begun + Duration::from_secs(5), None),
            &Sum::default(),
            Some(MemoryCount::NodeMoved(0)),
        );
        assert_eq!(usage.memory_traffic, None, "without the node's CPU time there is no part");
    }

    #[test]
    fn stalled_cycles_are_a_part_of_cycles_and_never_bytes() {
        let begun = Instant::now();
        let mut usage = Usage::default();
        let mut seen = Vec::new();
        let counts = [
            Some((0, 0)),
            Some((1000, 300)),
            None,
            Some((5000, 900)),
            Some((6000, 2900)),
            Some((6000, 2900)),
        ];
        for (second, counted) in (0_u64..).zip(counts) {
            let snapshot = at(begun + Duration::from_secs(second), Some((0, second * 1000)));
            let counted = counted.map(|(all, stalled)| MemoryCount::Cycles { all, stalled });
            usage.take(&snapshot, &Sum { cpu_ms: second * 500, ..Sum::default() }, counted);
            seen.push(usage.memory_stalled.map(|part| part.0));
            assert_eq!(usage.memory_traffic, None);
        }
        // The kernel scales counts up: there are never more that stalled than there are.
        assert_eq!(seen, [None, Some(300), None, None, Some(1000), None]);
        let alone = usage.alone().unwrap();
        assert_eq!((alone.memory_traffic, alone.memory_stalled), (None, Some(Permille(650))));
    }

    #[test]
    fn ones_own_processes_are_seen() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        // A child that is about to become the program has nothing resident yet, as the kernel counts.
        let mut sum = Snapshot::now(None).below(std::process::id());
        for _ in 0..1000 {
            if sum.resident > 0 {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
            sum = Snapshot::now(None).below(std::process::id());
        }
        let found = sum.pids.contains(&child.id());
        let proportional = sum.proportional();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(found && sum.resident > 0 && proportional <= sum.resident);
    }
}
