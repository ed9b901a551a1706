//! NCCL between the processes of one machine.
//!
//! Tensors are not moved: their content is not known anyway. What must arrive are the small messages by which
//! processes agree on shapes and sizes; for those all ranks meet and exchange what is known. Larger ones end
//! at once, as a call on a stream does.
//!
//! A communicator takes the buffers that its documentation names: NCCL_BUFFSIZE (4 MiB) for each channel.
//!
//! Of a large job only some ranks may run; [`members`] knows which. A rank that does not run has what the asking rank has:
//! it contributes that to a collective, takes every message, and what it sends is not known.

mod communicator;
mod members;
mod reduce;
mod region;

use core::ffi::{CStr, c_char, c_int, c_void};
use std::cell::RefCell;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use radrm_cuda_abi::*;
use radrm_emulator_ffi::{Answer, In, Out};

use crate::handles::library;
use crate::runtime::known::{self, LARGEST, Origin};
use crate::{notes, runtime};
use communicator::{
    COLLECTIVES, COMMUNICATORS, Communicator, Content, REMOTE, broken, count, create, exchange, join,
    peer_of, split,
};
use members::Members;
use radrm_cuda_client as driver;
use reduce::element;
use region::{LARGEST_TO_ONE, Region};

const VERSION: c_int = 23007;

/// Something that is done at the end of a group.
type Work = Box<dyn FnOnce() -> Answer>;

thread_local! {
    /// Depth of groups, and what is to be done at the end of the outermost.
    static GROUP: RefCell<(u32, Vec<Work>)> = const { RefCell::new((0, Vec::new())) };
}

/// `ncclUniqueId`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct UniqueId {
    bytes: [u8; 128],
}

/// A driver's code as a result of NCCL.
fn status(code: u32) -> c_int {
    match CUresult(code) {
        CUDA_ERROR_INVALID_VALUE | CUDA_ERROR_INVALID_HANDLE => 4,
        CUDA_ERROR_NOT_SUPPORTED => 5,
        REMOTE => 6,
        _ => 1,
    }
}

fn new_id() -> UniqueId {
    static MADE: AtomicU64 = AtomicU64::new(0);
    let mut bytes = [0; 128];
    // Relaxed: numbers only have to differ.
    let words =
        [u64::from(std::process::id()), MADE.fetch_add(1, Ordering::Relaxed), bytes.as_ptr() as u64, now()];
    for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    UniqueId { bytes }
}

fn now() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos() as u64)
}

fn name_of(id: &UniqueId) -> String {
    let mut hasher = DefaultHasher::new();
    id.bytes.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

/// Does something now, or at the end of the group.
fn later(work: impl FnOnce() -> Answer + 'static) -> Answer {
    let mut work = Some(work);
    let kept = GROUP.with_borrow_mut(|(depth, all)| {
        if *depth > 0
            && let Some(work) = work.take()
        {
            all.push(Box::new(work));
            return true;
        }
        false
    });
    match work {
        Some(work) if !kept => work(),
        _ => Ok(()),
    }
}

/// Everything that can be seen of a collective: contents in, contents out.
fn collective(
    handle: u64,
    (send, sent): (u64, usize),
    (receive, received): (u64, usize),
    combine: impl Fn(&mut Communicator, &[Content]) -> Option<Vec<u8>> + 'static,
) -> Answer {
    COMMUNICATORS.with(handle, |_| ())?;
    later(move || {
        let largest = sent.max(received);
        let own = if largest <= LARGEST { known::content(send, sent).map(Rc::new) } else { None };
        let all = exchange(handle, own, largest)?;
        let content = COMMUNICATORS.with(handle, |own| combine(own, &all))?;
        match content.filter(|content| content.len() == received && !all.is_empty()) {
            Some(content) => known::keep(receive, content, Origin::Peer),
            None if receive != send => known::forget(receive, received as u64),
            None => {}
        }
        Ok(())
    })
}

/// Content that one rank brings, if it is known.
fn from(all: &[Content], rank: usize) -> Option<Vec<u8>> {
    all.get(rank)?.as_ref().map(|content| content.to_vec())
}

/// Gives all what one has. A root that does not run has what this rank has: what stands in the buffer; in a group, in which
/// each rank broadcasts its part to gather them, what this rank broadcasts there.
fn broadcast(handle: u64, send: u64, receive: u64, bytes: usize, root: usize) -> Answer {
    let (rank, runs) = COMMUNICATORS.with(handle, |own| (own.rank, own.members.place(root).is_some()))?;
    if runs {
        return collective(handle, (send, bytes), (receive, bytes), move |own, all| {
            let content = from(all, root);
            if rank == root {
                own.brought = content.clone();
            }
            content
        });
    }
    notes::note(notes::Kind::Answered, COLLECTIVES);
    later(move || {
        later_still(move || {
            let brought = COMMUNICATORS.with(handle, |own| own.brought.clone())?;
            if let Some(content) = brought.filter(|content| IN_GROUP.get() && content.len() == bytes) {
                known::keep(receive, content, Origin::Peer);
            }
            Ok(())
        })
    })
}

/// All contents, if every one is known.
fn all_known(all: &[Content]) -> Option<Vec<&[u8]>> {
    all.iter().map(|content| content.as_ref().map(|content| content.as_slice())).collect()
}

/// Announces which ranks of a group run, for the communicator with a unique id; without an id, for the next split.
///
/// # Safety
/// `id` is null or points to a `ncclUniqueId`, `run` to `count` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn radrm_members(id: *const UniqueId, ranks: u32, run: *const u32, count: u32) {
    if id.is_null() {
        return members::announce_split(ranks as usize);
    }
    if run.is_null() {
        return;
    }
    // SAFETY: as the caller promises.
    let (id, run) = unsafe { (&*id, std::slice::from_raw_parts(run, count as usize)) };
    let run = run.iter().map(|rank| *rank as usize).collect();
    if let Some(members) = Members::some(ranks as usize, run) {
        members::announce(name_of(id), members);
    }
}

