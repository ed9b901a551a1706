//! Communicators: who is in them, and how the ranks that run meet.

use core::ffi::c_int;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use radrm_cuda_abi::*;
use radrm_emulator_ffi::{Answer, Out};

use super::members::{self, Members};
use super::region::{Broken, Region};
use super::{UniqueId, name_of};
use crate::handles::{OwnMemory, Registry};
use crate::runtime::known::LARGEST;
use crate::{notes, runtime};

/// Channels of a communicator on one machine with fast links; NCCL chooses 8 to 32 by what it finds.
const CHANNELS: usize = 16;
/// Default of NCCL_BUFFSIZE.
const BUFFER: usize = 4 << 20;

/// Communicators of this process that have buffers.
static WITH_BUFFERS: AtomicUsize = AtomicUsize::new(0);
/// Those of them that were used: NCCL connects the GPUs of one when it is first used.
static USED: AtomicUsize = AtomicUsize::new(0);

/// One of those that have buffers, until this is dropped.
struct Buffered {
    is_used: bool,
}

impl Buffered {
    /// Notes what all of them have: a program may make many, and use few.
    fn new() -> Self {
        // Relaxed: a count that orders nothing.
        let all = WITH_BUFFERS.fetch_add(1, Ordering::Relaxed) + 1;
        notes::guess("buffers of all communicators (NCCL), 64 MiB each", (all * CHANNELS * BUFFER) as u64);
        Self { is_used: false }
    }

    /// Notes that the communicator is used, the first time.
    fn connect(&mut self) {
        if !std::mem::replace(&mut self.is_used, true) {
            let all = USED.fetch_add(1, Ordering::Relaxed) + 1;
            notes::guess(
                "of these, buffers of communicators that were used",
                (all * CHANNELS * BUFFER) as u64,
            );
        }
    }
}

