//! Limits of users in the queue: what the file states, what administrators set while the daemon runs, and what both come to.
//!
//! A user's own section goes before those of the user's groups, and these before `[limits.default]`, each limit by itself. Of
//! several groups the strictest value holds, as for `mem-limit-each`: a group may be there to restrict its members, and another
//! group must not lift that. What `radrm admin set` states replaces the same limit of the same section in the file.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use nix::unistd::{Group, User};
use radrm_protocol::wire::Request;
use radrm_scheduler_core::{LIMITS, LimitKey, LimitValue};
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};

use crate::limited_groups::{Groups, LimitedGroups};
use crate::reservations::{self, Reservation};

/// Limits of one section.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LimitSection(BTreeMap<LimitKey, LimitValue>);

/// The part `[limits]` of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct LimitSections {
    /// Users without a value of their own or of a group. [Limit a lab](how-to/limit-a-lab.md) has the keys of this table and of those
    /// below; none is set by default.
    pub(crate) default: LimitSection,
    /// Users, by name. Goes before groups and `default`.
    pub(crate) users: BTreeMap<String, LimitSection>,
    /// Each member of a Unix group, by its name. Goes before `default`; of several groups the strictest value holds.
    pub(crate) groups: BTreeMap<String, LimitSection>,
}

/// Names of all limits, for the error about another one.
const NAMES: [&str; LIMITS.len()] = {
    let mut names = [""; LIMITS.len()];
    let mut at = 0;
    while at < names.len() {
        names[at] = LIMITS[at].name;
        at += 1;
    }
    names
};

/// Text of a number, a text or a list of both.
#[derive(serde::Deserialize)]
#[serde(untagged, expecting = "a whole number, text such as \"4h\" or a list of GPUs is expected")]
pub(crate) enum Written {
    Number(u64),
    Text(String),
    List(Vec<Written>),
}

impl Written {
    /// The text, lists with commas.
    pub(crate) fn text(self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::Text(text) => text,
            Self::List(list) => list.into_iter().map(Self::text).collect::<Vec<_>>().join(","),
        }
    }
}

impl<'de> Deserialize<'de> for LimitSection {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Keys;

        impl<'de> Visitor<'de> for Keys {
            type Value = LimitSection;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("limits such as gpus = 4")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<LimitSection, A::Error> {
                let mut section = LimitSection::default();
                while let Some(name) = map.next_key::<String>()? {
                    let key = LimitKey::named(&name).ok_or_else(|| A::Error::unknown_field(&name, &NAMES))?;
                    let text = map.next_value::<Written>()?.text();
                    section.0.insert(key, LimitValue::read(key, &text).map_err(A::Error::custom)?);
                }
                Ok(section)
            }
        }

        from.deserialize_map(Keys)
    }
}

/// Whom a section is for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scope {
    Default,
    Group(String),
    User(String),
}

impl Scope {
    /// `default`, `user:alice` or `group:lab`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let named = |prefix: &str| {
            text.strip_prefix(prefix).filter(|name: &&str| !name.is_empty()).map(str::to_owned)
        };
        match text {
            "default" => Some(Self::Default),
            _ => named("user:").map(Self::User).or_else(|| named("group:").map(Self::Group)),
        }
    }

    /// The text that [`Self::parse`] reads.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Default => "default".to_owned(),
            Self::Group(name) => format!("group:{name}"),
            Self::User(name) => format!("user:{name}"),
        }
    }

    /// Returns false if this machine has no such user or group now. What cannot be asked for is not missing, and a group may be
    /// named by its number, with a name or without one.
    pub(crate) fn is_known(&self) -> bool {
        match self {
            Self::Default => true,
            Self::Group(name) if name.parse::<u32>().is_ok() => true,
            Self::Group(name) => !matches!(Group::from_name(name), Ok(None)),
            Self::User(name) => !matches!(User::from_name(name), Ok(None)),
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::Group(name) => write!(f, "group {name}"),
            Self::User(name) => write!(f, "user {name}"),
        }
    }
}

/// A limit that an administrator set while the daemon ran.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LimitSetting {
    pub(crate) value: LimitValue,
    /// The administrator.
    pub(crate) by: String,
    /// ms since 1970.
    pub(crate) at_ms: u64,
}

/// Value of a limit for a user, and the sections that it is from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Resolved {
    pub(crate) value: LimitValue,
    /// Lists of GPUs and quiet hours may be of several groups.
    pub(crate) scopes: Vec<Scope>,
    /// Administrator who set it, and when, ms since 1970; `None`: it is from the file.
    pub(crate) set: Option<(String, u64)>,
}

