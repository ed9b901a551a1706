//! Reading and changing a ledger from outside: launcher, administrator, daemon.

use super::gpus::settle_limit;
use super::home::Home;
use super::layout::*;
use super::living::Living;
use super::place::Place;
use super::{Amount, LedgerError, Limit, file, words};
use crate::layout::SlotState;
use crate::sync::AtomicU64;
use crate::sync::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::path::Path;

/// A ledger, mapped for as long as the process lives. Its owner may shorten the file: what is cut off reads as zeros.
#[derive(Clone, Copy, Debug)]
pub struct LedgerView {
    area: &'static LedgerArea,
    home: Home,
}

/// One GPU of a ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuUse {
    /// The driver's uuid.
    pub uuid: [u8; 16],
    /// Memory of the GPU, bytes; 0 while no process has seen it.
    pub total_bytes: u64,
    /// The amount that applies to it.
    pub amount: Amount,
    /// The limit, bytes; `None` where there is none.
    pub limit: Option<u64>,
    /// Bytes that living members hold together.
    pub used: u64,
    /// Requests refused so far.
    pub refused: u64,
    /// Context overhead that is assumed until it is measured, bytes.
    pub context: u64,
}

/// One living member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberUse {
    /// Number of its place in the ledger.
    pub number: usize,
    /// Process id, in its own pid namespace.
    pub pid: u32,
    /// True if that is the caller's pid namespace: in another the number is that of another process.
    pub is_here: bool,
    /// Start time of the process in clock ticks since boot.
    pub start: u64,
    /// Bytes that it holds, in the order of [`LedgerView::gpus`]; what the driver itself takes is among them.
    pub bytes: Vec<u64>,
    /// Bytes of these that the driver itself takes.
    pub overhead: Vec<u64>,
}

impl LedgerView {
    /// The ledger in this file.
    ///
    /// # Errors
    ///
    /// See [`LedgerError`]; a segment without a quota is [`LedgerError::Foreign`].
    pub fn open(path: &Path, place: Place) -> Result<Self, LedgerError> {
        file::map(path, place).map(|(area, home)| Self { area, home })
    }

    fn gpu_cells(&self) -> impl Iterator<Item = (usize, &'static LedgerGpu)> {
        self.area.gpus.iter().enumerate().filter(|(_, cell)| cell.tag.load(Acquire) != 0)
    }

    /// The GPUs, with what living members hold of them. Gives back what dead ones held.
    pub fn gpus(&self) -> Vec<GpuUse> {
        radrm_guard::touch(|| {
            let cells = self.gpu_cells();
            cells
                .map(|(number, cell)| {
                    if let Some(row) = super::LedgerRow::from_number(number) {
                        super::sweep::sweep(self.area, self.home, row, None);
                    }
                    let limit = cell.limit.load(Relaxed);
                    GpuUse {
                        uuid: uuid_of(&cell.uuid),
                        total_bytes: cell.total_bytes.load(Relaxed),
                        amount: self.area.amount_of(cell),
                        limit: (limit != u64::MAX).then_some(limit),
                        used: self.area.words(number).map_or(0, |words| words.sum()),
                        refused: cell.refused.load(Relaxed),
                        context: self.area.context_of(cell),
                    }
                })
                .collect()
        })
    }

    /// The limit of each GPU that is known here, by the driver's uuid, bytes; `None` where there is none. Cheap, for polls.
    pub fn limits(&self) -> Vec<([u8; 16], Option<u64>)> {
        radrm_guard::touch(|| {
            let limit = |cell: &LedgerGpu| Some(cell.limit.load(Relaxed)).filter(|limit| *limit != u64::MAX);
            self.gpu_cells().map(|(_, cell)| (uuid_of(&cell.uuid), limit(cell))).collect()
        })
    }

    /// The limit of GPUs that have none of their own.
    pub fn general(&self) -> Amount {
        radrm_guard::touch(|| self.area.general_amount())
    }

