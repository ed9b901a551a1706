//! The consumer's end: maps what the producer sends, and says when it is done with it.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::c_int;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::bell::Ear;
use crate::gpu::{Event as GpuEvent, Gpu, GpuCopy, GpuView, Pending};
use crate::memory::{Access, View};
use crate::message::{BadMessage, Batch, NO_GPU, Reply, Request, Start, VERSION};
use crate::place::Folder;
use crate::ring::{Position, Slow};
use crate::sys::Descriptor;
use crate::{Error, place, sys};

mod inbox;

/// Interval between two attempts to find a producer that is not there yet.
const LOOK: Duration = Duration::from_millis(20);

/// Interval between two checks that the producer lives, while nothing arrives.
const LOOK_FOR_END: Duration = Duration::from_millis(100);

/// Most memory of one batch.
const MAX_REGION: u64 = 1 << 46;

/// Configuration of a consumer.
#[derive(Clone, Debug)]
pub struct Config {
    /// The producer's name.
    pub name: String,
    /// Folder of its socket; none for the usual ones.
    pub folder: Option<PathBuf>,
    /// Position to begin at.
    pub start: Start,
    /// Policy if this consumer is slow; none for the producer's default.
    pub slow: Option<Slow>,
    /// Batches that it keeps at once.
    pub window: u8,
    /// Way in which batches are mapped.
    pub access: Access,
}

/// A batch that the consumer has got.
#[derive(Clone, Debug)]
pub struct Received {
    /// Number of the lease, for [`Consumer::release`].
    pub lease: u64,
    /// Address of its data.
    pub start: *mut u8,
    /// The memory that they lie in, a number that is never used for other memory.
    pub region: u64,
    /// Bytes of that memory.
    pub bytes: u64,
    /// Position of the batch.
    pub batch: Batch,
    /// Its description, checked.
    pub description: Arc<Vec<u8>>,
    /// Address of its data on the GPU, and the GPU's number, as the program counts them.
    pub gpu: Option<(u64, c_int)>,
}

/// Next event of a consumer.
pub enum Event {
    /// A batch.
    Batch(Received),
    /// The end of an epoch, with its batches.
    EpochEnd(Position),
    /// Nothing in time, or a signal.
    Again,
    /// The producer has ended as it should.
    End,
}

/// Properties that the producer announces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Welcome {
    /// The producer, also over its restarts.
    pub session: [u8; 16],
    /// Batches of an epoch, or [`UNKNOWN`](crate::message::UNKNOWN).
    pub batches: u64,
    /// Samples of an epoch, or [`UNKNOWN`](crate::message::UNKNOWN).
    pub samples: u64,
    /// Policy if this consumer is slow.
    pub slow: Slow,
    /// True if batches lie on a GPU.
    pub on_gpu: bool,
}

struct Mapped {
    number: u64,
    view: Arc<View>,
    gpu: Option<Arc<GpuView>>,
}

/// A connection.
struct Link {
    socket: Arc<Descriptor>,
    end: Option<Arc<Descriptor>>,
    /// Word that the consumer sleeps on; none for the socket.
    ear: Option<Arc<Ear>>,
    /// Counts connections.
    number: u64,
}

struct Lease {
    link: u64,
    lease: u64,
    view: Arc<View>,
    /// Kept mapped until it is released.
    gpu: Option<Arc<GpuView>>,
    used: u64,
}

struct Inner {
    link: Option<Link>,
    links: u64,
    welcome: Option<Welcome>,
    mapped: BTreeMap<u64, Mapped>,
    mappings: u64,
    /// Messages that have arrived and that the caller has not yet requested.
    inbox: VecDeque<Reply>,
    /// The batch that comes next, once one has come.
    position: Option<(Position, u64)>,
    leases: BTreeMap<u64, Lease>,
    made: u64,
    wants: bool,
    ended: bool,
    dropped: u64,
    last: Arc<Vec<u8>>,
    /// Bytes of its data, on the host and on the GPU.
    last_data: (u64, u64),
    gpu: Option<Arc<Gpu>>,
}

/// A consumer. Its batches stay mapped until it is dropped or they are released, also when the producer has ended.
pub struct Consumer {
    config: Config,
    inner: Mutex<Inner>,
    pending: Pending,
}

