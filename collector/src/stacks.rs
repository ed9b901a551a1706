//! Call stacks, from a snapshot to the profile.

use radrm_profile::model::{GpuIndex, ProcessKey, Site, StackCode, StackFrame, StackModule, Stacks};
use radrm_profile::{Bytes, Nanos};
use radrm_telemetry::{Frame, SiteSnapshot, StackSnapshot};
use std::collections::{BTreeMap, BTreeSet};

/// Age at which a process's call stacks are written for the first time, if it has not ended before.
pub(crate) const FIRST: Nanos = Nanos::from_secs(5);

/// When they are written next: when the process is twice as old.
pub(crate) fn next(seen: Nanos, now: Nanos) -> Nanos {
    now + now.minus(seen).max(FIRST)
}

/// The call stacks of a process. Modules in which no frame lies lose their texts; numbers stay.
pub(crate) fn stacks(key: ProcessKey, found: &StackSnapshot) -> Stacks {
    let native = |frame: &Frame| match frame {
        Frame::Native { module, .. } => Some(usize::from(*module)),
        _ => None,
    };
    let used: BTreeSet<usize> =
        found.sites.iter().flat_map(|site| site.frames.iter().filter_map(native)).collect();
    let modules = found.modules.iter().enumerate().map(|(number, module)| match used.contains(&number) {
        true => StackModule { path: module.path.clone(), build_id: module.build_id.clone() },
        false => StackModule::default(),
    });
    let codes = found.codes.iter().map(|code| StackCode { file: code.file.clone(), name: code.name.clone() });
    // The same stack was entered twice where a library was loaded in between.
    let mut sites = BTreeMap::<(u8, u8, Vec<StackFrame>), Site>::new();
    for from in &found.sites {
        let next = site(from);
        let known = sites.entry((next.gpu.0, next.kind, next.frames.clone())).or_insert_with(|| Site {
            gpu: next.gpu,
            kind: next.kind,
            frames: next.frames.clone(),
            ..Site::default()
        });
        known.held = Bytes(known.held.0.saturating_add(next.held.0));
        known.at_peak = Bytes(known.at_peak.0.saturating_add(next.at_peak.0));
        known.allocations = known.allocations.saturating_add(next.allocations);
        known.refused = known.refused.saturating_add(next.refused);
        known.refused_size = known.refused_size.max(next.refused_size);
    }
    Stacks {
        key,
        modules: modules.collect(),
        codes: codes.collect(),
        sites: sites.into_values().collect(),
        full: found.full,
        unread: found.unread,
        unordered: found.unordered,
        symbols: BTreeMap::new(),
    }
}

fn site(site: &SiteSnapshot) -> Site {
    Site {
        gpu: GpuIndex(site.gpu.number()),
        kind: site.kind as u8,
        frames: site.frames.iter().map(frame).collect(),
        held: Bytes(site.live),
        at_peak: Bytes(site.at_peak),
        allocations: site.allocs,
        refused: site.refused,
        refused_size: Bytes(site.refused_bytes),
    }
}

fn frame(frame: &Frame) -> StackFrame {
    match *frame {
        Frame::Native { module, offset } => StackFrame::Native { module: module.into(), offset },
        Frame::Unmapped(address) => StackFrame::Unmapped(address),
        Frame::Code { code, line, is_entry } => StackFrame::Code { code, line, is_entry },
        Frame::Cut => StackFrame::Cut,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use radrm_telemetry::{GpuIndex as Gpu, Kind, SiteId};

    #[test]
    fn one_stack_that_was_entered_twice_is_one_site() {
        let site = |module, live| SiteSnapshot {
            id: SiteId::NONE,
            gpu: Gpu::from_number(1).unwrap(),
            kind: Kind::Vmm,
            frames: vec![Frame::Native { module, offset: 16 }, Frame::Cut],
            live,
            at_peak: live * 2,
            allocs: 1,
            refused: 0,
            refused_bytes: 0,
        };
        let module = |path: &str| radrm_telemetry::StackModule { path: path.into(), build_id: vec![1] };
        let found = StackSnapshot {
            modules: vec![module("/a"), module("/b"), module("/c")],
            sites: vec![site(0, 5), site(2, 7), site(0, 30)],
            ..StackSnapshot::default()
        };
        let got = stacks(ProcessKey::default(), &found);
        let held: Vec<u64> = got.sites.iter().map(|site| site.held.0).collect();
        assert_eq!(held, [35, 7]);
        assert_eq!(got.sites[0].at_peak, Bytes(70));
        let paths: Vec<&str> = got.modules.iter().map(|module| module.path.as_str()).collect();
        assert_eq!(paths, ["/a", "", "/c"]);
    }

    #[test]
    fn records_become_rarer() {
        let mut now = Nanos::ZERO + FIRST;
        let mut records = 0;
        while now < Nanos::from_secs(86_400) {
            now = next(Nanos::ZERO, now);
            records += 1;
        }
        assert!(records < 20, "{records}");
    }
}
