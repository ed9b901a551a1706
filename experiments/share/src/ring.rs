//! Ring of slots: the batch in each slot, the consumers that still need it, and the policy for slow consumers.
//! Pure: no memory, no socket.
//!
//! The ring publishes a line of entries, numbered without gaps: batches, and the ends of epochs between them. Each
//! member (an attached consumer) has a place in that line. A slot is reused when its batch is leased to no member and
//! every member is past it. Batches that all members are past stay until their slot is needed, for members that join
//! later.

use std::collections::{BTreeMap, VecDeque};

use crate::message::{Info, Start};

mod room;

/// A batch of an epoch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Position {
    /// The epoch, from 0.
    pub epoch: u64,
    /// The batch in it, from 0. The number of batches stands for the epoch's end.
    pub index: u64,
}

/// Policy if a consumer is slower than others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Slow {
    /// The others wait for it.
    Wait = 1,
    /// It misses batches.
    Drop = 2,
    /// Its batches go to disk.
    Spill = 3,
}

/// Location of a batch's data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// In this slot.
    Slot(usize),
    /// In a file, by its number.
    Spilled(u64),
}

/// Something published.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Batch { place: Option<Place>, info: Info },
    End,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    position: Position,
    kind: Kind,
}

/// A member's place in the line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Next {
    /// The entry of this number, published or not.
    At(u64),
    /// The first entry at or after a position, which is not published yet.
    Waiting(Position),
}

#[derive(Debug)]
struct Member {
    next: Next,
    slow: Slow,
    window: usize,
    wants: u64,
    leases: BTreeMap<u64, Place>,
    dropped: u64,
    /// Digest of the order in front of the position that it waits for.
    order: u64,
}

/// Next delivery to a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Delivery {
    /// It missed batches.
    Dropped(u64),
    /// A batch.
    Batch {
        /// Number of its lease.
        lease: u64,
        /// Location of its data.
        place: Place,
        /// Position of the batch.
        position: Position,
        /// Content of the batch.
        info: Info,
    },
    /// An epoch ended after so many batches.
    End(Position),
}

/// Room for the next batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Room {
    /// Into this slot.
    Slot(usize),
    /// Into a new slot with this number.
    New(usize),
    /// Nowhere before the batch of this entry was copied from its slot to a file.
    Spill {
        /// The entry.
        sequence: u64,
        /// Its slot.
        slot: usize,
        /// Bytes to copy.
        bytes: u64,
    },
    /// Nowhere yet.
    Wait,
    /// Nowhere: no member wants the rest of the epoch.
    Unwanted,
}

/// Reason that a member is not admitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Denied {
    /// The batch is gone.
    Gone,
    /// The order in front of it is another one.
    Order,
}

/// The ring. Members and leases are numbers.
#[derive(Debug)]
pub struct Ring {
    base: usize,
    /// Use of each slot: it is being filled, or holds the entry of a number.
    slots: Vec<Option<Use>>,
    entries: VecDeque<Entry>,
    /// Number of the first entry.
    first: u64,
    members: BTreeMap<u64, Member>,
    /// Position that is published next.
    head: Position,
    /// Digest of the order in front of it.
    order: u64,
    /// End of the last epoch.
    ended: Option<Position>,
    /// True if the position of the first batch is settled.
    begun: bool,
    leases: u64,
    /// Files with batches.
    files: BTreeMap<u64, Spilled>,
    /// Files in which no batch is needed any more.
    unneeded: Vec<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Use {
    Filling,
    Holds { sequence: u64, leases: u32 },
}

#[derive(Clone, Copy, Default, Debug)]
struct Spilled {
    leases: u32,
    passed: bool,
}

impl Ring {
    /// A ring of so many slots, at least 2, that will begin at a position unless [`Ring::begin`] says another one.
    pub fn new(slots: usize, head: Position) -> Self {
        let (entries, members) = (VecDeque::new(), BTreeMap::new());
        let base = slots.max(2);
        let (slots, files, unneeded) = (Vec::new(), BTreeMap::new(), Vec::new());
        Self {
            base,
            slots,
            entries,
            first: 0,
            members,
            head,
            order: 0,
            ended: None,
            begun: false,
            leases: 0,
            files,
            unneeded,
        }
    }

    /// Position that is published next.
    pub fn head(&self) -> Position {
        self.head
    }

    /// Settles the position of the first batch. Until then members may join at any position.
    pub fn begin(&mut self, head: Position) {
        if !self.begun {
            (self.head, self.begun) = (head, true);
        }
    }

    /// Its members.
    pub fn members(&self) -> usize {
        self.members.len()
    }

