//! Limits of users: from the file, the store and the accounts to the scheduler, and back to those who ask.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use radrm_limits::files::{self, Read};
use radrm_limits::resolve::amount_for;
use radrm_limits::scopes::{self, Person};
use radrm_os::nvml::{Gpu, Inventory};
use radrm_protocol::limits::{LimitRow, LimitsRow, SetLimitRow};
use radrm_protocol::spec::Spec;
use radrm_protocol::wire::Response;
use radrm_scheduler_core::{
    Allowance, AllowedDevices, Bound, Bytes, DeviceId, DeviceQuota, Event, GroupMembers, LIMITS, LimitKey,
    LimitUnit, LimitValue, Millis, Quiet, SmallJobs, UserId,
};
use radrm_telemetry::ledger::Limit;
use radrm_text::did_you_mean;
use radrm_text::output::say;

use super::Engine;
use super::outbox::Note;
use crate::accounting::{AttemptEnd, UsageSums, later_than};
use crate::error::DaemonError;
use crate::gpu_numbers;
use crate::limited_groups::{Groups, LimitedGroups};
use crate::peer::Peer;
use crate::store::{user_groups, user_limits};
use crate::time::local_minute;
use crate::user_limits::{AND, LimitSetting, Named, Resolved, Scope, UserLimitTable};

/// Time over which GPU-hours are counted, ms.
const WEEK_MS: u64 = 7 * 86_400_000;
/// Time for which the start of the daemon waits for the groups of users. Those of before hold until they come.
const MAX_LOOK_UP: Duration = Duration::from_secs(5);

/// Limits of users, and the users that the scheduler knows limits of.
#[derive(Debug, Default)]
pub(super) struct UserLimits {
    table: UserLimitTable,
    /// Groups for which it has sections.
    limited: Arc<LimitedGroups>,
    /// Time since when these are the groups; `None`: there were none yet.
    named_at: Option<Instant>,
    users: BTreeMap<u32, Account>,
    /// GPU-hours of users in the last seven days; counted each minute, and only where a limit is on them.
    gpu_hours: BTreeMap<u32, f64>,
    /// The count that is under way: sums of the attempts up to this one.
    counting: Option<(UsageSums, AttemptEnd)>,
    /// Memory limits of `radrm.toml`, as administrators state them.
    pub(super) memory_files: Vec<Read>,
}

/// A user who has submitted jobs, or asked for limits.
#[derive(Clone, Debug, Default)]
struct Account {
    name: String,
    groups: Groups,
    /// Limits that the scheduler has.
    reported: Allowance,
}

/// Members of groups, by name: found once for all users whose limits are reported.
type Members = BTreeMap<String, Vec<UserId>>;

impl UserLimits {
    pub(super) fn new(table: UserLimitTable) -> Self {
        Self { table, ..Self::default() }
    }

    /// Reads the memory limits anew; those of before hold while a file is wrong, which the next job reports.
    fn read_memory_files(&mut self) {
        if let Ok(files) = files::of_administrators() {
            self.memory_files = files;
        }
    }
}

impl Engine {
    /// Takes up settings of an earlier daemon's administrators, and the users whose jobs are there.
    pub(super) fn recover_limits(&mut self, users: BTreeMap<u32, String>) -> Result<(), DaemonError> {
        let set = user_limits::all(&self.outbox.store().connection).map_err(DaemonError::QueueRead)?;
        for (scope, key, setting) in set {
            self.limits.table.set(scope, key, Some(setting));
        }
        self.limits.read_memory_files();
        let groups = user_groups::all(&self.outbox.store().connection).map_err(DaemonError::QueueRead)?;
        // Their jobs ended under a daemon that was killed.
        for uid in groups.keys().filter(|uid| !users.contains_key(uid)) {
            self.outbox.note(Note::UserGroups(*uid, None));
        }
        for (uid, name) in users {
            let names = groups.get(&uid).cloned().unwrap_or_default();
            let groups = Groups { names, since: None };
            self.limits.users.insert(uid, Account { name, groups, ..Account::default() });
        }
        self.recover_reservations()?;
        self.name_groups();
        let found = self.ask_for_groups(MAX_LOOK_UP);
        self.take_groups(found);
        self.name_missing_gpus();
        self.report_all_limits();
        Ok(())
    }