impl Resolved {
    /// `default`, `group lab`, `group lab and group students`.
    pub(crate) fn from(&self) -> String {
        self.scopes.iter().map(Scope::to_string).collect::<Vec<_>>().join(" and ")
    }
}

/// All sections.
#[derive(Clone, Debug, Default)]
pub(crate) struct UserLimitTable {
    file: LimitSections,
    set: BTreeMap<(Scope, LimitKey), LimitSetting>,
}

impl UserLimitTable {
    pub(crate) fn new(file: LimitSections) -> Self {
        Self { file, set: BTreeMap::new() }
    }

    /// The file was read again.
    pub(crate) fn replace_file(&mut self, file: LimitSections) {
        self.file = file;
    }

    /// An administrator sets a limit, or takes back what was set.
    pub(crate) fn set(&mut self, scope: Scope, key: LimitKey, setting: Option<LimitSetting>) {
        match setting {
            Some(setting) => self.set.insert((scope, key), setting),
            None => self.set.remove(&(scope, key)),
        };
    }

    /// Returns true if an administrator has set a limit.
    pub(crate) fn is_set(&self, scope: &Scope, key: LimitKey) -> bool {
        self.set.contains_key(&(scope.clone(), key))
    }

    /// Settings of administrators.
    pub(crate) fn settings(&self) -> impl Iterator<Item = (&Scope, LimitKey, &LimitSetting)> {
        self.set.iter().map(|((scope, key), setting)| (scope, *key, setting))
    }

    /// Returns true if any section has a value of this limit.
    pub(crate) fn has(&self, key: LimitKey) -> bool {
        let mut sections =
            [&self.file.default].into_iter().chain(self.file.users.values()).chain(self.file.groups.values());
        sections.any(|section| section.0.contains_key(&key)) || self.set.keys().any(|(_, set)| *set == key)
    }

    /// GPUs that sections of the file name.
    pub(crate) fn named_gpus(&self) -> impl Iterator<Item = (Scope, &String)> {
        let LimitSections { default, users, groups } = &self.file;
        let users = users.iter().map(|(name, section)| (Scope::User(name.clone()), section));
        let groups = groups.iter().map(|(name, section)| (Scope::Group(name.clone()), section));
        std::iter::once((Scope::Default, default)).chain(users).chain(groups).flat_map(|(scope, section)| {
            let names = match section.0.get(&LimitKey::AllowedGpus) {
                Some(LimitValue::Gpus(names)) => names.as_slice(),
                _ => &[],
            };
            names.iter().map(move |name| (scope.clone(), name))
        })
    }

    /// Groups for which there are sections.
    pub(crate) fn groups(&self) -> BTreeSet<String> {
        let set = self.set.keys().filter_map(|(scope, _)| match scope {
            Scope::Group(name) => Some(name),
            _ => None,
        });
        self.file.groups.keys().chain(set).cloned().collect()
    }

    fn stated(&self, scope: Scope, key: LimitKey) -> Option<Resolved> {
        if let Some(LimitSetting { value, by, at_ms }) = self.set.get(&(scope.clone(), key)) {
            let set = Some((by.clone(), *at_ms));
            return Some(Resolved { value: value.clone(), scopes: vec![scope], set });
        }
        let section = match &scope {
            Scope::Default => Some(&self.file.default),
            Scope::Group(name) => self.file.groups.get(name),
            Scope::User(name) => self.file.users.get(name),
        };
        let value = section?.0.get(&key)?.clone();
        Some(Resolved { value, scopes: vec![scope], set: None })
    }

    /// Value of a limit for a user of these groups; `None`: no section states one.
    pub(crate) fn resolve(&self, user: &str, groups: &[String], key: LimitKey) -> Option<Resolved> {
        let of_user = self.stated(Scope::User(user.to_owned()), key);
        let of_groups = || {
            let stated = groups.iter().filter_map(|group| self.stated(Scope::Group(group.clone()), key));
            stated.reduce(stricter)
        };
        of_user.or_else(of_groups).or_else(|| self.stated(Scope::Default, key))
    }

    /// Users and groups of the file that this machine does not know, a sentence each.
    pub(crate) fn unknown(file: &LimitSections, is_known: impl Fn(&Scope) -> bool) -> Vec<String> {
        let users = file.users.keys().map(|name| (Scope::User(name.clone()), "users"));
        let groups = file.groups.keys().map(|name| (Scope::Group(name.clone()), "groups"));
        let unknown = users.chain(groups).filter(|(scope, _)| !is_known(scope));
        unknown
            .map(|(scope, table)| {
                format!("limits.{table}: this machine has no {scope} now, so that section limits no job")
            })
            .collect()
    }
}