    /// The oldest position that a member still needs, or what is published next.
    pub fn needed(&self) -> Position {
        let of = |member: &Member| match member.next {
            Next::At(sequence) => self.entry(sequence).map_or(self.head, |entry| entry.position),
            Next::Waiting(position) => position,
        };
        self.members.values().map(of).min().map_or(self.head, |oldest| oldest.min(self.head))
    }

    /// The earliest position that a member waits for.
    pub fn earliest(&self) -> Option<Position> {
        let of = |member: &Member| match member.next {
            Next::At(_) => None,
            Next::Waiting(position) => Some(position),
        };
        self.members.values().filter_map(of).min()
    }

    fn end(&self) -> u64 {
        self.first + self.entries.len() as u64
    }

    fn entry(&self, sequence: u64) -> Option<&Entry> {
        self.entries.get(usize::try_from(sequence.checked_sub(self.first)?).ok()?)
    }

    fn entry_mut(&mut self, sequence: u64) -> Option<&mut Entry> {
        self.entries.get_mut(usize::try_from(sequence.checked_sub(self.first)?).ok()?)
    }

    /// Number of the first entry after which nothing is missing.
    fn complete_from(&self) -> u64 {
        let missing = |entry: &Entry| matches!(entry.kind, Kind::Batch { place: None, .. });
        let after = self.entries.iter().rposition(missing).map_or(0, |last| last as u64 + 1);
        self.first + after
    }

    /// Admits a member. Which position it begins at follows from `start`.
    ///
    /// # Errors
    /// [`Denied`]: it is not a member.
    pub fn join(&mut self, id: u64, start: Start, slow: Slow, window: usize) -> Result<(), Denied> {
        let from = self.complete_from();
        let published = |position: Position| {
            (from..self.end())
                .find(|number| self.entry(*number).is_some_and(|entry| entry.position >= position))
        };
        let (next, order) = match start {
            Start::Now => {
                let batch = |number: &u64| self.entry(*number).is_some_and(|entry| entry.kind != Kind::End);
                (Next::At((from..self.end()).find(batch).unwrap_or(self.end())), 0)
            }
            Start::Epoch => {
                let begins = Position { epoch: self.head.epoch, index: 0 };
                let first = published(begins)
                    .filter(|number| self.entry(*number).is_some_and(|entry| entry.position == begins));
                let next = match first {
                    Some(number) => Next::At(number),
                    None if self.head == begins => Next::Waiting(begins),
                    None => Next::Waiting(Position { epoch: self.head.epoch + 1, index: 0 }),
                };
                (next, 0)
            }
            Start::At { position, order } if position > self.head || !self.begun => {
                (Next::Waiting(position), order)
            }
            Start::At { position, order } if position == self.head => {
                if differ(order, self.order) {
                    return Err(Denied::Order);
                }
                (Next::Waiting(position), order)
            }
            Start::At { position, order } => (self.resumed(position, order)?, 0),
        };
        let (leases, wants) = (BTreeMap::new(), 0);
        self.members.insert(id, Member { next, slow, window, wants, leases, dropped: 0, order });
        Ok(())
    }

    /// The place of a position that was published.
    fn resumed(&self, position: Position, order: u64) -> Result<Next, Denied> {
        let exact = |wanted: Position| {
            let mut numbers = self.complete_from()..self.end();
            numbers.find(|number| self.entry(*number).is_some_and(|entry| entry.position == wanted))
        };
        if let Some(number) = exact(position) {
            return match self.entry(number).map(|entry| entry.kind) {
                Some(Kind::Batch { info, .. }) if differ(order, info.before) => Err(Denied::Order),
                _ => Ok(Next::At(number)),
            };
        }
        // It has all batches of an epoch whose end is forgotten: the next epoch says that, too.
        let following = Position { epoch: position.epoch + 1, index: 0 };
        match exact(following) {
            _ if self.ended != Some(position) => Err(Denied::Gone),
            Some(number) => Ok(Next::At(number)),
            None if self.head == following => Ok(Next::Waiting(following)),
            None => Err(Denied::Gone),
        }
    }

    /// A member is gone, with its leases.
    pub fn leave(&mut self, id: u64) {
        if let Some(member) = self.members.remove(&id) {
            for place in member.leases.into_values() {
                self.unlease(place);
            }
            self.sweep();
        }
    }

    /// A member wants one more batch.
    pub fn want(&mut self, id: u64) {
        if let Some(member) = self.members.get_mut(&id) {
            member.wants = member.wants.saturating_add(1);
        }
    }

    /// A member has released a batch; false if it had no such lease.
    pub fn release(&mut self, id: u64, lease: u64) -> bool {
        let Some(place) = self.members.get_mut(&id).and_then(|member| member.leases.remove(&lease)) else {
            return false;
        };
        self.unlease(place);
        self.sweep();
        true
    }