    /// Logs names of the file that no GPU of this node has: jobs do not get others for them.
    fn name_missing_gpus(&self) {
        let list = &self.node.gpus().list;
        for (scope, name) in self.limits.table.named_gpus() {
            if !list.is_empty() && allowed(list, std::slice::from_ref(name)).is_empty() {
                say(crate::process::NAME, &format!("allowed_gpus of {scope}: this node has no GPU {name}"));
            }
        }
    }

    /// Groups that have limits, for the threads that look up those of users.
    pub(crate) fn limited_groups(&self) -> Arc<LimitedGroups> {
        Arc::clone(&self.limits.limited)
    }

    /// The table may have sections for other groups than before.
    pub(super) fn name_groups(&mut self) {
        let mut names = self.limits.table.groups();
        names.extend(self.reservations.groups());
        names.extend(self.limits.memory_files.iter().flat_map(|file| file.config.group.keys().cloned()));
        if self.limits.limited.set_names(names) {
            self.limits.named_at = Some(Instant::now());
        }
    }

    /// Users of whom it is not known in which of the groups that are named now they are.
    pub(super) fn with_unknown_groups(&self) -> Vec<UserId> {
        let named_at = self.limits.named_at;
        let is_known = |account: &Account| {
            account.name.is_empty() || account.groups.since.is_some_and(|since| Some(since) >= named_at)
        };
        let unknown = self.limits.users.iter().filter(|(_, account)| !is_known(account));
        unknown.map(|(uid, _)| UserId(*uid)).collect()
    }

    /// A user asks or submits: the groups may be others than before. A user without an account is none.
    pub(super) fn know_account(&mut self, peer: &Peer) {
        if peer.name.is_empty() {
            return;
        }
        let account = self.limits.users.entry(peer.uid).or_default();
        account.name.clone_from(&peer.name);
        self.take_groups(vec![(peer.uid, peer.groups.clone())]);
        self.report_limits(peer.uid);
        self.report_reservations();
    }

    /// Users that are known now of these names, or in these groups.
    pub(super) fn people(&self, users: &[String], groups: &[String]) -> Vec<UserId> {
        let is_one = |account: &Account| {
            users.contains(&account.name) || account.groups.names.iter().any(|name| groups.contains(name))
        };
        let found = self.limits.users.iter().filter(|(_, account)| is_one(account));
        found.map(|(uid, _)| UserId(*uid)).collect()
    }

    /// Forgets users who have no job any more.
    pub(super) fn forget_accounts(&mut self) {
        // Jobs of a large submission are taken up one after another, and their users have none before.
        if !self.arrivals.is_empty() {
            return;
        }
        let open: BTreeSet<u32> = self.jobs.entries().users().collect();
        let gone: Vec<u32> = self.limits.users.keys().filter(|uid| !open.contains(uid)).copied().collect();
        for uid in gone {
            let Some(account) = self.limits.users.remove(&uid) else { continue };
            if !account.groups.names.is_empty() {
                self.outbox.note(Note::UserGroups(uid, None));
            }
            if !account.reported.is_none() {
                self.step(Event::AllowanceSet { user: UserId(uid), allowance: Box::default() });
            }
        }
    }

    /// The file was read again.
    pub(super) fn reload_limits(&mut self) {
        self.limits.table.replace_file(self.config.limits.clone());
        self.name_missing_gpus();
        // Groups are named before reservations for them are reported: see `with_unknown_groups`.
        self.reload_reservations();
        self.review_limits();
        self.look_up_groups();
    }