impl Drop for Buffered {
    fn drop(&mut self) {
        WITH_BUFFERS.fetch_sub(1, Ordering::Relaxed);
        if self.is_used {
            USED.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// A communicator.
pub(super) struct Communicator {
    name: String,
    pub(super) rank: usize,
    pub(super) ranks: usize,
    pub(super) members: Members,
    pub(super) device: c_int,
    pub(super) region: Option<Arc<Region>>,
    /// Content that this rank broadcast last, if it is known.
    pub(super) brought: Option<Vec<u8>>,
    exchanges: u64,
    splits: u64,
    pub(super) memory: OwnMemory,
    buffered: Option<Buffered>,
}

impl Communicator {
    fn connect(&mut self) {
        self.buffered.iter_mut().for_each(Buffered::connect);
    }
}

pub(super) static COMMUNICATORS: Registry<Communicator> = Registry::new();

/// Content that a rank brings to an exchange, if it is known.
pub(super) type Content = Option<Rc<Vec<u8>>>;

/// Stands for "another rank failed".
pub(super) const REMOTE: CUresult = CUresult(0x8000_0006);

pub(super) fn broken(_why: Broken) -> CUresult {
    REMOTE
}

pub(super) fn count(value: c_int) -> Answer<usize> {
    usize::try_from(value).map_err(|_| CUDA_ERROR_INVALID_VALUE)
}

/// Operations of NCCL on modelled ranks, as reports list them.
pub(super) const COLLECTIVES: &str = "collectives on GPUs (NCCL)";
const MESSAGES: &str = "messages between GPUs (NCCL)";

pub(super) fn join(out: Out<u64>, id: &UniqueId, ranks: c_int, rank: c_int) -> Answer {
    let (name, ranks) = (name_of(id), count(ranks)?);
    let members = members::of(&name, ranks);
    create(out, name, members, count(rank)?, false)
}

pub(super) fn create(out: Out<u64>, name: String, members: Members, rank: usize, alone: bool) -> Answer {
    out.required()?;
    let ranks = members.ranks();
    let place = members.place(rank).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let device = runtime::memory::device_now()?;
    let mut memory = OwnMemory::default();
    let buffered = if ranks > 1 {
        memory.take(CHANNELS * BUFFER)?;
        Some(Buffered::new())
    } else {
        None
    };
    let run = members.run().len();
    let region = if alone || run == 1 { None } else { Region::join(&name, run, place).map(Arc::new) };
    let own = Communicator {
        name,
        rank,
        ranks,
        members,
        device,
        region,
        brought: None,
        exchanges: 0,
        splits: 0,
        memory,
        buffered,
    };
    out.set(COMMUNICATORS.add(own))
}

/// Meets the other ranks that run for one exchange, if there are any and the message is small. Gives what each of them
/// brings.
fn meet(handle: u64, own: Content, bytes: usize) -> Answer<BTreeMap<usize, Content>> {
    let (region, number, rank, members) = COMMUNICATORS.with(handle, |own| {
        own.connect();
        let small = bytes <= LARGEST;
        own.exchanges += u64::from(small);
        (own.region.clone().filter(|_| small), own.exchanges, own.rank, own.members.clone())
    })?;
    match region {
        Some(region) if region.has_others() => {
            let own = own.as_ref().map(|content| content.as_slice());
            let all = region.exchange(number, own).map_err(broken)?;
            Ok(members
                .run()
                .iter()
                .copied()
                .zip(all.into_iter().map(|content| content.map(Rc::new)))
                .collect())
        }
        _ if members.run().len() == 1 => Ok(BTreeMap::from([(rank, own)])),
        _ => Ok(BTreeMap::new()),
    }
}

/// As [`meet`], with what the modelled ranks bring: the same as this rank. Empty if the others could not be met.
pub(super) fn exchange(handle: u64, own: Content, bytes: usize) -> Answer<Vec<Content>> {
    let met = meet(handle, own.clone(), bytes)?;
    let (ranks, is_whole) = COMMUNICATORS.with(handle, |own| (own.ranks, own.members.are_all()))?;
    if !is_whole {
        notes::note(notes::Kind::Answered, COLLECTIVES);
    }
    if met.is_empty() {
        return Ok(Vec::new());
    }
    Ok((0..ranks).map(|rank| met.get(&rank).unwrap_or(&own).clone()).collect())
}

/// Region of a message to or from a rank, and the rank's place among those that run: `None` if it is modelled.
pub(super) fn peer_of(handle: u64, peer: usize) -> Answer<(Option<Arc<Region>>, Option<usize>)> {
    let (region, place) = COMMUNICATORS.with(handle, |own| {
        own.connect();
        (own.region.clone(), own.members.place(peer))
    })?;
    if place.is_none() {
        notes::note(notes::Kind::Answered, MESSAGES);
    }
    Ok((region, place))
}

pub(super) fn split(handle: u64, color: c_int, key: c_int, out: Out<u64>) -> Answer {
    out.required()?;
    let own = [color.to_le_bytes(), key.to_le_bytes()].concat();
    let met = meet(handle, Some(Rc::new(own)), 8)?;
    let (name, rank, is_whole) = COMMUNICATORS.with(handle, |own| {
        own.splits += 1;
        (format!("{}-{}-{color}", own.name, own.splits), own.rank, own.members.are_all())
    })?;
    let announced = members::of_split();
    if color < 0 {
        return out.set(0);
    }
    let word = |content: &[u8], at: usize| {
        content.get(at..at + 4).and_then(|b| b.first_chunk::<4>().copied()).map_or(0, i32::from_le_bytes)
    };
    let mut same: Vec<(i32, usize)> = met
        .iter()
        .filter_map(|(rank, content)| Some((*rank, content.as_deref()?)))
        .filter(|(_, content)| word(content, 0) == color)
        .map(|(rank, content)| (word(content, 4), rank))
        .collect();
    if same.is_empty() {
        same.push((key, rank));
    }
    same.sort_unstable();
    if let Some(ranks) = announced.filter(|_| !is_whole) {
        // The keys of a group's members are their ranks in it: PyTorch counts them from 0.
        let run = same.iter().map(|(key, _)| usize::try_from(*key).unwrap_or(usize::MAX)).collect();
        let members = Members::some(ranks, run).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        return create(out, name, members, count(key)?, false);
    }
    let own = same.iter().position(|(_, member)| *member == rank).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    create(out, name, Members::all(same.len()), own, false)
}
