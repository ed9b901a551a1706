//! Our own files: a command with axes, repetitions, groups and limits, in TOML.

mod axes;
mod groups;
mod settings;
mod template;

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use toml::Spanned;

use crate::error::{Place, Wrong};
use crate::expand::MAX_RUNS;
use crate::plan::{Group, Plan, Run};
use axes::RawAxis;
use groups::RawGroup;
use settings::{RawSettings, Settings};
use template::{Command, RawCommand, Template};

/// What is wrong, and at which byte.
type At = (usize, Wrong);

/// How combinations are chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Search {
    /// All.
    #[default]
    Grid,
    /// Some, at random.
    Random,
}

/// The file as written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    name: Option<Spanned<String>>,
    command: Spanned<RawCommand>,
    directory: Option<String>,
    emulate: Option<String>,
    search: Option<Search>,
    samples: Option<Spanned<u64>>,
    seed: Option<Spanned<u64>>,
    repetitions: Option<Spanned<u32>>,
    /// Copies of each combination that start together.
    together: Option<Spanned<u32>>,
    /// Each configuration of a group runs alone, too.
    #[serde(default)]
    solo: bool,
    #[serde(default)]
    axes: BTreeMap<String, Spanned<RawAxis>>,
    #[serde(default)]
    environment: BTreeMap<String, Spanned<String>>,
    #[serde(default)]
    group: Vec<Spanned<RawGroup>>,
    timeout: Option<Spanned<String>>,
    mem_limit: Option<Spanned<String>>,
    sm_limit: Option<Spanned<String>>,
    devices: Option<Spanned<Vec<toml::Value>>>,
    collocation: Option<Spanned<String>>,
}

/// What every run is made from.
struct Recipe {
    command: Command,
    environment: Vec<(String, Template)>,
    directory: std::path::PathBuf,
}

/// Values of the axes, by name.
type Values = BTreeMap<String, String>;

/// Reads a file; relative directories are below `beside`.
///
/// # Errors
/// Where it is wrong.
pub(crate) fn read(text: &str, name: &str, beside: &Path) -> Result<Plan, (Place, Wrong)> {
    let raw: Raw = toml::from_str(text).map_err(|error| {
        let place = error.span().map_or(Place::line(1), |span| Place::of_byte(text, span.start));
        (place, Wrong::Toml(error.message().lines().next().unwrap_or_default().to_owned()))
    })?;
    plan(raw, name, beside).map_err(|(byte, wrong)| (Place::of_byte(text, byte), wrong))
}

fn plan(raw: Raw, name: &str, beside: &Path) -> Result<Plan, At> {
    let name = match &raw.name {
        Some(own) if !is_name(own.get_ref()) => return Err((own.span().start, Wrong::Name)),
        Some(own) => own.get_ref().clone(),
        None => name.to_owned(),
    };
    let recipe = Recipe {
        command: Command::parse(&raw.command)?,
        environment: raw
            .environment
            .iter()
            .map(|(name, value)| {
                Ok((
                    name.clone(),
                    Template::parse(value.get_ref()).map_err(|wrong| (value.span().start, wrong))?,
                ))
            })
            .collect::<Result<_, At>>()?,
        directory: beside.join(raw.directory.as_deref().unwrap_or("")),
    };
    let settings = Settings::default().with(&RawSettings {
        timeout: raw.timeout.as_ref(),
        mem_limit: raw.mem_limit.as_ref(),
        sm_limit: raw.sm_limit.as_ref(),
        devices: raw.devices.as_ref(),
        collocation: raw.collocation.as_ref(),
    })?;
    let repetitions = count(raw.repetitions.as_ref())?;
    let together = count(raw.together.as_ref())?;
    let axes = axes::checked(&raw.axes)?;
    let combinations = axes::choose(&raw, &axes)?;
    check_placeholders(&raw, &recipe)?;
    let at = raw.command.span().start;
    if raw.group.is_empty() {
        let members = u64::from(together).saturating_mul(u64::from(repetitions));
        check_count(members.saturating_mul(combinations.len() as u64), at)?;
    }
    let mut groups: Vec<Group> = Vec::new();
    for repetition in 1..=repetitions {
        if raw.group.is_empty() {
            for values in &combinations {
                let members = (0..together).map(|_| recipe.run(values, &settings, repetition));
                groups.push(Group {
                    name: group_name("", values),
                    runs: members.collect(),
                    ..Group::default()
                });
            }
        } else {
            groups.extend(groups::groups(&raw, &recipe, &settings, &axes, (repetition, repetitions))?);
        }
        // With those of `solo`, of which equal ones are one.
        check_count(groups.iter().map(|group| group.runs.len() as u64).sum(), at)?;
    }
    Ok(Plan { name, groups, emulate: raw.emulate, remarks: Vec::new() })
}

/// A name that is part of a file's name.
fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 64
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
}

fn check_count(runs: u64, at: usize) -> Result<(), At> {
    if runs > MAX_RUNS { Err((at, Wrong::TooMany(MAX_RUNS))) } else { Ok(()) }
}

fn count(stated: Option<&Spanned<u32>>) -> Result<u32, At> {
    match stated {
        Some(count) if *count.get_ref() == 0 => Err((count.span().start, Wrong::Zero)),
        Some(count) => {
            check_count((*count.get_ref()).into(), count.span().start)?;
            Ok(*count.get_ref())
        }
        None => Ok(1),
    }
}

/// Every placeholder names an axis, and every axis stands in a placeholder.
fn check_placeholders(raw: &Raw, recipe: &Recipe) -> Result<(), At> {
    let members = raw.group.iter().flat_map(|group| group.get_ref().members.iter());
    let stated: Vec<(&str, usize)> = raw
        .axes
        .iter()
        .map(|(name, axis)| (name.as_str(), axis.span().start))
        .chain(members.flat_map(|member| {
            let at = member.span().start;
            member.get_ref().names().map(move |name| (name, at))
        }))
        .collect();
    let used =
        || recipe.command.names().chain(recipe.environment.iter().flat_map(|(_, value)| value.names()));
    if let Some(unknown) = used().find(|name| !stated.iter().any(|(known, _)| known == name)) {
        return Err((raw.command.span().start, Wrong::NoAxis(unknown.to_owned())));
    }
    match stated.iter().find(|(name, _)| !used().any(|used| used == *name)) {
        Some((name, at)) => Err((*at, Wrong::Unused((*name).to_owned()))),
        None => Ok(()),
    }
}

/// `batch=16 lr=0.1`.
fn shown(values: &Values) -> String {
    values.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
}

fn group_name(name: &str, values: &Values) -> String {
    let parts = [name, &shown(values)];
    parts.iter().filter(|part| !part.is_empty()).copied().collect::<Vec<_>>().join(" ")
}

impl Recipe {
    fn run(&self, values: &Values, settings: &Settings, repetition: u32) -> Run {
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

#[cfg(test)]
mod tests;
