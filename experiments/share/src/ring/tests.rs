use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

fn info(after: u64) -> Info {
    Info { samples: 1, before: after.saturating_sub(1), after, data: 10, description: 5, gpu: 0 }
}

/// A ring in which slots hold what was written into them, as its users see it.
struct World {
    ring: Ring,
    slots: Vec<Position>,
    files: BTreeMap<u64, Position>,
    file: u64,
    /// Deliveries to each member: batches and ends, and its leases with the batch that was in them.
    members: BTreeMap<u64, Seen>,
    most: usize,
}

#[derive(Default)]
struct Seen {
    slow: Option<Slow>,
    line: Vec<(Position, bool)>,
    dropped: u64,
    leases: BTreeMap<u64, (Place, Position)>,
}

impl World {
    fn new(slots: usize) -> Self {
        let mut ring = Ring::new(slots, Position::default());
        ring.begin(Position::default());
        Self { ring, slots: Vec::new(), files: BTreeMap::new(), file: 0, members: BTreeMap::new(), most: 0 }
    }

    fn join(&mut self, id: u64, start: Start, slow: Slow) -> bool {
        if self.members.contains_key(&id) || self.ring.join(id, start, slow, 3).is_err() {
            return false;
        }
        self.members.insert(id, Seen { slow: Some(slow), ..Seen::default() });
        true
    }

    fn leave(&mut self, id: u64) {
        self.ring.leave(id);
        self.members.remove(&id);
        self.ring.shrink();
        self.slots.truncate(self.ring.slots());
    }

    /// Publishes a batch if there is room; spills and drops as the ring says.
    fn publish(&mut self) -> Room {
        loop {
            let room = self.ring.room();
            let slot = match room {
                Room::Slot(slot) => slot,
                Room::New(slot) => {
                    assert!(slot < self.ring.capacity(), "more slots than allowed");
                    assert_eq!(slot, self.slots.len(), "slots are made in order");
                    self.slots.push(Position::default());
                    slot
                }
                Room::Spill { sequence, slot, bytes } => {
                    assert_eq!(bytes, 15);
                    self.file += 1;
                    let content = self.slots[slot];
                    assert!(self.ring.spilled(sequence, self.file));
                    self.files.insert(self.file, content);
                    continue;
                }
                Room::Wait | Room::Unwanted => return room,
            };
            for (id, seen) in &self.members {
                for (place, position) in seen.leases.values() {
                    assert_ne!(
                        *place,
                        Place::Slot(slot),
                        "{position:?} is leased to {id} and its slot reused"
                    );
                }
            }
            self.slots[slot] = self.ring.head();
            let after = self.ring.head().index + 1;
            assert!(self.ring.publish(slot, info(after)).is_empty());
            self.most = self.most.max(self.slots.len());
            return room;
        }
    }

    fn deliver(&mut self, id: u64) -> Option<Delivery> {
        let delivery = self.ring.deliver(id)?;
        let seen = self.members.get_mut(&id).expect("a member");
        match delivery {
            Delivery::Dropped(count) => seen.dropped += count,
            Delivery::End(position) => seen.line.push((position, true)),
            Delivery::Batch { lease, place, position, .. } => {
                let content = match place {
                    Place::Slot(slot) => self.slots[slot],
                    Place::Spilled(file) => self.files[&file],
                };
                assert_eq!(content, position, "the memory holds another batch");
                seen.line.push((position, false));
                seen.leases.insert(lease, (place, position));
            }
        }
        Some(delivery)
    }

