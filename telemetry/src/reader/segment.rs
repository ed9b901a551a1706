//! Opening a segment; what it says about the job, its GPUs and its slots.

use super::candidate::Candidate;
use super::elsewhere::{Sight, Whereabouts};
use super::raw::Words;
use crate::budget::Budget;
use crate::gpu_index::GpuIndex;
use crate::layout::*;
use crate::ledger::{LedgerError, LedgerView, Place};
use crate::notices::NoticeSeen;
use crate::sync::{Ordering::SeqCst, fence};
use crate::sys;
use std::fs::File;
use std::mem::offset_of;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Reason that a segment cannot be read.
#[derive(Debug)]
pub enum SegmentError {
    /// A system call failed.
    Io(std::io::Error),
    /// The file is not a segment.
    Foreign,
    /// The segment has another layout; its version.
    Version(u64),
    /// Reading it takes more processor time than it may.
    TooLong,
}

impl std::fmt::Display for SegmentError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Io(error) => write!(f, "the segment cannot be read: {error}"),
            Self::TooLong => f.write_str("the segment cannot be read: it takes too long"),
            Self::Foreign => f.write_str("the file is not a segment"),
            Self::Version(version) => write!(f, "the segment has layout version {version}, not {VERSION}"),
        }
    }
}

impl std::error::Error for SegmentError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        if let Self::Io(error) = self { Some(error) } else { None }
    }
}

impl From<std::io::Error> for SegmentError {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error)
    }
}

/// Job of a segment, from its header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobInfo {
    /// Number that the launcher gave the job.
    pub job_id: u64,
    /// Process that made the segment.
    pub launcher_pid: u32,
    /// `CLOCK_MONOTONIC` at creation, ns; all times of the segment count from here.
    pub created_mono_ns: u64,
    /// `CLOCK_REALTIME` at creation, ns.
    pub created_real_ns: u64,
    /// The launch budget that is set.
    pub budget: Option<Budget>,
}

/// A GPU of the job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuInfo {
    /// Number within the job.
    pub index: GpuIndex,
    /// The driver's uuid.
    pub uuid: [u8; 16],
    /// Name.
    pub name: String,
    /// Memory, bytes.
    pub total_bytes: u64,
    /// PCI bus id.
    pub pci: String,
}

/// Liveness of a process, as far as it is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Liveness {
    /// Running.
    #[default]
    Running,
    /// Gone without saying so: killed, crashed, or left by `_exit`.
    Dead,
    /// Left in order.
    Exited,
    /// Became another program, which has a slot of its own if it uses a GPU.
    Execed,
}

/// A slot in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlotInfo {
    /// Number of the slot.
    pub slot: usize,
    /// Number of processes that have had it; slot and generation name a process.
    pub generation: u32,
    /// Its process id here. `None`: it is one of another pid namespace and was not found; nothing can be done by its pid.
    pub pid: Option<u32>,
    /// Its process id in its own pid namespace.
    pub own_pid: u32,
    /// Its start time in clock ticks since boot.
    pub start: u64,
    /// Liveness of the process.
    pub liveness: Liveness,
}

impl SlotInfo {
    /// Process id for messages: its process id here, else that of its own namespace.
    #[must_use]
    pub fn shown_pid(&self) -> u32 {
        self.pid.unwrap_or(self.own_pid)
    }
}

/// Effect of the job's launch budget on one process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Throttled {
    /// True if its launches follow budgets at all.
    pub obeys: bool,
    /// Launches that were let through while a budget was set.
    pub passed: u64,
    /// Launches that had to wait.
    pub held: u64,
    /// Total time that they waited, ns.
    pub held_ns: u64,
}

impl Throttled {
    pub(super) fn of(words: [u64; 4]) -> Self {
        let [obeyed, passed, held, held_ns] = words;
        Self { obeys: obeyed == 1, passed, held, held_ns }
    }
}

/// A segment open for reading.
#[derive(Debug)]
pub struct Segment {
    file: File,
    sight: Sight,
}

impl Segment {
    /// Opens the segment at `path`; for writing too if that is allowed, which only [`Segment::harvest`] and
    /// [`Segment::set_budget`] need. Whatever lies there, this does not wait for it.
    ///
    /// # Errors
    ///
    /// See [`SegmentError`].
    pub fn open(path: &Path) -> Result<Self, SegmentError> {
        Candidate::at(path)?.open()
    }

    /// The job's ledger, mapped for good.
    ///
    /// # Errors
    ///
    /// See [`LedgerError`]; [`LedgerError::Foreign`] if the job has no quota.
    pub fn ledger(&self) -> Result<LedgerView, LedgerError> {
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        LedgerView::open(Path::new(&path), Place::Segment)
    }

    pub(crate) fn from_file(file: File) -> Result<Self, SegmentError> {
        let Ok(words) = Words::read(&file, 0, 24) else { return Err(SegmentError::Foreign) };
        match words.array(0) {
            [MAGIC, VERSION, TOTAL_BYTES] if file.metadata()?.len() == TOTAL_BYTES => {
                let launchers = Words::read(&file, offset_of!(Header, namespace) as u64, 8)?.at(0);
                Ok(Self { file, sight: Sight::of(launchers) })
            }
            [MAGIC, version, _] if version != VERSION => Err(SegmentError::Version(version)),
            _ => Err(SegmentError::Foreign),
        }
    }

