//! Reservations: from the file, the store and administrators to the scheduler, and to those who see them.
//!
//! They begin and end by the wall clock, which is asked each minute as for quiet hours: the scheduler gets them by its own clock,
//! and gets them again when the wall clock was set.

use radrm_os::nvml::Gpu;
use radrm_protocol::limits::{ReservationRow, ReserveRow};
use radrm_protocol::wire::Response;
use radrm_scheduler_core::{AdvanceReservation, Event, JobId, Millis, ReservedFor};
use radrm_text::did_you_mean;
use radrm_text::output::say;

use super::Engine;
use super::outbox::Note;
use super::reservation_list::stated;
use super::user_limits::allowed;
use crate::error::DaemonError;
use crate::gpu_numbers::number;
use crate::peer::Peer;
use crate::reservations::{Reservation, SetReservation};
use crate::store::reservations;
use crate::time::LocalTime;

/// Time for which a reservation that is over is kept: it holds again if the wall clock is set back.
const KEPT_MS: u64 = 86_400_000;
/// Difference of two clocks that is no change of a reservation.
const TOLERANCE: Millis = Millis::from_secs(2);
/// Reservations that administrators may have at a time.
const MAX_SET: usize = 1000;

impl Engine {
    /// Takes up reservations of an earlier daemon's administrators.
    pub(super) fn recover_reservations(&mut self) -> Result<(), DaemonError> {
        let found = reservations::all(&self.outbox.store().connection).map_err(DaemonError::QueueRead)?;
        let (set, last) = found;
        self.reservations.set = set.into_iter().collect();
        self.reservations.last = last;
        self.name_missing_of_reservations();
        Ok(())
    }

    /// The file was read again. The scheduler gets its reservations by [`Self::review_reservations`].
    pub(super) fn reload_reservations(&mut self) {
        self.reservations.file = stated(&self.config.reservations);
        self.name_missing_of_reservations();
    }

    /// Logs names that no GPU of this node has: other GPUs are not kept for them.
    fn name_missing_of_reservations(&self) {
        let list = &self.node.gpus().list;
        for name in self.reservations.all().flat_map(|of| &of.gpus) {
            if !list.is_empty() && allowed(list, std::slice::from_ref(name)).is_empty() {
                say(crate::process::NAME, &format!("reservations: this node has no GPU {name}"));
            }
        }
    }

    /// Forgets reservations that have been over for a while, whichever clock is right, and gives the scheduler what changed.
    pub(super) fn review_reservations(&mut self) {
        let at = self.effects.wall().0.min(self.now.at.0);
        let is_old = |(_, set): &(&u64, &SetReservation)| set.of.until_ms.saturating_add(KEPT_MS) < at;
        let old: Vec<u64> = self.reservations.set.iter().filter(is_old).map(|(number, _)| *number).collect();
        for number in old {
            self.reservations.set.remove(&number);
            self.outbox.note(Note::Reservation(number, None));
        }
        self.report_reservations();
    }

    /// Gives the scheduler the reservations that are not over, where they or their people changed, or the wall clock was set.
    pub(super) fn report_reservations(&mut self) {
        let wall = self.effects.wall().0;
        let all = self.reservations.all().filter(|of| of.until_ms > wall);
        let new: Vec<AdvanceReservation> = all.map(|of| self.advance(of, wall)).collect();
        let reported = &self.reservations.reported;
        if new.len() == reported.len() && new.iter().zip(reported).all(|(new, old)| is_alike(new, old)) {
            return;
        }
        self.reservations.reported.clone_from(&new);
        self.step(Event::AdvanceReservationsSet { reservations: new });
    }

    /// A reservation by the scheduler's clock.
    fn advance(&self, of: &Reservation, wall: u64) -> AdvanceReservation {
        let now = self.now.at.0;
        let by_scheduler = |at: u64| Millis((now.saturating_add(at)).saturating_sub(wall));
        AdvanceReservation {
            devices: self.devices_of(of),
            users: self.people(&of.users, &of.groups),
            begins: by_scheduler(of.from_ms),
            ends: by_scheduler(of.until_ms),
            lead: Millis(of.lead_ms),
            evicts: of.evict,
            // No job of a member ends because it is not known yet that its user is one. Those of others do, even if a look-up
            // never succeeds.
            spared: if of.evict && !of.groups.is_empty() { self.with_unknown_groups() } else { Vec::new() },
            text: ReservedFor {
                gpus: self.gpus_of(of).into_iter().map(|index| index.to_string()).collect(),
                whose: of.whose(),
                from: LocalTime::of(of.from_ms).to_string(),
                until: LocalTime::of(of.until_ms).to_string(),
                reason: of.reason.clone(),
            },
        }
    }

    fn devices_of(&self, of: &Reservation) -> Vec<radrm_scheduler_core::DeviceId> {
        let list = &self.node.gpus().list;
        match of.gpus.is_empty() {
            true => allowed(list, &all_of(list)),
            false => allowed(list, &of.gpus),
        }
    }

    /// Numbers of its GPUs, in order.
    fn gpus_of(&self, of: &Reservation) -> Vec<u32> {
        let mut gpus: Vec<u32> = self.devices_of(of).into_iter().map(|device| device.0).collect();
        gpus.sort_unstable();
        gpus.dedup();
        gpus
    }