    /// A member wants nothing more of an epoch.
    pub fn skip(&mut self, id: u64, epoch: u64) {
        let begins = Position { epoch: epoch.saturating_add(1), index: 0 };
        let next = match (self.first..self.end())
            .find(|number| self.entry(*number).is_some_and(|entry| entry.position >= begins))
        {
            Some(number) => Next::At(number),
            None => Next::Waiting(begins),
        };
        if let Some(member) = self.members.get_mut(&id) {
            let later = match (member.next, next) {
                (Next::At(old), Next::At(new)) => new > old,
                (Next::At(_), Next::Waiting(_)) => true,
                (Next::Waiting(_), Next::At(_)) => false,
                (Next::Waiting(old), Next::Waiting(new)) => new > old,
            };
            if later {
                member.next = next;
            }
        }
        self.sweep();
    }

    fn is_pending(&self, sequence: u64) -> bool {
        self.members.values().any(|member| matches!(member.next, Next::At(next) if next <= sequence))
    }

    /// Publishes the batch in a slot; returns the members that waited for another order of samples, which are members no
    /// more.
    pub fn publish(&mut self, slot: usize, info: Info) -> Vec<u64> {
        let (sequence, position) = (self.end(), self.head);
        if let Some(of) = self.slots.get_mut(slot) {
            *of = Some(Use::Holds { sequence, leases: 0 });
        }
        let kind = Kind::Batch { place: Some(Place::Slot(slot)), info };
        self.entries.push_back(Entry { position, kind });
        self.head.index += 1;
        self.order = info.after;
        self.arrive(sequence, position, info.before)
    }

    /// Ends the epoch; returns members as [`Ring::publish`] does.
    pub fn end_epoch(&mut self) -> Vec<u64> {
        let (sequence, position, order) = (self.end(), self.head, self.order);
        self.entries.push_back(Entry { position, kind: Kind::End });
        self.head = Position { epoch: position.epoch + 1, index: 0 };
        (self.order, self.ended) = (0, Some(position));
        let wrong = self.arrive(sequence, position, order);
        self.sweep();
        wrong
    }

    fn arrive(&mut self, sequence: u64, position: Position, order: u64) -> Vec<u64> {
        let mut wrong = Vec::new();
        for (id, member) in &mut self.members {
            if let Next::Waiting(wanted) = member.next
                && wanted <= position
            {
                member.next = Next::At(sequence);
                if wanted == position && differ(member.order, order) {
                    wrong.push(*id);
                }
            }
        }
        for id in &wrong {
            self.leave(*id);
        }
        wrong
    }

    /// Next delivery to a member; it then counts as sent.
    pub fn deliver(&mut self, id: u64) -> Option<Delivery> {
        let member = self.members.get_mut(&id)?;
        let Next::At(next) = member.next else { return None };
        let index = usize::try_from(next.checked_sub(self.first)?).ok()?;
        let entry = *self.entries.get(index)?;
        let asked = member.slow == Slow::Wait || member.wants > 0;
        let due = entry.kind == Kind::End || (asked && member.leases.len() < member.window);
        if !due {
            return None;
        }
        // With the next thing that it gets, not with each batch that it misses: one packet, and one that it reads.
        if member.dropped > 0 {
            return Some(Delivery::Dropped(std::mem::take(&mut member.dropped)));
        }
        let Kind::Batch { place, info } = entry.kind else {
            member.next = Next::At(next + 1);
            let position = entry.position;
            self.sweep();
            return Some(Delivery::End(position));
        };
        // A batch that a member has not passed always has a place.
        let place = place?;
        match place {
            Place::Slot(slot) => match self.slots.get_mut(slot) {
                Some(Some(Use::Holds { leases, .. })) => *leases += 1,
                _ => return None,
            },
            Place::Spilled(file) => self.files.get_mut(&file)?.leases += 1,
        }
        self.leases += 1;
        let lease = self.leases;
        member.leases.insert(lease, place);
        member.next = Next::At(next + 1);
        member.wants = member.wants.saturating_sub(1);
        Some(Delivery::Batch { lease, place, position: entry.position, info })
    }

    /// Returns true if every member has got everything.
    pub fn is_delivered(&self) -> bool {
        let end = self.end();
        self.members.values().all(|member| match member.next {
            Next::At(next) => next >= end,
            Next::Waiting(_) => true,
        })
    }
}

/// Returns true if two digests are known and different.
fn differ(one: u64, other: u64) -> bool {
    one != 0 && other != 0 && one != other
}

#[cfg(test)]
mod tests;
