//! Reservations of GPUs for people, from the file and by administrators: what they state, and what is wrong with them.

use std::collections::BTreeSet;
use std::path::Path;

use radrm_os::untrusted;
use radrm_protocol::limits::ReserveRow;
use radrm_scheduler_core::{Millis, amount};
use radrm_text::did_you_mean;
use serde::{Deserialize, Deserializer, Serialize};

use crate::error::DaemonError;
use crate::time::LocalTime;
use crate::user_limits::{Scope, Written};

/// Time before a reservation begins in which no other job without a time limit starts on its GPUs.
const LEAD: Millis = Millis::from_secs(86_400);

/// Names in a list, or in a text with commas.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NameList(pub(crate) Vec<String>);

impl<'de> Deserialize<'de> for NameList {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = Written::deserialize(from)?.text();
        let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
        Ok(Self(names.map(str::to_owned).collect()))
    }
}

/// Reservation of the file, with its times as they are written. One that is over does nothing.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReservationSection {
    /// Users whose jobs may start on the GPUs.
    #[serde(default)]
    pub(crate) users: NameList,
    /// Unix groups whose members' jobs may.
    #[serde(default)]
    pub(crate) groups: NameList,
    /// The GPUs, by number, UUID or model; none: all.
    #[serde(default)]
    pub(crate) gpus: NameList,
    /// Begin, by the node's clock and time zone.
    pub(crate) from: LocalTime,
    /// End, likewise.
    pub(crate) until: LocalTime,
    /// Time before the begin in which no other job without a time limit starts there, ms or text such as `"12h"`; a day where it is
    /// not stated.
    #[serde(default = "lead", deserialize_with = "amount::millis")]
    pub(crate) lead: Millis,
    /// True if other jobs that still run there at the begin, and may be preempted, are asked to leave.
    #[serde(default)]
    pub(crate) evict: bool,
    /// Text that is shown with it.
    #[serde(default)]
    pub(crate) reason: String,
}

fn lead() -> Millis {
    LEAD
}

impl ReservationSection {
    /// The reservation that it states.
    ///
    /// # Errors
    /// What is wrong with it, but for names that this node does not know.
    pub(crate) fn stated(&self) -> Result<Reservation, DaemonError> {
        let Self { users, groups, gpus, from, until, lead, evict, reason } = self.clone();
        let reason = reason.trim().to_owned();
        let stated = Reservation {
            users: users.0,
            groups: groups.0,
            gpus: gpus.0,
            from_ms: from.epoch_ms()?,
            until_ms: until.epoch_ms()?,
            lead_ms: lead.0,
            evict,
            reason: (!reason.is_empty()).then_some(reason),
        };
        stated.check()?;
        Ok(stated)
    }
}

/// A reservation. Times are ms since 1970 by the wall clock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reservation {
    pub(crate) users: Vec<String>,
    pub(crate) groups: Vec<String>,
    /// By number, UUID or model; none: all.
    pub(crate) gpus: Vec<String>,
    pub(crate) from_ms: u64,
    pub(crate) until_ms: u64,
    pub(crate) lead_ms: u64,
    pub(crate) evict: bool,
    pub(crate) reason: Option<String>,
}

/// Reservation of an administrator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SetReservation {
    pub(crate) of: Reservation,
    /// The administrator.
    pub(crate) by: String,
    /// ms since 1970.
    pub(crate) at_ms: u64,
}

/// Longest reason, bytes.
const MAX_REASON: usize = 200;

impl Reservation {
    /// As an administrator asks for it at this time, ms since 1970.
    pub(crate) fn asked(row: &ReserveRow, now_ms: u64) -> Result<Self, DaemonError> {
        let section = ReservationSection {
            users: NameList(row.users.clone()),
            groups: NameList(row.groups.clone()),
            gpus: NameList(row.gpus.clone()),
            from: row.from.as_deref().map_or_else(|| Ok(LocalTime::of(now_ms)), LocalTime::read)?,
            until: LocalTime::read(&row.until)?,
            lead: row.lead_ms.map_or(LEAD, Millis),
            evict: row.evict,
            reason: row.reason.clone().unwrap_or_default(),
        };
        let stated = section.stated()?;
        match stated.until_ms <= now_ms {
            true => Err(DaemonError::ReservationOver(LocalTime::of(stated.until_ms).to_string())),
            false => Ok(stated),
        }
    }

    fn check(&self) -> Result<(), DaemonError> {
        if self.users.is_empty() && self.groups.is_empty() {
            return Err(DaemonError::ReservationOfNone);
        }
        if self.until_ms <= self.from_ms {
            let [from, until] = [self.from_ms, self.until_ms].map(|at| LocalTime::of(at).to_string());
            return Err(DaemonError::ReservationOrder { from, until });
        }
        check_reason(self.reason.as_deref())
    }

    /// `alice, bob, group lab`.
    pub(crate) fn whose(&self) -> String {
        let groups = self.groups.iter().map(|name| format!("group {name}"));
        self.users.iter().cloned().chain(groups).collect::<Vec<_>>().join(", ")
    }

    /// Users and groups.
    fn scopes(&self) -> impl Iterator<Item = Scope> {
        let users = self.users.iter().cloned().map(Scope::User);
        users.chain(self.groups.iter().cloned().map(Scope::Group))
    }