impl Consumer {
    /// Waits for the producer, and attaches to it.
    ///
    /// # Errors
    /// There is no producer in time, or it refuses.
    pub fn new(config: Config, timeout: Duration) -> Result<Self, Error> {
        place::check_name(&config.name)?;
        let inner = Inner {
            link: None,
            links: 0,
            welcome: None,
            mapped: BTreeMap::new(),
            mappings: 0,
            inbox: VecDeque::new(),
            position: None,
            leases: BTreeMap::new(),
            made: 0,
            wants: false,
            ended: false,
            dropped: 0,
            last: Arc::default(),
            last_data: (0, 0),
            gpu: None,
        };
        let consumer = Self { config, inner: Mutex::new(inner), pending: Pending::default() };
        consumer.attach(timeout)?;
        Ok(consumer)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Attaches again after the producer's death, where this consumer stopped.
    ///
    /// # Errors
    /// There is no producer in time, or it refuses.
    pub fn attach(&self, timeout: Duration) -> Result<(), Error> {
        let until = Instant::now() + timeout;
        loop {
            match self.try_attach(until) {
                Err(Error::NoProducer(_) | Error::Died) if Instant::now() + LOOK < until => {
                    std::thread::sleep(LOOK)
                }
                result => return result,
            }
        }
    }

    fn try_attach(&self, until: Instant) -> Result<(), Error> {
        let socket = self.connected()?;
        // Before the other side has answered: a process that answers after this is the one that is watched.
        let peer = sys::peer(socket.as_raw_fd()).map_err(Error::io("the producer's credentials"))?;
        if peer.uid != sys::user() {
            return Err(Error::OtherUser(peer.uid));
        }
        let (socket, end) = (Arc::new(Descriptor::new(socket)), peer.end.map(Descriptor::new).map(Arc::new));
        let mut inner = self.lock();
        let start =
            inner.position.map_or(self.config.start, |(position, order)| Start::At { position, order });
        let session = inner.welcome.map_or([0; 16], |welcome| welcome.session);
        let hello = Request::Hello {
            version: VERSION,
            session,
            start,
            slow: self.config.slow,
            window: self.config.window,
        };
        sys::send(socket.raw(), &hello.encode(), None).map_err(|_| Error::Died)?;
        inner.links += 1;
        let number = inner.links;
        inner.link = Some(Link { socket: socket.clone(), end: end.clone(), ear: None, number });
        // What the former connection mapped is unmapped when its last batch is released.
        inner.mapped.clear();
        inner.inbox.clear();
        inner.wants = false;
        drop(inner);
        loop {
            let left = until.saturating_duration_since(Instant::now()).as_millis();
            sys::wait(&socket, end.as_deref(), i32::try_from(left).unwrap_or(i32::MAX))
                .map_err(Error::io("waiting for the producer"))?;
            let mut inner = self.lock();
            inner.drain(self.config.access)?;
            match inner.inbox.pop_front() {
                Some(Reply::Welcome { session, batches, samples, slow, gpu }) => {
                    let on_gpu = gpu != NO_GPU;
                    inner.welcome = Some(Welcome { session, batches, samples, slow, on_gpu });
                    return inner.open(gpu);
                }
                Some(Reply::Refused { code, text }) => {
                    inner.link = None;
                    return Err(Error::Refused { code, text });
                }
                Some(_) => {
                    inner.link = None;
                    return Err(BadMessage::Order.into());
                }
                None if Instant::now() >= until => {
                    inner.link = None;
                    return Err(Error::NoProducer(self.config.name.clone()));
                }
                None => {}
            }
        }
    }

    fn connected(&self) -> Result<std::os::fd::OwnedFd, Error> {
        let mut failed = Error::NoProducer(self.config.name.clone());
        for folder in Folder::for_consumer(self.config.folder.as_deref()) {
            match sys::connect(&folder.file(&self.config.name, "sock")) {
                Ok(socket) => return Ok(socket),
                Err(error)
                    if matches!(
                        error.raw_os_error(),
                        Some(libc::ENOENT | libc::ECONNREFUSED | libc::EAGAIN)
                    ) => {}
                Err(error) => failed = Error::System { what: "the producer's socket", error },
            }
        }
        Err(failed)
    }

    /// Properties that the producer announced; none before it has.
    pub fn welcome(&self) -> Option<Welcome> {
        self.lock().welcome
    }

    /// Batches that the producer dropped because this consumer was slow.
    pub fn dropped(&self) -> u64 {
        self.lock().dropped
    }

    /// Batches that are leased and not released.
    pub fn leases(&self) -> usize {
        self.lock().leases.len()
    }

    /// Next event; waits for it.
    ///
    /// # Errors
    /// [`Error::Died`] once the producer has ended without a word: [`Consumer::attach`] goes on from here. Other errors
    /// end the connection, too.
    pub fn next(&self, timeout: Duration) -> Result<Event, Error> {
        /// Longest wait at a time while the GPU reads batches that are released.
        const READING: Duration = Duration::from_millis(1);
        let timeout = if self.release_read() { timeout.min(READING) } else { timeout };
        let until = Instant::now() + timeout;
        let mut first = true;
        loop {
            let mut inner = self.lock();
            if inner.ended {
                return Ok(Event::End);
            }
            // Before the socket is looked into: what comes later rings.
            let ear = inner.link.as_ref().and_then(|link| link.ear.clone());
            let value = ear.as_ref().map_or(0, |ear| ear.value());
            let drained = inner.drain(self.config.access);
            let came = !inner.inbox.is_empty();
            let result = drained.and_then(|()| inner.event());
            match result {
                Err(error) => {
                    inner.disconnect();
                    return Err(error);
                }
                Ok(Some(event)) => {
                    if let Event::Batch(received) = &event {
                        let view = inner.leases.get(&received.lease).map(|lease| lease.view.clone());
                        drop(inner);
                        // Without the lock: the driver locks every page.
                        view.iter().for_each(|view| view.pin());
                    }
                    return Ok(event);
                }
                // A packet that is no event, as of dropped batches: others may stand behind it, whose ring is over.
                Ok(None) if came => continue,
                Ok(None) => {}
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() && !first {
                return Ok(Event::Again);
            }
            first = false;
            let Some(link) = &inner.link else { return Err(Error::Died) };
            let (socket, end) = (link.socket.clone(), link.end.clone());
            drop(inner);
            if let Some(ear) = ear {
                if !ear.wait(value, left.min(LOOK_FOR_END)) {
                    return Ok(Event::Again);
                }
                continue;
            }
            // Rounded up, so that the rest of a millisecond is no busy loop.
            let left = i32::try_from(left.as_micros().div_ceil(1000)).unwrap_or(i32::MAX);
            if !sys::wait(&socket, end.as_deref(), left).map_err(Error::io("waiting for the producer"))? {
                return Ok(Event::Again);
            }
        }
    }

    /// Nothing that comes of this epoch is wanted.
    pub fn skip(&self, epoch: u64) {
        let mut inner = self.lock();
        let of = |reply: &Reply| match reply {
            Reply::Batch(batch) => (batch.position.epoch <= epoch).then_some(batch.lease),
            _ => None,
        };
        let unwanted: Vec<u64> = inner.inbox.iter().filter_map(of).collect();
        inner.inbox.retain(|reply| match reply {
            Reply::Batch(batch) => batch.position.epoch > epoch,
            Reply::EpochEnd { epoch: ended, .. } => *ended > epoch,
            _ => true,
        });
        // A batch that is not wanted may have been the answer to the last wish.
        inner.wants &= unwanted.is_empty();
        inner.position = Some((Position { epoch: epoch.saturating_add(1), index: 0 }, 0));
        inner.say(&Request::Skip { epoch });
        for lease in unwanted {
            inner.say(&Request::Release { lease });
        }
    }

    /// Gives a batch back. Its memory may change from now on.
    pub fn release(&self, lease: u64) {
        let released = self.lock().leases.remove(&lease);
        let Some(lease) = released else { return };
        // Before the producer may write there.
        lease.view.reset(lease.used);
        let inner = self.lock();
        if inner.link.as_ref().is_some_and(|link| link.number == lease.link) {
            inner.say(&Request::Release { lease: lease.lease });
        }
    }

    /// Ends the connection. Batches that are not released stay mapped.
    pub fn close(&self) {
        self.lock().disconnect();
    }

    /// Gives a batch back once the GPU has come to what these streams do now.
    pub fn release_after(&self, lease: u64, streams: &[usize]) {
        let gpu = self.lock().gpu.clone();
        let events = gpu.iter().flat_map(|gpu| streams.iter().map(|stream| GpuEvent::record(gpu, *stream)));
        // A stream that takes no event, as while it is captured, has no end that could be waited for.
        let events: Vec<GpuEvent> = events.filter_map(Result::ok).collect();
        if events.iter().all(GpuEvent::is_reached) {
            self.release(lease);
        } else {
            self.pending.keep(lease, events);
        }
    }

    /// Gives back what the GPU has read; whether there are others that it has not.
    fn release_read(&self) -> bool {
        let (reached, others) = self.pending.reached();
        for lease in reached {
            self.release(lease);
        }
        others
    }

    /// A copy of a leased batch's data on the GPU.
    ///
    /// # Errors
    /// The GPU has too little memory, or the batch is not leased or has none there.
    pub fn copy(&self, lease: u64, bytes: u64) -> Result<GpuCopy, Error> {
        let view = self.lock().leases.get(&lease).and_then(|lease| lease.gpu.clone());
        GpuCopy::new(&*view.ok_or(Error::Misuse("the batch has no data on a GPU"))?, bytes)
    }
}

#[cfg(test)]
mod tests;
