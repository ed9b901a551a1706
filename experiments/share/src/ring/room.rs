//! Room for the next batch: slots, those that are free, and those that are taken from slow members.

use std::collections::BTreeSet;

use super::{Entry, Kind, Member, Next, Place, Ring, Room, Slow, Spilled, Use};

/// Entries that are kept for members that may join, where a lease alone keeps the oldest from going.
const MAX_KEPT: usize = 1024;

impl Ring {
    /// Most slots that it may have now: those that users said, or what a member may lease and one; one for each member that
    /// the others do not wait for; and one for each batch that a member keeps while it takes later ones. So there is always
    /// one for the next batch when all members wait for it.
    pub fn capacity(&self) -> usize {
        let windows = self.members.values().map(|member| member.window + 1).max().unwrap_or(0);
        let others = self.members.values().filter(|member| member.slow != Slow::Wait).count();
        self.base.max(windows) + others + self.kept()
    }

    /// Slots with batches that a member keeps although it has got as many later ones as it may lease.
    fn kept(&self) -> usize {
        let kept = |member: &Member, slot: usize| match (member.next, self.slots.get(slot)) {
            (Next::At(next), Some(Some(Use::Holds { sequence, .. }))) => {
                sequence + (member.window as u64) < next
            }
            (Next::Waiting(_), _) => true,
            _ => false,
        };
        let mut slots = BTreeSet::new();
        for member in self.members.values() {
            let leased = member.leases.values().filter_map(|place| match place {
                Place::Slot(slot) => Some(*slot),
                Place::Spilled(_) => None,
            });
            slots.extend(leased.filter(|slot| kept(member, *slot)));
        }
        slots.len()
    }

    /// Slots that exist.
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Returns true if a member wants the next batch of the head's epoch, now or later.
    fn is_wanted(&self) -> bool {
        self.members.values().any(|member| match member.next {
            Next::At(_) => true,
            Next::Waiting(position) => position.epoch <= self.head.epoch,
        })
    }

    /// Room for the next batch. What is [`Room::Slot`] or [`Room::New`] must be published or abandoned before the next
    /// call.
    pub fn room(&mut self) -> Room {
        if self.members.is_empty() {
            return Room::Wait;
        }
        if !self.is_wanted() {
            return Room::Unwanted;
        }
        if let Some(slot) = self.slots.iter().position(Option::is_none) {
            return self.fill(slot);
        }
        if self.slots.len() < self.base {
            self.slots.push(Some(Use::Filling));
            return Room::New(self.slots.len() - 1);
        }
        if let Some((sequence, slot)) = self.done() {
            self.take_from(sequence);
            return self.fill(slot);
        }
        if self.slots.len() < self.capacity() {
            self.slots.push(Some(Use::Filling));
            return Room::New(self.slots.len() - 1);
        }
        self.make_room()
    }

    fn fill(&mut self, slot: usize) -> Room {
        if let Some(of) = self.slots.get_mut(slot) {
            *of = Some(Use::Filling);
        }
        Room::Slot(slot)
    }

    /// Batches that are in slots and not leased, the oldest first.
    fn unleased(&self) -> Vec<(u64, usize)> {
        let holds = |(slot, of): (usize, &Option<Use>)| match of {
            Some(Use::Holds { sequence, leases: 0 }) => Some((*sequence, slot)),
            _ => None,
        };
        let mut found: Vec<_> = self.slots.iter().enumerate().filter_map(holds).collect();
        found.sort_unstable();
        found
    }

    /// The oldest batch that no member needs, with its slot.
    fn done(&self) -> Option<(u64, usize)> {
        self.unleased().into_iter().find(|(sequence, _)| !self.is_pending(*sequence))
    }

    fn take_from(&mut self, sequence: u64) {
        if let Some(Entry { kind: Kind::Batch { place, .. }, .. }) = self.entry_mut(sequence) {
            *place = None;
        }
        self.sweep();
    }

    /// Takes the oldest batch away from members that the others do not wait for.
    fn make_room(&mut self) -> Room {
        let pending = |sequence: u64| {
            let behind = move |member: &&Member| matches!(member.next, Next::At(next) if next <= sequence);
            self.members.values().filter(behind)
        };
        let given_up =
            |(sequence, _): &(u64, usize)| pending(*sequence).all(|member| member.slow != Slow::Wait);
        let Some((sequence, slot)) = self.unleased().into_iter().find(given_up) else { return Room::Wait };
        if pending(sequence).any(|member| member.slow == Slow::Spill) {
            let bytes = match self.entry(sequence).map(|entry| entry.kind) {
                Some(Kind::Batch { info, .. }) => info.data.saturating_add(info.description),
                _ => 0,
            };
            return Room::Spill { sequence, slot, bytes };
        }
        self.drop_through(sequence);
        self.take_from(sequence);
        self.fill(slot)
    }