library! { status;
    /// A name for a new communicator.
    fn radrm_ncclGetUniqueId(out: Out<UniqueId>) {
        out.required()?;
        out.set(new_id())
    }

    /// Joins a communicator.
    fn radrm_ncclCommInitRank(out: Out<u64>, ranks: c_int, id: UniqueId, rank: c_int) {
        join(out, &id, ranks, rank)
    }

    /// Joins a communicator.
    fn radrm_ncclCommInitRankConfig(out: Out<u64>, ranks: c_int, id: UniqueId, rank: c_int, _config: *mut c_void) {
        join(out, &id, ranks, rank)
    }

    /// Joins a communicator with several names: the first is enough.
    fn radrm_ncclCommInitRankScalable(
        out: Out<u64>, ranks: c_int, rank: c_int, _ids: c_int, ids: In<UniqueId>, _config: *mut c_void,
    ) {
        join(out, &ids.get()?, ranks, rank)
    }

    /// Makes communicators of this process alone, one for each device.
    fn radrm_ncclCommInitAll(out: Out<u64>, ranks: c_int, devices: In<c_int>) {
        let ranks = count(ranks)?;
        let list = if devices.is_null() { (0..ranks as c_int).collect() } else { devices.list(ranks)? };
        let (before, name) = (runtime::memory::device_now()?, name_of(&new_id()));
        for (rank, device) in list.into_iter().enumerate() {
            // SAFETY: no pointers.
            unsafe { runtime::device::radrm_cudaSetDevice(device) };
            let mut own = 0;
            create(Out::of(&mut own), name.clone(), Members::all(ranks), rank, true)?;
            out.set_at(rank, own)?;
        }
        // SAFETY: no pointers.
        unsafe { runtime::device::radrm_cudaSetDevice(before) };
        Ok(())
    }

    /// Makes communicators of parts.
    fn radrm_ncclCommSplit(handle: u64, color: c_int, key: c_int, out: Out<u64>, _config: *mut c_void) {
        split(handle, color, key, out)
    }

    /// Destroys a communicator, with its buffers.
    fn radrm_ncclCommDestroy(handle: u64) {
        COMMUNICATORS.remove(handle)?.memory.give_back();
        Ok(())
    }

    /// Destroys a communicator and wakes the ranks that wait for this rank.
    fn radrm_ncclCommAbort(handle: u64) {
        let mut own = COMMUNICATORS.remove(handle)?;
        if let Some(region) = &own.region {
            region.abort();
        }
        own.memory.give_back();
        Ok(())
    }

    /// Completes what is under way: nothing is.
    fn radrm_ncclCommFinalize(handle: u64) {
        COMMUNICATORS.with(handle, |_| ())
    }

    /// Errors that showed later: none.
    fn radrm_ncclCommGetAsyncError(handle: u64, out: Out<c_int>) {
        COMMUNICATORS.with(handle, |_| ())?;
        out.set(0)
    }

    /// Number of ranks.
    fn radrm_ncclCommCount(handle: u64, out: Out<c_int>) {
        out.set(COMMUNICATORS.with(handle, |own| own.ranks)? as c_int)
    }

    /// Own rank.
    fn radrm_ncclCommUserRank(handle: u64, out: Out<c_int>) {
        out.set(COMMUNICATORS.with(handle, |own| own.rank)? as c_int)
    }

    /// Own device.
    fn radrm_ncclCommCuDevice(handle: u64, out: Out<c_int>) {
        out.set(COMMUNICATORS.with(handle, |own| own.device)?)
    }

    /// Version of the library.
    fn radrm_ncclGetVersion(out: Out<c_int>) {
        out.set(VERSION)
    }

    /// Reduces to all.
    fn radrm_ncclAllReduce(
        send: u64, receive: u64, elements: usize, kind: c_int, operation: c_int, handle: u64, _stream: u64,
    ) {
        let bytes = elements * element(kind);
        collective(handle, (send, bytes), (receive, bytes), move |_, all| {
            reduce::reduce(&all_known(all)?, kind, operation)
        })
    }

    /// Reduces to one.
    fn radrm_ncclReduce(
        send: u64, receive: u64, elements: usize, kind: c_int, operation: c_int, root: c_int, handle: u64, _stream: u64,
    ) {
        let (bytes, root) = (elements * element(kind), count(root)?);
        collective(handle, (send, bytes), (receive, bytes), move |own, all| {
            if own.rank == root { reduce::reduce(&all_known(all)?, kind, operation) } else { None }
        })
    }

    /// Reduces, and gives each a part.
    fn radrm_ncclReduceScatter(
        send: u64, receive: u64, elements: usize, kind: c_int, operation: c_int, handle: u64, _stream: u64,
    ) {
        let part = elements * element(kind);
        let ranks = COMMUNICATORS.with(handle, |own| own.ranks)?;
        collective(handle, (send, part * ranks), (receive, part), move |own, all| {
            let whole = reduce::reduce(&all_known(all)?, kind, operation)?;
            whole.get(own.rank * part..(own.rank + 1) * part).map(<[u8]>::to_vec)
        })
    }

    /// Gives all everyone's part.
    fn radrm_ncclAllGather(send: u64, receive: u64, elements: usize, kind: c_int, handle: u64, _stream: u64) {
        let part = elements * element(kind);
        let ranks = COMMUNICATORS.with(handle, |own| own.ranks)?;
        collective(handle, (send, part), (receive, part * ranks), |_, all| Some(all_known(all)?.concat()))
    }

    /// Gives all what one has.
    fn radrm_ncclBroadcast(
        send: u64, receive: u64, elements: usize, kind: c_int, root: c_int, handle: u64, _stream: u64,
    ) {
        broadcast(handle, send, receive, elements * element(kind), count(root)?)
    }

    /// Gives all what one has, in place.
    fn radrm_ncclBcast(buffer: u64, elements: usize, kind: c_int, root: c_int, handle: u64, _stream: u64) {
        broadcast(handle, buffer, buffer, elements * element(kind), count(root)?)
    }

    /// Gives each everyone's part for it.
    fn radrm_ncclAlltoAll(send: u64, receive: u64, elements: usize, kind: c_int, handle: u64, _stream: u64) {
        let part = elements * element(kind);
        let bytes = part * COMMUNICATORS.with(handle, |own| own.ranks)?;
        collective(handle, (send, bytes), (receive, bytes), move |own, all| {
            let all = all_known(all)?;
            let parts = all.iter().map(|content| content.get(own.rank * part..(own.rank + 1) * part));
            Some(parts.collect::<Option<Vec<_>>>()?.concat())
        })
    }

    /// Sends to one rank.
    fn radrm_ncclSend(send: u64, elements: usize, kind: c_int, peer: c_int, handle: u64, _stream: u64) {
        let (bytes, peer) = (elements * element(kind), count(peer)?);
        let (region, place) = peer_of(handle, peer)?;
        later(move || match region.filter(|region| bytes <= LARGEST_TO_ONE && region.has_others()).zip(place) {
            Some((region, to)) => region.send(to, known::content(send, bytes).as_deref()).map_err(broken),
            None => Ok(()),
        })
    }

    /// Receives from one rank.
    fn radrm_ncclRecv(receive: u64, elements: usize, kind: c_int, peer: c_int, handle: u64, _stream: u64) {
        let (bytes, peer) = (elements * element(kind), count(peer)?);
        let (region, place) = peer_of(handle, peer)?;
        // Receiving comes after all sending of the group: two ranks that send to each other do not wait.
        later(move || {
            later_still(move || {
                let meets = |region: &Arc<Region>| bytes <= LARGEST_TO_ONE && region.has_others();
                let content = match region.filter(meets).zip(place) {
                    Some((region, from)) => region.receive(from).map_err(broken)?,
                    None => None,
                };
                match content.filter(|content| content.len() == bytes) {
                    Some(content) => known::keep(receive, content, Origin::Peer),
                    None => known::forget(receive, bytes as u64),
                }
                Ok(())
            })
        })
    }

    /// Begins a group.
    fn radrm_ncclGroupStart() {
        GROUP.with_borrow_mut(|(depth, _)| *depth += 1);
        Ok(())
    }

    /// Ends a group: what was kept is done.
    fn radrm_ncclGroupEnd() {
        let work = GROUP.with_borrow_mut(|(depth, all)| {
            *depth = depth.checked_sub(1).ok_or(CUDA_ERROR_INVALID_VALUE)?;
            Ok(if *depth == 0 { std::mem::take(all) } else { Vec::new() })
        })?;
        IN_END.set(true);
        let mut answer = Ok(());
        for own in work {
            answer = answer.and(own());
        }
        IN_END.set(false);
        IN_GROUP.set(true);
        for own in LAST.take() {
            answer = answer.and(own());
        }
        IN_GROUP.set(false);
        answer
    }

    /// Device memory that all ranks can reach.
    fn radrm_ncclMemAlloc(out: Out<u64>, bytes: usize) {
        out.required()?;
        runtime::device::ready()?;
        let mut address = 0;
        // SAFETY: a place for the address.
        unsafe { driver::cuMemAlloc_v2(&raw mut address, bytes)? };
        out.set(address)
    }

    /// Frees it.
    fn radrm_ncclMemFree(address: u64) {
        // SAFETY: no pointers.
        unsafe { driver::cuMemFree_v2(address) }
    }

    /// Makes a reduction that multiplies first.
    fn radrm_ncclRedOpCreatePreMulSum(
        out: Out<c_int>, _factor: *const c_void, _kind: c_int, _where: c_int, _handle: u64,
    ) {
        out.set(5)
    }

    /// Registers a buffer: it changes nothing here.
    fn radrm_ncclCommRegister(_handle: u64, buffer: u64, _bytes: usize, out: Out<u64>) {
        out.set(buffer)
    }

    /// Registers a buffer as a window: it changes nothing here.
    fn radrm_ncclCommWindowRegister(_handle: u64, buffer: u64, _bytes: usize, out: Out<u64>, _flags: c_int) {
        out.set(buffer)
    }
}

