//! Sources of runs.

use std::path::PathBuf;

use super::settings::Settings;
use super::template::{Command, Template};
use super::values::{Values, shown};
use crate::plan::Run;

/// Parts that every run is made from.
pub(super) struct Recipe {
    pub(super) command: Command,
    pub(super) environment: Vec<(String, Template)>,
    pub(super) directory: PathBuf,
}

impl Recipe {
    pub(super) fn run(&self, values: &Values, settings: &Settings, repetition: u32) -> Run {
        let environment = self.environment.iter().map(|(name, value)| (name.clone(), value.fill(values)));
        let mut configuration = shown(values);
        for part in settings.distinguishing() {
            configuration.push(' ');
            configuration.push_str(&part);
        }
        let configuration = match configuration.trim() {
            "" => self.command.fill(values).join(" "),
            other => other.to_owned(),
        };
        Run {
            name: configuration.clone(),
            configuration,
            parameters: values.clone(),
            repetition,
            command: self.command.fill(values),
            directory: self.directory.clone(),
            environment: environment.collect(),
            devices: settings.devices.clone(),
            collocation: settings.collocation.clone(),
            mem_limit: settings.mem_limit.clone(),
            sm_limit: settings.sm_limit.clone(),
            timeout_ms: settings.timeout_ms,
            ..Run::default()
        }
    }
}
