//! Setting up the scopes of users and groups: what root does before their jobs can count together.

use std::collections::BTreeSet;

use radrm_telemetry::ledger::{Access, LedgerError, Limit, Repaired, ScopeDirectory, ScopeReport};

use super::files::{self, Read};
use super::ledgers::Ledgers;
use super::resolve::Gpus;
use super::scopes::{self, Person};
use crate::LimitError;

/// Result of a set-up.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Done {
    /// Users with a limit of their own.
    pub users: BTreeSet<u32>,
    /// Groups with a limit.
    pub groups: BTreeSet<u32>,
    /// One sentence for each ledger whose owner had changed it.
    pub repairs: Vec<String>,
}

/// Sets up all scopes that a user counts in. `files`: those of administrators.
pub fn user(
    ledgers: &Ledgers,
    files: &[Read],
    person: &Person,
    gpus: &Gpus<'_>,
    done: &mut Done,
) -> Result<(), LimitError> {
    let administered: Vec<Read> = files.iter().filter(|file| !file.own).cloned().collect();
    let scopes = scopes::gather(None, &administered, person, gpus)?;
    if !scopes.user.is_empty() {
        scope(ledgers, Access::User(person.uid), &scopes.user, person.uid, done)?;
        done.users.insert(person.uid);
    }
    for group in &scopes.groups {
        scope(ledgers, Access::Group(group.gid), &group.limits, person.uid, done)?;
        done.groups.insert(group.gid);
    }
    // Limits that were set by hand are in no file.
    for (gid, _) in &person.groups {
        let access = Access::Group(*gid);
        if !done.groups.contains(gid) && by_hand(ledgers, access) {
            scope(ledgers, access, &[], person.uid, done)?;
        }
    }
    Ok(())
}

/// Sets up the scopes of a user whose job root is about to start.
pub fn for_job(ledgers: &Ledgers, uid: u32, gpus: &Gpus<'_>) -> Result<(), LimitError> {
    // What a job has of its own at run time finds another place if there is none here.
    let _ = ledgers.make_private(uid);
    user(ledgers, &files::all()?, &Person::of(uid), gpus, &mut Done::default())
}

/// Makes a scope with these limits, unless others were set by hand, and gives a user a ledger in it.
fn scope(
    ledgers: &Ledgers,
    access: Access,
    limits: &[Limit],
    uid: u32,
    done: &mut Done,
) -> Result<ScopeDirectory, LimitError> {
    let whose = scopes::whose(access);
    let failed = |error: LedgerError| LimitError::NotSetUp { whose: whose.clone(), why: error.to_string() };
    let scope = ledgers.make(access).map_err(failed)?;
    if !ScopeReport::limits(&scope).map_err(failed)?.by_hand {
        scope.set_limits(limits, false).map_err(failed)?;
    }
    let what = match scope.add(uid).map_err(failed)? {
        Repaired::Nothing => return Ok(scope),
        Repaired::Mode => "was closed or opened to others",
        Repaired::Size => "was made longer",
        Repaired::Contents => "was shortened or written over, and is new",
    };
    let user = scopes::whose(Access::User(uid));
    done.repairs.push(format!("the ledger of {user} in the limit of {whose} {what}"));
    Ok(scope)
}

fn by_hand(ledgers: &Ledgers, access: Access) -> bool {
    ledgers.open(access).is_ok_and(|scope| ScopeReport::limits(&scope).is_ok_and(|report| report.by_hand))
}

/// Users that the system's tables list and that people use: those that a general limit is for.
#[must_use]
pub fn listed_users() -> Vec<u32> {
    const FIRST: u32 = 1000;
    const OVERFLOW: u32 = 65_534;
    listed(|entry| (FIRST..OVERFLOW).contains(&entry.pw_uid))
}

/// Members of a group, those whose first group it is among them.
#[must_use]
pub fn members(gid: u32) -> Vec<u32> {
    let named = nix::unistd::Group::from_gid(gid.into()).ok().flatten().map(|group| group.mem);
    let named = named.into_iter().flatten().filter_map(|name| {
        let user = nix::unistd::User::from_name(&name).ok().flatten()?;
        Some(user.uid.as_raw())
    });
    let mut found: Vec<u32> = named.chain(listed(|entry| entry.pw_gid == gid)).collect();
    found.sort_unstable();
    found.dedup();
    found
}

fn listed(is_wanted: impl Fn(&libc::passwd) -> bool) -> Vec<u32> {
    let mut found = Vec::new();
    // SAFETY: this program walks through the table in one thread only; an entry is good until the next call.
    unsafe {
        libc::setpwent();
        while let Some(entry) = libc::getpwent().as_ref() {
            if is_wanted(entry) {
                found.push(entry.pw_uid);
            }
        }
        libc::endpwent();
    }
    found
}
