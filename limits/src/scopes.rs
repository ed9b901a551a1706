//! Limits that hold for a job: its own limit, that of its user and those of the groups of its user.

use std::ffi::CString;

use nix::unistd::{Gid, Group, Uid, User, getgrouplist};
use radrm_telemetry::ledger::{Access, Limit};
use rustix::process::{getgid, getgroups, getuid};

use super::config::{Context, Mps};
use super::files::Read;
use super::requested::RequestedLimits;
use super::resolve::{Gpus, resolve, stricter};
use crate::LimitError;

/// A user and the groups that the kernel knows this user to be in.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Person {
    /// User id.
    pub uid: u32,
    /// User name, if it has one.
    pub user: Option<String>,
    /// Group ids with their names, if they have one.
    pub groups: Vec<(u32, Option<String>)>,
}

impl Person {
    /// The user of this process.
    #[must_use]
    pub fn own() -> Self {
        let mut own = Self::own_ids();
        own.user = user_name(own.uid);
        for (gid, name) in &mut own.groups {
            *name = group_name(*gid);
        }
        own
    }

    /// The same without names: looking these up may take a question to a server, and is needed only if
    /// there are names to compare with.
    #[must_use]
    pub fn own_ids() -> Self {
        let mut gids: Vec<u32> =
            getgroups().unwrap_or_default().into_iter().chain([getgid()]).map(|gid| gid.as_raw()).collect();
        gids.sort_unstable();
        gids.dedup();
        Self { uid: getuid().as_raw(), user: None, groups: gids.into_iter().map(|gid| (gid, None)).collect() }
    }
}

impl Person {
    /// The name, or the number where there is none.
    #[must_use]
    pub fn name(&self) -> String {
        self.user.clone().or_else(|| user_name(self.uid)).unwrap_or_else(|| self.uid.to_string())
    }

    /// Another user, as the system's tables describe it.
    #[must_use]
    pub fn of(uid: u32) -> Self {
        if uid == getuid().as_raw() {
            return Self::own();
        }
        let user = User::from_uid(Uid::from_raw(uid)).ok().flatten();
        let name = user.as_ref().and_then(|user| CString::new(user.name.as_str()).ok());
        let gids = match (&user, name) {
            (Some(user), Some(name)) => getgrouplist(&name, user.gid).unwrap_or_default(),
            _ => Vec::new(),
        };
        Self {
            uid,
            user: user.map(|user| user.name),
            groups: gids.iter().map(|gid| (gid.as_raw(), group_name(gid.as_raw()))).collect(),
        }
    }
}

/// The name of a user.
#[must_use]
pub fn user_name(uid: u32) -> Option<String> {
    User::from_uid(Uid::from_raw(uid)).ok().flatten().map(|user| user.name)
}

/// The name of a group.
#[must_use]
pub fn group_name(gid: u32) -> Option<String> {
    Group::from_gid(Gid::from_raw(gid)).ok().flatten().map(|group| group.name)
}

/// `user alice` or `group lab`.
#[must_use]
pub fn whose(access: Access) -> String {
    match access {
        Access::User(uid) => format!("user {}", user_name(uid).unwrap_or_else(|| uid.to_string())),
        Access::Group(gid) => format!("group {}", group_name(gid).unwrap_or_else(|| gid.to_string())),
    }
}

/// The limits of a group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OfGroup {
    /// Group id.
    pub gid: u32,
    /// As the configuration names it.
    pub name: String,
    /// Limits for all members together; not empty.
    pub limits: Vec<Limit>,
}

/// Limits that hold for a job. An empty list is no limit.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Scopes {
    /// The job itself: `None` if it has no limit, so that it may be left without a ledger.
    pub job: Option<Vec<Limit>>,
    /// All jobs of the user together.
    pub user: Vec<Limit>,
    /// An administrator limits the user, and not only the user's own file.
    pub is_user_administered: bool,
    /// All jobs of a group's members together.
    pub groups: Vec<OfGroup>,
    /// All steps of the job together, where a workload manager starts steps.
    pub steps: Vec<Limit>,
    /// Memory that the driver takes for a process; the first file that states it decides.
    pub context: Option<Context>,
    /// MPS settings; the first file that says each decides.
    pub mps: Mps,
    /// The cap on jobs, if it is stricter than what was asked for.
    pub capped: bool,
    /// Permission for limits in the environment; the first file that says it decides.
    pub limits_from_environment: Option<bool>,
    /// The mode of the job's profile: what all files that name one allow.
    pub profile_mode: Option<u32>,
}