    /// An administrator reserves GPUs. `unknown`: a user or group that this machine does not know.
    pub(super) fn reserve(
        &mut self,
        peer: &Peer,
        row: &ReserveRow,
        unknown: Option<&String>,
    ) -> Result<Response, DaemonError> {
        if !peer.admin {
            return Err(DaemonError::ReservedByAdmins);
        }
        let wall = self.effects.wall().0;
        let of = Reservation::asked(row, wall)?;
        if let Some(unknown) = unknown {
            return Err(DaemonError::UnknownScope(unknown.clone()));
        }
        let list = &self.node.gpus().list;
        if let Some(missing) =
            of.gpus.iter().find(|name| allowed(list, std::slice::from_ref(*name)).is_empty())
        {
            let words = |name: &'_ str| {
                name.split(|c: char| !c.is_alphanumeric()).map(str::to_owned).collect::<Vec<_>>()
            };
            let names: Vec<String> = list.iter().flat_map(|gpu| words(&gpu.name)).collect();
            let meant = did_you_mean(missing, names.iter().map(String::as_str));
            return Err(DaemonError::NoGpu(format!("{missing}{}{meant}", numbers(list))));
        }
        if self.reservations.set.len() >= MAX_SET {
            return Err(DaemonError::ManyReservations(MAX_SET));
        }
        let number = self.reservations.last + 1;
        let (by, at_ms) = (peer.name.clone(), self.now.at.0);
        let text = self.advance(&of, wall).text;
        say(crate::process::NAME, &format!("reservation {number} by {by}: {text}"));
        let set = SetReservation { of, by, at_ms };
        self.outbox.note(Note::Reservation(number, Some(set.clone())));
        self.reservations.last = number;
        self.reservations.set.insert(number, set);
        self.name_groups();
        self.look_up_groups();
        self.report_reservations();
        Ok(Response::Reserved { number, text: text.to_string() })
    }

    /// An administrator takes a reservation back.
    pub(super) fn unreserve(&mut self, peer: &Peer, number: u64) -> Result<Response, DaemonError> {
        if !peer.admin {
            return Err(DaemonError::ReservedByAdmins);
        }
        if self.reservations.set.remove(&number).is_none() {
            return Err(DaemonError::NoReservation(number));
        }
        say(crate::process::NAME, &format!("reservation {number} is taken back by {}", peer.name));
        self.outbox.note(Note::Reservation(number, None));
        self.report_reservations();
        Ok(Response::Done)
    }

    /// Reservations that are not over, the earliest first.
    pub(super) fn reservation_rows(&self, peer: &Peer) -> Vec<ReservationRow> {
        let wall = self.effects.wall().0;
        let file = self.reservations.file.iter().map(|of| (None, of, None));
        let set = self.reservations.set.iter().map(|(number, set)| (Some(*number), &set.of, Some(set)));
        let all = file.chain(set).filter(|(_, of, _)| of.until_ms > wall);
        let row = |(number, of, set): (Option<u64>, &Reservation, Option<&SetReservation>)| {
            let holds = of.from_ms <= wall;
            let people = self.people(&of.users, &of.groups);
            ReservationRow {
                number,
                whose: of.whose(),
                users: of.users.clone(),
                groups: of.groups.clone(),
                gpus: self.gpus_of(of),
                from: LocalTime::of(of.from_ms).to_string(),
                until: LocalTime::of(of.until_ms).to_string(),
                from_ms: of.from_ms,
                until_ms: of.until_ms,
                lead_ms: of.lead_ms,
                evict: of.evict,
                reason: of.reason.clone(),
                by: set.map(|set| set.by.clone()),
                at_ms: set.map(|set| set.at_ms),
                holds,
                yours: people.iter().any(|user| user.0 == peer.uid) || of.users.contains(&peer.name),
                others: if holds { self.others_on(of, peer) } else { Vec::new() },
            }
        };
        let mut rows: Vec<ReservationRow> = all.map(row).collect();
        rows.sort_by_key(|row| (row.from_ms, row.until_ms, row.number));
        rows
    }

    /// Jobs of other people that still run on reserved GPUs, as far as this user may know of them.
    fn others_on(&self, of: &Reservation, peer: &Peer) -> Vec<u64> {
        let (devices, people) = (self.devices_of(of), self.people(&of.users, &of.groups));
        let there = self.core.state.devices().filter(|view| devices.contains(&view.device.id));
        let mut jobs: Vec<JobId> = there.flat_map(|view| view.jobs).collect();
        jobs.sort_unstable();
        jobs.dedup();
        let is_other = |job: &JobId| {
            let entry = self.jobs.entry(job.0).filter(|entry| peer.may(entry.uid));
            entry.is_some_and(|entry| people.iter().all(|user| user.0 != entry.uid))
        };
        jobs.into_iter().filter(is_other).map(|job| job.0).collect()
    }
}

fn is_alike(new: &AdvanceReservation, old: &AdvanceReservation) -> bool {
    let near = |a: Millis, b: Millis| a.0.abs_diff(b.0) <= TOLERANCE.0;
    near(new.begins, old.begins)
        && near(new.ends, old.ends)
        && AdvanceReservation { begins: old.begins, ends: old.ends, ..new.clone() } == *old
}

/// UUIDs of all GPUs.
fn all_of(list: &[Gpu]) -> Vec<String> {
    list.iter().map(|gpu| gpu.uuid.clone()).collect()
}

/// `; this node has 0 to 7`, or nothing.
fn numbers(list: &[Gpu]) -> String {
    let numbers = (0..list.len()).map(|at| number(list, at));
    match (numbers.clone().min(), numbers.max()) {
        (Some(first), Some(last)) if first < last => format!("; this node has {first} to {last}"),
        (Some(only), _) => format!("; this node has {only}"),
        _ => String::new(),
    }
}
