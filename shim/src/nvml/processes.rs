//! Lists of the processes on a device: under a quota, those of the job.

use core::ffi::c_uint;

use radrm_cuda_abi::*;

use super::ledgers::Ledgers;
use super::seen;
use crate::{arena, errno, shell};

type Call<P> = unsafe extern "C-unwind" fn(nvmlDevice_t, *mut c_uint, *mut P) -> nvmlReturn_t;
type DetailCall = unsafe extern "C-unwind" fn(nvmlDevice_t, *mut nvmlProcessDetailList_v1_t) -> nvmlReturn_t;

/// Processes that a list has room for at first.
const ROOM: u32 = 256;
/// And at most.
const MAX_PROCESSES: u32 = 1 << 16;
/// Times that a list which has grown meanwhile is asked for.
const TRIES: u32 = 4;

/// `nvmlDeviceGetComputeRunningProcesses` and its likes, in every version.
///
/// # Safety
/// `real` is NVML's own function, and the arguments are the program's of this call.
pub(crate) unsafe fn limited<P: ProcessInfo>(
    real: Call<P>,
    device: nvmlDevice_t,
    count: *mut c_uint,
    infos: *mut P,
) -> nvmlReturn_t {
    // SAFETY: null, or a number that the program has set.
    let room = (!count.is_null()).then(|| unsafe { count.read_unaligned() });
    // SAFETY: the program's own handle, and a list of ours with the room that NVML gets.
    let ask = |count: &mut u32, list: *mut u8| unsafe { real(device, count, list.cast()) };
    // SAFETY: the program's list has the room that it says, each element as long as NVML writes it.
    match room.and_then(|room| unsafe { ours::<P>(device, room, infos, ask) }) {
        Some((answer, members)) => {
            // SAFETY: not null, since there was a number.
            unsafe { count.write_unaligned(members) };
            answer
        }
        // SAFETY: the program's own call, passed on.
        None => unsafe { real(device, count, infos) },
    }
}

/// `nvmlDeviceGetRunningProcessDetailList`.
///
/// # Safety
/// As for [`limited`].
pub(crate) unsafe fn detailed(
    real: DetailCall,
    device: nvmlDevice_t,
    list: *mut nvmlProcessDetailList_v1_t,
) -> nvmlReturn_t {
    // SAFETY: null, or begins with a version that the program has set.
    let is_known =
        !list.is_null() && unsafe { list.cast::<c_uint>().read_unaligned() } == nvmlProcessDetailList_v1;
    // SAFETY: of this version.
    let asked = is_known.then(|| unsafe { list.read_unaligned() });
    let answer = asked.and_then(|asked| {
        let ask = |count: &mut u32, at: *mut u8| {
            let mut all =
                nvmlProcessDetailList_v1_t { numProcArrayEntries: *count, procArray: at.cast(), ..asked };
            // SAFETY: the program's own handle, and a list of ours with the room that NVML gets.
            let answer = unsafe { real(device, &raw mut all) };
            *count = all.numProcArrayEntries;
            answer
        };
        // SAFETY: the program's list has the room that it says.
        let listed = unsafe { ours(device, asked.numProcArrayEntries, asked.procArray, ask) };
        Some((asked, listed?))
    });
    match answer {
        Some((asked, (answer, members))) => {
            // SAFETY: not null, and of this version.
            unsafe {
                list.write_unaligned(nvmlProcessDetailList_v1_t { numProcArrayEntries: members, ..asked })
            };
            answer
        }
        // SAFETY: the program's own call, passed on.
        None => unsafe { real(device, list) },
    }
}

/// The job's part of a list with room for `room` processes at `to`: the answer, and how many they are.
/// `None`: NVML may answer the program itself.
///
/// NVML counts all processes on the device, so the program's own list may be too short for them and long
/// enough for the job's: NVML fills a list of ours, and the program gets its part of it by NVML's protocol.
///
/// # Safety
/// `to` is null, or has room for as many elements as `room` says.
unsafe fn ours<P: ProcessInfo>(
    device: nvmlDevice_t,
    room: u32,
    to: *mut P,
    ask: impl FnMut(&mut u32, *mut u8) -> nvmlReturn_t,
) -> Option<(nvmlReturn_t, u32)> {
    if to.is_null() && room != 0 {
        return None;
    }
    let (ledgers, _) = errno::keep(|| seen(device, 0))?;
    let mut list = List::read::<P>(ask)?;
    let members = errno::keep(|| shell::caught_cold(|| list.keep_members(ledgers)))?;
    if members > room {
        return Some((NVML_ERROR_INSUFFICIENT_SIZE, members));
    }
    let bytes = members as usize * list.stride;
    // SAFETY: the caller's promise; the list is longer than what of it was kept.
    unsafe { core::ptr::copy_nonoverlapping(list.at, to.cast::<u8>(), bytes) };
    Some((NVML_SUCCESS, members))
}

/// A form of a list's element. The process id comes first in all of them.
pub(crate) trait ProcessInfo: Copy {
    /// Bytes of the longest form that NVML's functions of this type have ever written.
    const LONGEST: usize;
}

impl ProcessInfo for nvmlProcessInfo_v1_t {
    const LONGEST: usize = size_of::<Self>();
}

impl ProcessInfo for nvmlProcessInfo_v2_t {
    const LONGEST: usize = PROCESS_INFO_LONGEST;
}

impl ProcessInfo for nvmlProcessDetail_v1_t {
    const LONGEST: usize = size_of::<Self>();
}

/// Byte that a list's memory holds before NVML writes there.
const BLANK: u8 = 0xa5;

