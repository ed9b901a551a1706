//! Kernels of a run in a profiler's file that was imported: which is which, and what is in only one of them.

mod name;

use name::Name;
use radrm_profile::model::{KernelMetrics, Profile, ProfiledKernel};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};

/// Way in which a kernel was matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FoundBy {
    /// By its whole name, as the driver reports it.
    Name,
    /// By namespaces, name and template arguments.
    Signature,
    /// By the function's name alone: the file has no more, or the run's name was cut, or there is one such kernel on each
    /// side.
    Function,
}

/// A kernel of the run with its metrics.
#[derive(Clone, Debug)]
struct Found {
    by: FoundBy,
    /// Means over all kernels of the file that it stands for.
    metrics: BTreeMap<String, f64>,
}

/// The kernels of a run that were found in the file.
#[derive(Clone, Debug)]
pub(crate) struct Profiled<'a> {
    pub(crate) imported: &'a KernelMetrics,
    /// By the name that the driver reports.
    found: HashMap<&'a str, Found>,
    /// Kernels of the file that no kernel of the run is.
    unused: Vec<usize>,
}

impl<'a> Profiled<'a> {
    /// `None` if nothing was imported.
    pub(crate) fn of(profile: &'a Profile) -> Option<Self> {
        let imported = profile.kernel_metrics.as_ref()?;
        let mut run: BTreeMap<&str, bool> = BTreeMap::new();
        let kernels = profile.processes.iter().flat_map(|process| &process.kernels);
        for kernel in kernels.filter(|kernel| kernel.all_launches() > 0 && !kernel.name.is_empty()) {
            *run.entry(&kernel.name).or_default() |= kernel.name_cut;
        }
        Some(matched(imported, run))
    }

    /// A metric of a kernel.
    pub(crate) fn metric(&self, kernel: &str, metric: &str) -> Option<f64> {
        self.found.get(kernel)?.metrics.get(metric).copied()
    }
}

fn matched<'a>(imported: &'a KernelMetrics, run: BTreeMap<&'a str, bool>) -> Profiled<'a> {
    let file: Vec<Name> = imported.kernels.iter().map(|kernel| Name::of(&kernel.name, false)).collect();
    let mut wholes: HashMap<&str, Vec<usize>> = HashMap::new();
    let mut signatures: HashMap<&str, Vec<usize>> = HashMap::new();
    for (at, name) in file.iter().enumerate() {
        wholes.entry(&name.whole).or_default().push(at);
        if let Some(signature) = &name.signature {
            signatures.entry(signature).or_default().push(at);
        }
    }
    let mut is_used = vec![false; file.len()];
    let mut found = HashMap::new();
    let mut left: BTreeMap<String, Vec<(&str, Name)>> = BTreeMap::new();
    for (mangled, cut) in run {
        let name = Name::of(mangled, cut);
        let begins = |at: &usize| cut && file[*at].whole.starts_with(&name.whole);
        let beginning: Vec<usize> = (0..file.len()).filter(begins).collect();
        let by_whole = wholes.get(name.whole.as_str()).or(Some(&beginning).filter(|all| !all.is_empty()));
        let by_signature = name.signature.as_deref().and_then(|signature| signatures.get(signature));
        let both =
            by_whole.map(|all| (FoundBy::Name, all)).or(by_signature.map(|all| (FoundBy::Signature, all)));
        match both {
            Some((by, all)) => {
                all.iter().for_each(|at| is_used[*at] = true);
                found.insert(mangled, Found { by, metrics: merged(imported, all) });
            }
            None => left.entry(name.function.clone()).or_default().push((mangled, name)),
        }
    }
    for (function, kernels) in left {
        let of_function = |at: &usize| file[*at].function == function;
        let bare: Vec<usize> =
            (0..file.len()).filter(of_function).filter(|at| file[*at].signature.is_none()).collect();
        let unused: Vec<usize> = (0..file.len()).filter(of_function).filter(|at| !is_used[*at]).collect();
        let is_single = kernels.len() == 1 && unused.len() == 1;
        for (mangled, name) in kernels {
            let all = if !bare.is_empty() {
                &bare
            } else if name.signature.is_none() || is_single {
                &unused
            } else {
                continue;
            };
            if !all.is_empty() {
                all.iter().for_each(|at| is_used[*at] = true);
                found.insert(mangled, Found { by: FoundBy::Function, metrics: merged(imported, all) });
            }
        }
    }
    let unused = (0..file.len()).filter(|at| !is_used[*at]).collect();
    Profiled { imported, found, unused }
}