    /// Has the groups of all users looked up anew; [`Message::Groups`](crate::message::Message::Groups) brings them.
    pub(super) fn look_up_groups(&mut self) {
        let found = self.ask_for_groups(Duration::ZERO);
        self.take_groups(found);
    }

    fn ask_for_groups(&self, patience: Duration) -> Vec<(u32, Groups)> {
        let accounts = self.limits.users.iter().map(|(uid, account)| (*uid, account.name.clone()));
        let accounts: Vec<(u32, String)> = accounts.filter(|(_, name)| !name.is_empty()).collect();
        match self.limits.limited.is_empty() || accounts.is_empty() {
            true => Vec::new(),
            false => self.effects.look_up_groups(&self.limits.limited, accounts, patience),
        }
    }

    /// The groups of users were looked up.
    pub(super) fn take_groups(&mut self, found: Vec<(u32, Groups)>) {
        let mut is_renewed = false;
        let (mut moved, mut changed) = (BTreeSet::new(), BTreeSet::new());
        for (uid, groups) in found {
            let Some(account) = self.limits.users.get_mut(&uid) else { continue };
            let before = account.groups.clone();
            let differ = account.groups.renew(groups);
            is_renewed |= account.groups.since != before.since;
            if differ {
                let names = account.groups.names.clone();
                let is_same = |name: &String| names.contains(name) && before.names.contains(name);
                changed.extend(names.iter().chain(&before.names).filter(|name| !is_same(name)).cloned());
                self.outbox.note(Note::UserGroups(uid, Some(names)));
                moved.insert(uid);
            }
        }
        if !moved.is_empty() {
            // Other members have memory together with them.
            if !self.limits.memory_files.iter().any(|file| !file.config.group.is_empty()) {
                changed.clear();
            }
            let is_one = |uid: &u32, account: &Account| {
                moved.contains(uid) || account.groups.names.iter().any(|name| changed.contains(name))
            };
            let users = self.limits.users.iter().filter(|(uid, account)| is_one(uid, account));
            let users = users.map(|(uid, _)| *uid).collect();
            self.report_limits_of(users);
        }
        if is_renewed {
            self.report_reservations();
        }
    }

    /// Begins to count GPU-hours again, where a limit is on them, and gives the scheduler what changed, also by the hour.
    pub(super) fn review_limits(&mut self) {
        self.begin_count();
        self.limits.read_memory_files();
        self.name_groups();
        self.report_all_limits();
        self.review_reservations();
    }

    fn report_all_limits(&mut self) {
        self.report_limits_of(self.limits.users.keys().copied().collect());
    }

    fn begin_count(&mut self) {
        if self.limits.table.has(LimitKey::GpuHours) && !self.is_counting() {
            let now = self.now.at.0;
            let from = now.saturating_sub(WEEK_MS);
            let sums = UsageSums::new(from, now.saturating_add(1));
            self.limits.counting = Some((sums, later_than(from)));
        }
    }

    /// Returns true if GPU-hours are being counted.
    pub(super) fn is_counting(&self) -> bool {
        self.limits.counting.is_some()
    }

    /// Counts the next attempts of the last seven days, running ones last and up to now. All of them may take long, so each round
    /// of the engine counts a part.
    pub(super) fn count_some(&mut self) {
        let Some((mut sums, after)) = self.limits.counting.take() else { return };
        let span = (sums.from_ms, sums.to_ms);
        match self.gpu_times(&Peer::everybody(), span, after, |time| sums.add(&time)) {
            Ok(Some(after)) => self.limits.counting = Some((sums, after)),
            Ok(None) => {
                let hours = sums.rows().into_iter().map(|row| (row.uid, row.gpu_hours));
                self.limits.gpu_hours = hours.collect();
                self.report_all_limits();
            }
            // Those of before count until the next time.
            Err(_) => {}
        }
    }

