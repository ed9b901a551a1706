//! Limits that an administrator has changed while jobs run (`radrm quota set user:NAME …`).
//!
//! They are kept in the scope itself and live as long as it. What root has set holds instead of the
//! configuration; what any other user has set can only lower it.

use std::fs;
use std::os::unix::fs::MetadataExt;

use radrm_telemetry::ledger::{Access, Limit, ScopeReport};

use super::ledgers::Ledgers;
use super::resolve::{Gpus, stricter};
use super::scopes::{OfGroup, Person, Scopes};
use crate::LimitError;

/// A change that was made by hand.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Override {
    /// The limits.
    pub limits: Vec<Limit>,
    /// Made by root: it holds instead of the configuration.
    pub by_root: bool,
}

/// Changes of a scope's limits: the administrator's, then those of this process's user.
#[must_use]
pub fn of(ledgers: &Ledgers, access: Access) -> Vec<Override> {
    let Ok(scope) = ledgers.open(access) else { return Vec::new() };
    let Ok(report) = ScopeReport::limits(&scope) else { return Vec::new() };
    let by_root = fs::metadata(scope.path()).is_ok_and(|found| found.uid() == 0);
    let of_scope = report.by_hand.then_some(Override { limits: report.limits, by_root });
    let own = report.own.map(|limits| Override { limits, by_root: false });
    of_scope.into_iter().chain(own).collect()
}

/// Applies the changes to what the configuration says.
///
/// # Errors
/// One sentence: limits cannot be compared.
pub fn apply(
    ledgers: &Ledgers,
    scopes: &mut Scopes,
    person: &Person,
    gpus: &Gpus<'_>,
) -> Result<(), LimitError> {
    for change in of(ledgers, Access::User(person.uid)) {
        scopes.user = changed(&scopes.user, &change, gpus)?;
        scopes.is_user_administered |= change.by_root;
    }
    for (gid, name) in &person.groups {
        for change in of(ledgers, Access::Group(*gid)) {
            match scopes.groups.iter_mut().find(|group| group.gid == *gid) {
                Some(group) => group.limits = changed(&group.limits, &change, gpus)?,
                None => {
                    let name = name.clone().unwrap_or_else(|| gid.to_string());
                    scopes.groups.push(OfGroup { gid: *gid, name, limits: changed(&[], &change, gpus)? });
                }
            }
        }
    }
    Ok(())
}

fn changed(limits: &[Limit], change: &Override, gpus: &Gpus<'_>) -> Result<Vec<Limit>, LimitError> {
    if change.by_root { Ok(change.limits.clone()) } else { stricter(limits, &change.limits, gpus) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use radrm_telemetry::ledger::Amount;

    fn gib(n: u64) -> Vec<Limit> {
        vec![Limit { gpu: None, amount: Amount::Bytes(n << 30) }]
    }

    #[test]
    fn only_root_may_say_more_than_the_configuration() {
        let after = |n, by_root| {
            changed(&gib(5), &Override { limits: gib(n), by_root }, &|| Err(LimitError::NoLimit)).unwrap()
        };
        assert_eq!((after(9, true), after(9, false)), (gib(9), gib(5)));
        assert_eq!((after(2, true), after(2, false)), (gib(2), gib(2)));
    }

    #[test]
    fn a_change_in_a_directory_that_others_could_have_made_is_not_believed() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let machine = directory.path().join("m");
        fs::write(&machine, "").unwrap();
        let ledgers = Ledgers::of(Some(&machine));
        let uid = rustix::process::getuid().as_raw();
        let access = Access::User(uid);
        assert_eq!(of(&ledgers, access), []);
        let scope = ledgers.make(access).unwrap();
        scope.add(uid).unwrap();
        scope.set_limits(&gib(3), true).unwrap();
        scope.set_own_limits(uid, &gib(2), true).unwrap();
        let limits: Vec<_> = of(&ledgers, access).into_iter().map(|change| change.limits).collect();
        assert_eq!(limits, [gib(3), gib(2)]);
        scope.set_limits(&gib(3), false).unwrap();
        scope.set_own_limits(uid, &gib(2), false).unwrap();
        assert_eq!(of(&ledgers, access), [], "not by hand");
        scope.set_limits(&gib(3), true).unwrap();
        fs::set_permissions(scope.path(), fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(of(&ledgers, access), []);
    }
}