/// Means over several kernels of the file, by their launches and how long these took.
fn merged(imported: &KernelMetrics, all: &[usize]) -> BTreeMap<String, f64> {
    let kernels: Vec<&ProfiledKernel> = all.iter().map(|at| &imported.kernels[*at]).collect();
    let mut sums: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
    let timed = kernels.iter().all(|kernel| kernel.metrics.contains_key(DURATION));
    for kernel in &kernels {
        let launches = kernel.launches.max(1) as f64;
        let time = kernel.metrics.get(DURATION).copied().filter(|time| timed && *time > 0.0).unwrap_or(1.0);
        for (metric, value) in &kernel.metrics {
            let weight = if metric == DURATION { launches } else { launches * time };
            let sum = sums.entry(metric).or_default();
            *sum = (sum.0 + value * weight, sum.1 + weight);
        }
    }
    sums.into_iter().map(|(metric, (sum, weight))| (metric.to_owned(), sum / weight)).collect()
}

/// Metric name: duration of a launch under the profiler, ns.
pub(crate) const DURATION: &str = "duration_ns";

/// Kernels of a run that an imported file contains, and those that it does not.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ImportSummary {
    /// The profiler.
    pub tool: String,
    /// The file.
    pub file: String,
    /// Kernels of the run.
    pub kernels: u64,
    /// Kernels that were found, each with the way in which it was matched.
    pub found: Vec<FoundKernel>,
    /// The others, those launched most first.
    pub missing: Vec<MissingKernel>,
    /// Kernels of the file that the run never launched.
    pub never_launched: Vec<String>,
    /// Part of the run's launches whose kernels were found, 0 to 1.
    pub launches_share: f64,
    /// Part of the run's GPU time likewise; null where no launch was timed.
    pub time_share: Option<f64>,
}

/// A kernel that was found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FoundKernel {
    /// Name in the source language.
    pub name: String,
    /// Way in which it was matched.
    pub by: FoundBy,
    /// Its part of the run's launches.
    pub launches_share: f64,
    /// Means of its metrics; per cent, nanoseconds and bytes a second.
    pub metrics: BTreeMap<String, f64>,
}

/// A kernel that was not.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MissingKernel {
    /// Name in the source language.
    pub name: String,
    /// Its part of the run's launches.
    pub launches_share: f64,
}