    fn resolved(&self, uid: u32, key: LimitKey) -> Option<Resolved> {
        let account = self.limits.users.get(&uid)?;
        self.limits.table.resolve(&account.name, &account.groups.names, key)
    }

    /// Value of a limit of a user that is a number.
    fn number(&self, uid: u32, key: LimitKey) -> Option<Bound> {
        let of = self.resolved(uid, key)?;
        match of.value {
            LimitValue::Number(most) => Some(Bound { most, from: of.from() }),
            _ => None,
        }
    }

    fn allowance(&self, uid: u32, members: &mut Members) -> Allowance {
        let number = |key| self.number(uid, key);
        let devices = match self.resolved(uid, LimitKey::AllowedGpus) {
            Some(of) => match &of.value {
                LimitValue::Gpus(names) => {
                    let devices = allowed(&self.node.gpus().list, names);
                    Some(AllowedDevices { devices, from: of.from() })
                }
                _ => None,
            },
            None => None,
        };
        let used = self.limits.gpu_hours.get(&uid).copied().unwrap_or(0.0);
        let behind = number(LimitKey::GpuHours).is_some_and(|bound| used >= bound.most as f64);
        Allowance {
            gpus: number(LimitKey::Gpus),
            running: number(LimitKey::RunningJobs),
            time: number(LimitKey::MaxTime),
            memory: number(LimitKey::Memory),
            devices,
            quotas: self.quotas(uid, members),
            quiet: self.quiet(uid),
            behind,
        }
    }

    /// Memory that a user's jobs, and those of the members of each of the user's groups, may have together, on the GPUs where
    /// `radrm.toml` limits it. The shim holds jobs to it: a job that is placed beside others must find room under it.
    fn quotas(&self, uid: u32, members: &mut Members) -> Vec<DeviceQuota> {
        let Some(account) = self.limits.users.get(&uid).filter(|_| !self.limits.memory_files.is_empty())
        else {
            return Vec::new();
        };
        // Names alone, as sections have them: a section that names a group by its number has that as a name. The numbers only
        // tell the groups apart.
        let names = account.groups.names.iter().map(|name| Some(name.clone()));
        let groups = (0..u32::MAX).rev().zip(names).collect();
        let person = Person { uid, user: Some(account.name.clone()), groups };
        let list = &self.node.gpus().list;
        let inventory = || Ok(Inventory { gpus: list.clone(), driver: String::new() });
        let scopes = scopes::gather(None, &self.limits.memory_files, &person, &inventory);
        // A job reports what is wrong in the file, with the line.
        let Ok(scopes) = scopes else { return Vec::new() };
        let quotas = |limits: &[Limit], group: Option<GroupMembers>| -> Vec<DeviceQuota> {
            let quota = |(at, gpu): (usize, &Gpu)| {
                let bytes = amount_for(limits, &gpu.bytes)?.bytes(gpu.total);
                let device = gpu_numbers::device(list, at);
                let group = group.clone();
                (bytes < gpu.total).then_some(DeviceQuota { device, bytes: Bytes(bytes), group })
            };
            list.iter().enumerate().filter_map(quota).collect()
        };
        let of_groups = scopes.groups.iter().flat_map(|of| {
            let found = members.entry(of.name.clone());
            let users = found.or_insert_with(|| self.people(&[], std::slice::from_ref(&of.name))).clone();
            quotas(&of.limits, Some(GroupMembers { name: of.name.clone(), users }))
        });
        quotas(&scopes.user, None).into_iter().chain(of_groups).collect()
    }

    /// Quiet hours of a user, if it is such an hour.
    fn quiet(&self, uid: u32) -> Option<Quiet> {
        let of = self.resolved(uid, LimitKey::QuietHours)?;
        let LimitValue::Hours(hours) = &of.value else { return None };
        // Not the scheduler's clock: that goes on as it was when the wall clock is set right.
        let (day, minute) = local_minute(self.effects.wall())?;
        let most = |key| self.number(uid, key).map(|bound| bound.most);
        let small = SmallJobs {
            memory: most(LimitKey::QuietMemory),
            share: most(LimitKey::QuietShare),
            time: most(LimitKey::QuietTime),
        };
        let quiet = Quiet { hours: hours.to_string(), from: of.from(), small };
        hours.contains(day, minute).then_some(quiet)
    }