    /// The living members.
    pub fn members(&self) -> Vec<MemberUse> {
        radrm_guard::touch(|| {
            let living = Living::of(self.home);
            let members = self.area.used_members();
            members
                .filter_map(|(number, member)| {
                    let state = SlotState(member.state.load(Acquire));
                    if state.state() != SlotState::LIVE || living.dead(number, member).is_some() {
                        return None;
                    }
                    let of = |rows: &[Row]| {
                        let word = |gpu: usize| {
                            rows.get(gpu).and_then(|row| row.get(number)).map(|w| w.load(Relaxed))
                        };
                        let own = |word: &u64| words::is_of(*word, state.generation());
                        self.gpu_cells()
                            .map(|(gpu, _)| word(gpu).filter(own).map_or(0, words::bytes_of))
                            .collect()
                    };
                    Some(MemberUse {
                        number,
                        pid: state.pid(),
                        is_here: living.is_here(member.namespace.load(Relaxed)),
                        start: member.start.load(Relaxed),
                        bytes: of(&self.area.reserved),
                        overhead: of(&self.area.overhead),
                    })
                })
                .collect()
        })
    }

    /// Changes one limit. It holds for every request from now on; what is held already stays.
    /// A general limit applies to every GPU that has none of its own. False: more GPUs than a ledger holds.
    pub fn set_limit(&self, limit: &Limit) -> bool {
        radrm_guard::touch(|| {
            match &limit.gpu {
                Some(uuid) => {
                    let Some(cell) =
                        super::gpus::enter(self.area, uuid, 0).and_then(|at| self.area.gpus.get(at))
                    else {
                        return false;
                    };
                    cell.amount.store(limit.amount.to_word(), Release);
                    settle_limit(self.area, cell);
                }
                None => {
                    self.area.header.amount.store(limit.amount.to_word(), Release);
                    for cell in &self.area.gpus {
                        settle_limit(self.area, cell);
                    }
                }
            }
            true
        })
    }

    /// Makes these the limits, and all of them: what was set before and is not named is gone.
    pub fn set_limits(&self, limits: &[Limit]) {
        radrm_guard::touch(|| {
            file::set_limits(self.area, limits);
        })
    }

    /// Marks the limits as set by hand by the ledger's user.
    pub fn set_by_hand(&self, by_hand: bool) {
        radrm_guard::touch(|| {
            self.area.header.by_hand.store(by_hand.into(), Release);
        })
    }

    /// Says what a context is taken to need: on one GPU, or where nothing else is known.
    pub fn set_context(&self, gpu: Option<&[u8; 16]>, bytes: u64) {
        radrm_guard::touch(|| {
            file::set_context(self.area, gpu, bytes);
        })
    }

    /// Says what the driver itself was measured to take for a member on a GPU (a number in the order of
    /// [`LedgerView::gpus`]), and charges it at once.
    pub fn set_overhead(&self, member: &MemberUse, gpu: usize, bytes: u64) {
        radrm_guard::touch(|| {
            let Some(cell) = self.area.members.get(member.number) else { return };
            let state = SlotState(cell.state.load(Acquire));
            let Some((row, _)) = self.gpu_cells().nth(gpu) else { return };
            let word = self.area.overhead.get(row).and_then(|row| row.get(member.number));
            if let Some(word) = word.filter(|_| state.pid() == member.pid && state.state() == SlotState::LIVE)
            {
                let seen = word.load(Relaxed);
                if words::is_of(seen, state.generation()) {
                    let measured =
                        words::empty(state.generation()) | words::bytes_of(bytes.min(words::LARGEST));
                    // One that joined in this place meanwhile has another generation.
                    let _ = word.compare_exchange(seen, measured, AcqRel, Relaxed);
                    super::gpus::settle_overhead(self.area, row, member.number, state.generation());
                }
            }
        })
    }
}

