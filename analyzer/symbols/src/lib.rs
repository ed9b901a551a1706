//! Names of native frames, from the files that they lie in.
//!
//! A profile keeps addresses and the build ids of the files. Names are found when a report is made, so that recording
//! costs the program nothing and debug information may be installed later. A file whose build id is another one
//! gives no names: they would be wrong.

mod file;

use radrm_profile::model::{Profile, StackFrame, Stacks, Symbol};
use std::collections::{BTreeMap, BTreeSet};

pub use file::SymbolFile;

/// Finds the names of all native frames of a profile whose files are here. Reads these files.
pub fn fill(profile: &mut Profile) {
    // Several processes of a job run the same files.
    let mut files = BTreeMap::<(String, Vec<u8>), Option<SymbolFile>>::new();
    for stacks in profile.processes.iter_mut().filter_map(|process| process.stacks.as_mut()) {
        stacks.symbols = symbols(stacks, &mut files);
    }
}

fn symbols(
    stacks: &Stacks,
    files: &mut BTreeMap<(String, Vec<u8>), Option<SymbolFile>>,
) -> BTreeMap<(u32, u64), Vec<Symbol>> {
    let native = |frame: &StackFrame| match *frame {
        StackFrame::Native { module, offset } => Some((module, offset)),
        _ => None,
    };
    let frames: BTreeSet<(u32, u64)> =
        stacks.sites.iter().flat_map(|site| site.frames.iter().filter_map(native)).collect();
    let mut found = BTreeMap::new();
    for (module, offset) in frames {
        let Some(from) = stacks.modules.get(module as usize).filter(|from| !from.path.is_empty()) else {
            continue;
        };
        let key = (from.path.clone(), from.build_id.clone());
        let file = files.entry(key).or_insert_with(|| SymbolFile::open(&from.path, &from.build_id));
        let names = file.as_ref().map(|file| file.names(offset)).unwrap_or_default();
        if !names.is_empty() {
            found.insert((module, offset), names);
        }
    }
    found
}
