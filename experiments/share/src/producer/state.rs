//! State shared by the publisher and the serving thread: the ring, its memory, and the connections.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::{Config, Reserved};
use crate::bell::Bell;
use crate::gpu::{Gpu, GpuSlot};
use crate::memory::Slot;
use crate::message::{Batch, Refusal, Reply};
use crate::place::{Record, RecordFile, start_time};
use crate::ring::{Delivery, Place, Position, Ring};
use crate::sys::{self, Descriptor};

/// Packets that wait for a consumer that does not read; more end its connection.
const MAX_WAITING: usize = 1024;

/// Reason that consumers are sent away if a restarted producer's order differs.
pub(crate) const OTHER_ORDER: &str = "the loader gives its samples in another order than before the producer's restart: \
    give it a seeded sampler, or start the consumers anew";

/// Attachment of a packet.
#[derive(Clone)]
pub(crate) enum Attached {
    Slot(Arc<Slot>),
    Gpu(Arc<GpuSlot>),
    Bell(Arc<Bell>),
    File(Arc<OwnedFd>),
}

impl Attached {
    fn descriptor(&self) -> BorrowedFd<'_> {
        match self {
            Self::Slot(slot) => slot.descriptor(),
            Self::Gpu(slot) => slot.descriptor(),
            Self::Bell(bell) => bell.descriptor(),
            Self::File(file) => file.as_fd(),
        }
    }
}

/// A connection.
pub(crate) struct Link {
    pub socket: Descriptor,
    /// Readable once the consumer's process has ended.
    pub end: Option<Descriptor>,
    pub pid: u32,
    pub start: u64,
    /// Time of the connection.
    pub since: Instant,
    /// True if it is a member of the ring.
    pub attached: bool,
    /// True if it ends once its packets are sent.
    pub closing: bool,
    /// True if it is over.
    pub dead: bool,
    pub outbox: VecDeque<(Vec<u8>, Option<Attached>)>,
    regions: BTreeSet<u64>,
    /// Rings when something was sent; none before it is attached, or where there was no memory for it.
    pub bell: Option<Arc<Bell>>,
}

impl Link {
    pub fn new(socket: OwnedFd, peer: sys::Peer) -> Self {
        let pid = u32::try_from(peer.pid).unwrap_or(0);
        Self {
            socket: Descriptor::new(socket),
            end: peer.end.map(Descriptor::new),
            pid,
            start: start_time(pid).unwrap_or(0),
            since: Instant::now(),
            attached: false,
            closing: false,
            dead: false,
            outbox: VecDeque::new(),
            regions: BTreeSet::new(),
            bell: None,
        }
    }

    pub fn say(&mut self, reply: &Reply, attached: Option<Attached>) {
        self.outbox.push_back((reply.encode(), attached));
        self.dead |= self.outbox.len() > MAX_WAITING;
    }

    pub fn refuse(&mut self, code: Refusal, text: &str) {
        self.say(&Reply::Refused { code: code as u16, text: text.to_owned() }, None);
        self.closing = true;
    }

    /// Sends what the socket takes; whether the consumer slept until now.
    pub fn flush(&mut self) -> bool {
        let waiting = self.outbox.len();
        self.send();
        self.outbox.len() < waiting && self.bell.as_ref().is_some_and(|bell| bell.ring())
    }

    fn send(&mut self) {
        while let Some((packet, attached)) = self.outbox.front() {
            match sys::send(self.socket.raw(), packet, attached.as_ref().map(Attached::descriptor)) {
                Ok(()) => _ = self.outbox.pop_front(),
                Err(error) if sys::again(&error) && !self.closing => return,
                Err(_) => {
                    self.dead = true;
                    return;
                }
            }
        }
        self.dead |= self.closing;
    }
}

/// A slot's memory.
pub(crate) struct Stored {
    pub slot: Arc<Slot>,
    /// Its part on the GPU.
    pub gpu: Option<Arc<GpuSlot>>,
    pub region: u64,
}

impl Stored {
    /// Returns true if a batch fits.
    pub fn fits(&self, bytes: u64, gpu: u64) -> bool {
        self.slot.bytes() >= bytes && self.gpu.as_ref().map_or(0, |slot| slot.bytes()) >= gpu
    }

    /// Memory that a batch is written to.
    pub fn memory(&self) -> Reserved {
        Reserved::Memory { host: self.slot.start(), gpu: self.gpu.as_ref().map_or(0, |slot| slot.address()) }
    }
}

/// Everything that the publisher and the serving thread share.
pub(crate) struct Inner {
    pub ring: Ring,
    pub links: BTreeMap<u64, Link>,
    pub made: u64,
    pub config: Config,
    pub session: [u8; 16],
    /// Consumers of the producer that was killed, which have not come back yet.
    pub expected: Vec<(u32, u64)>,
    /// True if the serving thread should end.
    pub closing: bool,
    /// True if nothing more is published.
    pub ended: bool,
    pub slots: Vec<Stored>,
    pub files: BTreeMap<u64, (Arc<OwnedFd>, u64)>,
    pub regions: u64,
    pub largest: u64,
    /// The same on the GPU.
    pub largest_gpu: u64,
    /// The GPU that batches lie on.
    pub gpu: Option<Arc<Gpu>>,
    pub filling: Option<usize>,
    pub record: RecordFile,
    /// True if batches were published since the record was written.
    pub record_due: bool,
    pub seed: u64,
    /// Position to resume at if no consumer says another one.
    pub resumed: Option<Position>,
    pub counts: Counts,
}