    /// Gives the scheduler a user's limits, where they changed.
    fn report_limits(&mut self, uid: u32) {
        self.report_limits_of(vec![uid]);
    }

    /// Gives the scheduler the limits of these users, where they changed. It looks through the queue once, after all of them.
    fn report_limits_of(&mut self, users: Vec<u32>) {
        let (mut members, mut changed) = (Members::new(), Vec::new());
        for uid in users {
            let new = self.allowance(uid, &mut members);
            if let Some(account) = self.limits.users.get_mut(&uid).filter(|account| account.reported != new) {
                account.reported = new.clone();
                changed.push((uid, new));
            }
        }
        // A daemon that recovers is paused until it has recovered all.
        let pauses = changed.len() > 1 && !self.recovering;
        if pauses {
            self.step(Event::Paused { paused: true });
        }
        for (uid, new) in changed {
            self.step(Event::AllowanceSet { user: UserId(uid), allowance: Box::new(new) });
        }
        if pauses {
            self.step(Event::Paused { paused: false });
        }
    }

    /// Gives a job without a time limit the one of its user; returns a remark for the user.
    pub(super) fn limit_time(&self, uid: u32, spec: &mut Spec) -> Option<String> {
        if spec.time_limit_ms.is_some() {
            return None;
        }
        let default = self.number(uid, LimitKey::DefaultTime)?;
        let most = self.number(uid, LimitKey::MaxTime).filter(|most| most.most < default.most);
        let (name, Bound { most: ms, from }) = match most {
            Some(most) => ("max_time", most),
            None => ("default_time", default),
        };
        spec.time_limit_ms = Some(ms);
        Some(format!("the job has no --time, so it ends after {} ({name}, {from})", Millis(ms)))
    }

    /// Limits of a user: one's own, or anyone's for an administrator, as `named`.
    pub(super) fn show_limits(
        &mut self,
        peer: &Peer,
        user: Option<&str>,
        named: Option<&Named>,
    ) -> Result<Response, DaemonError> {
        let (uid, name) = match user.filter(|name| *name != peer.name) {
            None => (peer.uid, peer.name.clone()),
            Some(_) if !peer.admin => return Err(DaemonError::OthersLimits),
            Some(name) => {
                let account = named.and_then(|named| named.account.clone());
                let unknown = || DaemonError::UnknownScope(format!("user {name}"));
                let (uid, name, groups) = account.ok_or_else(unknown)?;
                let of = self.limits.users.entry(uid).or_default();
                // What is asked changes nothing of what holds: an account that has jobs keeps the name that it has for them.
                if of.name.is_empty() {
                    of.name = name;
                }
                let name = of.name.clone();
                self.take_groups(vec![(uid, groups)]);
                (uid, name)
            }
        };
        self.report_limits(uid);
        let held = self.core.state.holding(UserId(uid));
        let hours = self.limits.gpu_hours.get(&uid).copied().unwrap_or(0.0);
        let row = |info: &radrm_scheduler_core::LimitInfo| {
            let found = self.resolved(uid, info.key);
            let used = match info.key {
                LimitKey::Gpus => Some(held.gpus as f64),
                LimitKey::RunningJobs => Some(held.jobs as f64),
                LimitKey::GpuHours if found.is_some() => Some(hours),
                _ => None,
            };
            LimitRow {
                name: info.name.to_owned(),
                bounds: info.bounds.to_owned(),
                value: found.as_ref().map(|of| shown(&of.value, info.key)),
                number: found.as_ref().and_then(|of| match of.value {
                    LimitValue::Number(number) => Some(number),
                    _ => None,
                }),
                unit: match info.unit {
                    LimitUnit::Count => "count",
                    LimitUnit::Time => "ms",
                    LimitUnit::Bytes => "bytes",
                    LimitUnit::Gpus => "gpus",
                    LimitUnit::Hours => "hours",
                    LimitUnit::Share => "thousandths",
                }
                .to_owned(),
                from: found.as_ref().map(Resolved::from),
                set_by: found.as_ref().and_then(|of| of.set.as_ref()).map(|(by, _)| by.clone()),
                set_at_ms: found.and_then(|of| of.set).map(|(_, at_ms)| at_ms),
                used,
            }
        };
        let groups = self.limits.users.get(&uid).map(|account| account.groups.names.clone());
        let groups = groups.unwrap_or_default();
        let limits = LIMITS.iter().map(row).collect();
        let behind = self.allowance(uid, &mut Members::new()).behind;
        let reservations = self.reservation_rows(&Peer {
            uid,
            name: name.clone(),
            groups: Groups::default(),
            ..peer.clone()
        });
        Ok(Response::Limits(Box::new(LimitsRow { user: name, groups, limits, behind, reservations })))
    }

