//! Groups of different members: `[[group]]`.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use toml::Spanned;

use super::axes;
use super::checks::{At, check_count, count, is_name};
use super::raw::Raw;
use super::recipe::Recipe;
use super::settings::{RawSettings, Settings};
use super::values::{Values, group_name};
use crate::error::Wrong;
use crate::expand::Axis;
use crate::plan::{Collocation, Group, Run};

/// A group as written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawGroup {
    name: Option<Spanned<String>>,
    collocation: Option<Spanned<String>>,
    timeout: Option<Spanned<String>>,
    pub(super) members: Vec<Spanned<RawMember>>,
}

/// A member as written: values of axes, and settings.
#[derive(Debug, Deserialize)]
pub(super) struct RawMember {
    copies: Option<Spanned<u32>>,
    devices: Option<Spanned<Vec<toml::Value>>>,
    mem_limit: Option<Spanned<String>>,
    sm_limit: Option<Spanned<String>>,
    timeout: Option<Spanned<String>>,
    #[serde(flatten)]
    values: BTreeMap<String, toml::Value>,
}

impl RawMember {
    /// The axes that it states.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.values.keys().map(String::as_str)
    }

    fn settings(&self) -> RawSettings<'_> {
        RawSettings {
            timeout: self.timeout.as_ref(),
            mem_limit: self.mem_limit.as_ref(),
            sm_limit: self.sm_limit.as_ref(),
            devices: self.devices.as_ref(),
            collocation: None,
        }
    }
}

/// A run without the others of its group.
pub(super) fn alone(run: &Run) -> Group {
    let run = Run { collocation: Collocation::Streams, ..run.clone() };
    let mut what = Values::from([("run".to_owned(), run.configuration.clone())]);
    // Equal configurations on different GPUs are different groups, and each alone.
    if !run.devices.is_empty() {
        what.insert("devices".to_owned(), run.devices.join("+"));
    }
    Group { name: group_name("alone", &what), runs: vec![run], ..Group::default() }
}

/// The groups of one repetition, and with `solo` their members alone.
pub(super) fn groups(
    raw: &Raw,
    recipe: &Recipe,
    settings: &Settings,
    all: &[(String, Axis)],
    (repetition, repetitions): (u32, u32),
) -> Result<Vec<Group>, At> {
    let (mut groups, mut names, mut alone) = (Vec::new(), BTreeSet::new(), Vec::<Group>::new());
    let mut expected = 0_u64;
    for (number, group) in raw.group.iter().enumerate() {
        let (at, group) = (group.span().start, group.get_ref());
        let name = group
            .name
            .as_ref()
            .map_or_else(|| format!("group-{}", number + 1), |name| name.get_ref().clone());
        if !is_name(&name) {
            return Err((at, Wrong::Name));
        }
        if !names.insert(name.clone()) {
            return Err((at, Wrong::GroupTwice(name)));
        }
        if group.members.is_empty() {
            return Err((at, Wrong::NoMembers));
        }
        let settings = settings.with(&RawSettings {
            timeout: group.timeout.as_ref(),
            collocation: group.collocation.as_ref(),
            ..RawSettings::default()
        })?;
        let stated: BTreeSet<&str> =
            group.members.iter().flat_map(|member| member.get_ref().names()).collect();
        let open = axes::rest(all, &stated).map_err(|(_, wrong)| (at, wrong))?;
        let mut copies = 0_u64;
        for member in &group.members {
            copies += u64::from(count(member.get_ref().copies.as_ref())?);
        }
        // Before they are made: copies, combinations and repetitions multiply.
        let all = copies.saturating_mul(open.len() as u64).saturating_mul(u64::from(repetitions));
        expected = expected.saturating_add(all);
        check_count(expected, at)?;
        for values in &open {
            let mut runs = Vec::new();
            for (member, raw) in group.members.iter().enumerate() {
                let (at, raw) = (raw.span().start, raw.get_ref());
                let missing = stated.iter().find(|name| !raw.names().any(|own| own == **name));
                if let Some(axis) = missing {
                    return Err((at, Wrong::MemberAxis { member: member + 1, axis: (*axis).to_owned() }));
                }
                let mut values: Values = values.clone();
                for (name, value) in &raw.values {
                    values.insert(name.clone(), axes::text(value).map_err(|wrong| (at, wrong))?);
                }
                let settings = settings.with(&raw.settings())?;
                for _ in 0..count(raw.copies.as_ref())? {
                    runs.push(recipe.run(&values, &settings, repetition));
                }
            }
            alone.extend(runs.iter().filter(|_| raw.solo).map(self::alone));
            groups.push(Group { name: group_name(&name, values), runs, ..Group::default() });
        }
    }
    // Each configuration once, before the groups that it is compared with.
    let mut seen = BTreeSet::new();
    alone.retain(|group| seen.insert(group.keys()));
    alone.extend(groups);
    Ok(alone)
}