/// Figures of a producer.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[repr(C)]
pub struct Counts {
    /// Attached consumers.
    pub consumers: u64,
    /// Slots that exist.
    pub slots: u64,
    /// Bytes of all slots.
    pub bytes: u64,
    /// The same on the GPU.
    pub gpu_bytes: u64,
    /// Batches published.
    pub published: u64,
    /// Batches that were written to disk for slow consumers.
    pub spilled: u64,
    /// Bytes of such batches that are there now.
    pub spilled_bytes: u64,
    /// Connections that broke the protocol.
    pub malformed: u64,
}

pub(crate) struct Shared {
    pub inner: Mutex<Inner>,
    /// Something changed that the publisher may wait for.
    pub changed: Condvar,
    /// Wakes the serving thread.
    pub wake: OwnedFd,
}

impl Shared {
    pub fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic while it was held leaves counts that are too large at worst.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn notify(&self) {
        self.changed.notify_all();
    }
}

impl Inner {
    /// Sends a consumer everything that it may have now; whether it slept until now.
    pub fn pump(&mut self, id: u64) -> bool {
        while let Some(delivery) = self.ring.deliver(id) {
            let reply = match delivery {
                Delivery::Dropped(batches) => Reply::Dropped { batches },
                Delivery::End(Position { epoch, index }) => Reply::EpochEnd { epoch, batches: index },
                Delivery::Batch { lease, place, position, info } => {
                    let Some(region) = self.region(id, place) else { continue };
                    Reply::Batch(Batch { lease, region, position, info })
                }
            };
            if let Some(link) = self.links.get_mut(&id) {
                link.say(&reply, None);
            }
        }
        self.links.get_mut(&id).is_some_and(Link::flush)
    }

    /// The number of a batch's memory, which the consumer has got before.
    fn region(&mut self, id: u64, place: Place) -> Option<u64> {
        let mut on_gpu = None;
        let (region, bytes, attached) = match place {
            Place::Slot(slot) => {
                let stored = self.slots.get(slot)?;
                on_gpu = stored.gpu.clone();
                (stored.region, stored.slot.bytes(), Attached::Slot(stored.slot.clone()))
            }
            Place::Spilled(region) => {
                let (file, bytes) = self.files.get(&region)?;
                (region, *bytes, Attached::File(file.clone()))
            }
        };
        let link = self.links.get_mut(&id)?;
        if link.regions.insert(region) {
            link.say(&Reply::Region { region, bytes }, Some(attached));
            if let Some(slot) = on_gpu {
                link.say(&Reply::Gpu { region, bytes: slot.bytes() }, Some(Attached::Gpu(slot)));
            }
        }
        Some(region)
    }

    fn forget(&mut self, region: u64) {
        for link in self.links.values_mut().filter(|link| !link.dead) {
            if link.regions.remove(&region) {
                link.say(&Reply::Forget { region }, None);
                link.flush();
            }
        }
    }

    /// Ends connections that are over, and gives back what is not needed any more.
    pub fn sweep(&mut self) {
        let dead: Vec<u64> = self.links.iter().filter(|(_, link)| link.dead).map(|(id, _)| *id).collect();
        for id in &dead {
            self.ring.leave(*id);
            self.links.remove(id);
        }
        for region in self.ring.unneeded() {
            if let Some((_, bytes)) = self.files.remove(&region) {
                self.counts.spilled_bytes = self.counts.spilled_bytes.saturating_sub(bytes);
                self.forget(region);
            }
        }
        let left = self.ring.shrink();
        while self.slots.len() > left {
            if let Some(Stored { region, .. }) = self.slots.pop() {
                self.forget(region);
            }
        }
        if !dead.is_empty() {
            self.write_record();
        }
    }

    pub fn write_record(&mut self) {
        self.record_due = false;
        if self.ended {
            return;
        }
        let attached = self.links.values().filter(|link| link.attached);
        let consumers = attached.map(|link| (link.pid, link.start)).chain(self.expected.iter().copied());
        let record = Record {
            session: self.session,
            seed: self.seed,
            needed: self.ring.needed(),
            consumers: consumers.collect(),
        };
        // Without a record a restart begins anew: consumers are refused then, and no sample comes twice.
        let _ = self.record.write(&record);
    }

    pub fn malformed(&mut self) {
        self.counts.malformed += 1;
    }

    pub fn broken(&mut self, members: Vec<u64>) {
        for id in members {
            if let Some(link) = self.links.get_mut(&id) {
                link.attached = false;
                link.refuse(Refusal::Order, OTHER_ORDER);
                link.flush();
            }
        }
    }

    pub fn abandon(&mut self) {
        if let Some(slot) = self.filling.take() {
            self.ring.abandon(slot);
            // A new slot for which there was no memory.
            if slot >= self.slots.len() {
                self.ring.forget_slot(slot);
            }
        }
    }

    pub fn store(&mut self, slot: usize, made: Slot, gpu: Option<GpuSlot>) -> Reserved {
        self.regions += 1;
        let stored = Stored { slot: Arc::new(made), gpu: gpu.map(Arc::new), region: self.regions };
        let memory = stored.memory();
        match self.slots.get_mut(slot) {
            Some(place) => {
                let old = std::mem::replace(place, stored).region;
                self.forget(old);
            }
            None => self.slots.push(stored),
        }
        memory
    }

    pub fn spilled(&mut self, sequence: u64, file: OwnedFd, bytes: u64) {
        self.regions += 1;
        let region = self.regions;
        if self.ring.spilled(sequence, region) {
            self.files.insert(region, (Arc::new(file), bytes.max(1)));
            self.counts.spilled += 1;
            self.counts.spilled_bytes += bytes.max(1);
            self.sweep();
        }
    }

    pub fn end(&mut self, reply: &Reply) {
        if self.ended {
            return;
        }
        for link in self.links.values_mut() {
            link.say(reply, None);
            link.flush();
        }
        self.ended = true;
        let _ = self.record.clear();
    }
}
