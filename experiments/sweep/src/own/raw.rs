//! A file as written.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;

use super::axes::RawAxis;
use super::early::RawRule;
use super::groups::RawGroup;
use super::template::RawCommand;

/// Method that chooses the combinations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Search {
    /// All.
    #[default]
    Grid,
    /// Some, at random.
    Random,
}

/// The file as written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Raw {
    pub(super) name: Option<Spanned<String>>,
    pub(super) command: Spanned<RawCommand>,
    pub(super) directory: Option<String>,
    pub(super) emulate: Option<String>,
    pub(super) search: Option<Search>,
    pub(super) samples: Option<Spanned<u64>>,
    pub(super) seed: Option<Spanned<u64>>,
    pub(super) early_stopping: Option<Spanned<RawRule>>,
    pub(super) repetitions: Option<Spanned<u32>>,
    /// Copies of each combination that start together.
    pub(super) together: Option<Spanned<u32>>,
    /// Each configuration of a group runs alone, too.
    #[serde(default)]
    pub(super) solo: bool,
    #[serde(default)]
    pub(super) axes: BTreeMap<String, Spanned<RawAxis>>,
    #[serde(default)]
    pub(super) environment: BTreeMap<String, Spanned<String>>,
    #[serde(default)]
    pub(super) group: Vec<Spanned<RawGroup>>,
    pub(super) timeout: Option<Spanned<String>>,
    pub(super) mem_limit: Option<Spanned<String>>,
    pub(super) sm_limit: Option<Spanned<String>>,
    pub(super) devices: Option<Spanned<Vec<toml::Value>>>,
    pub(super) collocation: Option<Spanned<String>>,
}