/// The stricter of two values of groups: of lists of GPUs those of both, of quiet hours all.
fn stricter(a: Resolved, b: Resolved) -> Resolved {
    let both = || [a.scopes.clone(), b.scopes.clone()].concat();
    match (&a.value, &b.value) {
        (_, LimitValue::None) => a,
        (LimitValue::None, _) => b,
        (LimitValue::Number(first), LimitValue::Number(second)) => {
            if second < first {
                b
            } else {
                a
            }
        }
        (LimitValue::Hours(first), LimitValue::Hours(second)) if first != second => {
            let value = LimitValue::Hours(first.clone().and(second.clone()));
            Resolved { value, scopes: both(), set: None }
        }
        (LimitValue::Gpus(first), LimitValue::Gpus(second)) => {
            // A name of one list may be the model of a GPU that the other names by number: see `allowed` in the engine.
            let mut names = first.clone();
            names.push(AND.to_owned());
            names.extend(second.clone());
            Resolved { value: LimitValue::Gpus(names), scopes: both(), set: None }
        }
        _ => a,
    }
}

/// Between two lists of GPUs of which only those count that are in both.
pub(crate) const AND: &str = "and";

/// User or group that a request of an administrator names, looked up before the engine has the request: what names accounts
/// may be slow, and the engine waits for nothing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Named {
    /// The user whose limits are to be shown: number, name and groups; `None`: this machine has no such user.
    pub(crate) account: Option<(u32, String, Groups)>,
    /// User or group that this machine does not know, of a limit that is to be set or a reservation, with the nearest name.
    pub(crate) unknown: Option<String>,
}

impl Named {
    /// Looks up what a request names; `None`: it names no user and no group.
    pub(crate) fn of(request: &Request, limited: &LimitedGroups) -> Option<Self> {
        match request {
            Request::Limits { user: Some(name) } => {
                Some(Self { account: account(name, limited), unknown: None })
            }
            // What was set for one who is gone can be taken back.
            Request::SetLimit { scope, value: Some(_), .. } => {
                let unknown = Scope::parse(scope).filter(|scope| !scope.is_known());
                Some(Self { account: None, unknown: unknown.map(|scope| reservations::with_nearest(&scope)) })
            }
            Request::Reserve(row) => {
                // The engine says what else is wrong with it.
                let asked = Reservation::asked(row, 0).ok();
                Some(Self { account: None, unknown: asked.and_then(|of| of.unknown()) })
            }
            _ => None,
        }
    }
}

