//! One value of each axis.

use std::collections::BTreeMap;

/// Values of the axes, by name.
pub(super) type Values = BTreeMap<String, String>;

/// `batch=16 lr=0.1`.
pub(super) fn shown(values: &Values) -> String {
    values.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
}

pub(super) fn group_name(name: &str, values: &Values) -> String {
    let parts = [name, &shown(values)];
    parts.iter().filter(|part| !part.is_empty()).copied().collect::<Vec<_>>().join(" ")
}
