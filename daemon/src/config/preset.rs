//! Settings of another system as a whole, with what the file states on top.

use radrm_scheduler_core::{Policy, Preset, Settings};
use serde::de::{self, Deserialize, Deserializer};
use serde_json::Value;

use crate::error::DaemonError;

/// Reads the name of a preset; `""` is none.
pub(super) fn named<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Preset>, D::Error> {
    let name = String::deserialize(from)?;
    (!name.is_empty()).then(|| name.parse().map_err(de::Error::custom)).transpose()
}

/// The scheduler's settings of a preset, with what the text of a file states below `[scheduler]` on top, and whether all jobs run
/// under MPS: RAD-RM's do, unless the file states `mps.on`.
///
/// # Errors
/// Both together are no settings.
pub(super) fn apply(preset: Preset, text: &str) -> Result<(Settings, bool), DaemonError> {
    // The text was understood before.
    let stated: Value = toml::from_str(text).unwrap_or_default();
    let wrong = |error: serde_json::Error| DaemonError::Line { line: 1, what: error.to_string() };
    let none = Value::Null;
    let of_scheduler = stated.get("scheduler").unwrap_or(&none);
    let policy: Policy = match of_scheduler.get("policy") {
        Some(policy) => serde_json::from_value(policy.clone()).map_err(wrong)?,
        None => preset.policy(),
    };
    let mut settings = serde_json::to_value(preset.settings(policy)).map_err(wrong)?;
    put(&mut settings, of_scheduler);
    let Preset::RadRm = preset;
    let is_mps = stated.pointer("/mps/on").is_none();
    Ok((serde_json::from_value(settings).map_err(wrong)?, is_mps))
}

/// Replaces values by those of another tree, where that has some.
fn put(base: &mut Value, over: &Value) {
    match (base, over) {
        (_, Value::Null) => {}
        (Value::Object(base), Value::Object(over)) => {
            for (key, value) in over {
                put(base.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (base, over) => *base = over.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use radrm_scheduler_core::{Bytes, Permille};

    #[test]
    fn a_preset_gives_way_to_what_the_file_states() {
        let rad_rm = Config::parse("preset = \"rad-rm\"\n").unwrap();
        assert_eq!((rad_rm.scheduler, rad_rm.mps.on), (Preset::RadRm.settings(Policy::Magm), true));
        let text = "preset = \"rad-rm\"\n[mps]\non = false\n[scheduler]\npolicy = \"lug\"\n\
            [scheduler.preconditions]\nmargin = \"1GiB\"\nsmact = \"75%\"\n";
        let changed = Config::parse(text).unwrap();
        let mut expected = Preset::RadRm.settings(Policy::Lug);
        (expected.preconditions.margin, expected.preconditions.smact) =
            (Bytes::from_gib(1), Some(Permille(750)));
        assert_eq!((changed.scheduler, changed.mps.on), (expected, false));
        let plain = Config::parse("").unwrap();
        assert!(!plain.mps.on && plain.scheduler.policy == Policy::Aware);
        let why = Config::parse("preset = \"carma\"\n").unwrap_err().to_string();
        assert!(why.contains("line 1") && why.contains("rad-rm"), "{why}");
    }
}
