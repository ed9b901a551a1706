//! Requests of a job, as they are shown: one table, from which fields, their values and the options follow.

use radrm_scheduler_core::{Need, Needs};
use serde::{Deserialize, Serialize};

use crate::spec::Spec;

/// Value of an option, by the way in which it is shown.
#[derive(Clone, Debug, PartialEq)]
pub enum OptionValue {
    /// The option has no value.
    Switch,
    /// Bytes.
    Bytes(u64),
    /// Milliseconds.
    Time(u64),
    /// Thousandths, shown in per cent.
    Percent(u32),
    /// Thousandths, shown as a part of 1.
    Part(u32),
    /// Number of a signal.
    Signal(i32),
    /// A count.
    Count(u32),
    /// Text.
    Text(String),
    /// The option is given again for each.
    Texts(Vec<String>),
}

use OptionValue::{Bytes, Count, Part, Percent, Signal, Switch, Text, Texts, Time};

/// A row of the table: field, option, value of the field, value of the option.
macro_rules! asked {
    ($($(#[$attr:meta])* $name:ident: $type:ty, $option:literal, $of:expr, $shown:expr;)*) => {
        /// Requests of a job, as they are shown.
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[serde(default)]
        pub struct Asked {
            $($(#[$attr])* pub $name: $type,)*
        }

        impl Asked {
            /// Requests of `spec`. An estimate that no run confirmed counts as requested.
            #[must_use]
            pub fn of(spec: &Spec, needs: Option<&Needs>) -> Self {
                let need = needs.and_then(|needs| needs.memory.as_ref()).filter(|need| !need.enforce);
                $(let $name: fn(&Spec, Option<&Need>) -> $type = $of;)*
                Self { $($name: $name(spec, need),)* }
            }

            /// The options of `radrm submit` that ask for it, with their values.
            #[must_use]
            pub fn options(&self) -> Vec<(&'static str, OptionValue)> {
                $(let $name: fn(&Self) -> Option<OptionValue> = $shown;)*
                let options = [$(($option, $name(self)),)*];
                options.into_iter().filter_map(|(option, value)| Some((option, value?))).collect()
            }
        }
    };
}

asked! {
    /// Memory on each GPU, and its upper bound, bytes.
    gpu_mem: Option<u64>, "--gpu-mem", |spec, _| spec.mem, |asked| asked.gpu_mem.map(Bytes);
    /// An estimate of it, bytes.
    gpu_mem_estimate: Option<u64>, "--gpu-mem-estimate",
        |_, need| need.map(|need| need.bytes.0), |asked| asked.gpu_mem_estimate.map(Bytes);
    /// The upper bound of either, bytes.
    gpu_mem_upper: Option<u64>, "--gpu-mem-upper",
        |spec, need| spec.mem_upper.or(need.map(|need| need.upper.0)),
        // The upper bound of an estimate that has none of its own is the estimate.
        |asked| asked.gpu_mem_upper.filter(|upper| Some(*upper) != asked.gpu_mem_estimate).map(Bytes);
    /// No later step or phase takes more memory than the third step.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    fixed_shapes: bool, "--fixed-shapes",
        |spec, _| spec.fixed_shapes, |asked| asked.fixed_shapes.then_some(Switch);
    /// Part of each GPU's SMs, thousandths.
    gpu_share: Option<u32>, "--gpu-share", |spec, _| spec.share, |asked| asked.gpu_share.map(Percent);
    /// A bound on the time of its steps, as `p99=20ms`.
    #[serde(skip_serializing_if = "Option::is_none")]
    latency: Option<String>, "--latency",
        |spec, _| spec.target.latency.as_ref().map(ToString::to_string),
        |asked| asked.latency.clone().map(Text);
    /// Its lowest speed beside other jobs, thousandths of that alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    min_speed: Option<u32>, "--min-speed",
        |spec, _| spec.target.speed.map(|speed| speed.0), |asked| asked.min_speed.map(Part);
    /// Under the Multi-Process Service.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    mps: bool, "--mps", |spec, _| spec.mps, |asked| asked.mps.then_some(Switch);
    /// GPUs of its own.
    exclusive: bool, "--exclusive", |spec, _| spec.exclusive, |asked| asked.exclusive.then_some(Switch);
    /// Only GPUs of this model.
    gpu_model: Option<String>, "--gpu-model",
        |spec, _| spec.model.clone(), |asked| asked.gpu_model.clone().map(Text);
    /// Attempts if it runs out of GPU memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    attempts: Option<u32>, "--attempts", |spec, _| spec.attempts, |asked| asked.attempts.map(Count);
    /// Exit code 0 after a refused request for GPU memory counts as out of memory.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    oom_fails: bool, "--oom-fails", |spec, _| spec.oom_fails, |asked| asked.oom_fails.then_some(Switch);
    /// It may be stopped for others and run again later.
    preemptible: bool, "--preemptible",
        |spec, _| spec.preemptible, |asked| asked.preemptible.then_some(Switch);
    /// It gives way after this time if others wait, ms.
    slot_ms: Option<u64>, "--slot", |spec, _| spec.slot_ms, |asked| asked.slot_ms.map(Time);
    /// Expected run time, ms.
    expected_ms: Option<u64>, "--expected", |spec, _| spec.expected_ms, |asked| asked.expected_ms.map(Time);
    /// The signal at which it writes a checkpoint.
    checkpoint_signal: Option<i32>, "--checkpoint-signal",
        |spec, _| spec.checkpoint_signal, |asked| asked.checkpoint_signal.map(Signal);
    /// Time from that signal to SIGTERM, ms.
    grace_ms: Option<u64>, "--grace", |spec, _| spec.grace_ms, |asked| asked.grace_ms.map(Time);
    /// Batch size.
    batch_size: Option<u32>, "--batch-size", |spec, _| spec.batch, |asked| asked.batch_size.map(Count);
    /// Jobs that it waits for, as `any:12` or `ok:12_3`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    after: Vec<String>, "--after",
        |spec, _| spec.after.iter().map(ToString::to_string).collect(),
        |asked| (!asked.after.is_empty()).then(|| Texts(asked.after.clone()));
}

impl Asked {
    /// Memory to reserve on each GPU by these requests, bytes.
    #[must_use]
    pub fn memory(&self) -> Option<u64> {
        self.gpu_mem_upper.max(self.gpu_mem).or(self.gpu_mem_estimate)
    }
}