impl Scopes {
    /// Returns true if anything is limited.
    #[must_use]
    pub fn any(&self) -> bool {
        self.job.is_some() || !self.user.is_empty() || !self.groups.is_empty() || !self.steps.is_empty()
    }
}

/// Puts together what the files and the command line say.
///
/// # Errors
/// One sentence: a GPU cannot be found, or two limits cannot be compared.
pub fn gather(
    asked: Option<&RequestedLimits>,
    files: &[Read],
    person: &Person,
    gpus: &Gpus<'_>,
) -> Result<Scopes, LimitError> {
    let mut scopes = Scopes::default();
    let mut job = asked
        .map(|requested| resolve(requested, gpus).map_err(|error| error.at("--mem-limit")))
        .transpose()?;
    let mut default: Option<Vec<Limit>> = None;
    let mut cap: Option<Vec<Limit>> = None;
    for file in files {
        let of = |requested: &RequestedLimits| {
            resolve(requested, gpus).map_err(|error| error.at(file.path.display()))
        };
        let config = &file.config;
        scopes.context = scopes.context.or(config.context);
        scopes.mps.enable = scopes.mps.enable.or(config.mps.enable);
        scopes.mps.active_thread_percentage =
            scopes.mps.active_thread_percentage.or(config.mps.active_thread_percentage);
        scopes.mps.pipe_directory =
            scopes.mps.pipe_directory.take().or_else(|| config.mps.pipe_directory.clone());
        scopes.limits_from_environment =
            scopes.limits_from_environment.or(config.job.limits_from_environment);
        if let Some(mode) = config.job.profile_mode {
            scopes.profile_mode = Some(scopes.profile_mode.map_or(mode.0, |known| known & mode.0));
        }
        if let Some(requested) = &config.job.mem_limit {
            tighten(&mut default, &of(&requested.0)?, gpus)?;
        }
        if let Some(requested) = &config.job.mem_limit_max {
            tighten(&mut cap, &of(&requested.0)?, gpus)?;
        }
        for requested in of_user(file, person) {
            scopes.user = stricter(&scopes.user, &of(requested)?, gpus)?;
            scopes.is_user_administered |= file.is_administered();
        }
        for (name, group) in &config.group {
            let Some((gid, _)) =
                person.groups.iter().find(|known| is_called(name, known.0, known.1.as_deref()))
            else {
                continue;
            };
            let Some(requested) = &group.mem_limit else { continue };
            let limits = of(&requested.0)?;
            match scopes.groups.iter_mut().find(|known| known.gid == *gid) {
                Some(known) => known.limits = stricter(&known.limits, &limits, gpus)?,
                None => scopes.groups.push(OfGroup { gid: *gid, name: name.clone(), limits }),
            }
        }
    }
    job = job.or(default);
    if let Some(cap) = cap {
        let before = job.clone();
        tighten(&mut job, &cap, gpus)?;
        scopes.capped = before.is_some_and(|before| Some(before) != job);
    }
    scopes.job = job;
    Ok(scopes)
}

/// A user's limits in a file. A section that names the user replaces what is said of members of a
/// group, and that replaces what is said of everybody.
fn of_user<'a>(file: &'a Read, person: &Person) -> Vec<&'a RequestedLimits> {
    let config = &file.config;
    let named = config.user.iter().find(|(name, _)| is_called(name, person.uid, person.user.as_deref()));
    if let Some((_, user)) = named {
        return user.mem_limit.iter().map(|limits| &limits.0).collect();
    }
    let member = |name: &str| person.groups.iter().any(|known| is_called(name, known.0, known.1.as_deref()));
    let each: Vec<&RequestedLimits> = config
        .group
        .iter()
        .filter(|(name, _)| member(name))
        .filter_map(|(_, group)| group.mem_limit_each.as_ref().map(|limits| &limits.0))
        .collect();
    if !each.is_empty() {
        return each;
    }
    config.default.mem_limit.iter().map(|limits| &limits.0).collect()
}

/// Returns true if a section is about a user or group: by name, or by number.
fn is_called(section: &str, id: u32, name: Option<&str>) -> bool {
    name == Some(section) || section.parse() == Ok(id)
}