impl ImportSummary {
    /// `None` if nothing was imported.
    #[must_use]
    pub fn of(profile: &Profile) -> Option<Self> {
        let profiled = Profiled::of(profile)?;
        let imported = profiled.imported;
        let kernels = super::kernels::merged(profile);
        let launches =
            |kernel: &super::KernelSummary| kernel.launches.saturating_add(kernel.graph_launches) as f64;
        let all: f64 = kernels.iter().map(launches).sum();
        let time = |kernel: &super::KernelSummary| kernel.gpu_time.map_or(0.0, |time| time.total_ns.0 as f64);
        let all_time: f64 = kernels.iter().map(time).sum();
        let mut summary = ImportSummary {
            tool: imported.tool.clone(),
            file: imported.file.clone(),
            kernels: kernels.len() as u64,
            never_launched: profiled.unused.iter().map(|at| imported.kernels[*at].name.clone()).collect(),
            ..ImportSummary::default()
        };
        let mut found_time = 0.0;
        for kernel in &kernels {
            let launches_share = launches(kernel) / all;
            let name = kernel.name.clone();
            match profiled.found.get(kernel.mangled_name.as_str()) {
                Some(found) => {
                    found_time += time(kernel);
                    summary.launches_share += launches_share;
                    let (by, metrics) = (found.by, found.metrics.clone());
                    summary.found.push(FoundKernel { name, by, launches_share, metrics });
                }
                None => summary.missing.push(MissingKernel { name, launches_share }),
            }
        }
        summary.time_share = (all_time > 0.0).then(|| found_time / all_time);
        summary.missing.sort_by(|a, b| b.launches_share.total_cmp(&a.launches_share));
        Some(summary)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use radrm_profile::model::{Job, Kernel, Process};

    fn profile(run: &[(&str, u64, bool)], file: &[(&str, u64, f64)]) -> Profile {
        let kernel = |(id, (name, launches, cut)): (usize, &(&str, u64, bool))| Kernel {
            id: id as u32,
            name: (*name).to_owned(),
            name_cut: *cut,
            launches: *launches,
            ..Kernel::default()
        };
        let kernels = run.iter().enumerate().map(kernel).collect();
        let mut profile = Profile::new(Job::default());
        profile.processes = vec![Process { kernels, ..Process::default() }];
        let profiled = |(name, launches, value): &(&str, u64, f64)| ProfiledKernel {
            name: (*name).to_owned(),
            launches: *launches,
            metrics: BTreeMap::from([("l2_throughput".to_owned(), *value)]),
        };
        let kernels = file.iter().map(profiled).collect();
        profile.kernel_metrics = Some(KernelMetrics { kernels, ..KernelMetrics::default() });
        profile
    }

    const FILL: &str = "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEEEEviT0_";
    const ADD: &str = "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_addIfEEEEviT0_";
    const NVIDIA_FILL: &str =
        "void at::native::vectorized_elementwise_kernel<(int)4, at::native::FillFunctor<float>>(int, T2)";

    fn values(profile: &Profile) -> Vec<(FoundBy, f64)> {
        let profiled = Profiled::of(profile).unwrap();
        let kernels = &profile.processes[0].kernels;
        let found = |kernel: &Kernel| {
            profiled.found.get(kernel.name.as_str()).map(|f| (f.by, f.metrics["l2_throughput"]))
        };
        kernels.iter().filter_map(found).collect()
    }

    #[test]
    fn a_kernel_is_found_by_the_most_that_its_names_share() {
        let run = [("square", 3, false), (FILL, 5, false), (ADD, 2, false)];
        let file = [("square", 1, 10.0), (NVIDIA_FILL, 1, 20.0), (ADD, 1, 30.0), ("other(int)", 1, 40.0)];
        let profile = profile(&run, &file);
        assert_eq!(
            values(&profile),
            [(FoundBy::Name, 10.0), (FoundBy::Signature, 20.0), (FoundBy::Name, 30.0)]
        );
        let summary = ImportSummary::of(&profile).unwrap();
        assert_eq!(summary.never_launched, ["other(int)"]);
        assert_eq!((summary.launches_share, summary.missing.len(), summary.time_share), (1.0, 0, None));
    }

    #[test]
    fn the_functions_name_alone_stands_for_all_its_kernels() {
        let run = [(FILL, 5, false), (ADD, 2, false)];
        let bare = profile(&run, &[("vectorized_elementwise_kernel", 4, 20.0)]);
        assert_eq!(values(&bare), [(FoundBy::Function, 20.0), (FoundBy::Function, 20.0)]);
    }

    #[test]
    fn of_two_kernels_of_one_function_none_is_guessed() {
        let file = [(NVIDIA_FILL, 1, 20.0)];
        let profile = profile(&[(FILL, 6, false), (ADD, 2, false)], &file);
        assert_eq!(values(&profile), [(FoundBy::Signature, 20.0)]);
        let summary = ImportSummary::of(&profile).unwrap();
        assert!(summary.missing[0].name.contains("CUDAFunctor_add"), "{:?}", summary.missing);
        assert_eq!((summary.missing[0].launches_share, summary.launches_share), (0.25, 0.75));
        // One on each side, spelled in a way that is not known.
        let other = "void at::native::vectorized_elementwise_kernel<int4_t>(int)";
        assert_eq!(
            values(&self::profile(&[(ADD, 2, false)], &[(other, 1, 7.0)])),
            [(FoundBy::Function, 7.0)]
        );
        let two = [(other, 1, 7.0), (NVIDIA_FILL, 1, 9.0)];
        assert_eq!(values(&self::profile(&[(ADD, 2, false)], &two)), []);
    }

    #[test]
    fn a_cut_name_is_found_by_its_beginning_or_its_function() {
        let cut = &ADD[..60];
        assert_eq!(
            values(&profile(&[(cut, 1, true)], &[(ADD, 1, 30.0), (FILL, 1, 9.0)])),
            [(FoundBy::Name, 30.0)]
        );
        let file = [(NVIDIA_FILL, 1, 20.0), ("void g<int>(T1)", 3, 1.0)];
        assert_eq!(values(&profile(&[(cut, 1, true)], &file)), [(FoundBy::Function, 20.0)]);
    }

    #[test]
    fn nothing_imported_finds_nothing() {
        assert_eq!(ImportSummary::of(&Profile::new(Job::default())), None);
    }
}
