//! Specification of a job: the one table of what can be stated with a submission, and how it is shown.
//!
//! From a field of the table follow the field of [`Spec`], which travels whole from the client to the queue on disk, and,
//! where it stands behind `=>`, the field of [`Asked`] in a job's row and the option that `radrm show` prints for it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use radrm_need::{DryRun, ModelSummary, UserEstimate};
use radrm_scheduler_core::Target;
use radrm_text::Untrusted;
use serde::{Deserialize, Serialize};

use crate::after::After;
use crate::array::{Array, ArrayTask};
use crate::asked::OptionValue;
use crate::asked::OptionValue::{Bytes, Count, Part, Percent, Signal, Switch, Text, Texts, Time};
use crate::loader::Loader;
use crate::together::Place;
use crate::words;

/// A field: its name and type; behind `=>` the fields of a job's row that show it, each with its option, its value in the
/// row, and the option's value.
macro_rules! specification {
    ($(
        $(#[$attr:meta])* $name:ident: $type:ty
        $(=> {
            $($(#[$shown_attr:meta])* $shown:ident: $shown_type:ty, $option:literal, $of:expr, $value:expr;)*
        })?;
    )*) => {
        /// A job as it is submitted.
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct Spec {
            $($(#[$attr])* pub $name: $type,)*
        }

        /// Requests of a job, as they are shown.
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[serde(default)]
        pub struct Asked {
            $($($($(#[$shown_attr])* pub $shown: $shown_type,)*)?)*
        }

        impl Asked {
            /// Requests of `spec`.
            #[must_use]
            pub fn of(spec: &Spec) -> Self {
                $($($(let $shown: fn(&Spec) -> $shown_type = $of;)*)?)*
                Self { $($($($shown: $shown(spec),)*)?)* }
            }

            /// The options of `radrm submit` that ask for it, with their values.
            #[must_use]
            pub fn options(&self) -> Vec<(&'static str, OptionValue)> {
                $($($(let $shown: fn(&Self) -> Option<OptionValue> = $value;)*)?)*
                let options = [$($($(($option, $shown(self)),)*)?)*];
                options.into_iter().filter_map(|(option, value)| Some((option, value?))).collect()
            }
        }
    };
}

specification! {
    /// Name in lists.
    name: Untrusted;
    /// Program and arguments, as [`words::encode`] writes them.
    command: Vec<String>;
    /// Working directory.
    #[serde(with = "words::path")]
    cwd: PathBuf;
    /// Its environment, `NAME=value`, as [`words::encode`] writes it.
    environment: Vec<String>;
    /// Its umask.
    umask: u32;
    /// GPUs at the same time.
    gpus: u16;
    /// Higher goes first.
    priority: i32;
    /// It is stopped after this time, ms.
    time_limit_ms: Option<u64>;
    /// Thousandths of CPU cores.
    cpu_milli: u64;
    /// Host memory, bytes.
    host_memory: u64;
    /// Memory on each GPU, bytes.
    mem: Option<u64> => {
        /// Memory on each GPU, and its upper bound, bytes.
        gpu_mem: Option<u64>, "--gpu-mem", |spec| spec.mem, |asked| asked.gpu_mem.map(Bytes);
    };
    /// Memory estimate of its user, until a run of it was measured. No limit is enforced at it.
    #[serde(skip_serializing_if = "Option::is_none")]
    estimate: Option<UserEstimate> => {
        /// An estimate of it, bytes.
        gpu_mem_estimate: Option<u64>, "--gpu-mem-estimate",
            |spec| spec.estimate.as_ref().map(|of| of.bytes.0), |asked| asked.gpu_mem_estimate.map(Bytes);
    };
    /// It is not sure that `mem` suffices: it is an estimate with this upper bound, bytes.
    mem_upper: Option<u64> => {
        /// The upper bound of either, bytes.
        gpu_mem_upper: Option<u64>, "--gpu-mem-upper",
            |spec| spec.mem_upper.or(spec.estimate.as_ref().map(|of| of.upper.0)),
            // The upper bound of an estimate that has none of its own is the estimate.
            |asked| asked.gpu_mem_upper.filter(|upper| Some(*upper) != asked.gpu_mem_estimate).map(Bytes);
    };
    /// Each of its steps takes as much memory as the third, and no later phase takes more.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    fixed_shapes: bool => {
        /// No later step or phase takes more memory than the third step.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        fixed_shapes: bool, "--fixed-shapes",
            |spec| spec.fixed_shapes, |asked| asked.fixed_shapes.then_some(Switch);
    };
    /// Dry run of it: what it held is an estimate likewise.
    #[serde(skip_serializing_if = "Option::is_none")]
    dry_run: Option<DryRun>;
    /// It is not to be dry-run in the background.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    no_dry_run: bool;
    /// Estimates in its file that nothing holds it to, by name of the estimator.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    file_estimates: BTreeMap<String, radrm_scheduler_core::Bytes>;
    /// Summary of the model that it trains, without its layers.
    summary: Option<ModelSummary>;
    /// Part of each GPU's SMs, in thousandths.
    share: Option<u32> => {
        /// Part of each GPU's SMs, thousandths.
        gpu_share: Option<u32>, "--gpu-share", |spec| spec.share, |asked| asked.gpu_share.map(Percent);
    };
    /// Latency and speed that it is to keep beside other jobs.
    #[serde(skip_serializing_if = "Target::is_none")]
    target: Target => {
        /// A bound on the time of its steps, as `p99=20ms`.
        #[serde(skip_serializing_if = "Option::is_none")]
        latency: Option<String>, "--latency",
            |spec| spec.target.latency.as_ref().map(ToString::to_string),
            |asked| asked.latency.clone().map(Text);
        /// Its lowest speed beside other jobs, thousandths of that alone.
        #[serde(skip_serializing_if = "Option::is_none")]
        min_speed: Option<u32>, "--min-speed",
            |spec| spec.target.speed.map(|speed| speed.0), |asked| asked.min_speed.map(Part);
    };
    /// It runs under the Multi-Process Service.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    mps: bool => {
        /// Under the Multi-Process Service.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        mps: bool, "--mps", |spec| spec.mps, |asked| asked.mps.then_some(Switch);
    };
    /// GPUs of its own.
    exclusive: bool => {
        /// GPUs of its own.
        exclusive: bool, "--exclusive", |spec| spec.exclusive, |asked| asked.exclusive.then_some(Switch);
    };
    /// Only GPUs of this model.
    model: Option<String> => {
        /// Only GPUs of this model.
        gpu_model: Option<String>, "--gpu-model",
            |spec| spec.model.clone(), |asked| asked.gpu_model.clone().map(Text);
    };
    /// Attempts if it runs out of GPU memory, at most those of the daemon.
    #[serde(skip_serializing_if = "Option::is_none")]
    attempts: Option<u32> => {
        /// Attempts if it runs out of GPU memory.
        #[serde(skip_serializing_if = "Option::is_none")]
        attempts: Option<u32>, "--attempts", |spec| spec.attempts, |asked| asked.attempts.map(Count);
    };
    /// Exit code 0 after a refused request for GPU memory, without one that was granted later, counts as out of memory.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    oom_fails: bool => {
        /// Exit code 0 after a refused request for GPU memory counts as out of memory.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        oom_fails: bool, "--oom-fails", |spec| spec.oom_fails, |asked| asked.oom_fails.then_some(Switch);
    };
    /// It runs again after its time limit has ended it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    requeue_on_timeout: bool => {
        /// It runs again after its time limit has ended it.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        requeue_on_timeout: bool, "--requeue-on-timeout",
            |spec| spec.requeue_on_timeout, |asked| asked.requeue_on_timeout.then_some(Switch);
    };
    /// It may be stopped for others and run again later.
    preemptible: bool => {
        /// It may be stopped for others and run again later.
        preemptible: bool, "--preemptible",
            |spec| spec.preemptible, |asked| asked.preemptible.then_some(Switch);
    };
    /// It gives way after this time if others wait, ms.
    slot_ms: Option<u64> => {
        /// It gives way after this time if others wait, ms.
        slot_ms: Option<u64>, "--slot", |spec| spec.slot_ms, |asked| asked.slot_ms.map(Time);
    };
    /// Expected run time, ms.
    expected_ms: Option<u64> => {
        /// Expected run time, ms.
        expected_ms: Option<u64>, "--expected", |spec| spec.expected_ms, |asked| asked.expected_ms.map(Time);
    };
    /// Optimizer steps of the whole training: with the step of its dry run they give its run time.
    #[serde(skip_serializing_if = "Option::is_none")]
    total_steps: Option<u64> => {
        /// Optimizer steps of the whole training.
        #[serde(skip_serializing_if = "Option::is_none")]
        total_steps: Option<u64>, "--total-steps",
            |spec| spec.total_steps, |asked| asked.total_steps.map(|steps| Text(steps.to_string()));
    };
    /// The signal at which it writes a checkpoint; 0: it asks for the request.
    checkpoint_signal: Option<i32> => {
        /// The signal at which it writes a checkpoint; 0: it asks for the request.
        checkpoint_signal: Option<i32>, "--checkpoint-signal",
            |spec| spec.checkpoint_signal, |asked| asked.checkpoint_signal.map(Signal);
    };
    /// Time from that signal to SIGTERM, ms.
    grace_ms: Option<u64> => {
        /// Time from that signal to SIGTERM, ms.
        grace_ms: Option<u64>, "--grace", |spec| spec.grace_ms, |asked| asked.grace_ms.map(Time);
    };
    /// Batch size, for the history of the program's needs.
    batch: Option<u32> => {
        /// Batch size.
        batch_size: Option<u32>, "--batch-size", |spec| spec.batch, |asked| asked.batch_size.map(Count);
    };
    /// Standard output; `None` is a file in the daemon's care.
    #[serde(with = "words::some_path")]
    output: Option<PathBuf>;
    /// Standard error; `None` goes where standard output goes.
    #[serde(with = "words::some_path")]
    error: Option<PathBuf>;
    /// It does not start until it is released.
    held: bool;
    /// The loader that it shares with other jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    loader: Option<Loader>;
    /// Jobs that have to end before it may start.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    after: Vec<After> => {
        /// Jobs that it waits for, as `any:12` or `ok:12_3`.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        after: Vec<String>, "--after",
            |spec| spec.after.iter().map(ToString::to_string).collect(),
            |asked| (!asked.after.is_empty()).then(|| Texts(asked.after.clone()));
    };
    /// It is submitted once for each index.
    #[serde(skip_serializing_if = "Option::is_none")]
    array: Option<Array>;
    /// Its place in an array, which the daemon gives it.
    #[serde(skip_serializing_if = "Option::is_none")]
    task: Option<ArrayTask>;
    /// Its place in a group of jobs that start together, which the daemon gives it.
    #[serde(skip_serializing_if = "Option::is_none")]
    together: Option<Place>;
}

impl Asked {
    /// Memory to reserve on each GPU by these requests, bytes.
    #[must_use]
    pub fn memory(&self) -> Option<u64> {
        self.gpu_mem_upper.max(self.gpu_mem).or(self.gpu_mem_estimate)
    }
}
