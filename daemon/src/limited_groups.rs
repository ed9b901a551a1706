//! Unix groups that have limits, with their numbers, and which of them an account is in.
//!
//! Names are looked up once for all accounts: an account may be in hundreds of groups, and what names them answers for each by
//! itself. All of it happens outside of the engine's thread, and none of it where no section of limits is for a group.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CString;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use nix::errno::Errno;
use nix::unistd::{Gid, Group, User, getgrouplist};

/// Groups of an account that have limits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Groups {
    pub(crate) names: Vec<String>,
    /// Start time of their look-up; `None`: they were not looked up, or could not be.
    pub(crate) since: Option<Instant>,
}

impl Groups {
    /// Takes over what was looked up later: a connection may be older than the last look-up. One that failed changes nothing: no
    /// limit of a group is lifted while its server is down. Returns true if the groups are others than before.
    pub(crate) fn renew(&mut self, found: Self) -> bool {
        if found.since.is_none() || found.since < self.since {
            return false;
        }
        let differ = found.names != self.names;
        *self = found;
        differ
    }
}

/// Groups with limits, of which the engine has the names, for the threads that look groups up.
#[derive(Debug, Default)]
pub(crate) struct LimitedGroups(Mutex<Named>);

#[derive(Debug, Default)]
struct Named {
    names: BTreeSet<String>,
    /// Their numbers, as far as this machine has such groups; `None`: they were not looked up, or could not be.
    numbers: Option<Vec<(u32, String)>>,
    /// Numbers that were found of these names at any time.
    known: BTreeMap<String, u32>,
}

impl Named {
    /// Takes over what was found of these names.
    fn take(&mut self, names: &BTreeSet<String>, found: &[(String, Result<Option<u32>, Errno>)]) {
        if self.names != *names {
            // Others have limits since then.
            return;
        }
        let numbered = found.iter().filter_map(|(name, found)| Some((name.clone(), found.ok().flatten()?)));
        self.known.extend(numbered);
        // Groups rarely get other numbers. One that is gone has no members, and a server that is down may answer that it is gone.
        let known = |name: &String| self.known.get(name).copied();
        let number = |(name, found): &(String, Result<Option<u32>, Errno>)| {
            let number = match found {
                Ok(found) => found.or_else(|| known(name)),
                // No database of groups at all.
                Err(Errno::ENOENT | Errno::ESRCH) => known(name),
                Err(error) => Some(known(name).ok_or(*error)?),
            };
            Ok(number.map(|number| (number, name.clone())))
        };
        let numbers: Result<Vec<Option<(u32, String)>>, Errno> = found.iter().map(number).collect();
        if let Ok(numbers) = numbers {
            self.numbers = Some(numbers.into_iter().flatten().collect());
        }
    }

    /// Names of the groups with these numbers; `None`: the numbers of groups are not known.
    fn of(&self, numbers: &[Gid]) -> Option<Vec<String>> {
        let is_of = |number: u32| numbers.contains(&Gid::from_raw(number));
        let known = self.numbers.as_ref()?.iter().filter(|(number, _)| is_of(*number));
        Some(known.map(|(_, name)| name.clone()).collect())
    }
}

impl LimitedGroups {
    fn lock(&self) -> MutexGuard<'_, Named> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says which groups have limits. Their numbers are looked up later; what is known of those that had limits before holds while
    /// a server is down. Returns true if they are others than before.
    pub(crate) fn set_names(&self, names: BTreeSet<String>) -> bool {
        let mut named = self.lock();
        if named.names == names {
            return false;
        }
        named.known.retain(|name, _| names.contains(name));
        (named.names, named.numbers) = (names, None);
        true
    }

