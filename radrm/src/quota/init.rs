//! `radrm quota init`: root makes what limits of users and groups need before a job can count against them.

use std::collections::BTreeSet;
use std::path::Path;

use nix::unistd::{Group, User};

use radrm_limits::files;
use radrm_limits::ledgers::{Ledgers, SCOPES};
use radrm_limits::machine::Node;
use radrm_limits::scopes::{self, Person};
use radrm_limits::setup::{self, Done};

use super::{QuotaError, Target};
use crate::{Failure, print};

/// Sets up users and groups: those that are named, else all that the configuration limits.
pub(super) fn run(targets: &[Target], machine: Option<&Path>) -> Result<(), Failure> {
    let node = Node::of(machine)?;
    if !node.ledgers.is_administered_here() {
        let who = if node.ledgers.emulated() { "the owner of the emulated machine" } else { "root" };
        return Err(QuotaError::NotAdministrator(who).into());
    }
    let files = files::all()?;
    let mut users = BTreeSet::new();
    let mut groups = BTreeSet::new();
    for target in targets {
        match target {
            Target::User(name) => drop(users.insert(uid(name)?)),
            Target::Group(name) => drop(groups.insert(gid(name)?)),
            Target::Job(pid) => return Err(QuotaError::NeedsNoSetup(*pid).into()),
        }
    }
    // Users that are named with groups are taken for members: not every membership stands in the system's tables.
    if users.is_empty() {
        users.extend(groups.iter().flat_map(|group| setup::members(*group)));
    }
    if targets.is_empty() {
        let administered = || files.iter().filter(|file| !file.own).map(|file| &file.config);
        if administered().any(|config| config.default.mem_limit.is_some()) {
            users.extend(setup::listed_users());
        }
        for config in administered() {
            users.extend(config.user.keys().filter_map(|name| uid(name).ok()));
            for group in config.group.keys().filter_map(|name| gid(name).ok()) {
                users.extend(setup::members(group));
            }
        }
    }
    let mut done = Done::default();
    for uid in &users {
        let mut person = Person::of(*uid);
        for group in groups
            .iter()
            .filter(|group| person.groups.iter().all(|(known, _)| known != *group))
            .copied()
            .collect::<Vec<_>>()
        {
            person.groups.push((group, scopes::group_name(group)));
        }
        setup::user(&node.ledgers, &files, &person, &|| node.machine.inventory(), &mut done)?;
        let failed = |error| QuotaError::NotSetUp { user: person.name(), error };
        node.ledgers.make_private(*uid).map_err(failed)?;
    }
    let place = match &node.ledgers {
        Ledgers::System => SCOPES.to_owned(),
        Ledgers::Emulated(file) => format!("{}.*", file.display()),
    };
    let mut said = format!(
        "{} of {} users have a limit of their own, {} groups have one: {place}\n",
        done.users.len(),
        users.len(),
        done.groups.len()
    );
    for repair in &done.repairs {
        said.push_str(&format!("{repair}\n"));
    }
    print(&said)
}

/// The number of a user.
pub(super) fn uid(name: &str) -> Result<u32, QuotaError> {
    match User::from_name(name).ok().flatten() {
        Some(user) => Ok(user.uid.as_raw()),
        None => name.parse().map_err(|_| QuotaError::NoUser(name.to_owned())),
    }
}

/// The number of a group.
pub(super) fn gid(name: &str) -> Result<u32, QuotaError> {
    match Group::from_name(name).ok().flatten() {
        Some(group) => Ok(group.gid.as_raw()),
        None => name.parse().map_err(|_| QuotaError::NoGroup(name.to_owned())),
    }
}
