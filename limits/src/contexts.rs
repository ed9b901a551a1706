//! Store of what the driver takes for a process: so that the next job's estimate is right from the start.
//!
//! A context, loaded code and what libraries take behind the driver's back are not in any call. They
//! depend mostly on the GPU's model and the driver's version, and that is what a figure is kept for.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Figures are bytes that the driver took for one process on one GPU.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Contexts {
    /// By model and driver version.
    #[serde(default)]
    context: BTreeMap<String, BTreeMap<String, u64>>,
    #[serde(skip)]
    path: Option<PathBuf>,
}

/// Models and drivers that are kept: more are a sign of something gone wrong.
const MAX_ENTRIES: usize = 256;

impl Contexts {
    /// The user's figures. Those of emulated GPUs are kept apart: a model's name says nothing of
    /// whether it was measured.
    #[must_use]
    pub fn load(emulated: bool) -> Self {
        let name = if emulated { "contexts-emulated.toml" } else { "contexts.toml" };
        let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let data = set("XDG_DATA_HOME")
            .filter(|path| path.is_absolute())
            .or_else(|| set("HOME").map(|home| home.join(".local/share")));
        data.map_or_else(Self::default, |data| Self::load_from(&data.join("radrm").join(name)))
    }

    /// Reads the figures in a file; none if it is absent or damaged.
    #[must_use]
    pub fn load_from(path: &Path) -> Self {
        let text = fs::read_to_string(path).unwrap_or_default();
        let known: Self = toml::from_str(&text).unwrap_or_default();
        Self { path: Some(path.to_owned()), ..known }
    }

    /// Returns true if nothing is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.context.is_empty()
    }

    /// Known figure of a GPU model with a driver, bytes.
    #[must_use]
    pub fn get(&self, model: &str, driver: &str) -> Option<u64> {
        self.context.get(model)?.get(driver).copied()
    }

    /// Largest known figure of each GPU model, bytes.
    #[must_use]
    pub fn by_model(&self) -> BTreeMap<String, u64> {
        let largest = |(model, drivers): (&String, &BTreeMap<String, u64>)| {
            Some((model.clone(), drivers.values().copied().max()?))
        };
        self.context.iter().filter_map(largest).collect()
    }

    /// Takes down a measurement. The smallest stands: what a process needs beyond a bare context
    /// (its code, its libraries' buffers) is its own, and is measured again for each.
    pub fn learn(&mut self, model: &str, driver: &str, bytes: u64) {
        if model.is_empty() || driver.is_empty() || bytes == 0 {
            return;
        }
        let drivers = self.context.entry(model.to_owned()).or_default();
        let known = drivers.entry(driver.to_owned()).or_insert(bytes);
        *known = bytes.min(*known);
        if self.context.values().map(BTreeMap::len).sum::<usize>() > MAX_ENTRIES {
            self.context.clear();
        }
    }

    /// Writes the file, if it says something else. What cannot be written is measured again next time.
    pub fn save(&self) {
        let Some(path) = &self.path else { return };
        if *self == Self::load_from(path) {
            return;
        }
        let Some(directory) = path.parent() else { return };
        let _ = (|| {
            fs::create_dir_all(directory)?;
            let mut file = tempfile::NamedTempFile::new_in(directory)?;
            file.write_all(toml::to_string(self).unwrap_or_default().as_bytes())?;
            file.persist(path).map_err(|error| error.error)
        })();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_figure_of_a_model_and_driver_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("radrm/contexts.toml");
        let mut known = Contexts::load_from(&path);
        assert!(known.is_empty());
        for bytes in [500, 400, 450] {
            known.learn("H100 \"x\"", "580.65.06", bytes);
        }
        known.learn("H100 \"x\"", "615.1", 700);
        known.learn("", "615.1", 700);
        known.save();
        let again = Contexts::load_from(&path);
        assert_eq!(again.get("H100 \"x\"", "580.65.06"), Some(400));
        assert_eq!((again.get("H100 \"x\"", "615.1"), again.get("", "615.1")), (Some(700), None));
    }

    #[test]
    fn a_damaged_file_is_measured_anew_and_an_unwritable_one_does_no_harm() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("contexts.toml");
        fs::write(&path, "context = 5").unwrap();
        let mut known = Contexts::load_from(&path);
        assert!(known.is_empty());
        known.learn("m", "d", 1);
        known.save();
        assert_eq!(Contexts::load_from(&path).get("m", "d"), Some(1));
        known.path = Some("/proc/none/contexts.toml".into());
        known.save();
    }
}
