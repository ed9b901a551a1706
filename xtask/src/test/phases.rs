//! Time of each phase: from start to end, and of the processors.

use std::fs;
use std::time::{Duration, Instant};

/// A phase that has ended.
pub struct Phase {
    /// Name of the work that was done.
    pub name: &'static str,
    /// From start to end.
    pub elapsed: Duration,
    /// Processor time of the programs that were started and awaited, and of those that they awaited.
    pub processors: Duration,
}

/// Phases so far, in order.
#[derive(Default)]
pub struct Phases {
    /// Phases that have ended.
    pub ended: Vec<Phase>,
}

impl Phases {
    /// Runs a phase.
    pub fn run<T>(&mut self, name: &'static str, phase: impl FnOnce() -> T) -> T {
        let (began, before) = (Instant::now(), of_children());
        let done = phase();
        let processors = of_children().saturating_sub(before);
        self.ended.push(Phase { name, elapsed: began.elapsed(), processors });
        done
    }
}

/// Processor time of all children that were awaited; zero where the system does not say.
fn of_children() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    Duration::from_millis(ticks_of_children(&stat).unwrap_or(0) * 10)
}

/// `cutime` and `cstime` of `/proc/self/stat`, in ticks of 10 ms.
fn ticks_of_children(stat: &str) -> Option<u64> {
    // The name of the program may have spaces. The third field is the first behind it.
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split(' ').skip(13);
    let mut next = || fields.next()?.parse::<u64>().ok();
    Some(next()? + next()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_of_children_is_read_behind_any_name() {
        let stat = "7 (a b) c) S 1 7 7 0 -1 4194304 100 200 0 0 11 12 130 140 20 0 1 0 5 6 7";
        assert_eq!(ticks_of_children(stat), Some(270));
        assert_eq!(ticks_of_children(""), None);
    }

    #[test]
    fn a_phase_has_the_processor_time_of_its_programs() {
        let mut phases = Phases::default();
        let script = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done";
        phases.run("loop", || std::process::Command::new("sh").args(["-c", script]).status().unwrap());
        let [phase] = &phases.ended[..] else { panic!("one phase") };
        assert!(phase.processors >= Duration::from_millis(20), "{:?}", phase.processors);
        assert!(phase.elapsed >= Duration::from_millis(20), "{:?}", phase.elapsed);
    }
}