    /// Takes from here on `answers` to whether processes live: those of one moment, for a look at many segments.
    #[must_use]
    pub fn sharing(mut self, answers: &super::Answers) -> Self {
        self.sight.share(answers);
        self
    }

    /// Returns true if the file has all its bytes; not if a process of the job has shortened it.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.file.metadata().is_ok_and(|found| found.len() == TOTAL_BYTES)
    }

    pub(super) fn words(&self, at: u64, bytes: u64) -> Result<Words, SegmentError> {
        Ok(Words::read(&self.file, at, bytes)?)
    }

    pub(super) fn word(&self, at: u64) -> Option<u64> {
        let mut word = [0; 8];
        self.file.read_exact_at(&mut word, at).ok()?;
        Some(u64::from_ne_bytes(word))
    }

    /// Reads the job from the header.
    ///
    /// # Errors
    ///
    /// If the file cannot be read.
    pub fn job(&self) -> Result<JobInfo, SegmentError> {
        let words = self.words(0, GPUS_AT)?;
        Ok(JobInfo {
            job_id: words.at(offset_of!(Header, job_id)),
            launcher_pid: words.at(offset_of!(Header, launcher_pid)) as u32,
            created_mono_ns: words.at(offset_of!(Header, created_mono_ns)),
            created_real_ns: words.at(offset_of!(Header, created_real_ns)),
            budget: Budget::from_word(words.at(offset_of!(Header, budget))),
        })
    }

    /// Notices of processes without a slot, in their order, and the number of notices that there was no room for.
    ///
    /// # Errors
    ///
    /// If the file cannot be read.
    pub fn notices(&self) -> Result<(Vec<NoticeSeen>, u64), SegmentError> {
        let words = self.words(offset_of!(Header, notices) as u64, size_of::<NoticeTable>() as u64)?;
        let seen = |number: usize| {
            let at = offset_of!(NoticeTable, cells) + number * size_of::<NoticeCell>();
            let fields =
                [offset_of!(NoticeCell, pid), offset_of!(NoticeCell, what), offset_of!(NoticeCell, ns)];
            NoticeSeen::from_words(fields.map(|field| words.at(at + field)))
        };
        Ok(((0..NOTICES).filter_map(seen).collect(), words.at(offset_of!(NoticeTable, lost))))
    }

    /// The GPUs that processes of the job have named so far.
    ///
    /// # Errors
    ///
    /// If the file cannot be read.
    pub fn gpus(&self) -> Result<Vec<GpuInfo>, SegmentError> {
        let words = self.words(GPUS_AT, (GPUS * size_of::<GpuCell>()) as u64)?;
        let gpu = |number: usize| {
            let at = number * size_of::<GpuCell>();
            let ready = words.at(at + offset_of!(GpuCell, ready)) == 1;
            let mut uuid = [0; 16];
            uuid.copy_from_slice(&words.bytes(at + offset_of!(GpuCell, uuid), 16));
            ready.then_some(GpuInfo {
                index: GpuIndex::from_number(number)?,
                uuid,
                name: words.text(at + offset_of!(GpuCell, name), 64),
                total_bytes: words.at(at + offset_of!(GpuCell, total_bytes)),
                pci: words.text(at + offset_of!(GpuCell, pci), 32),
            })
        };
        Ok((0..GPUS).filter_map(gpu).collect())
    }

    /// The slots in use, in their order.
    ///
    /// # Errors
    ///
    /// If the file cannot be read.
    pub fn slots(&self) -> Result<Vec<SlotInfo>, SegmentError> {
        let words = self.words(DIRECTORY_AT, (SLOTS * size_of::<DirEntry>()) as u64)?;
        Ok((0..SLOTS).filter_map(|slot| self.info(slot, &words, slot * size_of::<DirEntry>())).collect())
    }

    /// One slot; `None` if it is not in use.
    pub fn slot(&self, slot: usize) -> Option<SlotInfo> {
        if slot >= SLOTS {
            return None;
        }
        let words = self.words(entry_at(slot), size_of::<DirEntry>() as u64).ok()?;
        self.info(slot, &words, 0)
    }

    fn info(&self, slot: usize, words: &Words, at: usize) -> Option<SlotInfo> {
        let mut state = SlotState(words.at(at));
        let start = words.at(at + offset_of!(DirEntry, start));
        let pid = state.pid();
        let namespace = SlotNamespace(words.at(at + offset_of!(DirEntry, namespace)));
        let it = Whereabouts { key: (slot, state.generation()), pid, start, namespace };
        let is_running = || self.sight.lives(&self.file, it);
        let live = state.state() == SlotState::LIVE && pid != 0;
        let running = live && is_running();
        if live && !running {
            // It may have taken its leave since the directory was read. Now that it is gone, its last word is in.
            let last = SlotState(self.word(entry_at(slot) + offset_of!(DirEntry, state) as u64)?);
            if (last.pid(), last.generation()) == (pid, state.generation()) {
                state = last;
            }
        }
        let liveness = match state.state() {
            _ if pid == 0 => return None,
            SlotState::LIVE if running => Liveness::Running,
            SlotState::LIVE => Liveness::Dead,
            SlotState::ENDED => {
                let reason = self.word(slot_at(slot) + offset_of!(SlotHead, end_reason) as u64)?;
                // A process that becomes another program cannot always record it; its successor ends the slot then.
                if reason != crate::EndReason::Exited as u64 {
                    Liveness::Execed
                } else if is_running() {
                    Liveness::Running // on its way out, and what it still frees counts
                } else {
                    Liveness::Exited
                }
            }
            _ => return None,
        };
        let here = self.sight.pid(it, liveness == Liveness::Running);
        Some(SlotInfo { slot, generation: state.generation(), pid: here, own_pid: pid, start, liveness })
    }

    /// The launch budget that is set; `None` also where the file cannot be read.
    pub fn budget(&self) -> Option<Budget> {
        Budget::from_word(self.word(offset_of!(Header, budget) as u64)?)
    }

    /// Sets the job's launch budget, or lifts it, for its running and its later processes. Launches that wait check
    /// at it at once.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn set_budget(&self, budget: Option<Budget>) -> Result<(), SegmentError> {
        let at = offset_of!(Header, budget);
        // Not through a mapping: the file is the job's, and to touch what the job has cut off it would kill.
        self.file.write_all_at(&budget.map_or(0, Budget::word).to_ne_bytes(), at as u64)?;
        self.with_header(|header| sys::wake(&header.budget))
    }

    /// Gives the header to `work`, which may pass the addresses of its words to the kernel and touch none of them: the job
    /// may have cut its file off, which the kernel reports and a load would not survive.
    fn with_header(&self, work: impl FnOnce(&Header)) -> Result<(), SegmentError> {
        let page = sys::map_shared(&self.file, 0, PAGE).map_err(std::io::Error::from)?;
        // SAFETY: the mapping holds the header, all of which are atomics, until it is removed below.
        work(unsafe { page.cast::<Header>().as_ref() });
        // SAFETY: made above, and the header is not used any more.
        unsafe { sys::unmap(page, PAGE) };
        Ok(())
    }

    /// A second handle of the same segment, for another thread.
    ///
    /// # Errors
    ///
    /// If there is no descriptor left.
    pub fn try_clone(&self) -> Result<Self, SegmentError> {
        Ok(Self { file: self.file.try_clone()?, sight: self.sight.anew() })
    }

    /// The time up to which launches under the budget wait ([`crate::gate`]), ns; 0 also where the file cannot be read.
    pub fn gate(&self) -> u64 {
        self.word(offset_of!(Header, gate.until) as u64).unwrap_or(0)
    }

    /// Holds launches under the budget until a time (`CLOCK_MONOTONIC`, ns), or lets them go (0). Launches that wait check
    /// it at once.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn set_gate(&self, until_ns: u64) -> Result<(), SegmentError> {
        self.file.write_all_at(&until_ns.to_ne_bytes(), offset_of!(Header, gate.until) as u64)?;
        self.with_header(|header| sys::wake(&header.gate.until))
    }

    /// Sets the word that ranges check when they begin and end ([`crate::gate::ARMED`] and the words beside it).
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn watch_ranges(&self, word: u64) -> Result<(), SegmentError> {
        self.file.write_all_at(&word.to_ne_bytes(), offset_of!(Header, gate.ranges) as u64)?;
        // What is read from here on is from after a range that found the word before.
        fence(SeqCst);
        Ok(())
    }

    /// Sleeps until a range begins or ends, or for so long (ns) at most; not at all unless the word is
    /// [`crate::gate::ARMED`].
    ///
    /// # Errors
    ///
    /// If the file cannot be mapped.
    pub fn wait_for_ranges(&self, ns: u64) -> Result<(), SegmentError> {
        self.with_header(|header| sys::wait_on(&header.gate.ranges, crate::gate::ARMED, ns))
    }

    /// Effect of the budget on a process so far: cheap, for polls.
    ///
    /// # Errors
    ///
    /// If the file cannot be read.
    pub fn throttled(&self, slot: &SlotInfo) -> Result<Throttled, SegmentError> {
        let at = slot_at(slot.slot.min(SLOTS - 1)) + offset_of!(SlotHead, budget) as u64;
        let words = self.words(at, 32)?;
        Ok(Throttled::of(words.array(0)))
    }

    /// Says that the data of a slot have been saved, so that it may be given to another process once its own is
    /// gone.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn harvest(&self, slot: &SlotInfo) -> Result<(), SegmentError> {
        if slot.slot >= SLOTS {
            return Ok(());
        }
        let at = DIRECTORY_AT + (slot.slot * size_of::<DirEntry>() + offset_of!(DirEntry, harvested)) as u64;
        Ok(self.file.write_all_at(&u64::from(slot.generation).to_ne_bytes(), at)?)
    }
}