thread_local! {
    /// True while the last work of a group is being done.
    static IN_GROUP: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
    static IN_END: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
    static LAST: RefCell<Vec<Work>> = const { RefCell::new(Vec::new()) };
}

/// Does something when the rest of the group is done.
fn later_still(work: impl FnOnce() -> Answer + 'static) -> Answer {
    if IN_END.get() {
        LAST.with_borrow_mut(|all| all.push(Box::new(work)));
        return Ok(());
    }
    work()
}

const NAMES: [(c_int, &CStr); 8] = [
    (0, c"no error"),
    (1, c"unhandled cuda error"),
    (2, c"unhandled system error"),
    (3, c"internal error"),
    (4, c"invalid argument"),
    (5, c"invalid usage"),
    (6, c"remote process exited or there was a network error"),
    (7, c"NCCL operation in progress"),
];

/// A result in words.
#[unsafe(no_mangle)]
pub extern "C" fn radrm_ncclGetErrorString(result: c_int) -> *const c_char {
    NAMES.iter().find(|(code, _)| *code == result).map_or(c"unknown result code", |(_, name)| name).as_ptr()
}

/// The last error at length: nothing is kept.
#[unsafe(no_mangle)]
pub extern "C" fn radrm_ncclGetLastError(_handle: u64) -> *const c_char {
    c"".as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_communicators_differ() {
        assert_ne!(name_of(&new_id()), name_of(&new_id()));
    }

    #[test]
    fn a_group_that_was_not_begun_cannot_end() {
        // SAFETY: no pointers.
        unsafe {
            assert_eq!(radrm_ncclGroupEnd(), 4);
            assert_eq!(radrm_ncclGroupStart(), 0);
            assert_eq!(radrm_ncclGroupEnd(), 0);
        }
    }
}