    /// The first user or group that this machine does not know, with the nearest name of its files.
    pub(crate) fn unknown(&self) -> Option<String> {
        self.scopes().find(|scope| !scope.is_known()).map(|scope| with_nearest(&scope))
    }
}

/// Checks a text that users see.
pub(crate) fn check_reason(reason: Option<&str>) -> Result<(), DaemonError> {
    let is_odd = |reason: &str| reason.len() > MAX_REASON || reason.contains(char::is_control);
    match reason.is_some_and(is_odd) {
        true => Err(DaemonError::LongReason(MAX_REASON)),
        false => Ok(()),
    }
}

/// Users and groups of reservations of the file that this machine does not know, a sentence each.
pub(crate) fn unknown(sections: &[ReservationSection], is_known: impl Fn(&Scope) -> bool) -> Vec<String> {
    let stated = sections.iter().filter_map(|section| section.stated().ok());
    let scopes: BTreeSet<Scope> = stated.flat_map(|of| of.scopes().collect::<Vec<_>>()).collect();
    let unknown = scopes.into_iter().filter(|scope| !is_known(scope));
    unknown
        .map(|scope| {
            format!(
                "reservations: this machine has no {} now, so no job starts there for that name",
                with_nearest(&scope)
            )
        })
        .collect()
}

/// Most bytes of a list of accounts.
const MAX_ACCOUNTS: usize = 4 << 20;

/// `user alcie; did you mean alice?`. Only the machine's own files are asked: a server may have any number of names.
pub(crate) fn with_nearest(scope: &Scope) -> String {
    let (file, name) = match scope {
        Scope::Default => return scope.to_string(),
        Scope::Group(name) => ("/etc/group", name),
        Scope::User(name) => ("/etc/passwd", name),
    };
    let bytes = untrusted::read(Path::new(file), MAX_ACCOUNTS).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let names = text.lines().filter_map(|line| line.split(':').next());
    format!("{scope}{}", did_you_mean(name, names))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    const FILE: &str = "[[reservations]]\nusers = [\"alice\", \"bob\"]\ngroups = \"lab\"\ngpus = [0, \"A100\"]\n\
        from = \"2026-12-24 08:00\"\nuntil = \"2026-12-26 20:00\"\nlead = \"12h\"\nreason = \"course\"\n";

    #[test]
    fn a_reservation_of_the_file_is_read_as_people_write_it() {
        let config = Config::parse(FILE).unwrap();
        let [one] = &config.reservations[..] else { panic!("{:?}", config.reservations) };
        let stated = one.stated().unwrap();
        assert_eq!(stated.whose(), "alice, bob, group lab");
        assert_eq!(stated.gpus, ["0", "A100"]);
        assert_eq!(stated.until_ms - stated.from_ms, (2 * 24 + 12) * 3_600_000);
        assert_eq!((stated.lead_ms, stated.evict), (12 * 3_600_000, false));
        let unknown = unknown(&config.reservations, |scope| *scope != Scope::User("bob".to_owned()));
        assert!(matches!(&unknown[..], [one] if one.contains("no user bob")), "{unknown:?}");
    }

    #[test]
    fn what_is_wrong_with_a_reservation_is_found() {
        for (from, to, part) in [
            ("users = [\"alice\", \"bob\"]\ngroups = \"lab\"\n", "", "for no user and no group"),
            ("until = \"2026-12-26", "until = \"2026-12-24", "2026-12-24 20:00"),
            ("until = \"2026-12-26 20:00\"", "until = \"2026-12-24 07:59\"", "ends before it begins"),
            ("until = \"2026-12-26 20:00\"", "until = \"2026-11-31\"", "no such date"),
            ("until = \"2026-12-26 20:00\"", "until = \"tomorrow\"", "a time such as \"2026-12-24 08:00\""),
            ("until = ", "untill = ", "did you mean until?"),
            ("reason = \"course\"", "reason = \"a\\nb\"", "one line"),
        ] {
            assert!(FILE.contains(from));
            let result = Config::parse(&FILE.replace(from, to));
            let text = match result {
                Ok(config) => LocalTime::of(config.reservations[0].stated().unwrap().until_ms).to_string(),
                Err(error) => error.to_string(),
            };
            assert!(text.contains(part) && text.lines().count() == 1, "{to}: {text}");
        }
    }

    #[test]
    fn an_unknown_user_is_named_with_the_nearest_one() {
        let text = with_nearest(&Scope::User("rooot".to_owned()));
        assert_eq!(text, "user rooot; did you mean root?");
    }

    #[test]
    fn a_reservation_that_is_over_is_refused() {
        let row = |until: &str| ReserveRow {
            users: vec!["root".to_owned()],
            until: until.to_owned(),
            ..ReserveRow::default()
        };
        let now = 1_800_000_000_000 + 1234;
        let error = Reservation::asked(&row("2020-01-01"), now).unwrap_err().to_string();
        assert!(error.contains("2020-01-01 00:00"), "{error}");
        let asked = Reservation::asked(&row("2099-01-01 12:00"), now).unwrap();
        assert_eq!((asked.from_ms, asked.lead_ms, asked.gpus.len()), (now - 1234, 86_400_000, 0));
    }
}