fn tighten(known: &mut Option<Vec<Limit>>, further: &[Limit], gpus: &Gpus<'_>) -> Result<(), LimitError> {
    *known = Some(match known.take() {
        Some(known) => stricter(&known, further, gpus)?,
        None => further.to_vec(),
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::config;
    use super::*;
    use radrm_telemetry::ledger::Amount;
    use std::path::Path;

    fn alice() -> Person {
        let group = |gid, name: &str| (gid, Some(name.to_owned()));
        Person { uid: 1000, user: Some("alice".into()), groups: vec![group(100, "users"), group(200, "lab")] }
    }

    fn file(text: &str) -> Read {
        let config = config::parse(Path::new("f.toml"), text).unwrap();
        Read { path: "f.toml".into(), own: false, config }
    }

    fn scopes(asked: Option<&str>, files: &[&str]) -> Scopes {
        let asked = asked.map(|text| RequestedLimits::parse(text).unwrap());
        let files: Vec<Read> = files.iter().map(|text| file(text)).collect();
        gather(asked.as_ref(), &files, &alice(), &|| Err(LimitError::NoLimit)).unwrap()
    }

    fn general(gib: u64) -> Vec<Limit> {
        vec![Limit { gpu: None, amount: Amount::Bytes(gib << 30) }]
    }

    #[test]
    fn the_nearest_section_decides_what_a_user_may_take() {
        let user = |text: &str| scopes(None, &[text]).user;
        assert_eq!(user("[default]\nmem-limit='9GiB'"), general(9));
        assert_eq!(user("[default]\nmem-limit='9GiB'\n[user.bob]\nmem-limit='1GiB'"), general(9));
        assert_eq!(user("[default]\nmem-limit='9GiB'\n[user.alice]\nmem-limit='20GiB'"), general(20));
        assert_eq!(user("[default]\nmem-limit='9GiB'\n[user.1000]\nmem-limit='20GiB'"), general(20));
        assert_eq!(user("[default]\nmem-limit='9GiB'\n[group.lab]\nmem-limit-each='20GiB'"), general(20));
        // Of several groups the strictest; a group that alice is not in says nothing.
        let groups = "[group.lab]\nmem-limit-each='20GiB'\n[group.100]\nmem-limit-each='10GiB'\n[group.none]\nmem-limit-each='1GiB'";
        assert_eq!(user(groups), general(10));
        assert_eq!(user(&format!("{groups}\n[user.alice]\n")), []);
    }

    #[test]
    fn no_file_loosens_what_another_one_says() {
        let system = "[default]\nmem-limit='9GiB'\n[job]\nmem-limit='4GiB'";
        for (own, user, job) in [
            ("[default]\nmem-limit='20GiB'\n[job]\nmem-limit='6GiB'", 9, 4),
            ("[default]\nmem-limit='5GiB'\n[job]\nmem-limit='3GiB'", 5, 3),
        ] {
            let found = scopes(None, &[system, own]);
            assert_eq!((found.user, found.job), (general(user), Some(general(job))));
        }
    }

    #[test]
    fn a_job_that_asks_gets_what_it_asks_for_up_to_the_cap() {
        let text = "[job]\nmem-limit='4GiB'\nmem-limit-max='8GiB'";
        let job = |asked| {
            let found = scopes(asked, &[text]);
            (found.job.unwrap(), found.capped)
        };
        assert_eq!(job(None), (general(4), false));
        assert_eq!(job(Some("6GiB")), (general(6), false));
        assert_eq!(job(Some("20GiB")), (general(8), true));
        assert_eq!(job(Some("none")), (general(8), true));
        assert_eq!(scopes(None, &["[job]\nmem-limit-max='8GiB'"]).job, Some(general(8)));
        assert_eq!(scopes(Some("6GiB"), &[]).job, Some(general(6)));
        assert!(!scopes(None, &[""]).any());
    }

    #[test]
    fn the_first_file_decides_about_limits_from_the_environment() {
        let of = |files: &[&str]| scopes(None, files).limits_from_environment;
        let (yes, no) = ("[job]\nlimits-from-environment=true", "[job]\nlimits-from-environment=false");
        assert_eq!((of(&[""]), of(&["", yes]), of(&[no, yes])), (None, Some(true), Some(false)));
    }

    #[test]
    fn groups_are_those_of_the_user() {
        let found = scopes(
            None,
            &[
                "[group.lab]\nmem-limit='9GiB'\n[group.none]\nmem-limit='1GiB'",
                "[group.200]\nmem-limit='7GiB'",
            ],
        );
        assert_eq!(found.groups.len(), 1);
        assert_eq!((found.groups[0].gid, &found.groups[0].limits), (200, &general(7)));
    }

    #[test]
    fn the_user_of_this_process_is_known() {
        let own = Person::own();
        assert_eq!(own.uid, getuid().as_raw());
        assert!(own.groups.iter().any(|group| group.0 == getgid().as_raw()));
    }
}
