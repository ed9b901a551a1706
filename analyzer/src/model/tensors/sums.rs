//! Sums of tensors by category, module and line.

use super::flames::{lines, module};
use crate::model::stacks::site_of;
use radrm_profile::Bytes;
use radrm_profile::model::{GpuTensors, Process, Profile, TensorCategory, TensorMoment, TensorStack};
use serde::Serialize;
use std::collections::BTreeMap;

/// Modules and lines that the JSON report lists of each process and GPU.
const LISTED: usize = 200;

/// Memory holders in a framework's allocator, in one process.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TensorsSummary {
    /// The process.
    pub pid: u32,
    /// Framework and version; empty if none was seen.
    pub framework: String,
    /// Reason that only the driver's allocations are known, as a clause; null if tensors were recorded.
    pub missing: Option<String>,
    /// Warnings about the figures, as clauses.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
    /// By GPU.
    pub gpus: Vec<GpuTensorsSummary>,
}

/// Memory holders in a framework's allocator, on one GPU.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GpuTensorsSummary {
    /// The GPU.
    pub gpu: u8,
    /// Moment of the figures: `peak`, `end` or `largest_read`.
    /// `peak`: that of the allocator's blocks in use. `end`: the end of the program. `largest_read`: the largest of the
    /// moments that were read, of a framework that keeps no history, or if the recording was paused at the peak.
    pub moment: TensorMoment,
    /// The allocator's own peak where `moment` is another one; null if it has none.
    pub peak_bytes: Option<Bytes>,
    /// Bytes of the allocator's blocks in use: the sum of `categories`, and that of all modules, and that of all lines.
    pub allocated_bytes: Bytes,
    /// Bytes that the allocator held at that moment and that were in no use.
    pub cached_bytes: Bytes,
    /// Bytes by whose stack they have: that of their `own` request, of a block of the same address and size in an
    /// `equal_step` that was recorded, or none (`not_recorded`). Their sum is `allocated_bytes`.
    pub stacks: BTreeMap<TensorStack, Bytes>,
    /// Largest first.
    pub categories: Vec<CategorySummary>,
    /// Largest first.
    pub modules: Vec<ModuleSummary>,
    /// Modules that are not listed.
    pub modules_not_listed: u64,
    /// Largest first.
    pub lines: Vec<TensorLineSummary>,
    /// Lines that are not listed.
    pub lines_not_listed: u64,
}

/// Memory of one category.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct CategorySummary {
    /// Category of its content.
    pub category: TensorCategory,
    /// Bytes, with what the allocator rounded up.
    pub bytes: Bytes,
    /// Blocks of the allocator.
    pub blocks: u64,
}

/// Memory of one module, without that of the modules in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ModuleSummary {
    /// Class of the outermost module.
    pub model: String,
    /// Path in it, as `named_modules` gives it: empty is the outermost module, null is outside of all modules.
    pub module: Option<String>,
    /// Bytes.
    pub bytes: Bytes,
    /// Bytes by category.
    pub categories: BTreeMap<TensorCategory, Bytes>,
}

/// Memory that was asked for in one line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TensorLineSummary {
    /// The innermost frame of the program's own code.
    pub site: String,
    /// Bytes.
    pub bytes: Bytes,
    /// Bytes by category.
    pub categories: BTreeMap<TensorCategory, Bytes>,
    /// The stack that held most of it, outermost first.
    pub stack: Vec<String>,
}

impl GpuTensorsSummary {
    /// Returns true if modules of more than one model hold memory: their paths may be the same.
    #[must_use]
    pub fn has_several_models(&self) -> bool {
        let mut models = self
            .modules
            .iter()
            .filter(|of| of.module.as_ref().is_some_and(|path| !path.is_empty()))
            .map(|of| &of.model);
        models.next().is_some_and(|first| models.any(|other| other != first))
    }
}

/// Sums of each process.
pub(in crate::model) fn summaries(profile: &Profile) -> Vec<TensorsSummary> {
    let summary = |process: &Process| {
        let tensors = process.tensors.as_ref()?;
        Some(TensorsSummary {
            pid: process.identity.pid,
            framework: tensors.framework.clone(),
            missing: tensors.missing.clone(),
            remarks: tensors.remarks.clone(),
            gpus: tensors.gpus.iter().map(gpu).collect(),
        })
    };
    profile.processes.iter().filter_map(summary).collect()
}

/// A sum by category.
#[derive(Default)]
struct Sum {
    bytes: u64,
    categories: BTreeMap<TensorCategory, Bytes>,
    /// The largest part, and its stack.
    largest: (u64, Vec<String>),
}

impl Sum {
    fn add(&mut self, category: TensorCategory, bytes: Bytes) {
        self.bytes = self.bytes.saturating_add(bytes.0);
        let of = self.categories.entry(category).or_default();
        *of = Bytes(of.0.saturating_add(bytes.0));
    }
}

