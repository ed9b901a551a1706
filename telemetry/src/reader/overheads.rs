//! Context overheads of the members of the job's quota: cheap, for polls.

use std::mem::offset_of;

use super::segment::{Segment, SegmentError};
use crate::layout::{GPUS, LEDGER_AT, SlotState};
use crate::ledger::layout::*;
use crate::ledger::words::{bytes_of, is_of};

/// Context overhead of one process on one GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overhead {
    /// Its process id, in its own pid namespace.
    pub pid: u32,
    /// The driver's uuid of the GPU.
    pub uuid: [u8; 16],
    /// Bytes, as far as measured or known from before.
    pub bytes: u64,
}

impl Segment {
    /// Context overheads of the job's processes; dead ones may be among them. Empty where the job has no quota.
    ///
    /// # Errors
    ///
    /// If the file cannot be read.
    pub fn overheads(&self) -> Result<Vec<Overhead>, SegmentError> {
        let words = |at: usize, bytes: usize| self.words(LEDGER_AT + at as u64, bytes as u64);
        let header = words(offset_of!(LedgerArea, header), 64)?;
        let high = header.at(offset_of!(LedgerHeader, high)).min(MEMBERS as u64) as usize;
        let known = header.at(offset_of!(LedgerHeader, magic)) == LEDGER_MAGIC
            && header.at(offset_of!(LedgerHeader, version)) == LEDGER_VERSION;
        let mut found = Vec::new();
        if !known || high == 0 {
            return Ok(found);
        }
        let gpus = words(offset_of!(LedgerArea, gpus), GPUS * size_of::<LedgerGpu>())?;
        let members = words(offset_of!(LedgerArea, members), high * size_of::<LedgerMember>())?;
        for gpu in 0..GPUS {
            let cell = gpu * size_of::<LedgerGpu>();
            if gpus.at(cell + offset_of!(LedgerGpu, tag)) == 0 {
                continue;
            }
            let [first, second] = gpus.array(cell + offset_of!(LedgerGpu, uuid)).map(u64::to_ne_bytes);
            let mut uuid = [0; 16];
            uuid[..8].copy_from_slice(&first);
            uuid[8..].copy_from_slice(&second);
            let row = words(offset_of!(LedgerArea, overhead) + gpu * size_of::<Row>(), high * 8)?;
            found.extend((0..high).filter_map(|number| {
                let at = number * size_of::<LedgerMember>() + offset_of!(LedgerMember, state);
                let (state, word) = (SlotState(members.at(at)), row.at(number * 8));
                let own = state.state() == SlotState::LIVE && is_of(word, state.generation());
                (own && bytes_of(word) > 0).then(|| Overhead {
                    pid: state.pid(),
                    uuid,
                    bytes: bytes_of(word),
                })
            }));
        }
        Ok(found)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::SegmentFile;
    use crate::ledger::{Amount, Ledger, Limit};
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn context_overheads_are_reported_by_process_and_gpu() {
        let directory = tempfile::tempdir().unwrap();
        let file = SegmentFile::create_in(&directory.path().join("r"), 7).unwrap();
        let segment = file.segment().unwrap();
        assert_eq!(segment.overheads().unwrap(), [], "no quota");
        let view = file.arm(&[Limit { gpu: None, amount: Amount::Bytes(1 << 30) }]).unwrap();
        assert_eq!(segment.overheads().unwrap(), [], "no members");
        view.set_context(None, 300);
        let path = CString::new(file.path().as_os_str().as_bytes()).unwrap();
        let ledger = Ledger::join_segment(&path).unwrap().unwrap();
        let gpus = [[1; 16], [2; 16]].map(|uuid| ledger.gpu(&uuid, 1 << 30).unwrap());
        assert_eq!(segment.overheads().unwrap(), [], "no contexts");
        ledger.context_came(gpus[1]);
        let expected = Overhead { pid: std::process::id(), uuid: [2; 16], bytes: 300 };
        assert_eq!(segment.overheads().unwrap(), [expected]);
    }
}
