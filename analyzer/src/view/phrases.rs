//! Phrases that several reports share.

use crate::model::compare::Unit;
use crate::model::signals::signal_text;
use crate::model::{
    CopySummary, EndSummary, FailureSummary, Feature, LeftOver, OutcomeSummary, ProcessSummary, Summary,
    ThrottlingSummary,
};
use radrm_profile::model::{KernelsMode, Kind};
use radrm_profile::{Bytes, Nanos};
use radrm_text::clean;
use radrm_text::number::{grouped, mean};

/// A number with its noun.
pub(crate) fn counted(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", grouped(number), if number == 1 { one } else { many })
}

/// Outcome of the job, as a phrase.
pub(crate) fn outcome_text(o: &OutcomeSummary) -> String {
    let took = o.program_duration_ns.unwrap_or(o.duration_ns);
    let text = match o.status {
        "exited" => format!("exit code {} after {took}", o.exit_code.unwrap_or(0)),
        "signaled" => format!("killed by {} after {took}", signal_text(o.signal.unwrap_or(0))),
        "not_started" => "could not be started".to_owned(),
        "running" => format!("running for {}", o.duration_ns),
        "unfinished" => format!("no end recorded, figures up to {}", o.duration_ns),
        _ => format!("ended after {}, exit code unknown", o.duration_ns),
    };
    let text = match (&o.reason, o.out_of_memory) {
        (_, true) => format!("{text}: out of GPU memory"),
        (Some(reason), _) => format!("{text}: {reason}"),
        _ => text,
    };
    match o.program_duration_ns {
        Some(_) => format!("{text}; processes that it left ran until {}", o.duration_ns),
        None => text,
    }
}

/// Number of a process's launches, or `-` if they were not recorded.
pub(crate) fn launches_text(process: &ProcessSummary) -> String {
    if process.kernels_mode == Some(KernelsMode::Off.name()) { "-".into() } else { grouped(process.launches) }
}

/// Copies of one way, or memsets, with their number.
pub(crate) fn copies_text(copies: &CopySummary) -> String {
    let calls = counted(copies.count, "call", "calls");
    format!("{} {} in {calls}", copies.way.replace('_', " "), copies.bytes)
}

pub(crate) fn end_text(end: &EndSummary) -> String {
    match (end.status, end.exit_code, end.signal) {
        ("exited", Some(code), _) => format!("exit code {code}"),
        ("signaled", _, Some(signal)) => signal_text(signal),
        ("exec", ..) => "became another program".into(),
        ("vanished", ..) => "vanished".into(),
        (status, ..) => status.into(),
    }
}

pub(crate) fn failure_text(failure: &FailureSummary, with_pid: bool) -> String {
    let kind = Kind::ALL.into_iter().find(|kind| kind.key() == failure.kind);
    let kind = match kind {
        Some(Kind::Device) => "device memory",
        Some(kind) => kind.label(),
        None => "memory of an unknown kind",
    };
    let pid = if with_pid { format!(" · pid {}", failure.pid) } else { String::new() };
    let free = match (failure.quota, failure.free_bytes, failure.device_total_bytes) {
        (Some(quota), ..) if quota.scope == "job" && quota.limit_bytes.0 == 0 => {
            " · refused: the GPU is not one of the job's".to_owned()
        }
        (Some(quota), free, _) => {
            let free = free.map_or(String::new(), |free| format!(" (GPU had {free} free)"));
            format!(" · refused by the {}'s quota of {}{free}", quota.scope, quota.limit_bytes)
        }
        (None, Some(free), Some(total)) if failure.injected => {
            format!(" · refused by a fault injected by --faults ({free} of {total} free)")
        }
        (None, Some(free), Some(total)) => format!(" · {free} of {total} free"),
        (None, Some(free), None) => format!(" · {free} free"),
        (None, None, _) => String::new(),
    };
    let result = if failure.out_of_memory { String::new() } else { format!(" (result {})", failure.result) };
    let at: Nanos = failure.t_ns;
    format!(
        "at {at} · GPU {}{pid} · {} · {} ({kind}){free}{result}",
        failure.gpu,
        clean(&failure.call),
        failure.size_bytes
    )
}

/// The command line, the program without its folder: what distinguishes processes
/// apart stands behind it.
pub(crate) fn program_of(command: &str) -> String {
    let (program, arguments) = command.split_once(' ').unwrap_or((command, ""));
    let name = program.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or(program);
    format!("{name} {arguments}").trim_end().to_owned()
}

impl Summary {
    /// Sentence on processes whose kernels, launches and copies were not recorded; `None` if there are none.
    pub fn kernels_missing(&self) -> Option<String> {
        let (without, all) = (self.processes_without_kernels, self.processes.len() as u64);
        match without {
            0 => None,
            _ if without >= all => {
                Some("kernels were not recorded (--kernels off), nor launches and copies".into())
            }
            _ => Some(format!(
                "kernels of {} of {} processes were not recorded (--kernels off): their launches and copies are in no \
                 figure",
                grouped(without),
                grouped(all)
            )),
        }
    }
}

impl ThrottlingSummary {
    /// As a sentence.
    pub fn sentence(&self) -> String {
        format!(
            "held back by a launch budget of {} %: {:.1} s in {} {}",
            (self.share * 1000.0).round() / 10.0,
            self.waited_ns as f64 / 1e9,
            grouped(self.launches),
            if self.launches == 1 { "launch" } else { "launches" }
        )
    }
}

impl std::fmt::Display for LeftOver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.blocks {
            0 => write!(f, "{}", self.bytes),
            1 => write!(f, "{} in 1 block", self.bytes),
            many => write!(f, "{} in {} blocks", self.bytes, grouped(many)),
        }
    }
}

impl Feature {
    /// Name for people.
    pub fn label(&self) -> String {
        self.name.trim_end_matches("_bytes_per_second").trim_end_matches("_bytes").replace('_', " ")
    }

    /// Value for people.
    pub fn value_text(&self) -> String {
        let Some(value) = self.value else { return "n/a".into() };
        match self.unit {
            "%" => format!("{value:.1} %"),
            "bytes" => Bytes(value.round() as u64).to_string(),
            "bytes/s" => format!("{}/s", Bytes(value.round() as u64)),
            "processors" | "ratio" | "per 1000 instructions" => format!("{value:.2}"),
            _ => mean(value),
        }
    }
}

impl Unit {
    /// A value for people.
    pub(crate) fn text(self, value: f64) -> String {
        // Sizes of changes are shown with a sign by the caller: none is negative here.
        match self {
            Unit::Ns => Nanos(value.round() as u64).to_string(),
            Unit::Bytes => Bytes(value.round() as u64).to_string(),
            Unit::Count => mean(value),
            Unit::Share => format!("{:.1} %", value * 100.0),
            Unit::Millijoule => format!("{:.1} J", value / 1000.0),
            Unit::Processors => format!("{value:.2}"),
        }
    }
}