    /// Limits that administrators have set.
    pub(super) fn set_limits(&self, peer: &Peer) -> Result<Response, DaemonError> {
        if !peer.admin {
            return Err(DaemonError::LimitsByAdmins);
        }
        let row = |(scope, key, setting): (&Scope, LimitKey, &LimitSetting)| SetLimitRow {
            scope: scope.text(),
            name: key.info().name.to_owned(),
            value: setting.value.text(key),
            by: setting.by.clone(),
            at_ms: setting.at_ms,
        };
        Ok(Response::SetLimits(self.limits.table.settings().map(row).collect()))
    }

    /// An administrator sets a limit, or takes back what was set.
    pub(super) fn set_limit(
        &mut self,
        peer: &Peer,
        (scope, unknown): (&str, Option<&String>),
        name: &str,
        value: Option<&str>,
    ) -> Result<Response, DaemonError> {
        if !peer.admin {
            return Err(DaemonError::LimitsByAdmins);
        }
        let whose = Scope::parse(scope).ok_or_else(|| DaemonError::NoScope(scope.to_owned()))?;
        let no_limit = || {
            let names = LIMITS.iter().map(|row| row.name);
            DaemonError::UnknownLimit { name: name.to_owned(), hint: did_you_mean(name, names) }
        };
        let key = LimitKey::named(name).ok_or_else(no_limit)?;
        if let Some(unknown) = unknown {
            return Err(DaemonError::UnknownScope(unknown.clone()));
        }
        let read =
            |text: &str| LimitValue::read(key, text).map_err(|why| DaemonError::LimitValue(why.to_string()));
        let value = value.map(read).transpose()?;
        if let Some(LimitValue::Gpus(names)) = &value {
            let list = &self.node.gpus().list;
            if let Some(missing) =
                names.iter().find(|name| allowed(list, std::slice::from_ref(*name)).is_empty())
            {
                return Err(DaemonError::NoGpu(missing.clone()));
            }
        }
        if value.is_none() && !self.limits.table.is_set(&whose, key) {
            return Err(DaemonError::LimitNotSet { name: name.to_owned(), scope: whose.to_string() });
        }
        let (by, at_ms) = (peer.name.clone(), self.now.at.0);
        let sentence = match &value {
            Some(value) => format!("{key} of {whose} is set by {by}: {}", value.text(key)),
            None => format!("{key} of {whose} is unset by {by}"),
        };
        say(crate::process::NAME, &sentence);
        let setting = value.map(|value| LimitSetting { value, by, at_ms });
        self.outbox.note(Note::UserLimit(whose.clone(), key, setting.clone()));
        let is_of_group = matches!(whose, Scope::Group(_));
        self.limits.table.set(whose, key, setting);
        if is_of_group {
            self.name_groups();
            // Nothing is known of members of a group that had no limits.
            self.look_up_groups();
        }
        match key {
            LimitKey::GpuHours => self.review_limits(),
            _ => self.report_all_limits(),
        }
        Ok(Response::Done)
    }
}