    /// Members that are dropped when slow are past an entry, and miss the batches up to it.
    fn drop_through(&mut self, sequence: u64) {
        let (first, entries) = (self.first, &self.entries);
        let is_batch = |number: u64| {
            let entry = usize::try_from(number - first).ok().and_then(|number| entries.get(number));
            entry.is_some_and(|entry| matches!(entry.kind, Kind::Batch { .. }))
        };
        for member in self.members.values_mut() {
            if let Next::At(next) = member.next
                && member.slow == Slow::Drop
                && next <= sequence
            {
                member.dropped += (next..=sequence).filter(|number| is_batch(*number)).count() as u64;
                member.next = Next::At(sequence + 1);
            }
        }
    }

    /// The batch of an entry lies in a file now; false if it was leased meanwhile, and stays where it is.
    pub fn spilled(&mut self, sequence: u64, file: u64) -> bool {
        self.drop_through(sequence);
        let Some(Entry { kind: Kind::Batch { place, .. }, .. }) = self.entry(sequence).copied() else {
            return false;
        };
        let Some(Place::Slot(slot)) = place else { return false };
        match self.slots.get_mut(slot) {
            Some(of) if matches!(of, Some(Use::Holds { leases: 0, .. })) => *of = None,
            _ => return false,
        }
        if let Some(Entry { kind: Kind::Batch { place, .. }, .. }) = self.entry_mut(sequence) {
            *place = Some(Place::Spilled(file));
        }
        self.files.insert(file, Spilled::default());
        self.sweep();
        true
    }

    /// A slot that was to be filled is not.
    pub fn abandon(&mut self, slot: usize) {
        if let Some(of) = self.slots.get_mut(slot) {
            *of = None;
        }
    }

    /// A slot that was to be made is not.
    pub fn forget_slot(&mut self, slot: usize) {
        if slot + 1 == self.slots.len() {
            self.slots.pop();
        }
    }

    /// Takes the last slots away while there are more than it may have, and they are not in use. Returns how many are left.
    pub fn shrink(&mut self) -> usize {
        while self.slots.len() > self.capacity() {
            match self.slots.last() {
                Some(None) => {}
                Some(Some(Use::Holds { sequence, leases: 0 })) if !self.is_pending(*sequence) => {
                    let sequence = *sequence;
                    self.take_from(sequence);
                }
                _ => break,
            }
            self.slots.pop();
        }
        self.slots.len()
    }

    pub(super) fn unlease(&mut self, place: Place) {
        match place {
            Place::Slot(slot) => {
                if let Some(Some(Use::Holds { leases, .. })) = self.slots.get_mut(slot) {
                    *leases = leases.saturating_sub(1);
                }
            }
            Place::Spilled(file) => {
                if let Some(of) = self.files.get_mut(&file) {
                    of.leases = of.leases.saturating_sub(1);
                }
                self.forget_file(file);
            }
        }
    }

    fn forget_file(&mut self, file: u64) {
        if self.files.get(&file).is_some_and(|of| of.passed && of.leases == 0) {
            self.files.remove(&file);
            self.unneeded.push(file);
        }
    }

    /// Forgets entries in front that no member needs and that hold no slot.
    pub(super) fn sweep(&mut self) {
        let needed = self.members.values().filter_map(|member| match member.next {
            Next::At(next) => Some(next),
            Next::Waiting(_) => None,
        });
        let needed = needed.min().unwrap_or(u64::MAX);
        for number in self.first..needed.min(self.end()) {
            if let Some(Entry { kind: Kind::Batch { place, .. }, .. }) = self.entry_mut(number)
                && let Some(Place::Spilled(file)) = *place
            {
                *place = None;
                self.files.entry(file).or_default().passed = true;
                self.forget_file(file);
            }
        }
        while self.first < needed
            && let Some(entry) = self.entries.front()
        {
            let empty = matches!(entry.kind, Kind::End | Kind::Batch { place: None, .. });
            if !empty && self.entries.len() < MAX_KEPT {
                break;
            }
            self.entries.pop_front();
            self.first += 1;
        }
    }

    /// Files that hold no batch that a member needs.
    pub fn unneeded(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.unneeded)
    }
}
