//! Allocations that one process offers to others.
//!
//! An object is a name, not memory: it says what its owner holds. It ends with its owner.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::layout::{CLAIMING, ENDED, FREE, LIVE, MAX_OBJECTS, Object, generation_of, state_of, tag};
use crate::machine::Machine;
use crate::process::Process;

/// Name of an object, unique on the machine.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ObjectId {
    /// Place in the table.
    pub index: u32,
    /// Generation of the place.
    pub generation: u64,
}

/// Kind of a shared object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub enum SharedKind {
    /// Device memory, by `cuIpcGetMemHandle`.
    Memory = 1,
    /// Physical memory, by `cuMemExportToShareableHandle`.
    Physical = 2,
    /// A pool.
    Pool = 3,
    /// An allocation of a pool.
    PoolPointer = 4,
    /// An event.
    Event = 5,
}

/// An object as its owner described it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SharedObject {
    /// Kind of the object.
    pub kind: SharedKind,
    /// GPU on the machine.
    pub gpu: usize,
    /// Bytes.
    pub size: u64,
    /// Address or handle in its owner.
    pub address: u64,
    /// Anything more that its kind needs.
    pub extra: u64,
    /// Owner's process id; filled in when it is offered.
    pub pid: u32,
}

impl Process {
    /// Offers an allocation; `None` if the table is full.
    pub fn offer(&self, object: SharedObject) -> Option<ObjectId> {
        let layout = self.machine().layout();
        let (index, generation) = claim(self.machine())?;
        let place = &layout.objects[index];
        let (slot, slot_generation) = self.id();
        place.owner_slot.store(slot as u32, Relaxed);
        place.owner_generation.store(slot_generation, Relaxed);
        place.gpu.store(object.gpu as u32, Relaxed);
        place.kind.store(object.kind as u64, Relaxed);
        place.size.store(object.size, Relaxed);
        place.address.store(object.address, Relaxed);
        place.extra.store(object.extra, Relaxed);
        // Partner: the Acquire load in `Machine::object`.
        place.state.store(tag(generation, LIVE), Release);
        Some(ObjectId { index: index as u32, generation })
    }

    /// Takes an offer back. Who opened it before keeps what it has.
    pub fn withdraw(&self, id: ObjectId) {
        if let Some(place) = self.machine().layout().objects.get(id.index as usize) {
            end(place, id.generation);
        }
    }
}

impl Machine {
    /// Object of an id; `None` once it was withdrawn or its owner ended.
    pub fn object(&self, id: ObjectId) -> Option<SharedObject> {
        let place = self.layout().objects.get(id.index as usize)?;
        let live = tag(id.generation, LIVE);
        // Partner: the Release store in `offer`.
        if place.state.load(Acquire) != live {
            return None;
        }
        let owner = self.layout().slots.get(place.owner_slot.load(Relaxed) as usize)?;
        if owner.state.load(Acquire) != tag(place.owner_generation.load(Relaxed), LIVE) {
            return None;
        }
        let object = SharedObject {
            kind: match place.kind.load(Relaxed) {
                1 => SharedKind::Memory,
                2 => SharedKind::Physical,
                3 => SharedKind::Pool,
                4 => SharedKind::PoolPointer,
                5 => SharedKind::Event,
                _ => return None,
            },
            gpu: place.gpu.load(Relaxed) as usize,
            size: place.size.load(Relaxed),
            address: place.address.load(Relaxed),
            extra: place.extra.load(Relaxed),
            pid: owner.pid.load(Relaxed),
        };
        (place.state.load(Acquire) == live).then_some(object)
    }

    pub(crate) fn drop_objects_of(&self, slot: usize, slot_generation: u64) {
        let used = (self.layout().header.objects_used.load(Relaxed) as usize).min(MAX_OBJECTS);
        for place in &self.layout().objects[..used] {
            let word = place.state.load(Acquire);
            let owner = (place.owner_slot.load(Relaxed) as usize, place.owner_generation.load(Relaxed));
            if state_of(word) == LIVE && owner == (slot, slot_generation) {
                end(place, generation_of(word));
            }
        }
    }
}

fn end(place: &Object, generation: u64) {
    let _ = place.state.compare_exchange(tag(generation, LIVE), tag(generation, ENDED), AcqRel, Relaxed);
}

/// A place, the lowest that is free. A place whose claimer was killed before it said LIVE stays lost:
/// one of thousands, and never wrong.
fn claim(machine: &Machine) -> Option<(usize, u64)> {
    let layout = machine.layout();
    for (index, place) in layout.objects.iter().enumerate() {
        let word = place.state.load(Acquire);
        if matches!(state_of(word), FREE | ENDED) {
            let generation = generation_of(word) + 1;
            if place.state.compare_exchange(word, tag(generation, CLAIMING), AcqRel, Relaxed).is_ok() {
                layout.header.objects_used.fetch_max(index as u32 + 1, Relaxed);
                return Some((index, generation));
            }
        }
    }
    None
}
