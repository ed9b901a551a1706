//! Figures that a process's Python side left: one file of JSON.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::Path;

use radrm_profile::model::{TensorCategory, TensorMoment, TensorStack};
use serde::Deserialize;

/// Files that are read: one for each process.
const FILES: usize = 512;
/// Bytes of one file: 4096 rows of 64 frames, with names.
const MAX_BYTES: u64 = 32 << 20;

/// Record of one process.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
pub struct Figures {
    /// Framework and version.
    pub framework: String,
    /// Reason that there are no figures, as a clause.
    #[serde(default)]
    pub missing: Option<String>,
    /// Notes for the reader, as clauses.
    #[serde(default)]
    pub remarks: Vec<String>,
    /// By device.
    #[serde(default)]
    pub devices: Vec<Device>,
}

/// Category, number of the module or -1, frames as numbers of code and line, bytes, blocks, whose stack it is.
type Row = (TensorCategory, i64, Vec<(u32, u32)>, u64, u64, TensorStack);

/// Holders of the memory of one device.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
pub struct Device {
    /// UUID, without its prefix; empty if the framework does not say.
    pub uuid: String,
    /// Moment of the figures.
    #[serde(default)]
    pub moment: TensorMoment,
    /// Bytes in use.
    pub allocated: u64,
    /// Bytes that the allocator held.
    pub reserved: u64,
    /// The allocator's own peak, where the figures are of another moment.
    #[serde(default)]
    pub peak: Option<u64>,
    /// Files and names of functions.
    pub codes: Vec<(String, String)>,
    /// Classes of models, and paths in them.
    pub modules: Vec<(String, String)>,
    /// Category, number of the module or -1, frames (number of the function and line, innermost first), bytes,
    /// blocks and whose stack it is.
    pub rows: Vec<Row>,
}

/// The files of a folder, by process. What cannot be read is left out.
pub fn read(folder: &Path) -> BTreeMap<u32, Figures> {
    let Ok(entries) = fs::read_dir(folder) else { return BTreeMap::new() };
    let of_process = |path: &Path| -> Option<(u32, Figures)> {
        let pid = path.file_name()?.to_str()?.strip_suffix(".json")?.parse().ok()?;
        let mut text = Vec::new();
        fs::File::open(path).ok()?.take(MAX_BYTES).read_to_end(&mut text).ok()?;
        Some((pid, serde_json::from_slice(&text).ok()?))
    };
    entries.flatten().filter_map(|entry| of_process(&entry.path())).take(FILES).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_by_process_and_broken_ones_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let text = r#"{"framework":"PyTorch 2.15.0","missing":null,"remarks":[],"devices":[{"device":0,"uuid":"u",
            "allocated":512,"reserved":2048,"codes":[["/a.py","f"]],"modules":[["Net","a.b"]],
            "rows":[["optimizer_state",0,[[0,7]],512,1,"equal_step"]]}]}"#;
        fs::write(folder.path().join("7.json"), text).unwrap();
        fs::write(folder.path().join("8.json"), &text[..40]).unwrap();
        fs::write(folder.path().join("9.json.new"), text).unwrap();
        let found = read(folder.path());
        assert_eq!(found.keys().collect::<Vec<_>>(), [&7]);
        let row = &found[&7].devices[0].rows[0];
        assert_eq!(row, &(TensorCategory::OptimizerState, 0, vec![(0, 7)], 512, 1, TensorStack::EqualStep));
        assert_eq!(read(&folder.path().join("none")), BTreeMap::new());
    }
}