/// A value as it is shown: lists of several groups with what connects them.
fn shown(value: &LimitValue, key: LimitKey) -> String {
    value.text(key).replace(&format!(",{AND},"), " and ")
}

/// Returns true if a name is a model's, or a word of it: `A100` of `NVIDIA A100-SXM4-40GB`.
fn is_model(model: &str, name: &str) -> bool {
    let mut words = model.split(|c: char| !c.is_alphanumeric());
    let is_number = name.bytes().all(|byte| byte.is_ascii_digit());
    model == name || (!is_number && words.any(|word| word.eq_ignore_ascii_case(name)))
}

/// The devices of these names: numbers, UUIDs or models. An instance is named by its GPU too.
pub(super) fn allowed(list: &[Gpu], names: &[String]) -> Vec<DeviceId> {
    let is_named = |at: usize, name: &String| {
        let gpu = &list[at];
        let of_gpu = |at| gpu_numbers::is_named(list, at, name);
        // Instances follow their GPU.
        let parent = list[..at].iter().rposition(|gpu| gpu.index.is_some());
        // A node may have instances without their GPUs: these have numbers of their own.
        let is_instance = gpu.index.is_none();
        of_gpu(at) || is_model(&gpu.name, name) || (is_instance && parent.is_some_and(of_gpu))
    };
    let lists: Vec<&[String]> = names.split(|name| name == AND).collect();
    let is_allowed = |at: &usize| lists.iter().all(|names| names.iter().any(|name| is_named(*at, name)));
    let places = (0..list.len()).filter(is_allowed);
    places.map(|at| gpu_numbers::device(list, at)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpus_are_named_by_number_uuid_model_or_a_word_of_it() {
        let gpu = |index: Option<u32>, uuid: &str, name: &str| Gpu {
            index,
            uuid: uuid.to_owned(),
            bytes: [0; 16],
            name: name.to_owned(),
            total: 1,
            divided: false,
        };
        let list = [
            gpu(Some(0), "GPU-a", "NVIDIA A100-SXM4-40GB"),
            gpu(Some(1), "GPU-b", "NVIDIA H100 80GB HBM3"),
            gpu(None, "MIG-c", "NVIDIA H100 80GB HBM3 MIG 1g.10gb"),
        ];
        let of = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            allowed(&list, &names).into_iter().map(|device| device.0).collect::<Vec<_>>()
        };
        assert_eq!(of(&["0"]), [0]);
        assert_eq!(of(&["1"]), [1, 2], "an instance follows its GPU");
        assert_eq!((of(&["MIG-c"]), of(&["2"])), (vec![2], vec![2]), "as `radrm nodes` numbers it");
        assert_eq!(of(&["a100", "GPU-b"]), [0, 1, 2]);
        assert_eq!(of(&["NVIDIA A100-SXM4-40GB"]), [0]);
        assert_eq!(of(&["A10", "100", "9"]), [] as [u32; 0], "neither a part of a word nor a number");
        assert_eq!(of(&["0", "H100", AND, "1", "GPU-a"]), [0, 1, 2]);
        assert_eq!(of(&["0", AND, "1"]), [] as [u32; 0]);
        // A container that was given instances lists them with numbers.
        let list = [0, 1].map(|index| gpu(Some(index), &format!("MIG-{index}"), "A100 MIG 1g.5gb"));
        let of = |name: &str| allowed(&list, &[name.to_owned()]);
        assert_eq!((of("0"), of("MIG-1")), (vec![DeviceId(0)], vec![DeviceId(1)]));
    }
}