    /// Returns true if no group has limits.
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().names.is_empty()
    }

    /// Looks up the numbers of all groups anew. What names groups may be slow.
    pub(crate) fn look_up(&self) {
        let names = self.lock().names.clone();
        // Sections of `radrm.toml` may have the number in place of a name.
        let number = |name: &String| match name.parse::<u32>() {
            Ok(number) => Ok(Some(number)),
            Err(_) => Group::from_name(name).map(|group| group.map(|group| group.gid.as_raw())),
        };
        let found: Vec<_> = names.iter().map(|name| (name.clone(), number(name))).collect();
        self.lock().take(&names, &found);
    }

    /// Those in which an account is. What names accounts may be slow.
    pub(crate) fn of(&self, name: &str, gid: u32) -> Groups {
        if self.is_empty() {
            return Groups::default();
        }
        let begun = Instant::now();
        if self.lock().numbers.is_none() {
            self.look_up();
        }
        let text = CString::new(name).ok();
        let numbers = text.and_then(|text| getgrouplist(&text, Gid::from_raw(gid)).ok());
        let names = numbers.and_then(|numbers| self.lock().of(&numbers));
        names.map(|names| Groups { names, since: Some(begun) }).unwrap_or_default()
    }

    /// Those of accounts, by user, after the numbers of all groups were looked up. An account that is not there now keeps the groups
    /// that were known.
    pub(crate) fn of_all(&self, accounts: Vec<(u32, String)>) -> Vec<(u32, Groups)> {
        self.look_up();
        let groups = |(uid, name): (u32, String)| {
            let account = User::from_name(&name).ok().flatten()?;
            Some((uid, self.of(&name, account.gid.as_raw())))
        };
        accounts.into_iter().filter_map(groups).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(all: &[&str]) -> BTreeSet<String> {
        all.iter().map(|name| (*name).to_owned()).collect()
    }

    /// Groups of an account with these numbers after look-ups with these results.
    fn after(
        named: &mut Named,
        found: &[(&str, Result<Option<u32>, Errno>)],
        gids: &[u32],
    ) -> Option<Vec<String>> {
        let all: Vec<_> = found.iter().map(|(name, found)| ((*name).to_owned(), *found)).collect();
        let of = found.iter().map(|(name, _)| *name).collect::<Vec<_>>();
        named.take(&names(&of), &all);
        named.of(&gids.iter().map(|gid| Gid::from_raw(*gid)).collect::<Vec<_>>())
    }

    #[test]
    fn groups_of_an_older_connection_do_not_replace_newer_ones() {
        let now = Instant::now();
        let of = |name: &str, since| Groups { names: vec![name.to_owned()], since };
        let mut known = Groups::default();
        known.renew(of("lab", Some(now)));
        known.renew(of("students", Some(now + std::time::Duration::from_secs(1))));
        known.renew(of("lab", Some(now)));
        assert_eq!(known.names, ["students"]);
    }

    #[test]
    fn a_look_up_of_groups_that_fails_lifts_no_limit_of_a_group() {
        let mut named = Named { names: names(&["lab", "none"]), ..Named::default() };
        let down = Err(Errno::ECONNREFUSED);
        assert_eq!(
            after(&mut named, &[("lab", Ok(Some(7))), ("none", down)], &[7]),
            None,
            "one of them is not known"
        );
        assert_eq!(
            after(&mut named, &[("lab", Ok(Some(7))), ("none", Ok(None))], &[5, 7]),
            Some(vec!["lab".to_owned()])
        );
        for gone in [down, Ok(None), Err(Errno::ENOENT)] {
            let still = after(&mut named, &[("lab", gone), ("none", Ok(None))], &[7]);
            assert_eq!(still, Some(vec!["lab".to_owned()]), "{gone:?}");
        }
        assert_eq!(named.of(&[Gid::from_raw(5)]), Some(Vec::new()), "the user has left the group");
        assert_eq!(
            after(&mut named, &[("lab", Ok(Some(8))), ("none", Ok(None))], &[7]),
            Some(Vec::new()),
            "it has another number"
        );
        let mut known = Groups { names: vec!["lab".to_owned()], since: None };
        assert!(!known.renew(Groups::default()));
        assert_eq!(known.names, ["lab"], "those of before");
        assert!(known.renew(Groups { names: Vec::new(), since: Some(Instant::now()) }));
        assert!(known.names.is_empty());
    }

    #[test]
    fn numbers_of_groups_that_had_limits_are_not_those_of_others() {
        let mut named = Named { names: names(&["lab", "new"]), ..Named::default() };
        assert_eq!(after(&mut named, &[("lab", Ok(Some(7)))], &[7]), None, "another has limits since then");
    }

    #[test]
    fn the_number_of_a_group_stays_known_when_another_gets_limits() {
        let limited = LimitedGroups::default();
        assert!(limited.set_names(names(&["lab"])) && !limited.set_names(names(&["lab"])));
        let of = |found: &[(&str, Result<Option<u32>, Errno>)]| after(&mut limited.lock(), found, &[7]);
        assert_eq!(of(&[("lab", Ok(Some(7)))]), Some(vec!["lab".to_owned()]));
        assert!(limited.set_names(names(&["lab", "new"])));
        let still = of(&[("lab", Ok(None)), ("new", Ok(None))]);
        assert_eq!(still, Some(vec!["lab".to_owned()]), "its server is down");
        assert!(limited.set_names(names(&["new"])) && limited.set_names(names(&["lab"])));
        assert_eq!(of(&[("lab", Ok(None))]), Some(Vec::new()), "it had no limits meanwhile");
    }

    #[test]
    fn a_section_may_have_the_number_of_a_group() {
        let limited = LimitedGroups::default();
        limited.set_names(names(&["0", "4294967294"]));
        assert_eq!(limited.of("root", 0).names, ["0"]);
    }

    #[test]
    fn nothing_is_looked_up_where_no_group_has_limits() {
        let limited = LimitedGroups::default();
        assert_eq!(limited.of("root", 0), Groups::default());
        let first = Group::from_gid(Gid::from_raw(0)).unwrap().unwrap().name;
        limited.set_names([first.clone(), "no-such-group".to_owned()].into());
        let found = limited.of("root", 0);
        assert!(found.names == [first] && found.since.is_some(), "{found:?}");
        limited.set_names(BTreeSet::new());
        assert_eq!(limited.of("root", 0), Groups::default());
    }
}
