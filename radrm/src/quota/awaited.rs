//! Limits of users and groups that no job counts against yet: those of the configuration, and those that were set.
//!
//! Until then only the files state such a limit.

use std::path::PathBuf;

use nix::unistd::{Group, User};
use radrm_limits::LimitError;
use radrm_limits::files::{self, Read};
use radrm_limits::machine::Node;
use radrm_limits::overrides;
use radrm_limits::scopes::{self, Person};
use radrm_telemetry::ledger::{Access, Limit};

use super::shared;

/// A limit that waits for its first job.
#[derive(Debug)]
pub(super) struct Awaited {
    /// `user alice`, or `each user not named`.
    pub(super) scope: String,
    /// The directory of its ledgers; `None` for a limit that many have.
    pub(super) ledger: Option<PathBuf>,
    /// Not empty.
    pub(super) limits: Vec<Limit>,
}

/// All of them, but for users and groups that `known` has: users first, then groups, then what holds for many.
pub(super) fn all(node: &Node, known: &[Access]) -> Result<Vec<Awaited>, LimitError> {
    let files = files::all()?;
    let own = Person::own();
    let mut found = Vec::new();
    let mut asked: Vec<Access> = known.to_vec();
    let user = |uid| Access::User(uid);
    let candidates = named(&files)
        .into_iter()
        .chain([user(own.uid)])
        .chain(own.groups.iter().map(|(gid, _)| Access::Group(*gid)))
        .chain(shared::places(&node.ledgers));
    let mut candidates: Vec<Access> = candidates.collect();
    candidates.sort_by_key(|access| shared::order(*access));
    for access in candidates {
        if asked.contains(&access) {
            continue;
        }
        asked.push(access);
        let limits = of(access, &files, &own, node)?;
        if !limits.is_empty() {
            let ledger = Some(node.ledgers.directory(access));
            found.push(Awaited { scope: scopes::whose(access), ledger, limits });
        }
    }
    found.extend(of_many(&files, node)?);
    Ok(found)
}

/// Users and groups that the configuration names and that the system knows.
fn named(files: &[Read]) -> Vec<Access> {
    let mut found = Vec::new();
    for config in files.iter().map(|file| &file.config) {
        let uid = |name: &String| match User::from_name(name).ok().flatten() {
            Some(user) => Some(user.uid.as_raw()),
            None => name.parse().ok(),
        };
        found.extend(config.user.keys().filter_map(uid).map(Access::User));
        let gid = |name: &String| match Group::from_name(name).ok().flatten() {
            Some(group) => Some(group.gid.as_raw()),
            None => name.parse().ok(),
        };
        found.extend(config.group.keys().filter_map(gid).map(Access::Group));
    }
    found
}

/// Limits of a user or group, by the configuration and by what was set.
fn of(access: Access, files: &[Read], own: &Person, node: &Node) -> Result<Vec<Limit>, LimitError> {
    let gpus = || node.machine.inventory();
    let person = match access {
        Access::User(uid) => Person::of(uid),
        Access::Group(gid) => {
            Person { uid: own.uid, groups: vec![(gid, scopes::group_name(gid))], user: None }
        }
    };
    // A user's own file is about no other user.
    let meant: Vec<Read> = files.iter().filter(|file| !file.own || person.uid == own.uid).cloned().collect();
    let mut scopes = scopes::gather(None, &meant, &person, &gpus)?;
    overrides::apply(&node.ledgers, &mut scopes, &person, &gpus)?;
    Ok(match access {
        Access::User(_) => scopes.user,
        Access::Group(gid) => {
            let group = scopes.groups.into_iter().find(|group| group.gid == gid);
            group.map(|group| group.limits).unwrap_or_default()
        }
    })
}

/// Limits that hold for each of many users. Files that state the same thing twice are each shown: none loosens
/// another.
fn of_many(files: &[Read], node: &Node) -> Result<Vec<Awaited>, LimitError> {
    let gpus = || node.machine.inventory();
    let mut found = Vec::new();
    for file in files.iter().filter(|file| !file.own) {
        let default =
            file.config.default.mem_limit.iter().map(|text| ("each user not named".to_owned(), text));
        let each = file.config.group.iter().filter_map(|(name, group)| {
            group.mem_limit_each.as_ref().map(|text| (format!("each user of group {name}"), text))
        });
        for (scope, text) in default.chain(each) {
            let limits = radrm_limits::resolve::resolve(&text.0, &gpus)
                .map_err(|error| error.at(file.path.display()))?;
            found.push(Awaited { scope, ledger: None, limits });
        }
    }
    Ok(found)
}