    fn release(&mut self, id: u64, which: usize) {
        let Some(seen) = self.members.get_mut(&id) else { return };
        let Some(lease) = seen.leases.keys().nth(which % seen.leases.len().max(1)).copied() else { return };
        let (place, position) = seen.leases.remove(&lease).expect("a lease");
        let content = match place {
            Place::Slot(slot) => self.slots[slot],
            Place::Spilled(file) => self.files[&file],
        };
        assert_eq!(content, position, "a leased batch was overwritten");
        assert!(self.ring.release(id, lease));
        assert!(!self.ring.release(id, lease), "released twice");
        for file in self.ring.unneeded() {
            self.files.remove(&file).expect("a file is given back once");
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Join(u64, bool, Slow),
    Leave(u64),
    Publish,
    EndEpoch,
    Want(u64),
    Deliver(u64),
    Release(u64, usize),
    Skip(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let slow = prop_oneof![3 => Just(Slow::Wait), 1 => Just(Slow::Drop), 1 => Just(Slow::Spill)];
    let id = 0u64..4;
    prop_oneof![
        1 => (id.clone(), any::<bool>(), slow).prop_map(|(id, now, slow)| Step::Join(id, now, slow)),
        1 => id.clone().prop_map(Step::Leave),
        10 => Just(Step::Publish),
        1 => Just(Step::EndEpoch),
        6 => id.clone().prop_map(Step::Want),
        12 => id.clone().prop_map(Step::Deliver),
        10 => (id.clone(), 0usize..4).prop_map(|(id, which)| Step::Release(id, which)),
        1 => id.prop_map(Step::Skip),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Whatever happens: no leased slot is reused, no member sees a batch twice or out of order, and only members that are
    /// dropped when slow miss any, which are counted.
    #[test]
    fn every_member_gets_each_batch_once_and_in_order(
        slots in 2usize..5,
        steps in proptest::collection::vec(step(), 1..300),
    ) {
        let mut world = World::new(slots);
        let mut skipped = BTreeSet::new();
        for step in steps {
            match step {
                Step::Join(id, now, slow) => {
                    if world.join(id, if now { Start::Now } else { Start::Epoch }, slow) {
                        skipped.remove(&id);
                    }
                }
                Step::Leave(id) => world.leave(id),
                Step::Publish => _ = world.publish(),
                Step::EndEpoch => assert!(world.ring.end_epoch().is_empty()),
                Step::Want(id) => world.ring.want(id),
                Step::Deliver(id) if world.members.contains_key(&id) => _ = world.deliver(id),
                Step::Deliver(_) => {}
                Step::Release(id, which) => world.release(id, which),
                Step::Skip(id) => {
                    world.ring.skip(id, world.ring.head().epoch);
                    skipped.insert(id);
                }
            }
            for (id, seen) in &world.members {
                prop_assert!(seen.leases.len() <= 3);
                let mut gaps = 0;
                for pair in seen.line.windows(2) {
                    let (before, after) = (pair[0], pair[1]);
                    prop_assert!((before.0, before.1) < (after.0, after.1), "{:?}", seen.line);
                    let next = if before.1 {
                        Position { epoch: before.0.epoch + 1, index: 0 }
                    } else {
                        Position { epoch: before.0.epoch, index: before.0.index + 1 }
                    };
                    gaps += u64::from(next != after.0);
                }
                let may_miss = seen.slow == Some(Slow::Drop) || skipped.contains(id);
                prop_assert!(gaps == 0 || may_miss, "{:?}", seen.line);
                prop_assert!(skipped.contains(id) || gaps <= seen.dropped);
            }
        }
    }

    #[test]
    fn a_member_that_takes_and_releases_never_blocks_itself(slots in 2usize..6, batches in 1u64..60) {
        let mut world = World::new(slots);
        world.join(1, Start::Epoch, Slow::Wait);
        for _ in 0..batches {
            prop_assert!(matches!(world.publish(), Room::Slot(_) | Room::New(_)));
            prop_assert!(world.deliver(1).is_some());
            world.release(1, 0);
        }
        prop_assert_eq!(world.members[&1].line.len() as u64, batches);
        prop_assert!(world.most <= slots);
    }
}

#[test]
fn the_ring_waits_for_a_member_that_is_waited_for() {
    let mut world = World::new(2);
    world.join(1, Start::Epoch, Slow::Wait);
    world.join(2, Start::Epoch, Slow::Wait);
    for _ in 0..2 {
        assert!(matches!(world.publish(), Room::New(_)));
        world.deliver(1);
        world.release(1, 0);
    }
    // A member may lease three, and there is one more.
    for _ in 0..2 {
        assert!(matches!(world.publish(), Room::New(_)));
    }
    assert_eq!(world.publish(), Room::Wait);
    world.deliver(2);
    assert_eq!(world.publish(), Room::Wait, "leased");
    world.release(2, 0);
    assert_eq!(world.publish(), Room::Slot(0));
}

#[test]
fn a_slow_member_misses_the_oldest_batches_and_learns_how_many() {
    let mut world = World::new(2);
    world.join(1, Start::Epoch, Slow::Drop);
    for _ in 0..10 {
        assert!(matches!(world.publish(), Room::New(_) | Room::Slot(_)));
    }
    assert_eq!(world.deliver(1), None, "no packet before it asks");
    world.ring.want(1);
    assert_eq!(world.deliver(1), Some(Delivery::Dropped(5)), "five slots hold the newest five");
    assert!(matches!(world.deliver(1), Some(Delivery::Batch { position: Position { index: 5, .. }, .. })));
}

#[test]
fn a_slow_member_gets_its_batches_from_files_in_order() {
    let mut world = World::new(2);
    world.join(1, Start::Epoch, Slow::Spill);
    world.join(2, Start::Epoch, Slow::Wait);
    for _ in 0..10 {
        assert!(matches!(world.publish(), Room::New(_) | Room::Slot(_)));
        world.deliver(2);
        world.release(2, 0);
    }
    assert_eq!(world.files.len(), 5);
    for index in 0..10 {
        world.ring.want(1);
        let delivery = world.deliver(1);
        assert!(matches!(delivery, Some(Delivery::Batch { position, .. }) if position.index == index));
        world.release(1, 0);
    }
    assert!(world.files.is_empty(), "files of batches that were read are given back");
}

#[test]
fn a_late_member_begins_with_an_epoch_or_with_what_is_there() {
    let mut world = World::new(3);
    world.join(1, Start::Epoch, Slow::Wait);
    for _ in 0..3 {
        world.publish();
        world.deliver(1);
        world.release(1, 0);
    }
    world.join(2, Start::Epoch, Slow::Wait);
    assert!(
        matches!(world.deliver(2), Some(Delivery::Batch { position: Position { index: 0, .. }, .. })),
        "still there"
    );
    world.leave(2);
    world.publish();
    world.join(2, Start::Epoch, Slow::Wait);
    world.join(3, Start::Now, Slow::Wait);
    assert_eq!(world.deliver(2), None, "its epoch has not begun");
    assert!(matches!(world.deliver(3), Some(Delivery::Batch { position: Position { index: 1, .. }, .. })));
    world.ring.end_epoch();
    world.deliver(1);
    world.release(1, 0);
    world.publish();
    assert!(
        matches!(world.deliver(2), Some(Delivery::Batch { position: Position { epoch: 1, index: 0 }, .. })),
        "{:?}",
        world.ring
    );
}

#[test]
fn no_batch_is_made_that_no_member_wants() {
    let mut world = World::new(2);
    assert_eq!(world.publish(), Room::Wait, "no member");
    world.join(1, Start::Epoch, Slow::Wait);
    world.publish();
    world.ring.skip(1, 0);
    assert_eq!(world.publish(), Room::Unwanted);
    world.ring.end_epoch();
    assert!(matches!(world.publish(), Room::Slot(_) | Room::New(_)));
    assert!(matches!(
        world.deliver(1),
        Some(Delivery::Batch { position: Position { epoch: 1, index: 0 }, .. })
    ));
}

#[test]
fn a_restart_resumes_each_member_where_it_stopped() {
    let at = |index| Start::At { position: Position { epoch: 2, index }, order: index };
    // The record says that 9 was sent; a member had not taken 7 and 8 yet.
    let mut ring = Ring::new(4, Position { epoch: 2, index: 9 });
    ring.join(1, at(7), Slow::Wait, 3).unwrap();
    ring.join(2, at(9), Slow::Wait, 3).unwrap();
    ring.begin(ring.earliest().unwrap());
    assert_eq!(ring.head(), Position { epoch: 2, index: 7 });
    for index in 7..10 {
        let Room::New(slot) = ring.room() else { panic!("no room") };
        assert!(ring.publish(slot, Info { before: index, after: index + 1, ..Info::default() }).is_empty());
    }
    let mut first = |id| match ring.deliver(id) {
        Some(Delivery::Batch { position, .. }) => position.index,
        other => panic!("{other:?}"),
    };
    assert_eq!((first(1), first(2)), (7, 9));
}

#[test]
fn a_member_for_which_the_order_has_changed_is_sent_away() {
    let mut ring = Ring::new(4, Position::default());
    let start = Start::At { position: Position { epoch: 0, index: 3 }, order: 77 };
    ring.join(1, start, Slow::Wait, 3).unwrap();
    ring.begin(Position { epoch: 0, index: 3 });
    let Room::New(slot) = ring.room() else { panic!("no room") };
    assert_eq!(ring.publish(slot, Info { before: 78, after: 79, ..Info::default() }), [1]);
    assert_eq!(ring.members(), 0);
    let gone = Start::At { position: Position { epoch: 0, index: 2 }, order: 0 };
    assert_eq!(ring.join(2, gone, Slow::Wait, 3), Err(Denied::Gone));
    let other = Start::At { position: Position { epoch: 0, index: 4 }, order: 80 };
    assert_eq!(ring.join(2, other, Slow::Wait, 3), Err(Denied::Order));
}

#[test]
fn members_that_keep_batches_do_not_block_the_ring() {
    let mut world = World::new(2);
    for id in 0..4 {
        world.join(id, Start::Epoch, Slow::Wait);
    }
    // Each keeps two batches of its own for ever, and releases all others at once.
    for batch in 0..60 {
        assert!(!matches!(world.publish(), Room::Wait), "batch {batch}: {:?}", world.ring);
        for id in 0..4 {
            world.deliver(id);
            if !(batch == id || batch == 10 + id) {
                let newest = world.members[&id].leases.len() - 1;
                world.release(id, newest);
            }
        }
    }
    assert!(world.most <= 4 + 8, "{}", world.most);
}

#[test]
fn a_consumer_that_had_all_of_an_epoch_goes_on_with_the_next() {
    let mut world = World::new(2);
    world.join(1, Start::Epoch, Slow::Wait);
    for _ in 0..3 {
        world.publish();
        world.deliver(1);
        world.release(1, 0);
    }
    world.ring.end_epoch();
    world.deliver(1);
    let at = |epoch, index| Start::At { position: Position { epoch, index }, order: 0 };
    assert!(world.join(2, at(0, 3), Slow::Wait));
    assert_eq!(world.ring.join(3, at(0, 0), Slow::Wait, 3), Err(Denied::Gone), "overwritten");
    for _ in 0..2 {
        world.publish();
        world.deliver(1);
        world.release(1, 0);
    }
    assert!(world.join(4, at(0, 3), Slow::Wait));
    assert_eq!(world.ring.join(5, at(0, 2), Slow::Wait, 3), Err(Denied::Gone), "not with a later batch");
    while world.deliver(4).is_some() {}
    assert_eq!(world.members[&4].line.last(), Some(&(Position { epoch: 1, index: 1 }, false)));
}
