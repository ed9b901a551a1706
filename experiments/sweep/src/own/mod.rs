//! Our own files: a command with axes, repetitions, groups and limits, in TOML.

mod axes;
mod checks;
mod early;
mod groups;
mod raw;
mod recipe;
mod settings;
mod template;
mod values;

use std::path::Path;

use crate::error::{Place, Wrong};
use crate::plan::{Group, Plan};
use checks::{At, check_count, count, is_name};
use raw::Raw;
use recipe::Recipe;
use settings::{RawSettings, Settings};
use template::{Command, Template};
use values::group_name;

/// Reads a file; relative directories are below `beside`.
///
/// # Errors
/// Where it is wrong.
pub(crate) fn read(text: &str, name: &str, beside: &Path) -> Result<Plan, (Place, Wrong)> {
    let raw: Raw = toml::from_str(text).map_err(|error| {
        let place = error.span().map_or(Place::line(1), |span| Place::of_byte(text, span.start));
        (place, Wrong::Toml(radrm_text::explained(error.message())))
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
        let alone = u64::from(raw.solo && together > 1);
        let members = (u64::from(together) + alone).saturating_mul(u64::from(repetitions));
        check_count(members.saturating_mul(combinations.len() as u64), at)?;
    }
    let mut groups: Vec<Group> = Vec::new();
    for repetition in 1..=repetitions {
        if raw.group.is_empty() {
            for values in &combinations {
                let run = recipe.run(values, &settings, repetition);
                // A single run is alone already.
                groups.extend((raw.solo && together > 1).then(|| groups::alone(&run)));
                let runs = vec![run; together as usize];
                groups.push(Group { name: group_name("", values), runs, ..Group::default() });
            }
        } else {
            groups.extend(groups::groups(&raw, &recipe, &settings, &axes, (repetition, repetitions))?);
        }
        // With those of `solo`, of which equal ones are one.
        check_count(groups.iter().map(|group| group.runs.len() as u64).sum(), at)?;
    }
    let early = raw.early_stopping.as_ref().map(early::checked).transpose()?;
    if let (Some(stated), true) = (&raw.early_stopping, groups.iter().any(|group| group.runs.len() > 1)) {
        return Err((stated.span().start, Wrong::EarlyTogether));
    }
    Ok(Plan { name, groups, early, emulate: raw.emulate, remarks: Vec::new() })
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

#[cfg(test)]
mod tests;
