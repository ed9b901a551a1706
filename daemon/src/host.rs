//! Host use of jobs: resident memory and CPU time of their processes, beside what was booked.

use std::collections::{HashMap, HashSet};
use std::time::Instant;

use radrm_base::{Bytes, HostMeter, HostUse};
use radrm_os::Process;
use radrm_telemetry::process::Stat;

/// More than what is booked by so much is no slip of the clock: thousandths of a core, and of what is booked.
const SLACK_MILLI: u64 = 100;
const SLACK_PART: u64 = 100;
/// So many snapshots in a row, as what is started may take more for a moment.
const LOOKS: u32 = 3;
/// Processors slow no job while they do nothing for so many ms in a second, all together: a fifth of one.
const LEFT_OVER_MS: f64 = 200.0;

/// All processes at one moment.
pub(crate) struct Snapshot {
    at: Instant,
    /// Idle time of all processors since the boot, their sum, ms.
    idle_ms: Option<u64>,
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
    pub(crate) fn now() -> Self {
        let mut snapshot = Self {
            at: Instant::now(),
            idle_ms: radrm_os::host::idle_ms(),
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
    idle_ms: Option<u64>,
    /// Host use while processors were left over, so that nothing slowed it.
    meter: HostMeter,
    /// Bytes that it moved to and from memory so far, where they are counted.
    moved: Option<u64>,
    traffic: Traffic,
    /// Memory traffic between the last two snapshots, bytes in a second, where it is counted.
    pub(crate) memory_traffic: Option<u64>,
    most_resident: u64,
    reported: Option<HostUse>,
    pub(crate) resident: u64,
    /// Thousandths of a core, between the last two snapshots.
    pub(crate) cpu_milli: Option<u64>,
    over: u32,
}

/// Memory traffic over spans of time.
#[derive(Clone, Copy, Debug, Default)]
struct Traffic {
    bytes: u64,
    ms: u64,
}

impl Traffic {
    /// The mean, bytes in a second.
    fn rate(self) -> Option<u64> {
        let bytes = u128::from(self.bytes) * 1000;
        (self.ms > 0).then(|| u64::try_from(bytes / u128::from(self.ms)).unwrap_or(u64::MAX))
    }
}

impl Usage {
    /// Returns true if the traffic of all processes was known at the last snapshot.
    pub(crate) fn has_traffic(&self) -> bool {
        self.moved.is_some()
    }

    /// Takes note of a snapshot. `moved`: bytes to and from memory so far, if they are counted.
    pub(crate) fn take(&mut self, snapshot: &Snapshot, sum: &Sum, moved: Option<u64>) {
        let before = std::mem::replace(&mut self.moved, moved);
        self.resident = sum.resident;
        self.most_resident = self.most_resident.max(sum.resident);
        let idle_before = std::mem::replace(&mut self.idle_ms, snapshot.idle_ms);
        if let Some((then, cpu_ms)) = self.before.replace((snapshot.at, sum.cpu_ms)) {
            let passed = snapshot.at.saturating_duration_since(then).as_secs_f64();
            let used = sum.cpu_ms.saturating_sub(cpu_ms) as f64;
            self.cpu_milli = (passed > 0.0).then(|| (used / passed).round() as u64);
            let span = snapshot.at.saturating_duration_since(then).as_millis();
            let span = u64::try_from(span).unwrap_or(u64::MAX);
            let traffic = before
                .zip(moved)
                .map(|(before, now)| Traffic { bytes: now.saturating_sub(before), ms: span });
            self.memory_traffic = traffic.and_then(Traffic::rate);
            let idle = idle_before.zip(snapshot.idle_ms).map(|(before, now)| now.saturating_sub(before));
            if idle.is_some_and(|idle| idle as f64 >= passed * LEFT_OVER_MS) {
                self.meter.add(span, sum.cpu_ms.saturating_sub(cpu_ms));
                let Traffic { bytes, ms } = traffic.unwrap_or_default();
                self.traffic.bytes = self.traffic.bytes.saturating_add(bytes);
                self.traffic.ms = self.traffic.ms.saturating_add(ms);
            }
        }
    }

    /// Host use where nothing slows it there, once it was seen for long enough.
    pub(crate) fn alone(&self) -> Option<HostUse> {
        let seen = self.meter.spans() >= LOOKS;
        let used = seen.then(|| self.meter.used(Bytes(self.most_resident))).flatten()?;
        Some(HostUse { memory_traffic: self.traffic.rate(), ..used })
    }

    /// The same as [`Self::alone`] where it is news: CPU time by a tenth of a core, threads, or memory traffic by a tenth.
    pub(crate) fn news(&mut self) -> Option<HostUse> {
        let now = self.alone()?;
        let moved = |before: &HostUse| {
            let traffic = |of: &HostUse| of.memory_traffic.unwrap_or(0);
            before.threads != now.threads
                || before.cpu_milli.abs_diff(now.cpu_milli) >= 100
                || traffic(before).abs_diff(traffic(&now)) > (traffic(before) / 10).max(100 << 20)
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

    #[test]
    fn everything_below_a_supervisor_counts_and_nothing_beside_it() {
        let own = Stat::now(std::process::id()).unwrap();
        let stat =
            |ppid, own_ticks, children_ticks| Stat { ppid, own_ticks, children_ticks, resident: 1, ..own };
        let all = [(1, stat(0, 9, 9)), (2, stat(1, 100, 7)), (3, stat(2, 10, 0)), (4, stat(3, 20, 3))];
        let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
        all.iter().for_each(|(pid, stat)| children.entry(stat.ppid).or_default().push(*pid));
        let snapshot =
            Snapshot { at: Instant::now(), idle_ms: None, all: all.into_iter().collect(), children };
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
        let snapshot = Snapshot { at: Instant::now(), idle_ms: None, all: HashMap::new(), children };
        assert!(snapshot.below(1).pids.into_iter().eq(2..=LAST));
    }

    #[test]
    fn cpu_time_counts_between_looks_and_a_moment_is_no_excess() {
        let begun = Instant::now();
        let mut usage = Usage::default();
        let mut said = Vec::new();
        for (seconds, cpu_ms) in [(0, 50), (1, 2050), (2, 2100), (3, 4100), (4, 6100), (5, 8100)] {
            let at = begun + Duration::from_secs(seconds);
            let snapshot = Snapshot { at, idle_ms: None, all: HashMap::new(), children: HashMap::new() };
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
            let at = begun + Duration::from_secs(seconds);
            let snapshot =
                Snapshot { at, idle_ms: Some(idle_ms), all: HashMap::new(), children: HashMap::new() };
            usage.take(&snapshot, &Sum { cpu_ms, resident: 7, ..Sum::default() }, None);
            news.push(usage.news());
        }
        let expected = HostUse { cpu_milli: 500, threads: 1, resident: Bytes(7), memory_traffic: None };
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
            let at = begun + Duration::from_secs(second);
            let idle_ms = Some(second.min(5) * 1000);
            let snapshot = Snapshot { at, idle_ms, all: HashMap::new(), children: HashMap::new() };
            usage.take(&snapshot, &Sum { cpu_ms: second * 500, ..Sum::default() }, moved);
            seen.push(usage.memory_traffic.map(|bytes| bytes / GB));
        }
        assert_eq!(seen, [None, None, Some(9), None, None, Some(9), Some(100)]);
        assert_eq!(usage.alone().and_then(|used| used.memory_traffic), Some(9 * GB));
    }

    #[test]
    fn ones_own_processes_are_seen() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        // A child that is about to become the program has nothing resident yet, as the kernel counts.
        let mut sum = Snapshot::now().below(std::process::id());
        for _ in 0..1000 {
            if sum.resident > 0 {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
            sum = Snapshot::now().below(std::process::id());
        }
        let found = sum.pids.contains(&child.id());
        let proportional = sum.proportional();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(found && sum.resident > 0 && proportional <= sum.resident);
    }
}