fn gpu(of: &GpuTensors) -> GpuTensorsSummary {
    let mut categories = BTreeMap::<TensorCategory, (u64, u64)>::new();
    let mut modules = BTreeMap::<Option<(&str, &str)>, Sum>::new();
    let mut by_line = BTreeMap::<String, Sum>::new();
    let mut stacks = BTreeMap::<TensorStack, Bytes>::new();
    for holder in &of.holders {
        let with_stack = stacks.entry(holder.stack).or_default();
        *with_stack = Bytes(with_stack.0.saturating_add(holder.bytes.0));
        let category = categories.entry(holder.category).or_default();
        category.0 = category.0.saturating_add(holder.bytes.0);
        category.1 = category.1.saturating_add(holder.blocks);
        let module = module(of, holder).map(|module| (module.model.as_str(), module.path.as_str()));
        modules.entry(module).or_default().add(holder.category, holder.bytes);
        let frames = lines(of, holder, false);
        let line = by_line.entry(site_of(&frames)).or_default();
        line.add(holder.category, holder.bytes);
        if holder.bytes.0 > line.largest.0 || line.largest.1.is_empty() {
            line.largest = (holder.bytes.0, frames.iter().map(ToString::to_string).collect());
        }
    }
    let mut categories: Vec<CategorySummary> = categories
        .into_iter()
        .map(|(category, (bytes, blocks))| CategorySummary { category, bytes: Bytes(bytes), blocks })
        .collect();
    categories.sort_by_key(|of| std::cmp::Reverse(of.bytes));
    let mut modules: Vec<ModuleSummary> = modules
        .into_iter()
        .map(|(module, sum)| ModuleSummary {
            model: module.map_or_else(String::new, |module| module.0.to_owned()),
            module: module.map(|module| module.1.to_owned()),
            bytes: Bytes(sum.bytes),
            categories: sum.categories,
        })
        .collect();
    modules.sort_by_key(|of| std::cmp::Reverse(of.bytes));
    let mut lines: Vec<TensorLineSummary> = by_line
        .into_iter()
        .map(|(site, sum)| TensorLineSummary {
            site,
            bytes: Bytes(sum.bytes),
            categories: sum.categories,
            stack: sum.largest.1,
        })
        .collect();
    lines.sort_by_key(|of| std::cmp::Reverse(of.bytes));
    let not_listed = |all: usize| all.saturating_sub(LISTED) as u64;
    let (modules_not_listed, lines_not_listed) = (not_listed(modules.len()), not_listed(lines.len()));
    modules.truncate(LISTED);
    lines.truncate(LISTED);
    GpuTensorsSummary {
        gpu: of.gpu.0,
        moment: of.moment,
        peak_bytes: of.peak,
        allocated_bytes: of.allocated,
        cached_bytes: of.cached,
        stacks,
        categories,
        modules,
        modules_not_listed,
        lines,
        lines_not_listed,
    }
}

impl GpuTensorsSummary {
    /// Bytes as a share of all that is in use, in words.
    pub fn share(&self, bytes: Bytes) -> String {
        format!("{:.1} %", bytes.0 as f64 / self.allocated_bytes.0.max(1) as f64 * 100.0)
    }

    /// The allocator's own peak, in words.
    fn of_peak(&self) -> String {
        self.peak_bytes.map_or_else(String::new, |peak| format!(" (the peak was {peak})"))
    }

    /// Moment and size of the figures, in words.
    pub fn title(&self) -> String {
        let is_arrays = self.categories.iter().any(|of| of.category == TensorCategory::Arrays);
        let what = if is_arrays { "arrays" } else { "tensors" };
        match self.moment {
            TensorMoment::Peak => format!("tensors at their peak of {}", self.allocated_bytes),
            TensorMoment::End => format!("{what} at the end: {}{}", self.allocated_bytes, self.of_peak()),
            TensorMoment::LargestRead => {
                format!("{what} when most was seen: {}{}", self.allocated_bytes, self.of_peak())
            }
        }
    }

    /// Origin of the stacks of the lines, as a sentence; `None` if nothing was held.
    pub fn whose_stacks(&self) -> Option<String> {
        let part = |(stack, bytes): (&TensorStack, &Bytes)| match stack {
            TensorStack::Own => format!("{bytes} of their own requests"),
            TensorStack::EqualStep => format!("{bytes} of equal blocks of an earlier step"),
            TensorStack::NotRecorded => format!("{bytes} not recorded"),
        };
        let parts: Vec<String> = self.stacks.iter().map(part).collect();
        (!parts.is_empty()).then(|| format!("stacks: {}", parts.join(", ")))
    }
}

/// A module as reports show it: with its model where there are several.
pub fn module_label(module: &ModuleSummary, has_several_models: bool) -> String {
    match module.module.as_deref() {
        None => "[outside of modules]".to_owned(),
        Some("") => format!("{} itself", module.model),
        Some(path) if has_several_models => format!("{}: {path}", module.model),
        Some(path) => path.to_owned(),
    }
}

/// Categories of a sum, largest first, in words.
pub(crate) fn parts(categories: &BTreeMap<TensorCategory, Bytes>) -> String {
    let mut parts: Vec<_> = categories.iter().filter(|(_, bytes)| !bytes.is_zero()).collect();
    parts.sort_by_key(|(_, bytes)| std::cmp::Reverse(**bytes));
    match parts[..] {
        [(only, _)] => only.label().to_owned(),
        _ => parts
            .iter()
            .map(|(category, bytes)| format!("{} {bytes}", category.label()))
            .collect::<Vec<_>>()
            .join(", "),
    }
}
