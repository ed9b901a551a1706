//! The kernels of a job: those of all processes, merged by name.

use crate::names;
use crate::summary::KernelSummary;
use radrm_profile::Bytes;
use radrm_profile::model::Profile;
use std::collections::HashMap;

/// All kernels, most launches first.
pub(crate) fn merged(profile: &Profile) -> Vec<KernelSummary> {
    let mut by_name: HashMap<&str, KernelSummary> = HashMap::new();
    let mut sums: HashMap<&str, Sums> = HashMap::new();
    for process in &profile.processes {
        for kernel in &process.kernels {
            if kernel.all_launches() == 0 {
                continue;
            }
            let name = if kernel.name.is_empty() { "(unknown)" } else { kernel.name.as_str() };
            let summary = by_name.entry(name).or_default();
            summary.launches = summary.launches.saturating_add(kernel.launches);
            summary.graph_launches = summary.graph_launches.saturating_add(kernel.graph_launches);
            summary.blocks = summary.blocks.saturating_add(kernel.blocks);
            summary.threads = summary.threads.saturating_add(kernel.threads);
            summary.registers = summary.registers.max(kernel.registers);
            summary.static_shared_bytes = summary.static_shared_bytes.max(kernel.static_shared);
            summary.local_bytes = summary.local_bytes.max(kernel.local);
            summary.max_threads_per_block = summary.max_threads_per_block.max(kernel.max_threads);
            summary.name_cut |= kernel.name_cut;
            summary.processes += 1;
            sums.entry(name).or_default().dynamic_shared += u128::from(kernel.dynamic_shared.0);
        }
    }
    let mut kernels: Vec<_> = by_name
        .into_iter()
        .map(|(name, mut summary)| {
            let launches = summary.launches.saturating_add(summary.graph_launches);
            summary.name = names::demangle(name);
            summary.mangled_name = name.to_owned();
            // A name that was not mangled is the programmer's own: shown whole.
            summary.short_name =
                if summary.name == name { name.to_owned() } else { names::readable(&summary.name) };
            summary.mean_blocks = ratio(summary.blocks, launches);
            summary.mean_threads_per_block = ratio(summary.threads, summary.blocks);
            let dynamic = sums.get(name).map_or(0, |sums| sums.dynamic_shared);
            summary.mean_dynamic_shared_bytes =
                Bytes(u64::try_from(dynamic / u128::from(launches.max(1))).unwrap_or(u64::MAX));
            summary
        })
        .collect();
    kernels.sort_by(|a, b| {
        (b.launches.saturating_add(b.graph_launches), &a.mangled_name)
            .cmp(&(a.launches.saturating_add(a.graph_launches), &b.mangled_name))
    });
    kernels
}

#[derive(Default)]
struct Sums {
    dynamic_shared: u128,
}

fn ratio(a: u64, b: u64) -> f64 {
    if b == 0 { 0.0 } else { a as f64 / b as f64 }
}