/// A list in memory of its own.
struct List {
    at: *mut u8,
    bytes: usize,
    count: u32,
    /// Bytes from one element to the next.
    stride: usize,
}

impl List {
    fn blank(bytes: usize) -> Option<Self> {
        let at = arena::map_private(bytes)?;
        // SAFETY: mapped just now.
        unsafe { at.write_bytes(BLANK, bytes) };
        Some(Self { at, bytes, count: 0, stride: 0 })
    }

    /// Asks NVML for all processes; `None` where it reports none.
    fn read<P: ProcessInfo>(mut ask: impl FnMut(&mut u32, *mut u8) -> nvmlReturn_t) -> Option<Self> {
        let mut room = ROOM;
        for _ in 0..TRIES {
            let mut list = Self::blank(room as usize * P::LONGEST)?;
            let mut count = room;
            match ask(&mut count, list.at) {
                NVML_SUCCESS => {
                    list.count = count.min(room);
                    list.stride = stride(list.bytes(), list.count as usize, size_of::<P>(), P::LONGEST);
                    return Some(list);
                }
                NVML_ERROR_INSUFFICIENT_SIZE if count < MAX_PROCESSES => room = (count + ROOM).max(2 * room),
                _ => return None,
            }
        }
        None
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: mapped and initialised by `blank`.
        unsafe { core::slice::from_raw_parts(self.at, self.bytes) }
    }

    /// Moves the job's processes to the beginning; returns how many they are.
    fn keep_members(&mut self, ledgers: &Ledgers) -> u32 {
        // SAFETY: mapped and initialised by `blank`, and `self` is borrowed for as long.
        let bytes = unsafe { core::slice::from_raw_parts_mut(self.at, self.bytes) };
        keep(bytes, self.count as usize, self.stride, |pid| ledgers.is_member(pid))
    }
}

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: mapped by `blank` with this length; nothing refers to it any more.
        let _ = unsafe { rustix::mm::munmap(self.at.cast(), self.bytes) };
    }
}

/// Length of one of NVML's elements, by the end of what NVML wrote: as documented, or the longest that there
/// was.
fn stride(bytes: &[u8], count: usize, documented: usize, longest: usize) -> usize {
    let end = bytes.iter().rposition(|byte| *byte != BLANK).map_or(0, |last| last + 1);
    // Beyond the longest: the whole list was written to, so its length says nothing.
    if end > count * documented && end <= count * longest { longest } else { documented }
}

/// Moves the elements of wanted processes to the beginning; returns how many they are.
fn keep(bytes: &mut [u8], count: usize, stride: usize, wanted: impl Fn(u32) -> bool) -> u32 {
    let mut kept = 0;
    for index in 0..count {
        let from = index * stride;
        let pid = bytes.get(from..).and_then(|rest| rest.first_chunk()).map(|pid| u32::from_ne_bytes(*pid));
        if pid.is_some_and(&wanted) && from + stride <= bytes.len() {
            bytes.copy_within(from..from + stride, kept as usize * stride);
            kept += 1;
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(pids: &[u32], element: usize, room: usize) -> Vec<u8> {
        let mut bytes = vec![BLANK; room];
        for (place, pid) in bytes.chunks_mut(element).zip(pids) {
            place.fill(0);
            place[..4].copy_from_slice(&pid.to_ne_bytes());
            place[8..16].copy_from_slice(&u64::from(*pid * 10).to_ne_bytes());
        }
        bytes
    }

    #[test]
    fn the_length_of_an_element_is_found_by_what_was_written() {
        for count in 1..6 {
            let pids = &[1, 2, 3, 4, 5][..count];
            assert_eq!(stride(&list(pids, 24, 256), count, 24, 32), 24);
            assert_eq!(stride(&list(pids, 32, 256), count, 24, 32), 32);
            assert_eq!(stride(&list(pids, 16, 256), count, 16, 16), 16);
        }
        assert_eq!(stride(&[0; 256], 2, 24, 32), 24, "cleared as a whole");
        assert_eq!(stride(&[BLANK; 256], 0, 24, 32), 24, "no process");
    }

    #[test]
    fn wanted_processes_are_kept_whole_and_in_order() {
        for element in [16, 24, 32] {
            let mut bytes = list(&[7, 8, 9, 10], element, 256);
            assert_eq!(keep(&mut bytes, 4, element, |pid| pid == 8 || pid == 10), 2);
            assert_eq!(bytes[..2 * element], list(&[8, 10], element, 2 * element));
            assert_eq!(keep(&mut bytes, 2, element, |_| false), 0);
        }
    }

    #[test]
    fn a_list_that_grows_is_asked_for_again_with_more_room() {
        let mut asked = Vec::new();
        let read = List::read::<nvmlProcessInfo_v1_t>(|room, infos| {
            asked.push(*room);
            if *room < 1000 {
                *room = 1000;
                return NVML_ERROR_INSUFFICIENT_SIZE;
            }
            *room = 1;
            // SAFETY: there is room for one.
            unsafe {
                infos.cast::<nvmlProcessInfo_v1_t>().write(nvmlProcessInfo_v1_t { pid: 7, usedGpuMemory: 70 })
            };
            NVML_SUCCESS
        });
        let read = read.unwrap();
        assert_eq!((asked, read.count, read.stride), (vec![256, 1256], 1, 16));
        assert_eq!(read.bytes()[..4], 7u32.to_ne_bytes());
        assert!(List::read::<nvmlProcessInfo_v1_t>(|_, _| nvmlReturn_t(3)).is_none());
    }
}