pub(super) fn uuid_of(words: &[AtomicU64; 2]) -> [u8; 16] {
    let mut uuid = [0; 16];
    for (place, word) in uuid.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.load(Relaxed).to_ne_bytes());
    }
    uuid
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::Ledger;
    use super::super::file::tests::scratch;
    use super::*;

    const GPU: [u8; 16] = *b"a gpu of 16 byte";

    #[test]
    fn a_limit_below_what_is_in_use_refuses_growth_and_takes_nothing_away() {
        let file = scratch(&[Limit { gpu: None, amount: Amount::Bytes(100) }]);
        let view = LedgerView::open(file.path(), Place::File).unwrap();
        let ledger = Ledger::join_file(file.path_c()).unwrap();
        let row = ledger.gpu(&GPU, 1000).unwrap();
        ledger.reserve(row, 80).unwrap();
        assert!(view.set_limit(&Limit { gpu: Some(GPU), amount: Amount::Bytes(50) }));
        assert_eq!(ledger.reserve(row, 1).unwrap_err().limit, 50);
        let seen = view.gpus();
        assert_eq!((seen[0].uuid, seen[0].limit, seen[0].used), (GPU, Some(50), 80));
        assert_eq!(view.limits(), [(GPU, Some(50))]);
        assert!(view.set_limit(&Limit { gpu: Some(GPU), amount: Amount::Bytes(200) }));
        ledger.reserve(row, 120).unwrap();
        view.set_limits(&[]);
        ledger.reserve(row, 1 << 40).unwrap();
        assert_eq!(view.limits(), [(GPU, None)]);
    }

    #[test]
    fn a_member_says_whether_its_pid_is_one_of_here() {
        let file = scratch(&[]);
        let _ledger = Ledger::join_file(file.path_c()).unwrap();
        let view = LedgerView::open(file.path(), Place::File).unwrap();
        assert_eq!(view.members().iter().map(|member| member.is_here).collect::<Vec<_>>(), [true]);
        for member in &view.area.members {
            member.namespace.store(1, Relaxed);
        }
        assert_eq!(view.members().iter().map(|member| member.is_here).collect::<Vec<_>>(), [false]);
    }

    #[test]
    fn a_share_is_of_the_gpu_that_it_is_applied_to() {
        let file = scratch(&[Limit { gpu: None, amount: Amount::PerMyriad(2_500) }]);
        let ledger = Ledger::join_file(file.path_c()).unwrap();
        let (small, large) = (ledger.gpu(&[1; 16], 400).unwrap(), ledger.gpu(&[2; 16], 4000).unwrap());
        assert_eq!((ledger.limit(small), ledger.limit(large)), (100, 1000));
    }

    #[test]
    fn a_gpu_named_before_any_process_has_seen_it_keeps_its_limit() {
        let file = scratch(&[Limit { gpu: Some(GPU), amount: Amount::PerMyriad(5_000) }]);
        let ledger = Ledger::join_file(file.path_c()).unwrap();
        let row = ledger.gpu(&GPU, 1000).unwrap();
        assert_eq!(ledger.limit(row), 500);
        let other = ledger.gpu(&[9; 16], 1000).unwrap();
        assert_eq!(ledger.limit(other), u64::MAX);
    }

    #[test]
    fn what_the_driver_takes_is_handed_to_the_member_it_was_measured_for() {
        let file = scratch(&[]);
        let view = LedgerView::open(file.path(), Place::File).unwrap();
        view.set_context(None, 300);
        let ledger = Ledger::join_file(file.path_c()).unwrap();
        let row = ledger.gpu(&GPU, 1000).unwrap();
        ledger.reserve(row, 100).unwrap();
        ledger.context_came(row);
        assert_eq!(ledger.used(row), 400);
        let member = view.members().remove(0);
        view.set_overhead(&member, 0, 512);
        ledger.context_came(row);
        assert_eq!(ledger.used(row), 612, "charged at once, and a measurement stands");
        assert_eq!(view.members()[0].overhead, [512]);
        view.set_overhead(&member, 0, 200);
        assert_eq!(ledger.used(row), 300);
    }

    #[test]
    fn a_program_that_execs_gives_back_what_it_held() {
        let file = scratch(&[Limit { gpu: None, amount: Amount::Bytes(100) }]);
        let ledger = Ledger::join_file(file.path_c()).unwrap();
        let row = ledger.gpu(&GPU, 1000).unwrap();
        ledger.reserve(row, 80).unwrap();
        // The same process joins again: what it was before is gone.
        let again = Ledger::join_file(file.path_c()).unwrap();
        again.reserve(again.gpu(&GPU, 1000).unwrap(), 100).unwrap();
        assert_eq!(again.used(row), 100);
    }
}