/// Account of this name. A server may take the name in other letters, and a number may have several names: that of the account is
/// the one by which its jobs are limited.
fn account(name: &str, limited: &LimitedGroups) -> Option<(u32, String, Groups)> {
    let found = User::from_name(name).ok().flatten()?;
    let user = User::from_uid(found.uid).ok().flatten().unwrap_or(found);
    let groups = limited.of(&user.name, user.gid.as_raw());
    Some((user.uid.as_raw(), user.name, groups))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    const FILE: &str = "[limits.default]\ngpus = 2\nmax_time = \"2d\"\n[limits.groups.lab]\ngpus = 4\nmemory = \"20GB\"\n\
        [limits.groups.students]\ngpus = 3\nmax_time = \"4h30m\"\n[limits.users.alice]\ngpus = \"none\"\n\
        allowed_gpus = [0, \"A100\"]\n";

    fn table() -> UserLimitTable {
        UserLimitTable::new(Config::parse(FILE).unwrap().limits)
    }

    fn found(table: &UserLimitTable, user: &str, groups: &[&str], name: &str) -> Option<(String, String)> {
        let groups: Vec<String> = groups.iter().map(|name| (*name).to_owned()).collect();
        let key = LimitKey::named(name).unwrap();
        table.resolve(user, &groups, key).map(|of| (of.value.text(key), of.from()))
    }

    #[test]
    fn quiet_hours_of_several_groups_all_hold() {
        let file = "[limits.groups.lab]\nquiet_hours = \"22:00-07:00\"\n[limits.groups.students]\n\
            quiet_hours = [\"Mon-Fri 8:00-18:00\", \"Sat 10:00-12:00\"]\n";
        let table = UserLimitTable::new(Config::parse(file).unwrap().limits);
        let of = |groups: &[&str]| found(&table, "bob", groups, "quiet_hours").map(|(value, _)| value);
        assert_eq!(of(&["students"]).as_deref(), Some("Mon-Fri 08:00-18:00, Sat 10:00-12:00"));
        let both = "22:00-07:00, Mon-Fri 08:00-18:00, Sat 10:00-12:00";
        assert_eq!(of(&["lab", "students"]).as_deref(), Some(both));
        assert_eq!(of(&["lab", "lab"]).as_deref(), Some("22:00-07:00"), "a section counts once");
        let from = |groups: &[&str]| found(&table, "bob", groups, "quiet_hours").map(|(_, from)| from);
        assert_eq!(from(&["lab", "students"]).as_deref(), Some("group lab and group students"));
        assert_eq!(from(&["lab"]).as_deref(), Some("group lab"));
    }

    #[test]
    fn a_user_goes_before_groups_the_strictest_of_these_and_then_the_default() {
        let table = table();
        let is = |value: &str, from: &str| Some((value.to_owned(), from.to_owned()));
        assert_eq!(found(&table, "bob", &[], "gpus"), is("2", "default"));
        assert_eq!(found(&table, "bob", &["lab"], "gpus"), is("4", "group lab"));
        assert_eq!(found(&table, "bob", &["lab", "students"], "gpus"), is("3", "group students"));
        assert_eq!(found(&table, "alice", &["students"], "gpus"), is("none", "user alice"));
        assert_eq!(found(&table, "alice", &["students"], "max_time"), is("4h30m", "group students"));
        assert_eq!(found(&table, "alice", &["lab"], "max_time"), is("2d", "default"));
        assert_eq!(found(&table, "bob", &["lab"], "memory"), is("20GB", "group lab"));
        assert_eq!(found(&table, "bob", &[], "memory"), None);
        assert_eq!(found(&table, "alice", &[], "allowed_gpus"), is("0,A100", "user alice"));
    }

    #[test]
    fn a_request_that_names_a_user_is_looked_up_with_the_name_of_the_account() {
        let limited = LimitedGroups::default();
        let of = |name: &str| {
            let request = Request::Limits { user: Some(name.to_owned()) };
            Named::of(&request, &limited).unwrap().account
        };
        assert_eq!(of("root").map(|(uid, name, _)| (uid, name)), Some((0, "root".to_owned())));
        assert!(of("no-such-user").is_none());
        let set = |scope: &str, value: Option<&str>| {
            let (scope, name) = (scope.to_owned(), "gpus".to_owned());
            let request = Request::SetLimit { scope, name, value: value.map(str::to_owned) };
            let found = Named::of(&request, &limited);
            found.map(|found| found.unknown.is_some())
        };
        assert_eq!(set("user:no-such-user", Some("1")), Some(true));
        assert_eq!(set("user:no-such-user", None), None, "it can be taken back");
        assert_eq!(set("user:root", Some("1")), Some(false));
        assert_eq!(set("group:64999", Some("1")), Some(false), "a group's number");
        assert_eq!(set("user:64999", Some("1")), Some(true), "accounts are known by their names");
    }

    #[test]
    fn what_an_administrator_sets_goes_before_the_file_until_it_is_taken_back() {
        let mut table = table();
        let setting = LimitSetting { value: LimitValue::Number(1), by: "root".to_owned(), at_ms: 5 };
        table.set(Scope::Group("lab".to_owned()), LimitKey::Gpus, Some(setting));
        let of = |table: &UserLimitTable| table.resolve("bob", &["lab".to_owned()], LimitKey::Gpus).unwrap();
        assert_eq!(of(&table).set, Some(("root".to_owned(), 5)));
        assert_eq!(of(&table).value, LimitValue::Number(1));
        table.set(Scope::Group("lab".to_owned()), LimitKey::Gpus, None);
        assert_eq!((of(&table).value, of(&table).set), (LimitValue::Number(4), None));
    }

    #[test]
    fn unknown_keys_and_names_and_wrong_values_are_found() {
        for (text, part) in [
            ("[limits.default]\ngpu = 1", "; did you mean gpus?"),
            ("[limits.default]\nmax_time = \"4\"", "a time such as \"4h\""),
            ("[limits.user.alice]\ngpus = 1", "; did you mean users?"),
            ("[limits.default]\ngpus = -1", "line 2"),
        ] {
            let error = Config::parse(text).unwrap_err().to_string();
            assert!(error.contains(part) && error.lines().count() == 1, "{error}");
        }
        let file = Config::parse(FILE).unwrap().limits;
        let unknown = UserLimitTable::unknown(&file, |scope| *scope != Scope::Group("lab".to_owned()));
        assert!(
            matches!(&unknown[..], [one] if one.contains("this machine has no group lab")),
            "{unknown:?}"
        );
        for text in ["default", "user:alice", "group:lab"] {
            assert_eq!(Scope::parse(text).unwrap().text(), text);
        }
        assert_eq!([Scope::parse("alice"), Scope::parse("user:")], [None, None]);
    }
}
